"""Names in memory, which stand for numbered files; and pickles of kit that stays one object on both sides."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ftfile.core.errors import AlreadyExists, MissingParent, NotADirectory, NotFound
from ftfile.storage.paths import check_path, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ("DIRECTORY", "PickledByReference", "Tree")


_live: WeakValueDictionary[int, PickledByReference] = WeakValueDictionary()
_keys = itertools.count()


class PickledByReference:
    """Base of classes whose unpickled copy is the original itself; works within one process only."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        key = self.__dict__.setdefault("_reference_key", next(_keys))
        _live[key] = self
        return _find, (key,)


def _find(key: int) -> PickledByReference:
    target = _live.get(key)
    if target is None:
        raise LookupError("the pickled test object lives in another process, or no longer")
    return target


# Stands in a directory where a file has its number.
DIRECTORY = 0


class Tree:
    """Directories by path, each a map from name to file number or `DIRECTORY`; the root always exists.

    Looks up with the port's errors; not safe for threads by itself.
    """

    __slots__ = ("directories",)

    def __init__(self, directories: dict[str, dict[str, int]] | None = None) -> None:
        self.directories = {"": {}} if directories is None else directories

    def copy(self) -> Tree:
        """Return an independent tree with the same names and numbers."""
        return Tree({path: names.copy() for path, names in self.directories.items()})

    def find(self, path: str) -> int | None:
        """Return the file's number, `DIRECTORY`, or None for nothing."""
        if path in self.directories:
            return DIRECTORY
        parent, _, name = path.rpartition("/")
        return self.directories.get(parent, {}).get(name)

    def number_at(self, operation: str, path: str) -> int:
        """Return the file's number, or `DIRECTORY`; NotFound for nothing, NotADirectory below a file."""
        check_path(operation, path)
        number = self.find(path)
        if number is None:
            self._names(operation, path, parent_of(path))
            raise NotFound(operation, path, "nothing is there")
        return number

    def file_at(self, operation: str, path: str) -> int:
        """Return the number of a file; NotFound for nothing or a directory, NotADirectory below a file."""
        number = self.number_at(operation, path)
        if number == DIRECTORY:
            raise NotFound(operation, path, "a directory is there, and a file was asked for")
        return number

    def require_free(self, operation: str, path: str) -> None:
        """Raise AlreadyExists, MissingParent or NotADirectory unless a file may get this name."""
        check_path(operation, path)
        if self.find(path) is not None:
            raise AlreadyExists(operation, path, "something is there already; nothing is ever overwritten")
        try:
            self._names(operation, path, parent_of(path))
        except NotFound as error:
            raise MissingParent(operation, path, error.detail) from error

    def children(self, operation: str, path: str) -> list[tuple[str, int]]:
        """Return path and number of everything directly in a directory; NotFound or NotADirectory if it is none."""
        check_path(operation, path)
        names = self._names(operation, path, path)
        above = f"{path}/" if path else ""
        return [(above + name, number) for name, number in names.items()]

    def missing_directories(self, operation: str, path: str) -> list[str]:
        """Return which of the directory and its parents are missing, outermost first; NotADirectory for a file."""
        check_path(operation, path)
        missing: list[str] = []
        while path not in self.directories:
            if self.find(path) is not None:
                detail = f"the file {path!r} is where a directory is needed; move it or choose another path"
                raise NotADirectory(operation, path, detail)
            missing.insert(0, path)
            path = parent_of(path)
        return missing

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yield path and number of everything below the root, a directory before what is in it."""
        waiting = [""]
        for directory in waiting:
            above = f"{directory}/" if directory else ""
            for name, number in self.directories[directory].items():
                path = above + name
                if number == DIRECTORY:
                    waiting.append(path)
                yield path, number

    def add_directory(self, path: str) -> None:
        """Make a directory in an existing one."""
        self.bind(path, DIRECTORY)
        self.directories.setdefault(path, {})

    def remove_directory(self, path: str) -> None:
        """Take an empty directory away."""
        self.unbind(path)
        del self.directories[path]

    def bind(self, path: str, number: int) -> None:
        """Give a file a name."""
        parent, _, name = path.rpartition("/")
        self.directories[parent][name] = number

    def unbind(self, path: str) -> int:
        """Take a name away and return the number it stood for."""
        parent, _, name = path.rpartition("/")
        return self.directories[parent].pop(name)

    def _names(self, operation: str, path: str, directory: str) -> dict[str, int]:
        names = self.directories.get(directory)
        if names is None:
            self.missing_directories(operation, directory)
            raise NotFound(operation, path, f"the directory {directory!r} is missing")
        return names
