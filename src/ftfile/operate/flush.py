"""Flush of open files: assembles their segments into finished files without a batch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, gt, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import convert, structs

from ftfile.core.arguments import Access
from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, StaleFiles, StillOpen
from ftfile.core.logs import get_logger
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.core.progress import Tracker
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.log.checks import HORIZON_AHEAD, Accepted, accept_rewrites
from ftfile.log.directory import check_is_files
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of, parts_of, total_bytes, total_rows
from ftfile.log.format.model import UNREPORTED_FLUSHES, Body, Job
from ftfile.log.opening import open_with_written_settings
from ftfile.log.protocol import catch_up, commit
from ftfile.operate.export.after_commit import operating
from ftfile.rows.value_text import UTC
from ftfile.storage.registry import normalise
from ftfile.writing.files.assembler import Assembled, Assembler
from ftfile.writing.files.namer import Namer
from ftfile.writing.files.publishing import (
    Publishing,
    mark_unreported,
    named_code,
    queries_with_unreported,
    report_pending_flushes,
)
from ftfile.writing.files.rolling_groups import by_group, key_of
from ftfile.writing.files.rolling_plan import RollingPlanner, files_of, jobs_of
from ftfile.writing.files.rolling_rules import ALL_END, RollingSettings
from ftfile.writing.files.segment_statistics import with_planned_statistics
from ftfile.writing.options import Storage, durability_of
from ftfile.writing.stage import Stage
from ftfile.writing.workers import Threads, Work, removing_unrecorded, rounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.progress import OnProgress
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, MaintenanceAuthor, Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import Durability, FileSystem
    from ftfile.writing.files.rolling_groups import GroupKey
    from ftfile.writing.messages import TaskIdentity
    from ftfile.writing.workers import Workers


# The number of parts in a record. After a crash, recorded parts are visible and need not be assembled again.
PARTS_PER_RECORD = 64
# File numbers of a flush follow the numbers of a batch, so files sort in row order. Each version has its own range.
FIRST_NUMBER, NUMBERS_PER_VERSION = 50_000, 1_000

_Settings = TypeVar("_Settings")
# For a query without recorded settings.
_DEFAULT_PUBLISHING = Publishing.from_options(parse_options({}, SinkOptions), "", None, UTC)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushReport:
    """The result of a flush."""

    files: int  # finished by the flush
    rows: int
    version: int  # the newest version after the flush
    dry_run: bool = False  # True if nothing was finished; `files` is then an estimate


def flush(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    due_only: bool = False,
    query_id: str | None = None,
    dry_run: bool = False,
    commit_every: int | None = None,
    code: Collection[str] = (),
    threads: int | None = None,
    **access: Unpack[OperationArguments],
) -> FlushReport:
    """Finish the files that stay open over batches, so that every reader sees their rows; return the numbers.

    If no file is open, no record is created. Safe while queries run: if two processes assemble the same rows, the later
    commit discards its file. The call can be killed at any point: recorded files stay, and all other rows stay open.

    Args:
        path: of the directory.
        due_only: finish only due files.
        query_id: finish only files of this query.
        dry_run: return the files that would be finished now, and write nothing.
        commit_every: number of new files after which a record is created, at most 1000; by default 64.
        code: names of classes and functions in the options `onPublish`, `partFileName` and, with `due_only`,
            `rollingPolicy` of queries. Other code is not imported: a writer of the directory must not choose it.
        threads: threads that assemble files; by default one for each core.
        **access: see `ftfile.open`; `progress` is called with a `Progress` after each job, and its error ends the call.

    Raises:
        ConfigError: the path is not an ftfile directory, its keys are missing, an argument is wrong, or a query needs
            code that `code` does not name; nothing was done.
        FtfileError: some rows could not be assembled, such as damaged rows (`CorruptData`); `StillOpen` for several
            errors.
        StorageError: the storage failed or is unavailable.
        CommitError: as for a batch write; `NotPublished` means that the files are recorded, and published later.
    """
    with operating("flush", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), Advice("merge its runs: ", Remedy("kv.compact")))
        chosen = Flush(
            url=normalise(os.fspath(path)),
            access=Access.of(access),
            log=log,
            author=author,
            workers=Threads.of(author.operation_id, threads, log.fs.context),
            query_id=query_id,
            due_only=due_only,
            commit_every=files_each(commit_every),
            code=frozenset(code),
            progress=access.get("progress"),
        )
        if dry_run:
            return chosen.plan()
        return chosen.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """The arguments of a flush, with the jobs that they select at a head."""

    url: str
    access: Access
    log: CommitLog
    author: MaintenanceAuthor
    workers: Workers
    query_id: str | None = None  # None for all queries
    due_only: bool = False
    commit_every: int = PARTS_PER_RECORD
    code: frozenset[str] = frozenset()  # names of classes and functions that may be imported
    progress: OnProgress | None = None
    only: frozenset[GroupKey] | None = None  # groups of segments to finish; None for all

    def run(self) -> FlushReport:
        """Finish files; see `flush`."""
        head = self.log.refresh(durable=True)
        self._check_code(head)
        # Segments of later batches are excluded. Otherwise, the flush might never end while a query runs.
        last_batches = {}
        for query_id, query in head.queries.items():
            last_batches[query_id] = query.last_batch
        return _FlushRun(self, last_batches).run(head)

    def plan(self) -> FlushReport:
        """Return the report of a run, and write nothing."""
        head = self.log.refresh()
        self._check_code(head)
        files = rows = 0
        for job in self.all_jobs(head):
            files += files_of(job)
            rows += total_rows(job.inputs)
        return FlushReport(files=files, rows=rows, version=head.version, dry_run=True)

    def _check_code(self, head: LogState) -> None:
        """Raise a ConfigError if a query of this flush needs code that the caller has not named."""
        for query_id in {*self.open_segments(head), *queries_with_unreported(head)}:
            if not self.takes(query_id):
                continue
            code: dict[str, str] = _settings_of(head, query_id, named_code, {})
            for option, name in code.items():
                if name not in self.code and (self.due_only or option != "rollingPolicy"):
                    raise ConfigError(
                        f"the log names {option}={name!r} for query {query_id}, but code is not imported because a "
                        f"directory names it: if you trust this code, flush with code=[{name!r}]"
                    )

    def takes(self, query_id: str) -> bool:
        """Return True if the flush finishes the files of the query."""
        return self.query_id in {None, query_id}

    def open_segments(self, head: LogState) -> dict[str, list[Add]]:
        """Return the segments to assemble, by query."""
        by_query: dict[str, list[Add]] = {}
        for segment in head.segments.values():
            is_chosen = self.only is None or key_of(segment) in self.only
            if is_chosen and self.takes(segment.origin.query_id):
                by_query.setdefault(segment.origin.query_id, []).append(segment)
        return by_query

    def all_jobs(self, head: LogState) -> list[Job]:
        """Return the jobs of all queries."""
        jobs: list[Job] = []
        for query_id, segments in self.open_segments(head).items():
            jobs += self.jobs(head, query_id, segments)
        return jobs

    def jobs(self, head: LogState, query_id: str, segments: Sequence[Add]) -> Iterator[Job]:
        """Yield the jobs for the segments of a query; with `due_only`, only the due jobs."""
        rolling = _settings_of(head, query_id, _rolling_settings, ALL_END)
        if not self.due_only:
            for group in by_group(segments).values():
                yield from jobs_of(group, "flush", rolling, self.log.ids)
            return
        chosen = ids_of(segments)
        encoding = _settings_of(head, query_id, itemgetter("encoding"), head.encoding or "")
        for job in RollingPlanner(query_id, encoding, rolling, self.log.ids).due_at(head, self.log.clock.now_ms()):
            inputs = []
            for segment in job.inputs:
                if segment.id in chosen:
                    inputs.append(segment)
            if inputs:
                yield structs.replace(job, inputs=tuple(inputs))


@dataclass(slots=True)
class _FlushRun:
    """The state of a running flush. Each record of a flush contains files of one query."""

    flush: Flush
    last_batches: Mapping[str, int]  # of each query, when the flush began
    errors: dict[str, Exception] = field(default_factory=dict)  # by the ids of the segments that stay open
    # segments of files that a commit refused once, although the segments are still live
    stale: set[str] = field(default_factory=set)
    files: int = 0
    rows: int = 0

    def run(self, head: LogState) -> FlushReport:
        """Finish the files that are open at the head, call `onPublish` of their queries, and raise the errors."""
        flush, log = self.flush, self.flush.log
        inputs: list[Add] = []
        for job in flush.all_jobs(head):
            inputs += job.inputs
        tracker = Tracker(
            "flush", log.clock, on_progress=flush.progress, total=len(inputs), total_bytes=total_bytes(inputs)
        )
        with removing_unrecorded(log.fs, flush.author.operation_id) as named:
            while self._flush_some(head, tracker, named):
                head = log.refresh(durable=True)
        # An earlier flush may have been killed after its record and before it published the files.
        head, _ = catch_up(log, flush.author)
        for query_id in queries_with_unreported(head):
            hook = _settings_of(head, query_id, Publishing.from_json, _DEFAULT_PUBLISHING).on_publish
            if hook is not None and flush.takes(query_id):
                report_pending_flushes(log, hook, flush.url, query_id)
        errors = {str(error): error for error in self.errors.values()}
        if len(errors) > 1:
            raise StillOpen(list(errors))
        for error in errors.values():
            raise error
        return FlushReport(files=self.files, rows=self.rows, version=log.refresh().version)

    def _open_segments(self, head: LogState) -> dict[str, list[Add]]:
        """Return the segments that were open when the flush began and have not failed, by query."""
        by_query = self.flush.open_segments(head)
        for query_id, segments in by_query.items():
            by_query[query_id] = list(filter(self._may_take, segments))
        return by_query

    def _may_take(self, segment: Add) -> bool:
        last_batch = self.last_batches.get(segment.origin.query_id)
        is_new = last_batch is not None and segment.origin.last_batch > last_batch
        return not is_new and segment.id not in self.errors

    def _flush_some(self, head: LogState, tracker: Tracker, named: set[str]) -> bool:
        """Create one record if there is work; add the paths of files that the record may contain to `named`."""
        flush = self.flush
        for query_id, segments in self._open_segments(head).items():
            publishing = _settings_of(head, query_id, Publishing.from_json, _DEFAULT_PUBLISHING)
            storage = _settings_of(head, query_id, Storage.from_json, Storage())
            log = flush.log
            if storage.file_settings:
                log = open_with_written_settings(flush.url, flush.access, storage.file_settings)
            durability = durability_of(storage.durability, log.fs.capabilities)
            work = Assembling(
                definitions=head.definitions,
                read_version=head.version,
                durability=durability,
                files_max=flush.commit_every,
            )
            due = [with_planned_statistics(job, head.definitions) for job in flush.jobs(head, query_id, segments)]
            for jobs in rounds_of(due, flush.commit_every, files_of):
                rewrites = self._rewrites(work, jobs, log=log, written=dict(storage.file_settings), tracker=tracker)
                if not rewrites:
                    continue
                for rewrite in rewrites:
                    named.update(map(attrgetter("path"), rewrite.adds))
                self._commit(log, rewrites, publishing=publishing, query_id=query_id, durability=durability)
                return True
        return False

    def _commit(
        self, log: CommitLog, rewrites: Sequence[Rewrite], publishing: Publishing, query_id: str, durability: Durability
    ) -> None:
        """Create a record of the rewrites that can be published; the segments of refused rewrites stay open."""
        accepted = Accepted()

        def prepare(head: LogState, _: object) -> Body | None:
            nonlocal accepted
            named = _namer(publishing, query_id, log, head).name(log, head, rewrites)
            accepted = accept_rewrites(log, head, named.rewrites, refused=named.refused)
            if not accepted.rewrites:
                return None
            if publishing.on_publish is None:
                unreported = {}
            else:
                unreported = mark_unreported(UNREPORTED_FLUSHES, head.version + 1, query_id)
            return Body(
                adds=accepted.adds,
                removes=accepted.removes,
                metrics={"durability": durability, **accepted.metrics()},
                tables=named.tables | unreported,
            )

        done = commit(log, self.flush.author, prepare)
        refused_ids = set()
        for refused in accepted.refused:
            self._leave_open(refused.rewrite.inputs, refused.error)
            refused_ids.add(refused.rewrite.inputs[0].id)
        accepted_rewrites = []
        for rewrite in rewrites:
            if rewrite.inputs[0].id not in refused_ids:
                accepted_rewrites.append(rewrite)
        self._leave_stale_open(log.refresh(), done.record, accepted_rewrites)
        if done.record is not None:
            parts = parts_of(done.record.adds)
            rows = total_rows(parts)
            self.files += len(parts)
            self.rows += rows
            _log.info("finished %d files of %d records", len(parts), rows)

    def _leave_stale_open(self, head: LogState, record: Record | None, rewrites: Sequence[Rewrite]) -> None:
        """Leave segments open if their file was refused twice while they were live: a vacuum could delete it."""
        ended = set[str]()
        if record is not None:
            ended = ids_of(record.removes)
        for rewrite in rewrites:
            inputs = ids_of(rewrite.inputs)
            if inputs & ended or inputs - head.segments.keys():
                continue
            if inputs & self.stale:
                self._leave_open(rewrite.inputs, StaleFiles(_TOO_OLD))
            self.stale |= inputs

    def _leave_open(self, segments: Iterable[Add], error: Exception) -> None:
        for segment in segments:
            _log.error(
                "%d records for %r in %s stay open: %s", segment.rows, segment.directory_key, segment.path, error
            )
            self.errors[segment.id] = error

    def _rewrites(
        self,
        work: Assembling,
        jobs: Sequence[Job],
        log: CommitLog,
        written: Mapping[str, str],
        tracker: Tracker,
    ) -> list[Rewrite]:
        """Assemble files for one record."""
        assemblies: dict[int, Assembled] = {}
        for number, done in self.flush.workers.do(work, jobs, log.fs, written):
            assemblies[number] = done
            ended = []
            for segment in jobs[number].inputs:
                if segment.id in done.errors:
                    ended.append(segment)
            if done.rewrite is not None:
                ended += done.rewrite.inputs
            tracker.add(len(ended), total_bytes(ended))
        rewrites: list[Rewrite] = []
        for number, done in sorted(assemblies.items()):
            for segment in jobs[number].inputs:
                if segment.id in done.errors:
                    self._leave_open([segment], done.errors[segment.id])
            if done.rewrite is not None:
                rewrites.append(done.rewrite)
        return rewrites


_TOO_OLD = Advice(
    "these segments are older than vacuum's horizon. Flush again, and use a longer retention for vacuum. ",
    HORIZON_AHEAD,
)


def files_each(commit_every: int | None) -> int:
    """Return the number of new files after which a record is created; raise a ConfigError for an invalid number."""
    limit = PARTS_PER_RECORD if commit_every is None else commit_every
    if not 1 <= limit <= NUMBERS_PER_VERSION:
        expected = f": it must be a number of new files, 1 to {NUMBERS_PER_VERSION}"
        raise ConfigError(Advice(Argument("commit_every", commit_every), expected))
    return limit


def _rolling_settings(settings: Mapping[str, Any]) -> RollingSettings:
    return convert(settings["rolling"], RollingSettings)


def _namer(publishing: Publishing, query_id: str, log: CommitLog, head: LogState) -> Namer:
    query = head.queries.get(query_id)
    if query:
        last_batch, since = (query.last_batch, head.version - query.version)
    else:
        last_batch, since = (0, head.version)
    first_index = FIRST_NUMBER + NUMBERS_PER_VERSION * since
    return Namer(
        naming=publishing.naming,
        batch=f"{last_batch:010d}",
        time_ms=log.clock.now_ms(),
        query_id=query_id,
        extensions={},
        first_index=first_index,
    )


def _settings_of(
    head: LogState, query_id: str, from_json: Callable[[Mapping[str, Any]], _Settings], default: _Settings
) -> _Settings:
    """Return settings of a query, as of its last batch; the default if the log does not contain them."""
    query = head.queries.get(query_id)
    with Decoding(layout.LOG, "the settings of a query"):
        if query is None or query.settings is None:
            return default
        return from_json({**head.definitions[query.settings]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembling(Work[Job, Assembled]):
    """Assembles segments that were live at a version. A job ends when it has written `files_max` files."""

    definitions: Mapping[str, Any]  # of the encodings of the segments, by key
    read_version: int
    durability: Durability
    files_max: int

    def size_of(self, piece: Job) -> int:
        """Return the bytes of the segments."""
        return total_bytes(piece.inputs)

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Job]) -> Iterator[Assembled]:
        """Yield the result of each job; raise a StorageError if the storage is unavailable."""
        assembler = Assembler(fs, Stage(fs, task, self.durability), self.definitions, self.read_version)
        for job in pieces:
            yield assembler.assemble_readable(job, partial(gt, self.files_max))
