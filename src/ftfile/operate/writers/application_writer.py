"""`ftfile.writer`, which writes rows and the position of their source in one commit after the other."""

from __future__ import annotations

import os
import threading
import weakref
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ArgumentError, CallOrder, CommitError, Fenced, SchemaError
from ftfile.core.logs import get_logger
from ftfile.log.directory import directory_url, file_as_config_error
from ftfile.log.format.model import Body
from ftfile.log.protocol import commit
from ftfile.operate.export.after_commit import EXPORT_WAIT_S, export_stream
from ftfile.operate.writers.arrow_rows import arrow_rows, difference
from ftfile.operate.writers.directory_options import common_settings, writer_options
from ftfile.operate.writers.early_imports import import_early
from ftfile.operate.writers.named_options import show_options
from ftfile.operate.writers.openings import check_app_id, check_new_directory, open_application
from ftfile.operate.writers.positions import UNCHANGED, check_position, is_same_position
from ftfile.operate.writers.row_columns import RowColumns, columns_of_open_files, directory_schema
from ftfile.operate.writers.row_threads import RowThreads, threads_of
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_writer import FileSink, has_due_files
from ftfile.writing.files.publishing import check_hook, report_pending
from ftfile.writing.messages import StreamIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from typing_extensions import Unpack

    from ftfile.core.context import Context
    from ftfile.log.protocol import Committed
    from ftfile.log.state import LogState
    from ftfile.operate.writers.directory_options import GivenOptions
    from ftfile.operate.writers.sink_arguments import SinkArguments
    from ftfile.writing.applications import ApplicationBatch
    from ftfile.writing.files.file_options import SinkConfig
    from ftfile.writing.messages import TaskCommit

_FOR_BATCHES = "it is for ftfile.write and for batch writes of Spark"
_FOR_QUERIES = "it is for queries of Spark, which can lose their checkpoint: a writer's position is in the log"
# Options that have no effect on a writer, or that it has as arguments, each with the reason.
_ELSEWHERE = {
    "path": "it is the first argument",
    "txn_app_id": "use the argument app_id",
    "txn_version": "a writer numbers its batches itself",
    "partition_overwrite_mode": _FOR_BATCHES,
    "replace_where": _FOR_BATCHES,
    "checkpoint_location": _FOR_QUERIES,
    "on_new_query": _FOR_QUERIES,
    "on_gap": _FOR_QUERIES,
    "on_replay_mismatch": _FOR_QUERIES,
}

_FAILED = "a write failed ({!r:.200}): call abort(), and write the rows after `position` again"

_log = get_logger(__name__)


@dataclass(frozen=True)
class _PendingCommit:
    """A batch whose rows are complete. `run` commits it, and can be repeated until it succeeds."""

    batch: ApplicationBatch
    run: Callable[[], Committed]

    @property
    def position(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the position after the batch."""
        return self.batch.application.position


class DirectoryWriter:
    """Writes rows to a directory as one application, exactly once, by one commit after the other; see `ftfile.writer`.

    A failed `commit` may be repeated with the same position. After a failed `write`, call `abort`, and write the rows
    after `position` again. Another thread must not call it during a call.

    Attributes:
        path: the URL of the directory.
        app_id: the name of the application.
        version: of the directory after the last commit of the application; -1 before the first one.
    """

    def __init__(self, app_id: str, options: GivenOptions, threads: int, context: Context) -> None:
        self._options, self._threads, self._context = options, threads, context
        self.path = directory_url(options.texts["path"])
        common = common_settings(options.texts, stream=True)
        # The position is in the log, so no checkpoint can be lost.
        self._common = replace(
            common,
            policy=replace(common.policy, on_new_query="continue", on_gap="fail", on_replay_mismatch="fail"),
            is_application=True,
        )
        self._storage_log = common.log_at(self.path, context)
        common.storage.for_storage(self._storage_log.fs.capabilities)
        with file_as_config_error(self._storage_log, self.path):
            check_new_directory(self._storage_log, self.path, common.storage.client_settings)
        self.app_id = app_id
        self._process_id = os.getpid()
        self._calls = threading.Lock()
        self._columns: RowColumns | None = None  # of the newest rows
        self._batch: list[RowThreads] = []  # the threads of the batch; empty before its first rows
        self._pending: _PendingCommit | None = None
        self._failure: CommitError | None = None  # why no row can be added to the batch
        self._reopening = ""  # the id of an opening by `abort` that may be in the log
        self._on_publish = options.recorded.checked.on_publish
        if self._on_publish is not None:
            check_hook(self._on_publish)
        self._reported: tuple[int, ...] = ()  # versions that the next record marks as reported
        self._is_open = True
        import_early(options.texts)
        self._open(self._storage_log.ids.unique())
        self._report()  # files of a process that died before it called the function
        # Threads of a writer that is not closed must end before the interpreter does.
        weakref.finalize(self, _stop, self._batch, self._process_id)

    def __enter__(self) -> DirectoryWriter:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"app_id={self.app_id!r}, position={self.position!r:.80}, version={self.version}"
        return f"DirectoryWriter({self.path!r}, {state})"

    @property
    def position(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the position of the last commit, by this process or an earlier one; None before the first one.

        The value is a copy: a program may change it for its next commit, and read the position again after `abort`.
        """
        return deepcopy(self._position)

    def write(self, data: Any) -> None:  # noqa: ANN401 - many types of many libraries
        """Add rows to the batch. They are encoded by other threads, and visible after `commit`.

        Args:
            data: as for `ftfile.write`. All rows of a batch have the same columns.

        Raises:
            ArgumentError: the value is of another type.
            SchemaError: a column cannot be stored, differs from the other rows of the batch, or does not match the
                columns of the directory. The batch is unchanged.
            CallOrder: the writer is closed, another call runs, a call has failed, or this process was forked from the
                process that opened the writer.
            Fenced: a commit has found that another process has opened the directory with this `app_id`.
            FtfileError: as for a task of Spark, also for rows of earlier calls. Call `abort`.
        """
        with self._lock_for("write"):
            self._require_no_failure()
            # A commit after an error that the program ignores, such as Ctrl-C, would record a position whose rows are
            # missing. So the call has failed until its rows are complete.
            self._failure = CallOrder(_FAILED.format(KeyboardInterrupt()))
            has_taken_rows = False
            try:
                rows = arrow_rows(data, self._earlier_columns)
                threads = self._threads_for(rows.schema)
                has_taken_rows = True
                for batch in rows.batches:
                    threads.put(batch)
            except BaseException as error:
                self._failure = CallOrder(_FAILED.format(error))
                # If the data are wrong and no row was taken, the program can leave them out.
                if not has_taken_rows and isinstance(error, ArgumentError | SchemaError):
                    self._failure = None
                raise
            self._failure = None

    def commit(self, position: Any = UNCHANGED) -> int:  # noqa: ANN401 - any JSON value
        """Commit the rows since the last commit, together with a position, and return the version of the directory.

        If the call fails, it is unknown whether the batch is committed: repeat the call with the same position, or call
        `abort`. A repeated call commits the batch once. A call without new rows only records the position; it does
        nothing if the position is the same, unless open files have to end.

        Args:
            position: where the source continues after these rows, as JSON of at most 64 KiB; by default the position
                of the last commit. None is the position before the first commit.

        Raises:
            ArgumentError: the position is not JSON, or is too large; nothing changed.
            CallOrder: the writer is closed, another call runs, a write or `abort` has failed, or the last call failed
                with another position.
            Fenced: another process has opened the directory with this `app_id`. This call commits nothing. If an
                earlier call failed, the batch may have been committed before the opening.
            NotPublished: the batch is committed, and a repeated call publishes its files.
            FtfileError: as for a batch of Spark.
        """
        if position is UNCHANGED:
            position = self.position
        position = check_position(position)
        with self._lock_for("commit"):
            if self._pending is None:
                self._require_no_failure()
                self._pending = self._complete(position)
            elif self._reopening:
                raise CallOrder("the last abort failed: call abort() again")
            elif not is_same_position(self._pending.position, position):
                raise CallOrder(
                    f"position={position!r:.200}: the last commit failed with the position "
                    f"{self._pending.position!r:.200}, and may be in the log. Call commit() with that position, or "
                    "abort()"
                )
            self._failure = None  # an earlier call can have been interrupted before this line
            if self._pending is None:
                return self.version
            batch = self._pending.batch
            try:
                done = self._pending.run()
            except Fenced as error:
                self._failure = error
                raise
            self._report()
            version = done.version
            if done.record is None:  # the batch was already in the log
                version = self._storage_log.refresh().queries[self.app_id].version
            # If Ctrl-C interrupts this, the batch is still pending, and a repeated call or `abort` finds it in the log.
            self._continue_at(batch, version)
            self._pending = None
            if self._columns is not None:
                export_stream(self._columns.config, self._context)
            return self.version

    def abort(self) -> None:
        """Drop the rows since the last commit, and delete their files. Then `position` is the last committed position.

        After a failed commit, the call finds out if the batch is committed, and no later than this call: an attempt
        that the storage still executes cannot commit it any more.

        Raises:
            Fenced: another process has opened the directory with this `app_id`.
            CommitError, StorageError: the outcome of a failed commit could not be found out; repeat the call.
        """
        with self._lock_for("abort"):
            self._drop_rows()
            if self._pending is not None:
                # A repeated abort has the id of the opening whose response was lost, which is not another process.
                self._reopening = self._reopening or self._storage_log.ids.unique()
                self._open(self._reopening, self._pending.batch)
                self._pending, self._reopening = None, ""
            self._failure = None
            self._report()

    def close(self) -> None:
        """Drop the rows since the last commit, and end the writer. Idempotent.

        A warning is logged if rows are dropped, or if the last commit failed and may be in the log. The call waits up
        to a minute for exports of `export_to`.
        """
        if not self._is_open or os.getpid() != self._process_id:
            return  # the files and threads of a batch belong to the process that opened the writer
        with self._lock_for("close"):
            self._is_open = False
            if self._pending is not None:
                _log.warning(
                    "%s: the writer of %r was closed after its last commit failed, with the position %r. This commit "
                    "may be in the log, with its rows: the next opening returns the committed position",
                    self.path,
                    self.app_id,
                    self._pending.position,
                )
            elif any(threads.has_rows for threads in self._batch):
                _log.warning(
                    "%s: the writer of %r was closed with rows after its last commit, which are dropped. Its position "
                    "is still %r",
                    self.path,
                    self.app_id,
                    self.position,
                )
            self._drop_rows()
            if self._columns is not None and self._columns.config.publishing.export_to:
                export_stream(self._columns.config, self._context, wait_s=EXPORT_WAIT_S)

    def _lock_for(self, name: str) -> threading.Lock:
        """Return the lock of calls for a call of the user, unless another call runs or the writer is closed.

        The lock is entered by `with`: between it and its block, Python raises no KeyboardInterrupt, which would leave
        the lock locked.
        """
        if os.getpid() != self._process_id:
            raise CallOrder(
                f"{name}(): the writer was opened by another process, of which this one is a copy (os.fork, or a pool "
                "of multiprocessing): open a writer in this process, with another app_id"
            )
        if self._calls.locked():
            raise CallOrder(f"{name}(): another call of this writer runs. A writer is used by one thread at a time")
        if not self._is_open:
            raise CallOrder(f"{name}(): the writer is closed: open it again by ftfile.writer")
        return self._calls

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(self._failure.text)
        if self._pending is not None:
            raise CallOrder(
                "the last commit failed, and may be in the log: call commit() with its position, or abort()"
            )

    def _open(self, run_id: str, before: ApplicationBatch | None = None) -> None:
        """Record an opening, and continue after the last committed batch."""
        opening = open_application(self._storage_log, self.path, self.app_id, run_id, self._common.policy, before)
        self._next = opening.batch
        self._position = opening.batch.application.position
        self.version = opening.version

    def _report(self) -> None:
        """Call the function of `on_publish` with the visible files of all commits for which it was not called."""
        if self._on_publish is not None:
            versions = report_pending(self._storage_log, self._on_publish, self.path, self.app_id, self._reported)
            self._reported = (*self._reported, *versions)

    def _continue_at(self, batch: ApplicationBatch, version: int) -> None:
        self._next = replace(batch, batch_id=batch.batch_id + 1)
        self._reported = tuple(version for version in self._reported if version not in batch.reported)
        self._position = batch.application.position
        self.version = version

    @property
    def _identity(self) -> StreamIdentity:
        return StreamIdentity(self.app_id, self._next.application.run_id, self._next.batch_id)

    def _threads_for(self, schema: pa.Schema) -> RowThreads:
        """Return the threads of the batch for rows of a schema; the first rows begin the batch."""
        if not self._batch:
            return self._begin(schema)
        assert self._columns is not None
        if not schema.equals(self._columns.schema):
            raise SchemaError(
                f"data: it has other columns than earlier rows of the batch: {difference(schema, self._columns.schema)}"
            )
        return self._batch[0]

    def _earlier_columns(self) -> pa.Schema | None:
        if self._columns is None:
            return directory_schema(self._storage_log.refresh())
        return self._columns.schema

    def _begin(self, schema: pa.Schema) -> RowThreads:
        columns = self._columns
        if columns is None or not schema.equals(columns.schema, check_metadata=True):
            columns = RowColumns.of(schema, self._options, self._common)
        plan = plan_write(FileSink(), columns.config, self._context, tasks_here=True)
        threads = RowThreads(plan, self._identity, self._threads, self._context)
        self._columns = columns
        self._batch.append(threads)
        return threads

    def _complete(self, position: Any) -> _PendingCommit | None:  # noqa: ANN401 - any JSON value
        """End the batch, and return its commit; None if there is nothing to commit."""
        batch = replace(self._next, application=self._next.application.at(position), reported=self._reported)
        if not self._batch:
            self._end_due_files()
        columns = self._columns
        if not self._batch or columns is None:
            if is_same_position(self.position, position):
                return None
            return _PendingCommit(batch, lambda: self._commit_position(batch))
        # Unless the commit is kept, such as after Ctrl-C, a repeated call would commit the position without the rows.
        self._failure = CallOrder(_FAILED.format(KeyboardInterrupt()))
        try:
            messages = self._batch[0].finish()
        except BaseException as error:
            self._failure = CallOrder(_FAILED.format(error))
            raise
        self._batch.clear()
        return _PendingCommit(batch, lambda: self._commit_rows(batch, columns.config, messages))

    def _end_due_files(self) -> None:
        """Begin a batch without rows if it would end files."""
        if self._columns is None:
            head = self._storage_log.refresh()
            self._columns = columns_of_open_files(head, self.app_id, self._options, self._common)
        if self._columns is not None and has_due_files(self._columns.config, self._identity, self._storage_log):
            self._begin(self._columns.schema)

    def _commit_rows(self, batch: ApplicationBatch, config: SinkConfig, messages: list[TaskCommit]) -> Committed:
        return commit_batch(FileSink(), config, messages, batch.batch_id, self._context, batch)

    def _commit_position(self, batch: ApplicationBatch) -> Committed:
        """Record a batch without rows, whose columns may be unknown."""

        def prepare(head: LogState, _: object) -> Body:
            query = head.queries.get(self.app_id)
            settings = None
            if query is not None:
                settings = query.settings
            return Body(settings=settings)

        with self._storage_log.lock:
            return commit(
                self._storage_log,
                batch.author,
                partial(batch.body, prepare),
                self._common.policy,
                check_head=batch.check,
            )

    def _drop_rows(self) -> None:
        for threads in self._batch:
            threads.discard()
        self._batch.clear()


def _stop(batch: list[RowThreads], process_id: int) -> None:
    if os.getpid() != process_id:
        return  # a copy of the process has no threads, but perhaps their locks
    for threads in batch:
        threads.stop()


def writer(
    path: str | os.PathLike[str],
    app_id: str,
    *,
    threads: int | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
    **options: Unpack[SinkArguments],
) -> DirectoryWriter:
    """Open a directory for commits of rows with positions, as one application, without Spark.

    Each commit contains rows and the position of the application in its source, so a program that continues at
    `DirectoryWriter.position` after a crash writes each row once. For example::

        with ftfile.writer("/data/orders", "orders", file_format="parquet") as writer:
            for rows, position in consume(writer.position):
                writer.write(rows)
                writer.commit(position)

    The call records the opening. From then on, a process that had opened the directory with the same `app_id` cannot
    commit. Queries of Spark, other programs and maintenance calls can write to the directory at the same time. Leaving
    the `with` block closes the writer, and drops rows after the last commit.

    Args:
        path: of the directory, or its URL. It is created if it does not exist.
        app_id: the name of the application: at most 100 letters, digits, points, hyphens and underscores. It stays the
            same when the program starts again, and each application of a directory has another one.
        threads: the maximum number of threads that encode rows, each to separate files with its own `max_open_bytes` of
            memory; by default one for each core. Batches with fewer than 65,536 rows are written by one thread.
        storage: settings of the file system, as in `ftfile.open`.
        context: the clock and the ids, for tests.
        **options: options of the sink in snake case; see docs/options.md. A size is a number of bytes, or a text such
            as "128MiB"; a duration is a timedelta, or a text such as "10min".

    Raises:
        ArgumentError: an argument has a value of another type, or an option does not exist.
        ConfigError: an option has a wrong value, the directory is a store or a table of another program, or `app_id` is
            used by a query of Spark or by batch writes.
        CommitError, StorageError: the opening could not be recorded.
    """
    check_app_id(app_id)
    checked = writer_options(os.fspath(path), options, storage, _ELSEWHERE, context)
    return DirectoryWriter(app_id, checked, threads_of(threads, context), context)


show_options(writer, omitted=_ELSEWHERE)
