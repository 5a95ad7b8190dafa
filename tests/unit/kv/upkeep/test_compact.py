"""Merging runs without a batch: rows stay, runs become few, and failures do not change the other runs."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile import kv
from ftfile.core.errors import ConfigError, CorruptData, Unavailable
from ftfile.core.retries import AWAY_S
from ftfile.kv.compactor import CompactionResult, Compactor
from ftfile.kv.driver import how_written
from ftfile.kv.planning.picker import DEFAULT_PLAN
from ftfile.kv.planning.plan import CompactionPlanner
from ftfile.kv.planning.runs import run_of
from ftfile.kv.reading import verify
from ftfile.kv.run import writer
from ftfile.kv.upkeep import compact as compaction
from ftfile.kv.upkeep.compact import CompactionRounds, CompactionWork, DueCompactions
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.testing.context import ManualClock, current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.workers import Threads
from tests.kit.due_compactions import compact_due
from tests.kit.store_check import check_store
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, damage, rows_of, runs_of

if TYPE_CHECKING:
    from ftfile.core.progress import Progress
    from ftfile.kv.planning.runs import Run


@pytest.fixture
def query() -> StoreBatch:
    """A store of four buckets, whose jobs wait for kv.compact."""
    return counts(buckets="4", flushIntervalCount="1000")


def write(query: StoreBatch, batches: int, words: int = 20) -> dict[str, int]:
    expected: dict[str, int] = {}
    for batch in range(batches):
        found = [f"w{number % words}" for number in range(batch, batch + words // 2)]
        query.run(batch, [[{"word": word, "n": 1} for word in found]])
        for word in found:
            expected[word] = expected.get(word, 0) + 1
    return expected


def end_early(progress: Progress) -> None:
    """Let an endless compaction fail."""
    assert progress.done < 20


class TestCompact:
    @pytest.mark.slow
    def test_runs_far_below_a_file_become_one(self) -> None:
        query = counts(buckets="1", flushIntervalCount="1000")
        for batch in range(2):
            words = (sha256(b"%d %d" % (batch, number)).hexdigest() for number in range(30_000))
            query.run(batch, [[{"word": word, "n": batch} for word in words]])
        report = kv.compact(PATH, full=True, progress=end_early, context=current())
        assert (report.records, report.runs_written, runs_of(PATH)) == (1, 1, 1)

    @pytest.mark.slow
    def test_a_bulk_load_is_written_once(self) -> None:
        """Its task sorts all rows of a bucket in one piece, so its runs go down as they are."""
        options = {"keyColumns": "word", "buckets": "4", "flushIntervalCount": "2", "maxFileSize": "256KiB"}
        query = StoreBatch(PATH, COLUMNS, options)
        words = [sha256(b"%d" % number).hexdigest() for number in range(60_000)]
        query.run(0, [[{"word": word, "n": 1} for word in words]])
        files = {add.path for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()}
        for batch in range(1, 4):
            query.run(batch, [[]])
        report = kv.compact(PATH, full=True, context=current())
        assert (report.runs_replaced, report.runs_written) == (0, 0)
        assert {add.path for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()} == files
        with kv.open(PATH, context=current()) as reader:
            assert reader.stats().rows == 60_000

    @pytest.mark.slow
    def test_nothing_due_is_no_record(self, query: StoreBatch) -> None:
        write(query, 3)
        report = kv.compact(PATH, context=current())
        assert (report.records, report.version) == (0, 2)

    @pytest.mark.slow
    def test_what_is_due_is_merged_until_nothing_is(self) -> None:
        query = counts(buckets="4", flushIntervalCount="4")
        expected = write(query, 4)
        before = runs_of(PATH)
        report = kv.compact(PATH, context=current())
        assert report.records == 1
        assert report.runs_replaced == before - runs_of(PATH) + report.runs_written
        assert runs_of(PATH) < before / 2
        assert rows_of(PATH) == expected
        assert kv.compact(PATH, context=current()).records == 0

    @pytest.mark.slow
    def test_full_leaves_a_run_a_bucket_without_deletes(self) -> None:
        query = counts(buckets="2", deleteColumn="gone", flushIntervalCount="1000", merge="last")
        query.columns = {**COLUMNS, "gone": "boolean"}
        query.run(0, [[{"word": f"w{number}", "n": number, "gone": False} for number in range(9)]])
        query.run(1, [[{"word": f"w{number}", "n": None, "gone": True} for number in range(3)]])
        report = kv.compact(PATH, full=True, context=current())
        assert report.records == 1
        assert runs_of(PATH) == 2
        assert rows_of(PATH) == {f"w{number}": number for number in range(3, 9)}
        assert sum(add.rows for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()) == 6
        assert kv.compact(PATH, full=True, context=current()).records == 0

    @pytest.mark.slow
    def test_a_large_bucket_takes_several_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "BLOCK_BYTES", 4096)
        query = counts(buckets="1", flushIntervalCount="1000", maxFileSize="4096")
        expected = write(query, 3, words=4000)
        report = kv.compact(PATH, full=True, context=current())
        assert report.records > 2
        assert rows_of(PATH) == expected
        assert kv.compact(PATH, full=True, context=current()).records == 0

    @pytest.mark.slow
    def test_batches_go_on_meanwhile(self, query: StoreBatch) -> None:
        write(query, 3)
        planned, writer = query.pickled_plan(), query.identity(3)
        message = query.run_task(planned, writer, 0, [{"word": "w0", "n": 10}])
        before = rows_of(PATH)
        kv.compact(PATH, full=True, context=current())
        query.commit(3, [message])
        assert rows_of(PATH) == before | {"w0": before["w0"] + 10}

    @pytest.mark.slow
    def test_runs_that_a_batch_merged_first_are_left_to_it(self) -> None:
        query = counts(buckets="1", flushIntervalCount="3")
        expected = write(query, 3)
        planned, writer = query.pickled_plan(), query.identity(3)
        message = query.run_task(planned, writer, 0, [])
        assert message.rewritten
        kv.compact(PATH, context=current())
        done = query.commit(3, [message])
        assert done.record is not None
        assert not done.record.removes
        assert rows_of(PATH) == expected

    @pytest.mark.slow
    def test_a_damaged_bucket_leaves_the_others(self, query: StoreBatch) -> None:
        write(query, 3)
        adds = [*CommitLog(open_filesystem(PATH)).refresh().segments.values()]
        damaged = adds[0]
        damage(PATH, damaged)
        with pytest.raises(CorruptData) as caught:
            kv.compact(PATH, full=True, context=current())
        assert caught.value.path == damaged.path
        buckets = Counter(add.directory_key for add in CommitLog(open_filesystem(PATH)).refresh().segments.values())
        assert buckets == {**dict.fromkeys({add.directory_key for add in adds}, 1), damaged.directory_key: 3}

    @pytest.mark.slow
    def test_damaged_buckets_leave_the_only_other_one(self) -> None:
        write(counts(buckets="4", flushIntervalCount="4"), 4)
        adds = [*CommitLog(open_filesystem(PATH)).refresh().segments.values()]
        *broken, whole = sorted({add.directory_key for add in adds})
        for bucket in broken:
            damage(PATH, next(add for add in adds if add.directory_key == bucket))
        with pytest.raises(CorruptData):
            kv.compact(PATH, context=current())
        left = Counter(add.directory_key for add in CommitLog(open_filesystem(PATH)).refresh().segments.values())
        assert left == {**Counter(add.directory_key for add in adds), whole: 1}

    def test_it_is_for_stores(self) -> None:
        with pytest.raises(ConfigError, match="no store"):
            kv.compact("memory://nowhere/x", context=current())
        MicroBatch("memory://files/x", {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
        with pytest.raises(ConfigError, match="directory of files"):
            kv.compact("memory://files/x", context=current())


@pytest.mark.slow
class TestDeletes:
    def test_they_stay_as_long_as_a_late_row_could_come_back(self, clock: ManualClock) -> None:
        """A full compaction leaves a delete that a newer row needs, also one that it does not read."""
        options = {"keyColumns": "k", "sequenceColumn": "at", "deleteColumn": "gone", "tombstoneTtl": "60s"}
        query = StoreBatch(PATH, {"k": "string", "at": "long", "gone": "boolean"}, options | {"buckets": "1"})
        query.run(0, [[{"k": "a", "at": 5, "gone": False}, {"k": "b", "at": 5, "gone": False}]])
        query.run(1, [[{"k": "a", "at": 10, "gone": True}]])
        log = CommitLog(open_filesystem(PATH))
        full = compaction._FullCompaction(log)  # noqa: SLF001
        how = how_written(log.refresh(), log.fs)
        ((planned,),) = full.choose(log.refresh(), how, ())
        query.run(2, [[{"k": "a", "at": 7, "gone": False}]])  # late
        clock.advance(3600)
        assert [run.add.id for run in planned.inputs] == [*log.refresh().segments][:2]
        ((planned,),) = full.choose(log.refresh(), how, ())
        assert len(planned.inputs) == 2, "the newest run came later"
        newest = max(map(run_of, log.refresh().segments.values()), key=lambda run: run.metadata.at)
        assert planned.terms.expired_ms == newest.metadata.committed_ms - 60_000
        kv.compact(PATH, full=True, context=current())
        with kv.open(PATH, context=current()) as store:
            assert store.get("a") is None
            assert store.get("b") == 5
        check_store(open_filesystem(PATH))

    def test_what_must_stay_is_written_once(self, clock: ManualClock) -> None:
        """A delete that has not expired does not keep a full compaction going."""
        options = {"keyColumns": "k", "sequenceColumn": "at", "deleteColumn": "gone", "tombstoneTtl": "60s"}
        query = StoreBatch(PATH, {"k": "string", "at": "long", "gone": "boolean"}, options | {"buckets": "1"})
        query.run(0, [[{"k": "a", "at": 5, "gone": False}, {"k": "b", "at": 5, "gone": False}]])
        query.run(1, [[{"k": "a", "at": 10, "gone": True}]])
        reports = [kv.compact(PATH, full=True, progress=end_early, context=current()) for _ in range(2)]
        assert [report.records for report in reports] == [2, 1]
        clock.advance(3600)
        kv.compact(PATH, full=True, context=current())
        (add,) = CommitLog(open_filesystem(PATH)).refresh().segments.values()
        assert add.rows == 1
        assert kv.compact(PATH, full=True, context=current()).records == 0


class TestThreads:
    @pytest.mark.slow
    def test_as_many_merge_at_once_as_are_asked_for(self, query: StoreBatch, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = write(query, 3)
        together, honest = threading.Barrier(4), Compactor.compact

        def merge(*arguments: Any) -> Any:
            together.wait(300)
            return honest(*arguments)

        monkeypatch.setattr(Compactor, "compact", merge)
        report = kv.compact(PATH, full=True, threads=4, context=current())
        assert (report.records, runs_of(PATH)) == (1, 4)
        assert rows_of(PATH) == expected
        check_store(open_filesystem(PATH))

    @pytest.mark.slow
    def test_what_no_record_names_is_shared_among_them(self) -> None:
        write(counts(buckets="4", flushIntervalCount="4"), 4)
        log = CommitLog(open_filesystem(PATH))
        head = replace(log.refresh(), jobs=())
        how = how_written(head, log.fs)
        assert [len(DueCompactions(log, at_once).choose(head, how, ())) for at_once in (1, 3)] == [1, 3]

    @pytest.mark.slow
    def test_records_are_those_of_one_thread(self, query: StoreBatch) -> None:
        other = counts("memory://upkeep/other", **query.options)
        for each, threads in ((query, 1), (other, 4)):
            write(each, 3)
            kv.compact(each.path, full=True, threads=threads, context=current())
        found = [
            [(add.directory_key, add.rows) for add in CommitLog(open_filesystem(path)).read_record(3).adds]  # type: ignore[union-attr] # it is there
            for path in (PATH, other.path)
        ]
        assert found[0] == found[1]
        assert len(found[0]) == 4

    def test_once_the_storage_is_away_no_other_merge_of_the_round_begins(
        self, query: StoreBatch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(query, 3)
        log = CommitLog(open_filesystem(PATH))
        head = log.refresh()
        settings = structs.replace(DEFAULT_PLAN, flush_runs=2)
        pieces = [(planned,) for planned in CompactionPlanner(settings, [], 0).list_due(head.segments.values())]
        silent = Unavailable("open", "path", "it is silent")
        silent.waited_s = AWAY_S
        monkeypatch.setattr(
            Compactor, "compact", lambda _, piece: (CompactionResult(piece[0].compaction, None, silent),)
        )
        rounds = CompactionRounds(log=log, author=MaintenanceAuthor("compact", "job"), workers=Threads("job", 1))
        assert len(pieces) == 4
        assert len(rounds._do_pieces(CompactionWork(how_written(head, log.fs), head.version), pieces)) == 1  # noqa: SLF001

    @pytest.mark.slow
    def test_verify(self, query: StoreBatch, monkeypatch: pytest.MonkeyPatch) -> None:
        write(query, 3)
        together, honest = threading.Barrier(3), verify._check_run  # noqa: SLF001

        def check(run: Run, *more: Any) -> None:
            if run.add.directory_key == "b=00000":
                together.wait(300)
            honest(run, *more)

        monkeypatch.setattr(verify, "_check_run", check)
        assert kv.verify(PATH, threads=3, context=current()).ok

    def test_none_are_refused(self, query: StoreBatch) -> None:
        write(query, 1)
        for call in (kv.compact, kv.verify):
            with pytest.raises(ConfigError, match="threads=0"):
                call(PATH, threads=0, context=current())


class TestRunDue:
    @pytest.mark.slow
    def test_it_leaves_nothing_due_and_raises_nothing(self) -> None:
        query = counts(buckets="4", flushIntervalCount="4")
        expected = write(query, 4)
        log = CommitLog(open_filesystem(PATH))
        assert [compact_due(log).records for _ in range(2)] == [1, 0]
        assert rows_of(PATH) == expected
