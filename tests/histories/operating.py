"""Steps of administrators: restores, undone writes, expiries, reports, repairs and exports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import CommitError, ConfigError, FtfileError, HistoryGone, NameCollision
from ftfile.log.places import list_or_empty
from ftfile.operate.export.export import export
from ftfile.operate.repair import repair
from ftfile.operate.restore import restore, undo
from ftfile.testing.context import current
from ftfile.testing.log_check import InvariantViolation, require
from tests.histories.harm import note_quarantined
from tests.histories.maintaining import note_untold

if TYPE_CHECKING:
    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("OPERATING",)

_DAY_S = 86_400


def _restore(world: World, step: Step) -> None:
    """Restore a readable version. It is refused if a file of the version is missing, or its name is taken."""
    version = world.drawn_version(step.draws[1])
    if version is None:
        return
    damaged = world.oracle.rows_at(version)[1]
    try:
        world.call("a restore", restore, world.url, version, of_damage=True, context=current())
    except InvariantViolation as violation:
        _require_refusal(world, violation, is_damaged=bool(damaged))


def _undo(world: World, step: Step) -> None:
    """Undo the last write, if a kept record is one."""
    if world.oracle.first_rows is None:
        return
    dry_run = step.pick(1, 4) == 0
    try:
        world.call("an undo", undo, world.url, dry_run=dry_run, of_damage=True, context=current())
    except InvariantViolation as violation:
        if isinstance(violation.__cause__, ConfigError):
            return  # the version before the last write is no longer kept
        if type(violation.__cause__) is CommitError and world.met_events:
            return  # another process has written meanwhile
        # Vacuum has deleted files of the version before.
        _require_refusal(world, violation, is_damaged=bool(world.damaged or world.oracle.vacuums))


def _require_refusal(world: World, violation: InvariantViolation, *, is_damaged: bool) -> None:
    """Check that damage explains missing files, and a file that a name is taken."""
    cause = violation.__cause__
    if isinstance(cause, NameCollision):
        names = {add.final_path for add in world.live_parts()} | world.oracle.removed.keys() | world.foreign.keys()
        if any(repr(name) in str(cause) for name in names):
            return
    if isinstance(cause, HistoryGone) and is_damaged:
        return
    raise violation


def _expire(world: World, step: Step) -> None:
    """End old versions, except for some."""
    if not world.oracle.records:
        return
    world.clock.advance(step.pick(0, 3) * 4 * _DAY_S)
    kept = 1 + step.pick(1, 5)
    age = ("7d", "24h")[step.pick(2, 2)]
    more: dict[str, Any] = {"older_than": age, "keep_last": kept, "dry_run": False, "context": current()}
    before = _newest_versions(world, kept)
    done = world.call("an expiry", ftfile.expire, world.url, **more)
    note_untold(world)
    if isinstance(done, FtfileError) or world.is_troubled or not before:
        return
    oldest = world.oldest_version()
    require(oldest is None or oldest <= before[0], "expire", f"the oldest version is {oldest}, not {before[0]}")


def _newest_versions(world: World, count: int) -> list[int]:
    """Return the newest versions except for those of vacuums that could be read before an expiry, oldest first."""
    oldest = world.oldest_version()
    counted = [version for version in range(world.oracle.records) if version not in world.oracle.vacuums]
    return [] if oldest is None else [version for version in counted[-count:] if version >= oldest]


def _inspect(world: World, step: Step) -> None:
    """Read the state by a command that writes nothing: its rows must be those of the oracle."""
    if world.oracle.first_rows is None:
        return
    choice = step.pick(0, 4)
    version = world.head().version
    if choice == 0:
        status = world.call("a status", ftfile.status, world.url, lag=False, of_damage=True, context=current())
        found = None if isinstance(status, FtfileError) else status.version
        require(found in {None, version} or world.is_troubled, "status", f"version {found} instead of {version}")
    elif choice == 1:
        full = bool(step.pick(1, 2))
        found = world.call("a verification", ftfile.verify, world.url, full=full, of_damage=True, context=current())
        if not isinstance(found, FtfileError) and found.complete and not world.is_troubled:
            rows = len(world.oracle.expected)
            require(found.rows == rows, "verify", f"{found.rows} rows instead of {rows}")
    elif choice == 2:
        world.call("a report", ftfile.report, world.url, of_damage=True, context=current())
    else:
        world.call("a doctor", ftfile.doctor, world.url, measure_start=False, context=current())
    require(world.head().version == version or world.is_troubled, "inspect", "a command that reads has written")


def _repair(world: World, step: Step) -> None:
    """Carry out the repairs that lose no rows."""
    if not world.oracle.records:
        return
    dry_run = step.pick(0, 4) == 0
    world.call("a repair", repair, world.url, dry_run=dry_run, of_damage=True, context=current())
    note_quarantined(world)


def _export(world: World, step: Step) -> None:
    """Export the files to Delta: its log must name the finished files of the newest version, if it is published."""
    del step
    options = world.history.format_options
    if world.oracle.first_rows is None or options["fileFormat"] != "parquet" or "encryption" in options:
        return
    done = world.call("an export", export, world.url, of_damage=True, context=current())
    if isinstance(done, FtfileError) or world.is_troubled or done.waiting:
        return
    world.oracle.follow(world.now_ms())
    exported = _exported(world)
    finished = {add.final_path for add in world.live_parts()}
    require(exported == finished, "export", f"{exported ^ finished} differ between the export and the log")


def _exported(world: World) -> set[str | None]:
    """Return the files of the newest version in the log of Delta."""
    files: set[str | None] = set()
    logs = sorted(info.path for info in list_or_empty(world.raw, "_delta_log") if info.path.endswith(".json"))
    for path in logs:
        for line in world.raw.read(path).splitlines():
            action = json.loads(line)
            if "add" in action:
                files.add(action["add"]["path"])
            elif "remove" in action:
                files.discard(action["remove"]["path"])
    return files


OPERATING = {
    "restore": _restore,
    "undo": _undo,
    "expire": _expire,
    "inspect": _inspect,
    "repair": _repair,
    "export": _export,
}
