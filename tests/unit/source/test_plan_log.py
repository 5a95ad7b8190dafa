"""Plans are durable before a batch uses them, are reused, and never change. If the state is lost, the query fails."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import (
    CommitOutcomeUnknown,
    ConfigError,
    CorruptData,
    FtfileError,
    OutcomeUnknown,
    StateLost,
    Unavailable,
)
from ftfile.log.format import layout
from ftfile.log.format.record import to_checked_text
from ftfile.source import plan_log
from ftfile.source.plan import START, PlanPosition, position_of, to_offset
from ftfile.source.stream import SourceStream
from ftfile.testing.context import current
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.source_run import Killed
from tests.kit.parameters import parametrize, slow_after
from tests.kit.plan_check import check_plans, read_plans
from tests.unit.source.plans import (
    LOG_ID,
    MOMENTS,
    PROTOCOLS,
    Source,
    add_plans,
    begin,
    driver,
    plan_of,
    small_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nobody_waits")


@pytest.fixture(params=slow_after(1, PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_lines_are_read_once_as_they_come(source: Source, protocol: Any) -> None:
    run = source.query(protocol)
    for number in range(6):
        source.add(f"{number % 3}.log", 2)
        run.run(1)
        if number % 2:
            run.restart()
    run.run(2)
    source.check(run)
    assert len(run.offsets[-1].encode()) <= 256


def test_there_is_no_state_before_there_is_a_plan(source: Source) -> None:
    run = source.query()
    assert run.run() == 0
    assert not source.state.exists()


@parametrize("moment", MOMENTS, quick=1)
@pytest.mark.parametrize("first", [True, False], ids=["first batch", "later batch"])
def test_1_killed_at_any_moment_it_has_the_same_rows(source: Source, protocol: Any, moment: Any, first: bool) -> None:
    run = source.query(protocol, maxFilesPerTrigger="1")
    source.add("a.log", 2)
    if not first:
        run.run(1)
        source.add("a.log")
    source.add("b.log")
    run.kill_at = moment
    with pytest.raises(Killed):
        run.run()
    source.add("a.log")
    source.add("b.log")
    run.run(10)
    source.check(run)


def test_2_the_first_batch_comes_again_as_it_was_planned(source: Source, protocol: Any) -> None:
    source.add("a.log", 2)
    run = source.query(protocol)
    run.kill_at = "offsets written"
    with pytest.raises(Killed):
        run.run()
    source.add("a.log")
    source.add("b.log")
    run.run_batch()
    assert [row["value"] for row in run.batches[0]] == source.lines[:2]
    run.run(5)
    source.check(run)


@pytest.mark.slow
def test_3_of_two_drivers_both_read_the_plans_of_either(source: Source, protocol: Any) -> None:
    source.add("a.log")
    run = source.query(protocol, maxFilesPerTrigger="1")
    run.run(1)
    other = run.copied()
    for number in range(8):
        source.add(f"{number % 2}.log")
        (run, other)[number % 2].run(1)
    run.run(20)
    other.run(20)
    assert run.offsets == other.offsets
    source.check(run)
    source.check(other)


@pytest.mark.slow
def test_3_a_driver_that_was_stopped_for_long_ends(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    small_bounds(monkeypatch)
    source.add("a.log")
    run = source.query()
    run.run()
    late = run.copied()
    for number in range(20):
        source.add(f"{number % 2}.log")
        run.run()
    with pytest.raises(StateLost, match=r"plan 1 of .* must be read, and the oldest remaining plan is \d+"):
        late.run()
    source.check(run, kept_max=8)


@pytest.mark.parametrize("fault", [OutcomeUnknown, Unavailable])
def test_4_a_lost_reply_is_settled_by_the_nonce(fs: MemoryFileSystem, fault: Any) -> None:
    faulty = FaultyFileSystem(fs, [Fault(fault, "after", operations=frozenset({"create_exclusive"}), path="*.record")])
    position = driver(faulty).add(begin(), plan_of(0))
    assert [call.path for _, call in faulty.injected] == [layout.record_path(0)]
    assert position.plan == 0
    assert driver(fs).position_after(begin()) == position
    assert len(read_plans(fs).plans) == 1


def test_4_a_reply_that_stays_lost_is_no_offset_and_the_plan_is_used_again(fs: MemoryFileSystem) -> None:
    lost = Fault(OutcomeUnknown, "after", operations=frozenset({"create_exclusive"}), path="*.record")
    # The first read finds no plan. The second read is the read of the plan whose reply was lost.
    unreadable = Fault(Unavailable, operations=frozenset({"read"}), path="*.record", at=1, times=99)
    with pytest.raises(CommitOutcomeUnknown):
        driver(FaultyFileSystem(fs, [lost, unreadable])).add(begin(), plan_of(0))
    assert driver(fs).add(begin(), plan_of(5)).plan == 0
    assert read_plans(fs).plans == {0: plan_of(0)}


class TestZombies:
    """A driver creates a plan at a version that was trimmed in the meantime."""

    def zombie(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[PlanPosition]:
        """Stop a driver after it reads the log and before it creates plan 2. Return the plans of other drivers."""
        small_bounds(monkeypatch)
        positions = add_plans(driver(fs), 2)

        def go_on() -> None:
            positions.extend(add_plans(driver(fs), 30, positions[1]))
            assert not fs.exists(layout.record_path(2))

        stopped = driver(_Stopping(fs, go_on))
        with pytest.raises(StateLost, match="Stop this run"):
            stopped.add(positions[1], plan_of(77))
        return positions

    @pytest.mark.slow
    def test_5_the_plan_is_dead(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        positions = self.zombie(fs, monkeypatch)
        assert fs.exists(layout.record_path(2))
        check_plans(fs, [json.dumps(to_offset(position)) for position in positions], 31)

    def test_5_nobody_reads_it(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        positions = self.zombie(fs, monkeypatch)
        with pytest.raises(StateLost, match="is another plan"):
            driver(fs).read(positions[2], positions[1])
        with pytest.raises(StateLost, match="the oldest remaining plan"):
            driver(fs).position_after(positions[1])

    @pytest.mark.slow
    def test_5_nobody_is_told_of_it_who_looks_while_its_place_is_trimmed(
        self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small_bounds(monkeypatch)
        positions = add_plans(driver(fs), 3)

        class Trimmed(MemoryFileSystem):
            looks = 0

            def read(self, path: str, bytes_max: int | None = None) -> bytes:
                content = super().read(path, bytes_max)
                if path == layout.record_path(2):
                    self.looks += 1
                    if self.looks > 1:  # the first read continues to the head
                        add_plans(driver(fs), 30, positions[-1])
                return content

        with pytest.raises(StateLost, match="the oldest remaining plan"):
            driver(Trimmed(fs.name)).position_after(positions[1])

    @pytest.mark.slow
    def test_5_it_goes_with_the_next_trim(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        positions = self.zombie(fs, monkeypatch)
        add_plans(driver(fs), 4, positions[-1])
        assert not fs.exists(layout.record_path(2))


class _Stopping(MemoryFileSystem):
    """Calls a function before it creates a record."""

    def __init__(self, fs: MemoryFileSystem, before: Callable[[], None]) -> None:
        super().__init__(fs.name)
        self._before = before

    def create_exclusive(self, path: str, content: bytes) -> None:
        if path.endswith(".record"):
            self._before()
        super().create_exclusive(path, content)


class TestCheckpoints:
    @pytest.mark.slow
    def test_6_a_copy_with_a_shared_state_has_the_same_plans(self, source: Source) -> None:
        source.add("a.log")
        run = source.query(maxFilesPerTrigger="1")
        run.run()
        copy = run.copied()
        for name in "abab":
            source.add(name)
        run.run()
        source.add("c")
        copy.run()
        run.run()
        assert copy.offsets == run.offsets
        source.check(run)
        source.check(copy)

    @pytest.mark.slow
    def test_6_an_older_copy_that_is_restored_goes_on_with_the_same_plans(self, source: Source) -> None:
        run = source.query()
        for number in range(5):
            source.add(f"{number}.log")
            run.run()
        old = run.copied()
        old.offsets, old.commits = old.offsets[:2], 2
        old.batches = {number: old.batches[number] for number in range(2)}
        source.add("0.log")
        old.run()
        assert old.offsets[:5] == run.offsets
        source.check(old)

    def test_6_without_a_checkpoint_all_is_read_anew_by_another_state(self, source: Source) -> None:
        source.add("a.log", 3)
        run = source.query()
        run.run()
        again = source.query()
        again.run()
        assert json.loads(again.offsets[0])["id"] != json.loads(run.offsets[0])["id"]
        source.check(run)
        source.check(again)


def test_a_log_of_another_layout_is_refused_before_its_known_files_are_read() -> None:
    """The columns files have rows of another layout, and the plans have other keys for displaced files."""
    fs = MemoryFileSystem("another-layout")
    add_plans(driver(fs), 2)
    fs.put(layout.FORMAT_FILE, to_checked_text([b"ftfile plans, layout 1"]))
    for read in (driver(fs).read_known, partial(driver(fs).position_after, begin())):
        with pytest.raises(ConfigError, match=r"'ftfile plans, layout 1'.*install the version that wrote it"):
            read()


class TestLostState:
    def begun(self, source: Source, plans: int = 3) -> Any:
        run = source.query(maxFilesPerTrigger="1")
        for number in range(plans):
            source.add(f"{number}.log")
        run.run()
        return run

    def test_7_all_of_it(self, source: Source, protocol: Any) -> None:
        run = self.begun(source)
        run.protocol = protocol
        run.restart()
        shutil.rmtree(source.log_of(run))
        source.add("new.log")
        with pytest.raises(StateLost, match=r"there is no plan|is missing"):
            run.run()

    def test_7_while_the_driver_runs(self, source: Source) -> None:
        run = self.begun(source)
        shutil.rmtree(source.log_of(run))
        source.add("new.log")
        with pytest.raises(StateLost, match="there is no plan"):
            run.run()

    def test_7_its_newest_plan(self, source: Source) -> None:
        run = self.begun(source)
        run.restart()
        (source.log_of(run) / layout.record_path(2)).unlink()
        source.add("new.log")
        with pytest.raises(StateLost, match="the newest plan is 1"):
            run.run()

    def test_7_a_batch_that_comes_again(self, source: Source) -> None:
        run = self.begun(source)
        source.add("new.log")
        run.kill_at = "offsets written"
        with pytest.raises(Killed):
            run.run()
        (source.log_of(run) / layout.record_path(3)).unlink()
        with pytest.raises(StateLost, match=r"plan 3 of .* is missing"):
            run.run()

    def test_7_another_history_of_it(self, source: Source) -> None:
        """The state was restored from an older copy, and another query continued with it."""
        run = self.begun(source)
        other = run.copied()
        state = source.log_of(run)
        shutil.copytree(state, source.state / "copy")
        source.add("x.log")
        run.run()
        shutil.rmtree(state)
        (source.state / "copy").rename(state)
        source.add("y.log")
        other.run()
        source.add("z.log")
        with pytest.raises(StateLost, match="is not the plan that the query has read"):
            run.run()
        run.restart()
        with pytest.raises(StateLost, match="is not the plan that the query has read"):
            run.run()

    def test_7_the_end_of_a_batch_that_does_not_follow_its_start(self, source: Source) -> None:
        run = self.begun(source)
        first, _, third = map(json.loads, run.offsets)
        stream = SourceStream(run.config(), current())
        with pytest.raises(StateLost, match="does not follow"):
            stream.shares(first, third)
        with pytest.raises(StateLost, match="does not follow"):
            stream.shares(START, third)

    def test_a_hole_is_damage(self, source: Source) -> None:
        run = self.begun(source)
        run.restart()
        (source.log_of(run) / layout.record_path(1)).unlink()
        source.add("new.log")
        with pytest.raises(CorruptData):
            run.run()


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_29_whichever_call_fails_there_is_no_offset_or_a_durable_one(
    fs: MemoryFileSystem, error: Any, effect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_bounds(monkeypatch, 1)
    raised = 0
    # One of two errors with the same effect is raised in every second call.
    for at in range((error is Unavailable) == (effect == "after"), 1000, 2):
        MemoryFileSystem.drop("plans")
        fs = MemoryFileSystem("plans")
        faulty = FaultyFileSystem(fs, [Fault(error, effect, at=at)])
        log, position, positions = driver(faulty), begin(), [begin()]
        for _ in range(8):
            try:
                found = log.position_after(position)
                if found is None:
                    log.read_known()
                    found = log.add(position, plan_of(position.plan + 1))
            except FtfileError:
                raised += 1
                log = driver(faulty)
                continue
            log.commit(position) if position.plan >= 0 else None
            position = found
            positions.append(position)
        offsets = [json.dumps(to_offset(each)) for each in positions[1:]]
        checked = check_plans(fs, offsets, len(offsets) - 1)
        assert all(plan == plan_of(number) for number, plan in checked.plans.items())
        if not faulty.injected:
            assert checked.state.log_start > 0, "nothing was trimmed"
            break
    else:
        raise AssertionError("each run meets a fault")
    assert raised


@pytest.mark.slow
def test_30_two_sources_with_one_location_are_apart(source: Source, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Source(tmp_path / "other")
    other.state = source.state
    first, second = source.query(), other.query()
    for number in range(4):
        source.add("a.log")
        other.add(f"{number}.log", 2)
        first.run()
        second.run()
    source.check(first)
    other.check(second)
    assert len([*source.state.iterdir()]) == 2


@pytest.mark.parametrize(
    "offset",
    [
        {"kind": "plans", "id": LOG_ID, "plan": 0},
        {"kind": "plans", "id": LOG_ID, "plan": -1, "nonce": ""},
        {"kind": "plans", "id": "../" + LOG_ID, "plan": 0, "nonce": "x"},
        {"kind": "plans", "id": LOG_ID, "plan": True, "nonce": "x"},
        {"kind": "log", "version": 3, "nonce": "x"},
        [1],
        None,
    ],
    ids=str,
)
def test_what_is_no_offset_of_files_is_refused(offset: Any) -> None:
    with pytest.raises(ConfigError, match="does not belong to a source of files"):
        position_of(offset)


def test_a_plan_of_an_hour_ago_is_checked_by_the_plan_behind_it(fs: MemoryFileSystem) -> None:
    positions = add_plans(driver(fs), 3)
    wrong = positions[0]._replace(nonce="x")
    with pytest.raises(StateLost, match="is not the plan"):
        driver(fs).position_after(wrong)
    assert driver(fs).position_after(positions[0]) == positions[1]


@pytest.mark.slow
def test_a_plan_is_planned_on_what_others_have_planned(source: Source) -> None:
    """The plan starts from the state at the head, not from the state at this driver's last plan."""
    source.add("a.log")
    run = source.query()
    run.run()
    other = run.copied()
    for _ in range(3):
        source.add("a.log", 2)
        other.run()
    run.run()
    source.add("b.log")
    run.run()
    other.run()
    source.check(run)
    source.check(other)


@pytest.mark.slow
def test_a_driver_finds_while_it_loads_that_others_went_on(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that the driver is about to load was deleted in the meantime, and there are unread files."""
    small_bounds(monkeypatch, 6)
    run = source.query()
    for _ in range(20):
        source.add("a.log")
        run.run()
    other = run.copied()
    source.add("a.log")
    run.run()
    with monkeypatch.context() as patch:
        patch.setattr(plan_log, "is_columns_due", lambda *_: False)
        assert other.run(1) == 1  # the plan is reused, so nothing was loaded
    for _ in range(6):
        source.add("a.log")
        run.run()
    assert other.run() == 6
    source.check(other)


def test_the_checker_sees_an_offset_that_is_ahead(fs: MemoryFileSystem) -> None:
    positions = add_plans(driver(fs), 3)
    offsets = [json.dumps(to_offset(position)) for position in positions]
    check_plans(fs, offsets, 3)
    ahead = json.dumps(to_offset(PlanPosition(LOG_ID, 3, "x")))
    with pytest.raises(InvariantViolation, match="S2"):
        check_plans(fs, [*offsets, ahead], 3)
    with pytest.raises(InvariantViolation, match="S2"):
        check_plans(fs, [offsets[0].replace(positions[0].nonce, "x")], 1)
