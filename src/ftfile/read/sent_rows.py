"""Rows in the Arrow types, and in batches of the size, that Spark takes from a Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.read.shares import small_batches
from ftfile.rows.buffers import leaf_types, map_leaf_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rows_for_spark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in small batches, with times of day in nanoseconds: Spark compares the Arrow types."""
    return small_batches(map(_in_nanoseconds, batches))


def _in_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not any(pa.types.is_time(leaf) for kind in batch.schema.types for leaf in leaf_types(kind)):
        return batch
    columns = [column.cast(map_leaf_types(column.type, _sent_type)) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _sent_type(kind: pa.DataType) -> pa.DataType:
    return pa.time64("ns") if pa.types.is_time(kind) else kind
