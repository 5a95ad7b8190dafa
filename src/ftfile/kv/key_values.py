"""Keys as values: tuples that compare as rows are sorted, and their JSON.

A key is a tuple with a value for each key column: the bytes of strings and binaries (of strings in UTF-8), days of a
date, microseconds of a timestamp, the unscaled integer of a decimal, integers and booleans as they are. Tuples compare
as the rows of a run are sorted. A tuple that ends early is a prefix, and comes before all keys that begin with it.
"""

from __future__ import annotations

import base64
import decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

Key = tuple[int | bytes, ...]

# Decimals whose unscaled integer has 64 bits.
PRECISION_MAX = 18


def is_key_type(arrow: pa.DataType) -> bool:
    """Return True for the types that a key column can have."""
    if pa.types.is_decimal128(arrow):
        return bool(arrow.precision <= PRECISION_MAX)
    if pa.types.is_timestamp(arrow):
        return bool(arrow.unit == "us")
    return bool(
        pa.types.is_signed_integer(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_date32(arrow)
        or pa.types.is_string(arrow)
        or pa.types.is_binary(arrow)
    )


def encode_key(key: Key) -> list[Any]:
    """Return a key, or a prefix of one, as plain JSON: bytes in base64, all others as they are."""
    return [base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in key]


def decode_key(text: Sequence[Any]) -> Key:
    """Return the key that `encode_key` wrote."""
    return tuple(base64.b64decode(value, validate=True) if isinstance(value, str) else value for value in text)


def to_scalar(value: int | bytes, arrow: pa.DataType) -> pa.Scalar:
    """Return the value of a key column in Arrow."""
    if isinstance(value, bytes):
        return pa.scalar(value, pa.binary()).cast(arrow)
    if pa.types.is_decimal(arrow):
        return pa.scalar(decimal.Decimal(value).scaleb(-arrow.scale), arrow)
    return pa.scalar(bool(value) if pa.types.is_boolean(arrow) else value, arrow)
