"""The interface of a file system, which each storage driver implements, and its input files as Python file objects.

Paths are relative to the root of the file system and `/`-separated, without a leading or trailing slash; the root is
the empty string. Methods raise only subclasses of `StorageError`. After `Unavailable`, a method can be called again
unless its docstring forbids it. After `OutcomeUnknown`, the caller must check the outcome. All methods are thread-safe.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from ftfile.core.context import SYSTEM
from ftfile.core.errors import NotFound, StreamClosed
from ftfile.storage.output_stream import CopyingStream, OutputStream, StoredFile, copy_range
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
    "StoredFile",
    "Watch",
    "as_file",
    "copy_range",
    "lasting_identity",
)


Durability = Literal["hsync", "close", "none"]

# Operations that change nothing, even if they fail.
READING = frozenset({"open", "read", "read_at", "stat", "list"})


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a driver as data. Callers use them instead of the name of the driver."""

    driver: str  # for messages
    shared_between_processes: bool  # processes of one host can share files
    # The strongest durability of a stream: `hsync` (on the device when `hsync` returns), `close` (as durable as the
    # storage makes files when `close` returns), `none` (lost with the process).
    durability: Durability
    directory_sync: bool  # a created, renamed or deleted name is only durable after `sync_directory`
    atomic_rename: bool  # after a crash, a file has either its old or its new name
    stream_capabilities: frozenset[str] = frozenset()  # that `OutputStream.has_capability` may confirm
    permissions: bool = False  # supports the settings `filePermission` and `directoryPermission`
    forbidden: str = ""  # characters that names must not contain
    retries_internally: bool = False  # calls wait for a storage system that is not ready, so callers need not retry
    # When other processes see a file that is being written: empty, or complete. With `at_close`, `close` detects that
    # the name exists.
    visible_at: Literal["at_create", "at_close"] = "at_create"
    shared_between_hosts: bool = True
    # A directory exists while it contains files, so it is never created, missing, or left empty.
    implied_directories: bool = False
    blank_ends: bool = True  # a name can begin and end with white space
    path_bytes_max: int | None = None  # of a path below the root; None for no limit
    # The remaining fields describe costs. If they are wrong, calls are slow or use much memory; results stay correct.
    concurrency: int = 1  # useful number of parallel calls during a commit; 1 if a call is cheaper than a thread
    stream_bytes: int = 0  # memory that a file can use while it is written
    copy_bytes_min: int = 0  # copying shorter ranges by `copy_from` is slower than reading and writing them

    def fault_of(self, path: str, more_bytes: int = 0) -> str | None:
        """Return why the storage does not support a path, as in "it …", or None; it can become `more_bytes` longer."""
        bytes_max = self.path_bytes_max
        return fault_of(path, self.forbidden, blank_ends=self.blank_ends, bytes_max=bytes_max, more_bytes=more_bytes)


class FileInfo(NamedTuple):
    """The status of a path. It is a tuple, since a listing creates millions of them."""

    path: str  # as it was requested, or found by a listing
    size_bytes: int  # 0 for a directory, -1 for a file of unknown length
    modified_ms: int  # of the last change, by the clock of the storage, since 1970 UTC; all ages are computed from it
    is_directory: bool = False
    # Equal for two paths if and only if they are the same file, or one is a copy of the other; None if unknown. Text
    # before a colon names the disk, and can change when the disk is mounted again.
    identity: str | None = None
    # A symbolic link to the file or directory; only listings report it. If links are not followed, it is a link, pipe,
    # socket or device, and not a directory.
    is_link: bool = False


def lasting_identity(identity: str | None) -> str | None:
    """Return the identity of a file without the name of its disk: it stays when the disk is mounted again."""
    return None if identity is None else identity.rpartition(":")[2]


class InputFile(ABC):
    """A file that is open for reads at any offset; thread-safe."""

    path: str
    size_bytes: int

    @abstractmethod
    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`: fewer only at the end of the file."""

    def mapped(self) -> memoryview | None:
        """Return the whole file mapped into memory, valid after the file is closed; None if it cannot be mapped.

        A file that another user could truncate is not mapped, since a read beyond its end by a mapping kills the
        process.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the file; idempotent."""

    def __enter__(self) -> InputFile:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeFile(InputFile):
    """A file whose ranges a function `read(offset, length)` returns; it holds no resources."""

    def __init__(self, path: str, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._read: Callable[[int, int], bytes] | None = read

    @classmethod
    def of_content(cls, path: str, content: bytes) -> RangeFile:
        """Return a file with the given content."""

        def read(offset: int, length: int) -> bytes:
            return content[offset : offset + length]

        return cls(path, len(content), read)

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`: fewer only at the end of the file."""
        if self._read is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        length = min(length, self.size_bytes - offset)
        if length > 0:
            return self._read(offset, length)
        return b""

    def close(self) -> None:
        """Close the file; idempotent."""
        self._read = None


class Watch(ABC):
    """A hint when to list directories; it can report too much and miss changes. It raises no errors."""

    @abstractmethod
    def add(self, directory: str) -> None:
        """Watch a directory from now on, if it exists and the number of watches is not exhausted; idempotent."""

    @abstractmethod
    def changed(self, wait_s: float = 0.0) -> bool:
        """Return True if files or directories in a watched directory appeared or grew since the last call.

        It waits for a change for at most `wait_s` seconds.
        """


class FileSystem(ABC):
    """A storage system. Drivers and decorators derive from this class; instances can be pickled."""

    context: Context = SYSTEM  # clock, ids and retries of the process that opened the file system

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return the capabilities of the storage."""

    def prove(self, directory: str) -> None:
        """Probe uncertain capabilities; raises `Unsupported`. Temporary files can remain in `directory`."""
        del directory

    @abstractmethod
    def create(self, path: str) -> OutputStream:
        """Open a new file for writing.

        Raises:
            AlreadyExists: the path exists; with `visible_at="at_close"`, `close` raises it.
            NotFound: the parent directory is missing.
        """

    @abstractmethod
    def open(self, path: str) -> InputFile:
        """Open a file for reads; its length is fixed when it is opened."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Return the status of `path`, or raise `NotFound`."""

    @abstractmethod
    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory, in any order, or raise `NotFound`."""

    def names_after(self, path: str, name: str) -> Sequence[str]:
        """Return the names in a directory that sort after `name`, in any order, or raise `NotFound`.

        Only for storage systems that can list such names.
        """
        later_names = []
        for info in self.list(path):
            entry = info.path.rpartition("/")[2]
            if entry > name:
                later_names.append(entry)
        return later_names

    def watch(self) -> Watch | None:
        """Return a watch without directories; None if only a listing shows changes."""
        return None

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; idempotent. Names are durable after `sync_directory` of each parent.

        The name of the root (the empty path), whose parent is outside of the file system, is durable on return. Raises
        `NotADirectory` if a file has the name.
        """

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make all names in the directory durable; does nothing if the storage makes them durable at once."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move a file to a name in an existing directory; it never replaces a file.

        Raises:
            MissingParent: the source exists, but the directory of the target does not.
            NotFound: the source does not exist.
            AlreadyExists: the target exists; the source is unchanged.
        """

    @abstractmethod
    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        """Create a complete file atomically; the file and its name are durable on return.

        No reader sees a partial file, a crash leaves either the whole file or nothing, and exactly one of concurrent
        callers succeeds.

        Returns:
            The file as the storage has confirmed it; None if only `stat` can show it.

        Raises:
            AlreadyExists: another caller succeeded, or an earlier attempt of this caller whose response was lost:
                compare the content.
        """

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Write a small file, and replace an existing one; for hints.

        A crash can truncate or lose the file. Readers can see a part of it, or see it later; this client sees it at
        once.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file, or raise `NotFound`."""

    @abstractmethod
    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty, and return True if it does not exist afterwards. Idempotent."""

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        """Return the content of a file; of one longer than `bytes_max`, the first `bytes_max` + 1 bytes."""
        with self.open(path) as file:
            if bytes_max is None:
                length = file.size_bytes
            else:
                length = min(file.size_bytes, bytes_max + 1)
            return file.read_at(0, length)

    def exists(self, path: str) -> bool:
        """Return True if the path exists; all errors except for `NotFound` are raised."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True


# Small reads are served from a read-ahead buffer of this size; larger reads are not buffered.
BUFFER_BYTES = 128 * 1024


def as_file(file: InputFile) -> io.BufferedReader:
    """Return a seekable binary file object for `file`, with its length at opening; closing it closes `file`."""
    return _Input(file)


class _Input(io.BufferedReader):
    """Returns the bytes of large reads without a copy; `BufferedReader` would copy them twice."""

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
