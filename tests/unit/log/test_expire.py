"""Expiry by age and by number, on a storage system whose clock the tests move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current
from tests.kit.parameters import parametrize
from tests.unit.log.test_vacuum import World, world

if TYPE_CHECKING:
    from ftfile.log.vacuum import VacuumReport

__all__ = ("world",)


def expire(world: World, **settings: Any) -> VacuumReport:
    report = ftfile.expire(world.url, **({"dry_run": False} | settings), context=current())
    check_directory(world.fs)
    return report


def compacted(world: World, days: float) -> list[str]:
    """Make versions of one part, each in place of the one before; return where the replaced ones are."""
    part = world.driver.stage(0)
    world.driver.commit_as(world.driver.author(0), adds=(part,))
    replaced = []
    for number in range(1, 5):
        world.days(days)
        replaced.append(part)
        part = world.compact(number, part)
    return [f"_ftfile/retired/_{each.id}.retired" for each in replaced]


@pytest.mark.parametrize("days", [10, 0])
@parametrize("keep_last", [1, 2, 3, 5, 99], quick=2)
def test_the_newest_versions_stay_however_old(world: World, keep_last: int, days: float) -> None:
    """Also where several are of one moment."""
    replaced = compacted(world, days)
    world.days(100)
    report = expire(world, keep_last=keep_last)
    gone = len(replaced) - min(keep_last, 5) + 1
    assert [world.exists(path) for path in replaced] == [False] * gone + [True] * (len(replaced) - gone)
    assert sum(file.kind == "retired" for file in report.files) == gone
    for version in range(max(0, 5 - keep_last), 5):
        assert ftfile.open(world.url).snapshot(version).adds
    assert expire(world, keep_last=keep_last).files == ()


def test_the_newest_versions_stay_where_the_clock_was_set_back(world: World) -> None:
    """The versions before that lie in the future, and count as older than those behind them."""
    first, second = world.driver.stage(0), world.driver.stage(0)
    world.driver.commit_as(world.driver.author(0), adds=(first, second))
    world.clock.advance(10)
    world.compact(1, first)
    world.clock.advance(10)
    world.compact(2, second)
    world.clock.advance(-15)
    world.driver.commit_new(1)
    world.clock.advance(2)
    world.driver.commit_new(2)
    expire(world, keep_last=4, older_than="1s", force=True)
    assert [world.exists(f"_ftfile/retired/_{add.id}.retired") for add in (first, second)] == [False, True]
    for version in range(1, 5):
        assert ftfile.open(world.url).snapshot(version).adds


def test_young_versions_stay(world: World) -> None:
    replaced = compacted(world, days=10)
    expire(world, older_than="15d")
    assert [world.exists(path) for path in replaced] == [False, False, True, True]


def test_a_dry_run_deletes_nothing_and_says_the_same(world: World) -> None:
    compacted(world, days=10)
    world.days(100)
    plan = ftfile.expire(world.url, keep_last=2, context=current())
    assert (plan.dry_run, plan.version) == (True, None)
    assert {file.path for file in plan.files} == {file.path for file in expire(world, keep_last=2).files}


def test_what_makes_no_sense_is_refused(world: World) -> None:
    world.driver.commit_new(0)
    with pytest.raises(ConfigError, match="keep_last=0"):
        expire(world, keep_last=0)
    with pytest.raises(ConfigError, match="older_than='1h' is below 24h"):
        expire(world, older_than="1h")
    with pytest.raises(ConfigError, match="older_than='soon'"):
        expire(world, older_than="soon")
    expire(world, older_than="1h", force=True)
