"""The rows of JSON lines: files with one JSON object on each line."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import json

from ftfile.formats.json_lines import unbounded_lines
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import is_list_like, leaf_types, list_parts, map_leaf_types
from ftfile.rows.spark_types import check_depth, has_variant
from ftfile.source.decoding.json_lines import JSON_LEVELS_MAX, JsonRows
from ftfile.source.decoding.records import finished_rows, lines_of
from ftfile.source.settings import FileDecoding
from ftfile.tools.load.exact_texts import read_exactly
from ftfile.tools.load.input_files import FileRows, text_of
from ftfile.tools.load.json_members import LineError, as_document, check_members, check_object, other_members
from ftfile.tools.load.text_types import check_known

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.source.decoding.records import LineBlock
    from ftfile.tools.load.input_files import ByteStream, FileToLoad

BLOCK_BYTES = 2 << 20  # types are derived from the lines of the first block
LINE_BYTES_MAX = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUMBER_TEXT = re.compile(rb'(?<!\\)"(?:NaN|-?Infinity)"(?!\s*:)')
_ROW = re.compile(r" in row (\d+)$")
# A member with a value. A text can contain the same characters, so there may be more matches than members.
_MEMBER = r'"\s*:\s*(?:[^\sn]|n[^u])'
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_SPACE_BEFORE_COLON = re.compile(rb"[ \t\r]:")
_NO_OBJECT = re.compile(rb"^[ \t\r]*([^ \t\r\n{])", re.MULTILINE)
_BLANK = b" \t\r"


class _WholeLines(NamedTuple):
    """Whole lines of a file, the last one with a line feed."""

    first_line: int  # counted from 1
    text: bytes


@contextmanager
def json_rows(
    file: FileToLoad, types: Mapping[str, pa.DataType], times: TimeFormats, *, is_complete: bool
) -> Iterator[FileRows]:
    """Yield the rows of a file of JSON lines, with the values that Spark reads; members that an object lacks are null.

    Unlike Spark, it refuses values that would lose digits, unknown members, and repeated members.

    Args:
        file: the file.
        types: of columns by name.
        times: the zone of times without a zone.
        is_complete: True if `types` has all columns; otherwise, further columns and their types are derived from the
            first lines, in which all texts stay texts.

    Raises:
        ConfigError: a line is not a JSON object, or has other columns or types; the error names the line.
        SchemaError: a column has a type that cannot be read from JSON, or its type is not known.
    """
    for name, kind in types.items():
        if has_variant(kind) or not _has_text_keys(kind):
            raise file.misfit(name, f"is {kind}, which is not read from JSON: use Parquet or Arrow")
    with text_of(file) as (stored, text):
        blocks = _blocks(file, text)
        first = next(blocks, None)
        if first is None and not types:
            raise file.damaged("it has no lines, so its columns are not known")
        schema = pa.schema(list(types.items()))
        if first is not None and not is_complete:
            schema = _derive_schema(file, first, types)
        check_known(file, schema)
        reader = _BlockReader(file, schema, times)
        yield FileRows(schema, _batches(reader, first, blocks), lambda: stored.position)


def _has_text_keys(kind: pa.DataType) -> bool:
    """Return False for maps whose keys are not texts, as the names of JSON are."""
    if not pa.types.is_nested(kind):
        return True
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and _has_text_keys(kind.item_type)
    return all(_has_text_keys(kind.field(number).type) for number in range(kind.num_fields))


def _blocks(file: FileToLoad, text: ByteStream) -> Iterator[_WholeLines]:
    """Yield the lines of a file that are not blank, in blocks of some megabytes."""
    rest, line = b"", 1
    is_start = True
    while True:
        with file.errors():
            piece = text.read(BLOCK_BYTES)
        is_last = len(piece) < BLOCK_BYTES
        if is_start:
            piece = piece.removeprefix(_BYTE_ORDER_MARK)
            is_start = False
        rest += piece
        if is_last and rest and not rest.endswith(b"\n"):
            rest += b"\n"
        end = rest.rfind(b"\n") + 1
        if rest[:end].strip():
            block = _WholeLines(line, rest[:end])
            _check_lines(file, block)
            yield block
        line += rest.count(b"\n", 0, end)
        rest = rest[end:]
        if is_last:
            return
        if len(rest) > LINE_BYTES_MAX:
            raise file.damaged(f"it has more than {LINE_BYTES_MAX:,} bytes: write each object on a line", _line(line))


def _check_lines(file: FileToLoad, block: _WholeLines) -> None:
    """Raise a `ConfigError` for a line that is not an object or has too many levels, and for text that is not UTF-8.

    Spark reads each object of an array. pyarrow ends the process if the first line is null (apache/arrow#47409), or if
    a value has some 10,000 levels (pyarrow 26).
    """
    place, reason = next(_unfinished_lines(block.text), (-1, ""))
    for start, excess in unbounded_lines(block.text, JSON_LEVELS_MAX):
        if place < 0 or start < place:
            place, reason = start, f"it has {excess}"
        break
    match = _NO_OBJECT.search(block.text)
    if match is not None and (place < 0 or match.start() <= place):
        place = match.start()
        reason = "it is not an object: write each object on a line"
        if match[1] == b"[":
            reason = "it begins with an array: write each object on a line, such as with jq -c '.[]'"
    try:
        block.text.decode()
    except UnicodeDecodeError as error:
        if place < 0 or error.start < place:
            place, reason = error.start, "it has bytes that are not UTF-8"
    if place >= 0:
        raise file.damaged(reason, _line(block.first_line + block.text.count(b"\n", 0, place)))


def _unfinished_lines(text: bytes) -> Iterator[tuple[int, str]]:
    """Yield the start of each line that does not end with a brace, and its problem.

    pyarrow continues its value on the next line, so the limit of levels of a line would not limit the value.
    """
    if text.count(b"}\n") + text.count(b"}\r\n") == text.count(b"\n"):
        return
    start = 0
    for line in text.split(b"\n"):
        end = line.rstrip(_BLANK)
        if end and not end.endswith(b"}"):
            try:
                check_object(line.decode(errors="replace"))
            except LineError as error:
                yield start, str(error)
        start += len(line) + 1


def _line(number: int) -> str:
    return f", line {number:,},"


def _batches(
    reader: _BlockReader, first: _WholeLines | None, blocks: Iterator[_WholeLines]
) -> Iterator[pa.RecordBatch]:
    block = first
    while block is not None:
        yield from reader.batches(block)
        block = next(blocks, None)


class _BlockReader:
    """Reads blocks of lines of one file."""

    def __init__(self, file: FileToLoad, schema: pa.Schema, times: TimeFormats) -> None:
        self._file = file
        self._schema = schema
        # The texts of bad lines would be in this column; no column of the file has its name.
        no_column = "".join(schema.names) + "_"
        self._decoding = FileDecoding("json", times=times, column_name_of_corrupt_record=no_column)
        self._rows = JsonRows(schema, self._decoding, read_exactly)
        leaves = [leaf for field in schema for leaf in leaf_types(field.type)]
        scales = [leaf.scale for leaf in leaves if pa.types.is_decimal(leaf)]
        self._losses = [_HALF_PAIR]  # texts that can lose a part of a value
        if scales:
            self._losses.append(re.compile(rb"\.[0-9]{%d}[0-9]*[1-9]|[0-9][eE]" % min(scales)))

    def batches(self, block: _WholeLines) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block.

        Raises:
            ConfigError: a line is bad; the error names the first one.
        """
        lines = lines_of(block.text, b"\n")
        decoded = self._rows.rows(lines)
        if decoded.bad:
            number, reason = min(decoded.bad.items())
            raise self._file.damaged(self._reason(lines, number, reason), _line(block.first_line + number))
        members = 0
        for batch, _ in decoded.pieces:
            members += sum(map(_members, batch.columns))
        may_lose = any(pattern.search(block.text) for pattern in self._losses)
        if may_lose or _members_in(block.text) != members or _may_repeat_nulls(block.text):
            self._check_members(block, lines)
        yield from finished_rows(decoded, lines, schema=self._schema, decoding=self._decoding, path=self._file.name)

    def _check_members(self, block: _WholeLines, lines: LineBlock) -> None:
        for number in range(len(lines)):
            text = lines.text(number)
            if not text.strip():
                continue
            try:
                check_members(text, self._schema)
            except LineError as error:
                raise self._file.damaged(error, _line(block.first_line + number)) from error

    def _reason(self, lines: LineBlock, number: int, reason: str) -> str:
        """Return the problem of a line with the column that has it."""
        try:
            check_members(lines.text(number), self._schema)
        except LineError as error:
            return str(error)
        line = lines_of(lines.join(np.array([number])), b"\n")
        for field in self._schema:
            bad = JsonRows(pa.schema([field]), self._decoding, read_exactly).rows(line).bad
            if bad:
                return f"column `{field.name}`: {bad[0]}"
        return reason


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if not pa.types.is_nested(kind):
        return False
    return any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


def _members_in(text: bytes) -> int:
    """Return the number of members with values in some lines, or a larger number."""
    if _SPACE_BEFORE_COLON.search(text):
        return int(pc.count_substring_regex(pa.array([text], pa.binary()), _MEMBER)[0].as_py())
    return text.count(b'":') - text.count(b'":null') - text.count(b'": null')


def _may_repeat_nulls(text: bytes) -> bool:
    """Return True if a member of some lines may be repeated with a null, which is not counted as a member."""
    if b"null" not in text:
        return False
    try:
        _read(text, json.ParseOptions(unexpected_field_behavior="infer"))  # refuses repeated members
    except pa.ArrowInvalid:
        return True
    return False


def _members(array: pa.Array) -> int:
    """Return the number of members of objects whose values are in an array, or in arrays or objects in it.

    The keys of maps, which can be repeated, are not counted: their lines are checked.
    """
    count: int = len(array) - array.null_count
    if pa.types.is_struct(array.type):
        return count + sum(map(_members, array.flatten()))
    if is_list_like(array.type):
        _, values = list_parts(array)
        elements: int = len(values) - values.null_count
        return count + _members(values) - elements
    return count


def _derive_schema(file: FileToLoad, block: _WholeLines, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the types of all columns. pyarrow derives times from texts, but later texts may not be times."""
    try:
        columns = _infer_schema(block.text, types)
    except pa.ArrowInvalid as error:
        columns = _infer_without(file, block, types, error)
    with file.schema_errors():
        check_depth(columns)
    fields = [*types.items()]
    for field in columns:
        if field.name not in types:
            fields.append((field.name, map_leaf_types(field.type, _text_for_time)))
    return pa.schema(fields)


def _infer_without(
    file: FileToLoad, block: _WholeLines, types: Mapping[str, pa.DataType], error: pa.ArrowInvalid
) -> pa.Schema:
    """Return the other columns of a block of which pyarrow refuses a line, perhaps only a value with a given type."""
    lines = lines_of(block.text, b"\n")
    documents = []
    numbers = []  # of the lines that are not blank
    for number in range(len(lines)):
        text = lines.text(number)
        if text.strip():
            try:
                documents.append(other_members(text, types))
            except LineError as problem:
                raise file.damaged(problem, _line(block.first_line + number)) from problem
            numbers.append(number)
    if not any(documents):
        return pa.schema([])
    texts = []
    for number, document in zip(numbers, documents, strict=True):
        try:
            texts.append(as_document(document))
        except LineError as problem:
            raise file.damaged(problem, _line(block.first_line + number)) from problem
    try:
        return _infer_schema(b"".join(texts), {})
    except pa.ArrowInvalid as problem:
        text = str(problem)
        place = f", lines {block.first_line:,} to {block.first_line + len(lines) - 1:,},"
        if match := _ROW.search(text):
            place = _line(block.first_line + numbers[int(match[1])])
        raise file.damaged(_ROW.sub("", text), place) from error


def _infer_schema(lines: bytes, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the columns of some lines. Texts such as `"NaN"` can be numbers, as in the JSON of Spark."""
    as_read = [(name, map_leaf_types(kind, _leaf_as_read)) for name, kind in types.items() if not _has_map(kind)]
    parse = json.ParseOptions(explicit_schema=pa.schema(as_read), unexpected_field_behavior="infer")
    try:
        return _read(lines, parse).schema
    except pa.ArrowInvalid:
        changed = _NUMBER_TEXT.sub(b"null", lines)
        if changed == lines:
            raise
        return _read(changed, parse).schema


def _read(lines: bytes, parse: json.ParseOptions) -> pa.Table:
    return json.read_json(pa.BufferReader(lines), json.ReadOptions(use_threads=False, block_size=len(lines) + 1), parse)


def _text_for_time(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _leaf_as_read(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind
