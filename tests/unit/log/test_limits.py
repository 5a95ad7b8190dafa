"""The limits of the log: beyond each limit, results stay correct and commits succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CommitOutcomeUnknown, CorruptData, OutcomeUnknown, PermissionDenied, StorageError
from ftfile.log import apply as fold
from ftfile.log import checkpoints, records
from ftfile.log import commit_log as log
from ftfile.log import publish as keeping
from ftfile.log import state as states
from ftfile.log.apply import TablesBuilder, state_after
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint, list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import compacted as range_format
from ftfile.log.format import layout
from ftfile.log.format import record as record_format
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    MaintenanceAuthor,
    Origin,
    Record,
    Remove,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.version_blocks import fewest_intervals_of
from ftfile.log.policy import find_record
from ftfile.log.read import add_table as merging
from ftfile.log.read import compacted_writer
from ftfile.log.read import snapshot as snapshots
from ftfile.log.read.add_table import compact_records
from ftfile.log.read.compacted_records import cover, list_compacted, reach, read_compacted, write_compacted
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.records import PublishedHint, write_published
from ftfile.log.state import CHANGES_MIN, LogState, SharedMap
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock, open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver
from tests.wrappers import InContext

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.storage.api import FileInfo, InputFile


def part(name: str) -> Add:
    return Add(name, "part", f"_ftfile/staged/q/{name}", name, 1, 1, "crc32:0", 1, "", "e", Origin("q", 0, 0))


def maintained(state: LogState, count: int) -> LogState:
    """Return a state this number of records later."""
    first = state.version + 1
    versions = range(first, first + count)
    return state_after(state, *(Record(at, f"n{at}", MaintenanceAuthor("test", "x"), 0) for at in versions))


@pytest.fixture
def in_memory(request: pytest.FixtureRequest) -> Iterator[Driver]:
    name = request.node.name
    yield Driver(MemoryFileSystem(name))
    MemoryFileSystem.drop(name)


class TestState:
    @pytest.mark.slow
    def test_recent_records(self, in_memory: Driver) -> None:
        """A hint that names an older record saves no work: the published parts are checked again."""
        state = maintained(LogState(), fold.RECENT_RECORDS + 10)
        assert len(state.recent) == fold.RECENT_RECORDS
        assert [state.includes(at, f"n{at}") for at in (9, 10, 265)] == [None, True, True]
        assert [state.includes(at, "other") for at in (9, 10, 266)] == [None, False, False]
        driver = in_memory
        add = driver.commit_new(0)
        hint = driver.log.refresh()
        other = CommitLog(driver.fs)
        for _ in range(fold.RECENT_RECORDS + 1):
            driver.create_record(other, author=MaintenanceAuthor("test", "x"))
        write_published(driver.fs, PublishedHint(hint.version, hint.nonce))
        driver.restart()
        driver.commit_new(1)
        assert add.final_path in driver.visible()
        assert len(driver.visible()) == 2

    def test_recent_changes_of_segments(self) -> None:
        """A query that has missed more changes restarts with all open segments."""
        state = LogState()
        for version in range(fold.RECENT_CHANGES + 5):
            segment = structs.replace(part(f"s{version}"), kind="segment", final_path=None)
            record = Record(version, f"n{version}", MaintenanceAuthor("test", "x"), 0, adds=(segment,))
            state = state_after(state, record)
        assert len(state.segment_changes) == fold.RECENT_CHANGES
        assert len(state.segments) == fold.RECENT_CHANGES + 5

    def test_removed_parts(self) -> None:
        count = fold.REMOVED_KEPT + 1
        parts = [part(f"p{number}") for number in range(count)]
        state = state_after(LogState(), Record(0, "n0", BatchWriteAuthor("j"), 0, adds=tuple(parts)))
        for version, removed in enumerate((parts[:5000], parts[5000:]), 1):
            removes = tuple(Remove.of(add) for add in removed)
            author = MaintenanceAuthor("drop", "x")
            state = state_after(state, Record(version, f"n{version}", author, 0, removes=removes))
        assert len(state.removed) <= fold.REMOVED_KEPT
        assert not any(state.is_live(add, read_version=0) for add in parts[::500])

    @pytest.mark.slow
    def test_definitions(self, driver: Driver) -> None:
        """One that is forgotten and wanted again is written again."""
        for batch in range(3 * fold.DEFINITIONS_KEPT):
            driver.commit(batch, definitions={f"e{batch}": str(batch)})
        head = driver.log.refresh()
        assert fold.DEFINITIONS_KEPT <= len(head.definitions) <= 2 * fold.DEFINITIONS_KEPT
        driver.commit(head.version + 1, definitions={"e0": "0"}, encoding="e0")
        assert driver.log.refresh().definitions["e0"] == "0"

    @pytest.mark.slow
    def test_definitions_of_queries_stay(self, driver: Driver) -> None:
        """A flush needs the settings of every query, however long ago it wrote."""
        driver.commit(0, definitions={"settings": {"rolling": 1}}, settings="settings")
        other = type(driver)(driver.fs, "query-2").with_policy(on_new_query="continue")
        for batch in range(3 * fold.DEFINITIONS_KEPT):
            other.commit(batch, definitions={f"e{batch}": str(batch)})
        for head in (other.log.refresh(), decode_checkpoint(encode_checkpoint(other.log.refresh()), "path")):
            assert head.definitions[head.queries["query-1"].settings or ""] == {"rolling": 1}

    @pytest.mark.slow
    def test_entries_of_a_table(self) -> None:
        keys = [f"{number:x}" for number in range(fold.ENTRIES_MAX + 10)]
        builder = TablesBuilder({})
        builder.apply({"t": {"set": dict.fromkeys(keys, 1)}}, 0)
        builder.apply({"t": {"set": {keys[20]: 2}}}, 1)
        found = builder.finish()
        assert len(found["t"]) == fold.ENTRIES_MAX
        assert list(found["t"])[:2] == [keys[10], keys[11]]
        assert list(found["t"])[-1] == keys[20]

    def test_reserved_names_stay_while_the_record_is_kept(self) -> None:
        removes = (Remove("id", "part", "latest.txt"),)
        author = MaintenanceAuthor("test", "x")
        state = state_after(LogState(), Record(0, "n0", author, 0), Record(1, "n1", author, 0, removes=removes))
        state = state_after(state, Record(2, "n2", author, 0, log_start=1))
        assert dict(state.reserved) == {"latest.txt": 1}
        assert dict(state_after(state, Record(3, "n3", author, 0, log_start=2)).reserved) == {}


class TestSharing:
    def test_a_state_does_not_change_when_the_log_goes_on(self, driver: Driver) -> None:
        driver.commit_new(0, tables={"t": {"set": {"a": 1}}}, definitions={"e": "1"})
        head = driver.log.refresh()
        before = encode_checkpoint(head)
        other = CommitLog(driver.fs)
        for _ in range(3):
            driver.create_record(
                other,
                author=BatchWriteAuthor("j", Transaction("app", other.refresh().version)),
                adds=(structs.replace(driver.stage(1), kind="segment", final_path=None),),
                tables={"t": {"set": {"b": 2}, "drop": ["a"]}},
                definitions={"f": "2"},
                log_start=1,
            )
        assert driver.log.refresh().version == 3
        assert encode_checkpoint(head) == before

    def test_looking_for_a_missing_part_does_not_advance_the_head(self, driver: Driver) -> None:
        driver.commit_new(0)
        head = driver.log.refresh()
        driver.create_record(author=BatchWriteAuthor("other"))
        driver.log.refresh(durable=True)
        assert head.version == 0

    @parametrize("size", [0, 1, CHANGES_MIN, 40 * CHANGES_MIN], quick=2)
    def test_changed_copies_are_right_beyond_what_they_share(self, size: int) -> None:
        expected = {f"k{number}": number for number in range(size)}
        found = SharedMap(dict(expected))
        for step in range(6):
            before, copy = found, dict(found.items())
            builder = found.builder()
            for number in range(step * CHANGES_MIN // 2):
                key = f"k{number * 3 + step}"
                builder.drop(key)
                expected.pop(key, None)
                if number % 2:
                    builder.set(key, -number)
                    expected[key] = -number
            found = builder.finish()
            assert list(found.items()) == list(expected.items())
            assert list(builder.items()) == list(expected.items())
            assert (len(found), "k3" in found) == (len(expected), "k3" in expected)
            assert list(before.items()) == list(copy.items())


class TestQueries:
    @pytest.mark.slow
    def test_more_than_a_view_tells_of(self, tmp_path: Path) -> None:
        """A task of the 257th query does not find its batch, and writes; the commit finds it."""
        out = str(tmp_path / "out")
        query = MicroBatch(out, {"id": "long"}, {"fileFormat": "json", "onNewQuery": "continue"}, f"{0:036d}")
        query.run(0, [[{"id": 1}]])
        driver = Driver(open_filesystem(out))
        other = CommitLog(driver.fs)
        for number in range(1, states.VIEW_QUERIES + 1):
            driver.create_record(other, author=StreamAuthor(f"{number:036d}", "r", 0), lineage_start=0)
        view = CommitLog(driver.fs).refresh().view()
        assert len(view.last_batches) == states.VIEW_QUERIES
        assert query.query_id not in view.last_batches
        query.restart()
        message = query.run_task(query.pickled_plan(), query.identity(0), 0, [{"id": 1}])
        assert not message.found_committed
        assert query.commit(0, [message]).replayed
        query.run(1, [[{"id": 2}]])
        assert len(driver.visible()) == 2


class TestTries:
    def test_to_create(self, driver: Driver) -> None:
        tried: list[str] = []

        class Lost(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record"):
                    tried.append(path)
                    raise OutcomeUnknown("create_exclusive", path, "no reply")
                super().create_exclusive(path, content)

        with pytest.raises(CommitOutcomeUnknown):
            driver.commit(0, driver.stage(0), log=CommitLog(InContext(Lost(driver.fs), clock=ManualClock())))
        assert len(tried) == records.CREATE_TRIES
        driver.commit_new(0)

    @pytest.mark.slow
    @pytest.mark.parametrize("busy", [log.REFRESH_TRIES - 1, 10 * log.REFRESH_TRIES])
    def test_to_read_on(self, in_memory: Driver, busy: int) -> None:
        driver, left = in_memory, busy
        driver.commit_new(0)

        class Fast(WrapperFileSystem):
            """Others commit and write a checkpoint whenever checkpoints are listed, for a while."""

            def list(self, path: str) -> list[FileInfo]:
                nonlocal left
                if path == layout.CHECKPOINTS and left:
                    left -= 1
                    driver.create_record(author=MaintenanceAuthor("test", "x"))
                    write_checkpoint(driver.fs, SYSTEM.ids, CommitLog(driver.fs).refresh())
                return super().list(path)

        fast = CommitLog(Fast(driver.fs))
        if busy < log.REFRESH_TRIES:
            assert fast.refresh().version == busy
            return
        with pytest.raises(StorageError, match="faster than they could be read"):
            fast.refresh()
        assert busy - left >= log.REFRESH_TRIES
        left = 0
        assert fast.refresh().version > 0

    @pytest.mark.slow
    @pytest.mark.parametrize("busy", [snapshots.TRIES - 1, 10 * snapshots.TRIES])
    def test_to_take_a_snapshot(self, in_memory: Driver, busy: int) -> None:
        driver, left = in_memory, busy
        add = driver.commit_new(0)

        class Vacuumed(WrapperFileSystem):
            """Each of the first listings of ranges meets a vacuum that allows older records to be deleted."""

            def list(self, path: str) -> list[FileInfo]:
                nonlocal left
                if path == layout.COMPACTED and left:
                    left -= 1
                    other = CommitLog(driver.fs)
                    write_fewest_compacted(other, other.refresh())
                    log_start = other.refresh().version + 1
                    driver.create_record(other, author=MaintenanceAuthor("vacuum", "v"), log_start=log_start)
                return super().list(path)

        vacuumed = CommitLog(Vacuumed(driver.fs))
        if busy < snapshots.TRIES:
            assert take_snapshot(vacuumed).adds.keys() == {add.id}
            return
        with pytest.raises(CorruptData, match="a different one at each attempt"):
            take_snapshot(vacuumed)
        assert busy - left >= snapshots.TRIES
        left = 0
        assert take_snapshot(vacuumed).adds.keys() == {add.id}


class TestLargeRecords:
    @pytest.mark.slow
    def test_adds_beyond_one_mebibyte(self, in_memory: Driver) -> None:
        driver = in_memory
        count = record_format.COMPANION_FROM_BYTES // 150
        adds = [structs.replace(driver.stage(0), directory_key=f"key={'x' * 40}") for _ in range(count)]
        driver.commit(0, *adds)
        assert len([info for info in driver.fs.list(layout.LOG) if info.path.endswith(".changes")]) == 1
        driver.restart()
        driver.commit_new(1)
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == count + 1
        assert find_record(driver.log, driver.log.refresh(), StreamAuthor("query-1", "r", 0)) is not None
        assert driver.commit(0, *adds[:1]).replayed


class TestRanges:
    @pytest.mark.slow
    def test_records_between_ranges(self, in_memory: Driver) -> None:
        """The number of versions and of bytes that are read one by one is bounded."""
        driver = in_memory
        for batch in range(2 * keeping.COMPACTED_EVERY + 3):
            driver.commit(batch)
        assert reach(cover(list_compacted(driver.fs))) == 2 * keeping.COMPACTED_EVERY - 1
        driver.commit(batch + 1, *(driver.stage(batch + 1) for _ in range(keeping.COMPACTED_BYTES // 200)))
        assert reach(cover(list_compacted(driver.fs))) == batch + 1

    @pytest.mark.slow
    def test_a_gap_of_more_records_than_are_read_again(self, in_memory: Driver) -> None:
        driver = in_memory
        other = CommitLog(driver.fs)
        for _ in range(2 * compacted_writer.GAP_RECORDS):
            driver.create_record(other, author=MaintenanceAuthor("test", "x"))
        reached = []
        for batch in range(6 * keeping.COMPACTED_EVERY):
            driver.commit(batch)
            reached.append(reach(cover(list_compacted(driver.fs))))
        assert compacted_writer.GAP_RECORDS - 1 in reached
        assert reached[-1] == driver.log.refresh().version

    @pytest.mark.slow
    def test_ranges_that_cannot_be_written(self, in_memory: Driver) -> None:
        """Little is remembered, and it is tried ever more seldom; once it works again, all is made up for."""
        driver, tries = in_memory, 0
        denied = True

        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                nonlocal tries
                if path.endswith(".compacted") and denied:
                    tries += 1
                    raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        driver.fs = Denied(driver.fs)
        driver.restart()
        most = 0
        for batch in range(16 * keeping.COMPACTED_EVERY):
            driver.commit(batch, metrics={"note": "x" * 3000})
            most = max(most, driver.log.recent.size_bytes)
        assert most <= keeping.COMPACTED_BYTES
        assert 2 <= tries <= 5
        denied = False
        driver.restart()
        for batch in range(16 * keeping.COMPACTED_EVERY, 24 * keeping.COMPACTED_EVERY):
            driver.commit(batch)
        assert reach(cover(list_compacted(driver.fs))) == driver.log.refresh().version

    @pytest.mark.slow
    def test_a_pause_ends(self, in_memory: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ranges are tried ever more seldom, up to a distance; at that, for ever, and then they work again."""
        monkeypatch.setattr(keeping, "COMPACTED_EVERY", 8)
        driver = in_memory
        tried: list[int] = []
        longest = keeping.COMPACTED_EVERY << keeping.PAUSES_MAX

        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".compacted"):
                    tried.append(other.refresh().version + 1)
                    if tried[-1] < 3 * longest:
                        raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        other = CommitLog(Denied(driver.fs))
        for _ in range(3 * longest):
            driver.create_record(other, author=MaintenanceAuthor("test", "x"))
            keeping.post_commit(other, other.refresh())
        assert tried == [*(keeping.COMPACTED_EVERY << pause for pause in range(keeping.PAUSES_MAX + 2)), 3 * longest]
        assert reach(cover(list_compacted(driver.fs))) == compacted_writer.GAP_RECORDS - 1

    @pytest.mark.slow
    def test_ranges_that_are_too_large_to_be_merged_by_a_commit(self, in_memory: Driver) -> None:
        driver, count = in_memory, 0
        other = CommitLog(driver.fs)
        while sum(list_compacted(driver.fs).values()) <= 2 * compacted_writer.MERGED_BYTES:
            adds = tuple(part("".join(SYSTEM.ids.unique() for _ in range(8))) for _ in range(500))
            driver.create_record(other, author=MaintenanceAuthor("test", "x"), adds=adds)
            keeping.post_commit(other, other.refresh())
            count += len(adds)
        sizes = list_compacted(driver.fs).values()
        assert max(sizes) <= compacted_writer.MERGED_BYTES
        assert len(sizes) >= 3
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == count
        write_fewest_compacted(other, other.refresh())
        assert len(list_compacted(driver.fs)) == len(fewest_intervals_of(other.refresh().version + 1))
        assert len(take_snapshot(CommitLog(driver.fs)).adds) == count

    @pytest.mark.slow
    def test_more_adds_than_a_document_holds(self) -> None:
        fs = MemoryFileSystem("documents")
        fs.make_directories(layout.COMPACTED)
        count = merging.DOCUMENT_ADDS + 1
        adds = tuple(part(f"p{number}") for number in range(count))
        made = compact_records([Record(0, "n0", BatchWriteAuthor("j"), 0, adds=adds, previous_nonce="")], 0)
        found = read_compacted(fs, write_compacted(fs, SYSTEM.ids, made), ended=True)
        assert [document.count for document in found.kept] == [merging.DOCUMENT_ADDS, 1]
        assert sum(len(set(document.versions().ids)) for document in found.kept) == count
        MemoryFileSystem.drop("documents")

    def test_a_header_of_more_bytes_than_are_read_at_once(self) -> None:
        fs = MemoryFileSystem("headers")
        fs.make_directories(layout.COMPACTED)
        definitions = {f"e{number}": "x" * 1000 for number in range(10 * range_format.HEADER_BYTES // 1000)}
        record = Record(
            0, "n0", BatchWriteAuthor("j"), 0, adds=(part("p"),), definitions=definitions, previous_nonce=""
        )
        name = write_compacted(fs, SYSTEM.ids, compact_records([record], 0))
        reads: list[int] = []

        class Watched(WrapperFileSystem):
            def open(self, path: str) -> InputFile:
                file = super().open(path)
                reads.append(file.size_bytes)
                return file

        found = read_compacted(Watched(fs), name, ended=True)
        assert (found.definitions, found.kept[0].count) == (definitions, 1)
        assert reads[0] > range_format.HEADER_BYTES
        MemoryFileSystem.drop("headers")


class TestCheckpoints:
    @pytest.mark.slow
    def test_records_that_cost_more_than_a_checkpoint(self, in_memory: Driver) -> None:
        driver = in_memory
        count = checkpoints.CHECKPOINT_MIN_BYTES // checkpoints.RECORD_COST_BYTES
        for batch in range(count):
            driver.commit(batch)
        (checkpoint,) = list_checkpoints(driver.fs)
        driver.restart()
        assert driver.log.refresh().version == count - 1
        assert driver.log.checkpoint_bytes > 0
        assert driver.log.delta_bytes < checkpoints.CHECKPOINT_MIN_BYTES // 2
        assert checkpoint.version > count // 2


class TestRewrites:
    def test_a_proposal_without_rows_is_one(self, driver: Driver) -> None:
        assert driver.commit_as(BatchWriteAuthor("j")).version == 0
