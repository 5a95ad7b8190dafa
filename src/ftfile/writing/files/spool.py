"""The spool of a task, which contains the segments of files that stay open."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import UnencodableRows
from ftfile.formats.api import LineFormat
from ftfile.log.format.model import NUMBER_MAX
from ftfile.rows.buffers import from_numpy, is_valid, values_of
from ftfile.writing.files.directories import in_sequence
from ftfile.writing.files.part_writer import EncodableRows, PartWriter, RowCollector
from ftfile.writing.files.segment_statistics import SEGMENTS_WITH_STATISTICS_MAX
from ftfile.writing.stage import StagedRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ftfile.writing.files.directories import DirectoryRows, Router
    from ftfile.writing.files.file_options import SinkConfig
    from ftfile.writing.files.rolling_rules import RollingSettings
    from ftfile.writing.messages import StagedSegment
    from ftfile.writing.stage import Stage, StagedFile


# Rows of a directory with fewer bytes in the spool are always spooled.
LARGE_BYTES_MIN = 4 << 20

_LEAST = np.iinfo(np.int64).min


class SpoolWriter:
    """Collects rows, sorts them by directory, and appends the rows of each directory to the spool.

    If a directory has half a part's bytes in the spool, its further rows are written to parts directly.
    """

    def __init__(
        self, config: SinkConfig, settings: RollingSettings, router: Router, stage: Stage, encodable: EncodableRows
    ) -> None:
        self._config = config
        self._chain = config.hidden_chain
        self._settings = settings
        self._stage = stage
        self._encodable = encodable
        self._codec = config.format.segments(config.file_schema)
        # Other formats decode the rows of segments, and collect the statistics of the part then.
        self._collects = isinstance(config.format, LineFormat)
        self._spool: StagedFile | None = None
        # Sorting needs the memory of the rows twice.
        self._collector = RowCollector(router, self._spool_routed, config.common.max_open_bytes // 2)
        self._parts = PartWriter(config, router, stage, encodable)
        # Rules that depend on single rows need every row in the spool.
        if settings.needs_spool:
            self._large_bytes = None
        else:
            self._large_bytes = max((settings.max_bytes or 0) // 2, LARGE_BYTES_MIN)
        self._spooled_bytes: dict[str, int] = {}
        self.segments: list[StagedSegment] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._collector.add(batch)

    def finish(self) -> None:
        """Append the remaining rows, and end the spool."""
        self._collector.flush()
        self._parts.finish()
        if self._spool is not None and self.segments:
            self._stage.end(self._spool)
        elif self._spool is not None:
            self._stage.drop(self._spool)  # no row could be encoded

    def _spool_routed(self, rows: pa.RecordBatch, directories: list[DirectoryRows]) -> None:
        rows, directories = self._without_large(rows, directories)
        if directories:
            if self._spool is None:
                self._spool = self._stage.create("spool")
            self._append(self._spool, rows, directories)

    def _without_large(
        self, rows: pa.RecordBatch, directories: list[DirectoryRows]
    ) -> tuple[pa.RecordBatch, list[DirectoryRows]]:
        """Write the rows of large directories to parts, and return the remaining rows by directory."""
        if self._large_bytes is None or max(self._spooled_bytes.values(), default=0) < self._large_bytes:
            return rows, directories
        small_keys, small_rows = [], []
        for directory in directories:
            directory_rows = rows.slice(directory.start, directory.rows)
            is_large = self._spooled_bytes.get(directory.key, 0) >= self._large_bytes
            if is_large and self._parts.has_room_for(directory.key):
                self._parts.write_rows(directory.key, directory_rows)
            else:
                small_keys.append(directory.key)
                small_rows.append(directory_rows)
        return _join_batches(small_keys, small_rows, rows.slice(0, 0))

    def _append(self, spool: StagedFile, rows: pa.RecordBatch, directories: list[DirectoryRows]) -> None:
        """Append rows.

        If a row is bad, the appended bytes are left without segments, and the good rows are appended again.

        Segments contain the rows in another order, so they do not show which rows were appended.
        """
        done, spooled_bytes = len(self.segments), dict(self._spooled_bytes)
        if not directories:
            return
        try:
            self._append_segments(spool, *_segments_of(rows, directories, self._settings))
        except UnencodableRows:
            del self.segments[done:]
            self._spooled_bytes = spooled_bytes
            self._append(spool, *self._without_bad(rows, directories))

    def _without_bad(
        self, rows: pa.RecordBatch, directories: list[DirectoryRows]
    ) -> tuple[pa.RecordBatch, list[DirectoryRows]]:
        """Pass the bad rows to `badRecords`, and return the remaining rows."""
        good_rows = []
        for directory in directories:
            good_rows.append(self._encodable.rows_to_encode(directory.key, rows.slice(directory.start, directory.rows)))
        return _join_batches([directory.key for directory in directories], good_rows, rows.slice(0, 0))

    def _append_segments(self, spool: StagedFile, rows: pa.RecordBatch, segments: list[_Segment]) -> None:
        counts = [segment.rows for segment in segments]
        starts = [0, *accumulate(counts)]
        # The driver would drop statistics of more segments.
        collects = self._collects and len(self.segments) + len(segments) <= SEGMENTS_WITH_STATISTICS_MAX
        for number, pieces in groupby(self._codec.encode(rows, counts), key=itemgetter(0)):
            directory_key, count, stats = segments[number]
            piece = StagedRange(spool, self._chain)
            for _, data in pieces:
                piece.write(data)
            place = len(self.segments)
            stats |= {"partition": self._stage.partition, "index": place}
            ended = piece.end(place, count, directory_key, stats)
            if collects:
                ended = replace(ended, statistics=self._statistics_of(rows.slice(starts[number], count)))
            self.segments.append(ended)
            self._spooled_bytes[directory_key] = self._spooled_bytes.get(directory_key, 0) + self.segments[-1].length

    def _statistics_of(self, rows: pa.RecordBatch) -> dict[str, tuple[Any, ...]]:
        from ftfile.rows.statistics.collector import Collector  # noqa: PLC0415 - many spools have no statistics

        collector = Collector(self._config.file_schema, self._config.encoding.get("statistics", ()))
        collector.update(rows)
        return collector.entries()


class _Segment(NamedTuple):
    """The rows of a directory that become one segment. They follow the rows of the previous segment."""

    directory_key: str
    rows: int
    stats: dict[str, Any]


def _join_batches(
    keys: list[str], batches: list[pa.RecordBatch], empty: pa.RecordBatch
) -> tuple[pa.RecordBatch, list[DirectoryRows]]:
    """Return the rows of directories as one batch, and the range of each. `empty` has the columns."""
    return pa.concat_batches([empty, *batches]), in_sequence(keys, [batch.num_rows for batch in batches])


def _segments_of(
    rows: pa.RecordBatch, directories: list[DirectoryRows], settings: RollingSettings
) -> tuple[pa.RecordBatch, list[_Segment]]:
    """Return the rows in the order of the files, and their division into segments."""
    counts = np.array([directory.rows for directory in directories], np.int64)
    owners = np.arange(len(directories))
    stats: list[dict[str, Any]] = [{} for _ in directories]
    if settings.finalize_column is not None:
        column = rows.column(settings.finalize_column)
        is_true = (values_of(column.cast(pa.uint8()), np.uint8) != 0) & is_valid(column)
        counts, owners, final = _cut_after(is_true, counts)
        stats = []
        for is_final in final.tolist():
            stats.append({"endsPart": True} if is_final else {})
        rows = rows.drop_columns([settings.finalize_column])
    if settings.event_column is not None and settings.event_us is not None:
        rows, counts, runs, stats = _windows(
            rows, settings.event_column, interval_us=settings.event_us, counts=counts, run_stats=stats
        )
        owners = owners[runs]
    keys = [directories[owner].key for owner in owners.tolist()]
    return rows, list(map(_Segment, keys, counts.tolist(), stats))


class _CutRuns(NamedTuple):
    """Runs of rows, split into segments."""

    counts: NDArray[np.int64]  # rows of each segment
    runs: NDArray[np.int64]  # the run of each segment
    is_final: NDArray[np.bool_]  # the segment ends a part


def _cut_after(final: NDArray[np.bool_], counts: NDArray[np.int64]) -> _CutRuns:
    """Split runs of rows after final rows. Return the rows and the run of each segment, and whether it ends a part."""
    bounds = np.cumsum(counts)
    ends = np.union1d(bounds, np.flatnonzero(final) + 1)
    return _CutRuns(np.diff(ends, prepend=0), np.searchsorted(bounds, ends), final[ends - 1])


class _WindowRows(NamedTuple):
    """Rows that are sorted by window, and their segments."""

    rows: pa.RecordBatch
    counts: NDArray[np.int64]  # rows of each segment
    runs: NDArray[np.int64]  # the run of each segment
    stats: list[dict[str, Any]]  # of each segment


def _windows(
    rows: pa.RecordBatch, name: str, interval_us: int, counts: NDArray[np.int64], run_stats: list[dict[str, Any]]
) -> _WindowRows:
    """Sort the rows of each run by window of event time. Rows without a time belong to the last window of their run.

    Windows start at multiples of the interval since 1970 UTC. `counts` contains the number of rows of each run. Return
    the rows, and for each segment its number of rows, its run, and its stats. The stats of a run describe its last row,
    so the segment with this row has them.
    """
    column = rows.column(name)
    # The log cannot store the lowest timestamp, so it is replaced by the next value.
    times = np.maximum(values_of(column.cast(pa.timestamp("us", column.type.tz)), np.int64), -NUMBER_MAX)
    valid, starts = is_valid(column), np.cumsum(counts) - counts
    windows = np.where(valid, times // interval_us, _LEAST)
    windows = np.where(valid, windows, np.repeat(np.maximum.reduceat(windows, starts), counts))
    last_windows = windows[starts + counts - 1]
    runs = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((windows, runs))  # stable, so rows of one window keep their order
    if np.any(order[1:] < order[:-1]):
        rows = rows.take(from_numpy(order, pa.int64()))
        windows, times, valid = windows[order], times[order], valid[order]
    begins = np.flatnonzero(np.concatenate(([True], (windows[1:] != windows[:-1]) | (runs[1:] != runs[:-1]))))
    low = np.minimum.reduceat(np.where(valid, times, NUMBER_MAX), begins).tolist()
    high = np.maximum.reduceat(np.where(valid, times, _LEAST), begins).tolist()
    runs, windows = runs[begins], windows[begins]
    spans: list[dict[str, Any]] = []
    for least, most, window in zip(low, high, windows.tolist(), strict=True):
        span: dict[str, Any] = {}
        if least <= most:
            span["eventTimeUs"] = [least, most]
            span["windowUs"] = [max(window * interval_us, -NUMBER_MAX), min((window + 1) * interval_us, NUMBER_MAX)]
        spans.append(span)
    has_last_row = (windows == last_windows[runs]).tolist()
    stats = []
    for run, event_times, is_last in zip(runs.tolist(), spans, has_last_row, strict=True):
        stats.append(run_stats[run] | event_times if is_last else event_times)
    return _WindowRows(rows, np.diff(begins, append=len(order)), runs, stats)
