"""Rows to parts: which bucket, and when a part is full."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.sink.routing import route

if TYPE_CHECKING:
    from ftfile.sink.config import SinkConfig
    from ftfile.sink.staging import OpenPart, Stage

__all__ = ("PartWriter",)

ROUTE_ROWS = 100_000
MAX_OPEN_PARTS = 128


class PartWriter:
    """Spreads the rows of one attempt over parts.

    With `partitionBy`, rows are collected and routed many at a time, since routing a few is slow; then each bucket's
    rows go to its open part. When more parts are open than a process should hold, the one unused for longest ends.
    """

    def __init__(self, config: SinkConfig, stage: Stage) -> None:
        self._config = config
        rolling = config.rolling
        self._max_rows = config.max_records_per_file if rolling is None else rolling.max_rows
        self._max_bytes = config.max_bytes_per_file if rolling is None else rolling.max_bytes
        self._schema = config.file_schema
        self._stage = stage
        self._open: OrderedDict[str, OpenPart] = OrderedDict()
        self._collected: list[pa.RecordBatch] = []
        self._collected_rows = 0
        self._collected_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""
        if not self._config.partition_by:
            self.write_bucket("", batch)
            return
        self._collected.append(batch)
        self._collected_rows += batch.num_rows
        self._collected_bytes += batch.get_total_buffer_size()
        if self._collected_rows >= ROUTE_ROWS or self._collected_bytes >= self._config.max_open_bytes:
            self._route()

    @property
    def buffered_bytes(self) -> int:
        """Return how much memory the unwritten rows of all open parts take."""
        return sum(part.buffered_bytes for part in self._open.values())

    def finish(self) -> None:
        """End every part."""
        self._route()
        while self._open:
            self._finish(next(iter(self._open)))

    def _route(self) -> None:
        if not self._collected:
            return
        table = pa.Table.from_batches(self._collected).combine_chunks()
        self._collected, self._collected_rows, self._collected_bytes = [], 0, 0
        for batch in table.to_batches():
            for bucket, rows in route(batch, self._config.partition_by, time_zone=self._config.time_zone):
                self.write_bucket(bucket, rows)
            self._bound_memory()

    def _bound_memory(self) -> None:
        """Let the parts that hold most write it, until all together hold no more than one may."""
        held = self.buffered_bytes
        for part in sorted(self._open.values(), key=lambda part: part.buffered_bytes, reverse=True):
            if held <= self._config.max_open_bytes:
                break
            held -= part.buffered_bytes
            part.flush()

    def write_bucket(self, bucket: str, batch: pa.RecordBatch) -> None:
        """Take rows of one bucket, without the columns that are in its path."""
        limit_rows, limit_bytes = self._max_rows, self._max_bytes
        offset = 0
        while offset < batch.num_rows:
            part = self._part(bucket)
            room = limit_rows - part.rows if limit_rows else batch.num_rows
            offset += part.write(batch.slice(offset, room), limit_bytes)
            if (limit_rows and part.rows >= limit_rows) or (limit_bytes and part.size_bytes >= limit_bytes):
                self._finish(bucket)

    def _part(self, bucket: str) -> OpenPart:
        part = self._open.get(bucket)
        if part is None:
            if len(self._open) >= MAX_OPEN_PARTS:
                self._finish(next(iter(self._open)))
            part = self._open[bucket] = self._stage.open(bucket, self._config.format, self._schema)
        self._open.move_to_end(bucket)
        return part

    def _finish(self, bucket: str) -> None:
        self._stage.finish(self._open.pop(bucket))
