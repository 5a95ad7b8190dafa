"""JSON objects as rows, from lines or from a whole file.

The lines of a block are parsed together, and one by one if that fails. The rows of a line depend only on this line: a
block is parsed as a whole only if every line is one object.
"""

from __future__ import annotations

import array
import contextlib
import io
import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import arro3.io
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.formats.json_lines import unbounded_lines
from ftfile.formats.reading.batches import batch_of
from ftfile.rows.buffers import map_leaf_types, rebuild
from ftfile.source.decoding.json_documents import behind_space, objects_of
from ftfile.source.decoding.json_spelling import Spelling
from ftfile.source.decoding.lines import TEXT_BYTES_MAX, as_utf_8, line_blocks
from ftfile.source.decoding.records import (
    DecodedRows,
    LineBlock,
    finished_rows,
    in_halves,
    in_parts,
    join_lines,
    lines_of,
    read_texts,
)
from ftfile.source.settings import own_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.source.decoding.lines import RangeContent
    from ftfile.source.plan import Cut
    from ftfile.source.settings import FileDecoding

    ReadTexts: TypeAlias = Callable[[pa.StringArray, pa.DataType, TimeFormats], pa.Array]


_OPEN, _CLOSE = b"{}"
# Reading a line needs up to five times its length. The parser does not check a memory limit, so the process would be
# killed.
JSON_LINE_BYTES_MAX = 128 << 20
_PART_BYTES = 1 << 20
_TOGETHER_MIN = 256  # lines that are read one by one if they cannot be read together
# If a block has a longer line, Python's parser reads all its lines. Regular expressions and arro3 need ten times the
# length of a line, and arro3-io 0.9 ends the process if memory runs out.
_ARRO3_LINE_BYTES = 4 << 20
JSON_LEVELS_MAX = 1000  # nested arrays and objects: Spark's parser refuses more
_DECIMAL128_DIGITS = 38
_NOT_UTF_8 = "it has bytes that are not UTF-8"
_OF_VALUES = (ValueError, OverflowError, pa.ArrowException)  # errors of values that a column cannot have


def json_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cut: one for an object, one for each object in an array, none for a blank line."""
    reader = JsonRows(schema, decoding)
    blocks = line_blocks(content, cut, decoding.separator, bytes_max=JSON_LINE_BYTES_MAX)
    for part in chain.from_iterable(_parts(block, decoding.separator) for block in blocks):
        text = as_utf_8(part, decoding)
        lines = lines_of(text, decoding.line_sep.encode())
        if _is_as_stored(text, part, decoding):
            undecoded = []
        else:
            undecoded = _find_undecoded(part, decoding.separator)
        yield from finished_rows(
            reader.rows(lines, undecoded), lines, schema=schema, decoding=decoding, path=content.planned.path
        )


def _is_as_stored(text: bytes, stored: bytes, decoding: FileDecoding) -> bool:
    """Return True if no bytes were replaced in UTF-8 text, and for text of other encodings."""
    return decoding.encoding != "utf-8" or text is stored or text == stored


def _find_undecoded(part: bytes, separator: bytes) -> list[int]:
    """Return the numbers of the lines that are not UTF-8. Spark reads them as other values or refuses them."""
    numbers = []
    for number, line in enumerate(part.split(separator)[:-1]):
        try:
            line.decode()
        except UnicodeDecodeError:
            numbers.append(number)
    return numbers


def multi_line_json(
    content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with one JSON object or an array of objects; any other content is a bad record."""
    del cut
    stored = content.read_whole(TEXT_BYTES_MAX)
    encoded = as_utf_8(stored, decoding)
    text = encoded.decode().removeprefix("\ufeff")
    bounds = array.array("q")  # start and end of each value
    problem = _NOT_UTF_8
    if _is_as_stored(encoded, stored, decoding):
        problem = ""
    try:
        for start_and_end in _values(text):
            bounds.extend(start_and_end)
    except RecursionError:
        bounds = array.array("q", [0, len(text)])
    except ValueError as error:
        problem = problem or str(error)
    if problem:
        lines = LineBlock((text.replace("\n", " ") + "\n").encode())
        yield from finished_rows(
            DecodedRows(bad={0: problem}), lines, schema=schema, decoding=decoding, path=content.planned.path
        )
        return
    reader = JsonRows(schema, decoding)
    for records in in_parts(text[bounds[at] : bounds[at + 1]] for at in range(0, len(bounds), 2)):
        lines = join_lines([record.encode() for record in records])
        yield from finished_rows(reader.rows(lines), lines, schema=schema, decoding=decoding, path=content.planned.path)


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the value of a document, or of each object in its array, as Spark reads it.

    Raises:
        ValueError: the text is not JSON, has text after its value, or has an array with a value that is not an object.
    """
    scan = json.JSONDecoder(parse_int=str).raw_decode
    position = behind_space(text, 0)
    if position == len(text):
        return
    if text[position] == "[":
        position = behind_space(text, position + 1)
        while text[position : position + 1] != "]":
            if text[position : position + 1] != "{":
                raise ValueError(f"no object in the array at {position}")
            _, end = scan(text, position)
            yield position, end
            position = _behind_item(text, end)
        end = position + 1
    else:
        _, end = scan(text, position)
        yield position, end
    if behind_space(text, end) < len(text):
        raise ValueError(f"text after the value that ends at {end}: with multiLine, a file must be one object or array")


def _behind_item(text: str, end: int) -> int:
    """Return the start of the next value of an array, or of its closing bracket."""
    position = behind_space(text, end)
    following = text[position : position + 1]
    if following == ",":
        position = behind_space(text, position + 1)
        if text[position : position + 1] == "]":
            raise ValueError(f"a comma without a value at {position}")
    elif following != "]":
        raise ValueError(f"no end of an array at {position}")
    return position


def _parts(block: bytes, separator: bytes) -> Iterator[bytes]:
    """Yield a block of lines in parts that fit into the processor's cache during decoding."""
    start = 0
    while start < len(block):
        place = block.find(separator, start + _PART_BYTES)
        if place < 0:
            end = len(block)
        else:
            end = place + len(separator)
        yield block[start:end]
        start = end


class JsonRows:
    """Reads lines with the columns of a schema. `read` returns texts as values of a type, or raises `ValueError`."""

    def __init__(self, schema: pa.Schema, decoding: FileDecoding, read: ReadTexts = read_texts) -> None:
        self._times = decoding.times
        self._read = read
        self._schema = own_columns(schema, decoding)
        as_text = _map_schema(self._schema, _text_type)
        self._as_read = _map_schema(as_text, _with_digit)
        self._spelling = Spelling(self._schema)

    def rows(self, lines: LineBlock, undecoded: Collection[int] = ()) -> DecodedRows:
        """Return the rows of a block of UTF-8 lines. Bytes were replaced in the lines `undecoded`."""
        refused = dict.fromkeys(undecoded, _NOT_UTF_8)
        for start, excess in unbounded_lines(lines.block, JSON_LEVELS_MAX):
            refused[int(np.searchsorted(lines.starts, start))] = f"it has {excess}"
        if not refused:
            return self._bounded_rows(lines)
        bounded = np.setdiff1d(np.arange(len(lines)), list(refused))
        if len(bounded):
            rows = self._bounded_rows(LineBlock(lines.join(bounded), lines.stand_in))
        else:
            rows = DecodedRows()
        bad = {int(bounded[number]): reason for number, reason in rows.bad.items()}
        return DecodedRows([(batch, bounded[of_line]) for batch, of_line in rows.pieces], bad | refused)

    def _bounded_rows(self, lines: LineBlock) -> DecodedRows:
        rows = DecodedRows()
        is_regular = self._are_regular(lines)
        one_line = lines
        if lines.stand_in:  # in a regular line, the stand-in is between tokens
            one_line = LineBlock(lines.block.replace(lines.stand_in.encode(), b" "))
        others = [*np.flatnonzero(~is_regular), *self._take(rows, one_line, np.flatnonzero(is_regular))]
        self._take_slowly(rows, lines, sorted(map(int, others)))
        # arro3 accepts deeper nesting than Python's parser. Both return the same values for lines that both accept.
        for number in [number for number in rows.bad if is_regular[number]]:
            with contextlib.suppress(Exception):  # arro3 raises only Exception
                rows.add(self._batch(one_line.join(np.array([number])), 1), np.array([number]))
                del rows.bad[number]
        return rows

    def _are_regular(self, lines: LineBlock) -> NDArray[np.bool_]:
        """Return for each line True if arro3 reads it as Spark does; all False if a line is too long for arro3."""
        if np.any(lines.ends - lines.starts > _ARRO3_LINE_BYTES):
            return np.zeros(len(lines), np.bool_)
        return _is_whole(lines) & self._spelling.is_regular(lines)

    def _take(self, rows: DecodedRows, lines: LineBlock, numbers: NDArray[np.integer]) -> list[int]:
        """Read lines that look like objects, in halves if that fails. Return the remaining lines."""

        def take(start: int, end: int) -> None:
            piece = numbers[start:end]
            rows.add(self._batch(lines.join(piece), len(piece)), piece)

        # arro3 raises only Exception
        untaken = in_halves(take, len(numbers), Exception, smallest=_TOGETHER_MIN)
        remaining: list[int] = []
        for piece in untaken:
            remaining += map(int, numbers[piece.start : piece.end])
        return remaining

    def _take_slowly(self, rows: DecodedRows, lines: LineBlock, numbers: list[int]) -> None:
        """Read lines one by one. Blank lines have no rows."""
        kind = pa.struct(list(self._schema))
        objects: dict[int, list[Any]] = {}  # of each line with objects
        for number in numbers:
            text = lines.text(number)
            if behind_space(text, 0) == len(text):
                continue
            try:
                values = objects_of(text, kind)
            except (*_OF_VALUES, RecursionError) as error:
                rows.bad[number] = str(error)
            else:
                if values:
                    objects[number] = values
        self._take_objects(rows, objects)

    def _take_objects(self, rows: DecodedRows, objects: dict[int, list[Any]]) -> None:
        """Add the objects of each line. If they cannot be read together, they are halved."""
        numbers = list(objects)

        def take(start: int, end: int) -> None:
            piece = numbers[start:end]
            values: list[Any] = []
            counts = []
            for number in piece:
                values += objects[number]
                counts.append(len(objects[number]))
            struct = pa.array(values, pa.struct(list(self._as_read)))
            of_line = np.repeat(piece, counts)
            rows.add(self._convert_batch(pa.RecordBatch.from_struct_array(struct), len(values)), of_line)

        for untaken in in_halves(take, len(numbers), _OF_VALUES):
            rows.bad[numbers[untaken.start]] = str(untaken.error)

    def _batch(self, data: bytes, count: int) -> pa.RecordBatch:
        return self._convert_batch(_decode_lines(data, self._as_read, count), count)

    def _convert_batch(self, batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
        types = self._schema.types
        columns = []
        for column, kind in zip(batch.columns, types, strict=True):
            columns.append(rebuild(column, kind, self._leaf))
        return batch_of(columns, self._schema, count)

    def _leaf(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        """Return values as their type.

        Raises:
            ValueError: a value does not have this type.
        """
        if array.type == target:
            return array
        if pa.types.is_decimal(target):
            return pc.round(array, target.scale, "half_towards_infinity").cast(target)
        return self._read(array, target, self._times)


def _with_digit(kind: pa.DataType) -> pa.DataType:
    """Return decimals with an additional digit, with which they are rounded: arro3 cuts off all later digits."""
    if not pa.types.is_decimal(kind):
        return kind
    make = pa.decimal256
    if kind.precision < _DECIMAL128_DIGITS:
        make = pa.decimal128
    return make(kind.precision + 1, kind.scale + 1)


def _decode_lines(data: bytes, schema: pa.Schema, count: int) -> pa.RecordBatch:
    reader = arro3.io.read_json(io.BytesIO(data), schema, batch_size=count)
    batches = list(pa.RecordBatchReader.from_stream(reader))
    if len(batches) != 1 or batches[0].num_rows != count:
        raise ValueError(f"{count} lines with other than {count} objects")
    return batches[0]


def _map_schema(schema: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema([(field.name, map_leaf_types(field.type, leaf)) for field in schema])


def _is_whole(lines: LineBlock) -> NDArray[np.bool_]:
    """Return True for lines that are one object from the first byte to the last byte, without NUL.

    arro3-io 0.9 ends the process if the text of an error contains a NUL.
    """
    data = lines.bytes
    whole: NDArray[np.bool_] = (data[lines.starts] == _OPEN) & (data[lines.ends - 2] == _CLOSE)
    if rb"\u0000" in lines.block:
        whole &= np.array([rb"\u0000" not in line for line in lines.block.split(b"\n")[:-1]])
    return whole


def _text_type(kind: pa.DataType) -> pa.DataType:
    """Return strings for types whose values are strings in JSON."""
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind
