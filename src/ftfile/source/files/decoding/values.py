"""Values as foreign files spell them, to those of a schema."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.arrays.buffers import text_scalar
from ftfile.arrays.time_zones import instants_of
from ftfile.encoding.json.text import from_base64

if TYPE_CHECKING:
    from ftfile.encoding.base.time_formats import TimeFormats

_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"
_HAS_ZONE = f":.*{_ZONE}"
_WITHOUT_ZONE = (rf"(:.*?){_ZONE}", r"\1")
_DAY = (r"^(\d{4}-\d\d-\d\d)[T ].*$", r"\1")
_PLUS = (r"^\+(\d)", r"\1")
_MICROSECONDS = (r"(\.\d{6})\d+", r"\1")
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
_CLOCK = pa.timestamp("us")


def read_texts(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    """Return texts as values of a type; `ValueError` if one is none.

    Times in ISO 8601 without a zone are those of the clocks of `times`; binary values are base64.
    """
    if pa.types.is_string(target):
        return texts
    if pa.types.is_binary(target):
        return from_base64(texts)
    if pa.types.is_temporal(target):
        return _times(texts, target, times)
    if pa.types.is_decimal(target):
        return _decimals(texts, target)
    return _booleans(texts) if pa.types.is_boolean(target) else _numbers(texts, target)


def _booleans(texts: pa.StringArray) -> pa.BooleanArray:
    lower = pc.utf8_lower(texts)
    is_true = pc.equal(lower, text_scalar("true", pa.string()))
    is_false = pc.equal(lower, text_scalar("false", pa.string()))
    if pc.all(pc.or_(is_true, is_false)).as_py() is False:
        raise ValueError("a value is neither true nor false")
    return is_true


def _numbers(texts: pa.StringArray, target: pa.DataType) -> pa.Array:
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(texts, *_PLUS).cast(target)


def _times(texts: pa.StringArray, target: pa.DataType, times: TimeFormats) -> pa.Array:
    if not times.is_iso(target):
        return times.pattern(target).read(texts, target, times.zone)
    if pa.types.is_timestamp(target):
        return _timestamps(texts, target, times.zone)
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(texts, *_DAY).cast(target)


def _timestamps(texts: pa.StringArray, target: pa.TimestampType, zone: str) -> pa.Array:
    try:
        return texts.cast(target)  # nearly all files spell all of them in one way: with a zone where there is one
    except pa.ArrowInvalid:
        texts = pc.replace_substring_regex(texts, *_MICROSECONDS)
    if target.tz is None:
        return pc.replace_substring_regex(texts, *_WITHOUT_ZONE).cast(target)
    has_zone = pc.fill_null(pc.match_substring_regex(texts, _HAS_ZONE), fill_value=False)
    zoned = pc.if_else(has_zone, texts, None).cast(target)
    return pc.coalesce(zoned, instants_of(pc.if_else(has_zone, None, texts).cast(_CLOCK), zone))


def _decimals(texts: pa.StringArray, target: pa.Decimal128Type) -> pa.Array:
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:
        values = [None if text is None else decimal_of(text, target) for text in texts.to_pylist()]
        return pa.array(values, target)


def decimal_of(text: str, target: pa.Decimal128Type) -> Decimal:
    """Return the nearest decimal of a type; `ValueError` if the text is no number, or it is too large."""
    try:
        value = Decimal(text).quantize(Decimal(1).scaleb(-target.scale), context=_EXACT)
    except ArithmeticError as error:
        raise ValueError(f"{text!r} is no {target}") from error
    if not value.is_finite() or len(value.as_tuple().digits) > target.precision:
        raise ValueError(f"{text!r} is no {target}")
    return value
