"""Processes of a store on one disk: each can be killed in the middle of a call, and a power cut kills all."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

from ftfile.core.errors import Unavailable
from ftfile.storage.registry import WrapperFile, WrapperFileSystem, register, unregister
from ftfile.testing.context import SeededIds
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from tests.kit.failing_calls import Killed, StreamOfProcess, lose_answer

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem, InputFile, OutputStream
    from ftfile.testing.context import ManualClock
    from ftfile.testing.fs.volume import Storage

__all__ = ("Machine", "Process")

Result = TypeVar("Result")
_numbers = itertools.count()


class Process(WrapperFileSystem, PickledByReference):
    """The file system as one process sees it.

    Attributes:
        url: of the file system; only this process opens it.
        is_alive: False after the process was killed.
        has_failed: a call has failed by `fail_at`.
    """

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.url = f"process{next(_numbers)}://store"
        self.is_alive = True
        self.has_failed = False
        self._calls_left: int | None = None
        self._fails_in: int | None = None
        self._fails_after = False
        register(self.url.partition(":")[0], lambda _: self)

    def kill_after(self, calls: int | None) -> None:
        """Kill the process after a number of calls; None keeps it alive."""
        self._calls_left = calls

    def fail_at(self, call: int | None, *, after: bool = False) -> None:
        """Let a call fail, counted from 0, before or after its effect; None ends it."""
        self._fails_in, self._fails_after = call, after

    def kill(self) -> None:
        """Kill the process now."""
        self.is_alive = False
        unregister(self.url.partition(":")[0])

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        if self._calls_left == 0:
            self.kill()
        if not self.is_alive:
            raise Killed(f"{operation} {path}")
        if self._calls_left is not None:
            self._calls_left -= 1
        if self._fails_in is None:
            return call()
        self._fails_in -= 1
        return call() if self._fails_in >= 0 or self.has_failed else self._failed(operation, path, call)

    def _failed(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        self.has_failed = True
        if not self._fails_after:
            raise Unavailable(operation, path, "an injected fault")
        lose_answer(operation, path, call)

    def create(self, path: str) -> OutputStream:
        return StreamOfProcess(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


class Machine:
    """A disk and the processes that use it.

    Attributes:
        disk: the disk after the last power cut.
    """

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.disk = CrashingFileSystem(clock=clock, storage=storage)
        self._processes: list[Process] = []

    def start(self) -> Process:
        """Return a new process."""
        self._processes.append(Process(self.disk))
        return self._processes[-1]

    def cut_power(self, rng: random.Random, since: int) -> str:
        """Cut the power at a random moment after step `since`; return a description of the loss."""
        chosen = rng.randint(since, len(self.disk.journal))
        self.stop()
        replay = next(replay for point, _, replay in self.disk.states() if point == chosen)
        disk, loss = next(replay.sample(SeededIds(rng.getrandbits(32))))
        self.disk = self.disk.after_power_cut(disk, ())
        return f"step {chosen - since} of this: {loss}"

    def stop(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
        self._processes = []
