"""A task: batches in, staged parts and a fingerprint out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.commit.log import CommitLog
from ftfile.commit.model import StreamAuthor
from ftfile.core.clock import SYSTEM_CLOCK
from ftfile.core.ids import SYSTEM_IDS
from ftfile.core.logs import get_logger
from ftfile.sink.fingerprint import FingerprintAccumulator
from ftfile.sink.identity import StreamIdentity
from ftfile.sink.message import TaskCommit
from ftfile.sink.parts import PartWriter
from ftfile.sink.staging import Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.commit.state import LogView
    from ftfile.fs.api import FileSystem
    from ftfile.sink.config import SinkConfig
    from ftfile.sink.identity import TaskIdentity, WriterIdentity

__all__ = ("write_task",)

_log = get_logger(__name__)


def write_task(
    config: SinkConfig,
    view: LogView,
    identity: TaskIdentity,
    batches: Iterable[pa.RecordBatch],
    fs: FileSystem,
) -> TaskCommit:
    """Write the rows of one attempt to files of its own; of a batch that is committed, only look at the rows.

    Raises:
        FtfileError: the attempt failed; what it wrote was removed as far as possible, and nobody refers to it.
    """
    began = SYSTEM_CLOCK.monotonic_s()
    fingerprint = FingerprintAccumulator(config.fingerprint)
    rows = _fingerprinted(_cast(batches, config.schema), fingerprint)
    if _is_committed(fs, view, identity.writer):
        for _ in rows:
            pass
        return TaskCommit(identity, (), fingerprint.to_json(), found_committed=True)
    stage = Stage(fs, SYSTEM_IDS, identity)
    try:
        parts = PartWriter(config, stage)
        for batch in rows:
            parts.write(batch)
        parts.finish()
    except BaseException:
        stage.discard()
        raise
    metrics = {"writeSeconds": SYSTEM_CLOCK.monotonic_s() - began}
    return TaskCommit(identity, tuple(stage.finished), fingerprint.to_json(), metrics=metrics)


def _is_committed(fs: FileSystem, view: LogView, writer: WriterIdentity) -> bool:
    """Look whether the batch is in the log by now; only saves work, the commit decides."""
    if not isinstance(writer, StreamIdentity):
        return False
    author = StreamAuthor(writer.query_id, writer.run_id, writer.batch_id)
    return CommitLog(fs, start=view).read_on().finds(author)


def _fingerprinted(batches: Iterable[pa.RecordBatch], fingerprint: FingerprintAccumulator) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fingerprint.update(batch)
        yield batch


def _cast(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Bring batches to the recorded schema: Spark's has its session's time zone, and says what is never null."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if batch.schema.equals(schema):
            yield batch
        else:
            columns = [_cast_column(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)
