"""The rows of JSON lines: files with one JSON object on each line."""

from __future__ import annotations

import json as python_json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import json

from ftfile.rows.buffers import is_list_like, map_leaf_types
from ftfile.rows.spark_types import has_variant
from ftfile.tools.load.input_files import FileRows, text_of
from ftfile.tools.load.number_texts import with_nulls, with_numbers
from ftfile.tools.load.text_types import check_known, in_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.errors import ConfigError
    from ftfile.tools.load.input_files import ByteStream, FileToLoad

BLOCK_BYTES = 2 << 20  # types are derived from the lines of the first block
LINE_BYTES_MAX = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ROW = re.compile(r" in row \d+$")
_CHANGED_TYPE = re.compile(r"changed from (?:number to string|string to number)")


@dataclass(frozen=True, slots=True)
class _WholeLines:
    """Whole lines of a file."""

    first_line: int  # counted from 1
    text: bytes


@contextmanager
def json_rows(file: FileToLoad, types: Mapping[str, pa.DataType], *, is_complete: bool) -> Iterator[FileRows]:
    """Yield the rows of a file of JSON lines; members that an object lacks are null.

    Args:
        file: the file.
        types: of columns by name.
        is_complete: True if `types` has all columns; otherwise, further columns and their types are derived from the
            first lines, in which all texts stay texts.

    Raises:
        ConfigError: a line is not a JSON object, or has other columns or types; the error names the line.
        SchemaError: a column has a type that cannot be read from JSON, or its type is not known.
    """
    for name, kind in types.items():
        if has_variant(kind) or _has_map(kind):
            raise file.misfit(name, f"is {kind}, which is not read from JSON: use Parquet or Arrow")
    with text_of(file) as (stored, text):
        blocks = _blocks(file, text)
        first = next(blocks, None)
        if first is None and not types:
            raise file.damaged("it has no lines, so its columns are not known")
        typed = pa.schema(list(types.items()))
        if first is None or is_complete:
            schema = typed
        else:
            schema = _derived(_JsonParser(file, _as_read(typed), "infer").parsed(first).schema, types)
        check_known(file, schema)
        lines = _JsonParser(file, _as_read(schema), "error")
        yield FileRows(schema, _batches(file, lines, first, blocks, schema), lambda: stored.position)


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    if not pa.types.is_nested(kind):
        return False
    return any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


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
        end = len(rest) if is_last else rest.rfind(b"\n") + 1
        if end:
            if rest[:end].strip():
                yield _WholeLines(line, rest[:end])
            line += rest.count(b"\n", 0, end)
            rest = rest[end:]
        if is_last:
            return
        if len(rest) > LINE_BYTES_MAX:
            raise file.damaged(f"it has more than {LINE_BYTES_MAX:,} bytes: write each object on a line", _line(line))


def _line(number: int) -> str:
    return f", line {number:,},"


@dataclass(frozen=True, slots=True)
class _JsonParser:
    """The parser of the lines of a file, with explicit types."""

    file: FileToLoad
    schema: pa.Schema
    further: str  # `infer` or `error`: what a column that the schema lacks does

    def parsed(self, block: _WholeLines) -> pa.Table:
        """Return the rows of a block; a ConfigError names the first bad line."""
        try:
            table = self._read(block.text)
            table.validate(full=True)  # texts can be invalid UTF-8
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError) as error:
            raise self._located(block, error) from error
        return table

    def _read(self, text: bytes) -> pa.Table:
        """Return the rows of some lines; only lines that pyarrow refuses are searched for texts such as `"NaN"`."""
        try:
            return self._read_unchanged(text)
        except pa.ArrowInvalid as error:
            if not _CHANGED_TYPE.search(str(error)):
                raise
            columns = self.schema
            if self.further == "infer":
                columns = self._read_unchanged(with_nulls(text)).schema
            numbers = with_numbers(text, columns)
            if numbers == text:
                raise
        return self._read_unchanged(numbers)

    def _read_unchanged(self, text: bytes) -> pa.Table:
        return json.read_json(
            pa.BufferReader(text),
            json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior=self.further),
        )

    def _located(self, block: _WholeLines, error: Exception) -> ConfigError:
        lines = block.text.splitlines(keepends=True)
        number = self._bad_line(lines)
        if number is None:
            last = block.first_line + len(lines) - 1
            return self.file.damaged(_ROW.sub("", str(error)), f", lines {block.first_line:,} to {last:,},")
        return self.file.damaged(self._reason(lines[number]), _line(block.first_line + number))

    def _bad_line(self, lines: Sequence[bytes]) -> int | None:
        """Return the number of the first line that cannot be read; None if lines only contradict each other."""
        begin, end = 0, len(lines)
        while end - begin > 1:
            middle = (begin + end) // 2
            if self._problem(lines[begin:middle]):
                end = middle
            elif self._problem(lines[middle:end]):
                begin = middle
            else:
                return None
        return begin

    def _problem(self, lines: Sequence[bytes]) -> str:
        text = b"".join(lines)
        if not text.strip():
            return ""
        try:
            self._read(text).validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            return _ROW.sub("", str(error))
        return ""

    def _reason(self, line: bytes) -> str:
        """Return the problem of a line: the first column or field that the schema lacks, or pyarrow's problem."""
        if line.lstrip().startswith(b"["):
            return "it begins with an array: write each object on a line, such as with jq -c '.[]'"
        problem = self._problem([line])
        try:
            row = python_json.loads(line)
        except (ValueError, RecursionError):
            return problem
        if not isinstance(row, dict) or self.further == "infer":
            return problem
        for name, value in row.items():
            if name not in self.schema.names:
                return f"column `{name}` is not among the columns of the directory and of the first lines"
            if path := _unknown_field(value, self.schema.field(name).type, name):
                return (
                    f"the type of column `{name}` has no field `{path}`. If the first lines of a new directory lack a "
                    "field, give the type of the column to --schema, as the JSON of a StructType"
                )
        return problem


def _unknown_field(value: Any, kind: pa.DataType, path: str) -> str | None:  # noqa: ANN401 - JSON
    """Return the path of the first member of an object that the type lacks, also in arrays; None without one."""
    if isinstance(value, dict) and pa.types.is_struct(kind):
        for name, member in value.items():
            member_path = f"{path}.{name}"
            index = kind.get_field_index(name)
            if index < 0:
                return member_path
            if unknown := _unknown_field(member, kind.field(index).type, member_path):
                return unknown
    elif isinstance(value, list) and is_list_like(kind):
        for element in value:
            if unknown := _unknown_field(element, kind.value_type, f"{path}.element"):
                return unknown
    return None


def _derived(columns: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the types of all columns. pyarrow derives times from texts, but later texts may not be times."""
    fields = []
    for field in columns:
        fields.append((field.name, types.get(field.name, map_leaf_types(field.type, _text_for_time))))
    return pa.schema(fields)


def _text_for_time(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _as_read(schema: pa.Schema) -> pa.Schema:
    """Return the schema that pyarrow reads: text for types that it only reads from numbers, or not from Base64."""
    return pa.schema([(field.name, map_leaf_types(field.type, _leaf_as_read)) for field in schema])


def _leaf_as_read(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind


def _batches(
    file: FileToLoad, lines: _JsonParser, first: _WholeLines | None, blocks: Iterator[_WholeLines], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    block = first
    while block is not None:
        for batch in lines.parsed(block).to_batches():
            yield in_types(file, batch, schema)
        block = next(blocks, None)
