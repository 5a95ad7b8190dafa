"""Steps of other programs: a storage system that fails, a consumer of files, an administrator, and damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ftfile.core.errors import AlreadyExists, NotFound, PermissionDenied
from ftfile.log.checkpoints import list_checkpoints
from ftfile.log.format import layout
from ftfile.log.format.record import to_checked_text
from ftfile.log.places import list_or_empty
from ftfile.log.records import read_published
from ftfile.operate.repair import repair
from ftfile.testing.log_check import require
from tests.histories.troubles import PUBLISHING_TROUBLES, STORAGE_TROUBLES, Trouble
from tests.histories.writing import require_refused, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.format.model import Add
    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("HARMING", "note_quarantined")


def _publish_fails(world: World, step: Step) -> None:
    _fail(world, step, PUBLISHING_TROUBLES)


def _storage_fails(world: World, step: Step) -> None:
    _fail(world, step, STORAGE_TROUBLES)


def _fail(world: World, step: Step, troubles: Sequence[Trouble]) -> None:
    world.fs.trouble = troubles[step.pick(0, len(troubles))]
    world.trouble_ends = world.step + 1 + step.pick(1, 8)


def _visible_parts(world: World) -> list[Add]:
    return [add for add in world.live_parts() if add.final_path and world.raw.exists(add.final_path)]


def _take_part(world: World, step: Step) -> None:
    """Delete a finished file like a consumer, which may choose the file by its name."""
    unpublished = world.unpublished()
    parts = [add for add in _visible_parts(world) if add.id not in unpublished]
    named = [add for add in parts if "/latest." in (add.final_path or "")]
    parts = named if named and step.pick(1, 2) else parts
    if parts:
        part = parts[step.pick(0, len(parts))]
        assert part.final_path is not None
        world.raw.delete(part.final_path)
        world.oracle.mark_damaged([part])


def _put_foreign(world: World, step: Step) -> None:
    """Create a foreign file at the path of a removed part, or of a part that will be published."""
    wanted = sorted(world.oracle.removed)
    unpublished = world.unpublished()
    staged = [add.final_path for add in world.live_parts() if add.id in unpublished and add.final_path]
    wanted = staged or wanted
    if not wanted:
        return
    path = wanted[step.pick(0, len(wanted))]
    content = f"somebody's {step.draws[1]}\n".encode()
    world.raw.make_directories(layout.parent(path))
    try:
        world.raw.create_exclusive(path, content)
    except AlreadyExists:
        return
    world.foreign[path] = content


def _write_blocked(world: World, step: Step) -> None:
    """Create a foreign file at the path of a batch write's unpublished part: no later write reports it again."""
    if world.is_troubled:
        return
    world.fs.trouble = Trouble("rename", f"{layout.STAGED}/", PermissionDenied)
    write(world, step)
    world.fs.trouble = None
    _put_foreign(world, step)


def _remove_directory(world: World, step: Step) -> None:
    """Delete a directory of finished files with everything in it."""
    directory = f"m={step.pick(0, world.history.directories)}"
    parts = [add for add in _visible_parts(world) if (add.final_path or "").startswith(f"{directory}/")]
    # Removed parts whose retirement failed still have their final names.
    parts += [add for path, add in world.oracle.removed.items() if path.startswith(f"{directory}/")]
    world.oracle.mark_damaged([add for add in parts if not _has_other_copy(world, add)])
    _remove_tree(world, directory)


def _has_other_copy(world: World, add: Add) -> bool:
    """Return True if a part is staged or retired."""
    is_staged = add.path != add.final_path and world.raw.exists(add.path)
    return is_staged or world.raw.exists(layout.retired_path(add.id))


def _remove_tree(world: World, directory: str) -> None:
    for child in list_or_empty(world.raw, directory):
        if child.is_directory:
            _remove_tree(world, child.path)
        else:
            world.raw.delete(child.path)
            world.foreign.pop(child.path, None)
    world.raw.remove_directory(directory)


def _remove_retired(world: World, step: Step) -> None:
    """Copy the directory with a tool that leaves out empty directories, here the directory of retired files."""
    del step
    if not list_or_empty(world.raw, layout.RETIRED):
        _remove_tree(world, layout.RETIRED)


def _remove_hints(world: World, step: Step) -> None:
    if step.pick(0, 2):
        _remove_tree(world, layout.HINTS)
    else:
        _forget_hint(world)


def _forget_hint(world: World) -> None:
    try:
        world.raw.delete(layout.PUBLISHED_HINT)
    except NotFound:
        return


def _remove_ranges(world: World, step: Step) -> None:
    """Delete all ranges while every record exists."""
    del step
    if world.head().log_start == 0:
        _remove_tree(world, layout.COMPACTED)


def _old_hint(world: World, step: Step) -> None:
    """Restore an older hint."""
    try:
        world.old_hints.append(world.raw.read(layout.PUBLISHED_HINT))
    except NotFound:
        return
    world.raw.put(layout.PUBLISHED_HINT, world.old_hints[step.pick(0, len(world.old_hints))])


def _wrong_hint(world: World, step: Step) -> None:
    """Write a valid hint with a wrong content, or with a version after the log's head, which `repair` removes."""
    wrong = (
        {"version": "many", "nonce": 7},
        [3],
        {"version": 1.5, "nonce": None},
        {"version": -4, "nonce": "x"},
        {"version": world.head().version, "nonce": "of another log"},
    )
    if not world.raw.exists(layout.HINTS):
        return
    # Of an encrypted directory, nobody else can write a valid hint.
    is_beyond = step.pick(1, 4) == 0 and not world.is_troubled and "keyProvider" not in world.history.format_options
    hint = {"version": 10**6, "nonce": "of another log"} if is_beyond else wrong[step.pick(0, len(wrong))]
    world.raw.put(layout.PUBLISHED_HINT, to_checked_text([json.dumps(hint).encode()]))
    if is_beyond:
        require_refused(world, step, layout.record_path(world.head().version + 1))
        world.call("a repair", repair, world.url, accept_lost_records=True, dry_run=False)
        note_quarantined(world)


def note_quarantined(world: World) -> None:
    """Stop expecting the foreign files that repair moved into quarantine: they had the names of live parts."""
    kept = {world.raw.read(info.path) for info in list_or_empty(world.raw, layout.QUARANTINE)}
    moved = {path for path, content in world.foreign.items() if not world.raw.exists(path) or content in kept}
    for path in moved:
        content = world.foreign.pop(path)
        require(content in kept, "foreign", f"repair deleted {path!r}")


def _lose_record(world: World, step: Step) -> None:
    """Delete one of the newest records while a newer record or hint reveals it, then restore it."""
    head, hint = world.head(), read_published(world.keyed)
    lost = head.version - step.pick(1, 2)
    checkpoints = [name.version for name in list_checkpoints(world.raw)]
    told = head.version if lost < head.version else -1 if hint is None else hint.version
    if world.is_troubled or told < lost or lost < max(0, head.log_start, *checkpoints):
        return
    path = layout.record_path(lost)
    content = world.raw.read(path)
    world.raw.delete(path)
    require_refused(world, step, path)
    world.raw.put(path, content)


def _damage(world: World, path: str, offset: int, length: int) -> None:
    content = bytearray(world.raw.read(path))
    content[offset : offset + length] = bytes(byte ^ 0x55 for byte in content[offset : offset + length])
    world.raw.put(path, bytes(content))


def _damage_segment(world: World, step: Step) -> None:
    """Change the bytes of one segment."""
    segments = [add for add in world.open_segments().values() if add.id not in world.damaged]
    if segments:
        segment = segments[step.pick(0, len(segments))]
        _damage(world, segment.path, segment.offset, segment.length)
        end = segment.offset + segment.length
        spool = world.oracle.spools[segment.path]
        # The remaining part of a partly assembled segment shares bytes with the complete segment.
        world.oracle.mark_damaged(
            [add for add in spool if add.offset < end and segment.offset < add.offset + add.length]
        )


def _delete_spool(world: World, step: Step) -> None:
    """Delete a spool with all segments in it."""
    paths = sorted({add.path for add in world.open_segments().values() if add.id not in world.damaged})
    if paths:
        path = paths[step.pick(0, len(paths))]
        if world.raw.exists(path):
            world.raw.delete(path)
            world.oracle.mark_damaged(world.oracle.spools[path])


def _damage_part(world: World, step: Step) -> None:
    passed_over = world.damaged | world.unpublished()
    parts = [add for add in _visible_parts(world) if add.id not in passed_over]
    if parts:
        part = parts[step.pick(0, len(parts))]
        assert part.final_path is not None
        _damage(world, part.final_path, 0, part.length)
        world.oracle.mark_damaged([part])


def _damage_range(world: World, step: Step) -> None:
    """Change a byte of a range while every record exists."""
    ranges = list_or_empty(world.raw, layout.COMPACTED)
    if ranges and world.head().log_start == 0:
        chosen = ranges[step.pick(0, len(ranges))].path
        _damage(world, chosen, step.pick(1, 1_000) % max(1, world.raw.stat(chosen).size_bytes), 1)
        world.damaged_ranges.add(chosen)


HARMING = {
    "publish_fails": _publish_fails,
    "storage_fails": _storage_fails,
    "take_part": _take_part,
    "put_foreign": _put_foreign,
    "write_blocked": _write_blocked,
    "remove_directory": _remove_directory,
    "remove_retired": _remove_retired,
    "remove_hints": _remove_hints,
    "remove_ranges": _remove_ranges,
    "old_hint": _old_hint,
    "wrong_hint": _wrong_hint,
    "lose_record": _lose_record,
    "damage_segment": _damage_segment,
    "damage_part": _damage_part,
    "delete_spool": _delete_spool,
    "damage_range": _damage_range,
}
