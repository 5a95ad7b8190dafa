"""The statistics of files by a reference: entries `[least, greatest, nulls]` of the values of each column."""

from __future__ import annotations

import base64
import datetime
import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.bounds import BoundsColumn
from ftfile.rows.bounds.entries import column_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Entry = list[Any]

LENGTH = 32  # code points of a text, bytes of binary
LAST_POINT, SURROGATES = 0x10FFFF, range(0xD800, 0xE000)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MICROSECOND = datetime.timedelta(microseconds=1)
BEFORE_EPOCH_DAYS = EPOCH.toordinal()


def entries_of(rows: pa.Table) -> dict[str, Entry]:
    """Return the entries of a file with these rows, as they are read back from JSON."""
    entries = {}
    for name in rows.schema.names:
        kind = rows.schema.field(name).type
        if not pa.types.is_nested(kind):
            entries[column_key(name)] = entry_of(rows[name].to_pylist(), kind)
    decoded: dict[str, Entry] = json.loads(json.dumps(entries, allow_nan=False))
    return decoded


def entry_of(values: Sequence[Any], kind: pa.DataType) -> Entry:
    """Return the entry of a column of this type."""
    present = [value for value in values if value is not None]
    low: Any = None
    high: Any = None
    if pa.types.is_floating(kind):
        low, high = float_bounds(present)
    elif present and pa.types.is_string(kind):
        low, high = min(present)[:LENGTH], upper_text(max(present))
    elif present and pa.types.is_binary(kind):
        greatest = upper_bytes(max(present))
        low = base64.b64encode(min(present)[:LENGTH]).decode()
        high = None if greatest is None else base64.b64encode(greatest).decode()
    elif present:
        low, high = plain(min(present), kind), plain(max(present), kind)
    return [low, high, len(values) - len(present)]


def float_bounds(values: Sequence[float]) -> tuple[float | None, float | None]:
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return None, None
    low: float | None = min(numbers) or -0.0
    high: float | None = max(numbers) or 0.0
    if math.isinf(low or 0):
        low = None
    if math.isinf(high or 0) or len(numbers) < len(values):
        high = None
    return low, high


def plain(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return format(value, "f")
    if pa.types.is_timestamp(kind):
        return (value.replace(tzinfo=datetime.timezone.utc) - EPOCH) // MICROSECOND
    if pa.types.is_date(kind):
        return value.toordinal() - BEFORE_EPOCH_DAYS
    return value


def upper_text(text: str) -> str | None:
    """Return a short text that is not less than a text; None if there is no such text."""
    if len(text) <= LENGTH:
        return text
    prefix = text[:LENGTH].rstrip(chr(LAST_POINT))
    if not prefix:
        return None
    point = ord(prefix[-1]) + 1
    if point in SURROGATES:
        point = SURROGATES.stop
    return prefix[:-1] + chr(point)


def upper_bytes(value: bytes) -> bytes | None:
    """Return short bytes that are not less than a value; None if there are no such bytes."""
    if len(value) <= LENGTH:
        return value
    prefix = value[:LENGTH].rstrip(b"\xff")
    if not prefix:
        return None
    return prefix[:-1] + bytes([prefix[-1] + 1])


def bounds_columns(files: Sequence[Mapping[str, Entry]]) -> dict[str, BoundsColumn]:
    """Return the entries of all files by column. A missing entry is unknown."""
    columns = {}
    for name in {name for entries in files for name in entries}:
        lists = zip(*(entries.get(name, [None] * 3) for entries in files), strict=True)
        columns[name] = BoundsColumn(*map(list, lists))
    return columns
