"""Trimmed plans, the columns file that replaces them, and states that exceed the limits."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData, OutOfSpace, PermissionDenied, StateLost, StorageError
from ftfile.log import checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.source import plan_log
from ftfile.source.known_files import KnownFiles
from ftfile.source.plan import PlanPosition, to_offset
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import current
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.log_check import InvariantViolation
from tests.kit.parameters import parametrize
from tests.kit.plan_check import check_plans, check_skipped, read_plans
from tests.unit.source.plans import Source, add_plans, begin, driver, plan_of, small_bounds

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.testing.fs.memory import MemoryFileSystem

pytestmark = pytest.mark.usefixtures("nobody_waits")


def known_after(count: int) -> bytes:
    known = KnownFiles()
    for number in range(count):
        known = known.apply(plan_of(number))
    return known.to_bytes()


def offsets_of(positions: list[PlanPosition]) -> list[str]:
    return [json.dumps(to_offset(position)) for position in positions]


def names(fs: MemoryFileSystem, directory: str) -> list[str]:
    return sorted(info.path.rpartition("/")[2] for info in fs.list(directory))


class TestTrimming:
    @pytest.mark.slow
    def test_the_plans_of_a_hundred_batches_are_kept(self, fs: MemoryFileSystem) -> None:
        positions = add_plans(driver(fs), 400)
        found = check_plans(fs, offsets_of(positions), 399, kept_max=plan_log.VERSIONS_KEPT + 70)
        assert found.state.log_start > 0
        assert min(found.plans) <= 398 - plan_log.VERSIONS_KEPT
        assert driver(fs).read_known().to_bytes() == known_after(400)

    @pytest.mark.slow
    def test_a_position_of_a_hundred_plans_ago_goes_on(self, fs: MemoryFileSystem) -> None:
        positions = add_plans(driver(fs), 400)
        old = positions[398 - plan_log.VERSIONS_KEPT]
        for position in positions[old.plan + 1 :]:
            log = driver(fs)
            assert log.position_after(old) == position
            assert log.read(position, old) == plan_of(position.plan)
            old = position

    def test_nothing_is_trimmed_that_is_not_committed(self, fs: MemoryFileSystem, monkeypatch: Any) -> None:
        small_bounds(monkeypatch, 0)
        log, position = driver(fs), begin()
        for number in range(40):
            position = log.add(position, plan_of(number))
            log.commit(begin()._replace(plan=0))
        assert read_plans(fs).state.log_start == 0

    @pytest.mark.slow
    def test_behind_two_checkpoints_and_two_columns_files(self, fs: MemoryFileSystem, monkeypatch: Any) -> None:
        small_bounds(monkeypatch, 0)
        log, position, starts = driver(fs), begin(), []
        for number in range(30):
            position = log.add(position, plan_of(number))
            log.commit(position)
            state = read_plans(fs).state
            starts.append(state.log_start)
            covered = sorted(name.version for name in checkpoints.list_checkpoints(fs))
            if state.log_start:
                assert covered[-2] >= state.log_start
                assert plan_log.columns_files(state)[-1].name.version + 1 >= state.log_start
        assert starts[-1] > 20

    @pytest.mark.parametrize("what", ["checkpoints", "columns"])
    def test_none_goes_while_one_of_either_is_missing(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        small_bounds(monkeypatch, 0)
        log, position = driver(fs), begin()
        for number in range(30):
            position = log.add(position, plan_of(number))
            log.commit(position)
            # Keep only the newest file.
            for name in names(fs, f"{layout.META}/{what}")[:-1]:
                fs.delete(f"{layout.META}/{what}/{name}")
        assert read_plans(fs).state.log_start == 0

    def test_a_damaged_checkpoint_holds_plans_back(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        small_bounds(monkeypatch, 0)
        monkeypatch.setattr(checkpoints, "encode_checkpoint", lambda _: b"damaged\n")
        log, position = driver(fs), begin()
        for number in range(20):
            position = log.add(position, plan_of(number))
            log.commit(position)
        assert names(fs, layout.CHECKPOINTS)
        assert read_plans(fs).state.log_start == 0

    @parametrize("path", ["*.checkpoint", "*.columns"], quick=1)
    def test_plans_stay_where_what_stands_for_them_cannot_be_written(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, path: str
    ) -> None:
        small_bounds(monkeypatch, 0)
        full = Fault(OutOfSpace, at=5, times=10**9, operations=frozenset({"create_exclusive"}), path=path)
        positions = add_plans(driver(FaultyFileSystem(fs, [full])), 40)
        found = check_plans(fs, offsets_of(positions), 39)
        assert 0 < found.state.log_start < 15
        assert driver(fs).read_known().to_bytes() == known_after(40)

    @pytest.mark.slow
    def test_newer_checkpoints_of_others_let_no_plan_go_that_columns_need(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 0)
        monkeypatch.setattr(plan_log, "COLUMNS_MIN_BYTES", 4 * checkpoints.RECORD_COST_BYTES)
        log, position, positions = driver(fs), begin(), []
        for number in range(40):
            position = log.add(position, plan_of(number))
            positions.append(position)
            checkpoints.write_checkpoint(fs, current().ids, CommitLog(fs).refresh())
            log.commit(position)
            check_plans(fs, offsets_of(positions), len(positions))
        assert read_plans(fs).state.log_start > 20

    def test_what_nobody_named_goes(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        """A driver died after it had written a columns file, and another driver has planned since."""
        small_bounds(monkeypatch, 0)
        positions = add_plans(driver(fs), 5)
        orphan = layout.columns_path(layout.ColumnsName(2, "ab"))
        fs.create_exclusive(orphan, b"nobody's")
        pending = layout.columns_path(layout.ColumnsName(400, "ab"))
        fs.create_exclusive(pending, b"somebody's")
        positions += add_plans(driver(fs), 8, positions[-1])
        assert not fs.exists(orphan)
        assert fs.exists(pending)

    def test_a_failure_to_trim_fails_nothing(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        small_bounds(monkeypatch, 0)
        refused = Fault(PermissionDenied, times=10**9, operations=frozenset({"delete"}))
        refused_columns = Fault(PermissionDenied, times=4, operations=frozenset({"create_exclusive"}), path="*.columns")
        with caplog.at_level(logging.WARNING):
            positions = add_plans(driver(FaultyFileSystem(fs, [refused, refused_columns])), 20)
        assert "could not trim" in caplog.text
        assert fs.exists(layout.record_path(0))
        add_plans(driver(fs), 10, positions[-1])
        assert not fs.exists(layout.record_path(0))

    @pytest.mark.slow
    def test_companions_go_with_their_records(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        small_bounds(monkeypatch, 0)
        monkeypatch.setattr(plan_log, "RECORDS_MAX", 1)
        log = driver(fs)
        first = log.add(begin(), plan_of(0, ranges=15_000))
        assert any(name.endswith(".changes") for name in names(fs, layout.LOG))
        assert log.read(first, None) == plan_of(0, ranges=15_000)
        log.commit(first)
        add_plans(log, 12, first)
        assert not any(name.endswith(".changes") for name in names(fs, layout.LOG))


class TestColumnsFiles:
    def damage(self, fs: MemoryFileSystem, which: int, how: str) -> None:
        path = plan_log.columns_files(read_plans(fs).state)[which].path
        if how == "lost":
            fs.delete(path)
        else:
            content = fs.read(path)
            damaged = {
                "cut": content[:-1],
                "flipped": content[:-1] + bytes([content[-1] ^ 1]),
                "another": KnownFiles().apply(structs.replace(plan_of(29), root="file:///another")).to_bytes(),
            }
            fs.put(path, damaged[how])

    @parametrize("how", ["lost", "cut", "flipped", "another"], quick=2)
    def test_of_two_either_may_be_lost(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        small_bounds(monkeypatch, 0)
        positions = add_plans(driver(fs), 30)
        assert read_plans(fs).state.log_start > 0
        self.damage(fs, 0, how)
        log = driver(fs)
        assert log.position_after(positions[-1]) is None
        assert log.read_known().to_bytes() == known_after(30)
        more = add_plans(log, 10, positions[-1])
        check_plans(fs, offsets_of(more), 9)
        assert driver(fs).read_known().to_bytes() == known_after(40)

    @parametrize("how", ["lost", "cut", "flipped", "another"], quick=2)
    def test_without_both_there_is_an_error(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        small_bounds(monkeypatch, 0)
        positions = add_plans(driver(fs), 30)
        for which in (0, 1):
            self.damage(fs, which, how)
        log = driver(fs)
        assert log.position_after(positions[-1]) is None
        with pytest.raises(CorruptData, match=r"columns.* new checkpointLocation"):
            log.read_known()

    @pytest.mark.slow
    def test_of_a_longer_one_no_more_is_read_than_is_recorded(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 0)
        add_plans(driver(fs), 30)
        file = plan_log.columns_files(read_plans(fs).state)[0]
        fs.put(file.path, bytes(file.size_bytes + 1000))
        with pytest.raises(CorruptData, match=f"found {file.size_bytes + 1} bytes"):
            plan_log.read_columns(fs, file)

    def test_without_both_nothing_is_lost_while_all_plans_are_kept(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 1000)
        add_plans(driver(fs), 12)
        for which in (0, 1):
            self.damage(fs, which, "lost")
        assert driver(fs).read_known().to_bytes() == known_after(12)

    def test_a_driver_that_others_overtake_while_it_loads(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 0)
        positions = add_plans(driver(fs), 30)
        others: list[PlanPosition] = []
        read = plan_log.read_columns

        def go_on(storage: Any, file: plan_log.ColumnsFile) -> bytes:
            if not others:
                others.extend([positions[-1]])
                others.extend(add_plans(driver(fs), 12, positions[-1]))
            return read(storage, file)

        with monkeypatch.context() as patch:
            patch.setattr(plan_log, "read_columns", go_on)
            found = driver(fs).read_known().to_bytes()
        assert found == known_after(42)

    def test_one_that_another_driver_was_ahead_of_is_not_named(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another driver created the plan of the columns file first. That plan names no file, or another file."""
        small_bounds(monkeypatch, 1000)
        log = driver(fs)
        positions = add_plans(log, 2)
        log.commit(positions[-1])
        assert names(fs, layout.COLUMNS)[0].startswith(f"_{1:020d}-")
        with monkeypatch.context() as patch:
            patch.setattr(plan_log, "is_columns_due", lambda *_: False)
            positions += add_plans(driver(fs), 3, positions[-1])
            assert log.position_after(positions[-2]) == positions[-1]
            log.add(positions[-1], plan_of(5))
        assert plan_log.columns_files(read_plans(fs).state) == []

    def test_the_checker_sees_a_file_that_is_not_what_plans_make_of_it(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 1000)
        with monkeypatch.context() as patch:
            patch.setattr(KnownFiles, "apply", lambda self, _: self)
            positions = add_plans(driver(fs), 6)
        with pytest.raises(InvariantViolation, match="S1"):
            check_plans(fs, offsets_of(positions), 5)


class TestBounds:
    @pytest.mark.slow
    def test_ten_thousand_plans(self, fs: MemoryFileSystem) -> None:
        positions = add_plans(driver(fs), 10_000)
        found = check_plans(fs, offsets_of(positions[-300:]), 299, kept_max=plan_log.VERSIONS_KEPT + 70)
        assert found.state.version == 9_999
        assert len(names(fs, layout.LOG)) < 200
        assert len(names(fs, layout.CHECKPOINTS)) == checkpoints.CHECKPOINTS_KEPT
        assert len(names(fs, layout.COLUMNS)) <= plan_log.COLUMNS_KEPT + 1
        assert driver(fs).read_known().to_bytes() == known_after(10_000)
        with pytest.raises(StateLost):
            driver(fs).position_after(positions[0])

    @pytest.mark.slow
    def test_a_plan_of_a_hundred_thousand_ranges(self, fs: MemoryFileSystem) -> None:
        log, plan = driver(fs), plan_of(0, ranges=100_000)
        first = log.add(begin(), plan)
        assert driver(fs).read(first, None) == plan
        log.commit(first)
        second = log.add(first, plan_of(1, ranges=100_000))
        log.commit(first)
        assert len(driver(fs).read_known()) == 100_000
        check_plans(fs, offsets_of([first, second]), 1)

    @pytest.mark.slow
    def test_more_plans_than_are_read_behind_large_columns(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The columns are so large that the plans after them never have half of their size."""
        monkeypatch.setattr(plan_log, "RECORDS_MAX", 10)
        log = driver(fs)
        first = log.add(begin(), plan_of(0, ranges=50_000))
        log.commit(first)
        add_plans(log, 40, first)
        newest, older = plan_log.columns_files(read_plans(fs).state)
        assert newest.size_bytes // 2 > 40 * checkpoints.RECORD_COST_BYTES
        assert older.name.version > 10

    def test_more_looks_than_are_taken_at_a_state_that_others_trim(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch, 0)
        positions = add_plans(driver(fs), 30)

        reading, read = [False], plan_log.read_columns

        def always_gone(storage: Any, file: plan_log.ColumnsFile) -> bytes:
            if reading[0]:  # by another driver
                return read(storage, file)
            reading[0] = True
            positions.extend(add_plans(driver(fs), 1, positions[-1]))
            reading[0] = False
            raise CorruptData(file.path, "columns", "no such file")

        monkeypatch.setattr(plan_log, "LOAD_TRIES", 3)
        late = driver(fs)
        assert late.position_after(positions[-1]) is None
        monkeypatch.setattr(plan_log, "read_columns", always_gone)
        with pytest.raises(StorageError, match="changed faster"):
            late.read_known()


def test_two_ends_of_available_now_are_those_of_one_listing(tmp_path: Path) -> None:
    source = Source(tmp_path)
    for name in "abcd":
        source.add(name)
    run = source.query(maxFilesPerTrigger="1")
    lines = [*source.lines]
    stream = run.started()
    stream.stop_at_head()
    source.add("a")
    source.add("e")
    assert run.run() == 4
    assert sorted(row["value"] for row in run.rows) == sorted(lines)
    run.restart()
    run.run()
    source.check(run)


def test_what_is_skipped_is_in_the_log_and_in_the_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(tmp_path)
    run = source.query(maxFileAge="1h")
    source.add("a")
    now_s = current().clock.now_ms() / 1000
    os.utime(source.path / "a", (now_s, now_s))
    run.run()
    late = source.path / "late"
    late.write_text("too late\n")
    os.utime(late, (now_s - 7200, now_s - 7200))
    with caplog.at_level(logging.WARNING):
        run.run()
    report = run.started().report()
    assert "late" in caplog.text
    check_skipped(LocalFileSystem(str(source.log_of(run)), SYSTEM), report)
    assert report["late"] == 1
    with pytest.raises(InvariantViolation, match="S7"):
        check_skipped(LocalFileSystem(str(source.log_of(run)), SYSTEM), {**report, "late": 0})
    source.check(run)


def test_the_report_names_the_plan_and_what_lies_behind(tmp_path: Path) -> None:
    source = Source(tmp_path)
    run = source.query(maxFilesPerTrigger="1")
    stream = run.started()
    assert stream.report() is None
    source.add("a")
    source.add("b")
    run.run(1)
    report = stream.report()
    assert (report["plan"], report["filesBehind"]) == (0, 1)
    run.run()
    assert stream.report()["plan"] == 1
