"""Structs, lists and maps of any depth: visiting their leaves, and rebuilding them around other leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, is_valid, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


def leaf_types(arrow: pa.DataType) -> Iterator[pa.DataType]:
    """Yield the types that hold values, from left to right."""
    if pa.types.is_nested(arrow):
        for index in range(arrow.num_fields):
            yield from leaf_types(arrow.field(index).type)
    else:
        yield arrow


def field_names(fields: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of fields, and those of the fields within them."""
    for field in fields:
        yield field.name
        if pa.types.is_nested(field.type):
            yield from field_names(field.type.field(index) for index in range(field.type.num_fields))


def map_leaf_types(arrow: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the same shape with other leaves, and every value but map keys nullable."""
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(field.name, map_leaf_types(field.type, leaf)) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(pa.field("element", map_leaf_types(arrow.value_type, leaf)))
    if pa.types.is_map(arrow):
        return pa.map_(map_leaf_types(arrow.key_type, leaf), map_leaf_types(arrow.item_type, leaf))
    return leaf(arrow)


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the arrays that hold values, and each map before its parts; only what rows of `array` reach."""
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from leaves(child)
    elif pa.types.is_list(array.type):
        yield from leaves(array.flatten())
    elif pa.types.is_map(array.type):
        yield array
        for child in map_entries(array).flatten():
            yield from leaves(child)
    else:
        yield array


def map_entries(array: pa.MapArray) -> pa.StructArray:
    """Return keys and values of all rows, one after the other."""
    return _as_list(array).flatten()


def _as_list(array: pa.Array) -> pa.ListArray:
    if not pa.types.is_map(array.type):
        return array
    # A map has no kernel to flatten it, and its `keys` ignore slicing; a list of entries is the same memory.
    entry = pa.struct([pa.field("key", array.type.key_type, nullable=False), pa.field("value", array.type.item_type)])
    return array.cast(pa.list_(entry))


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return offsets from 0 on, null where the row is, and the values they refer to; maps give entries."""
    lists, valid = _as_list(array), is_valid(array)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(np.where(valid, values_of(lists.value_lengths(), np.int32), 0), out=offsets[1:])
    return from_numpy(offsets, pa.int32(), np.append(valid, True) if array.null_count else None), lists.flatten()


def rebuild(array: pa.Array, target: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return `array` as `target`: struct fields matched by name, missing ones null, leaves made by `leaf`."""
    if pa.types.is_struct(target):
        children = {field.name: child for field, child in zip(array.type, array.flatten(), strict=True)}
        rebuilt = [
            rebuild(children[field.name], field.type, leaf)
            if field.name in children
            else pa.nulls(len(array), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(rebuilt, fields=list(target), mask=array.is_null())
    if pa.types.is_list(target):
        offsets, values = list_parts(array)
        return pa.ListArray.from_arrays(offsets, rebuild(values, target.value_type, leaf), type=target)
    if pa.types.is_map(target):
        offsets, entries = list_parts(array)
        keys, items = entries.flatten()
        keys, items = rebuild(keys, target.key_type, leaf), rebuild(items, target.item_type, leaf)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target)
    return leaf(array, target)
