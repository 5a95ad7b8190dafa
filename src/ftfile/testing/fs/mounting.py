"""A URL for a file system made by a test, for code that opens file systems by URL."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

from ftfile.fs.registry import register, unregister
from ftfile.testing.fs.rooted import RootedFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.fs.api import FileSystem

__all__ = ("mounted",)

_numbers = itertools.count()


@contextlib.contextmanager
def mounted(fs: FileSystem) -> Iterator[str]:
    """Give `fs` a URL of its own in this process, such as `mounted0://fs`, until the block ends."""
    scheme = f"mounted{next(_numbers)}"
    register(scheme, lambda location: RootedFileSystem(fs, location.path[1:]) if location.path != "/" else fs)
    try:
        yield f"{scheme}://fs"
    finally:
        unregister(scheme)
