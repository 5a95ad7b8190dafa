"""Each check of liveness fails where it should, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Body, Job, MaintenanceAuthor, Origin
from ftfile.log.protocol import commit
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.state import LogState, SharedMap
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.log_check import InvariantViolation
from tests.kit.liveness import (
    ADD_ID_CHARACTERS,
    DueWatch,
    check_flushed,
    check_published,
    check_state_size,
    check_vacuumed,
)
from tests.kit.rolling import RowFacts, Rules
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

NEVER = Rules(inactivity_ms=None)


def segment(name: str, batch: int = 0) -> Add:
    return Add(name, "segment", f"_ftfile/staged/q/{name}", None, 10, 10, "", 1, "", "text", Origin("q", batch, batch))


def fails(invariant: str) -> pytest.RaisesExc[InvariantViolation]:
    return pytest.raises(InvariantViolation, match=rf"^{invariant}\b")


class TestDue:
    @pytest.mark.parametrize(
        ("rules", "facts"),
        [
            (replace(NEVER, max_batches=2), [RowFacts(0, 0), RowFacts(1, 0)]),
            (replace(NEVER, age_ms=100), [RowFacts(0, 0)]),
            (replace(NEVER, inactivity_ms=100), [RowFacts(0, 0)]),
            (replace(NEVER, inactivity_ms=40), [RowFacts(0, 0), RowFacts(1, 50), RowFacts(2, 80)]),
            (replace(NEVER, clock_ms=100), [RowFacts(0, 50)]),
            (replace(NEVER, max_segments=2), [RowFacts(0, 0), RowFacts(1, 0)]),
            (replace(NEVER, finalize=True), [RowFacts(0, 0), RowFacts(1, 0, is_final=True)]),
            (replace(NEVER, max_rows=1), [RowFacts(0, 0), RowFacts(1, 0)]),
            (replace(NEVER, max_bytes=10), [RowFacts(0, 0), RowFacts(1, 0)]),
        ],
        ids=str,
    )
    def test_what_is_due_for_too_long(self, rules: Rules, facts: list[RowFacts]) -> None:
        by_id = {f"s{fact.batch}": fact for fact in facts}
        segments = [segment(name, fact.batch) for name, fact in by_id.items()]
        for each, is_due in ((rules, True), (NEVER, False)):
            watch = DueWatch(lambda add: [by_id[add.id]], limit=2)
            for _ in range(2):
                watch.after_batch(each, segments, 100)
            if is_due:
                with fails("L1"):
                    watch.after_batch(each, segments, 100)
            else:
                watch.after_batch(each, segments, 100)

    def test_each_window_of_a_directory_has_batches_of_its_own(self) -> None:
        windows = [[0, 10], [10, 20]]
        segments = [
            structs.replace(segment(f"s{batch}", batch), rolling_stats={"windowUs": window})
            for batch, window in enumerate(windows)
        ]
        watch = DueWatch(lambda add: [RowFacts(add.origin.last_batch, 0)], limit=1)
        for _ in range(2):
            watch.after_batch(replace(NEVER, max_batches=2), segments, 100)
        assert not watch.waited

    def test_what_becomes_a_file_in_time(self) -> None:
        watch = DueWatch(lambda _: [RowFacts(0, 0)], limit=2)
        for batch in range(6):
            watch.after_batch(replace(NEVER, age_ms=100), [segment(f"s{batch // 2}")], 100)


def test_what_a_flush_leaves_open() -> None:
    one = segment("one")
    head = LogState(segments=SharedMap({one.id: one}))
    named = CorruptData(one.path, "a segment", "nothing")
    check_flushed(head, named, {one.id})
    for error, damaged in ((named, set[str]()), (None, {one.id}), (CorruptData("other", "", ""), {one.id})):
        with fails("L2"):
            check_flushed(head, error, damaged)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    yield Driver(MemoryFileSystem(request.node.name))
    MemoryFileSystem.drop(request.node.name)


def test_what_is_not_published(driver: Driver) -> None:
    add = driver.commit_new(0)
    check_published(driver.fs, [add], {}, ())
    with fails("L3"):
        check_published(driver.fs, [], {add.final_path or "": add}, ())
    driver.fs.make_directories(layout.parent(add.path))
    driver.fs.create_exclusive(add.path, b"row\n")
    with fails("L3"):
        check_published(driver.fs, [add], {}, ())
    driver.fs.delete(add.path)
    driver.fs.delete(add.final_path or "")
    with fails("L3"):
        check_published(driver.fs, [add], {}, ())
    check_published(driver.fs, [add], {}, {add.id})


@pytest.mark.parametrize("left", ["staged", "retired", "records"])
def test_what_vacuum_leaves(driver: Driver, left: str) -> None:
    for batch in range(4):
        driver.commit_new(batch)
    check_vacuumed(driver.log, 3)
    if left == "staged":
        driver.stage(4)
    elif left == "retired":
        driver.fs.create_exclusive(layout.retired_path("x"), b"row\n")
    else:
        for _ in range(2):
            commit(driver.log, MaintenanceAuthor("test", "x"), lambda *_: Body())
            write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
    with fails("L4"):
        check_vacuumed(driver.log, driver.log.refresh().version)


def test_a_record_that_is_not_kept(driver: Driver) -> None:
    for batch in range(2):
        driver.commit_new(batch)
    write_fewest_compacted(driver.log, driver.log.refresh())
    driver.create_record(driver.log, author=MaintenanceAuthor("vacuum", "x"), log_start=1)
    with fails("L4"):
        check_vacuumed(driver.log, 2)


def test_a_state_that_is_too_large() -> None:
    one = segment("s")
    job = Job("job", "age", (one,))
    state = LogState(segments=SharedMap({"s": one}))
    check_state_size(replace(state, jobs=(job,)), {"s"})
    long = "s" * (ADD_ID_CHARACTERS + 1)
    for wrong, open_segments in (
        (state, set[str]()),
        (replace(state, jobs=(job, job)), {"s"}),
        (replace(state, jobs=(Job("job", "age", (segment("gone"),)),)), {"s"}),
        (LogState(segments=SharedMap({long: segment(long)})), {long}),
        (replace(state, definitions={"x": "x" * 100_000}), {"s"}),
    ):
        with fails("L5"):
            check_state_size(wrong, open_segments)
