"""The marker by which tasks recognise the driver's directory: a local path may be another disk on every host."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import AlreadyExists, ConfigError, NotFound

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem


# Shipped to executors, whose build is compared by the fields of dataclasses.
@dataclass(frozen=True, slots=True)
class DirectoryMarker:
    """The marker of a directory."""

    id: str  # random, written once; a copy of the directory has it, too
    host: str  # of the driver, for messages


def write_marker(fs: FileSystem) -> DirectoryMarker | None:
    """Return the directory's marker, written if it is missing; None where every host sees the same directory.

    It is made before any task reads it, so that no mount remembers that it was missing.
    """
    marker = read_marker(fs)
    if marker is not None or not _may_differ(fs):
        return marker
    for directory in ("", layout.META):
        fs.make_directories(directory)
    with contextlib.suppress(AlreadyExists):  # another driver wrote it first, and its marker holds
        fs.create_exclusive(layout.MARKER, fs.context.ids.unique().encode())
    return read_marker(fs)


def read_marker(fs: FileSystem) -> DirectoryMarker | None:
    """Return the directory's marker, or None if none is needed or written."""
    if not _may_differ(fs):
        return None
    try:
        return DirectoryMarker(fs.read(layout.MARKER).decode(), socket.gethostname())
    except NotFound:
        return None


def check_marker(fs: FileSystem, path: str, marker: DirectoryMarker | None) -> None:
    """Raise a ConfigError unless this process sees the directory with the marker; costs one small read."""
    if marker is None:
        return
    try:
        found = fs.read(layout.MARKER).decode()
    except NotFound:
        found = None
    if found != marker.id:
        raise ConfigError(
            f"path={path!r}: an executor on the host {socket.gethostname()!r} sees "
            f"{'no such directory' if found is None else 'another directory'} there than the driver on "
            f"{marker.host!r}. A local path must lead to the same storage on every host: mount it everywhere at the "
            "same place (such as NFS), use the URL of a store that all hosts reach, or keep the executors on the "
            "driver's host"
        )


def _may_differ(fs: FileSystem) -> bool:
    return fs.capabilities.shared_between_processes and not fs.capabilities.shared_between_hosts
