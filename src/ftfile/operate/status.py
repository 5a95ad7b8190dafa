"""The status of a directory and its verdict."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ftfile.core.errors import FtfileError
from ftfile.core.remedies import Advice, Remedy
from ftfile.core.units import ago, count_text, duration_text, first_text, names_text
from ftfile.log.format import layout
from ftfile.log.places import Place, find_part, is_recorded, stat_or_none, walk
from ftfile.log.read.snapshot import oldest_readable
from ftfile.log.read.times import version_time_ms
from ftfile.log.records import read_published
from ftfile.operate.file_kind import FILES, kind_of
from ftfile.operate.findings import CheckReport, find, sort_worst_first
from ftfile.operate.lag import findings_of_checkpoint
from ftfile.operate.open_files import OpenFile, open_files_of
from ftfile.operate.requests import storage_requests
from ftfile.operate.verify.log_scan import count_quarantined, look_at_head
from ftfile.storage.calls import parallel
from ftfile.storage.paths import shape_fault
from ftfile.writing.applications import application_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Remove
    from ftfile.log.places import PartPlace
    from ftfile.log.state import LogState, QueryState
    from ftfile.operate.findings import Finding
    from ftfile.operate.lag import CheckpointStatus, Lag
    from ftfile.operate.requests import RequestPrices, StorageRequests
    from ftfile.storage.api import FileSystem


@dataclass(frozen=True, slots=True)
class ApplicationStatus:
    """The newest opening of a directory by an application, which is the only one that can commit."""

    position: Any  # of the last commit, in the source of the application; None if it has none
    opened_ms: int  # time of the opening, since 1970 UTC by the clock of its process
    process: str  # `user@host` of the process; empty if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """A streaming query that has written here, or an application that writes by `ftfile.writer`."""

    query_id: str  # the `app_id` of an application
    last_batch: int  # the newest committed batch
    version: int  # of that batch
    time_ms: int | None  # of that commit, since 1970 UTC by the storage's clock; None if its record is no longer kept
    checkpoint: CheckpointStatus | None = None  # None if no record names its path, or it was not requested
    # As recorded: format, filters and partitions of the newest rows; for open files also their rules and names.
    options: Mapping[str, Any] = field(default_factory=dict)
    application: ApplicationStatus | None = None  # None for a query of Spark


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedFile:
    """A committed file that is not at its final name, or a removed file that still is."""

    version: int  # of its record
    query_id: str | None  # None for a batch write or maintenance
    path: str  # final name
    problem: str  # why publishing would fail now; empty if the next commit can publish it
    removed: bool = False  # True if its rows are removed, but programs that list the directory still see them


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus(CheckReport):
    """The result of `ftfile.status(path)` and `OpenedDirectory.status()`."""

    path: str  # URL of the directory or the store
    kind: Literal["files", "store"] | None  # None if nothing has been committed
    made_ms: int  # time of this status, since 1970 UTC by this machine's clock
    version: int  # the newest version; -1 if nothing has been committed
    time_ms: int | None  # of that version, since 1970 UTC by the storage's clock; None if there is none
    oldest_version: int  # the oldest version with a record in the log
    oldest_readable: int  # the oldest version whose files vacuum has kept
    horizon_ms: int  # time up to which a vacuum may have deleted unneeded files; 0 for never
    queries: tuple[QueryStatus, ...]  # by query id
    open: tuple[OpenFile, ...]  # by query and directory; empty for a store
    due: int  # jobs that wait for the next batch, a flush or the listener; compactions in a store
    held: int  # due compactions that failed too often and are skipped for a while; 0 for files
    unpublished: tuple[UnpublishedFile, ...]  # not at their final names, or removed and not hidden
    # Staged files without a live row, of running tasks and of lost attempts, and used files. None if not requested.
    unneeded_files: int | None = None
    unneeded_bytes: int | None = None
    quarantined: int = 0  # files that repairs have quarantined
    requests: StorageRequests | None = None  # of recent batches; None if not requested, or not on an object store

    def facts(self) -> Iterator[str]:
        """Yield facts of a directory without faults."""
        if self.version < 0:
            yield "nothing was committed yet"
            return
        yield f"version {self.version:,}"
        if self.time_ms is not None:
            yield f"{duration_text(max(0, self.made_ms - self.time_ms) / 1000)} old"
        if self.open:
            yield count_text(len(self.open), "open file")
        if self.kind == "store" and self.due:
            yield f"{count_text(self.due, 'compaction')} due"
        if self.queries:
            yield count_text(len(self.queries), "query", "queries")
            if self._are_up_to_date():
                yield "none behind"
        behind = list(self._backlogs())
        if behind:
            yield first_text(behind)
        if self.quarantined:
            yield f"{count_text(self.quarantined, 'file')} in {layout.QUARANTINE}"

    def _backlogs(self) -> Iterator[str]:
        for query in self.queries:
            if query.checkpoint is not None and query.checkpoint.backlog:
                yield f"query {query.query_id} has {query.checkpoint.backlog} to read"

    def _are_up_to_date(self) -> bool:
        """Return True if no query of Spark is behind its sources; the sources of applications are unknown."""
        spark_queries = [query for query in self.queries if query.application is None]
        if not spark_queries:
            return False
        return all(query.checkpoint is not None and query.checkpoint.is_up_to_date for query in spark_queries)


class HeadFacts(NamedTuple):
    """The numbers of a directory or a store that follow from the head of its log."""

    version: int  # -1 if nothing has been committed
    open_files: int  # files that stay open over batches; runs of a store
    open_rows: int  # in them
    open_bytes: int  # in them
    oldest_open_s: float | None  # commit time of the oldest open rows, since 1970 UTC by the driver's clock
    due: int  # due files, or due compactions of a store
    failing: int  # due files or compactions with failed attempts
    held: int  # due compactions that failed too often and are skipped for a while; 0 for files


def facts_of(head: LogState) -> HeadFacts:
    """Return the facts of a head."""
    opened = kind_of(head).open_rows(head)
    return HeadFacts(
        version=head.version,
        open_files=opened.files,
        open_rows=opened.rows,
        open_bytes=opened.size_bytes,
        oldest_open_s=None if opened.oldest_ms is None else opened.oldest_ms / 1000,
        due=len(head.jobs),
        failing=sum(job.attempts > 0 for job in head.jobs),
        held=opened.held,
    )


def findings_of(status: DirectoryStatus) -> Iterator[Finding]:
    """Yield the faults of queries, open files, compactions, and unpublished files."""
    for query in status.queries:
        yield from findings_of_checkpoint(query.query_id, query.checkpoint)
    yield from _open_file_findings(status)
    yield from _unpublished_findings(status)
    if status.held:
        yield find("compaction-fails", "", "compactions that run when they are due", f"{status.held:,} skipped")


def _open_file_findings(status: DirectoryStatus) -> Iterator[Finding]:
    failing: list[OpenFile] = []
    due: list[OpenFile] = []
    for file in status.open:
        if file.attempts:
            failing.append(file)
        elif file.reason:
            due.append(file)
    if failing:
        attempts = count_text(max(map(attrgetter("attempts"), failing)), "time")
        yield find(
            "open-file-fails", "", "open files assembled into files", f"{_join_names(failing)}, tried {attempts}"
        )
    if due:
        oldest = ago(min(map(attrgetter("first_ms"), due)), status.made_ms)
        yield find(
            "open-file-due",
            "",
            "open files assembled into files",
            f"{_join_names(due)}, the oldest committed {oldest}",
        )


def _unpublished_findings(status: DirectoryStatus) -> Iterator[Finding]:
    problems = []
    waiting: dict[str, list[str]] = {"not-published": [], "not-hidden": []}
    for file in status.unpublished:
        if file.problem:
            problems.append(f"{file.path!r}: {file.problem}")
        elif file.removed:
            waiting["not-hidden"].append(file.path)
        else:
            waiting["not-published"].append(file.path)
    if problems:
        yield find(
            "not-publishable",
            "",
            "each committed file at its final name, and no other file",
            first_text(problems),
        )
    for code, paths in waiting.items():
        if paths:
            actual = f"{count_text(len(paths), 'file')} waiting for the next commit: {names_text(paths)}"
            yield find(code, "", "no waiting files", actual)


def _join_names(files: Sequence[OpenFile]) -> str:
    rows = sum(map(attrgetter("rows"), files))
    names = names_text([file.directory or "." for file in files])
    return f"{count_text(len(files), 'open file')} with {count_text(rows, 'row')} ({names})"


def directory_status(
    log: CommitLog,
    url: str,
    *,
    staged: bool = False,
    lag: Lag | None = None,
    request_prices: RequestPrices | None = None,
) -> DirectoryStatus:
    """Return the status from the newest checkpoint and the records after it; no data directory is listed.

    With `staged`, it also lists the stage. With `lag`, it also reads the checkpoints of queries. With `request_prices`,
    it also reads the recent records.

    Raises:
        ConfigError: a checkpoint that `lag` names belongs to no query that wrote here.
        CorruptData: the log is damaged; `OpenedDirectory.verify()` reports the damage.
    """
    head = log.refresh()
    checkpoints: dict[str, CheckpointStatus] = {}
    if lag is not None:
        checkpoints = lag.look(log, head)
    unneeded = None
    if staged:
        unneeded = _count_unneeded(log.fs, head)
    now_ms, kind, facts = log.clock.now_ms(), kind_of(head), facts_of(head)
    unneeded_files = unneeded_bytes = None
    if unneeded is not None:
        unneeded_files, unneeded_bytes = len(unneeded), sum(unneeded.values())
    time_ms = None
    if head.version >= 0:
        time_ms = version_time_ms(log, head.version)
    status = DirectoryStatus(
        path=url,
        kind=None if head.encoding is None else kind.name,
        made_ms=now_ms,
        version=head.version,
        time_ms=time_ms,
        oldest_version=head.log_start,
        oldest_readable=_oldest_readable(log, head),
        horizon_ms=head.horizon_ms,
        queries=tuple(_queries(log, head, checkpoints)),
        open=tuple(open_files_of(head, now_ms)) if kind is FILES else (),
        due=facts.due,
        held=facts.held,
        unpublished=tuple(_list_unpublished(log.fs, head)),
        unneeded_files=unneeded_files,
        unneeded_bytes=unneeded_bytes,
        quarantined=count_quarantined(log.fs),
        requests=None if request_prices is None else storage_requests(log, head, request_prices),
    )
    return replace(status, findings=sort_worst_first([*look_at_head(log, head), *findings_of(status)]))


def _queries(log: CommitLog, head: LogState, checkpoints: Mapping[str, CheckpointStatus]) -> Iterator[QueryStatus]:
    """Yield the status of each query, by id."""
    queries = sorted(head.queries.items())
    versions = [query.version for _, query in queries]
    times = parallel(log.fs, partial(version_time_ms, log), versions)
    for (query_id, query), time_ms in zip(queries, times, strict=True):
        yield QueryStatus(
            query_id=query_id,
            last_batch=query.last_batch,
            version=query.version,
            time_ms=time_ms,
            checkpoint=checkpoints.get(query_id),
            options=_options_of(head, query),
            application=_application_of(head, query_id),
        )


def _application_of(head: LogState, query_id: str) -> ApplicationStatus | None:
    newest = application_of(head, query_id)
    if newest is None:
        return None
    return ApplicationStatus(newest.position, newest.opened_ms, newest.process)


def _options_of(head: LogState, query: QueryState) -> dict[str, Any]:
    recorded: dict[str, Any] = {}
    for key in (head.encoding, query.settings):
        if key is not None:
            recorded.update(head.definitions[key])
    options: dict[str, Any] = {}
    for name, value in recorded.items():
        if value and name not in {"schema", "encoding"}:
            options[name] = value
    return options


def _oldest_readable(log: CommitLog, head: LogState) -> int:
    with contextlib.suppress(FtfileError):  # a status is often requested because something is wrong
        return oldest_readable(log, head)
    return head.log_start


def _count_unneeded(fs: FileSystem, head: LogState) -> dict[str, int]:
    """Return staged files without a live row, with their sizes."""
    sizes = {path: info.size_bytes for path, info in walk(fs, layout.STAGED).items()}
    pending = chain.from_iterable(entry.adds for entry in head.unpublished.values())
    for add in chain(head.segments.values(), pending):
        sizes.pop(add.path, None)
    return sizes


def _list_unpublished(fs: FileSystem, head: LogState) -> Iterable[UnpublishedFile]:
    hint = read_published(fs)
    done = -1
    if hint is not None and head.includes(hint.version, hint.nonce):
        done = hint.version
    for version, entry in sorted(head.unpublished.items()):
        if version <= done:
            continue
        places = parallel(fs, partial(find_part, fs), entry.adds)
        for add, where in zip(entry.adds, places, strict=True):
            problem = _problem(add, where)
            if problem is not None and head.is_live(add, entry.version):
                yield UnpublishedFile(
                    version=entry.version, query_id=entry.query_id, path=add.final_path or "", problem=problem
                )
        at_names = parallel(fs, partial(stat_or_none, fs), [remove.final_path or "" for remove in entry.removes])
        for remove, there in zip(entry.removes, at_names, strict=True):
            # Another file with the same name stays there.
            if there is not None and is_recorded(fs, there, remove, read=False):
                problem = _problem_of_hiding(fs, remove)
                yield UnpublishedFile(
                    version=entry.version, query_id=entry.query_id, path=there.path, problem=problem, removed=True
                )


def _problem_of_hiding(fs: FileSystem, remove: Remove) -> str:
    """Return why a removed file cannot be hidden; empty if only the storage itself can prevent it."""
    hidden = layout.retired_path(remove.id)
    fault = shape_fault(hidden) or fs.capabilities.fault_of(hidden)
    if fault is None:
        return ""
    return f"its rows are removed, but it cannot be hidden: its hidden name would be {hidden!r}, which {fault}"


def _problem(add: Add, where: PartPlace) -> str | None:
    """Return why publishing would fail; empty if it would not; None if the part is published, or its file is hidden."""
    there = where.info
    if where.place is Place.STAGED:
        return ""
    if where.place is Place.TAKEN and there is not None:
        return f"a foreign file of {there.size_bytes} bytes is at {there.path!r}: move it away"
    if where.place is Place.IMPOSSIBLE:
        return Advice(f"its name {where.fault}: ", Remedy("repair", dry_run=False), " records another name")
    if where.place is Place.DAMAGED and there is not None:
        return f"{there.path!r} has {there.size_bytes} bytes, but {add.length} bytes were recorded"
    if where.place is Place.NOWHERE:
        return "its file is missing: it was published and then moved or deleted, or deleted from the stage"
    return None
