"""Entries of the statistics of files, as Arrow columns that are compared with literals."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.rows import kernels as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.core.bounds import BoundsColumn

_INSTANT_UNIT = "us"
_IS_TEXT = (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128)
_IS_NUMBER = (pa.types.is_float32, pa.types.is_float64)
_IS_WHOLE = (pa.types.is_signed_integer, pa.types.is_date32)


class BoundArrays(NamedTuple):
    """The entries of a column as Arrow arrays; null is unknown."""

    low: pa.Array
    high: pa.Array
    nulls: pa.Array


def bound_arrays(column: BoundsColumn, kind: pa.DataType) -> BoundArrays:
    """Return the entries of a column of this type.

    Arrow compares the bounds. NumPy would read None as NaN, and would drop zeros at the end of bytes.
    """
    return BoundArrays(
        _values_of(column.low, kind), _values_of(column.high, kind), _values_of(column.nulls, pa.int64())
    )


def compared_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which bounds of a type are compared: bounds of floats are exact only as doubles."""
    if pa.types.is_floating(kind):
        return pa.float64()
    return kind


def python_types(kind: pa.DataType) -> set[type] | None:
    """Return the Python types of the bounds of a type in the log, or None if the type has no bounds."""
    if pa.types.is_boolean(kind):
        return {bool}
    if any(is_kind(kind) for is_kind in _IS_WHOLE) or kind in (_instant(kind), pa.timestamp(_INSTANT_UNIT)):
        return {int}
    if any(is_kind(kind) for is_kind in _IS_NUMBER):
        return {int, float}
    if any(is_kind(kind) for is_kind in _IS_TEXT):
        return {str}
    return None


def _instant(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(_INSTANT_UNIT, getattr(kind, "tz", None))


def _values_of(bounds: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return bounds as values of a type. A bound that is not a value of the type is unknown."""
    types = python_types(kind) or set()
    if not set(map(type, bounds)) <= {*types, type(None)}:
        bounds = [_if_of(types, bound) for bound in bounds]
    try:
        values = _convert_bounds(bounds, kind)
    except (pa.ArrowException, ValueError, OverflowError):
        singles = [_array_of_one(bound, kind) for bound in bounds]
        values = pa.concat_arrays(singles)
    if pa.types.is_floating(values.type):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)  # JSON has no NaN
    return values


def _if_of(types: set[type], bound: object) -> object:
    if type(bound) in types:
        return bound
    return None


def _array_of_one(bound: object, kind: pa.DataType) -> pa.Array:
    try:
        return _convert_bounds([bound], kind)
    except (pa.ArrowException, ValueError, OverflowError):
        return pa.nulls(1, compared_type(kind))


def _convert_bounds(bounds: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array(map(_decode_text, bounds), kind)
    if pa.types.is_decimal(kind):
        return pa.array(bounds, pa.string()).cast(kind)
    return pa.array(bounds, compared_type(kind))


def _decode_text(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
