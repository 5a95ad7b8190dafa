"""The backlog of queries, from Spark's checkpoints and from the logs and files of the sources that ftfile reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.answers import wait_for
from ftfile.core.arguments import Access
from ftfile.core.errors import AnotherLog, ConfigError, FtfileError, HistoryGone, Unavailable
from ftfile.core.options.table import STORAGE_PREFIX
from ftfile.core.remedies import PATH, Advice, Argument, Wording
from ftfile.core.retries import RetryPolicy
from ftfile.core.units import count_text
from ftfile.log.format import layout
from ftfile.log.opening import open_log
from ftfile.operate.findings import find
from ftfile.read.log_positions import Beginning, check_position, position_of
from ftfile.source.plan import position_of as plan_of
from ftfile.storage.calls import start
from ftfile.storage.paths import normalise, parse
from ftfile.writing.spark_checkpoint import read_progress, read_query_id, recorded_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import TypeAlias

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.operate.findings import Finding

    _Results: TypeAlias = SimpleQueue[tuple[str, "CheckpointStatus"]]


_Found = TypeVar("_Found")

# Seconds for all checkpoints and sources together. A status is often requested when a storage system does not respond.
LOOK_S = 5.0
# Maximum number of checkpoints to read. The queries that wrote last are chosen.
CHECKPOINTS_MAX = 32

_WHERE = "see lastProgress of the query, or the metric ftfile_source_backlog"
_WHICH_DIRECTORY = Advice(
    "a checkpoint does not name the directory that the query follows: give it with ",
    Wording("sources=[…]", "--source PATH"),
)
_NONE_OF_THEM = Advice("the query follows none of the directories given with ", Wording("sources=[…]", "--source PATH"))
_STATE_ELSEWHERE = Advice(
    "its state is not below the checkpoint: ",
    Wording("ftfile.source_status(path, stateLocation=…)", f"`ftfile source {PATH} --option stateLocation=…`"),
    " reads it there",
)
_NOT_COUNTED = Advice(
    f"it did not answer within {LOOK_S:g} s: ",
    Wording("ftfile.source_status(path, checkpointLocation=…)", f"`ftfile source {PATH} --checkpoint …`"),
    " waits longer",
)
_SILENT = f"it did not answer within {LOOK_S:g} s"
_AHEAD = (
    "it has completed batch {}, but the directory ends with batch {}: newer records are lost, or the directory was "
    "restored from an older copy, and the query is refused; see docs/disaster-recovery.md"
)
_BEHIND = (
    "it ends with {}, but the directory with batch {}: the checkpoint was restored from an older copy, and the query "
    "must read the batches between as before; see docs/disaster-recovery.md"
)
_ELSEWHERE = (
    "a record names it, but it is on another storage system than the directory and was not read: give its path as one "
    "of checkpoints"
)
_NOT_LOOKED_AT = f"it was not read: only the {CHECKPOINTS_MAX} checkpoints of the queries that wrote last are read"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """The backlog of one source of a query, if it is known. For files it is the result of `ftfile.source_status`."""

    source: int  # its number in the query, as in Spark's checkpoint: `sources/0`
    kind: str  # `ftfile` for a followed directory or store, `files` that ftfile reads, `kafka`, or `other`
    offset: Any  # end offset of the newest planned batch, as in Spark's checkpoint
    path: str | None = None  # of an ftfile directory, or of files, if it is known
    versions_behind: int | None = None  # of an ftfile directory, committed versions that are not in a planned batch
    files_behind: int | None = None  # of files with unread content; None if not known
    bytes_behind: int | None = None  # in these files
    oldest_unread_ms: int | None = None  # modification time of the oldest unread file, since 1970 UTC; None for none
    parked: int | None = None  # files that are skipped until they change, such as damaged files
    refused: int | None = None  # files of the newest plan that could not be opened
    late: int | None = None  # files that arrived too late and will never be read
    unknown: str = ""  # why the backlog is not known, and where to find it; empty if it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """The progress of a query, as recorded in its Spark checkpoint."""

    path: str  # URL of the checkpoint
    problem: str = ""  # why it was not read, or does not match the directory; empty if there is no problem
    # the newest planned batch; None before the first batch, and if the checkpoint was not read
    planned_batch: int | None = None
    planned_ms: int | None = None  # time of its planning, since 1970 UTC by the driver's clock; None if not known
    committed_batch: int | None = None  # the newest batch that Spark has recorded as committed
    sources: tuple[SourceLag, ...] = ()  # at the newest planned batch
    contradicts: bool = False  # True if its batches contradict the directory: `problem` names the batches

    @property
    def backlog(self) -> str:
        """Return the known backlog of all sources, such as `3 versions and 2 files`; empty for none."""
        versions = sum(source.versions_behind or 0 for source in self.sources)
        files = sum(source.files_behind or 0 for source in self.sources)
        amounts: list[str] = []
        if versions:
            amounts.append(count_text(versions, "version"))
        if files:
            amounts.append(count_text(files, "file"))
        return " and ".join(amounts)

    @property
    def is_up_to_date(self) -> bool:
        """Return True if the backlog of all sources is known and empty."""
        if not self.sources or self.problem or self.backlog:
            return False
        return not any(source.unknown for source in self.sources)

    @property
    def under_way(self) -> bool:
        """Return True if a planned batch is not committed: it is running, or the query stopped during it."""
        return self.planned_batch is not None and self.planned_batch != self.committed_batch


@dataclass(kw_only=True)
class Lag:
    """Reader of the backlog of queries. Each checkpoint is read in a separate thread."""

    url: str  # of the directory that the queries write to
    # paths of checkpoints that records do not contain, or that have another path on this host
    checkpoints: Collection[str]
    sources: Collection[str]  # paths of ftfile directories that queries may follow
    storage: Mapping[str, str]  # settings of the file system of the directory, used for all paths on the same storage

    def look(self, log: CommitLog, head: LogState) -> dict[str, CheckpointStatus]:
        """Return the status of each checkpoint by query id, also of checkpoints that do not respond in time.

        Raises:
            ConfigError: a given checkpoint belongs to no query that wrote here, or a given source is not an ftfile
                directory.
            Unavailable: a given checkpoint or source does not respond.
        """
        context = replace(log.fs.context, retry=RetryPolicy(attempts=1))
        end_s = context.clock.monotonic_s() + LOOK_S

        def left_s() -> float:
            return max(0.0, end_s - context.clock.monotonic_s())

        opens = {path: partial(open_log, path, self._access_to(path, context)) for path in self.sources}
        _answers(opens, left_s())
        calls = {path: partial(self._query_of, path, head, context) for path in self.checkpoints}
        named_checkpoints = {query_id: normalise(path) for path, query_id in _answers(calls, left_s()).items()}
        chosen, statuses = self._choose(head, named_checkpoints)
        results: _Results = SimpleQueue()
        answers = []
        for query_id, url in chosen.items():
            answers.append(start(partial(self._look_at, query_id, url, context, results=results)))
        wait_for(answers, left_s())
        for answer in answers:
            if answer.is_set():
                answer.result()
        # Threads that have not ended can still add results, which are not read.
        for _ in range(results.qsize()):
            query_id, status = results.get()
            statuses[query_id] = status
        if statuses:
            return _compare_statuses(statuses, head, log.refresh())
        return {}

    def _choose(
        self, head: LogState, named_checkpoints: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, CheckpointStatus]]:
        """Return the URLs of the checkpoints to read, and the initial status of all checkpoints, by query id."""
        statuses: dict[str, CheckpointStatus] = {}
        chosen: dict[str, str] = {}
        newest_first = sorted(head.queries, key=lambda query_id: head.queries[query_id].version, reverse=True)
        for query_id in newest_first:
            named = named_checkpoints.get(query_id)
            url = named or recorded_checkpoint(head, query_id)
            if url is None:
                continue
            if named is None and self._is_elsewhere(url):
                statuses[query_id] = CheckpointStatus(path=url, problem=_ELSEWHERE)
            elif len(chosen) < CHECKPOINTS_MAX:
                chosen[query_id] = url
                statuses[query_id] = CheckpointStatus(path=url, problem=_SILENT)
            else:
                statuses[query_id] = CheckpointStatus(path=url, problem=_NOT_LOOKED_AT)
        return chosen, statuses

    def _query_of(self, path: str, head: LogState, context: Context) -> str:
        """Return the query of a checkpoint; raise a ConfigError if this query has not written here."""
        query_id = read_query_id(path, context, self._settings_for(path))
        if query_id is not None and query_id in head.queries:
            return query_id
        if query_id is None:
            actual = "not a readable checkpoint"
        else:
            actual = f"the checkpoint of query {query_id}"
        raise ConfigError(
            Advice(
                Argument("checkpoint", path),
                f": it is {actual}; the queries that wrote here are {', '.join(head.queries)}",
            )
        )

    def _look_at(self, query_id: str, url: str, context: Context, results: _Results) -> None:
        """Put the status of a query's checkpoint into `results`, and again after the backlog of each source."""
        try:
            progress = read_progress(url, query_id, context, self._settings_for(url))
        except (FtfileError, OSError) as error:
            results.put((query_id, CheckpointStatus(path=url, problem=str(error))))
            return
        offsets = progress.offsets
        planned_ms = None
        sources: list[SourceLag] = []
        if offsets is not None:
            planned_ms = offsets.time_ms
            sources += [_lag_of_recorded(number, offset) for number, offset in enumerate(offsets.offsets)]
        status = CheckpointStatus(
            path=url,
            problem="",
            planned_batch=progress.planned,
            planned_ms=planned_ms,
            committed_batch=progress.committed,
        )
        results.put((query_id, replace(status, sources=tuple(sources))))
        for number, recorded in enumerate(sources):
            try:
                sources[number] = self._count_lag(recorded, url, context)
            except (FtfileError, OSError) as error:
                sources[number] = replace(recorded, unknown=str(error))
            results.put((query_id, replace(status, sources=tuple(sources))))

    def _count_lag(self, source: SourceLag, checkpoint: str, context: Context) -> SourceLag:
        """Return a source with its backlog, if its offset identifies the kind of source."""
        if source.kind == "files":
            return self._files(source, checkpoint, context)
        if source.kind == "ftfile":
            return self._directory(source, context)
        return source

    def _directory(self, source: SourceLag, context: Context) -> SourceLag:
        position = position_of(source.offset)
        if isinstance(position, Beginning):
            return replace(source, unknown="no batch read it yet")
        gone: HistoryGone | None = None
        for path in self.sources:
            log = open_log(path, self._access_to(path, context))
            head = log.refresh()
            try:
                check_position(log, head, position)
            except AnotherLog:
                continue
            except HistoryGone as error:  # or the position belongs to another log, and no kept record shows this
                gone = error
                continue
            behind = max(0, head.version - position.version)
            return replace(source, path=normalise(path), versions_behind=behind, unknown="")
        if gone is not None:
            raise gone
        return replace(source, unknown=_NONE_OF_THEM if self.sources else _WHICH_DIRECTORY)

    def _files(self, source: SourceLag, checkpoint: str, context: Context) -> SourceLag:
        # The import of NumPy takes longer than all other imports, and few directories are written from files.
        from ftfile.source.status import status_of  # noqa: PLC0415

        position = plan_of(source.offset)
        assert position is not None, "it has a plan"
        settings = self._settings_for(checkpoint) or {}
        storage = {f"{STORAGE_PREFIX}{name}": text for name, text in settings.items()}
        status = status_of(
            f"{checkpoint.rstrip('/')}/{layout.STATE_IN_CHECKPOINT}",
            position.log_id,
            given=storage,
            context=context,
            listings={},
        )
        if status is None:
            return replace(source, unknown=_STATE_ELSEWHERE)
        return replace(
            source,
            path=status.path,
            files_behind=status.files_behind,
            bytes_behind=status.bytes_behind,
            oldest_unread_ms=status.oldest_unread_ms,
            parked=len(status.parked),
            refused=len(status.refused),
            late=status.late,
            unknown="",
        )

    def _access_to(self, url: str, context: Context) -> Access:
        return Access(storage=self._settings_for(url), context=context)

    def _settings_for(self, url: str) -> dict[str, str] | None:
        """Return the file system settings for a path on the storage of the directory; None for paths elsewhere."""
        if self._is_elsewhere(url):
            return None
        return dict(self.storage)

    def _is_elsewhere(self, url: str) -> bool:
        """Return True if a path is on other storage than the directory, by scheme, host or bucket, or is not a URL."""
        try:
            there, here = parse(url), parse(self.url)
        except ConfigError:
            return True
        return (there.scheme, there.authority) != (here.scheme, here.authority)


def findings_of_checkpoint(query_id: str, checkpoint: CheckpointStatus | None) -> Iterator[Finding]:
    """Yield a finding if a query's checkpoint was not read, or does not match the directory."""
    if checkpoint is not None and checkpoint.problem:
        code = "checkpoint-unread"
        if checkpoint.contradicts:
            code = "checkpoint-contradicts"
        yield find(code, checkpoint.path, f"the checkpoint of query {query_id}", checkpoint.problem)


def _answers(calls: Mapping[str, Callable[[], _Found]], wait_s: float) -> dict[str, _Found]:
    """Return the results of calls by path; raise Unavailable if a call does not return in time."""
    answers = {path: start(call) for path, call in calls.items()}
    wait_for(answers.values(), wait_s)
    for path, answer in answers.items():
        if not answer.is_set():
            raise Unavailable("stat", path, f"{_SILENT}: leave it out to see the rest")
    return {path: answer.result() for path, answer in answers.items()}


def _compare_statuses(
    statuses: dict[str, CheckpointStatus], before: LogState, after: LogState
) -> dict[str, CheckpointStatus]:
    """Return the statuses with a problem for each checkpoint that contradicts the log.

    `before` and `after` are the states of the log before and after the checkpoints were read.
    """
    for query_id, status in statuses.items():
        least, most = before.queries[query_id].last_batch, after.queries[query_id].last_batch
        planned, committed = status.planned_batch, status.committed_batch
        if not status.problem and committed is not None and committed > most:
            statuses[query_id] = replace(status, problem=_AHEAD.format(committed, most), contradicts=True)
        elif not status.problem and (planned is None or planned < least):
            newest = "no batch"
            if planned is not None:
                newest = f"batch {planned}"
            statuses[query_id] = replace(status, problem=_BEHIND.format(newest, least), contradicts=True)
    return statuses


def _lag_of_recorded(number: int, offset: Any) -> SourceLag:  # noqa: ANN401 - any JSON
    """Return a source with the facts that its offset contains."""
    if isinstance(offset, dict):
        fields = offset
    else:
        fields = {}
    kind = fields.get("kind")
    # not a set, which would hash the value: for a topic with the name `kind`, the value is a dict
    if kind in ("log", "start"):
        return SourceLag(source=number, kind="ftfile", offset=offset, unknown=_NOT_COUNTED)
    if kind == "plans":
        return SourceLag(source=number, kind="files", offset=offset, unknown=_NOT_COUNTED)
    if fields and all(map(_is_topic, fields.values())):
        return SourceLag(
            source=number, kind="kafka", offset=offset, unknown=f"only Kafka has the newest offsets: {_WHERE}"
        )
    return SourceLag(
        source=number, kind="other", offset=offset, unknown=f"only the source has its newest offset: {_WHERE}"
    )


def _is_topic(ends: object) -> bool:
    """Return True for the offsets of the partitions of a Kafka topic."""
    return isinstance(ends, dict) and bool(ends) and all(type(end) is int for end in ends.values())
