"""Steps that maintain the directory or advance the time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import FtfileError, StaleFiles
from ftfile.log.vacuum import vacuum
from ftfile.operate.compact import TARGET_BYTES, compact
from ftfile.operate.delete import delete, drop
from ftfile.operate.flush import flush
from ftfile.testing.checker import rows_of_add
from ftfile.testing.context import current
from ftfile.testing.log_check import require
from ftfile.writing.files.file_writer import forget_caches
from tests.histories.hook import HEARD
from tests.histories.reading import conditions_of
from tests.histories.writing import run_batch, write_named
from tests.kit.liveness import check_flushed

if TYPE_CHECKING:
    from tests.histories.plan import Step
    from tests.histories.world import World


_DAY_S = 86_400


def _has_log(world: World) -> bool:
    return world.oracle.records > 0


def _has_columns(world: World) -> bool:
    """Return True if the directory has had rows; until then, no condition names one of its columns."""
    return world.oracle.first_rows is not None


HOOKS = ["tests.histories.hook:hear"]
FLUSH = partial(flush, code=HOOKS)


def flush_all(world: World) -> None:
    """Flush all open files and check L2."""
    error = world.call("a flush", FLUSH, world.url, of_damage=True, context=current())
    world.oracle.follow(world.now_ms())
    if not world.is_troubled and not any(path in str(error) for path in world.foreign):
        check_flushed(world.head(), error if isinstance(error, FtfileError) else None, world.damaged)


def _flush(world: World, step: Step) -> None:
    if not _has_log(world):
        return
    choice = step.pick(0, 4)
    if choice == 0:
        world.call("a flush of what is due", FLUSH, world.url, due_only=True, of_damage=True, context=current())
    elif choice == 1:
        query_id = world.queries[step.query % len(world.queries)].query.query_id
        world.call("a flush of a query", FLUSH, world.url, query_id=query_id, of_damage=True, context=current())
    else:
        flush_all(world)


def _drop(world: World, step: Step) -> None:
    _drop_directories(world, {str(step.pick(0, world.history.directories))})


def _drop_all(world: World, step: Step) -> None:
    del step
    _drop_directories(world, {str(number) for number in range(world.history.directories)})


def _drop_directories(world: World, directories: set[str]) -> None:
    if not _has_columns(world):
        return
    where = "all" if len(directories) == world.history.directories > 1 else {"m": sorted(directories)}
    world.oracle.dropping = frozenset(directories)
    world.call("a drop", drop, world.url, where, context=current())
    world.oracle.follow(world.now_ms())
    world.oracle.dropping = None


def _stand_still(world: World, step: Step) -> None:
    """Drop rows by a process that stops after its record, such as on a suspended host, until vacuums have run.

    Meanwhile other processes publish the record, and write files with the names that the vacuums have released.
    """
    if not _has_log(world) or world.is_troubled:
        return
    write_named(world, step)
    # The names of dropped parts are free after two checkpoints, and vacuums that leave only records after them.

    def others() -> None:
        forget_caches()
        world.oracle.follow(world.now_ms())
        world.oracle.dropping = None
        for number in range(4):
            run_batch(world, replace(step, draws=(step.draws[number], *step.draws[1:])))
            world.clock.advance(8 * _DAY_S)
            world.call("a vacuum", vacuum, world.url, dry_run=False, context=current())
            world.oracle.follow(world.now_ms())
            note_untold(world)
        write_named(world, step)
        world.oracle.follow(world.now_ms())
        forget_caches()

    world.fs.after_record = others
    try:
        _drop_all(world, step)
    finally:
        world.fs.after_record = None


def _delete(world: World, step: Step) -> None:
    """Delete the rows that match a condition, or that end in a digit, as rows of many consecutive batches do."""
    if not _has_columns(world):
        return
    conditions, oracle = conditions_of(world, step), world.oracle
    # The statistics of a file contain the bounds of its rows, not of a guess.
    is_decided = step.pick(1, 2) and oracle.guessed.isdisjoint(oracle.live)
    condition = conditions.condition() if is_decided else conditions.ending()
    oracle.deleting = condition.matches
    world.call("a delete", delete, world.url, condition.where, code=HOOKS, of_damage=True, context=current())
    oracle.follow(world.now_ms())
    oracle.deleting = None


def _compact(world: World, step: Step) -> None:
    if not _has_columns(world):
        return
    where = {"m": str(step.pick(0, world.history.directories))} if step.pick(1, 2) else None
    world.call("a compaction", compact, world.url, where, of_damage=True, context=current())


def _sort(world: World, step: Step) -> None:
    """Sort the rows of files that have statistics, which files of text have not."""
    options = world.history.format_options
    has_statistics = options["statisticsColumns"] == "auto" and "encryption" not in options
    if not _has_columns(world) or options["fileFormat"] == "text" or not has_statistics:
        return
    where = {"m": str(step.pick(0, world.history.directories))} if step.pick(1, 2) else None
    columns = ["value"]
    if "t" in world.history.columns and step.pick(2, 2):
        columns.insert(0, "t")
    before = {*world.oracle.live}
    target_bytes = (100, 1_000, TARGET_BYTES)[step.pick(3, 3)]
    more: dict[str, Any] = {"sort_by": columns, "target_bytes": target_bytes, "commit_every": 1 + step.pick(4, 3)}
    world.call("a sort", compact, world.url, where, of_damage=True, context=current(), **more)
    world.oracle.follow(world.now_ms())
    if columns != ["value"] or world.met_events:
        return
    for add_id in world.oracle.live.keys() - before - world.damaged:
        rows: list[Any] = rows_of_add(world.keyed, world.oracle.live[add_id], world.oracle.rows_in)
        require(rows == sorted(rows), "sort", f"the rows of {add_id} are not in order")


def _vacuum(world: World, step: Step) -> None:
    if not _has_log(world):
        return
    world.clock.advance(step.pick(0, 3) * 4 * _DAY_S)
    if step.pick(1, 4) == 0:
        world.call("a dry run", vacuum, world.url, context=current())
        return
    retention = ("7d", "24h")[step.pick(2, 2)]
    world.call("a vacuum", vacuum, world.url, dry_run=False, retention=retention, context=current())


def _vacuum_ahead(world: World, step: Step) -> None:
    """Vacuum while the storage's clock is ahead by more than a year, then correct the clock."""
    if not _has_log(world):
        return
    world.wait_for_threads(0.2)  # a file of the future would never be vacuumed
    days = 400 + step.pick(0, 10)
    world.clock.advance(days * _DAY_S)
    try:
        world.call("a vacuum whose clock is ahead", vacuum, world.url, dry_run=False, context=current())
    except FtfileError as error:
        if not isinstance(error, StaleFiles):
            raise
    finally:
        world.clock.advance(-days * _DAY_S)
    note_untold(world)
    # A second vacuum in a row passes the record of the first. Errors of commits then name the way to lower the horizon.
    take_horizon_back(world)


def note_untold(world: World) -> None:
    """Record removed parts for which `onPublish` was never called: vacuum may have deleted their records early."""
    untold = {add.final_path for add in world.oracle.published_by_queries if add.id not in world.oracle.live}
    world.untold |= {path for path in untold if path is not None} - set(HEARD)


def take_horizon_back(world: World) -> None:
    """Vacuum if the horizon of an earlier vacuum is in the future: otherwise commits would be refused."""
    if _has_log(world) and world.head().horizon_ms > world.clock.now_ms():
        world.fs.trouble = None  # a failed vacuum would leave the horizon in the future
        world.call("a vacuum that takes the horizon back", vacuum, world.url, dry_run=False, context=current())


def _set_back(world: World, step: Step) -> None:
    """Set back the clock of the storage and of all programs. Possibly vacuum while older versions are ahead."""
    world.clock.advance(-(1, 30, 600, 3_600)[step.pick(0, 4)])
    if _has_log(world) and step.pick(1, 2) == 0:
        world.call(
            "a vacuum after the clock was set back",
            vacuum,
            world.url,
            dry_run=False,
            retention="1s",
            force=True,
            context=current(),
        )
        note_untold(world)
    take_horizon_back(world)


def _shift_clock(world: World, step: Step) -> None:
    """Shift the clock of one process against the storage's, forward or back, or correct it."""
    clock = world.clocks[step.pick(1, len(world.clocks))]
    clock.shift_s = (0, 1, -1, 30, -30, 600, -600, 3_600, -3_600)[step.pick(0, 9)]


def _wait(world: World, step: Step) -> None:
    """Advance the time by minutes, hours or days."""
    world.clock.advance((30, 120, 400, 700, 4_000, 90_000)[step.pick(0, 6)])


MAINTAINING = {
    "drop": _drop,
    "drop_all": _drop_all,
    "stand_still": _stand_still,
    "delete": _delete,
    "compact": _compact,
    "sort": _sort,
    "flush": _flush,
    "vacuum": _vacuum,
    "vacuum_ahead": _vacuum_ahead,
    "set_back": _set_back,
    "shift_clock": _shift_clock,
    "wait": _wait,
}
