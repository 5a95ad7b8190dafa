"""Rows of an attempt to runs: bad ones go, the others get their operation, are folded, and written by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, is_valid, rows_where
from ftfile.kv.buckets import by_bucket
from ftfile.kv.columns import DELETE, DELETED_MS, MERGE, OP, SET
from ftfile.kv.files.spool import RunSpool
from ftfile.kv.fold import fold
from ftfile.kv.key_columns import bools_of

if TYPE_CHECKING:
    from ftfile.attempt.bad_records import BadRecords
    from ftfile.attempt.message import StagedSegment
    from ftfile.attempt.stage import Stage
    from ftfile.kv.config import StoreConfig

# Rows are in memory as they came, in one piece, sorted, and by bucket.
_COPIES = 4


class RunWriter:
    """Collects rows, folds those of a key, and appends a run of each bucket to one spool.

    Rows that take more than `maxOpenBytes` become several runs of a bucket, in their order.
    """

    def __init__(self, config: StoreConfig, stage: Stage, bad: BadRecords, now_ms: int) -> None:
        self._config = config
        self._definition = config.definition
        self._stage = stage
        self._bad = bad
        self._now_ms = now_ms
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._spool: RunSpool | None = None
        self.segments: list[StagedSegment] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next rows, in the schema of the config."""
        batch = self._without_nulls(self._bad.without_oversized(batch))
        if not batch.num_rows:
            return
        self._held.append(self._with_operations(batch))
        self._held_bytes += batch.nbytes  # of these rows alone, where batches are slices of a larger one
        if self._held_bytes >= self._config.max_open_bytes // _COPIES:
            self._flush()

    def finish(self) -> None:
        """Write the rows that are left, and end the spool."""
        self._flush()
        if self._spool is not None:
            self._spool.end()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held, promote_options="permissive")
        self._held, self._held_bytes = [], 0
        folded = fold([rows], self._definition, bottom=False)
        if self._spool is None:
            config = self._config
            self._spool = RunSpool(
                self._stage, self._definition, config.hidden_chain, config.compression, config.block_bytes
            )
        for bucket, of_bucket in by_bucket(folded, self._definition):
            self.segments.append(self._spool.write(bucket, of_bucket.to_batches()).segment)

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Give rows without a key, or without what orders them, to `badRecords`; return the others."""
        names = list(self._definition.keys)
        if self._definition.sequence is not None:
            names.append(self._definition.sequence)
        found = [name for name in names if batch[name].null_count]
        if not found:
            return batch
        is_good = np.logical_and.reduce([is_valid(batch[name]) for name in found])
        bad = rows_where(batch, ~is_good)
        faults = np.full(bad.num_rows, "", object)
        for name in reversed(found):
            role = "sequenceColumn" if name == self._definition.sequence else "keyColumns"
            faults[~is_valid(bad[name])] = f"column {name!r} is null, and {role} names it"
        self._bad.take(bad, faults.tolist())
        return rows_where(batch, is_good)

    def _with_operations(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the columns of the store, and of each row what it does; a delete has no values but its sequence's."""
        definition, deletes = self._definition, self._config.delete_column
        rows = pa.Table.from_batches([batch.select(definition.schema.names)])
        op = MERGE if definition.merge else SET
        ops = np.full(batch.num_rows, op, np.int8)
        if deletes is not None and (is_delete := is_valid(batch[deletes]) & bools_of(batch[deletes])).any():
            ops[is_delete] = DELETE
            numbers = from_numpy(np.arange(batch.num_rows), pa.int64(), ~is_delete)
            for name in definition.values:
                if name != definition.sequence:
                    place = rows.schema.get_field_index(name)
                    rows = rows.set_column(place, rows.schema.field(place), rows[name].take(numbers))
            if definition.sequence is not None:
                deleted_ms = from_numpy(np.full(batch.num_rows, self._now_ms), pa.int64(), is_delete)
                rows = rows.append_column(DELETED_MS, deleted_ms)
        return rows.append_column(OP, from_numpy(ops, pa.int8())) if ops.any() else rows
