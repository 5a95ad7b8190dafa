"""The sink of a store, which appends folded rows as runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import ConfigError, NotFound, SchemaError
from ftfile.core.logs import get_logger
from ftfile.kv.compactor import Compactor, planned_compactions, run_compactions, share_of
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import DELETE, DELETED_MS, MERGE, OP, SET, StoreDefinition
from ftfile.kv.driver import StoreChange, body_of, definition_after, refuse_operator
from ftfile.kv.fold import fold
from ftfile.kv.hashing import by_bucket
from ftfile.kv.key_columns import bools_of
from ftfile.kv.planning.plan import CompactionPlanner
from ftfile.kv.upkeep.automatic import vacuum_if_due
from ftfile.log.directory import (
    check_foreign_tables,
    check_is_store,
    check_outside_directories,
    list_new_directory,
    store_of,
)
from ftfile.log.format import layout
from ftfile.log.format.record import definition_key
from ftfile.rows.buffers import from_numpy, is_valid, rows_where
from ftfile.writing.batch import DirectoryCheck, PreparedBatch, Sink, TaskInput
from ftfile.writing.messages import AssemblyResults, segments_of
from ftfile.writing.options import check_staged_names
from ftfile.writing.spark_checkpoint import checkpoint_table_change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ftfile.kv.run_files import RunSpool
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author, Body
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.batch import WritePlan
    from ftfile.writing.messages import StagedSegment, TaskCommit
    from ftfile.writing.stage import Stage


# Rows are in memory four times: as received, concatenated, sorted, and by bucket.
_COPIES = 4

# Runs per bucket and batch above which the record and its jobs cost more than the rows.
MANY_RUNS = 4

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


class StoreSink(Sink[StoreConfig]):
    """Writes rows as runs; vacuums the store after a commit if a vacuum is due."""

    __slots__ = ()
    batch_writes_do_jobs = True

    def check_directory(
        self,
        config: StoreConfig,
        log: CommitLog,
        read_head: Callable[[], LogState],
        is_repetition: Callable[[LogState], bool],
    ) -> DirectoryCheck[StoreConfig]:
        """See `Sink.check_directory`."""
        check_staged_names(config.path, config.hidden_chain, log.fs.capabilities)
        log.fs.prove(layout.META)
        head = read_head()
        if head.version < 0:
            check_outside_directories(config.path, dict(config.common.storage.client_settings), log.fs.context)
            list_new_directory(log.fs, config.path)
            with contextlib.suppress(NotFound):
                log.check_layout()
        else:
            check_foreign_tables(log, head, config.path)
        check_is_store(head, config.path)
        refuse_operator(head, config.common.transaction)
        try:
            definition_after(config, head)
        except (ConfigError, SchemaError):
            if not is_repetition(head):
                raise
        return DirectoryCheck(config, head, {})

    def task_input(self, config: StoreConfig, batches: Iterable[pa.RecordBatch]) -> TaskInput[StoreConfig]:
        """See `Sink.task_input`."""
        return TaskInput(config=config, batches=batches, definition=_definition_key(config))

    def write_rows(
        self, plan: WritePlan[StoreConfig], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """See `Sink.write_rows`."""
        runs = BucketWriter(plan.config, stage, bad, plan.time_ms)
        for batch in rows:
            runs.write(batch)
        runs.finish()
        return runs.segments

    def run_jobs(self, plan: WritePlan[StoreConfig], stage: Stage, head: LogState) -> AssemblyResults:
        """See `Sink.run_jobs`."""
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

    def prepare(self, config: StoreConfig, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedRuns:
        """See `Sink.prepare`."""
        return PreparedRuns(config, author, messages, log)


class PreparedRuns(PreparedBatch[StoreConfig]):
    """The runs of the checked messages of all tasks. After they are recorded, the store is vacuumed if a vacuum is due.

    Raises:
        ConfigError: the definition of the store was changed since the tasks were planned.
    """

    def __init__(self, config: StoreConfig, author: Author, messages: Sequence[TaskCommit], log: CommitLog) -> None:
        super().__init__(config, author, messages, log)
        # Spark rebuilds the settings of a stream for the commit.
        definition_key = _definition_key(config)
        if any(message.definition not in {None, definition_key} for message in messages):
            raise ConfigError(
                f"path={config.path!r}: the definition of the store changed while a batch was written, for example by "
                "kv.rebucket or an overwrite: start the query again, and the batch is written with the new definition"
            )
        runs, buckets = sum(len(message.segments) for message in messages), config.definition.buckets
        if runs > MANY_RUNS * buckets:
            _log.warning(
                "a batch writes %(runs)d runs for %(buckets)d buckets, because its tasks have rows of all buckets. For "
                "fewer and larger runs, use fewer tasks, or "
                'repartition(n, expr("pmod(xxhash64(%(keys)s), %(buckets)d)"))',
                {"runs": runs, "buckets": buckets, "keys": ", ".join(config.definition.bucket_by)},
            )

    def body(self, head: LogState, _: Callable[[], Snapshot]) -> Body:
        """See `PreparedBatch.body`."""
        common = self.config.common
        refuse_operator(head, common.transaction)
        runs = tuple(segments_of(self.messages, "", {"committedMs": self.committed_ms}))
        change = StoreChange(runs=runs, rewrites=tuple(self.rewrites), failed=self.failed, tasks=len(self.messages))
        body = body_of(self.config, self.log, head, change)
        place = checkpoint_table_change(head, self.author, common.checkpoint)
        return structs.replace(
            body,
            dead_letters=self.letters,
            user_metadata=common.user_metadata,
            metrics=self.metrics | body.metrics,
            tables=body.tables | place,
        )

    def after_commit(self, _: Committed) -> None:
        """Vacuum the store, if a vacuum is due."""
        vacuum_if_due(self.config, self.log)


def _definition_key(config: StoreConfig) -> str:
    return definition_key(config.definition.to_json())
