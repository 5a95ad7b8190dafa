"""The writers' state stays small: the entries that it drops, the entries that it keeps, and when it is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData, PermissionDenied
from ftfile.log import apply as fold
from ftfile.log import checkpoints
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint, list_checkpoints
from ftfile.log.checks import Rewrite
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
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
from ftfile.log.format.record import encode_record
from ftfile.log.publish import renew_checkpoint, write_checkpoint_if_due
from ftfile.log.state import LogState, SharedMap
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.log.random_log import RandomLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.log.conftest import Driver


def part(name: str, kind: Literal["part", "segment"] = "part", encoding: str = "e") -> Add:
    path = f"_ftfile/staged/q/{name}"
    final = None if kind == "segment" else name
    return Add(name, kind, path, final, 1, 1, "crc32:0", 1, "", encoding, Origin("q", 0, 0))


class Fold:
    """A state that takes in one record after the other, also as a restarted committer would."""

    def __init__(self) -> None:
        self.state = LogState()

    def record(self, **fields: Any) -> None:
        version = self.state.version + 1
        author = MaintenanceAuthor("test", str(version))
        defaults: dict[str, Any] = {"version": version, "nonce": f"n{version}", "author": author, "time_ms": 0}
        self.state = state_after(self.state, Record(**(defaults | fields)))

    def restart(self) -> None:
        found = decode_checkpoint(encode_checkpoint(self.state), "path")
        assert found == self.state
        assert list(found.removed) == list(self.state.removed)
        assert list(found.definitions) == list(self.state.definitions)
        self.state = found


class TestRemoved:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "REMOVED_KEPT", 10)

    def test_it_remembers_the_last_ones(self) -> None:
        fold = Fold()
        for version in range(100):
            added = part(f"p{version}")
            removes = (Remove.of(part(f"p{version - 1}")),) if version else ()
            fold.record(adds=(added,), removes=removes)
            fold.state.unpublished.clear()
            if version % 7 == 0:
                fold.restart()
            assert len(fold.state.removed) <= 10
            assert set(fold.state.removed.values()) == set(range(fold.state.removed_since or 1, version + 1))

    def test_too_long_ago_counts_as_removed(self) -> None:
        fold = Fold()
        fold.record(adds=tuple(part(f"p{number}") for number in range(20)))
        live = part("p19")
        fold.record(removes=tuple(Remove.of(part(f"p{number}")) for number in range(12)))
        assert fold.state.removed == {}
        assert not fold.state.is_live(live, read_version=0)
        assert fold.state.is_live(live, read_version=1)
        assert not fold.state.is_live(part("p0"), read_version=0)

    def test_all_of_a_version_or_nothing(self) -> None:
        """A rewrite that knew version 1 must not pass because half of what version 2 removed is forgotten."""
        fold = Fold()
        fold.record(adds=tuple(part(f"p{number}") for number in range(30)))
        for removed in (range(4), range(4, 11)):
            fold.record(removes=tuple(Remove.of(part(f"p{number}")) for number in removed))
        assert fold.state.removed == {}
        assert fold.state.removed_since == 3

    def test_a_segment_is_live_for_as_long_as_it_is_open(self) -> None:
        fold = Fold()
        segments = tuple(part(f"s{number}", "segment") for number in range(40))
        fold.record(adds=segments)
        for number in range(30):
            fold.record(removes=(Remove.of(segments[number]),))
        assert fold.state.removed == {}
        assert fold.state.is_live(segments[35], read_version=0)
        assert not fold.state.is_live(segments[3], read_version=0)
        with pytest.raises(CorruptData, match="already removed"):
            fold.record(removes=(Remove.of(segments[3]),))

    def test_a_view_knows_no_segments(self) -> None:
        fold = Fold()
        segment = part("s", "segment")
        fold.record(adds=(segment,))
        seen = fold.state.view().to_state()
        seen = state_after(seen, Record(1, "n1", MaintenanceAuthor("test", "1"), 0, removes=(Remove.of(segment),)))
        assert seen.version == 1

    def test_a_rewrite_made_long_ago_is_dropped(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        driver.create_record(author=BatchWriteAuthor("many"), adds=tuple(part(f"p{number}") for number in range(12)))
        gone = tuple(Remove.of(part(f"p{number}")) for number in range(12))
        driver.create_record(author=MaintenanceAuthor("test", "drop"), removes=gone)
        new = driver.stage(1)
        driver.commit(1, rewrites=(Rewrite((old,), (new,), read_version=0),))
        assert old.final_path in driver.visible()
        driver.commit(2, rewrites=(Rewrite((old,), (new,), read_version=2),))
        assert new.final_path in driver.visible()


class TestDefinitions:
    @pytest.fixture(autouse=True)
    def _few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "DEFINITIONS_KEPT", 4)

    def test_the_last_ones_and_what_is_open(self) -> None:
        fold = Fold()
        open_one = {"schema": "open schema", "other": 7}
        fold.record(
            adds=(part("s", "segment", "open"),),
            definitions={"open": open_one, "open schema": "{}", "unused": "1"},
            schema="first",
        )
        fold.record(definitions={"newest": "{}"}, schema="newest")
        for version in range(60):
            fold.record(definitions={f"e{version}": str(version)}, adds=(part(f"p{version}", encoding=f"e{version}"),))
            if version % 5 == 0:
                fold.restart()
            assert len(fold.state.definitions) <= 8 + 3
        assert {"open", "open schema", "newest", "e59", "e56"} <= fold.state.definitions.keys()
        assert "unused" not in fold.state.definitions

    def test_what_is_used_is_not_old(self) -> None:
        fold = Fold()
        fold.record(definitions={"often": "1"})
        for version in range(60):
            fold.record(definitions={f"e{version}": "1"}, adds=(part(f"p{version}", encoding="often"),))
        assert "often" in fold.state.definitions

    def test_a_forgotten_one_is_written_again(self, driver: Driver) -> None:
        for batch in range(20):
            driver.commit(batch, definitions={f"e{batch}": str(batch)})
        driver.commit(20, definitions={"e0": "0", "e19": "19"})
        record = driver.log.read_record(20)
        assert record is not None
        assert record.definitions == {"e0": "0"}


def test_queries_and_transactions_are_never_forgotten() -> None:
    fold = Fold()
    fold.record(author=StreamAuthor("old", "r", 7), lineage_start=7)
    fold.record(author=BatchWriteAuthor("j", Transaction("app", 3)))
    for version in range(2, 700):
        fold.record(author=StreamAuthor("new", "r", version - 2), lineage_start=None if version > 2 else 0)
        if version % 100 == 0:
            fold.restart()
    assert fold.state.has(StreamAuthor("old", "r", 7))
    assert fold.state.has(BatchWriteAuthor("k", Transaction("app", 3)))
    assert not fold.state.has(StreamAuthor("old", "r", 8))


@pytest.mark.slow
def test_a_fold_from_any_checkpoint_is_the_fold_from_the_start() -> None:
    for seed in range(10):
        log = RandomLog(seed, 30)
        for at in (0, 7, 29):
            whole, resumed = LogState(), LogState()
            for record in log.records:
                whole = state_after(whole, record)
                resumed = state_after(resumed, record)
                if record.version == at:
                    resumed = decode_checkpoint(encode_checkpoint(resumed), "path")
            assert resumed == whole


class TestWhenCheckpointsAreDue:
    @pytest.mark.slow
    def test_a_young_log_has_none(self, driver: Driver) -> None:
        for batch in range(30):
            driver.commit_new(batch)
        assert list_checkpoints(driver.fs) == []

    def written(self, name: str, state: LogState, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return at which versions of 200 tiny records a checkpoint is written after one of this state."""
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 100_000)
        fs = MemoryFileSystem(name)
        log = CommitLog(fs)
        log.prepare_directory()
        author = MaintenanceAuthor("test", "x")
        fs.create_exclusive(layout.record_path(0), encode_record(Record(0, "n", author, 0)).content)
        checkpoints.write_checkpoint(fs, SYSTEM.ids, state)
        made = []
        for version in range(state.version + 1, state.version + 201):
            log.refresh()
            head = log.create(Record(version, f"n{version}", MaintenanceAuthor("test", "x"), 0))
            assert head is not None
            write_checkpoint_if_due(log, head)
            made += [version] * (log.delta_bytes == 0)
        MemoryFileSystem.drop(name)
        return made

    @pytest.mark.slow
    def test_when_reading_on_costs_half_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        segments = {str(number): part(f"segment-{number}", "segment") for number in range(20_000)}
        small = LogState(version=0, nonce="n")
        large = replace(small, segments=SharedMap(segments))
        size_bytes = len(encode_checkpoint(large))
        each = checkpoints.RECORD_COST_BYTES + 150
        assert self.written("small", small, monkeypatch) == pytest.approx(
            [100_000 / each * times for times in range(1, 9)], abs=4
        )
        assert self.written("large", large, monkeypatch) == pytest.approx(
            [size_bytes / 2 / each * times for times in range(1, 6)], abs=4
        )

    def test_one_that_fails_is_tried_again_later(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 3 * checkpoints.RECORD_COST_BYTES)
        tries: list[str] = []

        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".checkpoint"):
                    tries.append(path)
                    raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        driver.fs = Denied(driver.fs)
        driver.restart()
        for batch in range(12):
            driver.commit_new(batch)
        assert 2 <= len(tries) <= 4

    def test_large_records_count_with_what_they_keep_elsewhere(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 20_000)
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 1000)
        driver.commit(0, *(driver.stage(0) for _ in range(100)))
        (written,) = list_checkpoints(driver.fs)
        driver.fs.delete(layout.log_checkpoint_path(written))
        driver.restart()
        driver.commit(1)
        assert [name.version for name in list_checkpoints(driver.fs)] == [1]


class TestCheckpointsOfFewerSegments:
    """A restart after most segments have ended reads a short checkpoint instead of the old records."""

    COUNT = 500

    @pytest.fixture
    def log(self) -> Iterator[CommitLog]:
        """Yield a log with many segments at its head, and no checkpoint."""
        log = CommitLog(MemoryFileSystem("halved"))
        log.prepare_directory()
        log.refresh()
        self.create(log, 0, adds=tuple(part(str(number), "segment") for number in range(self.COUNT)))
        yield log
        MemoryFileSystem.drop("halved")

    def create(self, log: CommitLog, version: int, **fields: Any) -> list[int]:
        """Create a record, and return the versions of the existing checkpoints."""
        head = log.create(Record(version, f"n{version}", MaintenanceAuthor("test", "x"), 0, **fields))
        assert head is not None
        write_checkpoint_if_due(log, head)
        return [name.version for name in list_checkpoints(log.fs)]

    @staticmethod
    def ends(*numbers: int) -> tuple[Remove, ...]:
        return tuple(Remove(str(number), "segment") for number in numbers)

    def test_after_most_have_ended(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "SHRUNK_MIN_BYTES", log.delta_bytes)
        assert self.create(log, 1, removes=self.ends(*range(10, self.COUNT))) == [1]
        restarted = CommitLog(log.fs)
        assert len(restarted.refresh().segments) == 10
        assert (restarted.reads, restarted.delta_bytes) == (1, 0)
        assert restarted.checkpoint_bytes < 10_000

    def test_in_a_process_that_begins_after_that(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        checkpoints.write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
        self.create(log, 1, removes=self.ends(*range(10, self.COUNT)))
        restarted = CommitLog(log.fs)
        assert len(restarted.refresh().segments) == 10
        monkeypatch.setattr(checkpoints, "SHRUNK_MIN_BYTES", 0)
        assert self.create(restarted, 2) == [0, 2]

    def test_once_a_halving(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "SHRUNK_MIN_BYTES", 0)
        assert self.create(log, 1, removes=self.ends(*range(250))) == []
        assert self.create(log, 2, removes=self.ends(250)) == [2]
        assert self.create(log, 3, removes=self.ends(*range(251, 375))) == [2]
        assert self.create(log, 4, removes=self.ends(375)) == [2, 4]
        assert self.create(log, 5) == [2, 4]

    def test_not_where_a_restart_reads_little(self, log: CommitLog) -> None:
        assert log.delta_bytes < checkpoints.SHRUNK_MIN_BYTES
        assert self.create(log, 1, removes=self.ends(*range(10, self.COUNT))) == []

    def test_not_one_that_is_long_for_other_reasons(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "SHRUNK_MIN_BYTES", 0)
        entries = {f"{number:0100}": number for number in range(4_000)}
        tables = {"t": {"set": entries}}
        assert self.create(log, 1, removes=self.ends(*range(10, self.COUNT)), tables=tables) == []
        monkeypatch.setattr(checkpoints, "encode_checkpoint", lambda _: pytest.fail("encoded already removed"))
        self.create(log, 2)

    def test_not_encoded_for_a_few_records(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "SHRUNK_MIN_BYTES", 0)
        renew_checkpoint(log, log.refresh())
        log.checkpoint_bytes = checkpoints.ENCODED_SHARE * 5 * checkpoints.RECORD_COST_BYTES
        assert self.create(log, 1, removes=self.ends(*range(251))) == [0]
        assert [self.create(log, version) for version in (2, 3, 4)] == [[0], [0], [0, 4]]
