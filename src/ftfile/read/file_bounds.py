"""The statistics of finished files as Python values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.bounds import bounds_column
from ftfile.core.checksum import Decoding
from ftfile.log.format import layout
from ftfile.log.read.snapshot import live_table
from ftfile.rows.bounds.entries import bound_arrays
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    import pyarrow as pa

    from ftfile.log.format.model import Entries
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileSystem


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of a column in the rows of a file. The bounds are not necessarily values of the file.

    Attributes:
        low: no value is less; None if it is unknown, or is not a value of Python.
        high: no value is greater, like `low`.
        nulls: the number of rows without a value; None if it is unknown.
    """

    low: Any
    high: Any
    nulls: int | None


def file_bounds(fs: FileSystem, snapshot: Snapshot, ids: Container[str]) -> dict[str, dict[str, ColumnBounds]]:
    """Return the bounds of each column in files of a snapshot, by the ids of the files. No file is opened."""
    table = live_table(snapshot)
    masks = [[add_id in ids for add_id in block_ids] for block_ids, _ in table.columns_by_id(())]
    kinds_by_encoding: dict[str, dict[str, pa.DataType]] = {}
    bounds: dict[str, dict[str, ColumnBounds]] = {}
    for adds in table.narrow(masks).with_statistics(fs):
        for add in adds:
            if add.encoding not in kinds_by_encoding:
                kinds_by_encoding[add.encoding] = _kinds_of(snapshot.definitions[add.encoding])
            bounds[add.id] = _column_bounds(add.statistics, kinds_by_encoding[add.encoding])
    return bounds


def _kinds_of(encoding: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the types of the columns that can have statistics, by their keys."""
    with Decoding(layout.LOG, "the schema of an encoding"):
        schema = recorded_schema(encoding["schema"])
    return {key_of(path): field.type for path, field in leaves(schema)}


def _column_bounds(statistics: Entries, kinds: Mapping[str, pa.DataType]) -> dict[str, ColumnBounds]:
    columns: dict[str, ColumnBounds] = {}
    for name, entry in statistics.items():
        if name in kinds:
            low, high, nulls = bound_arrays(bounds_column([entry]), kinds[name])
            columns[name] = ColumnBounds(_value_of(low[0]), _value_of(high[0]), _value_of(nulls[0]))
    return columns


def _value_of(bound: pa.Scalar) -> Any:  # noqa: ANN401 - of any type
    """Return the value of a bound; None for times beyond the years of Python."""
    try:
        return bound.as_py()
    except (ValueError, OverflowError):
        return None
