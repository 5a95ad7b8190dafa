"""A newer version of ftfile in another process creates a record: this version refuses it, and changes nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import ftfile
from ftfile.core.errors import CorruptData, FtfileError
from ftfile.log.format import layout
from ftfile.log.format.record import RECORD_FORMAT, from_checked_text, to_checked_text
from ftfile.log.places import walk
from ftfile.testing.context import current
from ftfile.testing.log_check import require
from tests.histories.maintaining import FLUSH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.histories.world import World

__all__ = ("check_refusals", "create_newer_record", "is_of_newer_version")


def create_newer_record(world: World) -> str | None:
    """Create the next record of the log in the next format, and return its path; None if there is no record yet."""
    newest = max((path for path in walk(world.raw, layout.LOG) if path.endswith(".record")), default=None)
    if newest is None:
        return None
    with world.keyed.open(newest) as file:
        header, *lines = from_checked_text(file.read_at(0, file.size_bytes), newest)
    tag = b'{"ftfileRecord":%d,'
    newer = tag % (RECORD_FORMAT + 1) + header.removeprefix(tag % RECORD_FORMAT)
    assert newer != header
    path = layout.record_path(1 + int(newest.rpartition("_")[2].removesuffix(".record")))
    world.keyed.create_exclusive(path, to_checked_text([newer, *lines]))
    return path


def is_of_newer_version(error: FtfileError) -> bool:
    """Return True if an error says that a newer version is needed."""
    return isinstance(error, CorruptData) and "newer version of ftfile" in str(error)


def check_refusals(world: World) -> None:
    """Check that each call refuses the directory with an error that says why, and changes no file."""
    calls: dict[str, Callable[[], object]] = {
        "a flush": partial(FLUSH, world.url, context=current()),
        "a vacuum": partial(ftfile.vacuum, world.url, retention="0s", force=True, dry_run=False, context=current()),
        "a compaction": partial(ftfile.compact, world.url, context=current()),
        "a count": lambda: ftfile.open(world.url, context=current()).count(),
    }
    before = _files(world)
    for what, call in calls.items():
        try:
            call()
        except FtfileError as error:
            require(is_of_newer_version(error), "newer version", f"{what} says {error!r}")
        else:
            require(False, "newer version", f"{what} does not refuse a record of a newer version")
    require(_files(world) == before, "newer version", "a call that refuses a record changes files")


def _files(world: World) -> dict[str, tuple[int, int]]:
    return {path: (info.size_bytes, info.modified_ms) for path, info in walk(world.raw, "").items()}
