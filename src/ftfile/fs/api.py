"""The file-system port: what a store must offer to keep an ftfile directory.

Paths are relative to the file system's root, `/`-separated, without a leading or trailing slash;
the root itself is the empty string. Every method raises a `StorageError` leaf and nothing else; a
method without a word on retrying may be called again after `Unavailable`, and its outcome must be checked
following `OutcomeUnknown`. All methods may be called from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ftfile.core.context import SYSTEM
from ftfile.core.errors import NotFound, StreamClosed
from ftfile.fs.output_stream import CopyingStream, OutputStream, copy_range
from ftfile.fs.paths import fault_of, length_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.core.context import Context

__all__ = (
    "Capabilities",
    "CopyingStream",
    "Durability",
    "FileInfo",
    "FileSystem",
    "InputFile",
    "OutputStream",
    "RangeFile",
    "copy_range",
)

Durability = Literal["hsync", "close", "none"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a driver, as data: callers branch on this and never on the driver's name.

    Attributes:
        driver: name for messages.
        shared_between_processes: other processes on this host see the same files.
        shared_between_hosts: and so do those on other hosts, whatever is mounted there.
        durability: the strongest a stream offers: `hsync` (on the device when `hsync` returns), `close`
            (as persistent as the store makes things when `close` returns), `none` (lost with the process).
        directory_sync: a created, renamed or deleted name is durable only after `sync_directory`.
        atomic_rename: `rename` is one step: no crash leaves the file under both names or neither.
        stream_capabilities: what `OutputStream.has_capability` may answer yes to.
        permissions: it takes the settings `filePermission` and `directoryPermission`.
        replication: it takes the settings `replication` and `blockSize`.
        concurrency: how many parallel calls pay off on the commit path; 1 means a call costs less than a thread.
        forbidden: characters that no name may have.
        blank_ends: a name may begin and end with a blank, or with other white space.
        retries_internally: its calls wait by themselves for a store that is not ready; callers need not try again.
        visible_at: when others see a file that is being written: empty `at_create`, or whole `at_close`, which then
            also finds out whether the name was free.
        implied_directories: a directory is there when something is in it: none is made, is missing, is in the way of a
            file, or is left empty.
        stream_bytes: how much memory a file that is being written may take.
        path_bytes_max: how long a path below the root may be; None where there is no limit.
        copy_bytes_min: from which length on a range is copied within the store by `CopyingStream.copy_from`, where
            streams offer `copy`; what is shorter is read and written for less.
    """

    driver: str
    shared_between_processes: bool
    durability: Durability
    directory_sync: bool
    atomic_rename: bool
    stream_capabilities: frozenset[str] = field(default_factory=frozenset)
    permissions: bool = False
    replication: bool = False
    concurrency: int = 1
    forbidden: str = ""
    retries_internally: bool = False
    visible_at: Literal["at_create", "at_close"] = "at_create"
    shared_between_hosts: bool = True
    implied_directories: bool = False
    stream_bytes: int = 0
    blank_ends: bool = True
    path_bytes_max: int | None = None
    copy_bytes_min: int = 0

    def fault_of(self, path: str, more_bytes: int = 0) -> str | None:
        """Return why the store does not keep a path, as in "it … ", or None.

        Args:
            path: below the root.
            more_bytes: by how much its last name may become longer.
        """
        fault = fault_of(path, self.forbidden, blank_ends=self.blank_ends)
        return length_fault(path, self.path_bytes_max, more_bytes) if fault is None else fault


@dataclass(frozen=True, slots=True)
class FileInfo:
    """The status of a path, known without opening it.

    Attributes:
        path: the path asked for, or found by a listing.
        size_bytes: length; 0 for a directory.
        modified_ms: the store's modification time in milliseconds since 1970 UTC; the basis of every age.
        is_directory: whether it is one.
        identity: equal for two paths exactly when they are one file, or one a copy of the other; None where the store,
            or a listing, cannot tell.
    """

    path: str
    size_bytes: int
    modified_ms: int
    is_directory: bool = False
    identity: str | None = None


class InputFile(ABC):
    """A file open for reading at any offset; safe to use from several threads."""

    path: str
    size_bytes: int

    @abstractmethod
    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`: fewer only at the end of the file."""

    @abstractmethod
    def close(self) -> None:
        """Release the file; idempotent."""

    def __enter__(self) -> InputFile:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeFile(InputFile):
    """A file of a store that is asked for each range; there is nothing to release.

    Args:
        path: of the file.
        size_bytes: its length.
        read: returns the bytes of a range of it, given offset and length.
    """

    def __init__(self, path: str, size_bytes: int, read: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._read: Callable[[int, int], bytes] | None = read

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`."""
        if self._read is None:
            raise StreamClosed("read_at", self.path, "the file was closed; open it again")
        length = min(length, self.size_bytes - offset)
        return self._read(offset, length) if length > 0 else b""

    def close(self) -> None:
        """Release the file; idempotent."""
        self._read = None


class FileSystem(ABC):
    """A store. Drivers and decorators derive from it; instances can be pickled.

    Attributes:
        context: clock, ids and retries of the process that opened it; a driver that nobody opened has the machine's.
    """

    context: Context = SYSTEM

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return the capabilities of this store."""

    def prove(self, directory: str) -> None:
        """Make sure, where that is not certain, that the store keeps what the capabilities say.

        Args:
            directory: where the probe may leave traces.

        Raises:
            Unsupported: it does not.
        """
        del directory

    @abstractmethod
    def create(self, path: str) -> OutputStream:
        """Open a new file for writing.

        Raises:
            AlreadyExists: something is there; where files are shown at close, that says so.
            NotFound: the parent directory is missing.
        """

    @abstractmethod
    def open(self, path: str) -> InputFile:
        """Open a file for reading; its length is the one at this moment."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo:
        """Return the status of `path`.

        Raises:
            NotFound: nothing is.
        """

    @abstractmethod
    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory, in any order.

        Raises:
            NotFound: there is no such directory.
        """

    def names_after(self, path: str, name: str) -> Sequence[str]:
        """Return the names in a directory that sort after `name`, in any order; stores that can list no others.

        Raises:
            NotFound: there is no such directory.
        """
        names = (info.path.rpartition("/")[2] for info in self.list(path))
        return [found for found in names if found > name]

    @abstractmethod
    def make_directories(self, path: str) -> None:
        """Create the directory and its parents; idempotent. Names are durable after `sync_directory` of each parent.

        The name of the root itself (the empty path), which has no parent here, is durable on return.

        Raises:
            NotADirectory: a file is in the way.
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
        """Delete a file.

        Raises:
            NotFound: nothing is there.
        """

    @abstractmethod
    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty and return True if it is gone; what is in it is never touched."""

    def read(self, path: str) -> bytes:
        """Return all bytes of a file in one go."""
        with self.open(path) as file:
            return file.read_at(0, file.size_bytes)

    def exists(self, path: str) -> bool:
        """Return True if anything is at `path`; any error other than absence is raised."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True
