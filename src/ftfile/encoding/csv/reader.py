"""CSV to rows: every field as a string first, so that null and "" stay apart."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ftfile.encoding.base.reading import batch_of, corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.encoding.csv.dialect import CsvDialect

__all__ = ("read_csv",)

_BLOCK_BYTES = 4 << 20
_BLOCK_BYTES_MAX = (1 << 31) - 1


def read_csv(
    file: BinaryIO, schema: pa.Schema, dialect: CsvDialect, names: tuple[str, ...] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a seekable file, columns matched by name; missing ones are null.

    `names` are those of the columns in the file, None with a header. Another file raises `CorruptData`.
    """
    size_bytes = file.seek(0, os.SEEK_END)
    if size_bytes == 0:
        return
    rows_given, block_bytes = 0, _BLOCK_BYTES
    while True:
        rows_read = 0
        try:
            file.seek(0)
            ending = _Ending(file, dialect.line_sep.encode())
            for batch in _open(ending, schema, dialect, names, block_bytes):
                rows_read += batch.num_rows
                if rows_read > rows_given:
                    new = batch.slice(batch.num_rows - (rows_read - rows_given))
                    rows_given = rows_read
                    yield _typed(new, schema, dialect, file)
            ending.check()
        except pa.ArrowInvalid as error:
            # Arrow cannot read a record that is longer than a block: start again with longer blocks.
            if block_bytes >= min(size_bytes, _BLOCK_BYTES_MAX):
                raise corrupt(file, "CSV", error) from error
            block_bytes = min(block_bytes * 8, _BLOCK_BYTES_MAX)
        else:
            return


class _Ending:
    """A file that remembers the last bytes read."""

    closed = False

    def __init__(self, file: BinaryIO, line_sep: bytes) -> None:
        self._file = file
        self._line_sep = line_sep
        self._end = b""

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._end = (self._end + data[-len(self._line_sep) :])[-len(self._line_sep) :]
        return data

    def close(self) -> None:
        """Leave the file open; its opener closes it."""

    def check(self) -> None:
        """Raise `CorruptData` if the last line is not whole."""
        if self._end != self._line_sep:
            raise corrupt(self._file, f"a line separator {self._line_sep!r} at the end", repr(self._end))


def _open(
    file: _Ending, schema: pa.Schema, dialect: CsvDialect, names: tuple[str, ...] | None, block_bytes: int
) -> arrow_csv.CSVStreamingReader:
    doubled = dialect.escape == dialect.quote
    return arrow_csv.open_csv(
        file,
        arrow_csv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=False),
        arrow_csv.ParseOptions(
            delimiter=dialect.sep,
            quote_char=dialect.quote,
            double_quote=doubled,
            escape_char=False if doubled else dialect.escape,
            newlines_in_values=True,
            ignore_empty_lines=False,
        ),
        arrow_csv.ConvertOptions(
            column_types={column.name: pa.string() for column in schema},
            include_columns=schema.names,
            include_missing_columns=True,
            null_values=sorted(dialect.nulls_as_read),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _typed(batch: pa.RecordBatch, schema: pa.Schema, dialect: CsvDialect, file: BinaryIO) -> pa.RecordBatch:
    columns = []
    for column in schema:
        try:
            columns.append(_values(batch.column(column.name), column.type, dialect))
        except ValueError as error:
            raise corrupt(file, f"{column.type} in column `{column.name}`", error) from error
    return batch_of(columns, schema, batch.num_rows)


def _values(text: pa.StringArray, arrow: pa.DataType, dialect: CsvDialect) -> pa.Array:
    if pa.types.is_temporal(arrow) and not dialect.times.is_iso(arrow):
        return dialect.times.pattern(arrow).read(text, arrow, dialect.times.zone)
    return text.cast(arrow)
