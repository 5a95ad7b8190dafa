"""Declaration of an option as an attribute of a class, with its kind, default and type."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, get_args, get_origin, get_type_hints, overload

from ftfile.core.options.kinds import one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.options.kinds import Kind

_T = TypeVar("_T")
_NEXT_WORD = re.compile("_([a-z])")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Option(Generic[_T]):
    """The declaration of an option: an attribute of a class. The instances of the class have a value instead.

    Attributes:
        attribute: the name of the attribute.
        name: as in docs and messages; users can write it in any case.
        default: the parsed value.
        formats: the formats that the option is for, `FORMATS` for all; empty if it does not depend on the format.
        used_by: the uses whose classes have the option.
    """

    attribute: str
    name: str

    def __init__(
        self,
        kind: Kind[_T] | None,
        default: _T | None,
        formats: tuple[str, ...],
        name: str | None = None,
        also: Mapping[str, str] | None = None,
    ) -> None:
        self.default: Any = default
        self.formats = formats
        self.used_by = frozenset[str]()
        self._kind = kind
        self._name = name
        self._also = also or {}

    def __set_name__(self, owner: type[object], attribute: str) -> None:
        # A second class can have the option, too.
        if not hasattr(self, "attribute"):
            self._owner = owner
            self.attribute = attribute
            self.name = self._name or _NEXT_WORD.sub(lambda match: match[1].upper(), attribute)

    @property
    def kind(self) -> Kind[_T]:
        """The kind of its values; an option of words has the words of its annotation."""
        if self._kind is None:
            # Annotations are texts, and most processes need the words of few options.
            words = _words_of(get_type_hints(self._owner)[self.attribute])
            shown = ", ".join(f'"{word}"' for word in words)
            kind = replace(one_of(*words, **self._also), argument=f"Literal[{shown}]")
            self._kind = cast("Kind[_T]", kind)
        return self._kind


def _words_of(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - types have many classes
    """Return the words of a `Literal`, or of a `Literal` or None."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    (words,) = (get_args(part) for part in get_args(annotation) if get_origin(part) is Literal)
    return cast("tuple[str, ...]", words)


@overload
def option(kind: Kind[_T], *, formats: tuple[str, ...] = ..., name: str | None = ...) -> _T | None: ...
@overload
def option(kind: Kind[_T], *, default: _T, formats: tuple[str, ...] = ..., name: str | None = ...) -> _T: ...
def option(
    kind: Kind[_T], *, default: _T | None = None, formats: tuple[str, ...] = (), name: str | None = None
) -> _T | None:
    """Declare an option; type checkers see the type of its values.

    Args:
        kind: its values.
        default: the parsed value; without a default the value is None.
        formats: see `Option`.
        name: the name, if it is not that of the attribute in camel case.
    """
    return cast("_T", Option(kind, default, formats, name))


def words(default: _T, *, formats: tuple[str, ...] = (), **also: str) -> _T:
    """Declare an option whose values are words: its annotation is a `Literal` of them, or the `Literal` or None.

    Args:
        default: one of the words, or None.
        formats: see `Option`.
        also: other accepted texts in lower case, each with its word.
    """
    return cast("_T", Option(None, default, formats, also=also))


def attribute_name(name: str) -> str:
    """Return the name of an option in snake case."""
    return _WORD.sub("_", name).lower()
