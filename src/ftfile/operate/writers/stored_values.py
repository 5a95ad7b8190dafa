"""Values of Arrow, converted to the types that ftfile stores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import SchemaError
from ftfile.operate.writers.infinite_times import refuse_ends
from ftfile.operate.writers.opaque_columns import refuse_addresses

is_dictionary = pa.types.is_dictionary
is_struct = pa.types.is_struct


def is_view(kind: pa.DataType) -> bool:
    """Return True for texts and binary values in the form of views."""
    return str(kind) in {"string_view", "binary_view"}  # pyarrow has functions for views from 19 on


def is_list(kind: pa.DataType) -> bool:
    """Return True for lists in each form of Arrow, and for maps."""
    return any(is_kind(kind) for is_kind in _LISTS)


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
    pa.types.is_map,
)


def stored_values(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """Return an array in the type that `stored_type` returns for its type.

    Args:
        array: any slice; its values have at most `VALUE_BYTES_MAX` bytes.
        kind: the type.
        path: of the column, for errors.

    Raises:
        SchemaError: a value does not fit.
    """
    source = array.type
    if source.equals(kind):
        return array
    if isinstance(source, pa.BaseExtensionType):
        return stored_values(array.storage, kind, path)
    if is_dictionary(source):
        return _decode_dictionary(array, kind, path)
    if is_struct(source) and is_struct(kind):
        fields = [stored_values(array.field(at), kind[at].type, f"{path}.{kind[at].name}") for at in range(len(kind))]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if is_list(source) and is_list(kind):
        return _stored_lists(array, kind, path)
    return _cast(array, kind, path)


def _cast(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    source = array.type
    if pa.types.is_null(source):
        return pa.nulls(len(array), kind)
    refuse_addresses(array, path)
    if pa.types.is_large_string(source) or pa.types.is_large_binary(source):
        # A slice has the offsets of the whole array, which can exceed 32 bits. A copy has its own.
        array = pa.concat_arrays([array, array.slice(0, 0)])
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        if pa.types.is_timestamp(source):
            refuse_ends(array, path)
        raise SchemaError(
            f"column `{path}`: a value does not fit the type {kind}, in which {source} is stored: "
            f"{error}. Cast or round the column before you write it"
        ) from error


def elements_of(array: pa.Array) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.Array]:
    """Return the length of each list, 0 for null, and the elements of all lists; entries are structs of two fields."""
    if pa.types.is_map(array.type):
        entries = [array.type.key_field, array.type.item_field]
        pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=entries)
        # A mask needs offsets that are not a slice.
        array = pa.ListArray.from_arrays(pc.add(array.offsets, 0), pairs, mask=array.is_null())
    lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
    return lengths.to_numpy(zero_copy_only=False), array.flatten()


def _decode_dictionary(array: pa.DictionaryArray, kind: pa.DataType, path: str) -> pa.Array:
    values = array.dictionary
    if pa.types.is_null(values.type):
        return pa.nulls(len(array), kind)
    if values.type.num_fields or isinstance(values.type, pa.BaseExtensionType):
        return stored_values(values, kind, path).take(array.indices)
    if is_view(values.type):  # pyarrow 26 cannot take them
        values = values.cast(pa.large_string() if values.type == pa.string_view() else pa.large_binary())
    # The values of the rows are taken before they are converted, as a dictionary can be larger than its rows.
    return stored_values(values.take(array.indices), kind, path)


def _stored_lists(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    lengths, elements = elements_of(array)
    ends = pa.array(np.cumsum(lengths))
    starts = pc.if_else(array.is_valid(), pc.subtract(ends, pa.array(lengths)), None)
    # A null offset is a null list.
    offsets = pa.concat_arrays([starts, pa.array([len(elements)], pa.int64())]).cast(pa.int32())
    if not pa.types.is_map(kind):
        values = stored_values(elements, kind.value_type, f"{path}.element")
        return pa.ListArray.from_arrays(offsets, values, type=kind)
    keys = stored_values(elements.field(0), kind.key_type, f"{path}.key")
    values = stored_values(elements.field(1), kind.item_type, f"{path}.value")
    return pa.MapArray.from_arrays(offsets, keys, values, type=kind)
