"""One row of the option table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.core.options.kinds import Kind

__all__ = ("BOTH", "READ", "WRITE", "Option")

WRITE = frozenset({"write"})
READ = frozenset({"read"})
BOTH = WRITE | READ


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        name: the spelling in docs and messages; users may write it in any case.
        default: the parsed value when it is not given.
        formats: the formats it belongs to, `FORMATS` for all, also those of other packages; empty when it does not
            depend on the format.
        default_text: what the docs say where the default is not one value.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    group: str
    formats: tuple[str, ...] = ()
    used_by: frozenset[str] = WRITE
    default_text: str = ""
