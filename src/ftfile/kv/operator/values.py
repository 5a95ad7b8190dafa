"""Rows as users give them, without their keys: a value, or one for each column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("value_maker",)


def value_maker(fields: Sequence[pa.Field]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from a user's row to the values of its columns, checked.

    A row is a value where there is one column, else a tuple, a list, or a dict by name, in which columns that are
    missing are null. The function raises `EncodingError` for values that the columns cannot have.
    """
    checks = [_check(field) for field in fields]
    names = [field.name for field in fields]
    if len(fields) == 1:
        (check,) = checks
        if pa.types.is_binary(fields[0].type):
            return lambda value: (value if type(value) is bytes else check(value),)
        return lambda value: (check(value),)

    def make(row: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as users give it
        if isinstance(row, dict) and row.keys() <= set(names):
            row = [row.get(name) for name in names]
        if not isinstance(row, (tuple, list)) or len(row) != len(names):
            raise EncodingError(f"{row!r}: a row takes a value for each of the columns {', '.join(names) or '(none)'}")
        return tuple([check(value) for check, value in zip(checks, row, strict=True)])

    return make


def _check(field: pa.Field) -> Callable[[Any], Any]:
    """Return the function that returns a value that a column can have as it is."""
    kind = field.type
    if pa.types.is_binary(kind):
        return lambda value: value if type(value) is bytes else _bytes(value, field)
    if pa.types.is_int64(kind):
        low, high = -(1 << 63), (1 << 63) - 1
        return lambda value: value if type(value) is int and low <= value <= high else _same(value, field)
    return lambda value: _same(value, field)


def _bytes(value: Any, field: pa.Field) -> bytes | None:  # noqa: ANN401
    if value is None or isinstance(value, (bytes, bytearray, memoryview)):
        return None if value is None else bytes(value)
    raise EncodingError(f"column {field.name!r} takes bytes, not {type(value).__name__}: {value!r}")


def _same(value: Any, field: pa.Field) -> Any:  # noqa: ANN401
    if value is not None:
        try:
            pa.scalar(value, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise EncodingError(f"column {field.name!r}: {value!r} is no {field.type}: {error}") from error
    return value
