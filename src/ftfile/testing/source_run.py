"""Streams from a directory without a JVM: the real stream, called in the order of Spark 4.0 or of Spark 4.2.

`SourceRun` checks the invariants S1 and S8 during the run; `check_followed` checks S2 and S6 against the log.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import DirectoryFollowOptions
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.log.sealed import open_with_keys
from ftfile.read.log_planner import FollowConfig
from ftfile.read.log_positions import START, Beginning, InLog, InSnapshot, position_of
from ftfile.read.new_rows import FollowStream
from ftfile.read.shares import read_share
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.context import current
from ftfile.testing.log_check import require
from ftfile.testing.micro_batch import spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ftfile.log.format.model import Record
    from ftfile.read.log_positions import Begun, Position
    from ftfile.read.shares import Share
    from ftfile.storage.api import FileSystem


__all__ = ("OFFSET_BYTES_MAX", "Killed", "Moment", "SourceRun", "check_followed")


Row = dict[str, Any]
# `planned` is after the call of latestOffset, `committed` after the call of commit for the previous batch.
Moment = Literal["planned", "offsets written", "committed", "partitions asked", "rows read"]

# Spark writes offsets to its checkpoint, errors and progress reports, so they must be small.
OFFSET_BYTES_MAX = 256


class Killed(Exception):
    """The process of the stream was killed."""


@dataclass
class SourceRun:
    """A streaming query that reads a directory, its checkpoint, and the rows that an exactly-once sink received.

    For example::

        run = SourceRun("/data/out", {"id": "long"}, {"maxFilesPerTrigger": "1"})
        run.run()             # batches until there is nothing to read
        run.restart()         # a new process; the checkpoint stays
        run.rows              # of all batches
    """

    path: str  # of the directory
    columns: Mapping[str, Any]  # to read, as for `spark_schema`
    options: Mapping[str, str] = field(default_factory=dict)  # of the reader
    protocol: Literal["4.0", "4.2"] = "4.2"  # of Spark 4.0 and 4.1, or of Spark 4.2 and 4.3
    offsets: list[str] = field(default_factory=list)  # the end of each batch, as JSON
    commits: int = 0  # number of finished batches
    batches: dict[int, list[Row]] = field(default_factory=dict)  # the rows of each batch that the sink received
    # The ids of the adds, or of the ranges of files, that each batch read.
    adds: dict[int, list[str]] = field(default_factory=dict)
    kill_at: Moment | None = None  # the next batch dies at this moment
    # Called with the rows and the number of each batch, again if Spark repeats the batch.
    foreach_batch: Callable[[list[Row], int], object] | None = None
    _stream: Any = field(default=None, init=False)

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all batches that the sink received, in the order of batches."""
        rows: list[Row] = []
        for number in sorted(self.batches):
            rows += self.batches[number]
        return rows

    def restart(self) -> None:
        """Start a new process, which has only the checkpoint."""
        self._stream = None

    def run(self, batches_max: int = 1000, *, once: bool = False) -> int:
        """Run batches until there is nothing to read, and return their number.

        With `once`, one batch reads everything, without limits.
        """
        count = 0
        while count < batches_max and self.run_batch(once=once):
            count += 1
        return count

    def run_available(self) -> int:
        """Start a new process, run batches as `trigger(availableNow=True)` does, and return their number."""
        self.restart()
        stream = self.started()
        if self.protocol == "4.2":
            stream.stop_at_head()
        count = self.run(1 if self.protocol == "4.0" else 1000)
        self.restart()
        return count

    def run_batch(self, *, once: bool = False) -> bool:
        """Run the next batch and return True; False if there is nothing to read.

        Raises:
            Killed: at the moment `kill_at`.
        """
        stream = self.started()
        number = len(self.offsets)
        begin = START
        if self.offsets:
            begin = json.loads(self.offsets[-1])
        if self.protocol == "4.0":
            end = stream.latest_offset(limited=not once)
        else:
            end = stream.latest_offset(begin, limited=not once)
        text = json.dumps(end)
        require(len(text.encode()) <= OFFSET_BYTES_MAX, "S8", f"the offset {text} is too long")
        self._die("planned")
        if end == begin:
            return False
        self.offsets.append(text)
        self._die("offsets written")
        if number:
            self._commit(stream, begin)
            self._die("committed")
        self._run(stream, number)
        return True

    def started(self) -> Any:  # noqa: ANN401 - a stream of either kind
        """Return the stream; in a new process, after the calls with which Spark resumes a query."""
        if self._stream is None:
            stream = self._stream = self._new_stream()
            last = len(self.offsets) - 1
            if last >= self.commits:
                self._run(stream, last)
            elif self.protocol == "4.0" and self.offsets:
                end = json.loads(self.offsets[last])
                stream.shares(end, end)
        return self._stream

    def _new_stream(self) -> Any:  # noqa: ANN401
        return FollowStream(self.config(), current())

    def _commit(self, stream: Any, end: dict[str, Any]) -> None:  # noqa: ANN401
        """Do nothing: a stream that reads a directory of ftfile has no state to clean up."""

    def _run(self, stream: Any, number: int) -> None:  # noqa: ANN401
        start = START
        if number:
            start = json.loads(self.offsets[number - 1])
        shares = stream.shares(start, json.loads(self.offsets[number]))
        self._die("partitions asked")
        rows: list[Row] = []
        adds: list[str] = []
        for share in shares:
            rows += self._read(pickle.dumps(share))
            adds += self._ids(share)
        before = self.batches.setdefault(number, rows)
        require(sorted(before, key=repr) == sorted(rows, key=repr), "S1", f"batch {number} has other rows than before")
        require(self.adds.setdefault(number, adds) == adds, "S1", f"batch {number} reads other adds than before")
        self._die("rows read")
        if self.foreach_batch is not None:
            self.foreach_batch(rows, number)
        self.commits = number + 1

    def _ids(self, share: Any) -> list[str]:  # noqa: ANN401 - a share of either kind
        # A restore gives a file another id, by which a repeated batch may find it.
        return [layout.original_id(each.add.id) for each in share.ranges]

    def _read(self, shipped: bytes) -> list[Row]:
        """Read a share as in a separate process."""
        share: Share = pickle.loads(shipped)  # noqa: S301 - our own
        config = self.config()
        fs = open_with_keys(config.path, current(), config.key_provider, config.storage.items())
        rows: list[Row] = []
        for batch in read_share(fs, share, arrow_schema(config.schema_json)):
            rows += batch.to_pylist()
        return rows

    def config(self) -> Any:  # noqa: ANN401 - of either kind
        """Return the settings, parsed from the options again."""
        return FollowConfig.from_options(
            parse_options({"path": self.path} | dict(self.options), DirectoryFollowOptions), spark_schema(self.columns)
        )

    def _die(self, moment: Moment) -> None:
        if self.kill_at == moment:
            self.kill_at = None
            self.restart()
            raise Killed(moment)


def check_followed(fs: FileSystem, run: SourceRun) -> bool:
    """Check the batches of a stream that has read everything; return False if vacuum deleted the records for the check.

    - **S2** each offset names a version of the log
    - **S6** each add with new rows was read in one batch, and no other add was read

    Raises:
        InvariantViolation: S2 or S6 does not hold.
    """
    positions = [position_of(json.loads(offset)) for offset in run.offsets]
    log = CommitLog(fs)
    head = log.refresh()
    for position in positions:
        _check_named(log, head.log_start, position)
    counts = Counter(itertools.chain.from_iterable(run.adds.values()))
    twice = []
    for add_id, times in counts.items():
        if times > 1:
            twice.append(add_id)
    require(not twice, "S6", f"{twice} were read twice")
    began = _began_at(positions)
    # Deleted records can have added the segments whose remaining rows are in a kept record.
    if began is None or head.log_start > 0:
        return False
    expected: set[str] = set()
    first = None
    if isinstance(began, InLog):
        first = began.first
    if first is None:
        expected = set(map(layout.original_id, take_snapshot(log, began.version).adds))
        first = began.version + 1
    spools: set[str] = set()
    for record in read_records(log):
        if record.version >= first:
            expected |= _original(record, spools)
        for add in record.adds:
            spools.add(add.path)
    require(counts.keys() == expected, "S6", f"{expected ^ counts.keys()} were not read, or had no new rows")
    return True


def _began_at(positions: list[Position]) -> Begun | None:
    """Return the first position with a version; None if nothing was read."""
    for position in positions:
        if not isinstance(position, Beginning):
            return position
    return None


def _check_named(log: CommitLog, log_start: int, position: Position) -> None:
    if isinstance(position, Beginning) or position.version < 0:
        return
    if isinstance(position, InSnapshot):
        version = position.version
    else:
        version = position.version + (position.read > 0)
    record = log.read_record(version)
    if version >= log_start:
        require(record is not None and record.nonce == position.nonce, "S2", f"an offset names version {version}")


def _original(record: Record, spools: set[str]) -> set[str]:
    """Return the adds with new rows: not assembled from segments, and not the rest of an earlier segment."""
    if record.is_change or isinstance(record.author, MaintenanceAuthor):
        return set()
    original = set()
    for add in record.adds:
        if not add.ranges and add.path not in spools:
            original.add(add.id)
    return original
