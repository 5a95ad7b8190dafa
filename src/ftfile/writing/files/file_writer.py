"""The sink for files: the steps of a batch on the driver."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import ConfigError, NotFound, SchemaError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import OnePerKey
from ftfile.log.directory import (
    check_foreign_tables,
    check_is_files,
    check_outside_directories,
    list_new_directory,
)
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor
from ftfile.writing.files.file_options import SinkConfig, forget_configs
from ftfile.writing.files.prepared_files import PreparedFiles, check_head, check_paths, recorded_zone
from ftfile.writing.files.rolling_rules import ALL_END
from ftfile.writing.messages import StreamIdentity
from ftfile.writing.options import forget_logs
from ftfile.writing.sink import DirectoryCheck, Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.core.context import Context, IdSource
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo
    from ftfile.writing.files.rolling_plan import RollingPlanner
    from ftfile.writing.files.rolling_rules import RollingSettings
    from ftfile.writing.messages import TaskCommit, WriterIdentity
    from ftfile.writing.sink import TaskSteps


PLANNERS_KEPT = 16
_log = get_logger(__name__)


def forget_caches() -> None:
    """Drop this process's caches, to simulate a new process."""
    forget_logs()
    forget_configs()
    _planners.clear()


class FileSink(Sink[SinkConfig]):
    """The sink that writes rows as parts, or as segments of parts that stay open over batches."""

    __slots__ = ()

    def check_directory(
        self,
        config: SinkConfig,
        log: CommitLog,
        read_head: Callable[[], LogState],
        is_repetition: Callable[[LogState], bool],
    ) -> DirectoryCheck[SinkConfig]:
        """See `Sink.check_directory`."""
        now_ms = log.clock.now_ms()
        check_paths(config, log.fs.capabilities, now_ms)
        if config.replacement is not None:
            config.replacement.with_clock_values(now_ms)
        log.fs.prove(layout.META)
        head = read_head()
        if head.version < 0:
            _check_new_directory(config, log)
        else:
            check_foreign_tables(log, head, config.path)
        check_is_files(head, config.path)
        try:
            check_head(config, head, lambda: _snapshot_of(log))
        except (ConfigError, SchemaError):
            if not is_repetition(head):
                raise
        # Tasks decode the segments of jobs by these definitions.
        definitions = {}
        for job in head.jobs:
            key = job.inputs[0].encoding
            if key in head.definitions:
                definitions[key] = head.definitions[key]
        return DirectoryCheck(config.in_zone(recorded_zone(head)), head, definitions)

    def task_steps(self) -> TaskSteps[SinkConfig]:
        """See `Sink.task_steps`."""
        from ftfile.writing.files.task import FileTaskSteps  # noqa: PLC0415 - only tasks need it

        return FileTaskSteps()

    def prepare(self, config: SinkConfig, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedFiles:
        """See `Sink.prepare`."""
        if config.directories.takes_zone:
            # Tasks with rows have read the zone of the session.
            zones = (message.time_zone for message in messages if message.time_zone)
            config = config.in_zone(next(zones, None))
        planner = _planner(config, messages[0].identity.writer, log.ids)
        return PreparedFiles(config, author, messages=messages, log=log, planner=planner)


def refuse_rolling(config: SinkConfig) -> None:
    """Raise a ConfigError if files stay open, which a batch write cannot do."""
    if config.rolling is not None:
        raise ConfigError(
            "files stay open over the batches of a stream, and a batch write has one: leave out rolling=policy and "
            "what implies it; maxBytesPerFile and maxRecordsPerFile split the files of a batch write"
        )


def session_refusal(config: SinkConfig, overwrite_mode: str, context: Context) -> ConfigError | SchemaError | None:
    """Return the error that a commit in a session with this `partitionOverwriteMode` would raise; else None."""
    in_session = config.for_session(overwrite_mode)
    if in_session is config:
        return None
    log = config.log(context)
    head, transaction = log.refresh(), config.common.transaction
    if transaction is not None and head.has(BatchWriteAuthor("", transaction)):
        return None  # the commit finds the write in the log
    try:
        check_head(in_session, head, lambda: _snapshot_of(log))
    except (ConfigError, SchemaError) as error:
        return error
    return None


def _planner(config: SinkConfig, writer: WriterIdentity, ids: IdSource) -> RollingPlanner | None:
    """Return the planner that ends open parts; None for a batch write, which has no open parts."""
    if not isinstance(writer, StreamIdentity):
        return None
    encoding = config.encoding_key
    rolling = config.rolling or ALL_END
    # One for each query, because queries in one process can write to the same directory.
    return _planners.of(_PlannerKey(config.path, writer.query_id, encoding, rolling, ids))


class _PlannerKey(NamedTuple):
    path: str
    query_id: str
    encoding: str
    rolling: RollingSettings
    ids: IdSource


def _new_planner(key: _PlannerKey) -> RollingPlanner:
    from ftfile.writing.files.rolling_plan import RollingPlanner  # noqa: PLC0415 - only commits need it

    return RollingPlanner(key.query_id, key.encoding, key.rolling, key.ids)


_planners = OnePerKey(_new_planner, PLANNERS_KEPT)


def _snapshot_of(log: CommitLog) -> Snapshot:
    from ftfile.log.read.snapshot import take_snapshot  # noqa: PLC0415 - a plan seldom needs one

    return take_snapshot(log)


def has_due_files(config: SinkConfig, writer: StreamIdentity, log: CommitLog) -> bool:
    """Return True if a batch without rows would end open files of a query, or assemble files that have ended."""
    planner = _planner(config, writer, log.ids)
    if planner is None:
        return False
    with log.lock:
        return bool(planner.due_at(log.refresh(), log.clock.now_ms()))


def _check_new_directory(config: SinkConfig, log: CommitLog) -> None:
    """Reject tables of other formats and unknown layouts before the first commit, and warn about existing files."""
    check_outside_directories(config.path, dict(config.common.storage.client_settings), log.fs.context)
    entries = list_new_directory(log.fs, config.path)
    with contextlib.suppress(NotFound):
        log.check_layout()
    # Files that are written under their final names can exist before the first commit.
    if not config.publishing.direct:
        warn_of_foreign_entries(config.path, entries)
    if config.directories.is_single:
        _log.info("no partitionBy option: rows go to one directory. Spark's .partitionBy() never reaches a Python sink")


def warn_of_foreign_entries(path: str, entries: Iterable[FileInfo]) -> None:
    """Log a warning if a directory without a log contains files of other programs."""
    foreign_entries = []
    for info in entries:
        if info.path[0] not in "_.":
            foreign_entries.append(info.path)
    if foreign_entries:
        _log.warning(
            "%s is not empty: it contains %d entries that ftfile did not write, such as %r. Plain readers also read "
            "them",
            path,
            len(foreign_entries),
            foreign_entries[0],
        )
