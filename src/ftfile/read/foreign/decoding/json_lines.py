"""JSON objects as rows: all of a block of lines at once, and one by one where that fails; or those of a whole file.

The rows of a line depend on that line alone: a block is taken as a whole only if every line is one object in it.
"""

from __future__ import annotations

import array
import contextlib
import io
import json
import re
from typing import TYPE_CHECKING, Any

import arro3.io
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.formats.json_lines import unbounded_lines
from ftfile.formats.reading import batch_of
from ftfile.read.foreign.decoding.lines import as_utf_8, line_blocks, whole_text
from ftfile.read.foreign.decoding.records import (
    Lines,
    Rows,
    decimal_of,
    finished_rows,
    in_halves,
    in_parts,
    lines_of,
    read_texts,
)
from ftfile.read.foreign.settings import own_columns
from ftfile.rows.buffers import map_leaf_types, rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ftfile.read.foreign.decoding.lines import RangeContent
    from ftfile.read.foreign.plan import Cut
    from ftfile.read.foreign.settings import FileDecoding


_QUOTE, _OPEN, _CLOSE = b'"{}'
_NEXT_OBJECT = re.compile(rb"\}[ \t\r]*\{")
_SHOWN_CHARS = 80
_SPACE = re.compile(r"[ \t\r\n]*")
# Reading a line takes up to five times its length, and no limit of memory stops the parser but with its process.
JSON_LINE_BYTES_MAX = 128 << 20
_PART_BYTES = 1 << 20
_TOGETHER_MIN = 256  # lines that are read one by one where they cannot be read together
_DECIMAL128_DIGITS = 38
_EXACT_MAX = (1 << 53) - 1  # integers up to it are the same as floating-point numbers
_NUMBERS = {"NaN", "Infinity", "-Infinity"}
_OF_VALUES = (ValueError, OverflowError, pa.ArrowException)  # that a column cannot have


def json_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cut: an object is one, an array one for each of its objects, a blank line none."""
    reader = JsonRows(schema, decoding)
    blocks = line_blocks(content, cut, decoding.separator, bytes_max=JSON_LINE_BYTES_MAX)
    for part in (part for block in blocks for part in _parts(block, decoding.separator)):
        lines = lines_of(as_utf_8(part, decoding), decoding.line_sep.encode())
        yield from finished_rows(reader.rows(lines), lines, schema, decoding, content.planned.path)


def multi_line_json(
    content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of JSON objects, or of arrays of them; a file that is no JSON is one bad record."""
    del cut
    text = whole_text(content, decoding)
    bounds = array.array("q")  # of each value: where it starts and ends
    try:
        for start_and_end in _values(text):
            bounds.extend(start_and_end)
    except (ValueError, RecursionError):
        bounds = array.array("q", [0, len(text)])
    reader = JsonRows(schema, decoding)
    for records in in_parts(text[bounds[at] : bounds[at + 1]] for at in range(0, len(bounds), 2)):
        # Valid JSON has line feeds between its tokens alone.
        lines = Lines("".join(record.replace("\n", " ") + "\n" for record in records).encode())
        yield from finished_rows(reader.rows(lines), lines, schema, decoding, content.planned.path)


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each value, and of each value in an array; `ValueError` if it is no JSON."""
    scan = json.JSONDecoder().raw_decode
    position = _behind_space(text, 0)
    while position < len(text):
        if text[position] != "[":
            _, end = scan(text, position)
            yield position, end
            position = _behind_space(text, end)
            continue
        position = _behind_space(text, position + 1)
        while text[position : position + 1] != "]":
            _, end = scan(text, position)
            yield position, end
            position = _behind_space(text, end)
            if text[position : position + 1] == ",":
                position = _behind_space(text, position + 1)
            elif text[position : position + 1] != "]":
                raise ValueError(f"no end of an array at {position}")
        position = _behind_space(text, position + 1)


def _behind_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None, "it matches nothing, too"
    return match.end()


def _parts(block: bytes, separator: bytes) -> Iterator[bytes]:
    """Yield a block of lines in parts that the processor's cache holds while they are decoded."""
    start = 0
    while start < len(block):
        place = block.find(separator, start + _PART_BYTES)
        end = len(block) if place < 0 else place + len(separator)
        yield block[start:end]
        start = end


class JsonRows:
    """Reads lines with the columns of a schema."""

    def __init__(self, schema: pa.Schema, decoding: FileDecoding) -> None:
        self._times = decoding.times
        self._schema = own_columns(schema, decoding)
        self._exact = _mapped(self._schema, lambda kind: pa.string() if _is_text(kind) else kind)
        self._exact = _mapped(self._exact, _with_digit)
        # arro3 reads 1.5 as the integer 1: as floating-point numbers, such are told.
        self._as_read = _mapped(self._exact, lambda kind: pa.float64() if pa.types.is_integer(kind) else kind)
        self._is_wide = False

    def rows(self, lines: Lines) -> Rows:
        """Return the rows of a block of lines in UTF-8."""
        excesses = dict(unbounded_lines(lines.block))
        if not excesses:
            return self._bounded_rows(lines)
        numbers = np.searchsorted(lines.starts, list(excesses))
        bounded = np.setdiff1d(np.arange(len(lines)), numbers)
        rows = self._bounded_rows(Lines(lines.joined(bounded), lines.stand_in)) if len(bounded) else Rows()
        bad = {int(bounded[number]): reason for number, reason in rows.bad.items()}
        bad |= {int(number): f"it has {excess}" for number, excess in zip(numbers, excesses.values(), strict=True)}
        return Rows([(batch, bounded[of_line]) for batch, of_line in rows.pieces], bad)

    def _bounded_rows(self, lines: Lines) -> Rows:
        rows = Rows()
        is_odd = _is_odd(lines)
        others = [*np.flatnonzero(is_odd), *self._take(rows, lines, np.flatnonzero(~is_odd))]
        self._take_slowly(rows, lines, sorted(map(int, others)))
        # arro3 takes some lines that Python's parser does not, such as numbers in quotes; what both take is the same.
        for number in [number for number in rows.bad if not is_odd[number]]:
            with contextlib.suppress(Exception):  # arro3 raises nothing more special
                rows.add(self._batch(lines.joined(np.array([number])), 1), np.array([number]))
                del rows.bad[number]
        return rows

    def _take(self, rows: Rows, lines: Lines, numbers: NDArray[np.integer]) -> list[int]:
        """Take lines that look like objects, in halves where that fails; the rest is returned."""

        def take(start: int, end: int) -> None:
            piece = numbers[start:end]
            rows.add(self._batch(lines.joined(piece), len(piece)), piece)

        # arro3 raises nothing more special
        untaken = in_halves(take, len(numbers), Exception, smallest=_TOGETHER_MIN)
        return [int(number) for piece in untaken for number in numbers[piece.start : piece.end]]

    def _take_slowly(self, rows: Rows, lines: Lines, numbers: list[int]) -> None:
        """Take lines one by one; blank ones have no row."""
        kind = pa.struct(list(self._schema))
        objects: dict[int, list[Any]] = {}  # of each line that has some
        for number in numbers:
            text = lines.text(number)
            if not text.strip():
                continue
            try:
                document = _PARSER.decode(text)
                values = [_nested(value, kind) for value in (document if isinstance(document, list) else [document])]
            except (ValueError, RecursionError) as error:
                rows.bad[number] = str(error)
            else:
                if values:
                    objects[number] = values
        self._take_objects(rows, objects)

    def _take_objects(self, rows: Rows, objects: dict[int, list[Any]]) -> None:
        """Take the objects of each line, in halves where they cannot be read together."""
        numbers = list(objects)

        def take(start: int, end: int) -> None:
            piece = numbers[start:end]
            values = [value for number in piece for value in objects[number]]
            struct = pa.array(values, pa.struct(list(self._exact)))
            of_line = np.repeat(piece, [len(objects[number]) for number in piece])
            rows.add(self._typed(pa.RecordBatch.from_struct_array(struct), len(values)), of_line)

        for untaken in in_halves(take, len(numbers), _OF_VALUES):
            rows.bad[numbers[untaken.start]] = str(untaken.error)

    def _batch(self, data: bytes, count: int) -> pa.RecordBatch:
        self._is_wide = False
        typed = self._typed(_decoded(data, self._as_read, count), count)
        return self._typed(_decoded(data, self._exact, count), count) if self._is_wide else typed

    def _typed(self, batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
        types = self._schema.types
        columns = [rebuild(array, kind, self._leaf) for array, kind in zip(batch.columns, types, strict=True)]
        return batch_of(columns, self._schema, count)

    def _leaf(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        """Return values as their type; `ValueError` if one is none."""
        if array.type == target:
            return array
        if pa.types.is_decimal(target):
            return pc.round(array, target.scale, "half_towards_infinity").cast(target)
        if not pa.types.is_integer(target):
            return read_texts(array, target, self._times)
        if len(array) and (pc.max(pc.abs(array)).as_py() or 0) > _EXACT_MAX:
            self._is_wide = True
        return array.cast(target)


def _with_digit(kind: pa.DataType) -> pa.DataType:
    """Return decimals with a digit more, by which they are rounded: arro3 cuts off what is behind it."""
    if not pa.types.is_decimal(kind):
        return kind
    make = pa.decimal128 if kind.precision < _DECIMAL128_DIGITS else pa.decimal256
    return make(kind.precision + 1, kind.scale + 1)


def _decoded(data: bytes, schema: pa.Schema, count: int) -> pa.RecordBatch:
    reader = arro3.io.read_json(io.BytesIO(data), schema, batch_size=count)
    batches = list(pa.RecordBatchReader.from_stream(reader))
    if [batch.num_rows for batch in batches] != [count]:
        raise ValueError(f"{count} lines with other than {count} objects")
    return batches[0]


def _mapped(schema: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    return pa.schema([(field.name, map_leaf_types(field.type, leaf)) for field in schema])


def _is_odd(lines: Lines) -> NDArray[np.bool_]:
    """Return True for lines that are not one object from their first byte to their last, with all strings closed.

    A line that is read among others could else take in the next one, or end the process: arro3 does so where the text
    of an error has a NUL in it. Where no line has the start of an object behind the end of another one, as many objects
    as lines are one in each line.
    """
    data, starts = lines.bytes, lines.starts
    odd: NDArray[np.bool_] = (data[starts] != _OPEN) | (data[lines.ends - 2] != _CLOSE)
    quotes, has_escapes = data, b"\\" in lines.block
    if has_escapes:
        quotes = np.frombuffer(lines.block.replace(rb"\\", b"__").replace(rb"\"", b"__"), np.uint8)
    odd |= np.bitwise_xor.reduceat((quotes == _QUOTE).view(np.uint8), starts).astype(np.bool_)
    place = 0
    while match := _NEXT_OBJECT.search(lines.block, place):  # the first of each line: one line may have millions
        number = np.searchsorted(lines.ends, match.start(), side="right")
        odd[number], place = True, int(lines.ends[number])
    if b"\0" in lines.block or (has_escapes and rb"\u0000" in lines.block):
        odd |= np.array([b"\0" in line or rb"\u0000" in line for line in lines.block.split(b"\n")[:-1]])
    return odd


def _is_text(kind: pa.DataType) -> bool:
    """Return True for types whose values are strings in JSON."""
    return bool(pa.types.is_temporal(kind) or pa.types.is_binary(kind))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has a name twice")
    return fields


class _Number(str):
    """A number as it is spelled."""

    __slots__ = ()


# With numbers as they are spelled.
_PARSER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_Number, parse_float=_Number, parse_constant=_Number)


def _value(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - as many types as JSON has
    """Return a JSON value as one that pyarrow takes for a type; `ValueError` if it is none."""
    if value is None:
        return None
    if pa.types.is_nested(kind):
        return _nested(value, kind)
    if pa.types.is_string(kind):
        return _text(value)
    if isinstance(value, _Number) or (isinstance(value, str) and value in _NUMBERS):
        return _number(value, kind)
    fits = isinstance(value, bool) if pa.types.is_boolean(kind) else isinstance(value, str) and _is_text(kind)
    if not fits:
        raise ValueError(f"{_json(value)[:_SHOWN_CHARS]} is no {kind}")
    return value


def _nested(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - of as many types
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _value(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(key, _value(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_value(item, kind.value_type) for item in value]
    raise ValueError(f"{_json(value)[:_SHOWN_CHARS]} is no {kind}")


def _number(value: str, kind: pa.DataType) -> Any:  # noqa: ANN401 - of as many types
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_decimal(kind):
        return decimal_of(value, kind)
    if pa.types.is_timestamp(kind):  # seconds since 1970
        return f"{np.datetime64(int(value), 's')}{'Z' if kind.tz else ''}"
    raise ValueError(f"the number {value} is no {kind}")


def _text(value: Any) -> str:  # noqa: ANN401 - as many types as JSON has
    """Return a string as it is, and anything else as JSON."""
    return str(value) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:  # noqa: ANN401 - as many types as JSON has
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(key)}:{_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
