"""What a vacuum leaves for now, until when, and why: at that time it goes, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ftfile
from ftfile.log.format import layout
from ftfile.testing.context import current
from tests.unit.log.test_vacuum import DAY_S, world

if TYPE_CHECKING:
    import pytest

    from ftfile.log.garbage import WaitingFiles
    from ftfile.log.vacuum import VacuumReport
    from tests.unit.log.test_vacuum import World

__all__ = ("world",)

WEEK_MS = 7 * DAY_S * 1000


def plan(world: World) -> VacuumReport:
    return ftfile.vacuum(world.url, context=current())


def waiting(world: World) -> dict[str, WaitingFiles]:
    return {group.reason: group for group in plan(world).waiting}


def go_to(world: World, time_ms: int | None) -> None:
    assert time_ms is not None
    world.clock.advance((time_ms - world.clock.now_ms()) / 1000)


def test_nothing_waits_where_nothing_is_left(world: World) -> None:
    world.driver.commit_new(0)
    assert plan(world).waiting == ()


def test_files_of_attempts_wait_for_the_retention(world: World) -> None:
    lost = []
    for batch in range(3):
        lost.append(world.driver.stage(batch))
        world.days(1)
    world.driver.commit_new(0)
    group = waiting(world)["retention"]
    assert waiting(world).keys() == {"retention"}
    written = [world.fs.stat(add.path).modified_ms for add in lost]
    assert (group.files, group.size_bytes) == (3, sum(add.length for add in lost))
    assert (group.first_ms, group.last_ms) == (written[0] + WEEK_MS, written[2] + WEEK_MS)
    world.days(5)
    world.driver.commit_new(1)
    go_to(world, group.first_ms)
    assert [file.path for file in plan(world).files] == [lost[0].path]
    assert {reason: group.files for reason, group in waiting(world).items()} == {"retention": 2}
    go_to(world, group.last_ms)
    assert {file.path for file in world.vacuum().files} == {add.path for add in lost}
    assert plan(world).waiting == ()


def test_removed_files_wait_for_their_readers(world: World) -> None:
    old = [world.driver.commit_new(batch) for batch in range(4)]
    world.days(20)
    removed_ms = []
    for pair in (old[:2], old[2:]):
        world.compact(9, *pair)
        removed_ms.append(world.fs.stat(layout.record_path(world.driver.log.refresh().version)).modified_ms)
        world.days(2)
    group = waiting(world)["readers"]
    assert waiting(world).keys() == {"readers"}
    assert (group.files, group.size_bytes) == (4, sum(add.length for add in old))
    assert (group.first_ms, group.last_ms) == tuple(time_ms + WEEK_MS for time_ms in removed_ms)
    world.driver.commit_new(4)
    go_to(world, (group.first_ms or 0) - 1)
    assert plan(world).files == ()
    go_to(world, group.first_ms)
    assert {file.path for file in plan(world).files} == {layout.retired_path(add.id) for add in old[:2]}
    assert [(left.reason, left.files) for left in plan(world).waiting] == [("readers", 2)]


def test_what_is_younger_than_the_newest_record_waits_for_another(world: World) -> None:
    world.driver.commit_new(0)
    world.days(1)
    lost = world.driver.stage(1)
    world.days(1)
    report = world.vacuum(retention="0s", force=True)
    assert (report.files, report.version) == ((), 1)
    (group,) = report.waiting
    assert (group.reason, group.files, group.size_bytes) == ("version", 1, lost.length)
    assert (group.first_ms, group.last_ms) == (None, None)
    second = world.vacuum(retention="0s", force=True)
    assert [file.path for file in second.files] == [lost.path]
    assert second.waiting == ()


def test_a_log_that_changes_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another vacuum deletes records while this one counts what waits."""
    from ftfile.core.errors import CorruptData
    from ftfile.log import garbage

    def change(*_: object, **__: object) -> None:
        world.driver.commit_new(1)
        raise CorruptData("p", "a", "b")

    world.driver.commit_new(0)
    monkeypatch.setattr(garbage, "find_waiting", change)
    assert plan(world).waiting == ()


def test_what_was_given_up_takes_no_space(world: World) -> None:
    add = world.driver.commit_new(0)
    world.fs.delete(add.final_path or "")
    ftfile.repair(world.url, give_up=[add.final_path or ""], dry_run=False, context=current())
    world.days(8)
    world.driver.commit_new(1)
    report = ftfile.vacuum(world.url, dry_run=False, context=current())
    assert report.failed == 0
    assert (plan(world).files, plan(world).waiting) == ((), ())
    assert not any(map(world.exists, (add.final_path, add.path, layout.retired_path(add.id))))
