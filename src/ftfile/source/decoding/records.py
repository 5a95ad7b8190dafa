"""Rows of records in lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import CorruptData, SourceError
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Wording
from ftfile.formats.json_lines import from_base64
from ftfile.formats.reading.batches import batch_as, batch_of
from ftfile.rows.buffers import text_scalar
from ftfile.rows.value_text import all_finite
from ftfile.rows.zone_clocks import instants_of
from ftfile.source.decoding.lines import as_utf_8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.source.settings import FileDecoding


_log = get_logger(__name__)

_NEWLINE = ord("\n")
_SHOWN_CHARS = 200
_PART_BYTES, _TEXT_BYTES = 1 << 20, 50  # additional memory of a Python text, besides its characters
# Rarely used separators. The first character that does not occur replaces line feeds within records.
_STAND_INS = "\x1d\x1c\x1e\x1f\x01\x02\x03\x04"

_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
_HAS_ZONE = f":.*{_ZONE}"
# Offsets that Spark refuses: after a time without seconds, or of more than 18 hours.
_WRONG_ZONE = rf"[T ]\d\d(:\d\d)?{_ZONE}|[:.]\d+[+-](19|[2-9]\d|18:?(0[1-9]|[1-5]\d))(:?\d\d)?$"
# Spark's spellings of numbers that are not finite, and numbers with too many digits.
_NOT_FINITE = r"^([+-]?(NaN|Infinity)|-?Inf|[-+.0-9eE]+)$"
_HEXADECIMAL = "[xX]"
_DAY = (r"^(\d{4}-\d\d-\d\d)[T ].*$", r"\1")
_PLUS = (r"^\+(\d)", r"\1")
_MICROSECONDS = (r"(\.\d{6})\d+", r"\1")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,10})?")
_EXPONENT_MAX = 1000  # Spark refuses some larger exponents, or needs minutes for them
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
_CLOCK = pa.timestamp("us")
_LINE_END = re.compile(r"\r?\n|\r")
_HALF_PAIR, _REPLACEMENT = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?"), "\ufffd".encode()


def read_texts(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    """Return texts as values of a type.

    Times in ISO 8601 without a zone are in the zone of `times`. Binary values are base64.

    Raises:
        ValueError: a text is not a value of the type.
    """
    if pa.types.is_string(target):
        return texts
    if pa.types.is_binary(target):
        return from_base64(texts)
    if pa.types.is_temporal(target):
        return _times(texts, target, times)
    if pa.types.is_decimal(target):
        return _decimals(texts, target)
    if pa.types.is_boolean(target):
        return _booleans(texts)
    return _integers(texts, target) if pa.types.is_integer(target) else _floats(texts, target)


def _booleans(texts: pa.StringArray) -> pa.BooleanArray:
    lower = pc.utf8_lower(texts)
    is_true = pc.equal(lower, text_scalar("true", pa.string()))
    is_false = pc.equal(lower, text_scalar("false", pa.string()))
    if pc.all(pc.or_(is_true, is_false)).as_py() is False:
        raise ValueError("a value is neither true nor false")
    return is_true


def _integers(texts: pa.StringArray, target: pa.DataType) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _HEXADECIMAL)).as_py():
        raise ValueError("a value is hexadecimal")
    return _cast(texts, target, _PLUS)


def _floats(texts: pa.StringArray, target: pa.DataType) -> pa.Array:
    numbers = _cast(texts, target, _PLUS)
    if not all_finite(numbers):
        spelled = texts.filter(pc.invert(pc.is_finite(numbers)))
        if pc.all(pc.match_substring_regex(spelled, _NOT_FINITE)).as_py() is False:
            raise ValueError("a value is not a number: only the spellings NaN, Inf and Infinity are accepted")
    return numbers


def _cast(texts: pa.StringArray, target: pa.DataType, pattern: tuple[str, str]) -> pa.Array:
    """Return texts cast to a type. If Arrow refuses a text, the pattern is replaced first."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(texts, *pattern).cast(target)


def _times(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    if not times.is_iso(target):
        return times.pattern(target).read(texts, target, times.zone)
    if pa.types.is_timestamp(target):
        return _timestamps(texts, target, times.zone)
    return _cast(texts, target, _DAY)


def _timestamps(texts: pa.StringArray, target: pa.TimestampType, zone: str) -> pa.Array:
    if target.tz is not None and pc.any(pc.match_substring_regex(texts, _WRONG_ZONE)).as_py():
        raise ValueError("an offset after a time without seconds, or of more than 18 hours")
    try:
        return texts.cast(target)  # nearly all files use one spelling, with or without a zone
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(texts, *_MICROSECONDS)
    if target.tz is None:
        return texts.cast(target)
    has_zone = pc.fill_null(pc.match_substring_regex(texts, _HAS_ZONE), fill_value=False)
    zoned = pc.if_else(has_zone, texts, None).cast(target)
    return pc.coalesce(zoned, instants_of(pc.if_else(has_zone, None, texts).cast(_CLOCK), zone))


def _decimals(texts: pa.StringArray, target: pa.Decimal128Type) -> pa.Array:
    # Arrow's cast reads beyond its table of powers if an exponent is large, which can end the process. If there are too
    # many digits before the point, it returns another value: apache/arrow#49817.
    unsafe = rf"[eE]|^[+-]?[0-9]{{{target.precision - target.scale + 1}}}"
    if not pc.any(pc.match_substring_regex(texts, unsafe)).as_py():
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            pass
    values = [None if text is None else decimal_of(text, target) for text in texts.to_pylist()]
    return pa.array(values, target)


def decimal_of(text: str, target: pa.Decimal128Type) -> Decimal:
    """Return the nearest decimal of a type.

    Raises:
        ValueError: the text is not a number, or the number is too large.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r} is no {target}")
    if abs(int(text.lower().partition("e")[2] or 0)) > _EXPONENT_MAX:
        raise ValueError(f"{text[:_SHOWN_CHARS]!r} has an exponent of more than {_EXPONENT_MAX}")
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-target.scale), context=_EXACT)
    except ArithmeticError as error:
        raise ValueError(f"{text!r} is no {target}") from error
    if len(value.as_tuple().digits) > target.precision:
        raise ValueError(f"{text!r} is no {target}")
    return value


def as_java_reads(block: bytes, decoding: FileDecoding) -> bytes:
    """Return whole lines in UTF-8, in which U+FFFD replaces the same bytes as in Java."""
    if decoding.encoding == "utf-8" and b"\xed" in block:
        block = _HALF_PAIR.sub(_REPLACEMENT, block)
    return as_utf_8(block, decoding)


class LineBlock:
    """The lines of a block that ends with a line feed, by number. `stand_in` represents a line feed within a line."""

    def __init__(self, block: bytes, stand_in: str = "") -> None:
        self.stand_in = stand_in
        self.block = block
        self.bytes = np.frombuffer(block, np.uint8)
        self.ends = np.flatnonzero(self.bytes == _NEWLINE) + 1  # including line feeds
        self.starts = np.zeros(len(self.ends), np.int64)
        self.starts[1:] = self.ends[:-1]

    def __len__(self) -> int:
        return len(self.ends)

    def text(self, number: int) -> str:
        """Return a line without its end."""
        line = str(memoryview(self.block)[self.starts[number] : self.ends[number] - 1], "utf-8").removesuffix("\r")
        if self.stand_in:
            return line.replace(self.stand_in, "\n")
        return line

    def join(self, numbers: NDArray[np.integer]) -> bytes:
        """Return the bytes of some lines, whose numbers are sorted."""
        if len(numbers) == len(self):
            return self.block
        if not len(numbers):
            return b""
        last = np.append(np.flatnonzero(np.diff(numbers) != 1), len(numbers) - 1)
        first = np.append(0, last[:-1] + 1)
        runs = zip(self.starts[numbers[first]], self.ends[numbers[last]], strict=True)
        return b"".join(self.block[start:end] for start, end in runs)


def lines_of(text: bytes, separator: bytes) -> LineBlock:
    """Return the lines of UTF-8 text that ends with a separator. Carriage returns before line feeds are removed.

    Raises:
        SourceError: lines contain line feeds and all characters that could replace them.
    """
    if separator == b"\n":
        return LineBlock(text.replace(b"\r\n", b"\n") if b"\r" in text else text)
    return join_lines(text.split(separator)[:-1])


def join_lines(records: Sequence[bytes]) -> LineBlock:
    """Return records, which may contain line feeds, as lines; raises as `lines_of`."""
    used = b"".join(records)
    if b"\n" not in used:
        return LineBlock(b"\n".join([*records, b""]))
    for stand_in in _STAND_INS:
        if stand_in.encode() not in used:
            break
    else:
        raise SourceError(f"records that contain line feeds cannot also contain all of the characters {_STAND_INS!r}")
    lines = [record.replace(b"\n", stand_in.encode()) for record in records]
    return LineBlock(b"\n".join([*lines, b""]), stand_in)


def with_line_feeds(text: str, path: str) -> str:
    """Return text with line feeds as line ends. As in Spark, the first line end of the file decides this.

    Raises:
        CorruptData: the first line end is a single carriage return.
    """
    first_end = _LINE_END.search(text)
    if first_end is not None and first_end[0] == "\r":
        expected = "lines that end with a line feed, as the first line does"
        raise CorruptData(path, expected, "a single carriage return, with which Spark ends all lines")
    if first_end is not None and first_end[0] == "\r\n":
        text = text.replace("\r\n", "\n")
    return text


def records_of(text: str, decoding: FileDecoding) -> Iterator[str]:
    """Yield records without their ends. A line end in a quoted field is part of the field."""
    quote, sep, escape = map(re.escape, (decoding.quote, decoding.sep, decoding.escape))
    if quote == escape:
        escaped, other = f"{quote}{quote}", f"[^{quote}]"
    else:
        escaped, other = f"{escape}.", f"[^{quote}{escape}]"
    field = rf"(?:{quote}{other}*(?:{escaped}{other}*)*{quote}(?=[{sep}\n]|\r\n)|[^{sep}\n]*)"
    comment = ""
    if decoding.comment:
        comment = f"{re.escape(decoding.comment)}[^\\n]*\\n|"
    if text and not text.endswith("\n"):
        text += "\n"
    for match in re.finditer(rf"{comment}{field}(?:{sep}{field})*\r?\n", text, re.DOTALL):
        yield match[0].removesuffix("\n").removesuffix("\r")


def in_parts(records: Iterable[str]) -> Iterator[list[str]]:
    """Yield records in lists of about a megabyte, so that not all values of a file are in memory at once."""
    part: list[str] = []
    size_bytes = 0
    for record in records:
        part.append(record)
        size_bytes += len(record) + _TEXT_BYTES
        if size_bytes >= _PART_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


@dataclass
class DecodedRows:
    """The rows of lines in pieces of any order, and the bad lines, which have no rows."""

    # with the line number of each row
    pieces: list[tuple[pa.RecordBatch, NDArray[np.integer]]] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)  # reasons by line number

    def add(self, batch: pa.RecordBatch, numbers: NDArray[np.integer]) -> None:
        """Add the rows of lines with sorted numbers."""
        self.pieces.append((batch, numbers))


class Untaken(NamedTuple):
    """The lines `[start, end)` that cannot be read together."""

    start: int
    end: int
    error: Exception


def in_halves(
    take: Callable[[int, int], None],
    count: int,
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    smallest: int = 1,
) -> Iterator[Untaken]:
    """Call `take` for `count` lines at once. If it raises one of the errors, call it for each half.

    `take` receives the first line number and the number after the last line. Yield the pieces of at most `smallest`
    lines that still fail, in order.
    """
    pieces = [(0, count)] if count else []
    while pieces:
        start, end = pieces.pop()
        try:
            take(start, end)
        except errors as error:
            if end - start <= smallest:
                yield Untaken(start, end, error)
            else:
                middle = (start + end) // 2
                pieces += [(middle, end), (start, middle)]


def finished_rows(
    rows: DecodedRows, lines: LineBlock, schema: pa.Schema, decoding: FileDecoding, path: str
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the order of their lines. Bad lines have no row, or a row with only their text.

    Raises:
        SourceError: a line is bad, with `badRecords=fail`.
    """
    corrupt = decoding.column_name_of_corrupt_record
    keeps = corrupt in schema.names
    if rows.bad and not keeps:
        number, reason = min(rows.bad.items())
        shown = lines.text(number)[:_SHOWN_CHARS]
        if decoding.bad_records == "fail":
            raise bad_record(
                f"{path!r} has a record that cannot be read as {decoding.file_format}: {reason}: {shown!r}", corrupt
            )
        _log.warning("dropped %d records of %s, the first: %s: %r", len(rows.bad), path, reason, shown)
    batches, lines_of_batches = [], []
    for batch, numbers in rows.pieces:
        batches.append(batch_as(batch, schema) if keeps else batch)
        lines_of_batches.append(numbers)
    if keeps and rows.bad:
        bad = sorted(rows.bad)
        texts = pa.array([lines.text(number) for number in bad], pa.string())
        alone = batch_of([texts], pa.schema([schema.field(corrupt)]), len(bad))
        batches.append(batch_as(alone, schema))
        lines_of_batches.append(np.array(bad))
    if not batches:
        return
    if len(batches) == 1:
        yield batches[0]
        return
    order = np.argsort(np.concatenate(lines_of_batches), kind="stable")
    joined = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order))
    yield from joined.combine_chunks().to_batches()


def bad_record(problem: str, corrupt_name: str) -> SourceError:
    """Return the error for a record that cannot be read, with what its reader can do.

    Args:
        problem: with the place and the value.
        corrupt_name: of the column for the texts of bad records.
    """
    remedy = Wording(
        "Give its columns types that can represent the values, drop such records with badRecords=drop, or keep their "
        f"text in a column {corrupt_name} string",
        "Write the file again without these values",
    )
    return SourceError(Advice(problem, ". ", remedy))
