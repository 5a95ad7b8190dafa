"""Names in memory that refer to numbered files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import AlreadyExists, MissingParent, NotADirectory, NotFound
from ftfile.storage.paths import check_path, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ("DIRECTORY", "Tree")


# The value of a directory entry that is a directory; other entries have the number of a file.
DIRECTORY = 0


class Tree:
    """The names in each directory, with the number of a file or `DIRECTORY` for each name. The root always exists.

    Lookups raise the errors of `FileSystem`. Not thread-safe.
    """

    __slots__ = ("directories",)

    def __init__(self, directories: dict[str, dict[str, int]] | None = None) -> None:
        self.directories = {"": {}} if directories is None else directories

    def copy(self) -> Tree:
        """Return an independent tree with the same names and numbers."""
        return Tree({path: names.copy() for path, names in self.directories.items()})

    def find(self, path: str) -> int | None:
        """Return the number of a file, `DIRECTORY`, or None if the path does not exist."""
        if path in self.directories:
            return DIRECTORY
        parent, _, name = path.rpartition("/")
        return self.directories.get(parent, {}).get(name)

    def number_at(self, operation: str, path: str) -> int:
        """Return the number of a file, or `DIRECTORY`; raises `NotFound`, or `NotADirectory` below a file."""
        check_path(operation, path)
        number = self.find(path)
        if number is None:
            self._names(operation, path, parent_of(path))  # raises an error if the parent is missing
            raise NotFound(operation, path, "nothing is there")
        return number

    def file_at(self, operation: str, path: str) -> int:
        """Return the number of a file; raises `NotFound`, also for a directory, or `NotADirectory` below a file."""
        number = self.number_at(operation, path)
        if number == DIRECTORY:
            raise NotFound(operation, path, "this path is a directory, and the call needs a file")
        return number

    def require_free(self, operation: str, path: str) -> None:
        """Raise `AlreadyExists`, `MissingParent` or `NotADirectory` if a file cannot have this name."""
        check_path(operation, path)
        if self.find(path) is not None:
            raise AlreadyExists(operation, path, "something is there already; nothing is ever overwritten")
        try:
            self._names(operation, path, parent_of(path))
        except NotFound as error:
            raise MissingParent(operation, path, error.detail) from error

    def children(self, operation: str, path: str) -> list[tuple[str, int]]:
        """Return the path and number of each entry of a directory; raises `NotFound` or `NotADirectory`."""
        check_path(operation, path)
        names = self._names(operation, path, path)
        return [(_child(path, name), number) for name, number in names.items()]

    def missing_directories(self, operation: str, path: str) -> list[str]:
        """Return which of a path and its parents are missing, outermost first; `NotADirectory` if one is a file."""
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
        """Yield the path and number of each entry below the root, each directory before its entries."""
        waiting = [""]
        for directory in waiting:  # the list grows in this loop
            for name, number in self.directories[directory].items():
                path = _child(directory, name)
                if number == DIRECTORY:
                    waiting.append(path)
                yield path, number

    def add_directory(self, path: str) -> None:
        """Create a directory in an existing directory."""
        self.bind(path, DIRECTORY)
        self.directories.setdefault(path, {})

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.unbind(path)
        del self.directories[path]

    def bind(self, path: str, number: int) -> None:
        """Give a file a name."""
        parent, _, name = path.rpartition("/")
        self.directories[parent][name] = number

    def unbind(self, path: str) -> int:
        """Remove a name, and return the number of its file."""
        parent, _, name = path.rpartition("/")
        return self.directories[parent].pop(name)

    def _names(self, operation: str, path: str, directory: str) -> dict[str, int]:
        """Return the names in a directory. An error names `path`."""
        names = self.directories.get(directory)
        if names is None:
            self.missing_directories(operation, directory)  # raises NotADirectory for a file
            raise NotFound(operation, path, f"the directory {directory!r} is missing")
        return names


def _child(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    if directory:
        return f"{directory}/{name}"
    return name
