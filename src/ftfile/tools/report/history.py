"""The versions that a log keeps, as columns small enough for millions; and the live files of the newest in numbers."""

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


# Consecutive pieces of a commit, in seconds; assembly and sync are parts of `write`.
STAGES = ("write", "prepare", "create", "publish")

# Packed together: as Python's numbers, a row takes six times as much.
ROWS_AT_ONCE = 4_096
COLUMNS = np.dtype(
    [
        *(("version", "i8"), ("time_ms", "i8"), ("rows", "i8")),
        ("size_bytes", "f8"),  # a sum of what records say, which need not be true: no integer of 64 bits holds all
        *(("files", "i8"), ("files_removed", "i8")),
        *((name, "i8") for name in ("bad_records", "task_retries", "recoveries", "replays", "orphans")),
        *((name, "f8") for name in ("write", "assembly", "sync", "prepare", "create", "publish")),
        # Of an earlier version, which this one tells about.
        *(("told_version", "i8"), ("told_create", "f8"), ("told_publish", "f8")),
    ]
)


@dataclass
class Commits:
    """The kept versions whose records can be read, oldest first.

    `columns` has a row for each, with the fields of `Version` and `VersionMetrics` that are numbers; times of tasks and
    the driver are in seconds. `create` and `publish` are NaN where no later version of the same process tells.
    """

    columns: np.ndarray
    operations: Counter[str] = field(default_factory=Counter)  # number of versions of each
    reasons: Counter[str] = field(default_factory=Counter)  # number of files that were open, by why they ended
    unreadable: int = 0  # number of kept versions whose records are damaged or missing

    def __len__(self) -> int:
        return len(self.columns)

    def seconds(self) -> np.ndarray:
        """Return the known seconds of each commit, from the first row to the last name."""
        total: np.ndarray = sum(np.nan_to_num(self.columns[name]) for name in STAGES)
        return total

    def pauses(self) -> np.ndarray:
        """Return the seconds since the version before; NaN for the first."""
        if not len(self):
            return np.empty(0)
        return np.diff(self.columns["time_ms"], prepend=np.nan) / 1000


class CommitColumns:
    """Takes in the records of a log, oldest first, and returns them as columns."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._operations, self._reasons = Counter[str](), Counter[str]()
        self._rows: list[tuple[float, ...]] = []
        self._pieces = [np.empty(0, COLUMNS)]
        self._last = -1

    def add(self, record: Record) -> None:
        """Take in a record; one that is not newer than the last begins the log again."""
        if record.version <= self._last:
            self._begin()
        self._last = record.version
        version, last_commit = version_of(record, None), last_commit_of(record)
        measured = version.metrics
        self._operations[version.operation] += 1
        self._reasons.update(measured.files_by_reason)
        self._rows.append(
            (
                *(version.version, version.time_ms, version.rows, version.size_bytes),
                *(version.files, version.files_removed, version.bad_records),
                *(measured.task_retries, measured.recoveries, measured.replays, measured.orphans),
                *(measured.write_seconds, measured.assembly_seconds, measured.sync_seconds),
                *(measured.prepare_seconds, np.nan, np.nan),
                *(last_commit or (-1, np.nan, np.nan)),
            )
        )
        if len(self._rows) == ROWS_AT_ONCE:
            self._pack()

    def _pack(self) -> None:
        self._pieces.append(np.array(self._rows, COLUMNS))
        self._rows = []

    def commits(self, log: CommitLog, newest: int) -> Commits:
        """Return the versions up to the newest that are still kept."""
        self._pack()
        columns, oldest = np.concatenate(self._pieces), log.refresh().log_start
        columns = columns[columns["version"] >= oldest]
        times = _times(log)
        columns["time_ms"] = [
            time_of(time_ms, times.get(version)) for version, time_ms in columns[["version", "time_ms"]].tolist()
        ]
        tells = columns[columns["told_version"] >= 0]
        at = np.searchsorted(columns["version"], tells["told_version"])
        # One that is not kept, or cannot be read, is passed over.
        is_there = columns["version"][np.minimum(at, len(columns) - 1)] == tells["told_version"]
        for name in ("create", "publish"):
            columns[name][at[is_there]] = tells[f"told_{name}"][is_there]
        unreadable = max(0, newest + 1 - oldest - len(columns))
        return Commits(columns, self._operations, self._reasons, unreadable)


def read_commits(log: CommitLog) -> Commits:
    """Return the versions that are kept; reads each record once, several at a time where that is faster."""
    columns, head = CommitColumns(), log.refresh()
    for _, record in LogScan(log).records(head.log_start, head.version):
        if record is not None:  # `verify` says what is wrong with it
            columns.add(record)
    return columns.commits(log, head.version)


def _times(log: CommitLog) -> dict[int, int]:
    """Return the modification times of records; one listing."""
    named = ((layout.parse_log_name(info.path), info.modified_ms) for info in list_or_empty(log.fs, layout.LOG))
    return {name.version: time_ms for name, time_ms in named if name is not None and name.nonce is None}


@dataclass
class DirectorySums:
    """The numbers of a directory, or of a bucket of a store."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass
class LiveFiles:
    """Finished files, or the runs of a store."""

    sizes: np.ndarray  # bytes on storage of each
    rows: int = 0  # in all of them
    directories: dict[str, DirectorySums] = field(default_factory=dict)  # by relative path; by bucket of a store

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all."""
        return int(self.sizes.sum(dtype=float))


def live_files_of(snapshot: Snapshot, *, is_store: bool) -> LiveFiles:
    """Return the numbers of the finished files of a snapshot, or of the runs of a store."""
    live_kind = "segment" if is_store else "part"
    sizes, directories = array("q"), defaultdict[str, DirectorySums](DirectorySums)
    for columns in live_columns(snapshot, ("kind", "lengthBytes", "rows", "directory")):
        for kind, size_bytes, rows, directory_key in zip(*columns, strict=True):
            if kind == live_kind:
                sizes.append(size_bytes)
                sums = directories[layout.directory_of(directory_key)]
                sums.files, sums.rows, sums.size_bytes = sums.files + 1, sums.rows + rows, sums.size_bytes + size_bytes
    return LiveFiles(np.array(sizes), sum(sums.rows for sums in directories.values()), directories)
