"""Dates and timestamps as text in Spark's patterns, thousands at a time; and the clocks of time zones.

Zones are known by name, as in `Europe/Berlin`, or by offset, as in `+01:00`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, is_valid, strings_from, values_of

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray


_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_DAY_US = 24 * 60 * _MINUTE_US
DAYS_OF_TEXT = _FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31: what four digits can say

_DATE_WIDTHS = {"yyyy": 4, "MM": 2, "dd": 2}
_TIME_WIDTHS = {"HH": 2, "mm": 2, "ss": 2} | {"S" * digits: digits for digits in range(1, 7)}
_WIDTHS = _DATE_WIDTHS | _TIME_WIDTHS
_ZONE = "XXX"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[\[\]]|[^']", re.DOTALL)

# One item for all digits of a number: looking up items is ten times faster than looking up rows of bytes.
_TWO_DIGITS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint16)
_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), np.uint32)
_MINUS, _PLUS, _COLON, _ZULU = b"-+:Z"
_PADDING = 0xFF  # no byte of UTF-8; after `Z` where it stands among offsets such as `+01:00`

_INSTANT, _CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_OFFSET = re.compile(r"([+-])(0\d|1[0-8]):([0-5]\d)")


def is_zone(name: str) -> bool:
    """Return True if there is such a zone."""
    if not name or name == "UTC":
        return bool(name)
    try:
        clocks_of(pa.array([0], _INSTANT), name)
    except pa.ArrowInvalid:
        return False
    return True


def clocks_of(instants: pa.TimestampArray, zone: str) -> pa.TimestampArray:
    """Return the local times of a zone, as timestamps without one."""
    # Without the time zone database, which a small container may lack: UTC, and offsets, which older pyarrow refuses.
    if zone == "UTC":
        return instants.cast(_INSTANT).cast(_CLOCK)
    if offset := _offset(zone):
        return pc.add(instants.cast(_INSTANT).cast(_CLOCK), offset)
    return pc.local_timestamp(instants.cast(pa.timestamp("us", tz=zone)))


def instants_of(
    clocks: pa.TimestampArray, zone: str, twice: Literal["earliest", "latest"] = "earliest"
) -> pa.TimestampArray:
    """Return the inverse of `clocks_of`; `twice` chooses the moment where clocks show an hour twice."""
    if zone == "UTC":
        return clocks.cast(_INSTANT)
    if offset := _offset(zone):
        return pc.subtract(clocks, offset).cast(_INSTANT)
    return pc.assume_timezone(clocks, zone, ambiguous=twice, nonexistent="earliest").cast(_INSTANT)


def _offset(zone: str) -> pa.DurationScalar | None:
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    minutes = int(match[2]) * 60 + int(match[3])
    return pa.scalar((minutes if match[1] == "+" else -minutes) * 60_000_000, pa.duration("us"))


def check_range(array: pa.Array) -> None:
    """Raise `ValueError` for dates and timestamps whose year has more than four digits."""
    bounds = pc.min_max(array)
    factor = 1 if pa.types.is_date(array.type) else _DAY_US
    for bound, low in ((bounds["min"], True), (bounds["max"], False)):
        value = bound.value
        if value is not None and (value < _FIRST_DAY * factor if low else value >= (_LAST_DAY + 1) * factor):
            kind = "days" if factor == 1 else "microseconds"
            raise ValueError(f"{value} {kind} since 1970 is outside the years 0001 to 9999 that text can hold")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A date-time pattern whose every field has a fixed width."""

    pieces: tuple[str, ...]  # field letters as in the pattern, or `=` and literal text

    @classmethod
    def parse(cls, option: str, text: str, kind: pa.DataType) -> TimePattern:
        """Read a Java pattern for type `kind`, or raise `ConfigError`; optional sections `[...]` are always written."""
        choices = [*_DATE_WIDTHS]
        if pa.types.is_timestamp(kind):
            choices += [*_TIME_WIDTHS] if kind.tz is None else [*_TIME_WIDTHS, _ZONE]
        pieces, position = [], 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConfigError(f"option {option}={text!r}: a quote is not closed")
            letters, position = match[0], match.end()
            if letters[0] == "'":
                pieces.append("=" + (match[1].replace("''", "'") or "'"))
            elif letters.replace("u", "y") in choices:
                pieces.append(letters.replace("u", "y"))
            elif letters[0].isalpha() and letters.isascii():
                accepted = f"{', '.join(choices)}, punctuation and 'quoted text'"
                raise ConfigError(f"option {option}={text!r}: {letters!r} is not understood; accepted are {accepted}")
            elif letters not in "[]":
                pieces.append("=" + letters)
        pattern = cls(tuple(pieces))
        fields = [piece for piece in pieces if piece[0] != "="]
        if not fields or len({piece[0] for piece in fields}) != len(fields):
            raise ConfigError(f"option {option}={text!r}: it takes each field once, and at least one")
        return pattern

    def format(self, array: pa.Array, zone: str) -> pa.StringArray:
        """Return dates or timestamps as text, instants by the clocks of `zone`; `ValueError` as `check_range`."""
        fields = _fields(array, zone, whole_minutes=_ZONE in self.pieces)
        columns = [_column(piece, fields) for piece in self.pieces]
        matrix = np.empty((len(array), sum(column.shape[1] for column in columns)), np.uint8)
        end = 0
        for column in columns:
            start, end = end, end + column.shape[1]
            matrix[:, start:end] = column
        lengths: int | NDArray[np.int64] = matrix.shape[1]
        if _ZONE in self.pieces and fields["X"].any() and not fields["X"].all():
            keep = matrix != _PADDING
            matrix, lengths = matrix[keep], keep.sum(axis=1)
        offsets = np.zeros(len(array) + 1, np.int32)
        np.cumsum(np.broadcast_to(lengths, len(array)), out=offsets[1:])
        return strings_from(offsets, matrix, pa.string(), is_valid(array) if array.null_count else None)

    def read(self, strings: pa.StringArray, target: pa.DataType, zone: str) -> pa.Array:
        """Return text in this pattern as `target`, or raise `ValueError`; missing fields are as in 1970-01-01 00:00."""
        fields = [piece for piece in self.pieces if piece[0] != "="]
        captures = {_ZONE: r"(Z|[+-]\d{2}:\d{2})"} | {name: f"(\\d{{{width}}})" for name, width in _WIDTHS.items()}
        regex = "".join(re.escape(piece[1:]) if piece[0] == "=" else captures[piece] for piece in self.pieces)
        if pc.all(pc.match_substring_regex(strings, f"^{regex}$")).as_py() is False:
            raise ValueError(f"a value is not in the pattern {''.join(self.pieces)!r}")
        place = {piece[0]: f"\\{index}" for index, piece in enumerate(fields, start=1)}
        date = f"{place.get('y', '1970')}-{place.get('M', '01')}-{place.get('d', '01')}"
        clock = f"{place.get('H', '00')}:{place.get('m', '00')}:{place.get('s', '00')}.{place.get('S', '0')}"
        is_date = pa.types.is_date(target)
        iso = date if is_date else f"{date}T{clock}{place.get('X', '')}"
        text = pc.replace_substring_regex(strings, f"^{regex}$", iso)
        if is_date or target.tz is None or "X" in place:
            return pc.cast(text, target)
        return instants_of(pc.cast(text, pa.timestamp("us")), zone).cast(target)


def _fields(array: pa.Array, zone: str, *, whole_minutes: bool) -> dict[str, NDArray[np.int64]]:
    """Return year, month, day, time of day and minutes east of UTC under their letters."""
    check_range(array)
    if pa.types.is_date(array.type):
        return _date_fields(_integers(array))
    utc = _integers(array)
    local, offset = utc, np.zeros(1, np.int64)
    if array.type.tz is not None and zone != "UTC":
        local = _integers(clocks_of(array, zone))
        offset = (local - utc) // _MINUTE_US
        if whole_minutes:
            # Before standard time offsets had seconds, which `+01:00` cannot say: the same instant without.
            local = utc + offset * _MINUTE_US
        check_range(from_numpy(local, pa.timestamp("us")))
    days = local // _DAY_US
    seconds, micros = np.divmod(local - days * _DAY_US, _SECOND_US)
    minutes = seconds // 60
    hours = minutes // 60
    clock = {"H": hours, "m": minutes - hours * 60, "s": seconds - minutes * 60, "S": micros, "X": offset}
    return _date_fields(days) | clock


def _integers(array: pa.Array) -> NDArray[np.int64]:
    """Return days or microseconds since 1970, 0 for null."""
    values = values_of(array, np.int32 if pa.types.is_date(array.type) else np.int64)
    return np.where(is_valid(array), values, 0).astype(np.int64)


def _date_fields(days: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    dates = days.astype("datetime64[D]")
    first_of_month = dates.astype("datetime64[M]")
    months = first_of_month.astype(np.int64)
    years = months // 12
    day = (dates - first_of_month.astype("datetime64[D]")).astype(np.int64) + 1
    return {"y": years + 1970, "M": months - years * 12 + 1, "d": day}


def _column(piece: str, fields: dict[str, NDArray[np.int64]]) -> NDArray[np.uint8]:
    """Return the bytes of a piece of the pattern: a row for each value, or one that all share."""
    if piece[0] == "=":
        return np.frombuffer(piece[1:].encode(), np.uint8).reshape(1, -1)
    values = fields[piece[0]]
    if piece == _ZONE:
        return _offset_text(values)
    if piece[0] != "S":
        return _digits(values, _WIDTHS[piece])
    high = values // 100
    return np.hstack([_digits(high, 4), _digits(values - high * 100, 2)])[:, : len(piece)]


def _digits(values: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    digits = _FOUR_DIGITS[values] if width == len("yyyy") else _TWO_DIGITS[values]
    return digits.view(np.uint8).reshape(-1, width)


def _offset_text(minutes: NDArray[np.int64]) -> NDArray[np.uint8]:
    if not minutes.any():
        return np.full((1, 1), _ZULU, np.uint8)
    away = np.abs(minutes)
    text = np.empty((len(minutes), len("+00:00")), np.uint8)
    text[:, 0] = np.where(minutes < 0, _MINUS, _PLUS)
    text[:, 1:3] = _digits(away // 60, 2)
    text[:, 3] = _COLON
    text[:, 4:6] = _digits(away % 60, 2)
    text[minutes == 0] = (_ZULU, *[_PADDING] * 5)
    return text
