"""A log as a stream: the end of the next batch, and the shares between two offsets, by both protocols of Spark."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.read.times import first_since
from ftfile.read.followed_columns import FollowedColumns
from ftfile.read.log_positions import (
    Beginning,
    InLog,
    InSnapshot,
    check_position,
    pinned_behind,
    position_of,
    record_or_gone,
)
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    import pyarrow as pa

    from ftfile.core.options import ParsedOptions
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.directory import DirectoryMarker
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.read.log_positions import Begun, Position


_Share = TypeVar("_Share")


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a plan reads; None is no limit."""

    files: int | None = None
    size_bytes: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """The options of a follower."""

    starting_version: int | Literal["latest"] | None = None
    starting_time: datetime | None = None
    limits: Limits = Limits()
    skip_changes: bool = False

    @property
    def has_limits(self) -> bool:
        """Return True if a plan may leave something to the next one."""
        return self.limits != Limits()

    def __post_init__(self) -> None:
        if self.starting_version is not None and self.starting_time is not None:
            raise ConfigError(
                "startingVersion and startingTimestamp both select the first version: set only one of them"
            )

    @classmethod
    def from_options(cls, parsed: ParsedOptions) -> FollowSettings:
        """Return the settings that the options name; a ConfigError where they contradict each other."""
        limits = Limits(parsed["maxFilesPerTrigger"], parsed["maxBytesPerTrigger"], parsed["maxRowsPerTrigger"])
        return cls(parsed["startingVersion"], parsed["startingTimestamp"], limits, parsed["skipChangeCommits"])


class Unit(NamedTuple):
    """Adds of one version that are read together, or not at all."""

    place: int  # rises within the version; a position in it is the place of the first unit that is left
    adds: Sequence[Add]  # at least one


class Budget:
    """The amount of files, bytes and rows that a plan may still take."""

    def __init__(self, limits: Limits) -> None:
        self._files = _or_infinite(limits.files)
        self._size_bytes = _or_infinite(limits.size_bytes)
        self._rows = _or_infinite(limits.rows)

    def fits(self, adds: Sequence[Add]) -> bool:
        """Return True if the plan may take all of these adds; an empty sequence always fits."""
        if not adds:
            return True
        return (
            len(adds) <= self._files
            and sum(add.length for add in adds) <= self._size_bytes
            and sum(add.rows for add in adds) <= self._rows
        )

    def spend(self, adds: Sequence[Add]) -> None:
        """Subtract adds that the plan takes, whether they fit or not."""
        self._files -= len(adds)
        self._size_bytes -= sum(add.length for add in adds)
        self._rows -= sum(add.rows for add in adds)


def _or_infinite(limit: int | None) -> float:
    return math.inf if limit is None else limit


@dataclass
class Plan:
    """A plan in the making."""

    position: Begun  # up to which it goes
    budget: Budget  # for all that it takes
    records: list[Record] = field(default_factory=list)  # that are read, whole or in part
    taken: list[tuple[int, Add]] = field(default_factory=list)  # that are read, each with a version at which it is live

    def take_all(self, version: int, units: Iterable[Unit]) -> bool:
        """Take all units and return True, or none if that would pass a limit."""
        adds = [add for unit in units for add in unit.adds]
        if not self.budget.fits(adds):
            return False
        self._take(version, adds)
        return True

    def take_first(self, version: int, units: Iterable[Unit]) -> int | None:
        """Take units as far as the limits allow, the first of a plan always; return the place of the first left."""
        for place, adds in units:
            if self.taken and not self.budget.fits(adds):
                return place
            self._take(version, adds)
        return None

    def _take(self, version: int, adds: Sequence[Add]) -> None:
        self.budget.spend(adds)
        self.taken += [(version, add) for add in adds]


class LogPlanner(ABC, Generic[_Share]):
    """Plans batches of what is new in one log, with the columns that are read.

    Only Spark's checkpoint holds state. `plan` may raise, since no batch depends on a position before Spark has written
    it. `shares` depends only on two positions and the log, so that a repeated batch has the same rows.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, columns: pa.Schema) -> None:
        self._log = log
        self._settings = settings
        self._columns = FollowedColumns(log.refresh(), columns)
        self.head_version = -1  # when last read; -1 before the first record

    def refresh(self) -> LogState:
        """Return the log's state at its head, which is durable."""
        head = self._log.refresh(durable=True)
        self.head_version = head.version
        return head

    def plan(self, start: Position, end_version: int | None = None, *, limited: bool = True) -> Position:
        """Return the position up to which a batch reads; `start` itself if there is nothing to read.

        It reads no version behind `end_version`, and if `limited`, keeps to the limits of the settings.

        Raises:
            AnotherLog: the log is not the one that `start` is of.
            HistoryGone: versions or files that are to be read are gone.
            SchemaError: the next version has other columns than are read.
            ConfigError: there is no such version to begin with.
        """
        head = self.refresh()
        end = head.version if end_version is None else min(end_version, head.version)
        if isinstance(start, Beginning):
            begin = _first_position(self._log, self._settings, head, end)
        else:
            check_position(self._log, head, start)
            begin = start.resumed()
        if isinstance(begin, Beginning):
            return begin
        plan = Plan(begin, Budget(self._settings.limits if limited else Limits()))
        if begin.snapshot is None or self._plan_snapshot(plan, begin.snapshot):
            self._plan_records(head, plan, begin.behind_snapshot(), end)
        if plan.position == begin:
            return begin if isinstance(start, Beginning) else start
        self._require_files(head, begin, plan)
        return plan.position

    def shares(self, start: Position, end: Position) -> list[_Share]:
        """Return the shares of all that lies between two positions, one for each task.

        Raises:
            AnotherLog: the log is not the one that `end` is of.
            HistoryGone: versions that are to be read are not kept any more.
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
        return all_shares

    def _plan_snapshot(self, plan: Plan, begin: InSnapshot) -> bool:
        """Take what is left of a snapshot, and return True if the limits allow all of it."""
        next_place = plan.take_first(begin.version, self._units_of_snapshot(begin))
        plan.position = begin.behind_snapshot() if next_place is None else replace(begin, read=next_place)
        return next_place is None

    def _plan_records(self, head: LogState, plan: Plan, begin: InLog, end: int) -> None:
        """Go on record by record; what cannot be read ends the plan before it, or is raised if nothing comes before."""
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
                plan.position = InLog(version - 1, record.nonce, next_place, begin.first)
                return
            plan.position, read = InLog(version, record.nonce, first=begin.first), 0

    def _records_between(self, head: LogState, start: InLog, end: InLog) -> Iterator[tuple[Record, int, int | None]]:
        """Yield records, each with the places from which on and before which it is read; None for all behind."""
        for version in range(start.version + 1, end.version + 1 + (end.read > 0)):
            first = start.read if version == start.version + 1 else 0
            last = end.read if version == end.version + 1 else None
            yield record_or_gone(self._log, head, version), first, last

    def _definitions_of(self, head: LogState, records: Sequence[Record], adds: Iterable[Add]) -> dict[str, Any]:
        """Return the definitions of encodings that records refer to, or brought.

        A record repeats no definition that the log has, and the head forgets those that nobody has used for long.
        """
        keys = {add.encoding for add in adds}
        definitions: dict[str, Any] = dict(head.definitions)
        for record in records:
            definitions.update(record.definitions)
        for record in records:
            if any(add.encoding in keys - definitions.keys() for add in record.adds):
                definitions.update(take_snapshot(self._log, record.version).definitions)
        return definitions

    def _refusal(self, record: Record) -> Exception | None:
        """Return why a record cannot be followed, or None."""
        change = self._columns.change_of(record)
        return SchemaError(change) if change is not None else None

    @abstractmethod
    def _units_of(self, record: Record) -> Iterable[Unit]:
        """Return the units that are new in a record, in its order."""

    @abstractmethod
    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        """Return the units that are left to read of a snapshot, in an order that stays."""

    @abstractmethod
    def _require_files(self, head: LogState, begin: Begun, plan: Plan) -> None:
        """Raise HistoryGone if files that a plan reads are deleted already; the log tells of all that are live."""

    @abstractmethod
    def _shares_of_snapshot(self, head: LogState, start: InSnapshot, behind: int | None) -> Iterable[_Share]:
        """Return the shares of a snapshot from a position on, and before a place; None for all."""

    @abstractmethod
    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterable[_Share]:
        """Return the shares of the records between two positions."""


def _first_position(log: CommitLog, settings: FollowSettings, head: LogState, end: int) -> Position:
    """Return the start of a new follower whose first plan ends at version `end`; it stays new before the first one."""
    if settings.starting_version == "latest":
        return pinned_behind(log, head, end, end + 1)
    if settings.starting_time is not None:
        first = first_since(log, settings.starting_time)
        if first > head.version and settings.starting_time.timestamp() * 1000 > log.clock.now_ms():
            raise ConfigError(f"startingTimestamp={settings.starting_time.isoformat()} is in the future")
        return pinned_behind(log, head, end, min(first, end + 1))
    if settings.starting_version is not None:
        if settings.starting_version > end + 1:
            newest = f"the newest version is {end}" if end >= 0 else "nothing has been committed yet"
            raise ConfigError(f"startingVersion={settings.starting_version}: {newest}")
        if settings.starting_version < head.log_start:
            oldest = f"the oldest version that vacuum has kept is {head.log_start}"
            raise ConfigError(f"startingVersion={settings.starting_version}: {oldest}")
        return pinned_behind(log, head, end, settings.starting_version)
    return InSnapshot(end, record_or_gone(log, head, end).nonce, 0) if end >= 0 else Beginning()


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """A directory and the options with which it is followed. It is plain data, which travels to tasks."""

    path: str
    key_provider: str | None
    storage: dict[str, str]
    schema_json: str  # Spark's, of the columns that are read
    settings: FollowSettings
    merge: str | None = None  # of a store, as its user gives it

    @classmethod
    def from_options(
        cls, parsed: ParsedOptions, schema_json: str, example: str = "format('ftfile').load('/data/out')"
    ) -> FollowConfig:
        """Return the checked options; a ConfigError where they contradict each other, or name no path."""
        if parsed["path"] is None:
            raise ConfigError(f"the option `path` is missing, as in spark.readStream.{example}")
        settings = FollowSettings.from_options(parsed)
        path = normalise(parsed["path"])
        return cls(path, parsed["keyProvider"], parsed.prefixed("storage"), schema_json, settings)


class LogStream(ABC, Generic[_Share]):
    """The position of one query in a log, in the process that Spark asks.

    Spark 4.0 and 4.1 ask for the newest offset without saying where the last batch ended, and tell that by asking for
    its partitions: the stream remembers it.
    """

    def __init__(self) -> None:
        self.marker: DirectoryMarker | None = None  # of the directory, if it has one; known with the first shares
        self._position: Position = Beginning()
        self._planned: Position = Beginning()
        self._end_version: int | None = None

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset up to which the next batch reads; `start` itself if there is nothing to read.

        It begins, by default, where the last shares ended.

        Raises:
            ConfigError: the directory is of another kind, or there is no such version to begin with.
            SourceError, StaleFiles: the log cannot be followed from there.
            SchemaError: the next version has other columns than are read.
        """
        begin = self._position if start is None else position_of(start)
        self._planned = self._open().plan(begin, self._end_version, limited=limited)
        return self._planned.to_offset()

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[_Share]:
        """Return the shares between two offsets, one for each task; the same rows at every call.

        Raises:
            SourceError, StaleFiles: the log cannot be read from there any more.
        """
        self._position = position_of(end)
        return self._open().shares(position_of(start), self._position)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: what was read is in Spark's checkpoint alone."""

    def stop_at_head(self) -> None:
        """Read nothing that is committed from now on."""
        self._end_version = self._open().refresh().version

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, and how many follow those that were planned."""
        if isinstance(self._planned, Beginning):
            return None
        head = self._open().head_version
        return {"version": head, "versionsBehind": max(0, head - self._planned.version)}

    @abstractmethod
    def _open(self) -> LogPlanner[_Share]:
        """Return the planner of the log."""
