"""Collects the statistics of rows that arrive batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.buffers import is_valid, values_of
from ftfile.rows.statistics.bounds import (
    PREFIX_BYTES,
    TEXT_BYTES,
    bytes_bounds,
    decimal_bounds,
    number_bounds,
    text_bounds,
)
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from ftfile.rows.statistics.columns import Path

# The import of `pyarrow.compute` takes 25 ms; the kernels save less than this for fewer rows.
KERNEL_ROWS = 1_000


class Collector:
    """The statistics of the rows of one file: by the key of a column `[min, max, nulls]`, where None is unknown."""

    def __init__(self, schema: pa.Schema, columns: Collection[str], *, compares_text: bool = True) -> None:
        """Collect statistics of the columns with these keys; without `compares_text`, bounds of strings are unknown."""
        self._columns: list[_Column] = []
        for path, field in leaves(schema):
            if key_of(path) not in columns:
                continue
            if pa.types.is_string(field.type) and not compares_text:
                self._columns.append(_GivenTextColumn(path))
            else:
                self._columns.append(_column_of(path, field.type))

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        for column in self._columns:
            column.update(values_at(batch, column.path))

    def set_text(self, extremes: Mapping[Path, tuple[bytes, bytes] | None]) -> None:
        """Set the least and the greatest value of the columns of strings that were not compared, by path."""
        for column in self._columns:
            if isinstance(column, _GivenTextColumn):
                column.set_extremes(extremes.get(column.path))

    def entries(self) -> dict[str, tuple[Any, ...]]:
        """Return the statistics of all rows, without columns that have a bound that is not UTF-8."""
        entries: dict[str, tuple[Any, ...]] = {}
        for column in self._columns:
            try:
                low, high = column.bounds()
            except UnicodeDecodeError:
                continue
            entries[key_of(column.path)] = (low, high, column.nulls)
        return entries


class _Column(ABC):
    """The extremes of one column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nulls = 0
        self._low: Any = None
        self._high: Any = None

    def update(self, values: pa.Array) -> None:
        """Add values."""
        nulls = values.null_count
        self.nulls += nulls
        if nulls < len(values):
            self._add(values)

    def bounds(self) -> tuple[Any, Any]:
        """Return the bounds for the log."""
        if self._low is None:
            return None, None
        return self._bounds(self._low, self._high)

    @abstractmethod
    def _add(self, values: pa.Array) -> None:
        """Add values; at least one is not null."""

    def _bounds(self, low: Any, high: Any) -> tuple[Any, Any]:  # noqa: ANN401 - values of the column's type
        return low, high

    def _widen(self, low: Any, high: Any) -> None:  # noqa: ANN401 - likewise
        if self._low is None:
            self._low, self._high = low, high
        else:
            self._low, self._high = min(self._low, low), max(self._high, high)


class _BooleanColumn(_Column):
    def _add(self, values: pa.BooleanArray) -> None:
        self._widen(values.false_count == 0, values.true_count > 0)


class _NumberColumn(_Column):
    """The extremes of whole numbers, dates or timestamps."""

    _letter = "i"

    def _add(self, values: pa.Array) -> None:
        numbers = values_of(values, f"{self._letter}{values.type.bit_width // 8}")
        if values.null_count:
            numbers = numbers[is_valid(values)]
        self._add_numbers(numbers)

    def _add_numbers(self, numbers: NDArray[Any]) -> None:
        self._widen(numbers.min().item(), numbers.max().item())


class _FloatColumn(_NumberColumn):
    _letter = "f"
    _has_nan = False

    def _add_numbers(self, numbers: NDArray[Any]) -> None:
        if np.isnan(numbers.min()):
            self._has_nan = True
            numbers = numbers[~np.isnan(numbers)]
        if len(numbers):
            super()._add_numbers(numbers)

    def _bounds(self, low: float, high: float) -> tuple[float | None, float | None]:
        return number_bounds(low, high, has_nan=self._has_nan)


class _ComparedColumn(_Column):
    """The extremes of values that NumPy cannot compare."""

    def _add(self, values: pa.Array) -> None:
        if len(values) < KERNEL_ROWS:
            present = [value for value in values.to_pylist() if value is not None]
            self._widen(min(present), max(present))
        else:
            both = pc.min_max(values)
            self._widen(both["min"].as_py(), both["max"].as_py())


class _DecimalColumn(_ComparedColumn):
    def _bounds(self, low: Any, high: Any) -> tuple[str, str]:  # noqa: ANN401 - decimals
        return decimal_bounds(low, high)


class _BytesColumn(_ComparedColumn):
    """The extremes of binary values, cut: a value can have megabytes, and each open file keeps two of them."""

    _kept = PREFIX_BYTES + 1

    def _widen(self, low: bytes, high: bytes) -> None:
        super()._widen(low[: self._kept], high[: self._kept])

    def _bounds(self, low: bytes, high: bytes) -> tuple[str | None, str | None]:
        return bytes_bounds(low, high)


class _TextColumn(_BytesColumn):
    """The extremes of strings, compared as bytes: their order is the order of code points."""

    _kept = TEXT_BYTES

    def _add(self, values: pa.Array) -> None:
        super()._add(values.view(pa.binary()))

    def _bounds(self, low: bytes, high: bytes) -> tuple[str | None, str | None]:
        return text_bounds(low, high)


class _GivenTextColumn(_TextColumn):
    """The number of nulls of strings; the writer of the file computes their extremes."""

    def _add(self, values: pa.Array) -> None:
        pass

    def set_extremes(self, extremes: tuple[bytes, bytes] | None) -> None:
        if extremes is not None:
            self._widen(*extremes)


# The classes of types; other types that have bounds are whole numbers in memory.
_CLASSES = (
    (pa.types.is_boolean, _BooleanColumn),
    (pa.types.is_floating, _FloatColumn),
    (pa.types.is_decimal, _DecimalColumn),
    (pa.types.is_string, _TextColumn),
    (pa.types.is_binary, _BytesColumn),
)


def _column_of(path: Path, kind: pa.DataType) -> _Column:
    for is_kind, column in _CLASSES:
        if is_kind(kind):
            return column(path)
    return _NumberColumn(path)


def values_at(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """Return the values of a column or of a field of structs; a field of a null is null."""
    values = batch.column(path[0])
    for name in path[1:]:
        values = values.flatten()[values.type.get_field_index(name)]
    return values
