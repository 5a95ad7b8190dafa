"""The history of a log: numbers of each commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.arguments import check_count
from ftfile.core.checksum import Decoding
from ftfile.log.format import layout
from ftfile.log.format.adds import parts_of, total_bytes
from ftfile.log.format.model import (
    APPLICATIONS,
    MIGRATION,
    NUMBER_MAX,
    BatchWriteAuthor,
    MaintenanceAuthor,
    StreamAuthor,
)
from ftfile.log.read.snapshot import read_records
from ftfile.log.read.times import created_ms, time_of
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record


__all__ = (
    "WRITES",
    "LastCommit",
    "Version",
    "VersionMetrics",
    "last_commit_of",
    "offsets_of",
    "operation_of",
    "read_history",
    "version_of",
)
# Operations that add rows of a query or of a batch write.
WRITES = frozenset({"stream", "batch", "overwrite", "replace"})
_LAST_COMMIT = ("version", "createSeconds", "publishSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionMetrics:
    """Metrics of one commit; 0 by default.

    Times are in seconds. Times of tasks are of the slowest one, on its executor; the others are of the driver.

    Attributes:
        write_seconds: from the first row of a task to its message.
        assembly_seconds: of these, for jobs that assemble parts.
        sync_seconds: of these, for making files durable and closing them, summed over the files of a task.
        prepare_seconds: from the start of the commit to its record: reading the log, publishing earlier versions,
            checking files and names.
        create_seconds: for creating the record; None if the process made no later commit here, whose record contains
            it.
        publish_seconds: for moving files to their final names; None in the same case.
        files_by_reason: number of finished files that were open over batches, by the reason why they ended.
        runs_merged: of a store, number of compacted runs.
        task_retries: failed attempts of its tasks.
        log_reads: records and checkpoints that were read to find the head of the log; 0 if it was cached.
        recoveries: versions that this process published since its last commit, because their own commits had not.
        replays: batches that were already committed, since then.
        orphans: files of tasks that no version names, noticed since then; `vacuum` deletes them.
    """

    write_seconds: float
    assembly_seconds: float
    sync_seconds: float
    prepare_seconds: float
    create_seconds: float | None
    publish_seconds: float | None
    files_by_reason: dict[str, int]
    runs_merged: int
    task_retries: int
    log_reads: int
    recoveries: int
    replays: int
    orphans: int


@dataclass(frozen=True, slots=True)
class Version:
    """One commit.

    Attributes:
        operation: `stream`, `batch`; for batch writes, `overwrite` of everything, `replace` of some partitions;
            `migrate`; or a maintenance operation, such as `compact` or `delete`.
        query_id: of a streaming write, else None; the `app_id` of a commit of `ftfile.writer`.
        batch_id: of a streaming write, else None; the number of a commit of `ftfile.writer`, from 0 on.
        operation_id: of a batch write or a maintenance operation, else None.
        txn_app_id: `txnAppId` of a batch write that has one, else None.
        txn_version: its `txnVersion`, else None.
        user_metadata: the text of the option `userMetadata`, or None.
        time_ms: of its creation, by the storage's clock, in milliseconds since 1970 UTC; see `Directory.version_at`.
        rows: number of added rows, in finished or open files, or in runs of a store.
        size_bytes: of the added files or runs.
        files: number of added files; 0 in a store.
        files_removed: number of removed finished files.
        rows_removed: number of removed rows of an overwrite, a drop, a restore …; 0 if the rows are in other files.
        overwrite: True if it replaced everything.
        replaces: the condition on the rows that it replaced, dropped or deleted, or `partitions of the rows`; None for
            other commits.
        restored_version: of a restore, the version whose rows were restored, else None.
        bad_records: number of records that could not be written.
        durability: of its files before the commit: `hsync`, `close`, `none`; None if it added none.
        offsets: Spark's offsets of the batch, one for each source, if the checkpoint was known; of a commit of
            `ftfile.writer`, its position.
        position: of a commit of `ftfile.writer` that has one, else None.
        writer: `user@host` of the process that committed it; empty if unknown.
        metrics: of the commit.
    """

    version: int
    operation: str
    query_id: str | None
    batch_id: int | None
    operation_id: str | None
    txn_app_id: str | None
    txn_version: int | None
    user_metadata: str | None
    time_ms: int
    rows: int
    size_bytes: int
    files: int
    files_removed: int
    rows_removed: int
    overwrite: bool
    replaces: str | None
    restored_version: int | None
    bad_records: int
    durability: str | None
    offsets: list[Any] | None
    position: Any
    writer: str
    metrics: VersionMetrics


class LastCommit(NamedTuple):
    """The times of a commit that were measured after its record was created; a later record contains them."""

    version: int
    create_seconds: float
    publish_seconds: float


def read_history(log: CommitLog, limit: int | None = None) -> list[Version]:
    """Return the kept commits, or the newest ones, oldest first."""
    check_count("limit", limit)
    versions, later = [], {}
    for record in read_records(log, limit):
        versions.append(version_of(record, None))
        if (last := last_commit_of(record)) is not None:
            later[last.version] = last
    oldest = log.refresh().log_start
    kept_versions = [version for version in versions if version.version >= oldest]
    times = parallel(log.fs, partial(created_ms, log), [version.version for version in kept_versions])
    history: list[Version] = []
    for version, stored_ms in zip(kept_versions, times, strict=True):
        history.append(_with_times(version, stored_ms, later.get(version.version)))
    return history


def version_of(record: Record, stored_ms: int | None) -> Version:
    """Return the numbers of a record, given the modification time of its file, or None if unknown."""
    author = record.author
    query_id = batch_id = operation_id = None
    if isinstance(author, StreamAuthor):
        query_id, batch_id = author.query_id, author.batch_id
    else:
        operation_id = author.operation_id
    txn_app_id = txn_version = None
    if isinstance(author, BatchWriteAuthor) and author.transaction is not None:
        txn_app_id, txn_version = author.transaction.app_id, author.transaction.version
    metrics = _metrics_of(record)
    with Decoding(layout.record_path(record.version), "the metrics of a commit"):
        rows, bad_records = _number(record.metrics, "rows"), _number(record.metrics, "badRecords")
    return Version(
        version=record.version,
        operation=operation_of(record),
        query_id=query_id,
        batch_id=batch_id,
        operation_id=operation_id,
        txn_app_id=txn_app_id,
        txn_version=txn_version,
        user_metadata=record.user_metadata,
        time_ms=time_of(record.created_ms, stored_ms),
        rows=rows,
        size_bytes=total_bytes(record.adds),
        files=len(parts_of(record.adds)),
        files_removed=sum(remove.kind == "part" for remove in record.removes),
        overwrite=record.overwrite,
        rows_removed=record.rows_removed,
        replaces=record.replaces,
        restored_version=record.restored,
        bad_records=bad_records,
        durability=record.metrics.get("durability"),
        offsets=offsets_of(record),
        position=_position_of(record),
        writer=record.writer,
        metrics=metrics,
    )


def _position_of(record: Record) -> Any:  # noqa: ANN401 - JSON
    """Return the position that a batch of an application set; None for other records."""
    if not isinstance(record.author, StreamAuthor) or APPLICATIONS not in record.tables:
        return None
    return record.tables[APPLICATIONS].get("set", {}).get(record.author.query_id, {}).get("position")


def offsets_of(record: Record) -> list[Any] | None:
    """Return the offset of each source after a batch; None if they are not known.

    The position of an application is the offset of its only source.
    """
    if not isinstance(record.author, StreamAuthor):
        return None
    position = _position_of(record)
    if position is not None:
        return [position]
    return record.author.offsets


def operation_of(record: Record) -> str:
    """Return the operation of a record, as in `Version.operation`."""
    if MIGRATION in record.tables:  # its author is the migrated query, or a batch write
        return "migrate"
    if isinstance(record.author, StreamAuthor):
        return "stream"
    if isinstance(record.author, MaintenanceAuthor):
        return record.author.operation
    if record.overwrite:
        return "overwrite"
    if record.replaces is None:
        return "batch"
    return "replace"


def last_commit_of(record: Record) -> LastCommit | None:
    """Return the times of an earlier commit of the same process, or None if the record has none."""
    last = record.metrics.get("lastCommit")
    with Decoding(layout.record_path(record.version), "the metrics of a commit"):
        if last is None:
            return None
        return LastCommit(*(_number(last, name) for name in _LAST_COMMIT))


def _number(metrics: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a count, or seconds
    value = metrics.get(name, 0)
    if type(value) not in {int, float} or not abs(value) <= NUMBER_MAX:
        raise ValueError(f"{name} is {value!r:.80}")
    return value


def _metrics_of(record: Record) -> VersionMetrics:
    metrics = record.metrics
    with Decoding(layout.record_path(record.version), "the metrics of a commit"):
        parts = dict(metrics.get("partsByReason", {}))
        return VersionMetrics(
            write_seconds=_number(metrics, "writeSecondsMax"),
            assembly_seconds=_number(metrics, "assemblySecondsMax"),
            sync_seconds=_number(metrics, "syncSecondsMax"),
            prepare_seconds=_number(metrics, "prepareSeconds"),
            create_seconds=None,
            publish_seconds=None,
            files_by_reason={reason: _number(parts, reason) for reason in parts},
            runs_merged=_number(metrics, "runsMerged"),
            task_retries=_number(metrics, "taskRetries"),
            log_reads=_number(metrics, "logReads"),
            recoveries=_number(metrics, "recoveries"),
            replays=_number(metrics, "replays"),
            orphans=_number(metrics, "orphans"),
        )


def _with_times(version: Version, stored_ms: int | None, last: LastCommit | None) -> Version:
    metrics = version.metrics
    if last is not None:
        metrics = replace(metrics, create_seconds=last.create_seconds, publish_seconds=last.publish_seconds)
    return replace(version, time_ms=time_of(version.time_ms, stored_ms), metrics=metrics)
