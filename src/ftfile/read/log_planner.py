"""The log as a stream: the planner of batches between two offsets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.options.typed import DirectoryFollowOptions
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.read.times import first_since
from ftfile.read.followed_columns import FollowedColumns
from ftfile.read.log_positions import (
    Beginning,
    InLog,
    InSnapshot,
    check_position,
    pin_behind,
    position_of,
    record_or_gone,
)
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ftfile.core.options.typed import FollowOptions
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.directory import DirectoryMarker
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.read.log_positions import Begun, Position


_Share = TypeVar("_Share")


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one plan; None is no limit."""

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowSettings:
    """Options of a follower."""

    starting_version: int | Literal["latest"] | None = None
    starting_time: datetime | None = None
    limits: BatchLimits = BatchLimits()
    skip_changes: bool = False

    @property
    def has_limits(self) -> bool:
        """Return True if a plan may stop at a limit before the end of the log."""
        return self.limits != BatchLimits()

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_time is not None:
            raise ConfigError(
                "startingVersion and startingTimestamp both select the first version: set only one of them"
            )

    @classmethod
    def from_options(cls, parsed: FollowOptions) -> FollowSettings:
        """Return the settings of the options; a ConfigError if they contradict each other."""
        limits = BatchLimits(parsed.max_files_per_trigger, parsed.max_bytes_per_trigger, parsed.max_rows_per_trigger)
        return cls(
            starting_version=parsed.starting_version,
            starting_time=parsed.starting_timestamp,
            limits=limits,
            skip_changes=isinstance(parsed, DirectoryFollowOptions) and parsed.skip_change_commits,
        )


class Unit(NamedTuple):
    """Adds of one version that one plan reads together."""

    place: int  # rises within the version; a position contains the place of the first unit that was not read
    adds: Sequence[Add]  # at least one


class Budget:
    """The number of files, bytes and rows that a plan may still take."""

    def __init__(self, limits: BatchLimits) -> None:
        self._files = _or_infinite(limits.files)
        self._size_bytes = _or_infinite(limits.size_bytes)
        self._rows = _or_infinite(limits.rows)

    def fits(self, adds: Sequence[Add]) -> bool:
        """Return True if the plan may take all of these adds; an empty sequence always fits."""
        if not adds:
            return True
        size_bytes, rows = _totals(adds)
        return len(adds) <= self._files and size_bytes <= self._size_bytes and rows <= self._rows

    def spend(self, adds: Sequence[Add]) -> None:
        """Subtract the adds that the plan takes, even if they exceed the limits."""
        size_bytes, rows = _totals(adds)
        self._files -= len(adds)
        self._size_bytes -= size_bytes
        self._rows -= rows


def _totals(adds: Iterable[Add]) -> tuple[int, int]:
    """Return the bytes and the rows of adds."""
    size_bytes, rows = 0, 0
    for add in adds:
        size_bytes += add.length
        rows += add.rows
    return size_bytes, rows


def _or_infinite(limit: int | None) -> float:
    if limit is None:
        return math.inf
    return limit


@dataclass
class LogPlan:
    """A plan that is being built."""

    position: Begun  # the end of the plan
    budget: Budget  # the remaining budget of the whole plan
    records: list[Record] = field(default_factory=list)  # records that the plan reads completely or in part
    # adds that the plan reads, each with a version at which it is live
    taken: list[tuple[int, Add]] = field(default_factory=list)

    def take_all(self, version: int, units: Iterable[Unit]) -> bool:
        """Take all units and return True. If they would exceed a limit, take no unit and return False."""
        adds = list(chain.from_iterable(unit.adds for unit in units))
        if not self.budget.fits(adds):
            return False
        self._take(version, adds)
        return True

    def take_first(self, version: int, units: Iterable[Unit]) -> int | None:
        """Take units up to the limits, and return the place of the next unit; a plan always takes its first unit."""
        for place, adds in units:
            if self.taken and not self.budget.fits(adds):
                return place
            self._take(version, adds)
        return None

    def _take(self, version: int, adds: Sequence[Add]) -> None:
        self.budget.spend(adds)
        self.taken += [(version, add) for add in adds]


class _RecordPart(NamedTuple):
    """A record with the range of its adds to read."""

    record: Record
    first: int
    stop: int | None  # None for the end of the record


class LogPlanner(ABC, Generic[_Share]):
    """Plans batches of new rows in one log for the columns that are read.

    State is only stored in Spark's checkpoint. `plan` may raise, since no batch depends on a position before Spark has
    written it. `shares` depends only on two positions and the log. A repeated batch therefore has the same rows.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, columns: pa.Schema) -> None:
        self._log = log
        self._settings = settings
        self._columns = FollowedColumns(log.refresh(), columns)
        self.head_version = -1  # at the last read of the log; -1 before the first record
        self._planned: Position | None = None  # the end of the last plan, whose files existed

    def refresh(self) -> LogState:
        """Return the log's state at its head, which is durable."""
        head = self._log.refresh(durable=True)
        self.head_version = head.version
        return head

    def plan(self, start: Position, end_version: int | None = None, *, limited: bool = True) -> Position:
        """Return the position at which the next batch ends; `start` itself if there is nothing to read.

        Versions after `end_version` are not read. If `limited`, the limits of the settings apply.

        Raises:
            AnotherLog: `start` belongs to another log.
            HistoryGone: versions or files that must be read were deleted.
            SchemaError: the next version has other columns than the columns that are read.
            ConfigError: the starting version does not exist.
        """
        head = self.refresh()
        if end_version is None:
            end = head.version
        else:
            end = min(end_version, head.version)
        if isinstance(start, Beginning):
            begin = _first_position(self._log, self._settings, head, end)
        else:
            check_position(self._log, head, start)
            begin = start.resume()
        if isinstance(begin, Beginning):
            return begin
        plan = LogPlan(begin, Budget(self._settings.limits if limited else BatchLimits()))
        if begin.snapshot is None or self._plan_snapshot(plan, begin.snapshot):
            self._plan_records(head, plan, begin.behind_snapshot(), end)
        if plan.position == begin:
            if isinstance(start, Beginning):
                return begin
            return start
        self._require_files(head, begin, plan)
        self._planned = plan.position
        return plan.position

    def shares(self, start: Position, end: Position) -> list[_Share]:
        """Return the shares between two positions, one for each task.

        Raises:
            AnotherLog: `end` belongs to another log.
            HistoryGone: versions that must be read were deleted; or files of a batch that another process planned.
        """
        if isinstance(end, Beginning) or start == end:
            return []
        head = self._log.refresh()
        check_position(self._log, head, end)
        if isinstance(start, Beginning):
            start = end.origin()
        first, last = start.snapshot, end.snapshot
        assert first is not None or last is None, f"{end} does not follow {start}"
        all_shares: list[_Share] = []
        if first is not None:
            all_shares += self._shares_of_snapshot(head, first, None if last is None else last.read)
        if last is None:
            all_shares += self._shares_of_records(head, start.behind_snapshot(), end.behind_snapshot())
        if end != self._planned:
            # Spark repeats a batch that an earlier process planned: vacuum may have run since.
            self._require_files(head, start, self._plan_again(head, start, end))
        return all_shares

    def _plan_again(self, head: LogState, start: Begun, end: Begun) -> LogPlan:
        """Return the plan between two positions."""
        plan = LogPlan(start, Budget(BatchLimits()))
        snapshot, last = start.snapshot, end.snapshot
        if snapshot is not None:
            for unit in self._units_of_snapshot(snapshot):
                if last is None or unit.place < last.read:
                    plan.take_all(snapshot.version, [unit])
        if last is None:
            for record, first, behind in self._records_between(head, start.behind_snapshot(), end.behind_snapshot()):
                for unit in self._units_of(record):
                    if first <= unit.place and (behind is None or unit.place < behind):
                        plan.take_all(record.version, [unit])
                plan.records.append(record)
        return plan

    def _plan_snapshot(self, plan: LogPlan, begin: InSnapshot) -> bool:
        """Take the remaining units of a snapshot, and return True if the limits allow all of them."""
        next_place = plan.take_first(begin.version, self._units_of_snapshot(begin))
        if next_place is None:
            plan.position = begin.behind_snapshot()
        else:
            plan.position = replace(begin, read=next_place)
        return next_place is None

    def _plan_records(self, head: LogState, plan: LogPlan, begin: InLog, end: int) -> None:
        """Take the units of each following record.

        A record that cannot be followed ends the plan before it. If it is the first record of the plan, its error is
        raised.
        """
        read = begin.read
        for version in range(begin.version + 1, end + 1):
            record = record_or_gone(self._log, head, version)
            refusal = None if read else self._refusal(record)
            if refusal is not None and plan.position == begin and not plan.taken:
                raise refusal
            if refusal is not None:
                return
            units = [unit for unit in self._units_of(record) if unit.place >= read]
            next_place = None
            if not plan.take_all(version, units):
                if plan.taken:
                    return
                next_place = plan.take_first(version, units)
            plan.records.append(record)
            if next_place is not None:
                plan.position = InLog(version=version - 1, nonce=record.nonce, read=next_place, first=begin.first)
                return
            plan.position, read = InLog(version=version, nonce=record.nonce, first=begin.first), 0

    def _records_between(self, head: LogState, start: InLog, end: InLog) -> Iterator[_RecordPart]:
        """Yield records, each with the first place to read and the place at which reading stops; None for the end."""
        for version in range(start.version + 1, end.version + 1 + (end.read > 0)):
            first = 0
            if version == start.version + 1:
                first = start.read
            last = None
            if version == end.version + 1:
                last = end.read
            yield _RecordPart(record_or_gone(self._log, head, version), first, last)

    def _definitions_of(self, head: LogState, records: Sequence[Record], adds: Iterable[Add]) -> dict[str, Any]:
        """Return the definitions of all encodings that the adds refer to.

        A record does not repeat definitions that the log already has, and the head drops definitions that were unused
        for long.
        """
        keys = {add.encoding for add in adds}
        definitions: dict[str, Any] = dict(head.definitions)
        for record in records:
            definitions.update(record.definitions)
        for record in records:
            missing = keys - definitions.keys()
            if any(add.encoding in missing for add in record.adds):
                definitions.update(take_snapshot(self._log, record.version).definitions)
        return definitions

    def _refusal(self, record: Record) -> Exception | None:
        """Return the error for a record that cannot be followed, or None."""
        change = self._columns.change_of(record)
        if change is not None:
            return SchemaError(change)
        return None

    @abstractmethod
    def _units_of(self, record: Record) -> Iterable[Unit]:
        """Return the units that are new in a record, in its order."""

    @abstractmethod
    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        """Return the remaining units of a snapshot, in the same order at every call."""

    @abstractmethod
    def _require_files(self, head: LogState, begin: Begun, plan: LogPlan) -> None:
        """Raise HistoryGone if files that a plan reads were deleted. Live files need no check."""

    @abstractmethod
    def _shares_of_snapshot(self, head: LogState, start: InSnapshot, behind: int | None) -> Iterable[_Share]:
        """Return the shares of a snapshot from a position up to a place, which is excluded; None for the end."""

    @abstractmethod
    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterable[_Share]:
        """Return the shares of the records between two positions."""


def _first_position(log: CommitLog, settings: FollowSettings, head: LogState, end: int) -> Position:
    """Return the start of a new follower whose first plan ends at version `end`.

    If nothing has been committed, the result can be `Beginning`.
    """
    if settings.starting_version == "latest":
        return pin_behind(log, head, end, end + 1)
    if settings.starting_time is not None:
        first = first_since(log, settings.starting_time)
        if first > head.version and settings.starting_time.timestamp() * 1000 > log.clock.now_ms():
            raise ConfigError(f"startingTimestamp={settings.starting_time.isoformat()} is in the future")
        return pin_behind(log, head, end, min(first, end + 1))
    if settings.starting_version is not None:
        if settings.starting_version > end + 1:
            newest = "nothing has been committed yet"
            if end >= 0:
                newest = f"the newest version is {end}"
            raise ConfigError(f"startingVersion={settings.starting_version}: {newest}")
        if settings.starting_version < head.log_start:
            oldest = f"the oldest version that vacuum has kept is {head.log_start}"
            raise ConfigError(f"startingVersion={settings.starting_version}: {oldest}")
        return pin_behind(log, head, end, settings.starting_version)
    if end >= 0:
        return InSnapshot(end, record_or_gone(log, head, end).nonce, 0)
    return Beginning()


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """A directory and the options of its follower. Plain data that is sent to tasks."""

    path: str
    key_provider: str | None
    storage: dict[str, str]
    schema_json: str  # schema of the columns that are read, as Spark's JSON
    settings: FollowSettings
    merge: str | None = None  # for a store: the option as the user gave it

    @classmethod
    def from_options(
        cls, parsed: FollowOptions, schema_json: str, example: str = "format('ftfile').load('/data/out')"
    ) -> FollowConfig:
        """Return the checked options; a ConfigError if they contradict each other or the path is missing."""
        path = normalise(parsed.required_path(f"the option `path` is missing, as in spark.readStream.{example}"))
        settings = FollowSettings.from_options(parsed)
        return cls(path, parsed.key_provider, parsed.options_with_prefix("storage"), schema_json, settings)


class LogStream(ABC, Generic[_Share]):
    """The position of one query in a log, in the process that Spark calls.

    Spark 4.0 and 4.1 request the newest offset without the end of the last batch. They pass that end only when they
    request its partitions, so the stream stores it: SPARK-55304.
    """

    def __init__(self) -> None:
        self.marker: DirectoryMarker | None = None  # marker of the directory, if any; read with the first shares
        self._position: Position = Beginning()
        self._planned: Position = Beginning()
        self._end_version: int | None = None

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset at which the next batch ends; `start` itself if there is nothing to read.

        The default of `start` is the end of the last shares.

        Raises:
            ConfigError: the directory is of another kind, or the starting version does not exist.
            SourceError, StaleFiles: the log cannot be followed from `start`.
            SchemaError: the next version has other columns than the columns that are read.
        """
        if start is None:
            begin = self._position
        else:
            begin = position_of(start)
        self._planned = self._open().plan(begin, self._end_version, limited=limited)
        return self._planned.to_offset()

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Share]:
        """Return the shares between two offsets, one for each task; the same rows at every call.

        Raises:
            SourceError, StaleFiles: the log cannot be read from `start` any more.
        """
        self._position = position_of(end)
        return self._open().shares(position_of(start), self._position)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: progress is only stored in Spark's checkpoint."""

    def stop_at_head(self) -> None:
        """Read no versions that are committed after this call."""
        self._end_version = self._open().refresh().version

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, and the number of versions after the last plan."""
        if isinstance(self._planned, Beginning):
            return None
        head = self._open().head_version
        return {"version": head, "versionsBehind": max(0, head - self._planned.version)}

    @abstractmethod
    def _open(self) -> LogPlanner[_Share]:
        """Return the planner of the log."""
