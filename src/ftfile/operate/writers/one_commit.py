"""A write of rows in one commit."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait
from contextvars import copy_context
from itertools import chain
from typing import TYPE_CHECKING, Any

from ftfile.core.context import SYSTEM, cores
from ftfile.core.errors import ArgumentError, ConfigError
from ftfile.core.remedies import Advice, Argument
from ftfile.operate.export.after_commit import check_exports, export_batch_write
from ftfile.operate.writers.arrow_rows import arrow_rows
from ftfile.operate.writers.named_options import option_texts
from ftfile.rows.spark_types import spark_schema_json
from ftfile.storage.calls import Pool
from ftfile.writing.batch import commit_batch, plan_write, write_task
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink, refuse_rolling
from ftfile.writing.messages import JobIdentity, TaskIdentity
from ftfile.writing.workers import removing_unrecorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.writing.batch import WritePlan
    from ftfile.writing.messages import TaskCommit

_MODES = ("append", "overwrite", "dynamic")
# Fewer rows are written by one thread, to one file of each directory.
ROWS_PER_THREAD = 1 << 18


def write(  # noqa: PLR0913 - all but two by name
    path: str | os.PathLike[str],
    data: Any,  # noqa: ANN401 - many types of many libraries
    *,
    mode: str = "append",
    replace_where: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    threads: int | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
    **options: object,
) -> int:
    """Write rows to a directory in one commit, without Spark; return the version of the directory.

    Readers see all rows or none. If the call fails or the process is killed, nothing is visible, or everything is: a
    repeated call with the same `app_id` and `version` writes nothing if the rows are committed. Queries of Spark,
    other programs and maintenance calls can write to the directory at the same time.

    Args:
        path: of the directory, or its URL. It is created if it does not exist.
        data: a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, an iterable of record batches, or an object
            with `__arrow_c_stream__`, such as a DataFrame of Polars or pandas 3, or a relation of DuckDB. Unsigned
            integers are stored as wider signed ones, times in microseconds, and dictionaries as their values.
        mode: `append`; `overwrite` replaces all rows; `dynamic` replaces the partitions that have rows in `data`.
        replace_where: with `overwrite`, replaces the partitions for which a condition is true, such as "month = 7".
        app_id: with `version`, an identity of the write. Versions of an application increase.
        version: see `app_id`.
        threads: the number of threads that encode rows, each to separate files; by default one for each core. Fewer
            than 262,144 rows are written by one thread, in their order.
        storage: settings of the file system, as in `ftfile.open`.
        context: the clock and the ids, for tests.
        **options: options of the sink in snake case, such as `file_format="parquet"`, `partition_by=["day"]` or
            `compression="zstd"`.

    Raises:
        ArgumentError: an argument has a value of another type, or an option does not exist.
        ConfigError: an option has a wrong value or contradicts another option or the directory.
        SchemaError: a column cannot be stored, or does not match the columns of the directory.
        StorageError, CommitError: as for a batch write. `NotPublished` means that the rows are committed.
    """
    if threads is not None and threads < 1:
        raise ConfigError(Advice(Argument("threads", threads), ": at least one thread is needed"))
    rows = arrow_rows(data)
    texts = option_texts(options, storage) | _mode_options(mode, replace_where) | _identity_options(app_id, version)
    texts["path"] = os.fspath(path)
    config = SinkConfig.from_options(texts, spark_schema_json(rows.schema), overwrite=mode != "append")
    refuse_rolling(config)
    check_exports(config)
    plan = plan_write(FileSink(), config, context)
    writer = JobIdentity(context.ids.unique())
    with removing_unrecorded(plan.config.log(context).fs, writer.job_id):
        messages = _written(plan, writer, rows.batches, threads or context.threads or cores(), context)
    done = commit_batch(plan.sink, plan.config, messages=messages, batch_id=None, context=context)
    export_batch_write(plan.config, context)
    return done.version


def _mode_options(mode: str, replace_where: str | None) -> dict[str, str]:
    if mode not in _MODES:
        raise ArgumentError(f"mode={mode!r}: it is one of {', '.join(_MODES)}")
    if replace_where is not None:
        if mode != "overwrite":
            raise ArgumentError(f"replace_where with mode={mode!r}: set mode='overwrite'")
        return {"replaceWhere": replace_where}
    if mode == "append":
        return {}
    overwrite_mode = "static"
    if mode == "dynamic":
        overwrite_mode = "dynamic"
    return {"partitionOverwriteMode": overwrite_mode}


def _identity_options(app_id: str | None, version: int | None) -> dict[str, str]:
    if (app_id is None) != (version is None):
        raise ArgumentError("app_id and version: give both, or none")
    if app_id is None:
        return {}
    return {"txnAppId": app_id, "txnVersion": str(version)}


def _written(
    plan: WritePlan[SinkConfig],
    writer: JobIdentity,
    batches: Iterator[pa.RecordBatch],
    threads: int,
    context: Context,
) -> list[TaskCommit]:
    """Write all rows to new files by threads, and return their messages. If one thread fails, all threads end."""
    first = _first_rows(batches, ROWS_PER_THREAD if threads > 1 else 0)
    if sum(batch.num_rows for batch in first) < ROWS_PER_THREAD:
        threads = 1
    shared = _SharedBatches(chain(first, batches))

    def run(number: int) -> TaskCommit:
        try:
            return write_task(plan, TaskIdentity(writer, number, 0), shared, context)
        except BaseException as error:  # any error of the user's data ends the other threads
            shared.cancel(error)
            raise

    if threads == 1:
        return [run(0)]
    with Pool(threads) as pool:
        futures = [pool.submit(copy_context().run, run, number) for number in range(threads)]
        try:
            wait(futures)
        except BaseException as error:  # Ctrl-C: the pool waits for its threads
            shared.cancel(error)
            raise
    shared.raise_error()
    return [future.result() for future in futures]


def _first_rows(batches: Iterator[pa.RecordBatch], row_count: int) -> list[pa.RecordBatch]:
    first: list[pa.RecordBatch] = []
    rows = 0
    while rows < row_count:
        batch = next(batches, None)
        if batch is None:
            break
        first.append(batch)
        rows += batch.num_rows
    return first


class _SharedBatches:
    """Batches that several threads take, each a different one."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._lock:
                self.raise_error()
                try:
                    batch = next(self._batches, None)
                except BaseException as error:
                    # A generator ends by its error, so the next thread would take it for the end of the data.
                    self.cancel(error)
                    raise
            if batch is None:
                return
            yield batch

    def cancel(self, error: BaseException) -> None:
        """End all threads; the first error is the reason."""
        self._error = self._error or error

    def raise_error(self) -> None:
        """Raise the error of the first thread that failed."""
        if self._error is not None:
            raise self._error
