"""Rows to Parquet: collected to row groups, with dictionaries where they pay."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ftfile.core.errors import EncodingError
from ftfile.encoding.api import Encoder
from ftfile.encoding.nested import leaf_types, map_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.encoding.api import ByteWriter

__all__ = ("ParquetEncoder",)

_ROW_GROUP_ROWS = 250_000
_ROW_GROUP_BYTES = 64 << 20

_SAMPLE_ROWS = 10_000
_DISTINCT_MAX = 0.2  # of a sample's values: with more, a dictionary costs time and saves nothing

_RATIO_GUESS = 0.4  # of the length in the file to that in memory, while no limit asks for more
# A footer has a part for each column, and one for each column of each row group.
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 100, 40, 130


class ParquetEncoder(Encoder):
    """Writes the rows of one file.

    Args:
        schema: of the rows.
        target: where the file goes.
        codec: as Spark and pyarrow both name it.
        level: of the codec; None for its own default.
    """

    def __init__(self, schema: pa.Schema, target: ByteWriter, codec: str, level: int | None) -> None:
        self._schema = schema
        self._target = target
        self._codec = {"compression": codec, "compression_level": level}
        self._start_bytes = target.position
        self._leaf_columns = sum(1 for column in schema for _ in leaf_types(column.type))
        self._writer: pq.ParquetWriter | None = None
        self._row_groups = 0
        self._ratio: float | None = None
        self._encoded_bytes = 0
        self._buffer: list[pa.RecordBatch] = []
        self._buffer_rows = 0
        self._buffer_bytes = 0

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        """See `Encoder.write`."""
        taken = 0
        while taken < batch.num_rows:
            rows = self._rows_to_take(batch.slice(taken), limit_bytes)
            self._collect(batch.slice(taken, rows))
            taken += rows
            if limit_bytes is not None and self._reaches(limit_bytes):
                break
        return taken

    @property
    def size_bytes(self) -> int:
        """See `Encoder.size_bytes`; what is buffered counts as if it shrank like what is written."""
        return self._estimate(self._ratio or _RATIO_GUESS)

    @property
    def buffered_bytes(self) -> int:
        """See `Encoder.buffered_bytes`."""
        return self._buffer_bytes

    def flush(self) -> None:
        """See `Encoder.flush`: ends the row group."""
        self._write_row_group()

    def finish(self) -> None:
        """See `Encoder.finish`."""
        self._write_row_group()
        with _errors():
            self._open(pa.Table.from_batches([], self._schema)).close()

    def _estimate(self, ratio: float) -> int:
        row_groups = self._row_groups + bool(self._buffer)
        footer = _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * row_groups)
        written = self._target.position - self._start_bytes
        return int(written + self._buffer_bytes * ratio + footer)

    def _rows_to_take(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Return how many rows fit into the row group and, by estimate, below the limit; at least one."""
        row_bytes = batch.nbytes / batch.num_rows + 1
        rows = min(_ROW_GROUP_ROWS - self._buffer_rows, (_ROW_GROUP_BYTES - self._buffer_bytes) / row_bytes)
        if limit_bytes is not None:
            ratio = self._ratio or 1
            rows = min(rows, (limit_bytes - self._estimate(ratio)) / (row_bytes * ratio))
        taken: int = min(batch.num_rows, math.ceil(rows))
        return max(1, taken)

    def _collect(self, batch: pa.RecordBatch) -> None:
        if batch.get_total_buffer_size() > 2 * batch.nbytes:
            # A slice would keep the memory of all rows that it was cut from.
            batch = pa.RecordBatch.from_arrays([pa.concat_arrays([c]) for c in batch.columns], schema=batch.schema)
        self._buffer.append(batch)
        self._buffer_rows += batch.num_rows
        self._buffer_bytes += batch.nbytes
        if self._buffer_rows >= _ROW_GROUP_ROWS or self._buffer_bytes >= _ROW_GROUP_BYTES:
            self._write_row_group()

    def _reaches(self, limit_bytes: int) -> bool:
        if self._ratio is None and self._estimate(1) >= limit_bytes:
            # Only now does it matter how well these rows compress: encode a sample for nothing.
            sample = pa.Table.from_batches(self._buffer).slice(0, _SAMPLE_ROWS)
            sink = pa.BufferOutputStream()
            with _errors(), pq.ParquetWriter(sink, self._schema, **self._settings(sample)) as writer:
                writer.write_table(sample)
                self._ratio = sink.tell() / max(1, sample.nbytes)
        return self.size_bytes >= limit_bytes

    def _write_row_group(self) -> None:
        if not self._buffer:
            return
        rows = pa.Table.from_batches(self._buffer)
        _check_nulls(rows)
        with _errors():
            self._open(rows).write_table(rows, row_group_size=len(rows))
        self._row_groups += 1
        self._encoded_bytes += self._buffer_bytes
        self._ratio = (self._target.position - self._start_bytes) / max(1, self._encoded_bytes)
        self._buffer, self._buffer_rows, self._buffer_bytes = [], 0, 0

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the writer; which columns get dictionaries is decided when the first rows come."""
        if self._writer is None:
            sink = pa.PythonFile(_Sink(self._target), mode="w")
            self._writer = pq.ParquetWriter(sink, self._schema, **self._settings(rows))
        return self._writer

    def _settings(self, rows: pa.Table) -> dict[str, Any]:
        sample = rows.slice(0, _SAMPLE_ROWS)
        return {
            **self._codec,
            "use_dictionary": [path for path, leaf in _leaf_columns(sample) if _repeats(leaf)],
            "write_page_checksum": True,
            "store_schema": False,  # the Parquet types say all there is to say about Spark's
        }


class _Sink:
    """The target as pyarrow wants a file."""

    closed = False

    def __init__(self, target: ByteWriter) -> None:
        self._target = target

    def write(self, data: bytes) -> int:
        return self._target.write(data)

    def tell(self) -> int:
        return self._target.position

    def flush(self) -> None:
        """Durability is the business of whoever made the target."""

    def close(self) -> None:
        """So is closing it."""


def _leaf_columns(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield each column of the file with its path, as Parquet has them."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        yield from _leaves_within(name, column.combine_chunks())


def _leaves_within(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = array.type
    if pa.types.is_struct(kind):
        for child, values in zip(kind, array.flatten(), strict=True):
            yield from _leaves_within(f"{path}.{child.name}", values)
    elif pa.types.is_list(kind):
        yield from _leaves_within(f"{path}.list.element", array.flatten())
    elif pa.types.is_map(kind):
        for part, values in zip(("key", "value"), map_entries(array).flatten(), strict=True):
            yield from _leaves_within(f"{path}.key_value.{part}", values)
    else:
        yield path, array


def _repeats(array: pa.Array) -> bool:
    return len(array) > 0 and pc.count_distinct(array).as_py() <= len(array) * _DISTINCT_MAX


def _check_nulls(rows: pa.Table) -> None:
    # Older pyarrow writes what Parquet calls required and cannot be read.
    for column, values in zip(rows.schema, rows.columns, strict=True):
        if not column.nullable and values.null_count:
            raise EncodingError(f"column `{column.name}` is not nullable and has {values.null_count} nulls")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise EncodingError(f"rows cannot be encoded as Parquet: {error}") from error
