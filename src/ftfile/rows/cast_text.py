"""Values of text that other programs wrote, converted like Spark's casts."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

from ftfile.rows.value_text import value_of
from ftfile.rows.zone_clocks import instants_of

_BOOLEAN = re.compile("true|false")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLOAT = re.compile(rf"\s*(?:{_DECIMAL.pattern}|[+-]?(?:NaN|Infinity))\s*")
_DATE = r"\s*([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DAY = re.compile(_DATE + r"(?:[ T].*)?)?)?\s*")
_OFFSET = r"Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9](?::[0-5][0-9])?|[+-]18:00"
_CLOCK = rf"([0-9]{{1,2}}):([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]*))?({_OFFSET})?)?"
_TIME = re.compile(_DATE + rf"(?:[ T]{_CLOCK})?)?)?\s*")
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)


def cast_text(text: str, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    """Return the value of a text; timestamps without an offset are in `time_zone`.

    Raises:
        ValueError: Spark does not cast the text to the type, or its result depends on the current date.
    """
    if not text:
        raise ValueError("it is empty")
    if pa.types.is_boolean(kind):
        text = text.lower()
        _match(_BOOLEAN, text, "neither true nor false")
    elif pa.types.is_integer(kind):
        _match(_INTEGER, text, "not a whole number")
    elif pa.types.is_floating(kind):
        _match(_FLOAT, text, "not a number")
    elif pa.types.is_decimal(kind):
        return _decimal(text, kind)
    elif pa.types.is_date(kind):
        text = _day(_match(_DAY, text, "not a date such as 2024-12-31"))
    elif pa.types.is_timestamp(kind):
        return _timestamp(text, kind, time_zone)
    elif pa.types.is_time(kind):
        raise ValueError("a TIME is not read from the name of a directory")
    return value_of(text, kind, time_zone)


def _match(pattern: re.Pattern[str], text: str, problem: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(problem)
    return match


def _decimal(text: str, kind: pa.Decimal128Type) -> pa.Scalar:
    _match(_DECIMAL, text, "not a number")
    try:
        return pa.scalar(Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT), kind)
    except (ArithmeticError, pa.ArrowException) as error:
        raise ValueError("it has more digits than the type") from error


def _day(match: re.Match[str]) -> str:
    """Return year, month and day of a match with two digits each; a missing one is the first."""
    year, month, day = match.group(1, 2, 3)
    return f"{year}-{month or '1':0>2}-{day or '1':0>2}"


def _timestamp(text: str, kind: pa.TimestampType, time_zone: str) -> pa.Scalar:
    match = _match(_TIME, text, "not a timestamp such as 2024-12-31 23:59:59.5")
    hours, minutes, seconds, fraction, zone = match.group(4, 5, 6, 7, 8)
    clock = f"{hours or '0':0>2}:{minutes or '0':0>2}:{seconds or '0':0>2}.{(fraction or '0')[:6]}"
    offset = "+00:00" if zone == "Z" else zone or ""
    written = f"{_day(match)} {clock}"
    if kind.tz is None or not offset:
        local = value_of(
            written, pa.timestamp("us"), time_zone
        )  # Spark ignores the offset of a timestamp without time zone
        if kind.tz is None:
            return local.cast(kind)
        return instants_of(pa.array([local]), time_zone).cast(kind)[0]
    return value_of(written + offset, kind, time_zone)
