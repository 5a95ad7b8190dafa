"""Histories of a store with runs in files, which the jobs of tasks read and write."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.core.context import Context
from ftfile.filters.chain import Chain
from ftfile.kv.compactor import Compactor
from ftfile.kv.planning.picker import DEFAULT_PLAN, PlanSettings
from ftfile.kv.planning.plan import PlannedCompaction
from ftfile.kv.planning.runs import Run, run_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import RunReader
from ftfile.kv.run_files import RunSpool
from ftfile.log.format.model import Origin
from ftfile.testing.context import ManualClock, SeededIds
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.writing.messages import OperationIdentity, TaskIdentity, segment_of
from ftfile.writing.stage import Stage
from tests.unit.kv.histories import STEPS, TTL_MS, Store

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.picker import Compaction
    from ftfile.kv.planning.plan import Terms
    from ftfile.log.format.model import Add

HISTORIES = 24


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def draw_rules(rng: random.Random) -> PlanSettings:
    """Rules by which all happens to runs of some hundred bytes."""
    return structs.replace(
        DEFAULT_PLAN,
        flush_runs=rng.choice((2, 3, 5)),
        flush_bytes=rng.choice((1000, 2500)),
        fan_in=rng.choice((2, 3)),
        max_file_bytes=rng.choice((400, 1000, 1 << 20)),
        tombstone_ttl_ms=TTL_MS,
    )


class StoredRuns(Store):
    """The store, whose runs are in files of a store in memory."""

    draw_rules = staticmethod(draw_rules)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fs = MemoryFileSystem(f"jobs-{seed}")
        self.fs.context = Context(clock=ManualClock(), ids=SeededIds(seed + 1000))
        self.block_bytes = self.rng.choice((1, 100, 400))
        self.tables: dict[str, pa.Table] = {}
        self.stage = Stage(self.fs, TaskIdentity(OperationIdentity("job"), 0, 0))

    def _output(self, bucket: str, table: pa.Table) -> Run:
        spool = RunSpool(self.stage, self.definition, Chain(), "lz4", self.block_bytes)
        segment = spool.write(bucket, table.to_batches())
        spool.end()
        assert table.num_rows == segment.rows
        return run_of(segment_of(segment, "encoding", Origin("query", 0, 0), {}))

    def _compacted(self, compaction: Compaction, terms: Terms, cuts: Sequence[Key]) -> list[Add]:
        compactor = Compactor(
            stage=self.stage,
            definition=self.definition,
            encoding="encoding",
            open_spool=lambda: RunSpool(self.stage, self.definition, Chain(), "lz4", self.block_bytes),
            read_version=len(self.versions) - 1,
            window_bytes=self.rng.choice((1, 200, 1 << 20)),
        )
        planned = PlannedCompaction(
            compaction=compaction, terms=terms, cuts=tuple(cuts), max_file_bytes=self.rules.max_file_bytes
        )
        ((_, rewrite, error),) = compactor.compact((planned,))
        assert rewrite is not None, error
        moved = {run.add.path for run in planned.moves}
        self.counts["outputs"] += sum(add.path not in moved for add in rewrite.adds)
        self.counts["cut"] += bool(cuts)
        self.counts["rowless"] += sum(not add.rows for add in rewrite.adds)
        return [*rewrite.adds]

    def rows_of(self, add: Add) -> pa.Table:
        if add.id not in self.tables:
            with self.fs.open(add.path) as file:
                content = file.read_at(add.offset, add.length)
            reader = RunReader(lambda offset, length: content[offset : offset + length], add.length, "", Cache(1 << 20))
            rows = pa.Table.from_batches(reader.scan(), reader.schema)
            self.tables[add.id] = rows
        return self.tables[add.id]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(0, HISTORIES, 8))
def test_rows_are_those_of_a_dict(place: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(place, place + 8):
        store = StoredRuns(seed)
        try:
            for step in store.rng.choices([*STEPS], [*STEPS.values()], k=18):
                step(store)
            store.settle()
            for version in store.versions:
                store.check(version)
        except BaseException:
            print(f"seed {seed}")
            raise
        finally:
            MemoryFileSystem.drop(f"jobs-{seed}")
        counts += store.counts
    wanted = {"jobs", "outputs", "descend", "level1", "cut", "rowless", "moved", "purge", "crash"}
    assert counts.keys() >= wanted, counts
