"""Processes on one log that pause before calls of the storage: committers, vacuums and readers, one at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import CommitError, CommitOutcomeUnknown, FtfileError
from ftfile.log.format import layout
from ftfile.log.format.record import decode_record
from ftfile.testing.context import SeededIds
from tests.kit.failing_calls import Killed
from tests.wrappers import InContext

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ftfile.log.format.model import Record
    from ftfile.storage.api import FileSystem

Result = TypeVar("Result")

_PAUSED_DIRECTORIES = (layout.COMPACTED, layout.CHECKPOINTS)
_PAUSED_CALLS_ON_RECORDS = frozenset({"create_exclusive", "delete"})


class PausingProcess:
    """A thread that runs only in its turns. Each turn ends at the thread's next pause.

    Args:
        kind: of the work, for messages.
        work: runs in the thread with the process's view of the storage.
        fs: the storage that all processes share.
        draw: decides before which calls the process pauses.
        share: of these calls, between 0 and 1.
        on_record: is called with each record that the process creates.
    """

    def __init__(
        self,
        *,
        kind: str,
        work: Callable[[FileSystem], object],
        fs: FileSystem,
        draw: random.Random,
        share: float,
        on_record: Callable[[Record], object],
    ) -> None:
        self.kind = kind
        self.is_over = False
        self.error: BaseException | None = None
        self.sleeps_until = 0
        self._is_dying = False
        self._may_run, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        view = _PausingFileSystem(fs, self, draw, share, on_record)
        self._thread = threading.Thread(target=self._run, args=(work, view), daemon=True)
        self._thread.start()

    def take_turn(self) -> None:
        """Let the process run to its next pause or to its end."""
        self._may_run.release()
        self._has_paused.acquire()

    def kill(self) -> None:
        """Kill the process at its current pause."""
        self._is_dying = True
        self.take_turn()
        self._thread.join()

    def pause(self) -> None:
        """Wait for the next turn, in the thread of the process."""
        self._has_paused.release()
        self._wait()

    def _wait(self) -> None:
        self._may_run.acquire()
        if self._is_dying:
            raise Killed

    def _run(self, work: Callable[[FileSystem], object], view: FileSystem) -> None:
        try:
            self._wait()
            work(view)
        except (Killed, CommitError, CommitOutcomeUnknown):
            pass
        except (FtfileError, AssertionError, LookupError, TypeError, ValueError) as error:
            self.error = error
        self.is_over = True
        self._has_paused.release()


class _PausingFileSystem(InContext):
    """The storage as one process sees it: the process pauses before calls on ranges, checkpoints and records."""

    def __init__(
        self,
        inner: FileSystem,
        process: PausingProcess,
        draw: random.Random,
        share: float,
        on_record: Callable[[Record], object],
    ) -> None:
        super().__init__(inner, ids=SeededIds(draw.getrandbits(60)))
        self._process, self._draw, self._share, self._on_record = process, draw, share, on_record

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        on_record = path.startswith(layout.LOG) and operation in _PAUSED_CALLS_ON_RECORDS
        if (on_record or path.startswith(_PAUSED_DIRECTORIES)) and self._draw.random() < self._share:
            self._process.pause()
        return super().around(operation, path, call)

    def create_exclusive(self, path: str, content: bytes) -> None:
        super().create_exclusive(path, content)
        name = layout.parse_log_name(path)
        if name is not None and name.nonce is None:
            self._on_record(decode_record(content, path, self.inner.read))
