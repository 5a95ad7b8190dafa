"""The statistics of a column of a file, as the log contains them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.rows.bounds.entries import python_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.rows.statistics.columns import Path


_DECIMAL = re.compile(r"-?\d+(?:\.\d+)?")


class ColumnEntry(NamedTuple):
    """The bounds and the number of nulls of a column; None is unknown."""

    low: Any
    high: Any
    nulls: int | None


_UNKNOWN = ColumnEntry(None, None, None)


def entry_of(statistics: Mapping[str, Sequence[Any]], key: str, kind: pa.DataType) -> ColumnEntry:
    """Return the entry of a column of this type. A value that is not one of the type is unknown."""
    entry = statistics.get(key, ())
    if len(entry) != len(_UNKNOWN):
        return _UNKNOWN
    low, high, nulls = entry
    if type(nulls) is not int:
        nulls = None
    return ColumnEntry(_check_bound(low, kind), _check_bound(high, kind), nulls)


def _check_bound(bound: object, kind: pa.DataType) -> object:
    if type(bound) not in (python_types(kind) or ()):
        return None
    if isinstance(bound, float) and not math.isfinite(bound):
        return None
    if isinstance(bound, str) and pa.types.is_decimal(kind) and not _DECIMAL.fullmatch(bound):
        return None
    return bound


def type_at(columns: pa.Schema, path: Path) -> pa.DataType | None:
    """Return the type of a column, or of a field of structs; None if it is missing."""
    index = columns.get_field_index(path[0])
    if index < 0:
        return None
    kind = columns.field(index).type
    for name in path[1:]:
        if not pa.types.is_struct(kind):
            return pa.null()
        index = kind.get_field_index(name)
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind
