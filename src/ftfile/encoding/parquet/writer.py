"""Rows to Parquet: collected to row groups, with dictionaries where they pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ftfile.arrays.nested import leaf_types, map_entries
from ftfile.core.errors import EncodingError
from ftfile.encoding.base.columnar import CollectingEncoder, as_sink, encoding_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.encoding.api import ByteWriter

__all__ = ("ParquetEncoder",)

_SAMPLE_ROWS = 10_000
_DISTINCT_MAX = 0.2  # of a sample's values: with more, a dictionary costs time and saves nothing

# A footer has a part for each column, and one for each column of each row group.
_FOOTER_BYTES, _FOOTER_COLUMN_BYTES, _FOOTER_CHUNK_BYTES = 100, 40, 130


class ParquetEncoder(CollectingEncoder):
    """Writes the rows of one file; a group is a row group.

    Args:
        schema: of the rows.
        target: where the file goes.
        codec: as Spark and pyarrow both name it.
        level: of the codec; None for its own default.
        encryption: see `parquet_encryption.encryption`; None for a file in the clear.
        metadata: goes into the footer.
    """

    def __init__(
        self,
        schema: pa.Schema,
        target: ByteWriter,
        codec: str,
        level: int | None,
        encryption: Any = None,  # noqa: ANN401 - pyarrow has no types
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(schema, target)
        self._encryption = encryption
        self._metadata = metadata
        self._codec = {"compression": codec, "compression_level": level}
        self._leaf_columns = sum(1 for column in schema for _ in leaf_types(column.type))
        self._writer: pq.ParquetWriter | None = None

    def _end(self) -> None:
        with encoding_errors("Parquet"):
            writer = self._open(pa.Table.from_batches([], self._schema))
            if self._metadata is not None:
                writer.add_key_value_metadata(self._metadata)
            writer.close()

    def _footer_bytes(self, groups: int) -> int:
        return _FOOTER_BYTES + self._leaf_columns * (_FOOTER_COLUMN_BYTES + _FOOTER_CHUNK_BYTES * groups)

    def _sample_bytes(self, rows: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with encoding_errors("Parquet"), pq.ParquetWriter(sink, self._schema, **self._settings(rows)) as writer:
            writer.write_table(rows)
            size_bytes: int = sink.tell()
        return size_bytes

    def _write_group(self, rows: pa.Table) -> None:
        _check_nulls(rows)
        with encoding_errors("Parquet"):
            self._open(rows).write_table(rows, row_group_size=len(rows))

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        """Return the writer; which columns get dictionaries is decided when the first rows come."""
        if self._writer is None:
            more = {} if self._encryption is None else {"encryption_properties": self._encryption}
            self._writer = pq.ParquetWriter(as_sink(self._target), self._schema, **self._settings(rows), **more)
        return self._writer

    def _settings(self, rows: pa.Table) -> dict[str, Any]:
        sample = rows.slice(0, _SAMPLE_ROWS)
        return {
            **self._codec,
            "use_dictionary": [path for path, leaf in _leaf_columns(sample) if _repeats(leaf)],
            "write_page_checksum": True,
            "store_schema": False,  # the Parquet types say all there is to say about Spark's
        }


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
