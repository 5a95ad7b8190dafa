"""Beyond each number that bounds something in a store: the result is still right."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, StaleFiles
from ftfile.kv import compactor, feed, feed_rows, pushdown
from ftfile.kv.compactor import FoldedRows, Outputs
from ftfile.kv.definition import define
from ftfile.kv.hashing import hash_rows
from ftfile.kv.planning import runs as planned_runs
from ftfile.kv.planning.runs import place_adds
from ftfile.kv.pushdown import Condition, select
from ftfile.kv.reading import bucket, reader, verify
from ftfile.kv.run import block_batch, writer
from ftfile.kv.run.pages import Cache, PageTable, Probes, build_pages, shape_for
from ftfile.kv.run.reader import SCAN_BYTES, RunReader
from ftfile.kv.run.writer import BLOCK_BYTES
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.vacuum import vacuum
from ftfile.read.log_planner import FollowSettings
from ftfile.read.log_positions import InLog
from ftfile.testing.context import current, open_filesystem
from tests.unit.kv.building import Builder
from tests.unit.kv.runs import Written, block_sizes, numbered, written
from tests.unit.kv.stores import counting, rows, rows_of
from tests.unit.kv.test_planning import MIB, a_run, named, plan_of, points
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("ring",)

LONG = define(pa.schema([("id", pa.int64()), ("text", pa.binary())]), ["id"], buckets=1)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def long_rows(ids: range, size_bytes: int) -> pa.Table:
    return pa.table([pa.array(ids, pa.int64()), pa.array([b"%09d" % id_ * (size_bytes // 9) for id_ in ids])],
                    schema=LONG.schema)  # fmt: skip


class TestReading:
    @pytest.mark.slow
    def test_runs_that_are_too_large_for_a_cached_merge(self, out: str) -> None:
        store = Builder(out, LONG, compression="none")
        store.write_tables({0: long_rows(range(400), 3600)})
        for first in range(32):
            store.write_tables({0: long_rows(range(first, 1000, 2), 900)})
        with kv.open(out) as opened:
            (bucket,) = opened.view.buckets.values()
            assert bucket.cached_merge is not None
            assert len(bucket.parts) == 33
            assert 1 < len(bucket.cached_merge.runs) < 32, "a cached merge has a bound"
            assert bucket.cached_merge.runs[-1] == bucket.parts[-1].run, "it has the newest runs"
            assert sum(batch.num_rows for batch in opened.scan()) == 1000
            for id_ in (0, 399, 400, 998, 999):
                assert opened.get(id_) == b"%09d" % id_ * 100

    @pytest.mark.slow
    def test_a_cached_merge_of_more_than_a_block(self, out: str) -> None:
        store = Builder(out, LONG, compression="none")
        for first in range(3):
            store.write_tables({0: long_rows(range(first * 800, first * 800 + 800), 900)})
        with kv.open(out) as opened:
            cached_merge = opened.view.buckets[0].cached_merge
            assert cached_merge is not None
            assert len(block_sizes(cached_merge.open().reader)) > 1
            assert opened.multi_get([0, 1600, 2399, 2400]) == [*(b"%09d" % id_ * 100 for id_ in (0, 1600, 2399)), None]

    @pytest.mark.slow
    @pytest.mark.parametrize("size", [90, 10])
    def test_many_keys_whose_values_are_more_than_a_column_can_have(
        self, out: str, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The offsets of strings in Arrow are of 32 bits."""
        store = Builder(out, LONG, compression="none")
        for first in range(2):
            store.write_tables({0: long_rows(range(first, 1000, 2), size)})
        monkeypatch.setattr(block_batch, "COLUMN_BYTES_MAX", 9 * size * 4)
        monkeypatch.setattr(reader, "_FEW_KEYS", 0)
        keys = [999, *range(-5, 1005), 999]
        with kv.open(out) as opened:
            expected = [opened.get(id_) for id_ in keys]
            assert opened.multi_get(keys) == expected
            assert opened.lookup(pa.array(keys))[1].to_pylist() == expected
            batch = pa.record_batch([pa.array(range(1000))], ["id"])
            with pytest.raises(block_batch.TooManyBytes):
                opened.view.buckets[0]._lookup(batch, hash_rows(batch.columns))  # noqa: SLF001 - `lookup` halves them

    @pytest.mark.slow
    def test_scans_that_hold_less_than_the_rows(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        store = Builder(out, LONG, compression="none")
        for first in range(2):
            store.write_tables({0: long_rows(range(first, 10_000, 2), 90)})
        with kv.open(out) as opened:
            whole = pa.Table.from_batches(opened.scan())
        monkeypatch.setattr(reader, "_SCAN_BYTES", 1)
        monkeypatch.setattr(bucket, "_READ_BYTES_MIN", 1)
        with kv.open(out) as opened:
            batches = [*opened.scan()]
        assert len(batches) > 100
        assert pa.Table.from_batches(batches).equals(whole)
        assert whole["id"].to_pylist() == [*range(10_000)]

    @pytest.mark.slow
    def test_a_run_of_more_than_is_read_at_once(self) -> None:
        batch = numbered(90_000)
        content = written([batch], batch.schema, ["id"], "none", BLOCK_BYTES)
        assert len(content) > SCAN_BYTES
        file = Written(content)
        run = RunReader(file.read_range, len(content), "a.spool", Cache(0))
        file.reads.clear()
        assert pa.Table.from_batches(run.scan()).equals(pa.Table.from_batches([batch]))
        assert 1 < len(file.reads) < len(block_sizes(run))
        assert max(length for _, length in file.reads) <= SCAN_BYTES

    @pytest.mark.slow
    def test_pages_of_more_than_are_made_at_once(self) -> None:
        hashes = np.random.default_rng(1).integers(0, 2**64, 200_000, np.uint64)
        shape = shape_for(hashes, len(hashes))
        made = [*build_pages(shape, hashes, np.arange(len(hashes)))]
        assert len(made) > 1
        table = PageTable(shape)
        table.slots[:] = np.concatenate(made)
        assert np.count_nonzero(table.slots) == len(hashes)
        probes, wanted = Probes(shape, hashes, table), np.arange(len(hashes))
        while wanted.size:
            places = probes.next_places(wanted)
            assert (places >= 0).all()
            wanted = wanted[places != wanted]

    def test_verification_of_more_than_is_read_at_once(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verify, "_READ_BYTES", 1000)
        monkeypatch.setattr(verify, "_CACHE_BYTES", 0)
        store = Builder(out, LONG)
        store.write_tables({0: long_rows(range(5000), 90)})
        assert kv.verify(out).damaged == ()
        (add,) = store.log.refresh().segments.values()
        content = bytearray(store.log.fs.read(add.path))
        content[add.length - 1500] ^= 1
        store.log.fs.put(add.path, bytes(content))
        assert len(kv.verify(out).damaged) == 1


class TestFeed:
    @pytest.mark.slow
    def test_changes_of_more_than_a_task_reads(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        query = counting(out, buckets="4")
        for batch in range(3):
            query.run(batch, [rows(*"abcdefghij", n=batch + 1)])
        whole = [row for batch in kv.changes(out) for row in batch.to_pylist()]
        monkeypatch.setattr(feed, "TASK_BYTES", 1)
        monkeypatch.setattr(feed_rows, "_WINDOW_BYTES", 1)
        log = CommitLog(open_filesystem(out))
        followed = feed.FeedPlanner(log, FollowSettings(), kv.open(out).definition.schema)
        head = log.refresh()
        assert len(followed.shares(InLog(version=0, nonce=""), InLog(version=head.version, nonce=head.nonce))) == 4
        found = [row for batch in kv.changes(out) for row in batch.to_pylist()]
        assert sorted(found, key=str) == sorted(whole, key=str)
        assert len(found) == 30


class TestSelections:
    def test_of_more_keys_than_are_looked_up(self) -> None:
        one = define(pa.schema([("a", pa.int32()), ("n", pa.int64())]), ["a"], buckets=4)
        listed = frozenset(range(pushdown.KEYS_MAX + 1))
        most = select([Condition("a", listed - {0})], one)
        assert most.keys is not None
        assert most.keys.num_rows == pushdown.KEYS_MAX
        found = select([Condition("a", listed)], one)
        assert (found.keys, found.buckets, found.ranges, found.met) == (None, None, (((), None),), frozenset())

    def test_of_more_ranges_than_are_scanned(self) -> None:
        two = define(pa.schema([("a", pa.int32()), ("b", pa.int32())]), ["a", "b"], bucket_by=["a"], buckets=1 << 14)
        listed = frozenset(range(pushdown.RANGES_MAX + 1))
        most = select([Condition("a", listed - {0})], two)
        assert len(most.ranges) == pushdown.RANGES_MAX
        assert most.met == {0}
        found = select([Condition("a", listed)], two)
        assert (found.ranges, found.met) == ((((), None),), frozenset())
        assert found.buckets is not None
        assert len(found.buckets) > pushdown.RANGES_MAX // 2


class TestPlans:
    def test_runs_below_a_size_are_equally_large(self) -> None:
        oldest = a_run((0, 1), length=50 * MIB, rows=9000)
        small = [a_run((at, at + 1), length=length) for at, length in ((2, 8192), (4, 1), (6, 500), (8, 4000))]
        assert [len(at) for _, at in named(plan_of([oldest, *small]))] == [4]
        assert plan_of([oldest, a_run((2, 3), length=40_000), *small[1:]]) == []

    def test_more_runs_than_a_record_has_places_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(planned_runs, "_INDEX_BITS", 2)
        assert [planned_runs.run_of(add).metadata.at for add in place_adds([a_run(0)] * 4, 1, 0)] == points(4, 5, 6, 7)
        with pytest.raises(ConfigError, match="5 runs are too many for one record"):
            place_adds([a_run(0)] * 5, 1, 0)


class TestJobs:
    @pytest.mark.slow
    def test_inputs_that_no_cache_holds(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compactor, "_CACHE_BYTES", 0)
        monkeypatch.setattr(writer, "BLOCK_BYTES", 512)
        query = counting(out, buckets="1", flushIntervalCount="3")
        for batch in range(3):
            query.run(batch, [rows(*map(str, range(batch, 900, 2)))])
        kv.compact(out)
        assert rows_of(out) == {str(n): 1 + (n > 0 and n % 2 == 0) for n in range(900)}

    def test_large_runs_take_rows_in_pieces(self) -> None:
        def nothing() -> Any:
            raise AssertionError

        piece_bytes = Outputs(nothing, "", 1 << 40).piece_bytes
        assert Outputs(nothing, "", 1 << 10).piece_bytes < piece_bytes
        table = pa.table({"k": np.arange(1_000_000)})
        taken = [*FoldedRows(iter([table]), (), 1, piece_bytes).batches_of_run(lambda _: False)]
        assert len(taken) > 7
        assert max(batch.nbytes for batch in taken) <= piece_bytes
        assert pa.Table.from_batches(taken).equals(table)

    @pytest.mark.slow
    def test_merges_that_a_vacuum_refuses_again_and_again(self, out: str) -> None:
        query = counting(out, buckets="1", vacuumInterval="0s")
        for batch in range(2):
            query.run(batch, [rows("a")])
        ahead = Body(horizon_ms=current().clock.now_ms() + 3_600_000)
        commit(CommitLog(open_filesystem(out)), MaintenanceAuthor("vacuum", "ahead"), lambda *_: ahead)
        with pytest.raises(StaleFiles, match=r"2 runs were not merged: .* vacuum with a longer retention"):
            kv.compact(out, full=True)
        assert rows_of(out) == {"a": 2}
        vacuum(out, dry_run=False)
        time.sleep(0.01)  # files are younger than the horizon from the next millisecond on
        assert kv.compact(out, full=True).runs_replaced == 2
        assert rows_of(out) == {"a": 2}


@pytest.mark.slow
def test_metadata_of_more_runs_than_stay_open(out: str, ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_runs, "_open", lru_cache(2)(planned_runs._open.__wrapped__))  # noqa: SLF001
    query = counting(out, encryption="aes-gcm", keyProvider=f"file:{ring}", buckets="8", flushIntervalCount="3")
    for batch in range(5):
        query.run(batch, [rows(*"abcdefghij")])
    assert rows_of(out, f"file:{ring}") == dict.fromkeys("abcdefghij", 5)
