"""The interface of a target, and parts of inputs."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.core.errors import FtfileError
from ftfile.storage.api import RangeFile
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from ftfile.storage.api import InputFile

    _Item = TypeVar("_Item")


class Target(NamedTuple):
    """A parser with the guards before it: checksums, encryption tags and compression are added to each input."""

    parse: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]  # inputs that the parser accepts; some call the real writers
    refusals: tuple[type[Exception], ...] = (FtfileError,)  # the documented errors for invalid input


def accepts(target: Target, data: bytes) -> bool:
    """Return True if a target accepts an input, False if it refuses it; any other error is a finding."""
    try:
        target.parse(data)
    except target.refusals:
        return False
    return True


def scratch() -> str:
    """Return the directory in which targets may write files; it is deleted when the process ends."""
    return str(Path(_scratch().name).resolve())


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ftfile-fuzz-")


class Draws:
    """The first bytes of an input choose settings; the rest is the content."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def byte(self) -> int:
        """Return the next byte; 0 after the end."""
        first, self._data = self._data[:1], self._data[1:]
        return first[0] if first else 0

    def choice(self, items: Sequence[_Item]) -> _Item:
        """Return an item that the next byte chooses."""
        return items[self.byte() % len(items)]

    def line(self) -> bytes:
        """Return the bytes up to the next line feed."""
        line, _, self._data = self._data.partition(b"\n")
        return line

    def rest(self) -> bytes:
        """Return the remaining bytes."""
        return self._data


class OneFile:
    """The part of a file system that readers of one file use."""

    capabilities = MemoryFileSystem("fuzz").capabilities
    context = SYSTEM

    def __init__(self, content: bytes) -> None:
        self.content = content

    def open(self, path: str) -> InputFile:
        return RangeFile.of_content(path, self.content)

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        del path
        return self.content if bytes_max is None else self.content[: bytes_max + 1]
