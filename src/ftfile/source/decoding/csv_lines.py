"""Decoding of CSV records to rows. A record is a line, or a part of a whole file.

Records that every parser reads the same way are parsed together, and all other records one by one. pyarrow's parser
only converts values that it reads like `read_texts`, so the row of a line depends only on this line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ftfile.core.errors import CorruptData
from ftfile.formats.parts import recorded_names
from ftfile.formats.reading.batches import batch_of
from ftfile.rows.buffers import text_scalar
from ftfile.rows.value_text import all_finite
from ftfile.source.decoding.lines import TEXT_BYTES_MAX, first_lines, line_blocks
from ftfile.source.decoding.records import (
    DecodedRows,
    as_java_reads,
    finished_rows,
    in_halves,
    in_parts,
    join_lines,
    lines_of,
    read_texts,
    records_of,
    with_line_feeds,
)
from ftfile.source.settings import own_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.source.decoding.lines import RangeContent
    from ftfile.source.decoding.records import LineBlock
    from ftfile.source.plan import Cut
    from ftfile.source.settings import FileDecoding


_BLANK_MAX = ord(" ")  # Java trims all characters up to this one
_NEWLINE = ord("\n")
_MARK = "\ufeff"
_SHOWN_CHARS = 200
# Values that only pyarrow's parser accepts: hexadecimal integers, offsets after a time without seconds, and offsets of
# more than 18 hours.
_ARROW_ONLY = (
    r"0[xX][0-9a-fA-F]|[T ][0-9]{2}(:[0-9]{2})?(Z|[+-][0-9])|"
    r"[:.][0-9]+[+-](19|[2-9][0-9]|18:?(0[1-9]|[1-5][0-9]))"
)


def csv_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cut. Blank lines and comments have no rows.

    With a header, columns are found by its names, ignoring case. Without a header, the fields are in the order of the
    schema.
    """
    names = own_columns(schema, decoding).names
    header_end = 0
    if decoding.header:
        header = _header(content, decoding)
        if header is None:
            return
        names, header_end = header
    reader = CsvRows(schema, names, decoding)
    for block in line_blocks(content, cut, decoding.separator, header_end):
        lines = lines_of(as_java_reads(block, decoding), decoding.line_sep.encode())
        yield from finished_rows(reader.rows(lines), lines, schema=schema, decoding=decoding, path=content.planned.path)


def multi_line_csv(
    content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file whose quoted fields may contain line ends."""
    del cut  # the cut contains the whole file
    text = as_java_reads(content.read_whole(TEXT_BYTES_MAX), decoding).decode().removeprefix(_MARK)
    text = with_line_feeds(text, content.planned.path)
    records = records_of(text, decoding)
    names = own_columns(schema, decoding).names
    if decoding.header:
        names = []
        for record in records:
            if has_fields(record, decoding):
                names = _names(record, decoding, content.planned.path)
                break
    reader = CsvRows(schema, names, decoding)
    for part in in_parts(records):
        lines = join_lines([record.encode() for record in part])
        yield from finished_rows(reader.rows(lines), lines, schema=schema, decoding=decoding, path=content.planned.path)


def _header(content: RangeContent, decoding: FileDecoding) -> tuple[list[str], int] | None:
    """Return the names in the first line with fields, and the end of this line; None if all lines are empty."""
    end = 0
    for block in first_lines(content, decoding.separator):
        for line in block.split(decoding.separator)[:-1]:
            end += len(line) + len(decoding.separator)
            text = as_java_reads(line, decoding).decode().removeprefix(_MARK).removesuffix("\r")
            if has_fields(text, decoding):
                return _names(text, decoding, content.planned.path), end
    return None


def _names(header: str, decoding: FileDecoding, path: str) -> list[str]:
    """Return the names in a header.

    Raises:
        CorruptData: a quote in the header is wrong.
    """
    try:
        return [name or "" for name in fields_of(header, decoding)]
    except ValueError as error:
        raise CorruptData(path, "a header with the names of columns", f"{header[:_SHOWN_CHARS]!r}: {error}") from error


def has_fields(text: str, decoding: FileDecoding) -> bool:
    """Return True for a record that is not blank and not a comment."""
    return bool(text.strip()) and not (decoding.comment and text.startswith(decoding.comment))


class CsvRows:
    """Decodes lines to rows of a schema; `names` are the names of the fields of a line, in order."""

    def __init__(self, schema: pa.Schema, names: Sequence[str], decoding: FileDecoding) -> None:
        self._stand_in = ""
        self._decoding = decoding
        self._schema = own_columns(schema, decoding)
        self._width = len(names)
        spelled = recorded_names(names, self._schema.names)
        place_of: dict[str, int] = {}
        for place, name in enumerate(names):
            place_of.setdefault(name, place)
        self._places = [place_of.get(name) for name in spelled]
        self._direct = self._types_read_at_once()

    def _types_read_at_once(self) -> dict[str, pa.DataType]:
        """Return the types of the fields that pyarrow's parser reads like `read_texts`, by the number of the field."""
        if self._decoding.null_value:
            return {}
        types = {}
        for place, field in zip(self._places, self._schema, strict=True):
            if place is None or self._places.count(place) > 1:
                continue
            if _is_read_alike(field.type, self._decoding):
                types[str(place)] = field.type
        return types

    def rows(self, lines: LineBlock) -> DecodedRows:
        """Return the rows of a block of UTF-8 lines without carriage returns at their ends."""
        rows = DecodedRows()
        self._stand_in = lines.stand_in
        is_record = ~self._is_blank(lines)
        if not self._width:
            records = np.flatnonzero(is_record)
            rows.add(batch_of([], self._schema, len(records)), records)
            return rows
        is_odd = self._is_odd(lines) & is_record
        plain = np.flatnonzero(is_record & ~is_odd)
        self._take_plain(rows, lines, plain)
        texts, numbers = [], []
        for number in np.flatnonzero(is_odd):
            try:
                fields = fields_of(lines.text(int(number)), self._decoding)
            except ValueError as error:
                rows.bad[int(number)] = str(error)
                continue
            if len(fields) == self._width:
                texts.append(fields)
                numbers.append(int(number))
            else:
                rows.bad[int(number)] = self._wrong_width(len(fields))
        columns = [pa.array([fields[place] for fields in texts], pa.string()) for place in range(self._width)]
        self._take(rows, columns, np.array(numbers, np.int64))
        return rows

    def _is_blank(self, lines: LineBlock) -> NDArray[np.bool_]:
        """Return for each line True if it is a comment or contains only blanks."""
        first = lines.bytes[lines.starts]
        blank = first <= _BLANK_MAX
        for number in np.flatnonzero(blank & (first != _NEWLINE)):
            text = lines.text(int(number))
            blank[number] = all(ord(character) <= _BLANK_MAX for character in text)
        if self._decoding.comment:
            blank |= first == ord(self._decoding.comment)
        return blank

    def _is_odd(self, lines: LineBlock) -> NDArray[np.bool_]:
        """Return for each line True if parsers may read it differently, because of its quotes or a carriage return."""
        odd = np.zeros(len(lines), np.bool_)
        data = lines.bytes
        decoding = self._decoding
        if b"\r" in lines.block:
            self._mark(odd, lines, np.flatnonzero(data == ord("\r")))
        if decoding.quote.encode() not in lines.block:
            return odd
        quotes = np.flatnonzero(data == ord(decoding.quote))
        first = np.searchsorted(quotes, lines.starts)
        counts = np.diff(np.append(first, len(quotes)))
        is_doubled = decoding.escape == decoding.quote
        if not is_doubled and decoding.escape.encode() in lines.block:
            has_escape = np.zeros(len(lines), np.bool_)
            self._mark(has_escape, lines, np.flatnonzero(data == ord(decoding.escape)))
            odd |= has_escape & (counts > 0)
        is_unbalanced = counts % 2 == 1
        if is_unbalanced.any():
            odd |= is_unbalanced
            quotes = quotes[~np.repeat(is_unbalanced, counts)]
        # In all other lines, every second quote closes the content after the previous quote.
        outside = np.zeros(256, np.bool_)  # True for the bytes that may be next to quoted content
        outside[[ord(decoding.sep), _NEWLINE]] = True
        if is_doubled:
            outside[ord(decoding.quote)] = True
        opening, closing = quotes[::2], quotes[1::2]
        # For a quote at the start of the block, index -1 is the last byte of the block, a line feed.
        self._mark(odd, lines, opening[~outside[data[opening - 1]]])
        self._mark(odd, lines, closing[~outside[data[closing + 1]]])
        return odd

    @staticmethod
    def _mark(flags: NDArray[np.bool_], lines: LineBlock, positions: NDArray[np.integer]) -> None:
        """Set the flags of the lines that contain the bytes at these positions of the block."""
        flags[np.searchsorted(lines.ends, positions, side="right")] = True

    def _take_plain(self, rows: DecodedRows, lines: LineBlock, numbers: NDArray[np.integer]) -> None:
        if not len(numbers):
            return
        data = lines.join(numbers)
        if self._direct and not _has_blanks_around_values(lines, self._decoding) and not _has_arrow_only_values(data):
            try:
                parsed, wrong = self._parse_lines(data, self._direct)
                if not _all_finite(parsed):
                    parsed, wrong = self._parse_lines(data, {})
            except pa.ArrowInvalid:
                # The values have another spelling, probably also in the rest of the file.
                self._direct = {}
                parsed, wrong = self._parse_lines(data, {})
        else:
            parsed, wrong = self._parse_lines(data, {})
        for number, width in wrong.items():
            rows.bad[int(numbers[number])] = self._wrong_width(width)
        right = numbers
        if wrong:
            right = np.delete(numbers, [*wrong])
        columns = [column.combine_chunks() for column in parsed.columns]
        self._take(rows, columns, right)

    def _parse_lines(self, data: bytes, types: dict[str, pa.DataType]) -> tuple[pa.Table, dict[int, int]]:
        """Return the fields of lines, as text or as `types`, and by line the wrong numbers of fields."""
        decoding = self._decoding
        names = [str(place) for place in range(self._width)]
        wrong: dict[int, int] = {}

        def skip(row: arrow_csv.InvalidRow) -> str:
            wrong[row.number - 1] = row.actual_columns
            return "skip"

        try:
            parsed = arrow_csv.read_csv(
                pa.BufferReader(data),
                arrow_csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
                arrow_csv.ParseOptions(
                    delimiter=decoding.sep,
                    quote_char=decoding.quote,
                    double_quote=decoding.escape == decoding.quote,
                    escape_char=False,
                    ignore_empty_lines=False,
                    invalid_row_handler=skip,
                ),
                arrow_csv.ConvertOptions(
                    check_utf8=False,
                    column_types={**dict.fromkeys(names, pa.string()), **types},
                    null_values=[""],
                    true_values=["true", "True", "TRUE"],
                    false_values=["false", "False", "FALSE"],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=not decoding.null_value,
                ),
            )
        except pa.ArrowInvalid as error:
            if types:
                raise
            # If all fields are read as text, the parser accepts or skips every line. It then only fails if memory for
            # the error about a long line is missing.
            raise MemoryError("to parse a line") from error
        return parsed, wrong

    def _wrong_width(self, found: int) -> str:
        return f"{found} fields instead of {self._width}"

    def _take(self, rows: DecodedRows, columns: list[pa.StringArray], numbers: NDArray[np.integer]) -> None:
        """Convert fields and add their rows. If a value cannot be converted, convert halves, to find the bad rows."""

        def take(start: int, end: int) -> None:
            piece = [column.slice(start, end - start) for column in columns]
            rows.add(self._convert_columns(piece, end - start), numbers[start:end])

        for untaken in in_halves(take, len(numbers), ValueError):
            rows.bad[int(numbers[untaken.start])] = str(untaken.error)

    def _convert_columns(self, columns: list[pa.StringArray], rows: int) -> pa.RecordBatch:
        typed = []
        for place, kind in zip(self._places, self._schema.types, strict=True):
            if place is None:
                typed.append(pa.nulls(rows, kind))
            else:
                typed.append(self._values(columns[place], kind))
        return batch_of(typed, self._schema, rows)

    def _values(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        if not pa.types.is_string(texts.type):
            return texts  # already read by pyarrow's parser
        if self._decoding.null_value:
            is_null = pc.equal(texts, text_scalar(self._decoding.null_value, pa.string()))
            texts = pc.if_else(is_null, None, texts)
        if self._stand_in:
            texts = pc.replace_substring(texts, self._stand_in, "\n")
        if pa.types.is_binary(kind):
            return texts.view(kind)
        return read_texts(texts, kind, self._decoding.times)


def _is_read_alike(kind: pa.DataType, decoding: FileDecoding) -> bool:
    """Return True for types that pyarrow's parser reads like a cast of texts, if no blanks are around values."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return decoding.times.is_iso(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _has_arrow_only_values(data: bytes) -> bool:
    """Return True if lines may contain a value that pyarrow's parser accepts and Spark does not."""
    block = pa.array([data], pa.large_binary())
    return bool(pc.match_substring_regex(block, _ARROW_ONLY)[0].as_py())


def _all_finite(parsed: pa.Table) -> bool:
    """Return True if all numbers are finite; the spelling of infinite numbers and NaN must be checked."""
    for column in parsed.columns:
        if pa.types.is_floating(column.type) and not all_finite(column):
            return False
    return True


def _has_blanks_around_values(lines: LineBlock, decoding: FileDecoding) -> bool:
    """Return True if a blank is next to a separator, a line end or a quote, where pyarrow's parser trims numbers."""
    blanks = [blank for blank in b" \t" if blank != ord(decoding.sep)]
    if not any(bytes([blank]) in lines.block for blank in blanks):
        return False
    data = lines.bytes
    is_blank = np.isin(data, blanks)
    is_edge = (data == ord(decoding.sep)) | (data == _NEWLINE) | (data == ord(decoding.quote))
    has_blank_after_edge = np.any(is_blank[1:] & is_edge[:-1])
    has_blank_before_edge = np.any(is_blank[:-1] & is_edge[1:])
    return bool(is_blank[0] or has_blank_after_edge or has_blank_before_edge)


def fields_of(text: str, decoding: FileDecoding) -> list[str | None]:
    """Return the fields of a record. An empty field is None, unless it is quoted and `nullValue` is set.

    Raises:
        ValueError: a quote is not closed, or it is not escaped and Spark's parser would move or drop it.
    """
    fields: list[str | None] = []
    position = 0
    while True:
        if text.startswith(decoding.quote, position):
            field, position = _read_quoted(text, position, decoding)
            if field or decoding.null_value:
                fields.append(field)
            else:
                fields.append(None)
        else:
            end = _end_of_field(text, position, decoding.sep)
            fields.append(text[position:end] or None)
            position = end
        if position >= len(text):
            return fields
        position += 1


def _end_of_field(text: str, position: int, sep: str) -> int:
    """Return the position of the next separator, or the end of the text."""
    end = text.find(sep, position)
    if end < 0:
        return len(text)
    return end


def _read_quoted(text: str, start: int, decoding: FileDecoding) -> tuple[str, int]:
    """Return the value of the field that begins with a quote at `start`, and its end; raises as `fields_of`."""
    quote, sep, escape = decoding.quote, decoding.sep, decoding.escape
    pieces: list[str] = []
    position = start + 1
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == escape and following == quote:
            pieces.append(quote)
            position += 2
        elif character == escape != quote and following == escape:
            pieces.append(escape)
            position += 2
        elif character != quote:
            pieces.append(character)
            position += 1
        else:
            end = _after_blanks(text, position + 1, sep)
            if text[end : end + 1] in {"", sep}:
                return "".join(pieces), end
            break
    else:
        raise ValueError(f"the quote at {start} is not closed")
    # This quote is not escaped and does not end the field, so all quotes of the field are ordinary characters.
    end = _end_of_field(text, position, sep)
    rest = text[position:end]
    closes_after_blank = text[position + 1 : position + 2].isspace() and rest.rstrip().endswith(quote)
    if closes_after_blank or (escape != quote and (escape in rest or rest.rstrip().endswith(2 * quote))):
        # Spark's parser moves or drops quotes in such fields.
        raise ValueError(f"the quote at {position} is not escaped")
    return quote + "".join(pieces) + rest, end


def _after_blanks(text: str, position: int, sep: str) -> int:
    """Return the first position from `position` on that is a separator, not a blank, or the end of the text."""
    while text[position : position + 1] not in {"", sep} and text[position] <= " ":
        position += 1
    return position
