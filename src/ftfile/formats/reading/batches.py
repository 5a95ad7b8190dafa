"""Conversion of batches to the schema of a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.rows.buffers import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]


__all__ = ("batch_as", "batch_of")


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch with its number of rows, even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])


def batch_as(batch: pa.RecordBatch, schema: pa.Schema, cast: Cast | None = None) -> pa.RecordBatch:
    """Return the rows of a batch as `schema`: columns are matched by name and cast, missing ones are null.

    Values are cast by `cast`, by default without loss.

    Raises:
        pyarrow.ArrowException: a value does not fit its type.
    """
    present = set(batch.schema.names)
    columns: list[pa.Array] = []
    for column in schema:
        if column.name in present:
            columns.append(rebuild(batch.column(column.name), column.type, cast or _cast))
        else:
            columns.append(pa.nulls(batch.num_rows, column.type))
    return batch_of(columns, schema, batch.num_rows)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # Arrow's cast has errors in the last digit; the nearest number is found by text.
        array = array.cast(pa.string())
    return array.cast(kind)
