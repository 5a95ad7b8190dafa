"""Planning: up to where a batch reads, and what lies between two positions. It keeps nothing that matters.

`plan` may refuse, since nothing stands on what it returns before Spark has written that down. `between` depends on two
positions and the log alone, so that a batch that is repeated has the rows that it had.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.follow.beginning import begin_at, origin_of
from ftfile.attempt.follow.columns import FollowedColumns
from ftfile.attempt.follow.continuity import check_position, require_kept, required_record
from ftfile.attempt.follow.definitions import definitions_of
from ftfile.attempt.follow.offsets import Beginning, InLog, InSnapshot
from ftfile.attempt.follow.settings import Budget, Limits
from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.places import open_add
from ftfile.core.errors import ChangedRows, CorruptData, HistoryGone, SchemaError
from ftfile.core.logs import get_logger
from ftfile.fs.calls.parallel import parallel
from ftfile.source.follow.feed import describe, is_change, new_rows_of
from ftfile.source.follow.first import FirstSnapshot
from ftfile.source.shares import Share, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.attempt.follow.offsets import Position
    from ftfile.attempt.follow.settings import FollowSettings
    from ftfile.commit.format.model import Add, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("FollowPlanner",)

_log = get_logger(__name__)


class FollowPlanner:
    """Plans batches of new rows of one directory.

    Args:
        log: of the directory.
        settings: of the follower.
        requested: the columns that are read.
        path: of the directory, for errors.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, requested: pa.Schema, path: str) -> None:
        self._log = log
        self._path = path
        self._settings = settings
        self._columns = FollowedColumns(log.read_on(), requested)
        self._first = FirstSnapshot(log)
        self._told = -1
        self.skipped = 0  # versions that were passed over
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
            HistoryGone: versions or files that are to be read are gone.
            ChangedRows: the next version replaces or removes rows.
            SchemaError: the next version has other columns than are read.
            ConfigError: the directory is a store, or there is no such version to begin with.
        """
        head = self.read_on()
        refuse_store(head, self._path)
        end = head.version if end_version is None else min(end_version, head.version)
        check_position(self._log, head, start)
        begin = (
            replace(start, first=None)
            if isinstance(start, InLog)
            else begin_at(self._log, self._settings, head, end, start)
        )
        plan = _Plan(Budget(self._settings.limits if limited else Limits()), begin)
        if isinstance(plan.position, InSnapshot):
            self._plan_snapshot(plan, plan.position)
        if isinstance(plan.position, InLog):
            self._plan_records(head, plan, plan.position, end)
        if plan.position == begin:
            return begin if isinstance(start, Beginning) else start
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), plan.oldest)
        self._require_files(head, plan)
        return plan.position

    def between(self, start: Position, end: Position) -> Iterator[Share]:
        """Yield the new rows between two positions as shares, one for each task.

        Raises:
            AnotherLog: the log is not the one that `end` is of.
            HistoryGone: versions that are to be read are not kept any more.
        """
        if isinstance(end, Beginning) or start == end:
            return
        head = self._log.read_on()
        check_position(self._log, head, end)
        if isinstance(start, Beginning):
            start = origin_of(end)
        if isinstance(start, InSnapshot):
            require_kept(head, start.version)
            adds = self._first.adds(start.version)
            stop = end.read if isinstance(end, InSnapshot) else len(adds)
            yield from _shares(adds[start.read : stop], self._first.definitions)
            if isinstance(end, InSnapshot):
                return
            start = InLog(start.version, start.nonce)
        assert isinstance(end, InLog), f"{end} does not follow {start}"
        self._first.forget()
        yield from self._shares_of_records(head, start, end)

    def _plan_snapshot(self, plan: _Plan, begin: InSnapshot) -> None:
        adds = self._first.adds(begin.version)
        read = plan.take_first(begin.version, adds, begin.read)
        done = read == len(adds)
        plan.position = InLog(begin.version, begin.nonce) if done else InSnapshot(begin.version, begin.nonce, read)

    def _plan_records(self, head: LogState, plan: _Plan, begin: InLog, end: int) -> None:
        """Go on record by record; what cannot be read ends the plan before it, or is raised if nothing comes before."""
        read = begin.read
        for version in range(begin.version + 1, end + 1):
            record = required_record(self._log, head, version)
            refusal = None if read else self._refusal(record)
            if refusal is not None and plan.position == begin and plan.is_empty:
                raise refusal
            if refusal is not None:
                return
            adds = new_rows_of(record)[read:]
            if not plan.take(version, adds):
                taken = plan.take_first(version, adds) if plan.is_empty else 0
                if 0 < taken < len(adds):
                    plan.position = InLog(version - 1, record.nonce, read + taken, begin.first)
                if taken < len(adds):
                    return
            plan.position, read = InLog(version, record.nonce, first=begin.first), 0

    def _refusal(self, record: Record) -> Exception | None:
        """Return why a record cannot be followed, or None; note one that is passed over."""
        if is_change(record):
            if not self._settings.skip_changes:
                return ChangedRows(
                    f"{describe(record)} that may have been read. Rows that come later can be read with "
                    "skipChangeCommits=true, which passes over such versions, with the rows that they add"
                )
            if record.version > self._told:
                _log.warning("passed over: %s", describe(record))
                self._told = record.version
                self.skipped += 1
        change = self._columns.change_of(record)
        return SchemaError(change) if change is not None else None

    def _require_files(self, head: LogState, plan: _Plan) -> None:
        """Raise HistoryGone if files that were removed since are deleted already; the log tells of all others."""
        removed = [add for version, add in plan.taken if not head.is_live(add, version)]
        try:
            parallel(self._log.fs, lambda add: open_add(add, self._log.fs.stat, is_old=True), removed)
        except CorruptData as error:
            raise HistoryGone(
                f"{error.path!r} is to be read, was replaced by a later version, and vacuum has deleted it. Start the "
                "query with a new checkpointLocation, and have vacuum keep more with a longer retention"
            ) from error

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterator[Share]:
        records: list[Record] = []
        adds: list[Add] = []
        for version in range(start.version + 1, end.version + 1 + (end.read > 0)):
            record = required_record(self._log, head, version)
            new = new_rows_of(record)
            first = start.read if version == start.version + 1 else 0
            last = end.read if version == end.version + 1 else len(new)
            adds += new[first:last]
            records.append(record)
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), start.version + 1)
        yield from _shares(adds, definitions_of(self._log, head, records, {add.encoding for add in adds}))


class _Plan:
    """A plan in the making: how far it goes, and what it takes."""

    def __init__(self, budget: Budget, position: Position) -> None:
        self.budget = budget
        self.position = position
        # The oldest version that is read.
        self.oldest = position.version + isinstance(position, InLog) if not isinstance(position, Beginning) else 0
        self.taken: list[tuple[int, Add]] = []  # with the version at which it was live

    @property
    def is_empty(self) -> bool:
        return not self.taken

    def take(self, version: int, adds: Sequence[Add]) -> bool:
        if not self.budget.take(adds):
            return False
        self.taken += [(version, add) for add in adds]
        return True

    def take_first(self, version: int, adds: Sequence[Add], begin: int = 0) -> int:
        """Take adds from a position on, as far as the limits allow, and return the position behind them."""
        end = self.budget.take_first(adds, begin)
        self.taken += [(version, add) for add in adds[begin:end]]
        return end


def _shares(adds: Iterable[Add], definitions: dict[str, Any]) -> Iterator[Share]:
    for group in pack(adds):
        yield Share(group, {add.encoding: definitions[add.encoding] for add in group})
