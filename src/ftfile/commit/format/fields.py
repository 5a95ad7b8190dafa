"""Tables of fields: one row says how an attribute of a value is written in JSON. See docs/internals/format.md."""

from __future__ import annotations

import dataclasses
import operator
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Value = TypeVar("_Value")
_Types = tuple[type, ...]

TEXT, NUMBER, FLAG, OBJECT, LIST = (str,), (int,), (bool,), (dict,), (list,)
OR_NULL = (NoneType,)
ANY: _Types = ()


class Field(NamedTuple):
    """A row of a table."""

    name: str  # in JSON
    attribute: str  # of the value
    types: _Types = ANY  # in JSON; empty for anything
    encode: Callable[[Any], Any] | None = None  # makes JSON of the attribute; None where it is JSON already
    decode: Callable[[Any], Any] | None = None  # the inverse
    is_rare: bool = False  # few adds have it, so that documents of adds have no column for it

    def check(self, found: object) -> None:
        """Raise a ValueError unless JSON has something of the right type: a right checksum is no right writer."""
        if self.types and type(found) not in self.types:
            raise ValueError(f"{self.name} is {found!r:.80}")


class Fields(Generic[_Value]):
    """The table of a class: a dataclass or a named tuple.

    A field at its attribute's default is left out of JSON, unless `always`; JSON without it gives the default. Fields
    that the table lacks are ignored: see docs/internals/format.md on versions.
    """

    def __init__(self, make: Callable[..., _Value], *rows: Field, always: bool = False) -> None:
        self.rows = rows
        self.make = make
        self.defaults = {} if always else _defaults(make)
        required = [row for row in rows if row.attribute not in self.defaults]
        plain = [row for row in required if row.encode is None]
        self._plain, self._plain_names = plain, [row.name for row in plain]
        self._plain_attributes = [row.attribute for row in plain]
        self._plain_of = _getter(operator.attrgetter, self._plain_attributes)
        self._plain_in = _getter(operator.itemgetter, self._plain_names)
        self._decoded = [row for row in required if row.encode is not None]
        self._coded = [(row.name, row.attribute, row.encode) for row in self._decoded if row.encode is not None]
        self._optional = [row for row in rows if row.attribute in self.defaults]
        self._optional_of = _getter(operator.attrgetter, [row.attribute for row in self._optional])
        self._optional_defaults = (*(self.defaults[row.attribute] for row in self._optional),)
        self._required_count = len(required)
        self._seen: set[_Types] = set()

    def to_json(self, value: object) -> dict[str, Any]:
        """Return the value as plain JSON."""
        text = dict(zip(self._plain_names, self._plain_of(value), strict=True))
        for name, attribute, encode in self._coded:
            text[name] = encode(getattr(value, attribute))
        if self._optional and (optional := self._optional_of(value)) != self._optional_defaults:
            for row, found, default in zip(self._optional, optional, self._optional_defaults, strict=True):
                if found != default:
                    text[row.name] = found if row.encode is None else row.encode(found)
        return text

    def attributes(self, text: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes that JSON has. A ValueError names a wrong type, a KeyError a missing field."""
        if type(text) is not dict:
            raise ValueError(f"{text!r:.80} is no object")
        plain = self._plain_in(text)
        types = (*map(type, plain),)
        if types not in self._seen:
            for row, found in zip(self._plain, plain, strict=True):
                row.check(found)
            self._seen.add(types)
        attributes = dict(zip(self._plain_attributes, plain, strict=True))
        optional = (row for row in self._optional if row.name in text) if len(text) > self._required_count else ()
        for row in (*self._decoded, *optional):
            found = text[row.name]
            row.check(found)
            attributes[row.attribute] = found if row.decode is None else row.decode(found)
        return attributes

    def from_json(self, text: Mapping[str, Any]) -> _Value:
        """Return the value that `to_json` wrote; raises as `attributes`."""
        return self.make(**self.attributes(text))


def one(name: str, attribute: str, fields: Fields[Any], types: _Types = OBJECT) -> Field:
    """Return the row of an attribute that has a table of its own; None stays null where `types` have that."""

    def encode(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 - of any class with a table
        return None if value is None else fields.to_json(value)

    return Field(name, attribute, types, encode, lambda text: None if text is None else fields.from_json(text))


def many(name: str, attribute: str, fields: Fields[Any], *, is_rare: bool = False) -> Field:
    """Return the row of a tuple of values that have a table of their own."""
    return Field(
        name,
        attribute,
        LIST,
        lambda values: [fields.to_json(value) for value in values],
        lambda texts: tuple(fields.from_json(text) for text in texts),
        is_rare,
    )


def _defaults(make: Any) -> dict[str, Any]:  # noqa: ANN401 - a class
    if not dataclasses.is_dataclass(make):
        return dict(getattr(make, "_field_defaults", {}))
    missing, found = dataclasses.MISSING, {}
    for each in dataclasses.fields(make):
        if each.default is not missing:
            found[each.name] = each.default
        elif each.default_factory is not missing:
            found[each.name] = each.default_factory()
    return found


def _getter(make: Any, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:  # noqa: ANN401 - attrgetter or itemgetter
    """Return a function that gets all of these as a tuple, however few."""
    if len(names) > 1:
        getter: Callable[[Any], tuple[Any, ...]] = make(*names)
        return getter
    first = make(*names) if names else None
    return lambda value: () if first is None else (first(value),)
