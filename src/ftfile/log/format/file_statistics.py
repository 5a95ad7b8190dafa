"""The encoding of the statistics of the adds in a document."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.bounds import BoundsColumn, bounds_column
from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.log.format.column_coding import check_count, code_column, pack_json, unpack_json
from ftfile.log.format.model import Count, convert
from ftfile.log.format.record import compact_json, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from ftfile.log.format.model import Entries

# The maximum bytes of the statistics of a compacted log, so that it stays below the limit of files.
RANGE_STATISTICS_MAX = 256 << 20
# Bytes of the first read, which contains the line and all columns of most documents of recent versions.
FIRST_READ_BYTES = 1 << 16

_UNKNOWN_COLUMN: tuple[Sequence[Any], ...] = ((), (), ())
_EXPECTED = "the statistics of a document"
_SCALARS = {bool, float, int, str, type(None)}

_log = get_logger(__name__)


class StatisticsPlace(NamedTuple):
    """The place of the statistics of a document in a compacted log."""

    offset: int
    length: int
    index_length: int  # of the line, at the start
    index_checksum: str


class _Stream(NamedTuple):
    """The stream of a column, after the streams of the previous columns."""

    length: Count
    checksum: str


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


def pack_statistics(statistics: StatisticsColumns) -> bytes:
    """Return the statistics of adds as bytes; no bytes if no add has any."""
    streams: dict[str, bytes] = {}
    for name, column in statistics.columns().items():
        if any(values.count(None) < len(values) for values in column):
            streams[name] = pack_json(list(map(_coded, column)))
    return _joined(streams)


def unpack_statistics(content: bytes, count: int) -> StatisticsColumns:
    """Return the statistics of the adds, given the bytes of `pack_statistics`."""
    statistics = StatisticsColumns()
    columns = {name: _column(stream, count) for name, stream in _streams(content).items()}
    statistics.extend_columns(columns, count)
    return statistics


def check_statistics(content: bytes, place: StatisticsPlace, path: str) -> bytes:
    """Return the bytes of `pack_statistics`, read from a place; CorruptData if they are damaged."""
    with Decoding(path, _EXPECTED):
        start = place.index_length
        for stream in _index_of(content[:start], place, path).values():
            _checked(content[start : start + stream.length], stream, path)
            start += stream.length
        if not start == place.length == len(content):
            raise CorruptData(path, f"{place.length} bytes of statistics", f"{start} bytes of statistics")
    return content


def read_bounds(
    read_at: Callable[[int, int], bytes], place: StatisticsPlace, count: int, names: Collection[str], path: str
) -> dict[str, BoundsColumn]:
    """Return the columns with these names. Only the line and these columns are read; CorruptData for damage."""
    columns: dict[str, BoundsColumn] = {}
    with Decoding(path, _EXPECTED):
        first = read_at(place.offset, min(place.length, max(place.index_length, FIRST_READ_BYTES)))
        start = place.index_length
        for name, stream in _index_of(first[:start], place, path).items():
            end = start + stream.length
            if name in names:
                content = first[start:end] if end <= len(first) else read_at(place.offset + start, stream.length)
                columns[name] = _column(_checked(content, stream, path), count)
            start = end
    return columns


def place_of(content: bytes, offset: int) -> StatisticsPlace:
    """Return the place of the bytes of `pack_statistics` at an offset."""
    line = content[: _index_length(content)]
    return StatisticsPlace(offset, len(content), index_length=len(line), index_checksum=checksum(line))


def within_limit(statistics: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the statistics of documents, without the last columns of the first documents if there are too many bytes.

    Older documents are first.
    """
    contents = list(statistics)
    excess = sum(map(len, contents)) - RANGE_STATISTICS_MAX
    if excess > 0:
        _log.warning(
            "the statistics of a compacted log have %d bytes more than its limit, %d: columns of the oldest files are "
            "dropped, so conditions on these columns read more files",
            excess,
            RANGE_STATISTICS_MAX,
        )
    for content in contents:
        shorter = content
        if excess > 0:
            shorter = _without_last(content, excess)
            excess -= len(content) - len(shorter)
        yield shorter


def _without_last(content: bytes, excess: int) -> bytes:
    """Return statistics with fewer columns, shorter by at least `excess` bytes if possible."""
    streams = _streams(content)
    shorter = content
    while streams and len(content) - len(shorter) < excess:
        streams.popitem()
        shorter = _joined(streams)
    return shorter


def _joined(streams: dict[str, bytes]) -> bytes:
    if not streams:
        return b""
    index: dict[str, _Stream] = {}
    for name, stream in streams.items():
        index[name] = _Stream(len(stream), checksum(stream))
    return b"".join((compact_json(index), b"\n", *streams.values()))


def _streams(content: bytes) -> dict[str, bytes]:
    streams: dict[str, bytes] = {}
    if content:
        start = _index_length(content)
        for name, stream in decode_json(content[:start], dict[str, _Stream]).items():
            streams[name] = content[start : start + stream.length]
            start += stream.length
    return streams


def _index_length(content: bytes) -> int:
    return content.index(b"\n") + 1


def _index_of(line: bytes, place: StatisticsPlace, path: str) -> dict[str, _Stream]:
    stream = _Stream(place.index_length, place.index_checksum)
    return decode_json(_checked(line, stream, path), dict[str, _Stream])


def _checked(content: bytes, stream: _Stream, path: str) -> bytes:
    if len(content) != stream.length or checksum(content) != stream.checksum:
        expected = f"{stream.length} bytes of statistics with {stream.checksum}"
        raise CorruptData(path, expected, f"{len(content)} bytes of statistics with {checksum(content)}")
    return content


def _coded(values: list[Any]) -> list[Any]:
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


def _column(stream: bytes, count: int) -> BoundsColumn:
    low, high, nulls = (_decoded(coded, count) for coded in unpack_json(stream, list[Any]))
    return BoundsColumn(low, high, nulls)


def _decoded(coded: object, count: int) -> list[Any]:
    kind, values, *indexes = convert(coded, list[Any], "statistics")
    if kind == "constant":
        return [values] * count
    items: list[Any] = convert(values, list[Any], "statistics")
    if kind == "dictionary":
        items = list(map(items.__getitem__, convert(indexes[0], list[Count], "statistics")))
    check_count("statistics", items, count)
    return items
