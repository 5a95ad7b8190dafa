"""Rows to CSV: every column becomes strings, quoted where needed, and the strings are joined to lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.buffers import from_texts, text_scalar
from ftfile.arrays.float_text import float_text
from ftfile.encoding.base.lines import EncodedRows, naming, rows_of

if TYPE_CHECKING:
    from ftfile.encoding.csv.dialect import CsvDialect

__all__ = ("CsvRows",)

# Of numbers, booleans, and dates and timestamps in ISO 8601.
_PLAIN_CHARACTERS = frozenset("0123456789+-.eNaNInfinitytruefalse:TZ")

_EMPTY = text_scalar("", pa.string())


class CsvRows:
    """The text of batches of one schema."""

    def __init__(self, schema: pa.Schema, dialect: CsvDialect) -> None:
        self._dialect = dialect
        self._schema = schema
        self._sep, self._quote, self._line_sep = (
            text_scalar(text, pa.string()) for text in (dialect.sep, dialect.quote, dialect.line_sep)
        )
        specials = {dialect.sep, dialect.quote, dialect.escape, "\r", "\n"}
        in_class = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(specials))
        nulls = "".join(f"|^{re.escape(text)}$" for text in dialect.nulls_as_read)
        # A reader would drop a byte-order mark at the start of a file.
        self._needs_quotes = f"[{in_class}]|^\\x{{feff}}|^${nulls}"
        self._is_checked = [self._may_need_quotes(column.type, specials) for column in schema]

    def names(self) -> bytes:
        """Return the line of the columns' names."""
        names = [self._quoted_where_needed(from_texts([name], pa.string())) for name in self._schema.names]
        return bytes(self._lines(names).data)

    def _may_need_quotes(self, arrow: pa.DataType, specials: set[str]) -> bool:
        """Return True if the text of a value of this type can need quotes."""
        if pa.types.is_string(arrow) or self._dialect.quote_all:
            return True
        if pa.types.is_temporal(arrow) and not self._dialect.times.is_iso(arrow):
            return True
        nulls = (set(text) for text in self._dialect.nulls_as_read if text)
        return bool(specials & _PLAIN_CHARACTERS) or any(text <= _PLAIN_CHARACTERS for text in nulls)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        columns = []
        for column, array, is_checked in zip(self._schema, batch.columns, self._is_checked, strict=True):
            with naming(f"column `{column.name}`"):
                text = self._text(array)
                columns.append(self._quoted_where_needed(text) if is_checked else text)
        return self._lines(columns)

    def _text(self, array: pa.Array) -> pa.StringArray:
        if pa.types.is_floating(array.type):
            return float_text(array)
        if pa.types.is_temporal(array.type):
            return self._dialect.times.pattern(array.type).format(array, self._dialect.times.zone)
        return array.cast(pa.string())

    def _quoted_where_needed(self, text: pa.StringArray) -> pa.StringArray:
        dialect = self._dialect
        needed = text.is_valid() if dialect.quote_all else pc.match_substring_regex(text, self._needs_quotes)
        if not pc.any(needed).as_py():
            return text
        values = text.filter(needed)
        if dialect.escape != dialect.quote:
            values = pc.replace_substring(values, dialect.escape, dialect.escape * 2)
        values = pc.replace_substring(values, dialect.quote, dialect.escape + dialect.quote)
        return pc.replace_with_mask(text, needed, pc.binary_join_element_wise(self._quote, values, self._quote, _EMPTY))

    def _lines(self, columns: list[pa.StringArray]) -> EncodedRows:
        rows = pc.binary_join_element_wise(
            *columns, self._sep, null_handling="replace", null_replacement=self._dialect.null_value
        )
        return rows_of(pc.binary_join_element_wise(rows, _EMPTY, self._line_sep))
