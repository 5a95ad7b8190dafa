"""A file that is being written: the rules of Hadoop's output-stream specification, enforced for every driver."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

from ftfile.core.errors import StreamClosed, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator


class StoredFile(NamedTuple):
    """A complete file, as in the response to the request that created it."""

    size_bytes: int
    # The file was created between these two times, and `FileSystem.stat` returns a time between them, by the storage's
    # clock.
    modified_ms: int
    answered_ms: int


class OutputStream(ABC):
    """A file that is being written, according to Hadoop's output-stream specification.

    `write` accepts any buffer, which the caller can reuse at once, and is thread-safe. `flush` guarantees nothing.
    `hflush`
    and `hsync` give their guarantees or raise `Unsupported`. `close` is idempotent. A failure of `close` or `hsync` is
    final: the file does not count as written. An exception that leaves a `with` block aborts, so that a partial file
    never looks complete.

    A driver implements the methods with an underscore, and those of its capabilities; this class enforces the rules.
    """

    def __init__(self, path: str, capabilities: frozenset[str]) -> None:
        for name in sorted(capabilities & {"hflush", "hsync"}):
            if not self._implements("_hsync") and not self._implements(f"_{name}"):
                raise TypeError(f"{type(self).__name__} has the capability {name}, but no method _{name}")
        self.path = path
        self._capabilities = capabilities
        self._position = 0
        self._state: Literal["open", "closed", "aborted", "failed"] = "open"
        self._lock = threading.RLock()

    def _implements(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(OutputStream, method)

    @property
    def position(self) -> int:
        """Return the number of accepted bytes."""
        return self._position

    @property
    def stored(self) -> StoredFile | None:
        """Return the closed file as the storage has confirmed it; None if only `FileSystem.stat` can show it."""
        return None

    @property
    def closed(self) -> bool:
        """Return True if the stream accepts no more bytes."""
        return self._state != "open"

    def has_capability(self, name: str) -> bool:
        """Return True if this stream supports `hflush`, `hsync`, `abort` or `copy`; also after close."""
        return name.lower() in self._capabilities

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length in bytes.

        Raises:
            StreamClosed: after close, abort or a failure.
            OutOfSpace: the storage is full; the stream cannot be used any more.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            self._check_open("write")
            with self._failing_for_good():
                self._write(view)
            self._position += view.nbytes
        return view.nbytes

    def flush(self) -> None:  # noqa: B027 - no driver has to do anything
        """Do nothing with a guarantee; cheap, allowed after close."""

    def hflush(self) -> None:
        """Make all bytes visible to new readers, or raise `Unsupported`."""
        self._sync("hflush")

    def hsync(self) -> None:
        """Make all bytes visible and durable on the device, or raise `Unsupported`; a failure is final."""
        self._sync("hsync")

    def close(self) -> None:
        """End the file and release all locks; idempotent.

        Raises:
            StorageError: in this or an earlier call; the file must not count as written. `abort` discards it.
        """
        with self._lock:
            if self._state in {"closed", "aborted"}:
                return
            self._check_open("close")
            self._state = "failed"
            self._close()
            self._state = "closed"

    def abort(self) -> bool:
        """Discard the file and return True if it does not exist afterwards; idempotent. A later close does nothing."""
        with self._lock:
            if self._state in {"closed", "aborted"}:
                return False
            self._state = "aborted"
            return self._abort()

    def __enter__(self) -> OutputStream:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abort()

    def _sync(self, kind: Literal["hflush", "hsync"]) -> None:
        with self._lock:
            self._check_open(kind)
            self._check_capability(kind, kind)
            with self._failing_for_good():
                self._hsync() if kind == "hsync" else self._hflush()

    @contextlib.contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # The content of the file is unknown after a failed write or sync, so the stream is never used again.
            self._state = "failed"
            raise

    def _check_open(self, operation: str) -> None:
        if self._state != "open":
            raise StreamClosed(operation, self.path, f"the stream is {self._state}; open a new file under a new name")

    def _check_capability(self, operation: str, name: str) -> None:
        if not self.has_capability(name):
            raise Unsupported(
                operation, self.path, f"this stream does not support {operation}; call has_capability first"
            )

    @abstractmethod
    def _write(self, data: memoryview) -> None: ...

    def _hflush(self) -> None:
        self._hsync()

    def _hsync(self) -> None:
        raise NotImplementedError  # never called, since the constructor refuses a stream whose capabilities need it

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _abort(self) -> bool: ...


class CopyingStream(OutputStream):
    """A stream that can also append ranges of finished files of its storage, which the storage copies."""

    def copy_from(self, path: str, offset: int, length: int) -> None:
        """Let the storage append `length` bytes of another file from `offset`, all of which exist.

        Errors can be raised as late as in `close`.

        Raises:
            Unsupported: this stream, or the storage, does not support it.
            NotFound: the file or the range does not exist.
            StreamClosed: after close, abort or a failure.
        """
        with self._lock:
            self._check_open("copy_from")
            self._check_capability("copy_from", "copy")
            with self._failing_for_good():
                self._copy_from(path, offset, length)
            self._position += length

    @abstractmethod
    def _copy_from(self, path: str, offset: int, length: int) -> None: ...


def copy_range(stream: OutputStream, path: str, offset: int, length: int) -> None:
    """Append a range of another file to any stream; see `CopyingStream.copy_from`."""
    if not isinstance(stream, CopyingStream):
        raise Unsupported("copy_from", stream.path, "this stream does not support copy_from; call has_capability first")
    stream.copy_from(path, offset, length)
