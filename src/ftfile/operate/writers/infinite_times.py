"""Infinite dates and timestamps, which DuckDB exports as the ends of the range of their type."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import SchemaError
from ftfile.rows.buffers import map_entries


@lru_cache(64)
def has_times(kind: pa.DataType) -> bool:
    """Return True for timestamps and dates, and for types that contain them."""
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return True
    return any(has_times(kind.field(number).type) for number in range(kind.num_fields))


def refuse_infinite(array: pa.Array, path: str) -> None:
    """Raise a SchemaError for an infinite date or timestamp, also within a column.

    Args:
        array: in a type that ftfile stores.
        path: of the column, for errors.
    """
    kind = array.type
    if not has_times(kind):
        return
    if pa.types.is_struct(kind):
        for field, values in zip(kind, array.flatten(), strict=True):  # with the nulls of the struct
            refuse_infinite(values, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        keys, values = map_entries(array).flatten()
        refuse_infinite(keys, f"{path}.key")
        refuse_infinite(values, f"{path}.value")
    elif pa.types.is_list(kind):
        refuse_infinite(array.flatten(), f"{path}.element")
    else:
        refuse_ends(array, path)


def refuse_ends(array: pa.Array, path: str) -> None:
    """Raise a SchemaError for an infinite value of an array of dates or timestamps, which may be of any unit."""
    integer = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
    last = 2 ** (integer.bit_width - 1) - 1
    bounds = pc.min_max(array.view(integer))
    for value, text in ((bounds["min"], "-infinity"), (bounds["max"], "infinity")):
        if value.as_py() == (-last if text.startswith("-") else last):
            raise SchemaError(
                f"column `{path}`: a {array.type} has the value {value.as_py()}, as which DuckDB exports {text!r}, and "
                "Spark has no infinite times. Replace the value, such as with NULL: "
                "`CASE WHEN isfinite(column) THEN column END`"
            )
