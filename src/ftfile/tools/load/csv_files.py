"""The rows of CSV files, which begin with a line of column names."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

from ftfile.core.errors import ConfigError
from ftfile.formats.reading.line_ends import WholeLineEnds
from ftfile.rows import kernels as pc
from ftfile.tools.load.input_files import ByteStream, FileRows, text_of
from ftfile.tools.load.text_types import check_known, in_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource
    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.tools.load.input_files import FileToLoad

# A row cannot be longer. Types are derived from the rows of the first block. pyarrow reads up to 32 blocks ahead.
BLOCK_BYTES = 512 << 10
_LONG_ROW = "straddling object"
_FIRST_ROW = 2  # after the line of names, as pyarrow counts
_OPEN_QUOTE = "the quote of its last value is not closed, so the file is not complete"
_COLUMN = re.compile(r"In CSV column #(\d+): ")


class _EndMark:
    """A row that is appended to a text, and that pyarrow reads as nulls in columns of all types.

    pyarrow 26 accepts a quote that is not closed. Such a quote makes the row a part of the last value.
    """

    def __init__(self, null: str, columns: int) -> None:
        self.null = null  # the first value; an empty line is not a row of a file with one column
        self.text = b"\n" + null.encode() + b"," * (columns - 1) + b"\n"


class _MarkedText:
    """A text, followed by a mark."""

    def __init__(self, text: ByteStream, end: _EndMark) -> None:
        self._text = text
        self._end = io.BytesIO(end.text)

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end; all remaining bytes for a negative size."""
        data = self._text.read(size)
        if size < 0:
            return data + self._end.read()
        return data + self._end.read(size - len(data))


@contextmanager
def csv_rows(
    file: FileToLoad, types: Mapping[str, pa.DataType], ids: IdSource, times: TimeFormats
) -> Iterator[FileRows]:
    """Yield the rows of a CSV file; an empty field is null, and `""` is an empty text.

    Args:
        file: the file.
        types: of columns by name; types of other columns are derived from the first rows.
        ids: makes a text that no value contains.
        times: the zone of times without a zone.

    Raises:
        ConfigError: the file is damaged, or not CSV.
        SchemaError: a column has a type that CSV cannot contain, or occurs twice, or its type is not known.
    """
    with text_of(file) as (stored, text):
        with file.errors():
            start = _start_of(text)
        schema = _schema_of(file, start, types)
        end = _EndMark(ids.unique(), len(schema))
        rows = ByteStream(_MarkedText(text, end), start)
        read_types = _as_read({field.name: field.type for field in schema})
        with _csv_errors(file, schema.names, end):
            reader = _open(pa.PythonFile(WholeLineEnds(rows), mode="r"), read_types, nulls=("", end.null))
        try:
            yield FileRows(schema, _batches(file, reader, schema=schema, end=end, times=times), lambda: stored.position)
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
        texts = _texts_of_other_numbers(start, derived, typed)
    fields = []
    for field in derived:
        kind = typed.get(field.name, _stored_type_of(field.type))
        if field.name in texts:
            kind = pa.string()
        fields.append((field.name, kind))
    schema = pa.schema(fields)
    check_known(file, schema)
    return schema


def _texts_of_other_numbers(start: bytes, derived: pa.Schema, typed: Mapping[str, pa.DataType]) -> set[str]:
    """Return the derived columns of numbers in whose first rows a text is hexadecimal, or too large for its type.

    pyarrow 26 reads `0x10` as 16 and `1e400` as infinity. Such columns contain codes or numbers of other programs.
    """
    numbers = {}  # by position, since names may occur twice
    for position, field in enumerate(derived):
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        if is_number and field.name not in typed:
            numbers[position] = field.name
    if not numbers:
        return set()
    first = next(_open(pa.BufferReader(start), _as_read(typed) | dict.fromkeys(numbers.values(), pa.string())), None)
    if first is None:
        return set()
    return {name for position, name in numbers.items() if _has_other_numbers(first.column(position))}


def _has_other_numbers(values: pa.Array) -> bool:
    texts = pc.ascii_trim_whitespace(values)  # pyarrow 26 reads ` 5` as a number, but does not cast it
    if pc.any(pc.match_substring_regex(texts, "^0[xX]")).as_py():
        return True
    is_decimal = pc.match_substring_regex(texts, "[0-9]")  # the text of an infinite number has no digits
    decimals = texts.filter(is_decimal)
    return bool(pc.any(pc.is_inf(decimals.cast(pa.float64()))).as_py())


@contextmanager
def _csv_errors(file: FileToLoad, names: Sequence[str] = (), end: _EndMark | None = None) -> Iterator[None]:
    """Translate pyarrow's errors into a `ConfigError` that contains the name of the column."""
    try:
        with file.errors():
            yield
    except ConfigError as error:
        if not isinstance(error.__cause__, pa.ArrowInvalid):
            raise
        text = str(error.__cause__)
        if end is not None and end.null in text:
            raise file.damaged(_OPEN_QUOTE) from error
        if _LONG_ROW in text:
            text = f"a row has more than {BLOCK_BYTES:,} bytes, or a quote is not closed: use JSON lines or Parquet"
        if match := _COLUMN.match(text):
            name = names[int(match[1])]
            text = f"column `{name}`, {text[match.end() :]}"
        raise file.damaged(text) from error


def _start_of(text: ByteStream) -> bytes:
    """Return two blocks: pyarrow derives types from the first one, and needs the second one to find its last row.

    A shorter text gets a line end, without which pyarrow refuses a single line.
    """
    start = b""
    while len(start) < 2 * BLOCK_BYTES:
        piece = text.read(2 * BLOCK_BYTES - len(start))
        if not piece:
            return start + b"\n"
        start += piece
    return start


def _open(
    source: pa.NativeFile, types: Mapping[str, pa.DataType], nulls: Sequence[str] = ("",)
) -> csv.CSVStreamingReader:
    return csv.open_csv(
        source,
        csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),  # with threads, errors have no row numbers
        csv.ParseOptions(newlines_in_values=True),
        csv.ConvertOptions(
            column_types=types,
            null_values=nulls,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _batches(
    file: FileToLoad, reader: csv.CSVStreamingReader, schema: pa.Schema, end: _EndMark, times: TimeFormats
) -> Iterator[pa.RecordBatch]:
    waiting: pa.RecordBatch | None = None  # the last batch contains the mark
    row = _FIRST_ROW  # of the batch that waits
    while True:
        with _csv_errors(file, schema.names, end):
            batch = next(reader, None)
        if batch is None:
            break
        if batch.num_rows == 0:
            continue
        if waiting is not None:
            yield in_types(file, waiting, schema=schema, times=times, row=row)
            row += waiting.num_rows
        waiting = batch
    if waiting is None or waiting.column(waiting.num_columns - 1)[-1].is_valid:
        raise file.damaged(_OPEN_QUOTE)
    yield in_types(file, waiting.slice(0, waiting.num_rows - 1), schema=schema, times=times, row=row)


def _as_read(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Return the types that pyarrow reads: text for binary values, and for times.

    A time may lack a zone, or have zeros after the microseconds, which pyarrow refuses.
    """
    read = {}
    for name, kind in types.items():
        is_clock = pa.types.is_timestamp(kind) or pa.types.is_time(kind)
        read[name] = pa.string() if pa.types.is_binary(kind) or is_clock else kind
    return read


def _stored_type_of(kind: pa.DataType) -> pa.DataType:
    """Return a derived type with fractions of seconds, which only later rows may have."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return kind
