"""The new rows of a directory that a batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.follow.continuity import require_kept
from ftfile.attempt.follow.offsets import InLog, InSnapshot
from ftfile.attempt.follow.planner import LogPlanner, Plan, Unit
from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.format.layout import original_id
from ftfile.commit.places import open_add
from ftfile.commit.read.snapshot import moved_since
from ftfile.core.errors import ChangedRows, CorruptData, HistoryGone
from ftfile.core.logs import get_logger
from ftfile.fs.calls.parallel import parallel
from ftfile.source.follow.feed import describe, is_change, new_rows_of
from ftfile.source.follow.first import FirstSnapshot
from ftfile.source.shares import Share, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ftfile.attempt.follow.settings import FollowSettings
    from ftfile.commit.format.model import Add, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

_log = get_logger(__name__)


class FollowPlanner(LogPlanner[Share]):
    """Plans batches of new rows of one directory, add by add; for arguments see `LogPlanner`.

    `plan` also raises `ChangedRows`: the next version replaces or removes rows.

    Args:
        path: of the directory, for errors.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, columns: pa.Schema, path: str) -> None:
        super().__init__(log, settings, columns)
        self._path = path
        self._first = FirstSnapshot(log)
        self._told = -1
        self.skipped = 0  # versions that were passed over

    def read_on(self) -> LogState:
        """Return the log's state at its head, which is durable; a ConfigError if it is that of a store."""
        head = super().read_on()
        refuse_store(head, self._path)
        return head

    def _units_of(self, record: Record) -> Iterable[Unit]:
        return (Unit(place, (add,)) for place, add in enumerate(new_rows_of(record)))

    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        adds = self._first.adds(begin.version)
        return (Unit(place, (adds[place],)) for place in range(begin.read, len(adds)))

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
        return super()._refusal(record)

    def _require_files(self, head: LogState, begin: InSnapshot | InLog, plan: Plan) -> None:
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), begin.version + isinstance(begin, InLog))
        removed = [add for version, add in plan.taken if not head.is_live(add, version)]
        removed = self._as_moved(head, begin.version, removed)
        try:
            parallel(self._log.fs, lambda add: open_add(add, self._log.fs.stat, is_old=True), removed)
        except CorruptData as error:
            raise HistoryGone(
                f"{error.path!r} is to be read, was replaced by a later version, and vacuum has deleted it. Start the "
                "query with a new checkpointLocation, and have vacuum keep more with a longer retention"
            ) from error

    def _shares_of_snapshot(self, head: LogState, start: InSnapshot, behind: int | None) -> Iterator[Share]:
        require_kept(head, start.version)
        adds = self._first.adds(start.version)
        return iter(pack(adds[start.read : behind], self._first.definitions))

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterator[Share]:
        self._first.forget()
        records: list[Record] = []
        adds: list[Add] = []
        for record, first, behind in self._records_between(head, start, end):
            adds += new_rows_of(record)[first:behind]
            records.append(record)
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), start.version + 1)
        adds = self._as_moved(head, start.version, adds)
        return iter(pack(adds, self._definitions_of(head, records, adds)))

    def _as_moved(self, head: LogState, version: int, adds: list[Add]) -> list[Add]:
        """Return adds of versions after one as restores since then have them: these move files."""
        moved = moved_since(self._log, head, version) if adds else {}
        return [moved.get(original_id(add.id), add) for add in adds] if moved else adds
