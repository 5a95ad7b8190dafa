"""Bounds in the log: a bound that could be misread is None, which means unknown."""

from __future__ import annotations

import base64
import codecs
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

PREFIX_CHARACTERS = 32
PREFIX_BYTES = 32
# Two code points more than a prefix, so a cut text is longer than a prefix even if its last code point is incomplete.
TEXT_BYTES = 4 * (PREFIX_CHARACTERS + 2)

_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


def text_bounds(low: bytes, high: bytes) -> tuple[str | None, str | None]:
    """Return bounds of strings, given in UTF-8 and cut after `TEXT_BYTES`; a UnicodeDecodeError for other bytes."""
    return lower_text(_decode_text(low)), upper_text(_decode_text(high))


def _decode_text(data: bytes) -> str:
    is_whole = len(data) < TEXT_BYTES
    return codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)


def lower_text(text: str) -> str:
    """Return a short text that is not greater."""
    return text[:PREFIX_CHARACTERS]


def upper_text(text: str) -> str | None:
    """Return a short text that is not less; None if no text is."""
    if len(text) <= PREFIX_CHARACTERS:
        return text
    return end_of_prefix(text[:PREFIX_CHARACTERS])


def end_of_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than all texts with a prefix; None if no text is."""
    for end in range(len(prefix), 0, -1):
        code_point = ord(prefix[end - 1]) + 1
        if code_point in _SURROGATES:
            code_point = _SURROGATES.stop
        if code_point <= _LAST_CODE_POINT:
            return prefix[: end - 1] + chr(code_point)
    return None


def bytes_bounds(low: bytes, high: bytes) -> tuple[str | None, str | None]:
    """Return bounds of binary values, in base64."""
    greatest = upper_bytes(high)
    if greatest is None:
        return _base64(low[:PREFIX_BYTES]), None
    return _base64(low[:PREFIX_BYTES]), _base64(greatest)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def upper_bytes(value: bytes) -> bytes | None:
    """Return short bytes that are not less; None if no bytes are."""
    if len(value) <= PREFIX_BYTES:
        return value
    prefix = value[:PREFIX_BYTES].rstrip(b"\xff")
    if not prefix:
        return None
    return prefix[:-1] + bytes([prefix[-1] + 1])


def number_bounds(low: float, high: float, *, has_nan: bool) -> tuple[float | None, float | None]:
    """Return bounds of floating-point numbers that are not NaN; NaN is greater than all other numbers."""
    least: float | None = low
    greatest: float | None = high
    # Readers differ in the order of the two zeros.
    if low == 0:
        least = -0.0
    if high == 0:
        greatest = 0.0
    # JSON has no infinity.
    if math.isinf(low):
        least = None
    if math.isinf(high) or has_nan:
        greatest = None
    return least, greatest


def decimal_bounds(low: Decimal, high: Decimal) -> tuple[str, str]:
    """Return bounds of decimals, as exact texts."""
    return format(low, "f"), format(high, "f")
