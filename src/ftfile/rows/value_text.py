"""Conversion of values to text and back, like Spark's casts and time patterns.

Time zones are names, such as `Europe/Berlin`, or offsets, such as `+01:00`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.rows import kernels as pc
from ftfile.rows.buffers import from_numpy, is_valid, strings_from, text_scalar, values_of
from ftfile.rows.zone_clocks import clocks_of, instants_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


UTC = "UTC"

_YEAR = re.compile(r"(-?)(\d+)(-.*)")
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_DATE = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)")
_TIMESTAMP = re.compile(_DATE.pattern + r" (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d:\d\d(?::\d\d)?)?")
# One day before the last timestamp in 64 bits: a conversion to local time cannot overflow up to here.
_FAR_US = 2**63 - 1 - 86_400_000_000
_BOOLEANS = {"true": True, "false": False}

# Types with a text, in addition to timestamps.
_KIND_CHECKS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_date32,
)

_POINT_ZERO = text_scalar(".0", pa.string())
_EMPTY = text_scalar("", pa.string())


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column's values; for a dictionary-encoded column, the type of its dictionary."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return kind


def has_text(kind: pa.DataType) -> bool:
    """Return True if values of this type have a text from which the same value can be read."""
    return any(is_kind(kind) for is_kind in _KIND_CHECKS) or (pa.types.is_timestamp(kind) and kind.unit != "ns")


def value_texts(values: pa.Array, time_zone: str) -> list[str]:
    """Return the texts of values without nulls; timestamps are in `time_zone`.

    If daylight saving repeats an hour, texts of its second occurrence end with the offset: `2024-10-27 02:30:00+01:00`.
    A string that is not UTF-8, or a timestamp out of the range of local times, raises `ValueError`.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        return [_java_text(value) for value in values_of(values, f"<f{kind.bit_width // 8}")]
    if pa.types.is_decimal(kind):
        return [format(value, "f") for value in values.to_pylist()]
    if pa.types.is_date(kind):
        days = values_of(values, np.int32).astype("M8[D]")
        return [_java_year(text) for text in np.datetime_as_string(days)]
    if pa.types.is_timestamp(kind):
        return _timestamp_texts(values, time_zone)
    texts: list[str] = values.cast(pa.large_string()).to_pylist()
    return texts


def value_of(text: str, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    """Return the value of a text; `ValueError` if this type has no such value."""
    try:
        return pa.scalar(_value(text, kind, time_zone), kind)
    except InvalidOperation as error:
        raise ValueError("not a number") from error
    except (ArithmeticError, LookupError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error


def _value(text: str, kind: pa.DataType, time_zone: str) -> Any:  # noqa: ANN401 - as many types as columns
    value: Any = text
    if pa.types.is_boolean(kind):
        value = _BOOLEANS[text]
    elif pa.types.is_integer(kind):
        if not _WHOLE.fullmatch(text):
            raise ValueError("not a whole number")
        value = int(text)
    elif pa.types.is_floating(kind):
        value = float(text)
    elif pa.types.is_decimal(kind):
        value = Decimal(text)
    elif pa.types.is_date(kind):
        if not _DATE.fullmatch(text):
            raise ValueError("not a date such as 2024-12-31")
        value = int(np.datetime64(text, "D").astype(np.int64))
    elif pa.types.is_timestamp(kind):
        value = _timestamp(text, kind, time_zone)
    return value


def _java_text(value: np.floating[Any]) -> str:
    """Return the text of Java's `toString` since JDK 19: the shortest text that is read as the same number."""
    if not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        if value > 0:
            return "Infinity"
        return "-Infinity"
    sign = "-" if np.signbit(value) else ""
    mantissa, _, power = np.format_float_scientific(abs(value), trim="-").partition("e")
    if len(mantissa) == 1:
        # If one digit would suffice, Java prints the nearest number with two.
        mantissa, _, power = f"{abs(float(value)):.1e}".partition("e")
    digits = mantissa.replace(".", "").rstrip("0") or "0"
    exponent = int(power)
    if exponent < -3 or exponent > 6:  # noqa: PLR2004
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def _java_year(text: str) -> str:
    """Return a date whose year has at least four digits, and a sign if it has more."""
    match = _YEAR.fullmatch(text)
    assert match is not None, text
    sign, year, rest = match.groups()
    if not sign and len(year) > 4:  # noqa: PLR2004
        sign = "+"
    return f"{sign}{year:0>4}{rest}"


def _timestamp_texts(values: pa.Array, time_zone: str) -> list[str]:
    values = values.cast(pa.timestamp("us", values.type.tz))
    if values.type.tz is None or time_zone == UTC:
        return _clock_texts(values)
    instants = values.cast(pa.timestamp("us", time_zone))
    instants_us = values_of(instants, np.int64)
    if np.any((instants_us > _FAR_US) | (instants_us < -_FAR_US)):
        raise ValueError(f"timestamp out of the range of local times in {time_zone}")
    clocks = clocks_of(instants, time_zone)
    texts = _clock_texts(clocks)
    # A local time that occurs twice is converted to the first of its two instants.
    first_instants = instants_of(clocks, time_zone).cast(instants.type)
    offsets_us = values_of(clocks, np.int64) - instants_us
    for index, is_second in enumerate(pc.not_equal(instants, first_instants).to_pylist()):
        if is_second:
            texts[index] += offset_text(int(offsets_us[index]))
    return texts


def _clock_texts(clocks: pa.Array) -> list[str]:
    texts = np.datetime_as_string(values_of(clocks, np.int64).astype("M8[us]"))
    return [_java_year(text).replace("T", " ").rstrip("0").rstrip(".") for text in texts]


def offset_text(offset_us: int) -> str:
    """Return an offset from UTC, such as `+01:00`."""
    sign = "-" if offset_us < 0 else "+"
    minutes, seconds = divmod(abs(offset_us) // 1_000_000, 60)
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}"
    if seconds:
        return f"{text}:{seconds:02}"
    return text


def _offset_us(text: str) -> int:
    """Return an offset in microseconds from its text `+hh:mm` or `+hh:mm:ss`."""
    offset_s = 0
    for number, unit_s in zip(text[1:].split(":"), (3600, 60, 1), strict=False):
        offset_s += int(number) * unit_s
    if text[0] == "-":
        offset_s = -offset_s
    return offset_s * 1_000_000


def _timestamp(text: str, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp such as 2024-12-31 23:59:59.5")
    day, time, offset = match.groups()
    clock_us = int(np.datetime64(f"{day}T{time}", "us").astype(np.int64))
    clock = pa.scalar(clock_us, pa.timestamp("us"))
    if kind.tz is None:
        return clock.cast(kind)
    if offset or time_zone == UTC:
        return pa.scalar(clock_us - _offset_us(offset or "+00:00"), pa.timestamp("us", UTC)).cast(kind)
    clocks = pa.array([clock])
    instants = instants_of(clocks, time_zone)
    if not clocks_of(instants, time_zone).equals(clocks):
        raise ValueError(f"this local time does not exist in {time_zone}")
    return instants[0].cast(kind)


def all_finite(array: pa.Array) -> bool:
    """Return True if a column of floats contains neither NaN nor infinities."""
    return pc.all(pc.is_finite(array)).as_py() is not False


def float_text(array: pa.Array) -> pa.StringArray:
    """Return the shortest texts that are read as the same floats, with `NaN` and `-Infinity` as in Java."""
    text = array.cast(pa.string())
    if not all_finite(array):
        infinite = pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity")
        text = pc.if_else(pc.is_finite(array), text, pc.if_else(pc.is_nan(array), "NaN", infinite))
    if pc.any(pc.equal(pc.floor(array), array)).as_py():
        # Arrow writes 1.0 as `1`, which readers that infer types would read as an integer.
        whole = pc.match_substring_regex(text, r"^-?\d+$")
        text = pc.if_else(whole, pc.binary_join_element_wise(text, _POINT_ZERO, _EMPTY), text)
    return text


_SECOND_US = 1_000_000
_MINUTE_US = 60 * _SECOND_US
_DAY_US = 24 * 60 * _MINUTE_US
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, the range of years with four digits
DAYS_OF_TEXT = _FIRST_DAY, _LAST_DAY

_DATE_WIDTHS = {"yyyy": 4, "MM": 2, "dd": 2}
_TIME_WIDTHS = {"HH": 2, "mm": 2, "ss": 2} | {"S" * digits: digits for digits in range(1, 7)}
_WIDTHS = _DATE_WIDTHS | _TIME_WIDTHS
_ZONE = "XXX"  # in Spark's patterns: an offset such as +01:00, or Z
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[\[\]]|[^']", re.DOTALL)

# One item contains all digits of a number, since looking up items is ten times faster than looking up rows of bytes.
_TWO_DIGITS = np.frombuffer(b"".join(b"%02d" % number for number in range(100)), np.uint16)
_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % number for number in range(10_000)), np.uint32)
_MINUS, _PLUS, _COLON, _ZULU = b"-+:Z"
_PADDING = 0xFF  # never part of UTF-8; fills `Z` to the width of offsets such as `+01:00`


def check_range(array: pa.Array) -> None:
    """Raise `ValueError` for dates and timestamps whose year has more than four digits."""
    unit, units_of_day = "microseconds", _DAY_US
    if pa.types.is_date(array.type):
        unit, units_of_day = "days", 1
    first, end = _FIRST_DAY * units_of_day, (_LAST_DAY + 1) * units_of_day
    bounds = pc.min_max(array)
    least, greatest = bounds["min"].value, bounds["max"].value
    if least is None:
        return
    value = greatest
    if least < first:
        value = least
    if not first <= value < end:
        raise ValueError(f"{value} {unit} since 1970 is outside the years 0001 to 9999 that text can represent")


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A time pattern in which every field has a fixed width."""

    pieces: tuple[str, ...]  # field letters of the pattern, or `=` and literal text

    @classmethod
    def parse(cls, option: str, text: str, kind: pa.DataType) -> TimePattern:
        """Parse a Java pattern for type `kind`, or raise `ConfigError`; optional sections are always written."""
        choices = [*_DATE_WIDTHS]
        if pa.types.is_timestamp(kind):
            choices += [*_TIME_WIDTHS] if kind.tz is None else [*_TIME_WIDTHS, _ZONE]
        pieces, position = [], 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ConfigError(f"option {option}={text!r}: a quote is not terminated")
            letters, position = match[0], match.end()
            if letters[0] == "'":
                quoted = match[1].replace("''", "'") or "'"  # `''` is a quote, inside and outside of quoted text
                pieces.append("=" + quoted)
            elif letters.replace("u", "y") in choices:
                pieces.append(letters.replace("u", "y"))
            elif letters[0].isalpha() and letters.isascii():
                accepted = f"{', '.join(choices)}, punctuation and 'quoted text'"
                raise ConfigError(f"option {option}={text!r}: {letters!r} is not understood; accepted: {accepted}")
            elif letters not in "[]":
                pieces.append("=" + letters)
        pattern = cls(tuple(pieces))
        letters_of_fields = pattern._letters()
        if not letters_of_fields or len(set(letters_of_fields)) != len(letters_of_fields):
            raise ConfigError(f"option {option}={text!r}: it must contain at least one field, and each field only once")
        return pattern

    def _letters(self) -> list[str]:
        """Return the letters of the fields in order."""
        return [piece[0] for piece in self.pieces if piece[0] != "="]

    def _regex(self) -> str:
        """Return the regular expression for texts of this pattern, with a group for each field."""
        pieces = []
        for piece in self.pieces:
            if piece[0] == "=":
                pieces.append(re.escape(piece[1:]))
            elif piece == _ZONE:
                pieces.append(r"(Z|[+-]\d{2}:\d{2})")
            else:
                pieces.append(f"(\\d{{{_WIDTHS[piece]}}})")
        return f"^{''.join(pieces)}$"

    def format(self, array: pa.Array, zone: str) -> pa.StringArray:
        """Return dates or timestamps as text, in the time zone `zone`; raise the `ValueError` of `check_range`."""
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
        """Return text of this pattern as `target`, or raise `ValueError`; 1970-01-01 00:00 supplies missing fields."""
        regex = self._regex()
        if pc.all(pc.match_substring_regex(strings, regex)).as_py() is False:
            raise ValueError(f"a value does not match the pattern {''.join(self.pieces)!r}")
        place = {letter: f"\\{group}" for group, letter in enumerate(self._letters(), start=1)}
        date = f"{place.get('y', '1970')}-{place.get('M', '01')}-{place.get('d', '01')}"
        clock = f"{place.get('H', '00')}:{place.get('m', '00')}:{place.get('s', '00')}.{place.get('S', '0')}"
        is_date = pa.types.is_date(target)
        if is_date:
            iso = date
        else:
            iso = f"{date}T{clock}{place.get('X', '')}"
        text = pc.replace_substring_regex(strings, regex, iso)
        if is_date or target.tz is None or "X" in place:
            return pc.cast(text, target)
        return instants_of(pc.cast(text, pa.timestamp("us")), zone).cast(target)


def _fields(array: pa.Array, zone: str, *, whole_minutes: bool) -> dict[str, NDArray[np.int64]]:
    """Return year, month, day, time of day and offset from UTC in minutes, by their letters."""
    check_range(array)
    if pa.types.is_date(array.type):
        return _date_fields(_integers(array))
    utc = _integers(array)
    local, offset = utc, np.zeros(1, np.int64)
    if array.type.tz is not None and zone != "UTC":
        local = _integers(clocks_of(array, zone))
        offset = (local - utc) // _MINUTE_US
        if whole_minutes:
            # Before standard time, offsets had seconds, which `+01:00` cannot contain. Without these seconds in its
            # offset and its local time, the text means the same instant.
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
    """Return the bytes of a part of the pattern: a row for each value, or one row for all."""
    if piece[0] == "=":
        return np.frombuffer(piece[1:].encode(), np.uint8).reshape(1, -1)
    values = fields[piece[0]]
    if piece == _ZONE:
        return _offset_text(values)
    if piece[0] != "S":
        return _digits(values, _WIDTHS[piece])
    # A fraction has six digits, of which the pattern uses the first ones.
    high = values // 100
    six_digits = np.hstack([_digits(high, 4), _digits(values - high * 100, 2)])
    return six_digits[:, : len(piece)]


def _digits(values: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    digits = _FOUR_DIGITS[values] if width == len("yyyy") else _TWO_DIGITS[values]
    return digits.view(np.uint8).reshape(-1, width)


def _offset_text(minutes: NDArray[np.int64]) -> NDArray[np.uint8]:
    if not minutes.any():
        return np.full((1, 1), _ZULU, np.uint8)
    distance = np.abs(minutes)
    text = np.empty((len(minutes), len("+00:00")), np.uint8)
    text[:, 0] = np.where(minutes < 0, _MINUS, _PLUS)
    text[:, 1:3] = _digits(distance // 60, 2)
    text[:, 3] = _COLON
    text[:, 4:6] = _digits(distance % 60, 2)
    is_utc = minutes == 0
    text[is_utc, 0] = _ZULU
    text[is_utc, 1:] = _PADDING
    return text
