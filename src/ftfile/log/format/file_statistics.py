"""The encoding of the statistics of the adds in a document."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any

from ftfile.core.bounds import BoundsColumn, bounds_column
from ftfile.core.logs import get_logger
from ftfile.log.format.column_coding import check_count, code_column, pack_json, unpack_json
from ftfile.log.format.model import Count, convert

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from ftfile.log.format.model import Entries

# The maximum bytes of the statistics of a compacted log, so that it stays below the limit of files.
RANGE_STATISTICS_MAX = 256 << 20

_UNKNOWN_COLUMN: tuple[Sequence[Any], ...] = ((), (), ())
_SCALARS = {bool, float, int, str, type(None)}

_log = get_logger(__name__)


class StatisticsColumns:
    """The statistics of adds, by column: loops over the values of a column are faster than loops over adds."""

    def __init__(self) -> None:
        self._count = 0  # of the adds in columns
        self._columns: dict[str, list[list[Any]]] = {}  # low bounds, high bounds and counts of nulls
        self._single: list[Entries] = []  # of the last adds, which are not in columns yet

    def append(self, entries: Entries) -> None:
        """Append the statistics of an add."""
        self._single.append(entries)

    def extend(self, other: StatisticsColumns, chosen: Sequence[bool] | None = None) -> None:
        """Append the statistics of chosen adds of another value, by default of all."""
        columns: dict[str, Iterable[Iterable[Any]]] = {**other.columns()}
        count = other._count
        if chosen is not None:
            count = sum(chosen)
            for name, column in columns.items():
                columns[name] = map(itertools.compress, column, itertools.repeat(chosen))
        self.extend_columns(columns, count)

    def part(self, start: int, end: int | None = None) -> StatisticsColumns:
        """Return the statistics of the adds at some positions."""
        part, at = StatisticsColumns(), slice(start, end)
        columns: dict[str, Iterable[Iterable[Any]]] = {}
        for name, column in self.columns().items():
            columns[name] = map(operator.itemgetter(at), column)
        part.extend_columns(columns, len(range(self._count)[at]))
        return part

    def columns(self) -> dict[str, list[list[Any]]]:
        """Return low bounds, high bounds and counts of nulls by the name of the column."""
        single, self._single = self._single, []
        added: dict[str, Iterable[Iterable[Any]]] = {}
        for name in dict.fromkeys(itertools.chain.from_iterable(single)):
            added[name] = bounds_column(map(operator.methodcaller("get", name), single))
        self.extend_columns(added, len(single))
        return self._columns

    def entries(self) -> Iterator[Entries]:
        """Yield the statistics of each add."""
        columns = self.columns()
        rows: list[Entries] = [{} for _ in range(self._count)]
        for name, column in columns.items():
            for row, *entry in zip(rows, *column, strict=True):
                if entry != [None, None, None]:
                    row[name] = tuple(entry)
        yield from rows

    def extend_columns(self, added: Mapping[str, Iterable[Iterable[Any]]], count: int) -> None:
        """Append the statistics of a number of adds, in columns; missing columns are unknown."""
        for name in added:
            if name not in self._columns:
                self._columns[name] = [[None] * self._count for _ in BoundsColumn._fields]
        for name, column in self._columns.items():
            for values, added_values in zip(column, added.get(name, _UNKNOWN_COLUMN), strict=True):
                values.extend(added_values or itertools.repeat(None, count))
        self._count += count


def pack_statistics(statistics: StatisticsColumns) -> dict[str, bytes]:
    """Return the streams of the columns that have any statistics, by name."""
    streams: dict[str, bytes] = {}
    for name, column in statistics.columns().items():
        if any(values.count(None) < len(values) for values in column):
            streams[name] = pack_json(list(map(_code_values, column)))
    return streams


def unpack_statistics(streams: Mapping[str, bytes], count: int) -> StatisticsColumns:
    """Return the statistics of the adds, given the streams of `pack_statistics`."""
    statistics = StatisticsColumns()
    statistics.extend_columns({name: unpack_bounds(stream, count) for name, stream in streams.items()}, count)
    return statistics


def keep_within_limit(statistics: Iterable[dict[str, bytes]]) -> list[dict[str, bytes]]:
    """Return the statistics of documents, without the last columns of the first documents if there are too many bytes.

    Older documents are first.
    """
    kept = [dict(streams) for streams in statistics]
    excess = sum(len(stream) for streams in kept for stream in streams.values()) - RANGE_STATISTICS_MAX
    if excess > 0:
        _log.warning(
            "the statistics of a compacted log have %d bytes more than its limit, %d: columns of the oldest files are "
            "dropped, so conditions on these columns read more files",
            excess,
            RANGE_STATISTICS_MAX,
        )
    for streams in kept:
        while streams and excess > 0:
            excess -= len(streams.popitem()[1])
    return kept


def _code_values(values: list[Any]) -> list[Any]:
    """Return the low bounds, the high bounds or the counts of a column."""
    kinds = {*map(type, values)}
    plain = values
    if not kinds <= _SCALARS:
        plain = [value if type(value) in _SCALARS else None for value in values]
    keys: list[Hashable] | None = None
    # Equal values of different types are different bounds, and so are both zeros.
    if (float in kinds or len(kinds - {type(None)}) > 1) and len(set(plain)) <= len(plain) // 2:
        keys = list(map(repr, plain))
    return code_column(plain, keys)


def unpack_bounds(stream: bytes, count: int) -> BoundsColumn:
    """Return the bounds of a column, given its stream of `pack_statistics`."""
    low, high, nulls = (_decode_values(coded, count) for coded in unpack_json(stream, list[Any]))
    return BoundsColumn(low, high, nulls)


def _decode_values(coded: object, count: int) -> list[Any]:
    kind, values, *indexes = convert(coded, list[Any], "statistics")
    if kind == "constant":
        return [values] * count
    items: list[Any] = convert(values, list[Any], "statistics")
    if kind == "dictionary":
        items = list(map(items.__getitem__, convert(indexes[0], list[Count], "statistics")))
    check_count("statistics", items, count)
    return items
