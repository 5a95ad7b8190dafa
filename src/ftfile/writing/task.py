"""One attempt of a task of any sink: it writes its rows, and runs its share of the due jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import check_marker
from ftfile.log.format.model import BatchWriteAuthor, StreamAuthor
from ftfile.writing.bad_records import BadRecords
from ftfile.writing.messages import (
    AssemblyResults,
    StreamIdentity,
    TaskCommit,
    fingerprint_for,
    fingerprint_json,
    log_context_of,
)
from ftfile.writing.options import WriteConfig, open_for_writer
from ftfile.writing.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.core.context import Context
    from ftfile.log.format.model import Author, Transaction
    from ftfile.storage.api import FileSystem
    from ftfile.writing.fingerprint import FingerprintAccumulator
    from ftfile.writing.messages import TaskIdentity, WriterIdentity
    from ftfile.writing.sink import TaskInput, TaskSteps, WritePlan


_C = TypeVar("_C", bound=WriteConfig)


def write_task(
    plan: WritePlan[_C], identity: TaskIdentity, batches: Iterable[pa.RecordBatch], context: Context
) -> TaskCommit:
    """Write the rows of one attempt to new files, which are invisible until the driver commits.

    Rows of a committed batch are only fingerprinted. The attempt also runs its share of the due jobs, whose errors do
    not affect it.

    Raises:
        FtfileError: the attempt failed. Its files were deleted if possible, and no record names them.
    """
    steps = plan.sink.task_steps()
    task = steps.task_input(plan.config, batches)
    config, common = task.config, task.config.common
    with log_context_of(identity.writer):
        fs = open_for_writer(config.path, context, common.storage.settings, common.encryption)
        check_marker(fs, config.path, plan.marker)
        return _write(replace(plan, config=config), identity, steps, task, fs)


def _write(
    plan: WritePlan[_C], identity: TaskIdentity, steps: TaskSteps[_C], task: TaskInput[_C], fs: FileSystem
) -> TaskCommit:
    clock, config, common = fs.context.clock, plan.config, plan.config.common
    began_s = clock.monotonic_s()
    author = _replay_author(identity.writer, common.transaction)
    fingerprint = fingerprint_for(identity.writer, common, offsets_known=plan.offsets_known)
    rows = _recorded_rows(task.batches, config.schema, fingerprint)
    head = None
    if _reads_log(plan, identity, author, batch_writes_do_jobs=steps.batch_writes_do_jobs):
        head = CommitLog(fs, start=plan.view).refresh()
    if author is not None and head is not None and head.has(author):
        for _ in rows:
            pass
        return TaskCommit(
            identity=identity,
            parts=(),
            fingerprint=fingerprint_json(fingerprint),
            found_committed=True,
            time_zone=task.time_zone,
        )
    stage = Stage(fs, identity, common.storage.durability, steps.final_path(plan, identity))
    try:
        bad = BadRecords(
            handling=common.bad_records,
            max_bytes=common.max_record_bytes,
            chain=config.hidden_chain,
            stage=stage,
            identity=identity,
        )
        segments = steps.write_rows(plan, rows, stage, bad)
        letters = bad.finish()
        stage.wait_closed()
    except BaseException:
        stage.discard()
        raise
    written_s = clock.monotonic_s()
    assembled = AssemblyResults()
    if head is not None and not config.overwrite:  # an overwrite removes all files, so jobs would be useless
        assembled = steps.run_jobs(plan, stage, head)
    now_s = clock.monotonic_s()
    return TaskCommit(
        identity=identity,
        parts=tuple(stage.finished),
        fingerprint=fingerprint_json(fingerprint),
        segments=tuple(segments),
        rewritten=assembled.rewrites,
        failed=assembled.failed,
        dead_letters=letters,
        planned_ms=plan.time_ms,
        metrics={
            "writeSeconds": now_s - began_s,
            "assemblySeconds": now_s - written_s,
            "syncSeconds": stage.sync_s,
            "badRecords": bad.count,
        },
        definition=task.definition,
        time_zone=task.time_zone,
        stored_ms=stage.stored_ms,
    )


def _reads_log(
    plan: WritePlan[_C], identity: TaskIdentity, author: Author | None, *, batch_writes_do_jobs: bool
) -> bool:
    """Return True if a task reads the log: to find its batch, which only saves work, or to run due jobs.

    The driver has read the log just before the first attempt.
    """
    if author is None and not batch_writes_do_jobs:
        return False
    return identity.attempt > 0 or plan.view.has_jobs or (author is not None and plan.view.has(author))


def _replay_author(writer: WriterIdentity, transaction: Transaction | None) -> Author | None:
    """Return the write's identity in the log; None if a retry cannot be identified."""
    if isinstance(writer, StreamIdentity):
        return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    if transaction is not None:
        return BatchWriteAuthor(writer.operation_id, transaction)
    return None


def _recorded_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, fingerprint: FingerprintAccumulator | None
) -> Iterator[pa.RecordBatch]:
    """Yield the non-empty batches in the recorded schema, and add them to a fingerprint."""
    for batch in filter(len, batches):
        if batch.schema.equals(schema):
            rows = batch
        else:
            rows = _cast(batch, schema)
        if fingerprint is not None:
            fingerprint.update(rows)
        yield rows


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in the recorded schema; Spark sends its session's time zone and non-nullable columns."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
