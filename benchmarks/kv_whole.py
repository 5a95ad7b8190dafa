"""A whole store as a table from keys to values, to compare it with engines: written, compacted, read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ftfile.kv
from benchmarks.kv_engines import Design
from ftfile.core.context import SYSTEM
from ftfile.kv.config import StoreConfig
from ftfile.kv.writer import StoreSink
from ftfile.rows.spark_types import spark_schema_json
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

__all__ = ("Store",)

_BATCH_ROWS = 10_000  # as Spark hands them over


class Store(Design):
    """A store of ftfile: one batch of one task, and then all runs of a bucket merged to one."""

    def __init__(
        self, label: str, path: Path, *, cache_bytes: int | None = None, key_provider: str | None = None, **options: str
    ) -> None:
        super().__init__(label, path)
        self._cache_bytes = cache_bytes
        self._key_provider = key_provider
        encryption = {"encryption": "aes-gcm", "keyProvider": key_provider} if key_provider else {}
        self._options = {"keyColumns": "key"} | encryption | options
        self._reader: ftfile.kv.Reader

    def build(self, rows: pa.RecordBatch) -> None:
        """Write all rows by one task, and merge the runs of each bucket to one."""
        self.write(rows)
        ftfile.kv.compact(self.path, full=True, key_provider=self._key_provider)

    def write(self, rows: pa.RecordBatch) -> None:
        """Write all rows by one task."""
        options = {"path": str(self.path)} | self._options
        config = StoreConfig.from_options(options, _nullable(spark_schema_json(rows.schema)))
        plan, job = plan_write(StoreSink(), config, SYSTEM), OperationIdentity("build")
        batches = (rows.slice(start, _BATCH_ROWS) for start in range(0, rows.num_rows, _BATCH_ROWS))
        message = write_task(plan, TaskIdentity(job, 0, 0), batches, SYSTEM)
        commit_batch(plan.sink, plan.config, [message], None, SYSTEM)

    def open(self) -> None:
        """Open the newest version."""
        self._reader = ftfile.kv.open(self.path, cache_bytes=self._cache_bytes, key_provider=self._key_provider)

    def getter(self) -> Callable[[Any], Any]:
        """Return the function from a key to its value, or None."""
        return self._reader.get

    def multi_get(self, keys: list[Any]) -> int:
        """Look keys up and return how many there are."""
        return len(self._reader.multi_get(keys))

    def lookup(self, keys: pa.Array) -> int:
        """Look keys up that are in Arrow, and return how many there are."""
        return int(self._reader.lookup(keys).num_rows)

    def scan(self, columns: Sequence[str] | None = None) -> int:
        """Read all rows, with all columns or these alone, and return how many there are."""
        return sum(batch.num_rows for batch in self._reader.scan(columns=columns))

    def refresh(self) -> None:
        """Read what is newest."""
        self._reader.refresh()

    def close(self) -> None:
        """Release everything."""
        self._reader.close()

    def size_bytes(self) -> int:
        """Return the bytes of runs; files that a compaction replaced stay for a while."""
        with ftfile.kv.open(self.path, key_provider=self._key_provider) as reader:
            return reader.stats().size_bytes


def _nullable(schema: str) -> str:
    """Return the schema as a DataFrame's columns have it."""
    found = json.loads(schema)
    for field in found["fields"]:
        field["nullable"] = True
    return json.dumps(found)
