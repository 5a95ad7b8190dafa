"""A single row as plain JSON, whatever is in it: for records that no format takes."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.words import is_list_like, plain

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("row_to_json",)


def row_to_json(row: pa.RecordBatch) -> dict[str, Any]:
    """Return the columns of a batch of one row.

    Numbers, booleans and strings are themselves; NaN and infinities, decimals, dates and timestamps are text, and
    binary values base64. A string that is not UTF-8 is an object `{"base64": …}`, a date or timestamp outside the
    years 0001 to 9999 a number of days or microseconds since 1970, and a map a list of its entries.
    """
    return {name: _value(plain(column)[0]) for name, column in zip(row.schema.names, row.columns, strict=True)}


def _value(scalar: pa.Scalar) -> Any:  # noqa: ANN401 - as many types as values
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        return {field.name: _value(scalar[index]) for index, field in enumerate(kind)}
    if is_list_like(kind):
        return [_value(item) for item in plain(scalar.values)]
    return next(convert for applies, convert in _CONVERSIONS if applies(kind))(scalar)


def _text(scalar: pa.Scalar) -> str | dict[str, str]:
    data = scalar.as_buffer().to_pybytes()
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return {"base64": _base64(data)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _float(scalar: pa.Scalar) -> float | str:
    value = scalar.as_py()
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _time(scalar: pa.Scalar) -> str | int:
    try:
        return str(scalar.as_py().isoformat())
    except (ValueError, OverflowError):
        return int(scalar.value)


_CONVERSIONS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Scalar], Any]], ...] = (
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _text),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), lambda s: _base64(s.as_py())),
    (pa.types.is_floating, _float),
    (lambda kind: pa.types.is_date(kind) or pa.types.is_timestamp(kind), _time),
    (lambda kind: pa.types.is_boolean(kind) or pa.types.is_integer(kind), lambda s: s.as_py()),
    (lambda _: True, lambda s: str(s.as_py())),
)
