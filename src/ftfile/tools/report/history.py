"""The kept versions of a log as packed columns, and totals of the newest version's files."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ftfile.log.format import layout
from ftfile.log.places import list_or_empty
from ftfile.log.read.history import last_commit_of, version_of
from ftfile.log.read.snapshot import live_columns
from ftfile.log.read.times import time_of
from ftfile.operate.verify.log_scan import LogScan

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record
    from ftfile.log.read.snapshot import Snapshot


# The columns with the seconds of the consecutive stages of a commit. Assembly and sync are parts of `write`.
STAGES = ("write", "prepare", "create", "publish")

# Number of rows that are packed into an array at once. Rows of Python numbers need six times the memory of an array.
ROWS_AT_ONCE = 4_096
COLUMNS = np.dtype(
    [
        ("version", "i8"),
        ("time_ms", "i8"),
        ("rows", "i8"),
        ("size_bytes", "f8"),  # a sum of values in records, which can be wrong, so that the sum exceeds 64 bits
        ("files", "i8"),
        ("files_removed", "i8"),
        ("bad_records", "i8"),
        ("task_retries", "i8"),
        ("recoveries", "i8"),
        ("replays", "i8"),
        ("orphans", "i8"),
        ("write", "f8"),
        ("assembly", "f8"),
        ("sync", "f8"),
        ("prepare", "f8"),
        ("create", "f8"),
        ("publish", "f8"),
        # An earlier commit of the same process, and its last times, which the record of that commit cannot contain.
        ("earlier_version", "i8"),
        ("earlier_create", "f8"),
        ("earlier_publish", "f8"),
    ]
)


@dataclass(kw_only=True)
class Commits:
    """The kept versions with readable records, oldest first.

    `columns` has one row for each version, with the numeric fields of `Version` and `VersionMetrics`; times of tasks
    and the driver are in seconds. `create` and `publish` are NaN if no later version of the same process contains them.
    """

    columns: np.ndarray
    operations: Counter[str] = field(default_factory=Counter)  # number of versions of each operation
    reasons: Counter[str] = field(default_factory=Counter)  # number of ended open files, by the reason of their end
    unreadable: int = 0  # number of kept versions with damaged or missing records

    def __len__(self) -> int:
        return len(self.columns)

    def seconds(self) -> np.ndarray:
        """Return the seconds of each commit, from its first row to its publication. Unknown stages count as 0."""
        total: np.ndarray = sum(np.nan_to_num(self.columns[name]) for name in STAGES)
        return total

    def pauses(self) -> np.ndarray:
        """Return the seconds since the previous version; NaN for the first version."""
        if not len(self):
            return np.empty(0)
        return np.diff(self.columns["time_ms"], prepend=np.nan) / 1000


class CommitColumns:
    """Collects the records of a log, oldest first, as columns."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._operations, self._reasons = Counter[str](), Counter[str]()
        self._rows: list[tuple[float, ...]] = []
        self._pieces = [np.empty(0, COLUMNS)]
        self._last = -1

    def add(self, record: Record) -> None:
        """Add a record. If its version is not newer than the version of the last record, drop all earlier records."""
        if record.version <= self._last:
            self._begin()
        self._last = record.version
        version = version_of(record, None)
        measured = version.metrics
        earlier_version, earlier_create, earlier_publish = last_commit_of(record) or (-1, np.nan, np.nan)
        self._operations[version.operation] += 1
        self._reasons.update(measured.files_by_reason)
        self._rows.append(
            (
                version.version,
                version.time_ms,
                version.rows,
                version.size_bytes,
                version.files,
                version.files_removed,
                version.bad_records,
                measured.task_retries,
                measured.recoveries,
                measured.replays,
                measured.orphans,
                measured.write_seconds,
                measured.assembly_seconds,
                measured.sync_seconds,
                measured.prepare_seconds,
                np.nan,  # `create` and `publish`: a later record contains them
                np.nan,
                earlier_version,
                earlier_create,
                earlier_publish,
            )
        )
        if len(self._rows) == ROWS_AT_ONCE:
            self._pack()

    def _pack(self) -> None:
        self._pieces.append(np.array(self._rows, COLUMNS))
        self._rows = []

    def commits(self, log: CommitLog, newest: int) -> Commits:
        """Return the versions up to `newest` that are still kept."""
        self._pack()
        oldest = log.refresh().log_start
        columns = np.concatenate(self._pieces)
        columns = columns[columns["version"] >= oldest]
        times = _times(log)
        commit_times = []
        for version, time_ms in zip(columns["version"].tolist(), columns["time_ms"].tolist(), strict=True):
            commit_times.append(time_of(time_ms, times.get(version)))
        columns["time_ms"] = commit_times
        later = columns[columns["earlier_version"] >= 0]
        places = np.searchsorted(columns["version"], later["earlier_version"])
        # Times of a version that is not kept, or cannot be read, are skipped.
        is_kept = columns["version"][np.minimum(places, len(columns) - 1)] == later["earlier_version"]
        for name in ("create", "publish"):
            columns[name][places[is_kept]] = later[f"earlier_{name}"][is_kept]
        unreadable = max(0, newest + 1 - oldest - len(columns))
        return Commits(columns=columns, operations=self._operations, reasons=self._reasons, unreadable=unreadable)


def read_commits(log: CommitLog) -> Commits:
    """Return the kept versions. Reads each record once, and several records in parallel if that is faster."""
    columns = CommitColumns()
    head = log.refresh()
    for _, record in LogScan(log).records(head.log_start, head.version):
        if record is not None:  # `verify` reports the damage
            columns.add(record)
    return columns.commits(log, head.version)


def _times(log: CommitLog) -> dict[int, int]:
    """Return the modification times of records; lists the log once."""
    times = {}
    for info in list_or_empty(log.fs, layout.LOG):
        name = layout.parse_log_name(info.path)
        if name is not None and name.nonce is None:
            times[name.version] = info.modified_ms
    return times


@dataclass
class DirectorySums:
    """Totals of a directory, or of a bucket of a store."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass
class LiveFiles:
    """The finished files of a directory, or the runs of a store."""

    sizes: np.ndarray  # stored bytes of each file
    rows: int = 0  # in all files
    directories: dict[str, DirectorySums] = field(default_factory=dict)  # by relative path, or by bucket of a store

    @property
    def size_bytes(self) -> int:
        """Return the stored bytes of all files."""
        return int(self.sizes.sum(dtype=float))


def live_files_of(snapshot: Snapshot, *, is_store: bool) -> LiveFiles:
    """Return the sizes and totals of the finished files of a snapshot, or of the runs of a store."""
    live_kind = "segment" if is_store else "part"
    sizes = array("q")
    directories = defaultdict[str, DirectorySums](DirectorySums)
    for columns in live_columns(snapshot, ("kind", "lengthBytes", "rows", "directory")):
        for kind, size_bytes, rows, directory_key in zip(*columns, strict=True):
            if kind == live_kind:
                sizes.append(size_bytes)
                sums = directories[layout.directory_of(directory_key)]
                sums.files += 1
                sums.rows += rows
                sums.size_bytes += size_bytes
    total_rows = sum(sums.rows for sums in directories.values())
    return LiveFiles(np.array(sizes), total_rows, directories)
