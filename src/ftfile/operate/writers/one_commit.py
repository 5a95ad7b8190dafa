"""A write of rows in one commit."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ArgumentError
from ftfile.operate.export.after_commit import check_exports, export_batch_write
from ftfile.operate.writers.arrow_rows import arrow_rows
from ftfile.operate.writers.directory_options import writer_options
from ftfile.operate.writers.early_imports import import_early
from ftfile.operate.writers.named_options import show_options
from ftfile.operate.writers.row_columns import columns_at
from ftfile.operate.writers.row_threads import RowThreads, threads_of
from ftfile.rows.spark_types import spark_schema_json
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink, refuse_rolling
from ftfile.writing.messages import OperationIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ftfile.core.context import Context
    from ftfile.operate.writers.sink_arguments import SinkArguments

# Options that `write` has as arguments, or that have no effect, each with its replacement.
FOR_QUERIES = "it is for queries of Spark"
_ELSEWHERE = {
    "path": "it is the first argument",
    "txn_app_id": "use app_id",
    "txn_version": "use version",
    "partition_overwrite_mode": "use mode='overwrite' or mode='dynamic'",
    "checkpoint_location": FOR_QUERIES,
    "on_new_query": FOR_QUERIES,
    "on_gap": FOR_QUERIES,
}
_MODES = ("append", "overwrite", "dynamic")


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
    **options: Unpack[SinkArguments],
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
            than 65,536 rows are written by one thread, in their order.
        storage: settings of the file system, as in `ftfile.open`.
        context: the clock and the ids, for tests.
        **options: options of the sink in snake case; see docs/options.md. A size is a number of bytes, or a text such
            as "128MiB"; a duration is a timedelta, or a text such as "10min".

    Raises:
        ArgumentError: an argument has a value of another type, or an option does not exist.
        ConfigError: an option has a wrong value or contradicts another option or the directory.
        SchemaError: a column cannot be stored, or does not match the columns of the directory.
        StorageError, CommitError: as for a batch write. `NotPublished` means that the rows are committed.
    """
    thread_count = threads_of(threads, context)
    arguments = _mode_options(mode, replace_where) | _identity_options(app_id, version)
    texts, recorded = writer_options(os.fspath(path), options, storage, _ELSEWHERE, context, **arguments)
    import_early(texts)
    rows = arrow_rows(data, partial(columns_at, texts, context))
    config = SinkConfig.from_options(texts, spark_schema_json(rows.schema), overwrite=mode != "append")
    config = replace(config, recorded=recorded)
    refuse_rolling(config)
    check_exports(config)
    plan = plan_write(FileSink(), config, context, tasks_here=True)
    writer = OperationIdentity(context.ids.unique())
    messages = RowThreads(plan, writer, thread_count, context).write_all(rows.batches)
    done = commit_batch(plan.sink, plan.config, messages=messages, batch_id=None, context=context)
    export_batch_write(plan.config, context)
    return done.version


show_options(write)


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
