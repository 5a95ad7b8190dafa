"""`fileFormat=json`: one JSON object per line, which Spark's JSON source reads."""

from __future__ import annotations

import binascii
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import arro3.io
import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, EncodingError
from ftfile.core.options.table import DEFAULTS
from ftfile.formats.line_formats import EncodedRows, Lines, naming, rows_of, whole_lines
from ftfile.formats.reading.batches import batch_of
from ftfile.formats.reading.read_errors import corrupt
from ftfile.formats.reading.schema_checks import check_problems, check_variants, list_columns_within
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import (
    is_valid,
    leaf_types,
    leaves,
    list_parts,
    map_entries,
    map_leaf_types,
    rebuild,
    string_parts,
    strings_from,
    text_scalar,
)
from ftfile.rows.json_variants import with_binary_variants, with_raw_variants
from ftfile.rows.spark_types import has_variant
from ftfile.rows.value_text import all_finite, check_range, float_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray


_PAD = ord("=")
_TWO_NULLS = (
    "VARIANT with ignoreNullFields=false, which writes NULL and the null of a VARIANT the same way; omit the option"
)
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def object_text(names: Iterable[str], columns: Iterable[pa.Array], *, ignore_nulls: bool) -> pa.StringArray:
    """Return one JSON object for each row; nulls are omitted, or written as `null`."""
    members = []
    for name, column in zip(names, columns, strict=True):
        key = f",{json.dumps(name, ensure_ascii=False)}:"
        text = json_text(column, ignore_nulls=ignore_nulls)
        member = pc.binary_join_element_wise(key, text, "")
        members.append(pc.fill_null(member, "" if ignore_nulls else f"{key}null"))
    joined = pc.binary_join_element_wise(*members, "")
    return pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")


def json_text(array: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    """Return the JSON text of each value, and null for null; binary values and times must be strings already."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        text = object_text(names, array.flatten(), ignore_nulls=ignore_nulls)
        return pc.if_else(array.is_valid(), text, None)
    if pa.types.is_list(kind):
        offsets, values = list_parts(array)
        return _join_values(offsets, _or_null(values, ignore_nulls=ignore_nulls), "[]")
    if pa.types.is_map(kind):
        offsets, entries = list_parts(array)
        keys, items = entries.flatten()
        values = _or_null(items, ignore_nulls=ignore_nulls)
        return _join_values(offsets, pc.binary_join_element_wise(_quote_strings(keys), values, ":"), "{}")
    if pa.types.is_string(kind):
        return _quote_strings(array)
    if pa.types.is_floating(kind):
        text = float_text(array)
        if not all_finite(array):
            text = pc.if_else(pc.is_finite(array), text, _in_quotes(text))
        return text
    return array.cast(pa.string())


def _or_null(values: pa.Array, *, ignore_nulls: bool) -> pa.StringArray:
    return pc.fill_null(json_text(values, ignore_nulls=ignore_nulls), "null")


def _join_values(offsets: pa.Array, values: pa.StringArray, brackets: str) -> pa.StringArray:
    body = pc.binary_join(pa.ListArray.from_arrays(offsets, values), ",")
    return pc.binary_join_element_wise(brackets[0], body, brackets[1], "")


def _in_quotes(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', text, '"', "")


def _quote_strings(strings: pa.StringArray) -> pa.StringArray:
    quoted = _in_quotes(strings)
    special = pc.fill_null(pc.match_substring_regex(strings, _NEEDS_ESCAPE), fill_value=False)
    if not pc.any(special).as_py():
        return quoted
    special_strings = strings.filter(special).to_pylist()
    escaped = [json.dumps(text, ensure_ascii=False) for text in special_strings]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def base64_text(array: pa.BinaryArray) -> pa.StringArray:
    """Return binary values as base64 text (RFC 4648, padded)."""
    # One call encodes all values, each padded with zero bytes to a multiple of three bytes. Then `=` replaces the
    # characters of the padding.
    offsets, data = _present_parts(array)
    lengths = np.diff(offsets)
    padding = (-lengths % 3).astype(np.int64)
    ends = np.cumsum(lengths + padding, dtype=np.int64)
    padded = np.zeros(len(data) + int(padding.sum()), np.uint8)
    padded[~_padding(len(padded), ends, padding)] = data
    text = np.frombuffer(bytearray(binascii.b2a_base64(pa.py_buffer(padded), newline=False)), np.uint8)
    ends = ends // 3 * 4
    text[_padding(len(text), ends, padding)] = _PAD
    return _with_nulls_of(array, pa.string(), ends, text)


def from_base64(array: pa.StringArray) -> pa.BinaryArray:
    """Return the inverse of `base64_text`; `ValueError` if a text is not base64."""
    offsets, text = _present_parts(array)
    lengths, ends = np.diff(offsets), offsets[1:].astype(np.int64)
    if (lengths % 4).any():
        raise ValueError("the length of a base64 text is not a multiple of 4")
    has_text = lengths > 0
    ends_of_texts = ends[has_text]
    padding = np.zeros(len(lengths), np.int64)
    padding[has_text] = (text[ends_of_texts - 1] == _PAD).astype(np.int64) + (text[ends_of_texts - 2] == _PAD)
    # `A` means zero bits, so that one call decodes all texts; the bytes of the padding are removed afterwards.
    zeros = np.where(_padding(len(text), ends, padding), ord("A"), text).astype(np.uint8)
    data = np.frombuffer(binascii.a2b_base64(pa.py_buffer(zeros)), np.uint8)
    if len(data) * 4 != len(text) * 3:
        raise ValueError("a text has characters that are not valid in base64")
    ends = ends // 4 * 3
    unpadded = data[~_padding(len(data), ends, padding)]
    return _with_nulls_of(array, pa.binary(), ends - np.cumsum(padding), unpadded)


def _present_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets of values, which start at 0, and the bytes of all values; null values are empty."""
    if array.null_count:
        array = pc.fill_null(array, text_scalar(b"", array.type))
    offsets, data = string_parts(array)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _padding(size: int, ends: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of `size` items, which is True for the last items before each end; `counts` are 0, 1 or 2."""
    mask = np.zeros(size, np.bool_)
    mask[ends[counts > 0] - 1] = True
    mask[ends[counts > 1] - 2] = True
    return mask


def _with_nulls_of(array: pa.Array, kind: pa.DataType, ends: NDArray[np.int64], data: NDArray[np.uint8]) -> pa.Array:
    """Return the values with these ends in `data`, with the nulls of `array`."""
    return strings_from(np.append(0, ends), data, kind, is_valid(array) if array.null_count else None)


LEVELS_MAX = 10_000  # of nested arrays and objects, since arro3 uses 80 bytes of the stack for each level
VALUES_MAX = 2_000_000  # of a line, since the length of a line is not limited

_ESCAPED_NUL = b"\\u0000"
_READ_BATCH_ROWS = 65_536
_NEWLINE, _QUOTE, _COMMA = b'\n",'
# With the bit `_CASE`, square brackets become braces.
_OPEN, _CLOSE, _CASE = ord("{"), ord("}"), ord("{") ^ ord("[")
_PIECE_BYTES = 1 << 20
_LINE_BYTES = 4 << 20  # the values of shorter lines are not counted


@dataclass(frozen=True, slots=True)
class JsonLines(Lines):
    """JSON lines."""

    name: ClassVar[str] = "json"
    extension = ".json"
    settings_of_writers: ClassVar[frozenset[str]] = frozenset({"ignoreNullFields"})

    times: TimeFormats
    ignore_null_fields: bool
    line_sep: str

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> JsonLines:
        line_sep = options.get("lineSep", DEFAULTS["lineSep"])
        ignore_null_fields = options.get("ignoreNullFields", DEFAULTS["ignoreNullFields"])
        # JSON escapes all control characters, so a separator that contains one never occurs within a record.
        if not any(character < " " for character in line_sep):
            raise ConfigError(
                f"option lineSep={line_sep!r}: for json it must contain a control character, such as \\n or \\r\\n"
            )
        return cls(TimeFormats.from_options(options), ignore_null_fields, line_sep)

    def definition(self, schema: pa.Schema) -> dict[str, Any]:  # noqa: ARG002 - the lines name their columns
        return {"ignoreNullFields": self.ignore_null_fields, "lineSep": self.line_sep} | self.times.definition()

    def check_schema(self, schema: pa.Schema) -> None:
        if not self.ignore_null_fields:
            check_variants(self.name, schema, _TWO_NULLS)
        check_problems(self.name, _problems_of_keys(schema))

    def keeps(self, field: pa.Field) -> bool:
        return self.times.keeps(field.type)

    def decode(self, file: BinaryIO, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        line_sep = self.line_sep.encode()
        as_read = pa.schema([(column.name, map_leaf_types(column.type, self._read_type)) for column in schema])
        has_variants = any(map(has_variant, schema.types))
        for block in whole_lines(file, line_sep):
            if line_sep == b"\n":
                lines = block
            else:
                lines = block.replace(line_sep, b"\n")
            rows = 0
            try:
                texts = lines
                if has_variants:
                    texts = with_binary_variants(lines, schema)
                for batch in _read(texts, as_read):
                    rows += batch.num_rows
                    columns = []
                    for column, kind in zip(batch.columns, schema.types, strict=True):
                        columns.append(rebuild(column, kind, self._read_leaf))
                    yield batch_of(columns, schema, batch.num_rows)
            except Exception as error:  # arro3 has no specific errors
                raise corrupt(file, "JSON lines", error) from error
            expected = lines.count(b"\n")
            if rows != expected:
                raise corrupt(file, f"{expected} JSON objects, one on each line", rows)

    def encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Encode rows by arro3; if it would encode a value wrongly, encode the batch by Arrow's kernels."""
        names = batch.schema.names
        columns = []
        is_plain = True  # arro3 encodes all columns correctly
        for name, values in zip(names, batch.columns, strict=True):
            array = values
            if has_variant(values.type):
                with naming(f"column `{name}`"):
                    array = with_raw_variants(values, self.times.zone)
                is_plain = False
            # arro3-io 0.9 panics for slices of nested structs, so nested columns are always copied.
            is_rebuilt = pa.types.is_nested(array.type) or any(map(self._is_text, leaf_types(array.type)))
            with naming(f"column `{name}`"):
                column = array
                if is_rebuilt:
                    column = _with_text(array, self._is_text, self._text)
                is_plain = _is_plain(column) and is_plain
            columns.append(column)
        if is_plain:
            return self._by_arro3(names, columns)
        return self._by_kernels(names, columns)

    def _by_arro3(self, names: list[str], columns: list[pa.Array]) -> EncodedRows:
        sink = io.BytesIO()
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        try:
            arro3.io.write_ndjson(batch, sink, explicit_nulls=not self.ignore_null_fields)
        except Exception as error:  # arro3 has no specific errors
            raise EncodingError(f"rows cannot be encoded as JSON: {error}") from error
        data, line_sep = sink.getvalue(), self.line_sep.encode()
        added_bytes = len(line_sep) - 1  # by replacing a newline

        def ends() -> NDArray[np.integer]:
            # JSON escapes newlines within values, so each newline ends a row.
            row_ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
            return row_ends + added_bytes * np.arange(1, len(row_ends) + 1)

        if line_sep == b"\n":
            replaced = data
        else:
            replaced = data.replace(b"\n", line_sep)
        return EncodedRows(replaced, ends)

    def _by_kernels(self, names: list[str], columns: list[pa.Array]) -> EncodedRows:
        text = []
        for name, column in zip(names, columns, strict=True):
            with naming(f"column `{name}`"):
                text.append(_with_text(column, pa.types.is_temporal, self._text))
        objects = object_text(names, text, ignore_nulls=self.ignore_null_fields)
        return rows_of(pc.binary_join_element_wise(objects, "", self.line_sep))

    def _is_text(self, arrow: pa.DataType) -> bool:
        """Return True if values of this type become strings before arro3 encodes them."""
        if pa.types.is_binary(arrow) or pa.types.is_time(arrow):  # arro3 removes trailing zeros of fractions
            return True
        return pa.types.is_temporal(arrow) and not self.times.is_default(arrow)

    def _text(self, array: pa.Array) -> pa.StringArray:
        """Return binary values, dates, timestamps and times as strings; `ValueError` if a value has no text."""
        if pa.types.is_binary(array.type):
            return base64_text(array)
        if pa.types.is_time(array.type):
            return array.cast(pa.string())
        return self.times.pattern(array.type).format(array, self.times.zone)

    def _read_type(self, arrow: pa.DataType) -> pa.DataType:
        """Return the type that arro3 reads: string for values that `_read_leaf` converts."""
        if pa.types.is_time(arrow) or not self._is_text(arrow):
            return arrow
        if pa.types.is_temporal(arrow) and self.times.is_iso(arrow):
            return arrow
        return pa.string()

    def _read_leaf(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        if array.type == target:
            return array
        if pa.types.is_binary(target):
            return from_base64(array)
        return self.times.pattern(target).read(array, target, self.times.zone)


def _read(lines: bytes, schema: pa.Schema) -> pa.RecordBatchReader:
    if b"\0" in lines:
        raise ValueError("a zero byte")
    for _, excess in unbounded_lines(lines, LEVELS_MAX):
        raise ValueError(f"a line of {excess}")
    # arro3-io 0.9 ends the process if the text of an error contains a NUL. So lines with an escaped NUL are first read
    # with another character in its place, which raises all errors.
    if _ESCAPED_NUL in lines:
        for _ in _reader(lines.replace(_ESCAPED_NUL, b"\\u0001"), schema):
            pass
    return _reader(lines, schema)


def unbounded_lines(block: bytes, levels_max: int) -> Iterator[tuple[int, str]]:
    """Yield the start of each line with more than `levels_max` levels or `VALUES_MAX` values, and the exceeded limit.

    The block ends with a line feed.
    """
    long = list(_long_lines(block, 2 * levels_max))  # each level has two brackets
    if not long or (_openings(block) <= levels_max and len(block) <= _LINE_BYTES):
        return
    for start, end in long:
        line = block[start:end]
        # These counts include characters within strings. Only `_excess` is exact, but it takes longer.
        can_have_many_values = len(line) > _LINE_BYTES and line.count(b",") > VALUES_MAX - levels_max
        if can_have_many_values or _openings(line) > levels_max:
            excess = _excess(line, levels_max)
            if excess:
                yield start, excess


def _long_lines(block: bytes, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each line that is longer than `size_bytes`."""
    start = 0
    while start + size_bytes < len(block):
        end = block.rfind(b"\n", start, start + size_bytes) + 1
        if not end:
            end = block.find(b"\n", start) + 1
            yield start, end
        start = end


def _pieces(data: bytes | memoryview) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, len(data), _PIECE_BYTES):
        yield np.frombuffer(data[start : start + _PIECE_BYTES], np.uint8)


def _openings(data: bytes | memoryview) -> int:
    """Return the number of opening brackets and braces, including those within strings."""
    return sum(int(np.count_nonzero(piece | _CASE == _OPEN)) for piece in _pieces(memoryview(data)))


def _excess(line: bytes, levels_max: int) -> str:
    """Return the limit of levels or values that a line exceeds; empty if it exceeds none."""
    # An escaped quote does not end a string.
    if b"\\" in line:
        line = line.replace(rb"\\", b"__").replace(rb"\"", b"__")
    level = values = 0
    is_in_string = np.bool_(False)  # noqa: FBT003 - a value of numpy
    for piece in _pieces(line):
        without_case = piece | _CASE
        special = piece[(without_case == _OPEN) | (without_case == _CLOSE) | (piece == _QUOTE) | (piece == _COMMA)]
        if not len(special):
            continue
        in_string = np.bitwise_xor.accumulate(special == _QUOTE) ^ is_in_string
        is_in_string = in_string[-1]
        tokens = special[~in_string]
        is_open = tokens | _CASE == _OPEN
        is_close = tokens | _CASE == _CLOSE
        levels = level + np.cumsum(is_open.view(np.int8) - is_close, dtype=np.int64)
        values += int(np.count_nonzero(is_open | (tokens == _COMMA)))
        if levels.max(initial=0) > levels_max:
            return f"more than {levels_max} levels"
        if values > VALUES_MAX and len(line) > _LINE_BYTES:
            return f"more than {VALUES_MAX} values"
        if len(levels):
            level = int(levels[-1])
    return ""


def _reader(lines: bytes, schema: pa.Schema) -> pa.RecordBatchReader:
    reader = arro3.io.read_json(io.BytesIO(lines), schema, batch_size=_READ_BATCH_ROWS)
    return pa.RecordBatchReader.from_stream(reader)


def _problems_of_keys(schema: pa.Schema) -> Iterator[str]:
    for path, arrow in list_columns_within(schema):
        if pa.types.is_map(arrow) and not pa.types.is_string(arrow.key_type):
            yield f"column `{path}`: {arrow}; keys in JSON must be strings: cast the keys to STRING, or use parquet"


def _with_text(
    array: pa.Array, is_text: Callable[[pa.DataType], bool], text: Callable[[pa.Array], pa.StringArray]
) -> pa.Array:
    """Return a column in which `text` has converted the leaves whose types `is_text` selects."""

    def type_with_text(kind: pa.DataType) -> pa.DataType:
        if is_text(kind):
            return pa.string()
        return kind

    def leaf_with_text(leaf: pa.Array, _: pa.DataType) -> pa.Array:
        if is_text(leaf.type):
            return text(leaf)
        return leaf

    return rebuild(array, map_leaf_types(array.type, type_with_text), leaf_with_text)


def _is_plain(column: pa.Array) -> bool:
    """Return True if arro3 writes a column like Spark; `ValueError` if a year has more than four digits.

    It writes NaN and infinities as null (apache/arrow-rs#3731), and omits map entries without a value (arro3-io 0.9).
    """
    for leaf in leaves(column):
        if pa.types.is_temporal(leaf.type):
            check_range(leaf)
        elif pa.types.is_floating(leaf.type):
            if not all_finite(leaf):
                return False
        elif pa.types.is_map(leaf.type):
            _, items = map_entries(leaf).flatten()
            if items.null_count:
                return False
    return True
