"""The new rows of a directory that a batch reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.attempt.follow.continuity import require_kept
from ftfile.attempt.follow.offsets import InLog, InSnapshot
from ftfile.attempt.follow.planner import LogPlanner, Plan, Unit
from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.format.model import MaintenanceAuthor, Origin, StreamAuthor
from ftfile.commit.places import open_add
from ftfile.commit.read.snapshot import take_snapshot
from ftfile.core.errors import ChangedRows, CorruptData, HistoryGone
from ftfile.core.logs import get_logger
from ftfile.fs.calls.parallel import parallel
from ftfile.source.shares import Share, pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ftfile.attempt.follow.settings import FollowSettings
    from ftfile.commit.format.model import Add, Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("FirstSnapshot", "FollowPlanner")

# Maintenance that replaces adds by others of the same rows.
_REWRITES = frozenset({"compact", "flush"})

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
        return (Unit(place, (add,)) for place, add in enumerate(_new_rows_of(record)))

    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        adds = self._first.adds(begin.version)
        return (Unit(place, (adds[place],)) for place in range(begin.read, len(adds)))

    def _refusal(self, record: Record) -> Exception | None:
        """Return why a record cannot be followed, or None; note one that is passed over."""
        if _is_change(record):
            if not self._settings.skip_changes:
                return ChangedRows(
                    f"{_describe(record)} that may have been read. Rows that come later can be read with "
                    "skipChangeCommits=true, which passes over such versions, with the rows that they add"
                )
            if record.version > self._told:
                _log.warning("passed over: %s", _describe(record))
                self._told = record.version
                self.skipped += 1
        return super()._refusal(record)

    def _require_files(self, head: LogState, begin: InSnapshot | InLog, plan: Plan) -> None:
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), begin.version + isinstance(begin, InLog))
        removed = [add for version, add in plan.taken if not head.is_live(add, version)]
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
        return _shares(adds[start.read : behind], self._first.definitions)

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterator[Share]:
        self._first.forget()
        records: list[Record] = []
        adds: list[Add] = []
        for record, first, behind in self._records_between(head, start, end):
            adds += _new_rows_of(record)[first:behind]
            records.append(record)
        # What lies at a version that is not kept may be a dead record.
        require_kept(self._log.read_on(), start.version + 1)
        return _shares(adds, self._definitions_of(head, records, adds))


class FirstSnapshot:
    """The adds of one version, kept while they are read slice by slice."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version: int | None = None
        self._adds: tuple[Add, ...] = ()
        self.definitions: dict[str, Any] = {}

    def adds(self, version: int) -> Sequence[Add]:
        """Return the live adds of a version in the order of their first batches and ids, the same at every call."""
        if self._version != version:
            snapshot = take_snapshot(self._log, version)
            ordered = sorted(snapshot.adds.values(), key=lambda add: (add.origin.first_batch, add.id))
            self._version, self._adds, self.definitions = version, tuple(ordered), snapshot.definitions
        return self._adds

    def forget(self) -> None:
        """Let go of the adds."""
        self._version, self._adds, self.definitions = None, (), {}


def _shares(adds: Iterable[Add], definitions: dict[str, Any]) -> Iterator[Share]:
    for group in pack(adds):
        yield Share(group, {add.encoding: definitions[add.encoding] for add in group})


def _new_rows_of(record: Record) -> tuple[Add, ...]:
    """Return the adds of a record whose rows no earlier record has, in the record's order; none of a change.

    What a batch made of earlier rows, parts and the rest of segments, is of an older origin.
    """
    author = record.author
    if isinstance(author, MaintenanceAuthor) or _is_change(record):
        return ()
    if isinstance(author, StreamAuthor):
        own = Origin(author.query_id, author.batch_id, author.batch_id)
    else:
        own = Origin(author.job_id, 0, 0)
    return tuple(add for add in record.adds if add.origin == own)


def _is_change(record: Record) -> bool:
    """Return True if the record ends rows that were live: an overwrite, a drop, a repair that gives rows up."""
    if isinstance(record.author, MaintenanceAuthor):
        return record.author.operation not in _REWRITES and len(record.removes) > len(record.adds)
    return (record.overwrite or record.replaces is not None) and bool(record.removes)


def _describe(record: Record) -> str:
    """Return the effect of a record that removes rows, for messages."""
    author = record.author
    if isinstance(author, MaintenanceAuthor):
        return f"version {record.version}, a {author.operation}, removes {len(record.removes)} files"
    return f"version {record.version}, an overwrite, replaces {len(record.removes)} files"
