"""A storage system that fails for a while and then works again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ftfile.core.errors import OutcomeUnknown, OutOfSpace, PermissionDenied, StorageError, Unavailable
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFile, WrapperFileSystem
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from tests.kit.failing_calls import Killed, StreamOfProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem, InputFile, OutputStream, StoredFile


Result = TypeVar("Result")

DIRECTORY = "out"  # of a history, in its storage


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure: calls of one operation whose source or target path begins with a prefix.

    Paths in the directory are relative to it; all others begin at the root of the storage.
    """

    operation: str
    begins: str
    error: type[StorageError]
    effect: Literal["before", "after"] = "before"


_STAGED, _RETIRED = f"{layout.STAGED}/", f"{layout.RETIRED}/"
PUBLISHING_TROUBLES = (
    Trouble("rename", _STAGED, Unavailable),
    Trouble("rename", _STAGED, PermissionDenied),
    Trouble("rename", _RETIRED, Unavailable),
    Trouble("rename", _RETIRED, PermissionDenied),
    Trouble("rename", "", OutcomeUnknown, "after"),
)
STORAGE_TROUBLES = (
    Trouble("create_exclusive", f"{layout.COMPACTED}/", OutOfSpace),
    Trouble("create_exclusive", f"{layout.CHECKPOINTS}/", OutOfSpace),
    Trouble("put", f"{layout.HINTS}/", PermissionDenied),
    Trouble("create_exclusive", f"{layout.LOG}/", OutcomeUnknown, "after"),
    Trouble("create_exclusive", f"{layout.LOG}/", Unavailable),
    Trouble("create", _STAGED, OutOfSpace),
    Trouble("delete", "", Unavailable),
    Trouble("list", layout.COMPACTED, Unavailable),
)


class Moment:
    """A call of the storage, counted from 1; or the first creation of a record, if it comes before this call."""

    def __init__(self, call: int, *, at_record: bool = False) -> None:
        self._calls_left, self._at_record = call, at_record
        self._lock = threading.Lock()

    def is_now(self, operation: str, path: str) -> bool:
        """Count a call, and return True from the moment on."""
        creates_record = operation == "create_exclusive" and path.endswith(".record")
        with self._lock:
            self._calls_left -= 1
            if self._at_record and creates_record:
                self._calls_left = min(self._calls_left, 0)
            return self._calls_left <= 0


class HeldThread(threading.Thread):
    """A thread that stops before one of its calls of the storage until it is released."""

    def __init__(self, act: Callable[[], object], moment: Moment) -> None:
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self._act, self._moment = act, moment
        self._is_stopped, self._is_released = threading.Event(), threading.Event()

    def run(self) -> None:
        """Act, and keep the error."""
        try:
            self._act()
        except BaseException as error:  # raised by `release`
            self.error = error
        finally:
            self._is_stopped.set()

    def count_call(self, operation: str, path: str) -> None:
        """Stop this thread before the call; other threads return at once."""
        if threading.current_thread() is not self or self._is_stopped.is_set():
            return
        if self._moment.is_now(operation, path):
            self._is_stopped.set()
            self._is_released.wait()

    def wait_stopped(self) -> None:
        """Wait until the thread has stopped, or ended."""
        self._is_stopped.wait()

    def release(self) -> None:
        """Let the thread continue to its end, and raise its error."""
        self._is_released.set()
        self.join()
        if self.error is not None:
            raise self.error


class Meddler:
    """Acts instead of one call of the storage, also in other threads than its own.

    Attributes:
        is_met: the call was reached.
    """

    def __init__(self, moment: Moment, act: Callable[[str, str, Callable[[], Any]], Any]) -> None:
        self.is_met = False
        self._moment, self._act = moment, act
        self._lock = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        """Run `call`, or act instead of it."""
        with self._lock:
            is_due = not self.is_met and self._moment.is_now(operation, path)
            self.is_met = self.is_met or is_due
        if not is_due:
            return call()
        return self._act(operation, path, call)


class Death(Meddler):
    """Lets no call of the storage pass, from a moment on."""

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment, lambda *_: None)

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        """Run `call`, or raise `Killed`."""
        with self._lock:
            self.is_met = self.is_met or self._moment.is_now(operation, path)
        if self.is_met:
            raise Killed
        return call()


class TroubledFileSystem(WrapperFileSystem, PickledByReference):
    """Fails by `trouble` while it is set. A `meddler` acts at one of the calls."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.trouble: Trouble | None = None
        self.failed = False  # a call failed since this was set
        self.after_record: Callable[[], None] | None = None  # runs once, after the next record is created
        self.held: HeldThread | None = None
        self.meddler: Meddler | None = None

    @property
    def is_alive(self) -> bool:
        """Return False after the running process was killed."""
        return not (isinstance(self.meddler, Death) and self.meddler.is_met)

    def create(self, path: str) -> OutputStream:
        """Open a new file, whose writes are calls of the storage, too."""
        return StreamOfProcess(super().create(path), self)

    def open(self, path: str) -> InputFile:
        """Open a file, whose reads are calls of the storage, too."""
        return WrapperFile(super().open(path), self)

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, or fail before or after it."""
        return self._failing(operation, (path,), call)

    def rename(self, source: str, target: str) -> None:
        """Rename a file; an existing target is an error."""
        self._failing("rename", (source, target), lambda: self.inner.rename(source, target))

    def _failing(self, operation: str, paths: tuple[str, ...], call: Callable[[], Result]) -> Result:
        if self.held is not None:
            self.held.count_call(operation, paths[0])
        troubled = partial(self._troubled, operation, paths, call)
        if self.meddler is None:
            return troubled()
        result: Result = self.meddler.around(operation, paths[0], troubled)
        return result

    def _troubled(self, operation: str, paths: tuple[str, ...], call: Callable[[], Result]) -> Result:
        trouble = self.trouble
        if trouble is None or operation != trouble.operation:
            return call()
        if not any(path.removeprefix(f"{DIRECTORY}/").startswith(trouble.begins) for path in paths):
            return call()
        if trouble.effect == "after":
            call()
        self.failed = True
        raise trouble.error(operation, paths[0], f"it fails for a while, {trouble.effect} the effect")

    def create_exclusive(self, path: str, content: bytes) -> StoredFile | None:
        """Create a file. A process stands still after its record while others act by `after_record`."""
        stored = super().create_exclusive(path, content)
        others = self.after_record
        if others is not None and path.endswith(".record"):
            self.after_record = None
            others()
        return stored
