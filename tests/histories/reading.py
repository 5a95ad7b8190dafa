"""Steps that read rows by a condition, with the statistics of files and without them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import CorruptData, FtfileError, HistoryGone
from ftfile.testing.context import current
from ftfile.testing.log_check import InvariantViolation, require
from tests.histories.conditions import Conditions

if TYPE_CHECKING:
    from ftfile.operate.open_directory import OpenedDirectory
    from tests.histories.conditions import Condition
    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("READING", "conditions_of")


def conditions_of(world: World, step: Step) -> Conditions:
    """Return the source of the conditions of a step."""
    draw = random.Random(step.draws[0])
    return Conditions(draw, world.oracle, world.history.columns, world.history.directories)


def _read(world: World, step: Step) -> None:
    """Read the newest version by a condition. A delete must select the same rows."""
    if world.oracle.first_rows is None:
        return
    _compare(world, conditions_of(world, step).condition(), None)


def _read_old(world: World, step: Step) -> None:
    """Read a version in the past by a condition."""
    version = world.drawn_version(step.draws[1])
    if version is not None:
        _compare(world, conditions_of(world, step).condition(), version)


def _opened(world: World, *, statistics: bool) -> OpenedDirectory:
    return ftfile.open(world.url, statistics=statistics, context=current())


def _compare(world: World, condition: Condition, version: int | None) -> None:
    """Compare a read, a count and a dry run of a delete with the oracle, and with a read without statistics."""
    answers = []
    for statistics in (True, False):
        answers.append(_rows(world, condition, version, statistics=statistics))
        counted = _call(world, version, "a count", _count, world, condition, version, statistics)
        _check_number(world, condition, version, counted, "are counted")
    rows, rows_of_all_files = answers
    if rows is None or rows_of_all_files is None:
        # A read with statistics can skip the file that fails a read of all files, never the other way round.
        is_later = world.is_troubled or rows is not None or rows_of_all_files is None
        require(is_later, "statistics", f"{condition.where} only fails with statistics")
    else:
        require(rows == rows_of_all_files, "statistics", f"{condition.where} returns other rows with statistics")
    if version is None:
        report = _call(world, version, "a dry run of a delete", ftfile.delete, world.url, condition.where, dry_run=True)
        removed = report if isinstance(report, FtfileError) else report.rows_removed
        _check_number(world, condition, version, removed, "would be deleted")


def _count(world: World, condition: Condition, version: int | None, statistics: bool) -> int:
    return _opened(world, statistics=statistics).count(version, where=condition.where)


def _rows(world: World, condition: Condition, version: int | None, *, statistics: bool) -> list[bytes] | None:
    """Return the rows that match, after a comparison with the oracle; None if the read failed."""

    def read() -> Any:
        opened = _opened(world, statistics=statistics)
        return opened.to_arrow(version, columns=["value"], where=condition.where)

    table = _call(world, version, "a read", read)
    if isinstance(table, FtfileError) or _may_be_older(world, version):
        return None
    rows = sorted(value.encode() for value in table["value"].to_pylist())
    undamaged, damaged = world.oracle.rows_at(version)
    said = f"{condition.where} in version {version}, statistics {statistics}"
    matches = {row for row in undamaged if condition.matches(row)}
    require(len(rows) == len({*rows}), "rows", f"{said}: rows are returned twice")
    require(matches <= {*rows}, "rows", f"{said}: {sorted(matches - {*rows})[:3]} are missing")
    require(bool(damaged) or len(rows) == len(matches), "rows", f"{said}: {len(rows)} rows instead of {len(matches)}")
    return rows


def _may_be_older(world: World, version: int | None) -> bool:
    """Return True if another process may have committed while the newest version was read."""
    return version is None and bool(world.met_events)


def _check_number(world: World, condition: Condition, version: int | None, number: Any, verb: str) -> None:
    """Compare a number of rows with the oracle, unless damage or a failing storage system prevented the call."""
    undamaged, damaged = world.oracle.rows_at(version)
    if isinstance(number, FtfileError) or damaged or _may_be_older(world, version):
        return
    matches = sum(condition.matches(row) for row in undamaged)
    said = f"{condition.where} in version {version}"
    require(number == matches, "rows", f"{said}: {number} rows {verb} instead of {matches}")


def _call(world: World, version: int | None, what: str, action: Any, *args: Any, **more: Any) -> Any:
    """Call as `World.call` does. A file of a version in the past can be damaged under any of its names."""
    more |= {"context": current()} if action is ftfile.delete else {}
    try:
        return world.call(what, action, *args, of_damage=True, **more)
    except InvariantViolation as violation:
        is_gone = isinstance(violation.__cause__, CorruptData | HistoryGone)
        if version is None or not is_gone or not world.oracle.rows_at(version)[1]:
            raise
        return violation.__cause__


READING = {"read": _read, "read_old": _read_old}
