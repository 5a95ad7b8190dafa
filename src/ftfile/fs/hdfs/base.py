"""Shared by both drivers of HDFS: its rules, for any carrier of the requests."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import (
    AlreadyExists,
    MissingParent,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
)
from ftfile.core.logs import get_logger
from ftfile.core.retry import retry_until
from ftfile.fs.api import FileInfo, FileSystem
from ftfile.fs.hdfs.errors import NotEmpty
from ftfile.fs.hdfs.settings import require_hdfs_name
from ftfile.fs.paths import join, room_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context
    from ftfile.fs.api import Capabilities
    from ftfile.fs.hdfs.settings import HadoopSettings

__all__ = ("HadoopFileSystem",)

# Of the NameNode; in characters, of which no path has more than bytes.
_PATH_MAX = 8_000

Result = TypeVar("Result")

_log = get_logger(__name__)

# Roots, and what their files are to have, that were tried.
_proven: set[tuple[str, tuple[int | None, int | None, int]]] = set()


class HadoopFileSystem(FileSystem):
    """A directory of HDFS. Names are durable at once; a call that the NameNode is not ready for is made again.

    Args:
        where: of the root, for messages.
        root: absolute path of the directory; it need not exist yet.
        settings: see there.
        context: of the process.
    """

    def __init__(self, where: str, root: str, settings: HadoopSettings, context: Context) -> None:
        self.where = where
        self.root = root
        self._settings = settings
        self.context = context
        self._prefix = "" if root == "/" else root

    def within_limits(self, capabilities: Capabilities) -> Capabilities:
        """Return capabilities with the length of paths below the root."""
        return dataclasses.replace(capabilities, path_bytes_max=room_below(self._prefix, _PATH_MAX))

    def prove(self, directory: str) -> None:
        """Try what new files are to have, where something was asked for, once per process, with an empty file.

        Raises:
            Unsupported: the server does not take it.
        """
        asked = self._settings.of_files
        if asked is None or (self.where, asked) in _proven:
            return
        self.make_directories(directory)
        path = join(directory, f".{self.context.ids.unique()}.tmp")
        full = self._full("create_exclusive", path)
        try:
            self.retry_until_ready(lambda: self._write_temporary(path, full, b""))
            mode = self.do("stat", path, lambda: self._mode(full))
        finally:
            self.discard(full)
        if mode != self._settings.file_mode:
            _log.warning(
                "files below %s get the permission %o, and not the filePermission %o that was asked for: look at the "
                "ACLs that the directory hands down (hdfs dfs -getfacl)",
                self.where,
                mode,
                self._settings.file_mode,
            )
        _proven.add((self.where, asked))

    def stat(self, path: str) -> FileInfo:
        """Return the status of `path`."""
        full = self._full("stat", path)
        return dataclasses.replace(self.do("stat", path, lambda: self._status(full)), path=path)

    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory."""
        full = self._full("list", path)
        children = self.do("list", path, lambda: self._children(full))
        if len(children) == 1 and not children[0].path:
            raise NotADirectory("list", path, f"a file is there below {self.where}, and a directory was asked for")
        return [dataclasses.replace(child, path=join(path, child.path)) for child in children]

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; idempotent."""
        full = self._full("make_directories", path)

        def make() -> bool:
            try:
                return self.run("make_directories", path, lambda: self._make(full, self._settings.directory_mode))
            except OutcomeUnknown as error:
                # Whether it is there or not: it may be made once more.
                raise Unavailable("make_directories", path, error.detail) from error

        try:
            made = self.retry_until_ready(make)
        except AlreadyExists as error:
            raise NotADirectory("make_directories", path, error.detail) from error
        if not made:
            raise StorageError("make_directories", path, f"{self.where} made no directory, and does not say why")

    def sync_directory(self, path: str) -> None:
        """Do nothing: each change of a name is durable when the NameNode has answered."""
        self._full("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        """Move a file, never over anything."""
        full_source, full_target = self._full("rename", source), self._full("rename", target)
        try:
            self.do("rename", source, lambda: self._move(full_source, full_target))
        except NotFound as error:
            # Servers answer alike to either. Without a source this raises NotFound.
            self._look("rename", source, full_source)
            raise MissingParent("rename", source, error.detail) from error

    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole, durable file in one step: a temporary file, synced, closed and measured, gets its name."""
        full = self._full("create_exclusive", path)
        tried: list[str] = []

        def write() -> None:
            # A call that nobody waits for any more may take effect yet, and would empty what a later one wrote.
            tried.append(self.temporary_name(full))
            self._write_temporary(path, tried[-1], content)

        try:
            self.retry_until_ready(write)
            temporary = tried[-1]
            self._compare(path, temporary, content)
            self.do("create_exclusive", path, lambda: self._move(temporary, full))
            tried.pop()
        except OutcomeUnknown:
            # It may have its name already, and then there is nothing to remove.
            tried.pop()
            raise
        finally:
            # A store that is away is asked once.
            all(map(self.discard, tried))

    def put(self, path: str, content: bytes) -> None:
        """Write a hint over whatever is there."""
        full = self._full("put", path)
        try:
            self._put(path, full, content)
        except NotFound:
            # Another one is writing over it already; or there is no directory.
            self._look("put", path, full)

    def delete(self, path: str) -> None:
        """Delete a file."""
        full = self._full("delete", path)
        # The server deletes an empty directory as well.
        if self._look("delete", path, full).is_directory or not self.do("delete", path, lambda: self._remove(full)):
            raise NotFound("delete", path, f"no file is there below {self.where}")

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty."""
        full = self._full("remove_directory", path)
        try:
            directory = self._look("remove_directory", path, full).is_directory
        except NotFound:
            return True
        if not directory:
            raise NotADirectory("remove_directory", path, f"a file is there below {self.where}")
        try:
            self.do("remove_directory", path, lambda: self._remove(full))
        except NotEmpty:
            return False
        return True

    def temporary_name(self, full: str) -> str:
        """Return a path beside this one that nobody else uses."""
        return f"{full.rpartition('/')[0]}/.{self.context.ids.unique()}.tmp"

    def discard(self, full: str) -> bool:
        """Delete any file there; return True if nothing is left of it."""
        try:
            self.run("delete", full, lambda: self._remove(full))
        except NotFound:
            return True
        except StorageError:
            return False
        return True

    def do(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run a call of the library, and again while the store says that it did nothing because it is not ready."""
        return self.retry_until_ready(lambda: self.run(operation, path, call))

    def retry_until_ready(self, call: Callable[[], Result]) -> Result:
        """Call again while the store is unavailable, until patience ends."""
        return retry_until(call, self._settings.patience_s, self.context.clock)

    @abstractmethod
    def run(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run a call of the library once, within the time it may take, and translate its errors."""

    @abstractmethod
    def _status(self, full: str) -> FileInfo:
        """Return the status there."""

    @abstractmethod
    def _children(self, full: str) -> Sequence[FileInfo]:
        """Return the entries of a directory, by name; of a file, itself with an empty name."""

    @abstractmethod
    def _make(self, full: str, mode: int) -> bool:
        """Make a directory and its parents, and return the server's answer."""

    @abstractmethod
    def _mode(self, full: str) -> int:
        """Return the permissions of what is there."""

    @abstractmethod
    def _move(self, full_source: str, full_target: str) -> None:
        """Rename without overwriting."""

    @abstractmethod
    def _put(self, path: str, full: str, content: bytes) -> None:
        """Write a hint."""

    @abstractmethod
    def _remove(self, full: str) -> bool:
        """Delete a file, or an empty directory; return True if one was there."""

    @abstractmethod
    def _write_whole(self, full: str, content: bytes) -> None:
        """Write a durable file over whatever is there."""

    def _write_temporary(self, path: str, temporary: str, content: bytes) -> None:
        try:
            self.run("create_exclusive", path, lambda: self._write_whole(temporary, content))
        except OutcomeUnknown as error:
            # Whatever became of it: nobody else knows its name.
            raise Unavailable("create_exclusive", path, error.detail) from error

    def _look(self, operation: str, path: str, full: str) -> FileInfo:
        """Return the status there, for another operation: a failed look has changed nothing."""
        try:
            return self.do("stat", path, lambda: self._status(full))
        except StorageError as error:
            raise type(error)(operation, path, error.detail) from error

    def _compare(self, path: str, full: str, content: bytes) -> None:
        """Look whether what was written is there."""
        self._require_length(path, self._look("create_exclusive", path, full).size_bytes, len(content))

    def _require_length(self, path: str, found: int, length: int) -> None:
        if found != length:
            raise StorageError("create_exclusive", path, f"{found} of {length} bytes reached {self.where}")

    def _full(self, operation: str, path: str) -> str:
        require_hdfs_name(operation, path)
        return f"{self._prefix}/{path}" if path else self.root
