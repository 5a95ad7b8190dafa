"""Publishing what is still open: parts are made of all groups, or of those that are due, without a batch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ftfile.commit.log import CommitLog
from ftfile.commit.model import DueJob, MaintenanceAuthor
from ftfile.commit.opening import open_with_keys
from ftfile.commit.policy import Policy
from ftfile.commit.proposal import Proposal
from ftfile.commit.protocol import commit
from ftfile.commit.publish import raise_own, roll_forward
from ftfile.core.errors import FtfileError, Retry, StaleFiles
from ftfile.core.ids import SYSTEM_IDS
from ftfile.core.logs import get_logger, log_context
from ftfile.fs.registry import normalise
from ftfile.sink.durability import durability_of
from ftfile.sink.entries import rewrite_of
from ftfile.sink.hooks import note_untold, tell_untold, untold_queries
from ftfile.sink.identity import JobIdentity, TaskIdentity
from ftfile.sink.naming.namer import Namer
from ftfile.sink.publishing import DEFAULT_PUBLISHING, Publishing
from ftfile.sink.rolling.assembly import Assembler
from ftfile.sink.rolling.groups import Group, key_of
from ftfile.sink.rolling.plan import jobs_of, singly
from ftfile.sink.rolling.rules import reason_to_end
from ftfile.sink.rolling.settings import ALL_END, RollingSettings
from ftfile.sink.staging import Stage
from ftfile.upkeep.logs import own_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.commit.model import Add, Record
    from ftfile.commit.proposal import Rewrite
    from ftfile.commit.state import LogState
    from ftfile.fs.api import Durability
    from ftfile.sink.message import Assembled

__all__ = ("FlushReport", "flush")

PARTS_PER_RECORD = 64
# Numbers after those of the batch itself, so that names sort as rows do; and other ones after each version.
FIRST_NUMBER, NUMBERS_PER_VERSION = 50_000, 1_000

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What a flush did.

    Attributes:
        files: how many it finished.
        rows: in them.
        version: of the log after it.
    """

    files: int
    rows: int
    version: int


def flush(
    path: str | os.PathLike[str],
    *,
    due_only: bool = False,
    query_id: str | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> FlushReport:
    """Finish the files that are open over batches, so that every reader sees their rows.

    Safe beside running queries: whoever is later with the same rows gives way. Repeatable.

    Args:
        path: of the directory.
        due_only: leave those open for which no rule has fired.
        query_id: leave those of other queries open.
        key_provider: of an encrypted directory; see `ftfile.open`.
        storage: settings of its file system: what the options `storage.<name>` are to the sink.

    Raises:
        ConfigError: it is no ftfile directory.
        FtfileError: rows could not be made files; all others were.
    """
    url = normalise(os.fspath(path))
    opened = (url, key_provider, tuple((storage or {}).items()))
    log = own_log(path, key_provider, storage)
    job_id = SYSTEM_IDS.unique()
    with log_context(job=job_id):
        return _Flush(opened, log, job_id, query_id, due_only=due_only).run()


class _Flush:
    """One flush: records until nothing is left to do, each with files of one query."""

    def __init__(
        self,
        opened: tuple[str, str | None, tuple[tuple[str, str], ...]],
        log: CommitLog,
        job_id: str,
        query_id: str | None,
        *,
        due_only: bool,
    ) -> None:
        self._url, self._key_provider, self._connection = opened
        self._log = log
        self._job_id = job_id
        self._query_id = query_id
        self._due_only = due_only
        self._tried: set[str] = set()
        self._dropped: set[str] = set()
        self._error: FtfileError | None = None
        self._files = 0
        self._rows = 0

    def run(self) -> FlushReport:
        author = MaintenanceAuthor("flush", self._job_id)
        while self._flush_some(author):
            pass
        head = self._log.read_on(durable=True)
        # An earlier flush may have died between its record and its files.
        raise_own(roll_forward(self._log, head, Policy(), author), author)
        for query_id in untold_queries(head):
            hook = _publishing_of(head, query_id).on_publish
            if hook is not None and self._query_id in {None, query_id}:
                tell_untold(self._log, hook, self._url, query_id)
        if self._error is not None:
            raise self._error
        return FlushReport(self._files, self._rows, self._log.read_on().version)

    def _flush_some(self, author: MaintenanceAuthor) -> bool:
        """Create one record, if there is anything to do."""
        head = self._log.read_on(durable=True)
        queries = {segment.origin.query_id: None for segment in head.segments.values()}
        for query_id in [query_id for query_id in queries if self._query_id in {None, query_id}]:
            publishing = _publishing_of(head, query_id)
            log = self._log_with(publishing.storage)
            durability = durability_of(publishing.durability, log.fs.capabilities)
            rewrites = self._rewrites(log, head, query_id, durability)
            if rewrites:
                done = commit(log, _proposal(author, rewrites, publishing, query_id, durability), Policy())
                for refused in done.refused:
                    self._error = self._error or refused.error
                left_out = {refused.rewrite.inputs[0].id for refused in done.refused}
                self._look_for_dropped(done.record, [each for each in rewrites if each.inputs[0].id not in left_out])
                if done.record is not None:
                    self._count(done.record)
                return True
        return False

    def _log_with(self, storage: tuple[tuple[str, str], ...]) -> CommitLog:
        settings = (*self._connection, *storage)
        return CommitLog(open_with_keys(self._url, self._key_provider, settings)) if storage else self._log

    def _count(self, record: Record) -> None:
        parts = [add for add in record.adds if add.kind == "part"]
        self._files += len(parts)
        self._rows += sum(part.rows for part in parts)
        _log.info("finished %d files of %d records", len(parts), sum(part.rows for part in parts))

    def _look_for_dropped(self, record: Record | None, rewrites: Sequence[Rewrite]) -> None:
        """Let what was not accepted be made again: others took a part of it, or it is too old beside a vacuum."""
        ended = {remove.id for remove in record.removes} if record is not None else set()
        for first in (rewrite.inputs[0].id for rewrite in rewrites):
            if first in ended:
                continue
            if first in self._dropped:
                self._error = self._error or StaleFiles(
                    "vacuum may delete files as soon as they are made of what is open: flush again, and vacuum with a "
                    "longer grace"
                )
            else:
                self._dropped.add(first)
                self._tried.discard(first)

    def _rewrites(self, log: CommitLog, head: LogState, query_id: str, durability: Durability) -> list[Rewrite]:
        """Make parts for one record."""
        stage = Stage(log.fs, SYSTEM_IDS, TaskIdentity(JobIdentity(self._job_id), 0, 0), durability)
        assembler = Assembler(log.fs, stage, head.definitions, head.version)
        rewrites: list[Rewrite] = []
        parts = 0
        for job in self._jobs(head, query_id):
            if parts >= PARTS_PER_RECORD:
                break
            for assembled in self._assembled(assembler, job):
                parts += len(assembled.parts)
                rewrites.append(rewrite_of(assembled))
        return rewrites

    def _assembled(self, assembler: Assembler, job: DueJob) -> Iterator[Assembled]:
        """Do a job; where a segment is damaged, the others become files of their own."""
        try:
            yield assembler.assemble(job)
        except FtfileError as error:
            _log.error("making a file of %d segments failed: %s", len(job.inputs), error)
            if error.retry is not Retry.NEVER or len(job.inputs) == 1:
                self._error = self._error or error
                return
            for each in singly(job):
                yield from self._assembled(assembler, each)

    def _jobs(self, head: LogState, query_id: str) -> Iterator[DueJob]:
        """Yield what is to be done; nothing that was tried before: whoever was faster has done it, or it fails."""
        groups: dict[tuple[str, str, str], list[Add]] = {}
        for segment in head.segments.values():
            if segment.origin.query_id == query_id:
                groups.setdefault(key_of(segment), []).append(segment)
        now_ms = self._log.clock.now_ms()
        for key, segments in groups.items():
            group = Group.of(key, segments)
            settings = _settings_of(head, query_id)
            due = [job for job in head.due if job.inputs[0].id in group.segments]
            reason = "flush"
            if self._due_only:
                reason = due[0].reason if due else reason_to_end(settings, group.totals, now_ms) or ""
            if not reason:
                continue
            for job in jobs_of(group.in_order(), reason, settings, SYSTEM_IDS):
                if job.inputs[0].id not in self._tried:
                    self._tried.add(job.inputs[0].id)
                    yield job


def _proposal(
    author: MaintenanceAuthor,
    rewrites: Sequence[Rewrite],
    publishing: Publishing,
    query_id: str,
    durability: Durability,
) -> Proposal:
    """Return what is to be committed: parts of one query, called as that calls its own."""

    def settle(proposal: Proposal, log: CommitLog, head: LogState) -> Proposal:
        query = head.queries[query_id]
        first_number = FIRST_NUMBER + NUMBERS_PER_VERSION * (head.version - query.version)
        stem = f"{query.last_batch:010d}"
        namer = Namer(publishing.naming, stem, log.clock.now_ms(), query_id, first_number)
        named = namer.settle(proposal, log, head)
        if publishing.on_publish is None:
            return named
        return replace(named, memory=named.memory | note_untold(head.version + 1, query_id))

    return Proposal(author, rewrites=tuple(rewrites), metrics={"durability": durability}, settle=settle)


def _settings_of(head: LogState, query_id: str) -> RollingSettings:
    """Return the rules of the query that wrote the segments, as of its last batch."""
    settings = head.queries[query_id].settings
    return ALL_END if settings is None else RollingSettings.from_json(head.definitions[settings]["rolling"])


def _publishing_of(head: LogState, query_id: str) -> Publishing:
    """Return how the query names and publishes its files, as of its last batch."""
    settings = head.queries[query_id].settings
    return DEFAULT_PUBLISHING if settings is None else Publishing.from_json(head.definitions[settings])
