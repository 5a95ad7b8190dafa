"""The rows of CSV files, which begin with a line of column names."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from ftfile.core.errors import ConfigError
from ftfile.tools.load.input_files import ByteStream, FileRows, text_of
from ftfile.tools.load.text_types import check_known, in_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.tools.load.input_files import FileToLoad

# A row cannot be longer. Types are derived from the rows of the first block. pyarrow reads up to 32 blocks ahead.
BLOCK_BYTES = 512 << 10
_LONG_ROW = "straddling object"
_COLUMN = re.compile(r"In CSV column #(\d+): ")


@contextmanager
def csv_rows(file: FileToLoad, types: Mapping[str, pa.DataType]) -> Iterator[FileRows]:
    """Yield the rows of a CSV file; an empty field is null, and `""` is an empty text.

    Args:
        file: the file.
        types: of columns by name; types of other columns are derived from the first rows.

    Raises:
        ConfigError: the file is damaged, or not CSV.
        SchemaError: a column has a type that CSV cannot contain, or occurs twice, or its type is not known.
    """
    with text_of(file) as (stored, text):
        with file.errors():
            start = _start_of(text)
        schema = _schema_of(file, start, types)
        rows = ByteStream(text, start)
        read_types = _as_read({field.name: field.type for field in schema})
        with _csv_errors(file, schema.names):
            reader = _open(pa.PythonFile(rows, mode="r"), read_types)
        try:
            yield FileRows(schema, _batches(file, reader, schema), lambda: stored.position)
        finally:
            rows.end()


def _schema_of(file: FileToLoad, start: bytes, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of a file, in the given types or in types that fit the first block."""
    with _csv_errors(file):
        names = _open(pa.BufferReader(start), {}).schema.names
    typed = {}
    for name in names:
        if name in types:
            typed[name] = types[name]
            if pa.types.is_nested(typed[name]):
                raise file.misfit(name, f"is {typed[name]}, which CSV cannot contain: use JSON, Parquet or Arrow")
    with _csv_errors(file, names):
        derived = _open(pa.BufferReader(start), _as_read(typed)).schema
    schema = pa.schema([(field.name, typed.get(field.name, _stored(field.type))) for field in derived])
    check_known(file, schema)
    return schema


@contextmanager
def _csv_errors(file: FileToLoad, names: Sequence[str] = ()) -> Iterator[None]:
    """Translate pyarrow's errors into a `ConfigError` that contains the name of the column."""
    try:
        with file.errors():
            yield
    except ConfigError as error:
        if not isinstance(error.__cause__, pa.ArrowInvalid):
            raise
        text = str(error.__cause__)
        if _LONG_ROW in text:
            text = f"a row has more than {BLOCK_BYTES:,} bytes: use JSON lines or Parquet"
        if match := _COLUMN.match(text):
            text = f"column `{names[int(match[1])]}`, {text[match.end() :]}"
        raise file.damaged(text) from error


def _start_of(text: ByteStream) -> bytes:
    """Return two blocks: pyarrow derives types from the first one, and needs the second one to find its last row."""
    start = b""
    while len(start) < 2 * BLOCK_BYTES:
        piece = text.read(2 * BLOCK_BYTES - len(start))
        if not piece:
            break
        start += piece
    return start


def _open(source: pa.NativeFile, types: Mapping[str, pa.DataType]) -> csv.CSVStreamingReader:
    return csv.open_csv(
        source,
        csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),  # with threads, errors have no row numbers
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _batches(file: FileToLoad, reader: csv.CSVStreamingReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while True:
        with _csv_errors(file, schema.names):
            batch = next(reader, None)
        if batch is None:
            return
        yield in_types(file, batch, schema)


def _as_read(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types that pyarrow reads: text for binary values."""
    read = {}
    for name, kind in types.items():
        read[name] = pa.string() if pa.types.is_binary(kind) else kind
    return read


def _stored(kind: pa.DataType) -> pa.DataType:
    """Return a derived type with fractions of seconds, which only later rows may have."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return kind
