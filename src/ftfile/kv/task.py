"""The steps of a task that writes rows to a store, as folded runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.core.logs import get_logger
from ftfile.kv.compactor import Compactor, planned_compactions, run_compactions, share_of
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, StoreDefinition
from ftfile.kv.fold import fold
from ftfile.kv.hashing import by_bucket
from ftfile.kv.key_columns import bools_of
from ftfile.kv.planning.plan import CompactionPlanner
from ftfile.log.directory import store_of
from ftfile.rows.buffers import from_numpy, is_valid, rows_where
from ftfile.writing.messages import AssemblyResults
from ftfile.writing.sink import TaskInput, TaskSteps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.kv.run_files import RunSpool
    from ftfile.log.state import LogState
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.messages import StagedSegment
    from ftfile.writing.sink import WritePlan
    from ftfile.writing.stage import Stage


# Rows are in memory four times: as received, concatenated, sorted, and by bucket.
_COPIES = 4

_log = get_logger(__name__)


class BucketWriter:
    """Collects rows, folds the rows of each key, and appends a run of each bucket to one spool.

    Rows of more than `maxOpenBytes` become several runs of a bucket, in row order.
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
        """Append rows in the schema of the config."""
        batch = self._without_nulls(self._bad.split_oversized(batch))
        if not batch.num_rows:
            return
        self._held.append(self._with_operations(batch))
        self._held_bytes += batch.nbytes  # counts only these rows, even if batches are slices of a larger batch
        if self._held_bytes >= self._config.common.max_open_bytes // _COPIES:
            self._flush()

    def finish(self) -> None:
        """Write the remaining rows, and end the spool."""
        self._flush()
        if self._spool is not None:
            self._spool.end()

    def _flush(self) -> None:
        if not self._held:
            return
        rows = pa.concat_tables(self._held, promote_options="permissive")
        self._held, self._held_bytes = [], 0
        folded = fold([rows], self._definition, is_bottommost=False)
        if self._spool is None:
            self._spool = self._config.spool(self._stage, self._definition)
        for bucket, of_bucket in by_bucket(folded, self._definition):
            self.segments.append(self._spool.write(bucket, of_bucket.to_batches()))

    def _without_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Pass rows with a null key or null sequence value to `badRecords`; return the other rows."""
        names = list(self._definition.keys)
        if self._definition.sequence is not None:
            names.append(self._definition.sequence)
        null_columns = [name for name in names if batch[name].null_count]
        if not null_columns:
            return batch
        is_good = np.logical_and.reduce([*map(is_valid, batch.select(null_columns).columns)])
        bad = rows_where(batch, ~is_good)
        faults = np.full(bad.num_rows, "", object)
        for name in reversed(null_columns):
            role = "keyColumns"
            if name == self._definition.sequence:
                role = "sequenceColumn"
            faults[~is_valid(bad[name])] = f"column {name!r} is null, and {role} names it"
        self._bad.take(bad, faults.tolist())
        return rows_where(batch, is_good)

    def _with_operations(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the store's columns and the operation of each row; a delete only has its sequence value."""
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
        if ops.any():
            return rows.append_column(OP, from_numpy(ops, pa.int8()))
        return rows


class StoreTaskSteps(TaskSteps[StoreConfig]):
    """Writes the rows of a task as runs, and compacts runs."""

    __slots__ = ()
    batch_writes_do_jobs = True

    def task_input(self, config: StoreConfig, batches: Iterable[pa.RecordBatch]) -> TaskInput[StoreConfig]:
        """See `TaskSteps.task_input`."""
        return TaskInput(config=config, batches=batches, definition=config.definition_key)

    def write_rows(
        self, plan: WritePlan[StoreConfig], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """See `TaskSteps.write_rows`."""
        runs = BucketWriter(plan.config, stage, bad, plan.time_ms)
        for batch in rows:
            runs.write(batch)
        runs.finish()
        return runs.segments

    def run_jobs(self, plan: WritePlan[StoreConfig], stage: Stage, head: LogState) -> AssemblyResults:
        """See `TaskSteps.run_jobs`."""
        config = plan.config
        try:
            if not (jobs := share_of(head, stage.partition)):
                return AssemblyResults()
            state = config.log(stage.fs.context).refresh()
            text, encoding = store_of(state), state.encoding
            assert text is not None is not encoding, "jobs are about runs"
            definition = StoreDefinition.from_json(text).naming(config.definition.code)
            planner = CompactionPlanner(config.plan, definition.key_types, plan.time_ms)
            compactions = planned_compactions(jobs, state, stage.fs, planner)
        except Exception as error:  # no error of a compaction may fail the batch
            _log.warning("this task compacts no runs: %s", error)
            return AssemblyResults()
        compactor = Compactor(
            stage=stage,
            definition=definition,
            encoding=encoding,
            open_spool=lambda: config.spool(stage, definition),
            read_version=state.version,
        )
        return run_compactions(compactor, compactions, config.plan.read_bytes)
