"""Values of partition columns to the text of Spark's cast to string, and back."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.buffers import values_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ("UTC", "has_text", "value_of", "value_texts")

UTC = "UTC"

_YEAR = re.compile(r"(-?)(\d+)(-.*)")
_DATE = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)")
_TIMESTAMP = re.compile(_DATE.pattern + r" (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d:\d\d(?::\d\d)?)?")
# A day before the last microsecond that 64 bits can count.
_FAR_US = 2**63 - 1 - 86_400_000_000
_BOOLEANS = {"true": True, "false": False}


class _Conversion(NamedTuple):
    applies: Callable[[pa.DataType], bool]
    texts: Callable[[pa.Array, str], list[str]]
    value: Callable[[str, pa.DataType, str], Any]


def has_text(kind: pa.DataType) -> bool:
    """Return True if values of this type have a text that is read back as the same value."""
    return any(conversion.applies(kind) for conversion in _CONVERSIONS)


def value_texts(values: pa.Array, time_zone: str = UTC) -> list[str]:
    """Return the texts of values, none of which is null.

    Timestamps that are instants are shown by the clocks of `time_zone`. Where these are set back, an hour
    comes twice; the second carries its offset, `2024-10-27 02:30:00+01:00`, or it would be read as the first.

    Raises:
        ValueError: a string is not UTF-8, or a timestamp too far away for a local time.
    """
    return _conversion(values.type).texts(values, time_zone)


def value_of(text: str, kind: pa.DataType, time_zone: str = UTC) -> pa.Scalar:
    """Return the value that has this text.

    Raises:
        ValueError: it is no text of a value of this type.
    """
    try:
        return pa.scalar(_conversion(kind).value(text, kind, time_zone), kind)
    except (ArithmeticError, LookupError, pa.ArrowException) as error:
        raise ValueError(str(error)) from error


def _conversion(kind: pa.DataType) -> _Conversion:
    return next(conversion for conversion in _CONVERSIONS if conversion.applies(kind))


def _is_plain(kind: pa.DataType) -> bool:
    tests = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _plain_texts(values: pa.Array, _time_zone: str) -> list[str]:
    texts: list[str] = values.cast(pa.large_string()).to_pylist()
    return texts


def _plain_value(text: str, kind: pa.DataType, _time_zone: str) -> bool | int | str:
    if pa.types.is_boolean(kind):
        return _BOOLEANS[text]
    return int(text) if pa.types.is_integer(kind) else text


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind))


def _float_texts(values: pa.Array, _time_zone: str) -> list[str]:
    return [_java_text(value) for value in values_of(values, f"<f{values.type.bit_width // 8}")]


def _float_value(text: str, _kind: pa.DataType, _time_zone: str) -> float:
    return float(text)


def _java_text(value: np.floating[Any]) -> str:
    """Return the text of Java's `toString` as of JDK 19: the shortest text that is read as the same number.

    Older JDKs now and then give one digit more; both texts are read as the same number.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if np.signbit(value) else ""
    mantissa, _, power = np.format_float_scientific(abs(value), trim="-").partition("e")
    if len(mantissa) == 1:
        # Where one digit would do, Java takes the nearest number of two.
        mantissa, _, power = f"{abs(float(value)):.1e}".partition("e")
    digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(power)
    if exponent < -3 or exponent > 6:  # noqa: PLR2004
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def _decimal_texts(values: pa.Array, _time_zone: str) -> list[str]:
    return [format(value, "f") for value in values.to_pylist()]


def _decimal_value(text: str, _kind: pa.DataType, _time_zone: str) -> Decimal:
    return Decimal(text)


def _date_texts(values: pa.Array, _time_zone: str) -> list[str]:
    days = values_of(values, np.int32).astype("M8[D]")
    return [_java_year(text) for text in np.datetime_as_string(days)]


def _java_year(text: str) -> str:
    """Give the year at least four digits, and a sign if it has more."""
    match = _YEAR.fullmatch(text)
    assert match is not None, text
    sign, year, rest = match.groups()
    return f"{sign or '+' * (len(year) > 4)}{year:0>4}{rest}"  # noqa: PLR2004


def _date_value(text: str, _kind: pa.DataType, _time_zone: str) -> int:
    if not _DATE.fullmatch(text):
        raise ValueError("no date as in 2024-12-31")
    return int(np.datetime64(text, "D").astype(np.int64))


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit != "ns"


def _timestamp_texts(values: pa.Array, time_zone: str) -> list[str]:
    values = values.cast(pa.timestamp("us", values.type.tz))
    if values.type.tz is None or time_zone == UTC:
        return _clock_texts(values)
    instants = values.cast(pa.timestamp("us", time_zone))
    instants_us = _microseconds(instants)
    if np.any((instants_us > _FAR_US) | (instants_us < -_FAR_US)):
        raise ValueError(f"timestamp out of the range that has a local time in {time_zone}")
    clocks = pc.local_timestamp(instants)
    texts = _clock_texts(clocks)
    first_pass = pc.assume_timezone(clocks, time_zone, ambiguous="earliest")
    offsets_us = _microseconds(clocks) - instants_us
    for index, again in enumerate(pc.not_equal(instants, first_pass).to_pylist()):
        if again:
            texts[index] += _offset_text(int(offsets_us[index]))
    return texts


def _clock_texts(clocks: pa.Array) -> list[str]:
    texts = np.datetime_as_string(_microseconds(clocks).astype("M8[us]"))
    return [_java_year(text).replace("T", " ").rstrip("0").rstrip(".") for text in texts]


def _microseconds(timestamps: pa.Array) -> NDArray[np.int64]:
    return values_of(timestamps, np.int64)


def _offset_text(offset_us: int) -> str:
    minutes, seconds = divmod(abs(offset_us) // 1_000_000, 60)
    text = f"{'-' if offset_us < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


def _offset_us(text: str) -> int:
    hours, minutes, seconds = (*map(int, text[1:].split(":")), 0)[:3]
    return (hours * 3600 + minutes * 60 + seconds) * (-1_000_000 if text[0] == "-" else 1_000_000)


def _timestamp_value(text: str, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("no timestamp as in 2024-12-31 23:59:59.5")
    day, time, offset = match.groups()
    clock_us = int(np.datetime64(f"{day}T{time}", "us").astype(np.int64))
    if kind.tz is None:
        return pa.scalar(clock_us, pa.timestamp("us")).cast(kind)
    if offset or time_zone == UTC:
        return pa.scalar(clock_us - _offset_us(offset or "+00:00"), pa.timestamp("us", UTC)).cast(kind)
    clock = pa.scalar(clock_us, pa.timestamp("us"))
    return pc.assume_timezone(clock, time_zone, ambiguous="earliest").cast(kind)


_CONVERSIONS = (
    _Conversion(_is_plain, _plain_texts, _plain_value),
    _Conversion(_is_float, _float_texts, _float_value),
    _Conversion(pa.types.is_decimal128, _decimal_texts, _decimal_value),
    _Conversion(pa.types.is_date32, _date_texts, _date_value),
    _Conversion(_is_timestamp, _timestamp_texts, _timestamp_value),
)
