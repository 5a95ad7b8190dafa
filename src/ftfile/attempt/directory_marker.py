"""Is the directory that a task sees the one that the driver sees? A local path may be another disk on every host."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import AlreadyExists, ConfigError, NotFound

if TYPE_CHECKING:
    from ftfile.core.ids import IdSource
    from ftfile.fs.api import FileSystem

__all__ = ("Place", "check_place", "find_place", "mark_place")


@dataclass(frozen=True, slots=True)
class Place:
    """What the driver found in its directory.

    Attributes:
        mark: a random name, written into the directory once; a copy of the directory has it, too.
        host: of the driver, for messages.
    """

    mark: str
    host: str


def mark_place(fs: FileSystem, ids: IdSource) -> Place | None:
    """Return by what tasks know the directory; None where every host sees the same one by itself.

    The mark is made before any task looks for it, so that no mount remembers that it was missing.
    """
    place = find_place(fs)
    if place is not None or not _may_differ(fs):
        return place
    for directory in ("", layout.META):
        fs.make_directories(directory)
    with contextlib.suppress(AlreadyExists):  # another driver's: what is there counts
        fs.create_exclusive(layout.PLACE, ids.unique().encode())
    return find_place(fs)


def find_place(fs: FileSystem) -> Place | None:
    """Return by what tasks know the directory, if that is needed and it was ever marked."""
    if not _may_differ(fs):
        return None
    try:
        return Place(fs.read(layout.PLACE).decode(), socket.gethostname())
    except NotFound:
        return None


def check_place(fs: FileSystem, path: str, place: Place | None) -> None:
    """Check in a task that it sees what the driver saw; costs one small read.

    Raises:
        ConfigError: it sees another directory, or none.
    """
    if place is None:
        return
    try:
        found = fs.read(layout.PLACE).decode()
    except NotFound:
        found = None
    if found != place.mark:
        raise ConfigError(
            f"path={path!r}: an executor on the host {socket.gethostname()!r} sees "
            f"{'no such directory' if found is None else 'another directory'} there than the driver on "
            f"{place.host!r}. A local path must lead to the same storage on every host: mount it everywhere at the "
            "same place (such as NFS), use the URL of a store that all hosts reach, or keep the executors on the "
            "driver's host"
        )


def _may_differ(fs: FileSystem) -> bool:
    return fs.capabilities.shared and not fs.capabilities.all_hosts
