"""Ranges replace records: after any merge, every kept version reads the same rows."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, PermissionDenied
from ftfile.log import publish as keeping
from ftfile.log.apply import state_after
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.compacted import AddColumns, Document, encode_compacted
from ftfile.log.format.layout import CompactedName
from ftfile.log.format.model import MaintenanceAuthor, Record
from ftfile.log.format.record import encode_record
from ftfile.log.format.version_blocks import Interval, blocks, fewest_intervals_of, halves, may_stand
from ftfile.log.read import add_table as merging
from ftfile.log.read import compacted_writer
from ftfile.log.read.add_table import compact_records, merge_compacted
from ftfile.log.read.compacted_records import (
    cover,
    find_contained,
    list_compacted,
    reach,
    read_compacted,
    write_compacted,
)
from ftfile.log.read.compacted_writer import write_due_compacted, write_fewest_compacted
from ftfile.log.read.snapshot import read_records, snapshot_at, take_snapshot
from ftfile.log.state import LogState
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.kit.parameters import parametrize
from tests.unit.log.random_log import RandomLog, forgetting, plain_record
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.format.compacted import CompactedLog
    from ftfile.storage.api import Capabilities, FileSystem, InputFile
    from tests.unit.log.conftest import Driver

seeds = st.integers(0, 10**6)
LEGAL = [Interval(first, last) for first in range(12) for last in range(12) if may_stand(first, last)]
# Each example reads every version of a log.
FEWER = settings(max_examples=settings().max_examples * 3 // 5)


def folded(records: RandomLog) -> LogState:
    return state_after(LogState(), *records.records)


def intervals(log: RandomLog) -> list[Interval]:
    """Return intervals for all versions that ranges may stand for, cut at random."""
    end = log.versions
    cut = log.random.choice((fewest_intervals_of(end), [*blocks(0, end)]))
    for _ in range(log.random.randrange(6)):
        place = log.random.randrange(len(cut))
        if cut[place].size > 1:
            cut[place : place + 1] = halves(cut[place])
    return cut


def pieces(log: RandomLog, *, nested: bool = False) -> list[CompactedLog]:
    """Return ranges of all records, cut at random, some of them merged from others; and one within another."""
    made = []
    for first, last in intervals(log):
        middle = log.random.randint(first, last)
        parts = [compact_records(log.records[first:middle], 0)] if middle > first else []
        made.append(merge_compacted([*parts, compact_records(log.records[middle : last + 1], 0)], 0))
    if nested:
        first, last = log.random.choice(intervals(log))
        made.append(compact_records(log.records[first : last + 1], 0))
    return made


@pytest.mark.slow
class TestColumns:
    @FEWER
    @given(seeds)
    def test_every_add_comes_back(self, seed: int) -> None:
        log = RandomLog(seed, 8)
        adds = [(add, record.version) for record in log.records for add in record.adds]
        if not adds:
            return
        columns = AddColumns()
        for add, version in adds:
            columns.append(add, version, version + 3)
        document = Document.of(columns)
        assert list(document.adds(columns.ids)) == [forgetting(add) for add, _ in adds]
        found = document.all_columns()
        assert found.statistics.columns() == columns.statistics.columns()
        assert replace(found, statistics=columns.statistics) == columns
        assert found.added == [version for _, version in adds]

    def test_a_million_files_take_few_bytes(self) -> None:
        """20 bytes of an id and a checksum cannot be compressed."""
        columns = AddColumns()
        for version in range(1000):
            for add in plain_record(version, files=8).adds:
                columns.append(add, version)
        document = Document.of(columns)
        assert sum(map(len, document.columns.values())) < 36 * len(columns.ids)


class TestMerging:
    @pytest.mark.slow
    @FEWER
    @given(seeds, st.booleans())
    def test_every_version_reads_as_its_records_say(self, seed: int, nested: bool) -> None:
        log = RandomLog(seed, 16)
        fs = log.storage("merging")
        head = folded(log)
        for content in pieces(log, nested=nested):
            write_compacted(fs, SYSTEM.ids, content)
        reader = CommitLog(NoRecords(fs))
        for version in range(log.versions):
            snapshot = snapshot_at(reader, head, version)
            assert dict(snapshot.adds.items()) == log.snapshots[version], version
            assert snapshot.schema == log.schemas[version]
            assert all(add.encoding in snapshot.definitions for add in snapshot.adds.values())

    @pytest.mark.slow
    @FEWER
    @given(seeds, st.integers(0, 15))
    def test_what_ended_before_the_oldest_record_is_left_out(self, seed: int, log_start: int) -> None:
        log = RandomLog(seed, 16)
        fs = log.storage("left out")
        head = replace(folded(log), log_start=log_start)
        write_compacted(fs, SYSTEM.ids, merge_compacted(pieces(log), log_start))
        for version in range(log_start, log.versions):
            found = snapshot_at(CommitLog(NoRecords(fs)), head, version).adds
            assert dict(found.items()) == log.snapshots[version], version
        (name,) = list_compacted(fs)
        ended = read_compacted(fs, name, ended=True).ended or ()
        assert all(removed > log_start for document in ended for removed in document.versions().removed)

    @pytest.mark.slow
    @FEWER
    @given(seeds, st.integers(0, 15), st.integers(0, 15))
    def test_what_was_live_since_a_version(self, seed: int, since: int, version: int) -> None:
        since = min(since, version)
        log = RandomLog(seed, 16)
        fs = log.storage("since")
        for content in pieces(log)[:-1]:
            write_compacted(fs, SYSTEM.ids, content)
        found = snapshot_at(CommitLog(fs), folded(log), version, since).adds
        expected = {add_id for at in range(since, version + 1) for add_id in log.snapshots[at]}
        assert set(found) == expected

    @pytest.mark.slow
    def test_large_documents_are_taken_as_they_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(merging, "DOCUMENT_ADDS", 4)
        for seed in range(20):
            log = RandomLog(seed, 32)
            fs = log.storage("documents")
            merged = merge_compacted(pieces(log), 0)
            assert all(document.count <= 4 for document in (*merged.kept, *(merged.ended or ())))
            write_compacted(fs, SYSTEM.ids, merged)
            for version in (3, 17, 31):
                found = snapshot_at(CommitLog(NoRecords(fs)), folded(log), version).adds
                assert dict(found.items()) == log.snapshots[version]

    def test_adds_that_ended_behind_the_log_start_are_kept(self) -> None:
        """The oldest version that is read is the start itself: it has the adds that the next one ends."""
        log = RandomLog(3, 8)
        for log_start in range(8):
            content = compact_records(log.records, log_start)
            kept = {version for document in content.ended or () for version in document.versions().removed}
            ended = {record.version for record in log.records if record.removes and record.version > log_start}
            assert kept == ended

    def test_removes_of_what_never_was_are_an_error(self) -> None:
        log = RandomLog(3, 12)
        later = compact_records(log.records[4:], 0)
        odd = compact_records(log.records[:4], 0)
        with pytest.raises(CorruptData, match="earlier versions"):
            merge_compacted([odd, _with_removes(later, {"nobody": 7})], 0)


def _with_removes(content: CompactedLog, removes: dict[str, int]) -> CompactedLog:
    return structs.replace(content, removes=content.removes | removes)


class NoRecords(WrapperFileSystem):
    """Has no records: who reads one has not found the ranges."""

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        assert not path.endswith(".record"), path
        return super().read(path, bytes_max)


class Reads(WrapperFileSystem):
    """Notes which records are read."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.records: list[int] = []

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        name = layout.parse_log_name(path)
        if name is not None:
            self.records.append(name.version)
        return super().read(path, bytes_max)


class TestCover:
    def names(self, *spans: tuple[int, int]) -> list[CompactedName]:
        return [CompactedName(first, last, "a") for first, last in spans]

    def spans(self, names: Sequence[CompactedName]) -> list[tuple[int, int]]:
        return [(name.first, name.last) for name in names]

    @pytest.mark.parametrize(
        ("there", "expected"),
        [
            ([], []),
            ([(1, 5)], []),
            ([(0, 3), (4, 7), (0, 7)], [(0, 7)]),
            ([(0, 3), (5, 9)], [(0, 3)]),
            ([(0, 9), (2, 3)], [(0, 9)]),
        ],
    )
    def test_the_fewest_without_a_gap(self, there: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
        assert self.spans(cover(self.names(*there))) == expected

    def test_no_further_than_asked(self) -> None:
        assert self.spans(cover(self.names((0, 3), (4, 9), (10, 12)), last=5)) == [(0, 3), (4, 9)]

    @pytest.mark.slow
    @given(st.lists(st.tuples(st.sampled_from(LEGAL), st.sampled_from("ab")), max_size=9))
    def test_dropping_what_is_contained_leaves_no_gap(self, spans: list[tuple[Interval, str]]) -> None:
        """For any process that drops, and however little each has seen."""
        names = {CompactedName(*interval, unique) for interval, unique in spans}
        before = reach(cover(names))
        some = {name for name in names if hash(name) % 3}
        others = names - some
        left = names - {name for seen in (some, others, names) for name in find_contained(names, cover(seen))}
        assert reach(cover(left)) == before


class TestFallback:
    """Readers fall back from ranges to records while the records are kept."""

    def log(self, name: str) -> tuple[RandomLog, MemoryFileSystem, list[CompactedName]]:
        log = RandomLog(5, 20)
        fs = log.storage(name)
        cuts = [(0, 8), (8, 16), (16, 18)]
        return log, fs, [write_compacted(fs, SYSTEM.ids, compact_records(log.records[a:b], 0)) for a, b in cuts]

    @pytest.mark.parametrize("number", range(3))
    @parametrize("harm", ["gone", "torn", "flipped", "other"], quick=1)
    def test_for_one_that_is_missing_or_damaged(self, number: int, harm: str) -> None:
        log, fs, names = self.log(f"fallback {harm}")
        path = layout.compacted_path(names[number])
        content = fs.read(path)
        fs.delete(path)
        if harm == "torn":
            fs.create_exclusive(path, content[:-1])
        elif harm == "flipped":
            middle = len(content) // 2
            fs.create_exclusive(path, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        elif harm == "other":
            fs.create_exclusive(path, encode_compacted(compact_records(log.records[1:3], 0)))
        for version in (2, 8, 14, 19):
            assert dict(take_snapshot(CommitLog(fs), version).adds.items()) == log.snapshots[version]

    @pytest.mark.slow
    def test_every_flipped_byte_is_noticed(self) -> None:
        _, fs, names = self.log("bytes")
        path = layout.compacted_path(names[1])
        content = fs.read(path)
        for position in range(len(content)):
            fs.delete(path)
            fs.create_exclusive(path, content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
            with pytest.raises(CorruptData, match=names[1].unique):
                read_compacted(fs, names[1], ended=True)

    def test_a_range_of_another_log_is_passed_over(self) -> None:
        log, fs, names = self.log("another")
        for name in names:
            fs.delete(layout.compacted_path(name))
        write_compacted(fs, SYSTEM.ids, compact_records(_renonced(RandomLog(6, 16)), 0))
        assert dict(take_snapshot(CommitLog(fs)).adds.items()) == log.snapshots[19]

    def test_a_range_of_a_log_that_began_later_is_passed_over(self) -> None:
        """The state after a restore of only the log from an older copy, whose last records have the same nonces."""
        log, fs, names = self.log("began later")
        for name in names:
            fs.delete(layout.compacted_path(name))
        other = compact_records(RandomLog(6, 16).records, 0)
        write_compacted(fs, SYSTEM.ids, structs.replace(other, log_start=5))
        assert dict(take_snapshot(CommitLog(fs)).adds.items()) == log.snapshots[19]

    def test_a_range_that_goes_on_after_the_head(self) -> None:
        """Other processes commit and merge while a reader uses a state."""
        log, fs, names = self.log("beyond")
        for name in names:
            fs.delete(layout.compacted_path(name))
        write_compacted(fs, SYSTEM.ids, compact_records(log.records[:16], 0))
        head = replace(state_after(LogState(), *log.records[:10]), log_start=10)
        assert dict(snapshot_at(CommitLog(fs), head).adds.items()) == log.snapshots[9]

    def test_ranges_are_opened_at_the_same_time_where_that_pays(self) -> None:
        log, fs, names = self.log("parallel")
        together = threading.Barrier(len(names), timeout=60)

        class Remote(WrapperFileSystem):
            @property
            def capabilities(self) -> Capabilities:
                return replace(super().capabilities, concurrency=8)

            def open(self, path: str) -> InputFile:
                together.wait()
                return super().open(path)

        assert dict(snapshot_at(CommitLog(Remote(fs)), folded(log)).adds.items()) == log.snapshots[19]

    def test_neither_range_nor_records_is_an_error(self) -> None:
        log, fs, names = self.log("neither")
        fs.delete(layout.compacted_path(names[1]))
        fs.delete(layout.record_path(9))
        with pytest.raises(CorruptData, match=r"00009\.record"):
            snapshot_at(CommitLog(fs), folded(log))

    def test_ranges_that_are_merged_while_one_reads_are_looked_for_again(self) -> None:
        log, fs, names = self.log("racing")

        class Racing(WrapperFileSystem):
            """Merges all ranges between the listing and the first look."""

            raced = False

            def open(self, path: str) -> InputFile:
                if path.endswith(".compacted") and not self.raced:
                    self.raced = True
                    write_compacted(fs, SYSTEM.ids, compact_records(log.records[:16], 0))
                    for name in names[:2]:
                        fs.delete(layout.compacted_path(name))
                    for record in log.records[:18]:
                        fs.delete(layout.record_path(record.version))
                return super().open(path)

        head = replace(folded(log), log_start=18)
        assert dict(snapshot_at(CommitLog(Racing(fs)), head).adds.items()) == log.snapshots[19]

    def test_a_later_format_is_refused(self) -> None:
        _, fs, names = self.log("later format")
        from ftfile.log.format.record import to_checked_text

        path = layout.compacted_path(names[0])
        fs.delete(path)
        fs.create_exclusive(path, to_checked_text([b'{"ftfileCompacted":2}']))
        with pytest.raises(CorruptData, match="newer version of ftfile"):
            read_compacted(fs, names[0], ended=True)

    @pytest.mark.slow
    def test_more_records_than_become_a_range_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where no range is left, the fewest stand for all of them again."""
        monkeypatch.setattr(compacted_writer, "CHUNK_RECORDS", 300)
        versions = 3 * compacted_writer.CHUNK_RECORDS + 1
        fs = MemoryFileSystem("chunks")
        for directory in layout.DIRECTORIES:
            fs.make_directories(directory)
        for version in range(versions):
            record = Record(version, f"n{version}", MaintenanceAuthor("nothing", "job"), 0)
            fs.create_exclusive(layout.record_path(version), encode_record(record).content)
        log = CommitLog(fs)
        write_fewest_compacted(log, log.refresh())
        assert sorted((name.first, name.last) for name in list_compacted(fs)) == fewest_intervals_of(versions)
        MemoryFileSystem.drop("chunks")


def _renonced(log: RandomLog) -> list[Record]:
    return [structs.replace(record, nonce=f"other{record.version}") for record in log.records]


class TestCommits:
    """The ranges that commits write automatically."""

    @pytest.fixture(autouse=True)
    def _often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 4)

    def test_readers_open_few_records(self, driver: Driver) -> None:
        for batch in range(22):
            driver.commit_new(batch)
        reads = Reads(driver.fs)
        assert len(snapshot_at(CommitLog(reads), driver.log.refresh()).adds) == 22
        assert reads.records == [20, 21]
        assert reach(cover(list_compacted(driver.fs))) == 19
        assert len(list_compacted(driver.fs)) <= 4

    def test_a_committer_reads_nothing_again_for_a_range(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch)

        driver.log.fs = reads = Reads(driver.fs)
        for batch in range(6, 8):
            driver.commit_new(batch)
        assert reach(cover(list_compacted(driver.fs))) == 7
        # Except the newest record, which shows whether the directory is the same.
        assert set(reads.records) == {5, 6}

    def test_new_processes_write_them_too(self, driver: Driver) -> None:
        for batch in range(9):
            driver.restart()
            driver.commit_new(batch)
        assert reach(cover(list_compacted(driver.fs))) == 7

    def test_large_records_become_a_range_at_once(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1000)
        monkeypatch.setattr(keeping, "COMPACTED_BYTES", 3000)
        driver.commit_new(0)
        assert not list_compacted(driver.fs)
        driver.commit(1, *(driver.stage(1) for _ in range(20)))
        assert reach(cover(list_compacted(driver.fs))) == 1

    @pytest.mark.slow
    def test_a_range_that_was_lost_is_made_up_for_bit_by_bit(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for batch in range(24):
            driver.commit_new(batch)
        for name in list_compacted(driver.fs):
            driver.fs.delete(layout.compacted_path(name))
        monkeypatch.setattr(compacted_writer, "GAP_RECORDS", 10)
        driver.restart()
        reached = []
        for batch in range(24, 44):
            driver.commit_new(batch)
            reached.append(reach(cover(list_compacted(driver.fs))))
            assert len(take_snapshot(driver.log).adds) == batch + 1
        steps = [at for at, _ in itertools.groupby(reached)]
        assert steps == [-1, 9, 19, 29, 39, 43]

    def test_failing_to_write_one_harms_nobody(self, driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".compacted"):
                    raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        inner = driver.fs
        driver.fs = Denied(inner)
        driver.restart()
        for batch in range(5):
            driver.commit_new(batch)
        assert "could not write a compacted log" in caplog.text
        assert len(take_snapshot(driver.log).adds) == 5

    def test_failing_to_write_one_drops_none(self, driver: Driver) -> None:
        for batch in range(7):
            driver.commit_new(batch)
        before = list_compacted(driver.fs)

        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".compacted"):
                    raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        inner, driver.fs = driver.fs, Denied(driver.fs)
        driver.restart()
        driver.commit_new(7)
        assert list_compacted(inner) == before

    @pytest.mark.slow
    def test_a_range_that_cannot_be_read_is_not_merged(self, driver: Driver) -> None:
        for batch in range(12):
            driver.commit_new(batch)
        for name in list_compacted(driver.fs):
            driver.fs.put(layout.compacted_path(name), b"damaged")
        for batch in range(12, 16):
            driver.commit_new(batch)
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == 16


class TestCosts:
    """By counting: nothing grows with the number of records but logarithms."""

    def written(self, versions: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
        """Return bytes written to ranges, bytes of the last ones, and how many they are."""
        monkeypatch.setattr(compacted_writer, "MERGED_BYTES", 2050 << 40)
        fs = MeteredFileSystem(RandomLog(0, 0).storage("costs"))
        log, head = CommitLog(fs), LogState()
        log.recent.is_kept = True
        for version in range(versions):
            record = plain_record(version, files=8)
            log.recent.records[record.version] = record
            head = state_after(head, record)
            if version % 8 == 7:
                write_due_compacted(log, head)
        there = list_compacted(fs)
        return fs.counters.bytes_written, sum(there.values()), len(there)

    @pytest.mark.slow
    def test_adds_are_written_again_as_ranges_double(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for levels in (3, 4):
            written, left, count = self.written(8 * 4**levels, monkeypatch)
            assert count == 1
            assert levels * left < written < (2 * levels + 2) * left
        versions = 8 * (4**4 - 1)
        written, left, count = self.written(versions, monkeypatch)
        assert count == len([*blocks(0, versions)])

    @pytest.mark.slow
    def test_one_commit_merges_no_more_than_it_may(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 1)
        monkeypatch.setattr(compacted_writer, "MERGED_BYTES", 1300)
        sizes: list[int] = []

        class Watched(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".compacted"):
                    sizes.append(len(content))
                super().create_exclusive(path, content)

        driver.fs = Watched(driver.fs)
        driver.restart()
        for batch in range(60):
            driver.commit_new(batch)
        assert 4 * min(sizes) > 2 * 1300 > 2 * max(sizes)
        assert len(list_compacted(driver.fs)) == 60 // 2
        assert len(take_snapshot(driver.log).adds) == 60


class TestBounds:
    def test_versions_that_are_not_kept_are_refused(self, driver: Driver) -> None:
        for batch in range(4):
            driver.commit_new(batch)
        write_due_compacted(driver.log, driver.log.refresh())
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=2)
        for version in (-1, 0, 1, 5):
            with pytest.raises(ConfigError, match="the newest is 4, the oldest 2"):
                take_snapshot(driver.log, version)
        assert len(take_snapshot(driver.log, 2).adds) == 3
        assert [record.version for record in read_records(driver.log)] == [2, 3, 4]
