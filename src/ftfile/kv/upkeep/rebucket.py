"""A change of the number of buckets, which rewrites all rows and replaces all runs with one record."""

from __future__ import annotations

import operator
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.arguments import Access
from ftfile.core.errors import CommitError
from ftfile.core.logs import get_logger
from ftfile.kv.compactor import FoldedRows, Inputs, Outputs
from ftfile.kv.definition import check_buckets, ops_in
from ftfile.kv.driver import how_written, new_stage, open_store_log
from ftfile.kv.fold import SortedRows, windows_of
from ftfile.kv.hashing import bucket_number, by_bucket
from ftfile.kv.key_columns import sorted_by
from ftfile.kv.merge_functions import code_of
from ftfile.kv.planning.plan import terms_of
from ftfile.kv.planning.runs import open_metadata, position_of, run_ids, run_of, runs_by_bucket, seal_metadata
from ftfile.kv.run_files import OpenFiles
from ftfile.log.format.adds import total_rows
from ftfile.log.format.model import Body, Origin, Remove
from ftfile.log.format.record import definition_key
from ftfile.log.opening import maintaining
from ftfile.log.protocol import commit
from ftfile.writing.options import durability_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.driver import HowWritten
    from ftfile.kv.planning.runs import Run
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.writing.stage import Stage


# Number of attempts; each rewrites the buckets that batches have changed meanwhile.
_TRIES = 5
# Bytes of folded rows of all old buckets together. The same number of bytes is read ahead from all runs together.
_WINDOW_BYTES = 16 << 20
# Rows of all new buckets together that are buffered before they are written as runs.
_HELD_BYTES = 64 << 20

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebucketReport:
    """The result of a change of the number of buckets.

    Attributes:
        version: version of the record with the change; None if the store already had this number.
        buckets: number of buckets now.
        runs_replaced: number of old runs.
        runs_written: number of new runs.
        rows: number of rows in the new runs.
    """

    version: int | None
    buckets: int
    runs_replaced: int = 0
    runs_written: int = 0
    rows: int = 0


def rebucket(
    path: str | os.PathLike[str],
    buckets: int,
    *,
    merge: str | Mapping[str, str] | None = None,
    **access: Unpack[AccessArguments],
) -> RebucketReport:
    """Change the number of buckets of a store to a power of two. Every row is rewritten, and no value changes.

    One record replaces all runs. If the process is killed before it creates the record, the store is unchanged. Memory
    is limited to some windows of rows, independent of the size of the store. Readers are not affected. If batches are
    committed meanwhile, their buckets are rewritten again, a limited number of times. A batch in progress when the
    record is created fails with an error that names both numbers: restart its query with the new `buckets`. If the
    store already has this number, no record is created. For `merge` see `ftfile.kv.open`, for `access` `ftfile.open`.

    Raises:
        ConfigError: the path is not a store, its keys are unknown, `merge` lacks a class, or the number is not a power
            of two.
        CommitError: batches were committed during every attempt: stop the queries first. For other causes, see the
            errors of a batch write.
        CorruptData: a run is damaged; nothing changed.
    """
    check_buckets(buckets)
    with maintaining("rebucket", path, Access.of(access), open_store_log) as (log, author):
        head = log.refresh(durable=True)
        code = code_of(merge)
        how = how_written(head, log.fs, code)
        how.definition.require_code()
        if how.definition.buckets == buckets:
            return RebucketReport(version=None, buckets=buckets)
        change = _NewBuckets(log=log, author=author, buckets=buckets, code=code)
        for _ in range(_TRIES):
            change.write(log.refresh(durable=True))
            done = commit(log, author, change.prepare)
            if done.record is not None:
                adds, removes = done.record.adds, done.record.removes
                report = RebucketReport(
                    version=done.version,
                    buckets=buckets,
                    runs_replaced=len(removes),
                    runs_written=len(adds),
                    rows=total_rows(adds),
                )
                _log.info("rebucketed: %s", report)
                return report
        raise CommitError(
            f"batches were committed while buckets={buckets} was written, in each of {_TRIES} attempts, so nothing "
            "was changed. Stop the queries that write to the store, run kv.rebucket again, and start the queries with "
            "the new number"
        )


@dataclass(kw_only=True)
class _NewBuckets:
    """The runs of the new buckets. Old buckets with rows of the same new buckets form a group."""

    log: CommitLog
    author: MaintenanceAuthor
    buckets: int
    code: frozenset[str]  # classes that the caller names
    # for each group, the ids of the old runs that were read, and the new runs
    groups: dict[int, tuple[set[str], list[Run]]] = field(default_factory=dict)

    def write(self, head: LogState) -> None:
        """Write the groups that were not written yet, or whose runs have changed since then."""
        how = how_written(head, self.log.fs, self.code)
        stage = new_stage(self.log, self.author, how.storage.durability)
        for number, runs in self._runs_of(head, how).items():
            if not self._is_written(number, runs):
                self.groups[number] = run_ids(runs), self._write_runs(runs, how, stage)

    def prepare(self, head: LogState, _: object) -> Body | None:
        """Return the body of the record; None if the runs of the head are not the runs that were read."""
        how = how_written(head, self.log.fs, self.code)
        runs_by_group = self._runs_of(head, how)
        if not all(self._is_written(number, runs) for number, runs in runs_by_group.items()):
            return None
        old = head.definitions[how.encoding]
        encoding = {**old, "store": {**old["store"], "buckets": self.buckets}}
        key, position, now_ms = definition_key(encoding), position_of(head.version + 1), self.log.clock.now_ms()
        adds = []
        for number in sorted(runs_by_group):
            for run in self.groups[number][1]:
                metadata = replace(run.metadata, at=(position, position), committed_ms=now_ms, level=1)
                adds.append(run.with_metadata(metadata, encoding=key))
        return Body(
            adds=seal_metadata(self.log.fs, adds),
            removes=tuple(map(Remove.of, head.segments.values())),
            jobs=(),
            encoding=key,
            definitions={key: encoding},
            metrics={"durability": durability_of(how.storage.durability, self.log.fs.capabilities)},
        )

    def _is_written(self, number: int, runs: Sequence[Run]) -> bool:
        return number in self.groups and self.groups[number][0] == run_ids(runs)

    def _runs_of(self, head: LogState, how: HowWritten) -> dict[int, list[Run]]:
        runs_by_group: defaultdict[int, list[Run]] = defaultdict(list)
        groups = min(how.definition.buckets, self.buckets)
        for add in open_metadata(self.log.fs, head.segments.values(), how.definition.key_types):
            runs_by_group[bucket_number(add.directory_key) % groups].append(run_of(add))
        return runs_by_group

    def _write_runs(self, runs: Sequence[Run], how: HowWritten, stage: Stage) -> list[Run]:
        """Write the rows of old buckets to new buckets."""
        definition = replace(how.definition, buckets=self.buckets)
        outputs = Outputs(lambda: how.spool(stage), how.encoding, how.plan.max_file_bytes)
        origin = Origin(self.author.operation_id, 0, 0)
        held: defaultdict[str, list[pa.Table]] = defaultdict(list)
        held_bytes = 0
        new_runs: list[Run] = []

        def write_held() -> None:
            for bucket, tables in sorted(held.items()):
                rows = FoldedRows(_align_tables(tables, definition), (), len(definition.keys), outputs.piece_bytes)
                while rows.has_more():
                    new_runs.append(outputs.write(bucket, rows, origin))
            held.clear()

        try:
            inputs = Inputs(OpenFiles(self.log.fs, maps=False), how.definition, _WINDOW_BYTES // max(len(runs), 1))
            for table in _sorted_rows(runs, how, inputs, self.log.clock.now_ms()):
                for bucket, rows in by_bucket(table, definition):
                    held[bucket].append(rows)
                held_bytes += table.nbytes
                if held_bytes >= _HELD_BYTES:
                    write_held()
                    held_bytes = 0
            write_held()
            outputs.end()
        except BaseException:
            outputs.discard()
            raise
        return new_runs


def _sorted_rows(runs: Sequence[Run], how: HowWritten, inputs: Inputs, now_ms: int) -> Iterator[pa.Table]:
    """Yield the rows of all old buckets of a group, by key; the buckets have no key in common."""
    buckets = runs_by_bucket(sorted(runs, key=attrgetter("metadata.at")))
    inputs.open(runs)
    keys = how.definition.keys
    schema = how.definition.align(how.definition.schema.empty_table()).schema
    window_bytes = _WINDOW_BYTES // max(len(buckets), 1)

    def batches(bucket_runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        terms = terms_of(bucket_runs, bucket_runs, how.plan, now_ms)
        for rows in inputs.fold(bucket_runs, terms, window_bytes):
            yield from how.definition.align(rows).to_batches()

    sources = []
    for bucket_runs in buckets.values():
        sources.append(SortedRows(batches(bucket_runs), schema, len(keys)))
    for window in windows_of(sources, _WINDOW_BYTES):
        tables = [table for table in window if table.num_rows]
        yield tables[0] if len(tables) == 1 else sorted_by(pa.concat_tables(tables), keys)


def _align_tables(tables: Sequence[pa.Table], definition: StoreDefinition) -> Iterator[pa.Table]:
    """Return tables with the operation and delete time columns that at least one of them needs."""
    names = definition.names_with(reduce(operator.or_, map(ops_in, tables)))
    return (table.select(names) for table in tables)
