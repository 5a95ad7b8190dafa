"""A file being written: the rules of Hadoop's output-stream specification, kept for every driver."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import StreamClosed, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutputStream(ABC):
    """A file being written, after Hadoop's output-stream specification.

    `write` takes any buffer, which the caller may reuse at once, and is safe to call from several threads.
    `flush` promises nothing. `hflush` and `hsync` do what they say or raise `Unsupported`. `close` is idempotent;
    a failure of it or of `hsync` is final: the file does not count as written. Leaving a `with` block by an exception
    aborts, so that a partial file is never left looking complete.

    A driver implements the underscored methods, those of its capabilities included; this class keeps the rules.
    """

    def __init__(self, path: str, capabilities: frozenset[str]) -> None:
        for name in sorted(capabilities & {"hflush", "hsync"}):
            if all(getattr(type(self), method) is getattr(OutputStream, method) for method in ("_hsync", f"_{name}")):
                raise TypeError(f"{type(self).__name__} has the capability {name}, but no method _{name}")
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
        """Return True if the stream takes no more bytes."""
        return self._state != "open"

    def has_capability(self, name: str) -> bool:
        """Return True if this stream gives `hflush`, `hsync`, `abort` or `copy`; answers after close, too."""
        return name.lower() in self._capabilities

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append all of `data` and return its length in bytes.

        Raises:
            StreamClosed: after close, abort or a failure.
            OutOfSpace: the store is full; the stream is unusable from then on.
        """
        view = memoryview(data).cast("B")
        with self._lock:
            self._check_open("write")
            with self._failing_for_good():
                self._write(view)
            self._position += view.nbytes
        return view.nbytes

    def flush(self) -> None:  # noqa: B027 - no driver has to do anything
        """Do nothing that anyone may rely on; cheap, allowed after close."""

    def hflush(self) -> None:
        """Make all bytes so far visible to new readers, or raise `Unsupported`."""
        self._sync("hflush")

    def hsync(self) -> None:
        """Make all bytes so far visible and durable on the device, or raise `Unsupported`; a failure is final."""
        self._sync("hsync")

    def close(self) -> None:
        """End the file and release every lock; idempotent.

        Raises:
            StorageError: now or in an earlier call, the file must not count as written; `abort` discards it.
        """
        with self._lock:
            if self._state in {"closed", "aborted"}:
                return
            self._check_open("close")
            self._state = "failed"
            self._close()
            self._state = "closed"

    def abort(self) -> bool:
        """Discard the file and return True if it is gone; idempotent, a later close writes nothing."""
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
            # The file's content is unknown after a failed write or sync: the stream is never used again.
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
        raise NotImplementedError  # never called: the constructor refuses a stream whose capabilities need it

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _abort(self) -> bool: ...


class CopyingStream(OutputStream):
    """A stream that also takes ranges of finished files of its store, which the store copies by itself."""

    def copy_from(self, path: str, offset: int, length: int) -> None:
        """Let the store append `length` bytes of another file from `offset`, all of which are in it.

        Errors may come as late as in `close`.

        Raises:
            Unsupported: this stream, or the store, cannot.
            NotFound: the file, or the range, is not there.
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
