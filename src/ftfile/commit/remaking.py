"""Files below `_ftfile`, whose directory may be gone: a copy of a directory may leave empty ones out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.core.errors import NotFound

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

__all__ = ("create_file", "make_durably", "put_file")


def create_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Create a whole file exclusively, and its directory if that is missing."""
    try:
        fs.create_exclusive(path, content)
    except NotFound:
        make_durably(fs, layout.parent(path))
        fs.create_exclusive(path, content)


def put_file(fs: FileSystem, path: str, content: bytes) -> None:
    """Write a hint over whatever is there, and make its directory if that is missing."""
    try:
        fs.put(path, content)
    except NotFound:
        make_durably(fs, layout.parent(path))
        fs.put(path, content)


def make_durably(fs: FileSystem, directory: str) -> None:
    """Create a directory in an existing one, with a durable name."""
    fs.make_directories(directory)
    fs.sync_directory(layout.parent(directory))
