"""Values to the text of Spark's cast to string, and back, as in the names of directories; floats by the column."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.buffers import text_scalar, values_of

UTC = "UTC"

_YEAR = re.compile(r"(-?)(\d+)(-.*)")
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_DATE = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)")
_TIMESTAMP = re.compile(_DATE.pattern + r" (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d:\d\d(?::\d\d)?)?")
# A day before the last microsecond that 64 bits can count.
_FAR_US = 2**63 - 1 - 86_400_000_000
_BOOLEANS = {"true": True, "false": False}


_KINDS = (
    *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal128, pa.types.is_date32),
)

_POINT_ZERO, _EMPTY = text_scalar(".0", pa.string()), text_scalar("", pa.string())


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of values: of a dictionary, that of its own values."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def has_text(kind: pa.DataType) -> bool:
    """Return True if values of this type have a text that is read back as the same value."""
    return any(is_kind(kind) for is_kind in _KINDS) or (pa.types.is_timestamp(kind) and kind.unit != "ns")


def value_texts(values: pa.Array, time_zone: str) -> list[str]:
    """Return the texts of values, none of which is null, instants by the clocks of `time_zone`.

    Where clocks are set back, an hour comes twice; the second carries its offset, `2024-10-27 02:30:00+01:00`. A string
    that is not UTF-8, or a timestamp too far away for a local time, raises `ValueError`.
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
    """Return the value that has this text; `ValueError` if none of this type has."""
    try:
        return pa.scalar(_value(text, kind, time_zone), kind)
    except (ArithmeticError, LookupError, pa.ArrowException) as error:
        raise ValueError("no number" if isinstance(error, InvalidOperation) else str(error)) from error


def _value(text: str, kind: pa.DataType, time_zone: str) -> Any:  # noqa: ANN401 - as many types as columns
    if pa.types.is_boolean(kind):
        return _BOOLEANS[text]
    if pa.types.is_integer(kind):
        if not _WHOLE.fullmatch(text):
            raise ValueError("no whole number")
        return int(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_date(kind):
        if not _DATE.fullmatch(text):
            raise ValueError("no date as in 2024-12-31")
        return int(np.datetime64(text, "D").astype(np.int64))
    return _timestamp(text, kind, time_zone) if pa.types.is_timestamp(kind) else text


def _java_text(value: np.floating[Any]) -> str:
    """Return the text of Java's `toString` as of JDK 19: the shortest that is read as the same number."""
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


def _java_year(text: str) -> str:
    """Return a date with at least four digits in its year, and a sign if there are more."""
    match = _YEAR.fullmatch(text)
    assert match is not None, text
    sign, year, rest = match.groups()
    return f"{sign or '+' * (len(year) > 4)}{year:0>4}{rest}"  # noqa: PLR2004


def _timestamp_texts(values: pa.Array, time_zone: str) -> list[str]:
    values = values.cast(pa.timestamp("us", values.type.tz))
    if values.type.tz is None or time_zone == UTC:
        return _clock_texts(values)
    instants = values.cast(pa.timestamp("us", time_zone))
    instants_us = values_of(instants, np.int64)
    if np.any((instants_us > _FAR_US) | (instants_us < -_FAR_US)):
        raise ValueError(f"timestamp out of the range that has a local time in {time_zone}")
    clocks = pc.local_timestamp(instants)
    texts = _clock_texts(clocks)
    first_pass = pc.assume_timezone(clocks, time_zone, ambiguous="earliest")
    offsets_us = values_of(clocks, np.int64) - instants_us
    for index, again in enumerate(pc.not_equal(instants, first_pass).to_pylist()):
        if again:
            texts[index] += offset_text(int(offsets_us[index]))
    return texts


def _clock_texts(clocks: pa.Array) -> list[str]:
    texts = np.datetime_as_string(values_of(clocks, np.int64).astype("M8[us]"))
    return [_java_year(text).replace("T", " ").rstrip("0").rstrip(".") for text in texts]


def offset_text(offset_us: int) -> str:
    """Return an offset from UTC, such as `+01:00`."""
    minutes, seconds = divmod(abs(offset_us) // 1_000_000, 60)
    text = f"{'-' if offset_us < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{seconds:02}" if seconds else text


def _offset_us(text: str) -> int:
    hours, minutes, seconds = (*map(int, text[1:].split(":")), 0)[:3]
    return (hours * 3600 + minutes * 60 + seconds) * (-1_000_000 if text[0] == "-" else 1_000_000)


def _timestamp(text: str, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("no timestamp as in 2024-12-31 23:59:59.5")
    day, time, offset = match.groups()
    clock_us = int(np.datetime64(f"{day}T{time}", "us").astype(np.int64))
    clock = pa.scalar(clock_us, pa.timestamp("us"))
    if kind.tz is None:
        return clock.cast(kind)
    if offset or time_zone == UTC:
        return pa.scalar(clock_us - _offset_us(offset or "+00:00"), pa.timestamp("us", UTC)).cast(kind)
    return pc.assume_timezone(clock, time_zone, ambiguous="earliest").cast(kind)


def all_finite(array: pa.Array) -> bool:
    """Return True if a column of floats has neither NaN nor infinities."""
    return pc.all(pc.is_finite(array)).as_py() is not False


def float_text(array: pa.Array) -> pa.StringArray:
    """Return the shortest text that reads back as the same float; `NaN` and `-Infinity` as in Java."""
    text = array.cast(pa.string())
    if not all_finite(array):
        infinite = pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity")
        text = pc.if_else(pc.is_finite(array), text, pc.if_else(pc.is_nan(array), "NaN", infinite))
    if pc.any(pc.equal(pc.floor(array), array)).as_py():
        # Arrow writes 1.0 as `1`: readers that guess types would see an integer.
        whole = pc.match_substring_regex(text, r"^-?\d+$")
        text = pc.if_else(whole, pc.binary_join_element_wise(text, _POINT_ZERO, _EMPTY), text)
    return text
