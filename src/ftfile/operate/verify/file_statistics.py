"""Comparison of the statistics of a file in the log with the rows of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.bounds import bounds_column
from ftfile.read.file_answers import is_comparable
from ftfile.rows import kernels as pc
from ftfile.rows.bounds.entries import BoundArrays, bound_arrays, compared_type
from ftfile.rows.statistics.collector import values_at
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.log.format.model import Entries
    from ftfile.rows.statistics.columns import Path


@dataclass(slots=True)
class _CheckedColumn:
    """The entry of a column, and the numbers of the rows that contradict it."""

    path: Path
    kind: pa.DataType
    entry: BoundArrays  # with one element
    nulls: int = 0
    below: int = 0  # the least bound
    above: int = 0  # the greatest bound

    def update(self, values: pa.Array) -> None:
        self.nulls += values.null_count
        if values.type != self.kind:
            values = values.cast(self.kind)
        low, high = self.entry.low[0], self.entry.high[0]
        if low.is_valid:
            self.below += pc.less(values, low).true_count
        if high.is_valid:
            self.above += pc.greater(values, high).true_count
            if pa.types.is_floating(self.kind):
                self.above += pc.is_nan(values).true_count  # NaN is greater than all numbers

    def faults(self) -> Iterator[str]:
        name = key_of(self.path)
        if self.below:
            yield f"{self.below} values of column {name!r} below the bound {self.entry.low[0]}"
        if self.above:
            yield f"{self.above} values of column {name!r} above the bound {self.entry.high[0]}"
        nulls = self.entry.nulls[0].as_py()
        if nulls is not None and nulls != self.nulls:
            yield f"{self.nulls} nulls of column {name!r} instead of {nulls}"


class StatisticsCheck:
    """Compares the statistics of a file with its rows, which arrive batch by batch.

    As in reads with a condition, a column is only compared if its values in the file have the type of the version, or
    both are whole numbers.
    """

    def __init__(self, statistics: Entries, stored: pa.Schema, schema: pa.Schema) -> None:
        """Compare a file whose columns are `stored`; rows are read as `schema`."""
        self._columns: list[_CheckedColumn] = []
        for path, field in leaves(schema):
            entry = statistics.get(key_of(path))
            if entry is not None and is_comparable(schema.field(path[0]), stored):
                arrays = bound_arrays(bounds_column([entry]), field.type)
                self._columns.append(_CheckedColumn(path, compared_type(field.type), arrays))

    def update(self, batch: pa.RecordBatch) -> None:
        """Compare rows."""
        for column in self._columns:
            column.update(values_at(batch, column.path))

    def fault(self) -> str | None:
        """Return the contradictions of all rows; None if the statistics are right."""
        faults: list[str] = []
        for column in self._columns:
            faults += column.faults()
        return "; ".join(faults) or None
