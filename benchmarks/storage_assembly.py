"""Making a file of large segments on S3: read and sent by the task, or copied within the storage."""

from __future__ import annotations

import dataclasses
import os
import time
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table
from ftfile.log.commit_log import CommitLog
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.assembler import Assembler
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.stage import Stage

if TYPE_CHECKING:
    from ftfile.log.state import LogState
    from ftfile.storage.api import Capabilities, FileSystem
    from tests.object_stores.servers import Storage

__all__ = ("assembly_table",)

MIB = 1 << 20
BATCHES = 8
BATCH_BYTES, SMOKE_BATCH_BYTES = 16 * MIB, 6 * MIB
ROUNDS, SMOKE_ROUNDS = 7, 1
COLUMNS = ("way", "ms", "processor ms", "x read and sent")
NOTE = (
    "Text of eight batches, a segment each; medians of alternating rounds, the ratio within a round. Processor time is "
    "that of the task alone."
)


class _NoCopies(WrapperFileSystem):
    """The same storage without copies of ranges."""

    @property
    def capabilities(self) -> Capabilities:
        inner = self.inner.capabilities
        return dataclasses.replace(inner, stream_capabilities=inner.stream_capabilities - {"copy"})


def assembly_table(storage: Storage, *, smoke: bool) -> Table:
    """Make one file of eight segments, in turn by both ways."""
    batch_bytes = SMOKE_BATCH_BYTES if smoke else BATCH_BYTES
    head, fs = _due(storage, batch_bytes)
    ways: dict[str, FileSystem] = {"read and sent": _NoCopies(fs), "copied within the storage": fs}
    times_ms: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(SMOKE_ROUNDS if smoke else ROUNDS):
        for way, through in ways.items():
            times_ms[way].append(_assemble(through, head))
    reading = times_ms["read and sent"]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            way,
            median(wall for wall, _ in times),
            median(processor for _, processor in times),
            median(theirs / ours for (theirs, _), (ours, _) in zip(reading, times, strict=True)),
        )
        for way, times in times_ms.items()
    )
    return Table(f"a file of {BATCHES * batch_bytes // MIB} MiB of segments on S3", COLUMNS, rows, NOTE)


def _due(storage: Storage, batch_bytes: int) -> tuple[LogState, FileSystem]:
    options = {f"storage.{name}": text for name, text in storage.settings.items()}
    url = f"{storage.url}/assembly"
    query = MicroBatch(url, {"value": "string"}, options | {"fileFormat": "text", "maxBatchesPerFile": str(BATCHES)})
    for batch in range(BATCHES):
        line = {"value": os.urandom(MIB // 2 - 1).hex()}
        query.run(batch, [[line] * (batch_bytes // MIB)])
    fs = open_filesystem(url, settings=storage.settings)
    return CommitLog(fs).refresh(), fs


def _assemble(fs: FileSystem, head: LogState) -> tuple[float, float]:
    """Return milliseconds by the clock, and of the processor."""
    stage = Stage(fs, TaskIdentity(OperationIdentity("benchmark"), 0, 0))
    began_s, began_processor_s = time.perf_counter(), time.process_time()
    (job,) = head.jobs
    done = Assembler(fs, stage, head.definitions, head.version).assemble(job)
    wall_ms = (time.perf_counter() - began_s) * 1000
    processor_ms = (time.process_time() - began_processor_s) * 1000
    if sum(part.rows for part in done.adds) != sum(segment.rows for segment in job.inputs):
        raise RuntimeError("the assembly lost rows")
    stage.discard()
    return wall_ms, processor_ms
