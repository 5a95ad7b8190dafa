"""`fileFormat=csv`: rows that Spark's CSV source reads with its default options."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from ftfile.core.errors import ConfigError
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.line_formats import EncodedRows, Lines, check_characters, naming, rows_of
from ftfile.formats.reading.batches import batch_of
from ftfile.formats.reading.lent_file import LentFile
from ftfile.formats.reading.line_ends import WholeLineEnds
from ftfile.formats.reading.read_errors import corrupt
from ftfile.formats.reading.schema_checks import check_problems, check_variants
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_texts, text_scalar
from ftfile.rows.clock_text import times_of_day
from ftfile.rows.value_text import float_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


_BLOCK_BYTES = 4 << 20
_BLOCK_BYTES_MAX = (1 << 31) - 1
_BUFFER_BYTES = 1 << 16  # a block is longer and not copied to the buffer, so it ends where a read of the file ends

# The characters of numbers, booleans, and dates and timestamps in ISO 8601.
_PLAIN_CHARACTERS = frozenset("0123456789+-.eNaNInfinitytruefalse:TZ")

_EMPTY = text_scalar("", pa.string())


_OPTIONS = {
    "header": "header",
    "sep": "sep",
    "quote": "quote",
    "escape": "escape",
    "quote_all": "quoteAll",
    "null_value": "nullValue",
    "line_sep": "lineSep",
}
_LINE_SEPS = ("\n", "\r\n", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvLines(Lines):
    """CSV."""

    name: ClassVar[str] = "csv"
    extension = ".csv"
    settings_of_writers: ClassVar[frozenset[str]] = frozenset({"quoteAll", "columns"})  # the schema has the columns

    header: bool
    sep: str
    quote: str
    escape: str  # before a quote, and before itself, within quotes
    quote_all: bool
    null_value: str
    times: TimeFormats
    line_sep: str
    columns: tuple[str, ...] | None = None  # for reading a file without a header; None for the names in the schema

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> CsvLines:
        settled = {name: options.get(option, DEFAULTS[option]) for name, option in _OPTIONS.items()}
        format_ = cls(**settled, times=TimeFormats.from_options(options))
        format_._check()
        return format_

    def definition(self, schema: pa.Schema) -> dict[str, Any]:
        options = {option: getattr(self, name) for name, option in _OPTIONS.items()}
        if self.header:
            columns = {}
        else:
            columns = {"columns": schema.names}
        return options | self.times.definition() | columns

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> CsvLines:
        return replace(cls.from_options(definition), columns=tuple(definition.get("columns", ())) or None)

    def check_schema(self, schema: pa.Schema) -> None:
        check_variants(self.name, schema)
        problems = []
        for column in schema:
            if pa.types.is_nested(column.type):
                problems.append(f"column `{column.name}`: {column.type}; use to_json(`{column.name}`), json or parquet")
            elif pa.types.is_binary(column.type):  # Spark would read other bytes
                problems.append(f"column `{column.name}`: binary; use base64(`{column.name}`), json or parquet")
        if len(schema) == 1 and schema.field(0).nullable and not self.null_value:
            problems.append(
                f"column `{schema.field(0).name}`: its nulls would be written as empty lines, which readers skip; set "
                "nullValue, as in nullValue=\\N, or use text"
            )
        check_problems(self.name, problems)

    def keeps(self, field: pa.Field) -> bool:
        return self.times.keeps(field.type)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        return _csv_rows(batch.schema, self).encode(batch)

    def head(self, schema: pa.Schema) -> bytes:
        if self.header:
            return _csv_rows(schema, self).names()
        return b""

    def without_head(self, schema: pa.Schema) -> CsvLines:
        return replace(self, header=False, columns=tuple(schema.names))

    def row_ends(self, data: bytes) -> NDArray[np.integer]:
        # Line ends within quotes do not end a row.
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        within = f"[^{quote}]*(?:{quote}{quote}[^{quote}]*)*"
        if self.escape != self.quote:
            within = f"[^{quote}{escape}]*(?:{escape}.[^{quote}{escape}]*)*"
        row = f"[^{quote}\r\n]*(?:{quote}{within}{quote}[^{quote}\r\n]*)*{re.escape(self.line_sep)}"
        matches = re.finditer(row.encode(), data, re.DOTALL)
        return np.array([match.end() for match in matches], np.int64)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        size_bytes = file.seek(0, os.SEEK_END)
        if size_bytes == 0:
            return
        rows_given, block_bytes = 0, _BLOCK_BYTES
        while True:
            rows_read = 0
            try:
                file.seek(0)
                ending = _Ending(file, self.line_sep.encode())
                with ending:
                    for batch in self._open(ending, schema, block_bytes):
                        rows_read += batch.num_rows
                        if rows_read > rows_given:
                            new = batch.slice(batch.num_rows - (rows_read - rows_given))
                            rows_given = rows_read
                            yield self._convert_batch(new, schema, file)
                    ending.check()
            except pa.ArrowInvalid as error:
                # Arrow cannot read a record longer than a block, so the file is read again with longer blocks.
                if block_bytes >= min(size_bytes, _BLOCK_BYTES_MAX):
                    raise corrupt(file, "CSV", error) from error
                block_bytes = min(block_bytes * 8, _BLOCK_BYTES_MAX)
            else:
                return

    def _open(self, file: _Ending, schema: pa.Schema, block_bytes: int) -> arrow_csv.CSVStreamingReader:
        """Return a reader of all fields as strings, so that null and "" are distinct."""
        if self.header:
            names = None
        else:
            names = self.columns or tuple(schema.names)
        doubled = self.escape == self.quote
        # Copies blocks to memory of Arrow, since Python's memory can only be freed with the interpreter's lock.
        blocks = pa.BufferedInputStream(pa.PythonFile(WholeLineEnds(file), mode="r"), _BUFFER_BYTES)
        return arrow_csv.open_csv(
            blocks,
            arrow_csv.ReadOptions(column_names=names, block_size=block_bytes, use_threads=False),
            arrow_csv.ParseOptions(
                delimiter=self.sep,
                quote_char=self.quote,
                double_quote=doubled,
                escape_char=False if doubled else self.escape,
                newlines_in_values=True,
                ignore_empty_lines=False,
            ),
            arrow_csv.ConvertOptions(
                column_types={column.name: pa.string() for column in schema},
                include_columns=schema.names,
                include_missing_columns=True,
                null_values=sorted(self.nulls_as_read),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    @property
    def nulls_as_read(self) -> set[str]:
        """Return `null_value` as in the file, and as seen by a reader that removes all escapes."""
        if self.escape == self.quote:
            return {self.null_value}
        return {self.null_value, re.sub(re.escape(self.escape) + "(.)", r"\1", self.null_value)}

    def _check(self) -> None:
        check_characters(self.sep, self.quote, self.escape)
        if self.line_sep not in _LINE_SEPS:
            raise ConfigError(f"option lineSep={self.line_sep!r}: for csv it must be \\n, \\r\\n or \\r")
        if any(character in self.null_value for character in (self.sep, self.quote, "\r", "\n")):
            raise ConfigError(f"option nullValue={self.null_value!r}: it must not contain sep, quote or a line end")

    def _convert_batch(self, batch: pa.RecordBatch, schema: pa.Schema, file: BinaryIO) -> pa.RecordBatch:
        columns, times = [], self.times
        for column in schema:
            text, kind = batch.column(column.name), column.type
            try:
                if pa.types.is_time(kind):
                    columns.append(times_of_day(text))
                elif not pa.types.is_temporal(kind) or times.is_iso(kind):
                    columns.append(text.cast(kind))
                else:
                    columns.append(times.pattern(kind).read(text, kind, times.zone))
            except ValueError as error:
                raise corrupt(file, f"{kind} in column `{column.name}`", error) from error
        return batch_of(columns, schema, batch.num_rows)


class _Ending(LentFile):
    """A file that stores the last bytes read."""

    def __init__(self, file: BinaryIO, line_sep: bytes) -> None:
        super().__init__(file)
        self._line_sep = line_sep
        self._end = b""

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        self._end = (self._end + data[-len(self._line_sep) :])[-len(self._line_sep) :]
        return data

    def check(self) -> None:
        """Raise `CorruptData` if the last line is incomplete, or decoding stopped before the last line."""
        if not self.is_lent:
            raise corrupt(self._file, "the whole file", "the part that was read before the process began to exit")
        if self._end != self._line_sep:
            raise corrupt(self._file, f"a line separator {self._line_sep!r} at the end", repr(self._end))


@functools.lru_cache(maxsize=8)
def _csv_rows(schema: pa.Schema, options: CsvLines) -> _CsvText:
    """Return the encoder of a schema, cached for all of its batches."""
    return _CsvText(schema, options)


class _CsvText:
    """Makes the text of batches of one schema: columns of strings, quoted if needed, joined to lines."""

    def __init__(self, schema: pa.Schema, options: CsvLines) -> None:
        self._options = options
        self._schema = schema
        self._sep = text_scalar(options.sep, pa.string())
        self._quote = text_scalar(options.quote, pa.string())
        self._line_sep = text_scalar(options.line_sep, pa.string())
        specials = {options.sep, options.quote, options.escape, "\r", "\n"}
        in_class = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(specials))
        nulls = "".join(f"|^{re.escape(text)}$" for text in options.nulls_as_read)
        # A reader would remove a byte-order mark at the start of a file.
        self._needs_quotes = f"[{in_class}]|^\\x{{feff}}|^${nulls}"
        self._is_checked = [self._may_need_quotes(column.type, specials) for column in schema]

    def names(self) -> bytes:
        """Return the header line."""
        names = [self._quote_where_needed(from_texts([name], pa.string())) for name in self._schema.names]
        return bytes(self._lines(names).data)

    def _may_need_quotes(self, arrow: pa.DataType, specials: set[str]) -> bool:
        """Return True if the text of a value of this type can need quotes."""
        if pa.types.is_string(arrow) or self._options.quote_all:
            return True
        if pa.types.is_temporal(arrow) and not pa.types.is_time(arrow) and not self._options.times.is_iso(arrow):
            return True
        nulls = (set(text) for text in self._options.nulls_as_read if text)
        return bool(specials & _PLAIN_CHARACTERS) or any(text <= _PLAIN_CHARACTERS for text in nulls)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        columns = []
        for column, array, is_checked in zip(self._schema, batch.columns, self._is_checked, strict=True):
            with naming(f"column `{column.name}`"):
                text = self._text(array)
                columns.append(self._quote_where_needed(text) if is_checked else text)
        return self._lines(columns)

    def _text(self, array: pa.Array) -> pa.StringArray:
        if pa.types.is_floating(array.type):
            return float_text(array)
        if pa.types.is_temporal(array.type) and not pa.types.is_time(array.type):
            return self._options.times.pattern(array.type).format(array, self._options.times.zone)
        return array.cast(pa.string())

    def _quote_where_needed(self, text: pa.StringArray) -> pa.StringArray:
        options = self._options
        if options.quote_all:
            needed = text.is_valid()
        else:
            needed = pc.match_substring_regex(text, self._needs_quotes)
        if not pc.any(needed).as_py():
            return text
        values = text.filter(needed)
        if options.escape != options.quote:
            values = pc.replace_substring(values, options.escape, options.escape * 2)
        values = pc.replace_substring(values, options.quote, options.escape + options.quote)
        return pc.replace_with_mask(text, needed, pc.binary_join_element_wise(self._quote, values, self._quote, _EMPTY))

    def _lines(self, columns: list[pa.StringArray]) -> EncodedRows:
        rows = pc.binary_join_element_wise(
            *columns, self._sep, null_handling="replace", null_replacement=self._options.null_value
        )
        return rows_of(pc.binary_join_element_wise(rows, _EMPTY, self._line_sep))
