"""Values as users give them, as those that the columns of a store give back: none is rounded or cut in silence."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Make = Callable[[Any], Any]

_BYTES = (bytes, bytearray, memoryview)
_FLOAT = struct.Struct("<f")


def row_maker(fields: Sequence[pa.Field]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from a user's row to the values of its columns, as reads give them back.

    A row is a value where there is one column, else a tuple, a list, or a dict by name, in which columns that are
    missing are null. The function raises `EncodingError` for values that the columns cannot have.
    """
    makers = [value_maker(field) for field in fields]
    names = [field.name for field in fields]
    if len(fields) == 1:
        (make_one,) = makers
        if pa.types.is_binary(fields[0].type):
            return lambda value: (value if type(value) is bytes else make_one(value),)
        return lambda value: (make_one(value),)

    def make(row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as users give it
        if isinstance(row, dict) and row.keys() <= set(names):
            row = [row.get(name) for name in names]
        if not isinstance(row, (tuple, list)) or len(row) != len(names):
            raise EncodingError(f"{row!r}: a row takes a value for each of the columns {', '.join(names) or '(none)'}")
        return tuple([make(value) for make, value in zip(makers, row, strict=True)])

    return make


def value_maker(field: pa.Field) -> Make:
    """Return the function from a user's value to that of a column, as reads give it back.

    It raises `EncodingError` for a value that the column cannot have, or would have another value for.
    """
    return _maker(field.type, f"column {field.name!r}")


def _maker(kind: pa.DataType, where: str) -> Make:
    return next((maker(kind, where) for test, maker in _MAKERS if test(kind)), None) or _by_arrow(kind, where)


def _by_arrow(kind: pa.DataType, where: str) -> Make:
    """Return the function for a type whose values Arrow makes."""

    def make(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        if value is None:
            return None
        try:
            made = pa.scalar(value, kind).as_py()
            is_same = _is_same(made, value)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
            raise _refusal(value, kind, where, error) from error
        if not is_same:
            raise _refusal(value, kind, where, f"it would be taken for {made!r}")
        return made

    return make


def _is_same(made: Any, given: Any) -> bool:  # noqa: ANN401
    """Return True if a value is the given one; a time without a zone is one in UTC."""
    if type(made) is int and not hasattr(given, "__index__"):
        return False
    if isinstance(made, datetime) and isinstance(given, datetime):
        made, given = (each.replace(tzinfo=timezone.utc) if each.tzinfo is None else each for each in (made, given))
    return bool(made == given or (made != made and given != given))  # noqa: PLR0124 - NaN


def _refusal(value: object, kind: pa.DataType, where: str, why: object) -> EncodingError:
    return EncodingError(f"{where}: {value!r} is no {kind}: {why}")


def _usual(usual: type) -> Callable[[pa.DataType, str], Make]:
    """Return the maker for types whose values of one type of Python stay as they are."""

    def maker(kind: pa.DataType, where: str) -> Make:
        make = _by_arrow(kind, where)
        return lambda value: value if type(value) is usual else make(value)

    return maker


def _integers(kind: pa.DataType, where: str) -> Make:
    make, end = _by_arrow(kind, where), 1 << kind.bit_width - 1
    return lambda value: value if type(value) is int and -end <= value < end else make(value)


def _short_floats(kind: pa.DataType, where: str) -> Make:
    make_other = _by_arrow(kind, where)

    def make(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, float):
            return make_other(value)
        try:
            return _FLOAT.unpack(_FLOAT.pack(value))[0]  # rounded, as everywhere
        except OverflowError as error:
            raise _refusal(value, kind, where, error) from error

    return make


def _strings(kind: pa.DataType, where: str) -> Make:
    make = _by_arrow(kind, where)
    return lambda value: value if type(value) is str and value.isascii() else make(value)


def _binaries(_: pa.DataType, where: str) -> Make:
    def make(value: Any) -> bytes | None:  # noqa: ANN401
        if type(value) is bytes or value is None:
            return value
        if not isinstance(value, _BYTES):
            raise EncodingError(f"{where} takes bytes, not {type(value).__name__}: {value!r}")
        return bytes(value)

    return make


def _times(kind: pa.DataType, where: str) -> Make:
    make, zone = _by_arrow(kind, where), pa.scalar(0, kind).as_py().tzinfo
    usual = None if zone is None else timezone.utc
    return lambda value: (
        value.replace(tzinfo=zone) if type(value) is datetime and value.tzinfo is usual else make(value)
    )


def _lists(kind: pa.DataType, where: str) -> Make:
    make_item = _maker(kind.value_type, where)

    def make(value: Any) -> list[Any] | None:  # noqa: ANN401
        if value is None:
            return None
        values = value.tolist() if hasattr(value, "tolist") else value  # of NumPy, Arrow or pandas
        if not isinstance(values, Collection) or isinstance(values, (str, *_BYTES, Mapping)):
            raise _refusal(value, kind, where, f"it takes a list, not {type(value).__name__}")
        return [make_item(each) for each in values]

    return make


def _structs(kind: pa.DataType, where: str) -> Make:
    makers = {field.name: _maker(field.type, where) for field in kind}

    def make(value: Any) -> dict[str, Any] | None:  # noqa: ANN401
        if value is None:
            return None
        if isinstance(value, (tuple, list)) and len(value) == len(makers):
            value = dict(zip(makers, value, strict=True))
        if not isinstance(value, Mapping) or not value.keys() <= makers.keys():
            raise _refusal(value, kind, where, "it takes a dictionary by name, or a value for each field")
        return {name: make(value.get(name)) for name, make in makers.items()}

    return make


def _maps(kind: pa.DataType, where: str) -> Make:
    make_key, make_item = _maker(kind.key_type, where), _maker(kind.item_type, where)

    def make(value: Any) -> list[tuple[Any, Any]] | None:  # noqa: ANN401
        if value is None:
            return None
        pairs = value.items() if isinstance(value, Mapping) else value
        try:
            made = [(make_key(key), make_item(each)) for key, each in pairs]
        except (TypeError, ValueError) as error:
            raise _refusal(value, kind, where, "it takes a dictionary, or a list of pairs") from error
        if any(key is None for key, _ in made):
            raise _refusal(value, kind, where, "a key is null")
        return made

    return make


# By the test of a type.
_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str], Make]], ...] = (
    (pa.types.is_signed_integer, _integers),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _binaries),
    (pa.types.is_float64, _usual(float)),
    (pa.types.is_float32, _short_floats),
    (pa.types.is_boolean, _usual(bool)),
    (pa.types.is_date32, _usual(date)),
    (lambda kind: kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")), _times),
    (lambda kind: isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType), _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
)
