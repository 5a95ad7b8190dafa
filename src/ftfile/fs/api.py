"""The file-system port: what a store must offer to keep an ftfile directory.

Paths are relative to the file system's root, `/`-separated, without a leading or trailing slash;
the root itself is the empty string. Every method raises a `StorageError` leaf and nothing else; a
method without a word on retrying may be called again after `Unavailable`, and must be looked after
following `OutcomeUnknown`. All methods may be called from several threads.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import NotFound, StreamClosed, Unsupported
from ftfile.fs.paths import fault_of, length_fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

__all__ = ("Capabilities", "Durability", "FileInfo", "FileSystem", "InputFile", "OutputStream")

Durability = Literal["hsync", "close", "none"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a driver can do, as data: callers branch on this and never on the driver's name.

    Attributes:
        driver: name for messages.
        shared: other processes on this host see the same files.
        all_hosts: and so do those on other hosts, whatever is mounted there.
        durability: the strongest a stream offers: `hsync` (on the device when `hsync` returns), `close`
            (as persistent as the store makes things when `close` returns), `none` (lost with the process).
        directory_sync: a created, renamed or deleted name is durable only after `sync_directory`.
        atomic_rename: `rename` is one step: no crash leaves the file under both names or neither.
        stream_capabilities: what `OutputStream.has_capability` may answer yes to.
        permissions: it takes the settings `filePermission` and `directoryPermission`.
        replication: it takes the settings `replication` and `blockSize`.
        concurrency: how many calls side by side pay off on the commit path; 1 means a call costs less than a thread.
        forbidden: characters that no name may have.
        blank_ends: a name may begin and end with a blank, or with other white space.
        patient: its calls wait by themselves for a store that is not ready; nobody needs to try again at once.
        shown: when others see a file that is being written: empty `at_create`, or whole `at_close`, when it also turns
            out whether the name was free.
        implied_directories: a directory is there when something is in it: none is made, is missing, is in the way of a
            file, or is left empty.
        stream_bytes: how much memory a file that is being written may take.
        path_bytes_max: how long a path below the root may be; None where there is no limit.
        copy_bytes_min: from which length on a range is copied within the store by `OutputStream.copy_from`, where
            streams offer `copy`; what is shorter is read and written for less.
    """

    driver: str
    shared: bool
    durability: Durability
    directory_sync: bool
    atomic_rename: bool
    stream_capabilities: frozenset[str] = field(default_factory=frozenset)
    permissions: bool = False
    replication: bool = False
    concurrency: int = 1
    forbidden: str = ""
    patient: bool = False
    shown: Literal["at_create", "at_close"] = "at_create"
    all_hosts: bool = True
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
    """What is known of a path without opening it.

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


class OutputStream(ABC):
    """A file being written, after Hadoop's output-stream specification.

    `write` takes any buffer, which the caller may reuse at once, and is safe to call from several threads.
    `flush` promises nothing. `hflush` and `hsync` do what they say or raise `Unsupported`. `close` is idempotent;
    a failure of it or of `hsync` is final: the file does not count as written. Leaving a `with` block by an exception
    aborts, so that a partial file is never left looking complete.

    A driver implements the underscored methods; this class keeps the rules.
    """

    def __init__(self, path: str, capabilities: frozenset[str]) -> None:
        self.path = path
        self._capabilities = capabilities
        self._position = 0
        self._state: Literal["open", "closed", "aborted", "failed"] = "open"
        self._lock = threading.RLock()

    @property
    def position(self) -> int:
        """Return the number of bytes accepted so far."""
        return self._position

    @property
    def closed(self) -> bool:
        """Return whether the stream takes no more bytes."""
        return self._state != "open"

    def has_capability(self, name: str) -> bool:
        """Say whether this very stream gives `hflush`, `hsync`, `abort` or `copy`; answers after close, too."""
        return name.lower() in self._capabilities

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length in bytes.

        Raises:
            StreamClosed: after close, abort or a failure.
            OutOfSpace: the store is full; the stream is unusable from then on.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            self._require_open("write")
            with self._failing_for_good():
                self._write(view)
            self._position += view.nbytes
        return view.nbytes

    def copy_from(self, path: str, offset: int, length: int) -> None:
        """Append a range of a finished file of the same store; the store copies it, and nobody here sees the bytes.

        What is wrong may turn out as late as in `close`.

        Args:
            path: of that file.
            offset: of the first byte.
            length: how many; all of them are in the file.

        Raises:
            Unsupported: this stream, or the store, cannot.
            NotFound: the file, or the range, is not there.
            StreamClosed: after close, abort or a failure.
        """
        with self._lock:
            self._require_open("copy_from")
            if not self.has_capability("copy"):
                raise Unsupported("copy_from", self.path, "this stream copies nothing; ask has_capability first")
            with self._failing_for_good():
                self._copy_from(path, offset, length)
            self._position += length

    def flush(self) -> None:  # noqa: B027 - no driver has to do anything
        """Do nothing that anyone may rely on; cheap, allowed after close."""

    def hflush(self) -> None:
        """Make all bytes so far visible to new readers.

        Raises:
            Unsupported: this stream cannot.
        """
        self._sync("hflush")

    def hsync(self) -> None:
        """Make all bytes so far visible and durable on the device; a failure is final.

        Raises:
            Unsupported: this stream cannot.
        """
        self._sync("hsync")

    def close(self) -> None:
        """End the file and release every lock; idempotent.

        Raises:
            StorageError: now or in an earlier call, the file must not count as written; `abort` discards it.
        """
        with self._lock:
            if self._state in {"closed", "aborted"}:
                return
            self._require_open("close")
            self._state = "failed"
            self._close()
            self._state = "closed"

    def abort(self) -> bool:
        """Discard the file where that can be done; idempotent, a later close writes nothing.

        Returns:
            Whether nothing is left of the file.
        """
        with self._lock:
            if self._state in {"closed", "aborted"}:
                return False
            self._state = "aborted"
            return self._abort()

    def __enter__(self) -> OutputStream:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abort()

    def _sync(self, kind: Literal["hflush", "hsync"]) -> None:
        with self._lock:
            self._require_open(kind)
            if not self.has_capability(kind):
                raise Unsupported(kind, self.path, f"this stream has no {kind}; ask has_capability first")
            with self._failing_for_good():
                self._hsync() if kind == "hsync" else self._hflush()

    @contextlib.contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # After a failed write or sync nothing is known of the file: it is never used again.
            self._state = "failed"
            raise

    def _require_open(self, operation: str) -> None:
        if self._state != "open":
            raise StreamClosed(operation, self.path, f"the stream is {self._state}; open a new file under a new name")

    @abstractmethod
    def _write(self, data: memoryview) -> None: ...

    def _copy_from(self, path: str, offset: int, length: int) -> None:  # noqa: B027 - see `copy_from`
        """Never reached without the capability."""

    def _hflush(self) -> None:
        self._hsync()

    @abstractmethod
    def _hsync(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _abort(self) -> bool: ...


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


class FileSystem(ABC):
    """A store. Drivers and decorators derive from it; instances can be pickled."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return what this store can do."""

    def prove(self, directory: str) -> None:
        """Make sure, where that is not certain, that the store keeps what the capabilities say.

        Args:
            directory: where a trial may leave traces.

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
        """Return what is at `path`.

        Raises:
            NotFound: nothing is.
        """

    @abstractmethod
    def list(self, path: str) -> list[FileInfo]:
        """Return the direct children of a directory, in any order.

        Raises:
            NotFound: there is no such directory.
        """

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
            NotFound: no source, or no parent of the target.
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
        """Remove a directory if it is empty and say whether it is gone; what is in it is never touched."""

    def read(self, path: str) -> bytes:
        """Return all bytes of a file in one go."""
        with self.open(path) as file:
            return file.read_at(0, file.size_bytes)

    def exists(self, path: str) -> bool:
        """Say whether anything is at `path`; any error other than absence is raised."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True
