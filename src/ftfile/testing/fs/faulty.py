"""A file system that fails at planned calls, before or after the call takes effect.

`fault_sweep` runs a scenario with a fault at its first call, then at its second call, and so on up to the last call.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ftfile.core.errors import FtfileError, OutcomeUnknown, OutOfSpace, PermissionDenied, StorageError, Unavailable
from ftfile.storage.api import InputFile, OutputStream
from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream
from ftfile.testing.fs.pickled_by_reference import PickledByReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ftfile.storage.api import FileSystem


__all__ = ("STANDARD_FAULTS", "Call", "Fault", "FaultyFileSystem", "SweepRun", "fault_sweep")


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a file system, of a stream (`write`, `hflush`, `hsync`, `close`) or of a file (`read_at`)."""

    operation: str
    path: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The calls that fail, and their error.

    A caller can repeat a call after `Unavailable`, and must check the outcome after `OutcomeUnknown`. So storage
    systems that fulfil the contract raise `OutcomeUnknown` for a fault after the effect of a change.
    """

    error: type[StorageError]
    effect: Literal["before", "after"] = "before"  # the error is raised instead of the call, or after the complete call
    at: int = 0  # number of the first matching call that fails, from 0
    times: int = 1  # number of consecutive matching calls that fail
    operations: frozenset[str] | None = None  # matching methods; None for all methods
    path: str = "*"  # shell pattern of matching paths; `*` also matches `/`

    def matches(self, call: Call) -> bool:
        """Return True if the call matches this fault."""
        named = self.operations is None or call.operation in self.operations
        return named and fnmatch.fnmatchcase(call.path, self.path)


STANDARD_FAULTS = (
    Fault(Unavailable),
    Fault(PermissionDenied),
    Fault(OutOfSpace),
    Fault(OutcomeUnknown),
    Fault(OutcomeUnknown, "after"),
)


class FaultyFileSystem(WrapperFileSystem, PickledByReference):
    """Raises the planned faults, and records all calls. A pickled copy in the same process is the object itself.

    Each fault counts its matching calls; the first due fault is raised. `abort` never fails: by contract it is best
    effort, and its callers already handle an error.
    """

    def __init__(self, inner: FileSystem, plan: Iterable[Fault] = ()) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self.injected: list[tuple[Fault, Call]] = []
        self._plan = tuple(plan)
        self._seen = [0] * len(self._plan)
        self._lock = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        fault = self._fault_of(Call(operation, path))
        if fault is None:
            return call()
        if fault.effect == "after":
            result = call()
            if isinstance(result, OutputStream | InputFile):
                result.close()  # the caller receives the error and cannot close it
        raise fault.error(operation, path, f"injected {fault.effect} the effect")

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)

    def _fault_of(self, call: Call) -> Fault | None:
        with self._lock:
            self.calls.append(call)
            due = None
            for index, fault in enumerate(self._plan):
                if fault.matches(call):
                    number = self._seen[index]
                    self._seen[index] += 1
                    if due is None and fault.at <= number < fault.at + fault.times:
                        due = fault
            if due is not None:
                self.injected.append((due, call))
            return due


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun(Generic[Result]):
    """The result of one run with one fault."""

    fault: Fault  # `at` is the number of the failed call
    call: Call  # the failed call
    file_system: FileSystem  # without faults, in its state after the run: recover on it and check
    error: FtfileError | None  # raised by the scenario; None if it survived the fault
    result: Result | None  # returned by a scenario that survived the fault

    def __str__(self) -> str:
        if self.error is None:
            outcome = "survived"
        else:
            outcome = f"raised {self.error!r}"
        where = f"{self.call.operation} {self.call.path!r}, call {self.fault.at}"
        return f"{self.fault.error.__name__} {self.fault.effect} {where}: {outcome}"


def fault_sweep(
    fault: Fault, make: Callable[[], FileSystem], scenario: Callable[[FileSystem], Result], step: int = 1
) -> Iterator[SweepRun[Result]]:
    """Run the scenario on a new file system for each call that `fault` matches, until a run triggers no fault.

    Args:
        fault: the first run uses its `at`.
        make: creates the initial state of the scenario, without faults.
        scenario: its errors of ftfile are part of the run; any other error is a defect and is raised.
        step: distance between the failed calls of two runs.
    """
    while True:
        inner = make()
        faulty = FaultyFileSystem(inner, [fault])
        error: FtfileError | None = None
        result: Result | None = None
        try:
            result = scenario(faulty)
        except FtfileError as raised:
            error = raised
        if not faulty.injected:
            if error is not None:
                raise error
            return
        yield SweepRun(fault=fault, call=faulty.injected[0][1], file_system=inner, error=error, result=result)
        fault = dataclasses.replace(fault, at=fault.at + step)
