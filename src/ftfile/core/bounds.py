"""The bounds of the values of a column in many files, as the log contains them."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNKNOWN = (None, None, None)


class BoundsColumn(NamedTuple):
    """The entries of a column, one for each file, with the values of the log; None is unknown.

    A bound is a number, a text (also of a decimal; base64 of binary), a boolean, days, or microseconds. It is not
    necessarily a value of the file: `low` can be less than all values, and `high` can be greater.
    """

    low: Sequence[Any]
    high: Sequence[Any]
    nulls: Sequence[int | None]


def bounds_column(entries: Iterable[Sequence[Any] | None]) -> BoundsColumn:
    """Return a column of entries `[low, high, nulls]`. An entry that is missing or has another length is unknown."""
    rows = [entry or _UNKNOWN for entry in entries]
    if {*map(len, rows)} != {len(_UNKNOWN)}:
        rows = list(map(_check_entry, rows))
    low, high, nulls = (list(map(itemgetter(position), rows)) for position in range(len(_UNKNOWN)))
    return BoundsColumn(low, high, nulls)


def _check_entry(entry: Sequence[Any]) -> Sequence[Any]:
    if len(entry) == len(_UNKNOWN):
        return entry
    return _UNKNOWN
