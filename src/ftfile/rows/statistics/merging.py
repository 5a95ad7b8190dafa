"""Statistics of the rows of several segments together, and of some of these rows."""

from __future__ import annotations

import base64
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    Entry: TypeAlias = tuple[Any, ...]

_UNKNOWN = (None, None, None)


class CountedEntries(NamedTuple):
    """The statistics of a number of rows."""

    rows: int
    entries: Mapping[str, Entry]


def merge_all_entries(segments: Sequence[CountedEntries], schema: pa.Schema) -> dict[str, Entry]:
    """Return the statistics of the rows of all segments; a column that is unknown in one segment is unknown."""
    merged: dict[str, Entry] = {}
    for path, field in leaves(schema):
        key = key_of(path)
        entry = _merge_entries(segments, key, field.type)
        if entry != _UNKNOWN:
            merged[key] = entry
    return merged


def entries_of_some(merged: CountedEntries, rows: int) -> dict[str, Entry]:
    """Return statistics that hold for any choice of this number of rows.

    If some rows of a column are null, the number of nulls is only known of all rows.
    """
    entries: dict[str, Entry] = {}
    for key, (low, high, all_nulls) in merged.entries.items():
        nulls = None
        if all_nulls == merged.rows:
            nulls = rows
        elif all_nulls == 0 or rows == merged.rows:
            nulls = all_nulls
        if (low, high, nulls) != _UNKNOWN:
            entries[key] = (low, high, nulls)
    return entries


def _merge_entries(segments: Sequence[CountedEntries], key: str, kind: pa.DataType) -> Entry:
    lows: list[Any] = []
    highs: list[Any] = []
    total_nulls: int | None = 0
    for rows, entries in segments:
        entry = entries.get(key, _UNKNOWN)
        if len(entry) != len(_UNKNOWN):
            return _UNKNOWN
        low, high, nulls = entry
        if type(nulls) is not int:
            total_nulls = None
        elif total_nulls is not None:
            total_nulls += nulls
        if nulls != rows:
            lows.append(low)
            highs.append(high)
    return _extreme(min, lows, kind), _extreme(max, highs, kind), total_nulls


def _extreme(choose: Callable[..., Any], bounds: Sequence[Any], kind: pa.DataType) -> Any:  # noqa: ANN401 - values of the column's type
    """Return the least or the greatest bound; None if one of them is unknown, or is not a value of the type."""
    if not bounds or any(bound is None for bound in bounds):
        return None
    try:
        return choose(bounds, key=partial(_comparable, kind))
    except (TypeError, ValueError, ArithmeticError):
        return None


def _comparable(kind: pa.DataType, bound: Any) -> Any:  # noqa: ANN401 - values of the column's type
    """Return a value in the order of the values of a type."""
    if pa.types.is_decimal(kind):
        return Decimal(bound)
    if pa.types.is_binary(kind):
        return base64.b64decode(bound)
    return bound
