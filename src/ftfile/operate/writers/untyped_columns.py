"""Types of columns without values, which libraries export with the type null."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa


@lru_cache(16)
def has_untyped(schema: pa.Schema) -> bool:
    """Return True if a column, or an element or a field within a column, has the type null."""
    return any(_is_untyped(kind) for kind in schema.types)


def _is_untyped(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    return any(_is_untyped(kind.field(number).type) for number in range(kind.num_fields))


def with_types_of(schema: pa.Schema, earlier: pa.Schema) -> pa.Schema:
    """Return a schema in which the type null is replaced by the type of the same column in another schema."""
    return pa.schema(_known_field(field, earlier) for field in schema)


def _known_field(field: pa.Field, earlier: pa.Schema | pa.StructType) -> pa.Field:
    position = earlier.get_field_index(field.name)
    if position < 0:
        return field
    return field.with_type(_known_type(field.type, earlier.field(position).type))


def _known_type(kind: pa.DataType, earlier: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return earlier
    if pa.types.is_struct(kind) and pa.types.is_struct(earlier):
        return pa.struct([_known_field(field, earlier) for field in kind])
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_list(earlier):
        element = kind.value_field
        return pa.list_(element.with_type(_known_type(element.type, earlier.value_type)))
    return kind
