"""Planning: up to where a batch of changes reads, and which shares lie between two positions.

`plan` may refuse. `shares` depends on two positions and the log alone, so that a batch that is repeated has the rows
that it had. A position within a version counts buckets: those with a lesser number were read.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.follow.beginning import begin_at, origin_of
from ftfile.attempt.follow.columns import FollowedColumns
from ftfile.attempt.follow.continuity import check_position, required_record
from ftfile.attempt.follow.definitions import definitions_of
from ftfile.attempt.follow.offsets import Beginning, InLog, InSnapshot
from ftfile.attempt.follow.settings import Budget, Limits
from ftfile.commit.read.snapshot import take_snapshot
from ftfile.core.errors import ConfigError, HistoryGone, NotFound, SchemaError, StaleFiles
from ftfile.fs.calls.parallel import parallel
from ftfile.kv.definition import BUCKETS_MAX
from ftfile.kv.feed.versions import Change, Share, applied, by_bucket, change_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from ftfile.attempt.follow.offsets import Position
    from ftfile.attempt.follow.settings import FollowSettings
    from ftfile.commit.format.model import Add, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("FeedPlanner",)

_TASK_BYTES = 32 << 20  # of new runs that a task reads
_ADVICE = (
    "What changed there is lost for this query: start it with a new checkpointLocation, which begins with all rows of "
    "the newest version. Changes can be read for the `grace` of the store's writers: make that longer than a query may "
    "rest"
)


class FeedPlanner:
    """Plans batches of changes of one store.

    Args:
        log: of the store.
        settings: of the follower.
        stored: the columns of the store as they are read: keys, then values.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, stored: pa.Schema) -> None:
        self._log = log
        self._settings = settings
        self._columns = FollowedColumns(log.read_on(), stored)
        self._live = _LiveRuns(log)
        self.head_version = -1  # when last read

    def read_on(self) -> LogState:
        """Return the log's state at its head, which is durable."""
        head = self._log.read_on(durable=True)
        self.head_version = head.version
        return head

    def plan(self, start: Position, end_version: int | None = None, *, limited: bool = True) -> Position:
        """Return the position up to which a batch reads; `start` itself if there is nothing to read.

        Args:
            start: where it begins.
            end_version: read no later version; by default all of the log.
            limited: keep to the limits of the settings.

        Raises:
            AnotherLog: the log is not the one that `start` is of.
            StaleFiles: versions or runs that are to be read are gone.
            SchemaError: the next version has other columns than are read.
            ConfigError: there is no such version to begin with.
        """
        head = self.read_on()
        end = head.version if end_version is None else min(end_version, head.version)
        with _advising():
            check_position(self._log, head, start)
            begin = begin_at(self._log, self._settings, head, end, start)
            if isinstance(start, InLog):
                begin = replace(start, first=None)
            plan = _Plan(Budget(self._settings.limits if limited else Limits()), begin)
            if isinstance(plan.position, InSnapshot):
                self._plan_snapshot(plan, plan.position)
            if isinstance(plan.position, InLog):
                self._plan_records(head, plan, plan.position, end)
            if plan.position == begin:
                return begin if isinstance(start, Beginning) else start
            self._require_files(head, begin, plan)
        return plan.position

    def shares(self, start: Position, end: Position) -> list[Share]:
        """Return the changes between two positions as shares, one for each task.

        Raises:
            AnotherLog: the log is not the one that `end` is of.
            StaleFiles: versions that are to be read are not kept any more.
        """
        if isinstance(end, Beginning) or start == end:
            return []
        head = self._log.read_on()
        with _advising():
            check_position(self._log, head, end)
            if isinstance(start, Beginning):
                start = origin_of(end)
            found: list[Share] = []
            if isinstance(start, InSnapshot):
                record = required_record(self._log, head, start.version)
                live = self._live.at(start.version)
                last = end.read if isinstance(end, InSnapshot) else BUCKETS_MAX
                whole = Change(record.version, record.time_ms, (*live.values(),), (), "all", (start.read, last))
                found = _shares({}, [whole], self._live.definitions)
                start = InLog(start.version, start.nonce)
            if isinstance(end, InLog):
                found += self._shares_of_records(head, start, end)
            return found

    def shares_of_version(self, version: int) -> list[Share]:
        """Return the changes of one version, as `shares` does."""
        head = self._log.read_on()
        with _advising():
            return self._shares_of_records(head, InLog(version - 1, ""), InLog(version, ""))

    def _plan_snapshot(self, plan: _Plan, begin: InSnapshot) -> None:
        buckets = by_bucket(self._live.at(begin.version).values())
        for number, adds in buckets.items():
            if number >= begin.read and not plan.take(adds):
                plan.position = replace(begin, read=number)
                return
        plan.position = InLog(begin.version, begin.nonce)

    def _plan_records(self, head: LogState, plan: _Plan, begin: InLog, end: int) -> None:
        """Go on record by record; what cannot be read ends the plan before it, or is raised if nothing comes before."""
        read = begin.read
        for version in range(begin.version + 1, end + 1):
            record = required_record(self._log, head, version)
            refusal = None if read else self._columns.change_of(record)
            if refusal is not None and plan.position == begin and plan.is_empty:
                raise SchemaError(refusal)
            if refusal is not None:
                return
            buckets = by_bucket(change_of(record, (0, BUCKETS_MAX)).new_runs)
            left = {number: adds for number, adds in buckets.items() if number >= read}
            if not plan.take_all(left):
                if not plan.is_empty:
                    return
                for number, adds in left.items():
                    if not plan.take(adds):
                        plan.position = InLog(version - 1, record.nonce, number, begin.first)
                        plan.records.append(record)
                        return
            plan.records.append(record)
            plan.position, read = InLog(version, record.nonce, first=begin.first), 0

    def _require_files(self, head: LogState, begin: Position, plan: _Plan) -> None:
        """Raise StaleFiles if runs that were merged since are deleted already; the log tells of all others."""
        assert not isinstance(begin, Beginning)
        adds = [*self._live.at(begin.version).values(), *(add for record in plan.records for add in record.adds)]
        paths = {add.path for add in adds if add.id not in head.segments}
        try:
            parallel(self._log.fs, self._log.fs.stat, sorted(paths))
        except NotFound as error:
            raise HistoryGone(f"{error.path!r} is to be read, and vacuum has deleted it") from error

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> list[Share]:
        records = []
        changes: list[Change] = []
        for version in range(start.version + 1, end.version + 1 + (end.read > 0)):
            records.append(required_record(self._log, head, version))
            first = start.read if version == start.version + 1 else 0
            last = end.read if version == end.version + 1 else BUCKETS_MAX
            changes.append(change_of(records[-1], (first, last)))
        if not records:
            return []
        live = self._live.at(start.version)
        keys = {add.encoding for change in changes for add in change.adds}
        known = self._live.definitions | definitions_of(self._log, head, records, keys)
        found = _shares(live, changes, known)
        for change in changes:
            live = applied(live, change)
        self._live.keep(records[-1].version, live, known)
        return found


class _Plan:
    """A plan in the making: how far it goes, and what it takes."""

    def __init__(self, budget: Budget, position: Position) -> None:
        self.position = position
        self.is_empty = True
        self.records: list[Record] = []
        self._budget = budget

    def take(self, adds: list[Add]) -> bool:
        """Take the runs of a bucket; the first ones always."""
        taken = self._budget.take(adds, always=self.is_empty)
        self.is_empty = self.is_empty and not taken
        return taken

    def take_all(self, buckets: Mapping[int, list[Add]]) -> bool:
        """Take the runs of all buckets and return True, or none of them."""
        adds = [add for own in buckets.values() for add in own]
        taken = self._budget.take(adds)
        self.is_empty = self.is_empty and not (taken and adds)
        return taken


class _LiveRuns:
    """The live runs of the version that was asked for last."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version = -1
        self._adds: dict[str, Add] = {}
        self.definitions: dict[str, Any] = {}

    def at(self, version: int) -> dict[str, Add]:
        """Return the live runs of a version by id; none before the first."""
        if version < 0:
            return {}
        if version != self._version:
            try:
                snapshot = take_snapshot(self._log, version)
            except ConfigError as error:
                raise HistoryGone(f"version {version} is to be compared with the next one: {error}") from error
            self._adds = {add.id: add for add in snapshot.adds.values() if add.kind == "segment"}
            self._version, self.definitions = version, snapshot.definitions
        return self._adds

    def keep(self, version: int, adds: dict[str, Add], definitions: dict[str, Any]) -> None:
        """Note the live runs of a version, which is likely to be asked for next."""
        self._version, self._adds, self.definitions = version, adds, definitions


@contextmanager
def _advising() -> Iterator[None]:
    try:
        yield
    except HistoryGone as error:
        raise StaleFiles(f"{str(error).split('. What was')[0]}. {_ADVICE}") from error


def _shares(live: Mapping[str, Add], changes: list[Change], definitions: Mapping[str, Any]) -> list[Share]:
    """Return shares of about equal size, each with neighbouring buckets in all versions."""
    everything = [*live.values(), *(add for change in changes for add in change.adds)]
    if not everything:
        return []
    newest = max(everything, key=lambda add: tuple(add.rolling_stats["at"]))
    definition = definitions[newest.encoding]["store"]
    size_bytes = {number: _cost(adds, changes) for number, adds in by_bucket(everything).items()}
    found = []
    for numbers in _groups(size_bytes):
        own = _of_buckets(live.values(), numbers)
        ids = {add.id for add in own}
        narrowed = []
        for change in changes:
            adds = _of_buckets(change.adds, numbers)
            removes = tuple(each for each in change.removes if each in ids)
            ids.update(add.id for add in adds)
            narrowed.append(replace(change, adds=adds, removes=removes))
        if any(change.new_runs or change.scope == "all" for change in narrowed):
            found.append(Share(own, tuple(narrowed), definition))
    return found


def _cost(adds: Iterable[Add], changes: list[Change]) -> int:
    """Return the bytes of runs whose keys are looked up."""
    new = {add.id for change in changes for add in (change.adds if change.scope == "all" else change.new_runs)}
    return sum(add.length for add in adds if add.id in new)


def _groups(size_bytes: Mapping[int, int]) -> Iterator[frozenset[int]]:
    group: list[int] = []
    size = 0
    for number, own in size_bytes.items():
        if group and size + own > _TASK_BYTES:
            yield frozenset(group)
            group, size = [], 0
        group.append(number)
        size += own
    yield frozenset(group)


def _of_buckets(adds: Iterable[Add], numbers: frozenset[int]) -> tuple[Add, ...]:
    return tuple(add for number, own in by_bucket(adds).items() if number in numbers for add in own)
