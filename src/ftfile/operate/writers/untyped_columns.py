"""Types of columns without values, which libraries export with the type null."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from ftfile.operate.writers.stored_values import is_list


@lru_cache(16)
def has_untyped(schema: pa.Schema) -> bool:
    """Return True if a column, or an element or a field within a column, has the type null."""
    return any(_is_untyped(kind) for kind in schema.types)


def _is_untyped(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_untyped(kind.value_type)
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
    """Return a type with the parts of an earlier type, which is a type that ftfile stores."""
    if pa.types.is_dictionary(kind) and _is_untyped(kind):
        return _known_type(kind.value_type, earlier)
    if pa.types.is_null(kind):
        return earlier
    if pa.types.is_struct(kind) and pa.types.is_struct(earlier):
        return pa.struct([_known_field(field, earlier) for field in kind])
    if pa.types.is_map(kind) and pa.types.is_map(earlier):
        value = kind.item_field
        key_type = _known_type(kind.key_type, earlier.key_type)
        return pa.map_(key_type, value.with_type(_known_type(value.type, earlier.item_type)))
    if is_list(kind) and pa.types.is_list(earlier):
        element = kind.value_field
        return pa.list_(element.with_type(_known_type(element.type, earlier.value_type)))
    return kind
