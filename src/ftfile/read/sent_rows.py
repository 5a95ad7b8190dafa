"""Rows in the Arrow types and the batch sizes that Spark expects from a Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.read.shares import small_batches
from ftfile.rows.buffers import leaf_types, rebuild
from ftfile.rows.spark_types import has_variant, is_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rows_for_spark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in small batches, in the types that Spark expects: Spark compares the types."""
    return small_batches(map(_as_sent, batches))


def _as_sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not any(map(_is_changed, batch.schema.types)):
        return batch
    columns = [rebuild(column, _sent_type(column.type), _cast) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_changed(kind: pa.DataType) -> bool:
    return has_variant(kind) or any(map(pa.types.is_time, leaf_types(kind)))


def _sent_type(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type: times of day are nanoseconds, and the parts of a VARIANT are never null."""
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if is_variant(kind):
        return pa.struct([pa.field(field.name, field.type, nullable=False) for field in kind])
    if pa.types.is_struct(kind):
        return pa.struct([_sent_field(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_sent_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_sent_field(kind.key_field), _sent_field(kind.item_field))
    return kind


def _sent_field(field: pa.Field) -> pa.Field:
    return field.with_type(_sent_type(field.type))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array.cast(kind)
