"""The statistics of files in a Delta table.

The property `delta.dataSkippingStatsColumns` names the columns. A file has bounds of all of them, or of none: delta-rs
1.6 treats a missing bound as null if the file has other bounds, and does not return rows of this file.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from ftfile.operate.export.entries import entry_of, type_at
from ftfile.rows.spark_types import arrow_schema
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ftfile.operate.export.tables import ExportedFile
    from ftfile.rows.statistics.columns import Path


_PROPERTY = "delta.dataSkippingStatsColumns"
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - only the text of a time in UTC is needed
# Readers read a number in JSON as a double, which keeps 15 digits.
EXACT_DIGITS = 15

Json = dict[str, Any]


class _BoundedColumn(NamedTuple):
    key: str
    path: Path
    kind: pa.DataType


def skipping_columns(columns: str, recorded: Collection[str]) -> list[str]:
    """Return the keys of the columns whose bounds Delta can express, given all columns as Spark's JSON."""
    return [leaf.key for leaf in _leaves(columns, recorded) if _is_expressed(leaf)]


def skipping_property(columns: str, keys: Collection[str]) -> list[tuple[str, str]]:
    """Return the property that names these columns; none without columns."""
    names: list[str] = []
    for leaf in _leaves(columns, keys):
        names.append(".".join(f"`{name}`" for name in leaf.path))
    if not names:
        return []
    return [(_PROPERTY, ",".join(names))]


class DeltaStatistics:
    """Writes the statistics of the files of a table, given its columns as Spark's JSON and the keys of some of them."""

    def __init__(self, columns: str, keys: Collection[str]) -> None:
        self._leaves = [*_leaves(columns, keys)]
        self._types: dict[int, list[pa.DataType | None]] = {}  # of the columns, by the id of the columns of files

    def text(self, file: ExportedFile) -> str:
        """Return the statistics of a file."""
        least: Json = {}
        greatest: Json = {}
        nulls: Json = {}
        is_bounded = True
        for leaf, kind in zip(self._leaves, self._types_in(file), strict=True):
            low, high, count = _entry(file, leaf, kind)
            if count is not None:
                _put(nulls, leaf.path, count)
            if count == file.rows:
                continue
            if low is None or high is None:
                is_bounded = False
            else:
                _put(least, leaf.path, low)
                _put(greatest, leaf.path, high)
        statistics: Json = {"numRecords": file.rows}
        # delta-rs takes an empty map for bounds that are null.
        if is_bounded and least:
            statistics |= {"minValues": least, "maxValues": greatest}
        if nulls:
            statistics["nullCount"] = nulls
        return msgspec.json.encode(statistics).decode()

    def _types_in(self, file: ExportedFile) -> list[pa.DataType | None]:
        """Return the types that the columns have in a file; None for missing columns."""
        number = id(file.columns)
        if number not in self._types:
            self._types[number] = [type_at(file.columns, leaf.path) for leaf in self._leaves]
        return self._types[number]


def _leaves(columns: str, keys: Collection[str]) -> Iterator[_BoundedColumn]:
    for path, field in leaves(arrow_schema(columns)):
        key = key_of(path)
        if key in keys:
            yield _BoundedColumn(key, path, field.type)


def _is_expressed(leaf: _BoundedColumn) -> bool:
    # Readers differ in the names of the property that contain dots or backticks.
    for name in leaf.path:
        if "." in name or "`" in name:
            return False
    if pa.types.is_decimal(leaf.kind):
        is_exact: bool = leaf.kind.precision <= EXACT_DIGITS
        return is_exact
    return not pa.types.is_binary(leaf.kind)


def _entry(file: ExportedFile, leaf: _BoundedColumn, kind: pa.DataType | None) -> tuple[Any, Any, int | None]:
    """Return the least and the greatest value of a column as JSON, and its number of nulls; None is unknown."""
    if kind is None and leaf.path[0] not in file.values:
        return None, None, file.rows  # readers return null
    if kind != leaf.kind:
        return None, None, None
    low, high, nulls = entry_of(file.statistics, leaf.key, leaf.kind)
    return _value(low, leaf.kind, is_greatest=False), _value(high, leaf.kind, is_greatest=True), nulls


def _put(values: Json, path: Path, value: object) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _value(bound: Any, kind: pa.DataType, *, is_greatest: bool) -> Any:  # noqa: ANN401 - JSON
    """Return a bound of the log as JSON, or None if Delta cannot express it."""
    if bound is None:
        return None
    if pa.types.is_timestamp(kind):
        return _time_text(bound, is_greatest=is_greatest)
    if pa.types.is_date(kind):
        text = _text_of_ms(bound * 86_400_000)
        return text and text.partition("T")[0]
    if pa.types.is_decimal(kind):
        return msgspec.Raw(bound.encode())  # without an exponent, which delta-rs 1.6 reads as null
    return bound


def _time_text(microseconds: int, *, is_greatest: bool) -> str | None:
    """Return a time to the millisecond, as Delta has it, which is not greater, or with `is_greatest` not less."""
    milliseconds = microseconds // 1_000
    if is_greatest:
        milliseconds = -(-microseconds // 1_000)
    return _text_of_ms(milliseconds)


def _text_of_ms(milliseconds: int) -> str | None:
    """Return a time in UTC as text; None outside the years 1 to 9999."""
    try:
        time = _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f"{time.isoformat(timespec='milliseconds')}Z"
