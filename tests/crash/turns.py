"""Two drivers in turns: each runs in a separate thread, and a schedule decides whose calls run next."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream
from ftfile.testing.fs.pickled_by_reference import PickledByReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ftfile.storage.api import FileSystem, InputFile, OutputStream

Result = TypeVar("Result")

TO_THE_END = 10**9


class Turns:
    """Runs drivers alternately: a turn is over when its driver requests another call or has ended.

    Args:
        schedule: name of the driver whose turn it is, and the number of calls. After the schedule, each driver runs to
            its end, in the order in which they are passed to `run`.
    """

    def __init__(self, schedule: Iterable[tuple[str, int]]) -> None:
        self._schedule = deque(schedule)
        self._changed = threading.Condition()
        self.calls: dict[str, int] = {}

    def wait(self, name: str) -> None:
        """Wait until it is this driver's turn to make a call."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_turn_of(name))
            self._schedule[0] = (name, self._schedule[0][1] - 1)
            self.calls[name] = self.calls.get(name, 0) + 1

    def end(self, name: str) -> None:
        """Remove the driver from the schedule."""
        with self._changed:
            self._schedule = deque(turn for turn in self._schedule if turn[0] != name)
            self._changed.notify_all()

    def _is_turn_of(self, name: str) -> bool:
        """Return True if an idle driver may make a call; no other driver ends its turns."""
        while self._schedule[0] == (name, 0):
            self._schedule.popleft()
            self._changed.notify_all()
        return self._schedule[0][0] == name

    def run(self, drivers: Mapping[str, Callable[[], object]]) -> dict[str, BaseException | None]:
        """Run the drivers to their ends and return what each raised."""
        errors: dict[str, BaseException | None] = dict.fromkeys(drivers)
        self._schedule += [(name, TO_THE_END) for name in drivers]

        def drive(name: str, driver: Callable[[], object]) -> None:
            try:
                driver()
            except Exception as error:
                errors[name] = error
            finally:
                self.end(name)

        threads = [threading.Thread(target=drive, args=item, name=item[0]) for item in drivers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors


class TurnsFileSystem(WrapperFileSystem, PickledByReference):
    """The shared file system as one driver sees it: before each call the driver waits for its turn."""

    def __init__(self, inner: FileSystem, name: str, turns: Turns) -> None:
        super().__init__(inner)
        self._name = name
        self._turns = turns

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        self._turns.wait(self._name)
        return super().around(operation, path, call)

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


class Interrupted(WrapperFileSystem):
    """Runs `act` once, before the call with the number `at`."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.calls = 0
        self.at = -1
        self.act: Callable[[], object] | None = None

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        del operation, path
        self.calls += 1
        if self.calls == self.at and self.act is not None:
            act, self.act = self.act, None
            act()
        return call()
