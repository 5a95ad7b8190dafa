"""The sink, see `write.writer`."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, NotFound, SchemaError
from ftfile.core.logs import get_logger
from ftfile.log.directory import check_foreign_tables, check_outside_directories, list_new_directory
from ftfile.log.format import layout
from ftfile.write.files.file_options import SinkConfig, forget_configs
from ftfile.write.files.prepared_files import PreparedFiles, check_head, check_paths, recorded_zone, session_zone
from ftfile.write.files.rolling_rules import ALL_END
from ftfile.write.messages import StreamIdentity
from ftfile.write.options import forget_logs
from ftfile.write.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from ftfile.core.context import Context, IdSource
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.write.bad_records import BadRecords
    from ftfile.write.files.rolling_plan import RollingPlanner
    from ftfile.write.messages import StagedSegment, TaskCommit, TaskIdentity, WriterIdentity
    from ftfile.write.stage import Stage


PLANNERS_KEPT = 16
_log = get_logger(__name__)
_planners: dict[tuple[object, ...], RollingPlanner] = {}
_planners_lock = threading.Lock()


def forget_caches() -> None:
    """Drop this process's caches, as a new process would start."""
    forget_logs()
    forget_configs()
    with _planners_lock:
        _planners.clear()


class SinkWriter(Writer[SinkConfig]):
    """Writes rows as parts, or as segments of files that stay open; after a commit it announces the files."""

    __slots__ = ()

    def for_session(self, overwrite_mode: str | None) -> SinkWriter:
        """Return the writer in a session with this `partitionOverwriteMode`."""
        return SinkWriter(self.config.for_session(overwrite_mode), self.planned)

    def refusal_in(self, overwrite_mode: str, context: Context) -> ConfigError | SchemaError | None:
        """Return the error of the commit in a session with this `partitionOverwriteMode`, as far as the log tells."""
        config = self.config.for_session(overwrite_mode)
        if config is self.config:
            return None
        log = config.log(context)
        try:
            check_head(config, log.refresh(), lambda: _snapshot_of(log))
        except (ConfigError, SchemaError) as error:
            return error
        return None

    @staticmethod
    def _check_directory(config: SinkConfig, log: CommitLog) -> tuple[LogState, dict[str, Any]]:
        now_ms = log.clock.now_ms()
        check_paths(config, log.fs.capabilities, now_ms)
        if config.replacement is not None:
            config.replacement.with_clock_values(now_ms)
        log.fs.prove(layout.META)
        head = log.refresh()
        if head.version < 0:
            _check_new_directory(config, log)
        else:
            check_foreign_tables(log, head, config.path)
        check_head(config, head, lambda: _snapshot_of(log))
        needed = {job.inputs[0].encoding for job in head.assembly_tasks} & head.definitions.keys()
        return head, {key: head.definitions[key] for key in needed}

    @staticmethod
    def _following(config: SinkConfig, head: LogState) -> SinkConfig:
        return config.in_zone(recorded_zone(head))

    def write(self, identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context) -> TaskCommit:
        """See `Writer.write`: tasks alone know the time zone of the session, by the types of what Spark sends them."""
        directories = self.config.directories
        if not directories.takes_zone:
            return replace(super().write(identity, batches, context), time_zone=directories.time_zone)
        rest = iter(batches)
        for first in rest:
            config = self.config.in_zone(session_zone(first.schema))
            return SinkWriter(config, self.planned).write(identity, chain([first], rest), context)
        return super().write(identity, (), context)

    def _final_path(self, identity: TaskIdentity) -> Callable[[str, str], str] | None:
        """Return the function that names parts which are written under their final names."""
        config, writer = self.config, identity.writer
        if not config.publishing.direct:
            return None
        from ftfile.write.files.namer import Namer  # noqa: PLC0415

        namer = Namer(config.publishing.naming, writer.name_stem, self.batch_plan.time_ms, writer.owner, {})
        return lambda directory_key, file_id: namer.path(directory_key, file_id, config.extension, identity.partition)

    def _write_rows(
        self, writer: WriterIdentity, rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> tuple[StagedSegment, ...]:
        from ftfile.write.files.task import write_task  # noqa: PLC0415 - tasks alone need it

        return write_task(self.config, self.batch_plan, writer, rows, stage, bad)

    def _run_jobs(self, stage: Stage, head: LogState) -> tuple[tuple[Rewrite, ...], tuple[str, ...]]:
        from ftfile.write.files.task import run_assembly_tasks  # noqa: PLC0415

        return run_assembly_tasks(stage, head, self.batch_plan.definitions)

    def _prepare(self, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedFiles:
        config = self.config
        if config.directories.takes_zone:
            config = config.in_zone(next((message.time_zone for message in messages if message.time_zone), None))
        return PreparedFiles(config, author, messages, log, _planner(config, messages[0].identity.writer, log.ids))


def _planner(config: SinkConfig, writer: WriterIdentity, ids: IdSource) -> RollingPlanner | None:
    """Return the planner that ends open parts; None for a batch write, which leaves those to their queries."""
    if not isinstance(writer, StreamIdentity):
        return None
    from ftfile.write.files.rolling_plan import RollingPlanner  # noqa: PLC0415 - commits alone need it

    encoding, rolling = config.encoding_key, config.rolling or ALL_END
    key = (config.path, writer.query_id, encoding, rolling, ids)
    # Queries that share a directory may share a process, too.
    with _planners_lock:
        planner = _planners.pop(key, None) or RollingPlanner(writer.query_id, encoding, rolling, ids)
        _planners[key] = planner
        if len(_planners) > PLANNERS_KEPT:
            _planners.pop(next(iter(_planners)))
    return planner


def _snapshot_of(log: CommitLog) -> Snapshot:
    from ftfile.log.read.snapshot import take_snapshot  # noqa: PLC0415 - a plan seldom needs one

    return take_snapshot(log)


def _check_new_directory(config: SinkConfig, log: CommitLog) -> None:
    """Log once, before the first commit, what may surprise later; refuse tables of others, and unknown layouts."""
    check_outside_directories(config.path, dict(config.common.storage.client_settings), log.fs.context)
    foreign_entries = [info.path for info in list_new_directory(log.fs, config.path) if info.path[0] not in "_."]
    with contextlib.suppress(NotFound):
        log.check_layout()
    # Written under their names, own files may be there before the first commit.
    if foreign_entries and not config.publishing.direct:
        _log.warning(
            "%s is not empty: it has %d entries that ftfile did not write, such as %r. Plain readers read them, too",
            config.path,
            len(foreign_entries),
            foreign_entries[0],
        )
    if config.directories.is_single:
        _log.info("no partitionBy option: rows go to one directory. Spark's .partitionBy() never reaches a Python sink")
