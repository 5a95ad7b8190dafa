"""The file-system port: what a store must offer to keep an ftfile directory; and its input files as Python's own.

Paths are relative to the file system's root, `/`-separated, without a leading or trailing slash;
the root itself is the empty string. Every method raises a `StorageError` leaf and nothing else; a
method without a word on retrying may be called again after `Unavailable`, and its outcome must be checked
following `OutcomeUnknown`. All methods may be called from several threads.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.core.errors import NotFound, StreamClosed
from ftfile.storage.output_stream import CopyingStream, OutputStream, copy_range
from ftfile.storage.paths import fault_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context


__all__ = (
    "BUFFER_BYTES",
    "READING",
    "Capabilities",
    "CopyingStream",
    "Durability",
    "FileInfo",
    "FileSystem",
    "InputFile",
    "OutputStream",
    "RangeFile",
    "Watch",
    "as_file",
    "copy_range",
)


Durability = Literal["hsync", "close", "none"]

# Operations that change nothing, also where they fail.
READING = frozenset({"open", "read", "read_at", "stat", "list"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a driver, as data: callers branch on this and never on the driver's name."""

    driver: str  # for messages
    shared_between_processes: bool  # of one host
    # The strongest that a stream offers: `hsync` (on the device when `hsync` returns), `close` (as durable as the store
    # makes files when `close` returns), `none` (lost with the process).
    durability: Durability
    directory_sync: bool  # a created, renamed or deleted name is durable only after `sync_directory`
    atomic_rename: bool  # no crash leaves the file under both names or neither
    stream_capabilities: frozenset[str] = frozenset()  # that `OutputStream.has_capability` may confirm
    permissions: bool = False  # takes the settings `filePermission` and `directoryPermission`
    replication: bool = False  # takes the settings `replication` and `blockSize`
    concurrency: int = 1  # parallel calls that pay off on the commit path; 1: a call costs less than a thread
    forbidden: str = ""  # characters that no name may have
    retries_internally: bool = False  # calls wait for a store that is not ready; callers need not try again
    # When others see a file that is being written: empty, or whole. `close` then finds out if the name is free.
    visible_at: Literal["at_create", "at_close"] = "at_create"
    shared_between_hosts: bool = True
    # A directory exists while it has files: none is made, is missing, is in the way of a file, or is left empty.
    implied_directories: bool = False
    stream_bytes: int = 0  # memory that a file may take while it is written
    blank_ends: bool = True  # a name may begin and end with white space
    path_bytes_max: int | None = None  # of a path below the root; None: no limit
    copy_bytes_min: int = 0  # shorter ranges cost less by reading and writing than by `copy_from`

    def fault_of(self, path: str, more_bytes: int = 0) -> str | None:
        """Return why the store does not keep a path, as in "it … ", or None; its name may grow by `more_bytes`."""
        bytes_max = self.path_bytes_max
        return fault_of(path, self.forbidden, blank_ends=self.blank_ends, bytes_max=bytes_max, more_bytes=more_bytes)


class FileInfo(NamedTuple):
    """The status of a path, known without opening it; a tuple, of which a listing makes millions."""

    path: str  # that was asked for, or found by a listing
    size_bytes: int  # 0 for a directory, -1 for a file of which the store does not tell
    modified_ms: int  # by the store's clock, since 1970 UTC; the basis of every age
    is_directory: bool = False
    # Equal for two paths exactly when they are one file, or one is a copy of the other; None if not known.
    identity: str | None = None
    # A symbolic link to the file or directory; only listings tell. Where none is followed, a link, a pipe, a socket or
    # a device, and no directory.
    is_link: bool = False


class InputFile(ABC):
    """A file open for reading at any offset; safe to use from several threads."""

    path: str
    size_bytes: int

    @abstractmethod
    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`: fewer only at the end of the file."""

    def mapped(self) -> memoryview | None:
        """Return the whole file mapped into memory, which stays when it is closed; None where that cannot be.

        Nor may it be where another user could cut the file: who reads beyond its end by a mapping is killed.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Release the file; idempotent."""

    def __enter__(self) -> InputFile:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeFile(InputFile):
    """A file whose ranges `read` returns, given offset and length; there is nothing else to release."""

    def __init__(self, path: str, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._read: Callable[[int, int], bytes] | None = read

    @classmethod
    def of_content(cls, path: str, content: bytes) -> RangeFile:
        """Return a file whose content is known."""
        return cls(path, len(content), lambda offset, length: content[offset : offset + length])

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`: fewer only at the end of the file."""
        if self._read is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        length = min(length, self.size_bytes - offset)
        return self._read(offset, length) if length > 0 else b""

    def close(self) -> None:
        """Release the file; idempotent."""
        self._read = None


class Watch(ABC):
    """A hint when to list directories, which may say so for nothing, and may miss any change. It raises no errors."""

    @abstractmethod
    def add(self, directory: str) -> None:
        """Watch from now on what is in a directory, if it is there, and if there is room; idempotent."""

    @abstractmethod
    def changed(self, wait_s: float = 0.0) -> bool:
        """Return True if files or directories in one of those appeared or grew since the last call.

        It waits for that, for `wait_s` seconds at most.
        """


class FileSystem(ABC):
    """A store. Drivers and decorators derive from it; instances can be pickled."""

    context: Context = SYSTEM  # clock, ids and retries of the process that opened it

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return the capabilities of this store."""

    def prove(self, directory: str) -> None:
        """Probe the capabilities, where they are not certain; raises `Unsupported`. Traces may stay in `directory`."""
        del directory

    @abstractmethod
    def create(self, path: str) -> OutputStream:
        """Open a new file for writing.

        Raises:
            AlreadyExists: something is there; with `visible_at="at_close"`, `close` raises it.
            NotFound: the parent directory is missing.
        """

    @abstractmethod
    def open(self, path: str) -> InputFile:
        """Open a file for reading; its length is the one at this moment."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Return the status of `path`, or raise `NotFound`."""

    @abstractmethod
    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory, in any order, or raise `NotFound`."""

    def names_after(self, path: str, name: str) -> Sequence[str]:
        """Return the names in a directory that sort after `name`, in any order, or raise `NotFound`.

        Stores that can list no others.
        """
        names = (info.path.rpartition("/")[2] for info in self.list(path))
        return [entry for entry in names if entry > name]

    def watch(self) -> Watch | None:
        """Return a watch without directories; None where a listing alone shows what has changed."""
        return None

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; idempotent. Names are durable after `sync_directory` of each parent.

        The name of the root itself (the empty path), which has no parent here, is durable on return. Raises
        `NotADirectory` if a file is in the way.
        """

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make all names in the directory durable; free where the store does so by itself."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move a file to a name in an existing directory, never over anything.

        Raises:
            MissingParent: there is a source, and no directory for the target.
            NotFound: there is no source, whether or not there is a directory for the target.
            AlreadyExists: the target exists; the source is untouched.
        """

    @abstractmethod
    def create_exclusive(self, path: str, content: bytes) -> None:
        """Create a whole file in one step, durable together with its name when this returns.

        Nobody ever sees it partly written, a crash leaves all of it or nothing, and of all callers exactly one wins.

        Raises:
            AlreadyExists: lost, or won by an own earlier try whose reply was lost: compare the content.
        """

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Write a small file over whatever is there: for hints.

        A crash may tear or lose it; readers may see half, or see it a moment later; this client sees it at once.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, or raise `NotFound`."""

    @abstractmethod
    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty and return True if it is gone; what is in it is never touched."""

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        """Return all bytes of a file in one go; of one longer than `bytes_max`, the first ones, one more than that."""
        with self.open(path) as file:
            length = file.size_bytes if bytes_max is None else min(file.size_bytes, bytes_max + 1)
            return file.read_at(0, length)

    def exists(self, path: str) -> bool:
        """Return True if anything is at `path`; any error other than absence is raised."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True


# Small reads are served from one read-ahead of this size; larger ones go straight to the store.
BUFFER_BYTES = 128 * 1024


def as_file(file: InputFile) -> io.BufferedReader:
    """Return `file` as a seekable binary file object of its length at opening; closing it closes `file`."""
    return _Input(file)


class _Input(io.BufferedReader):
    """Returns the bytes of large reads as the store gives them, where `BufferedReader` would copy them twice."""

    def __init__(self, file: InputFile) -> None:
        super().__init__(_RawInput(file), BUFFER_BYTES)
        self._file = file

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < BUFFER_BYTES:
            return super().read(size)
        position = self.tell()
        data = self._file.read_at(position, size)
        self.seek(position + len(data))
        return data


class _RawInput(io.RawIOBase):
    def __init__(self, file: InputFile) -> None:
        super().__init__()
        self._file = file
        self._position = 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size_bytes}
        if whence not in starts:
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        position = starts[whence] + offset
        if position < 0:
            raise ValueError(f"cannot seek {self._file.path!r} to {position}, before its start")
        self._position = position
        return position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        data = self._file.read_at(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            super().close()
