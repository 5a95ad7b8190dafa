"""A file system that fails where it is told to, before or after the call took effect.

`fault_sweep` runs a scenario with a fault at its first call, at its second, and so on until none is left to fail.
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
from ftfile.testing.fs.tree import PickledByReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ftfile.storage.api import FileSystem


__all__ = ("STANDARD_FAULTS", "Call", "Fault", "FaultyFileSystem", "SweepRun", "fault_sweep")


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the port, of a stream (`write`, `hflush`, `hsync`, `close`) or of a file (`read_at`)."""

    operation: str
    path: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The calls that fail, and how.

    A caller may repeat after `Unavailable` and must check after `OutcomeUnknown`; a fault that comes after the
    effect of a change is therefore an `OutcomeUnknown` in any store that keeps the port's promises.
    """

    error: type[StorageError]
    effect: Literal["before", "after"] = "before"  # the call is not done at all, or wholly, before the error is raised
    at: int = 0  # the number of the first call to fail among those that match, from 0
    times: int = 1  # how many matching calls in a row fail
    operations: frozenset[str] | None = None  # methods that match; None means all
    path: str = "*"  # shell pattern of the paths that match; `*` matches `/` as well

    def matches(self, call: Call) -> bool:
        """Return True if this fault counts the call."""
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
    """Fails as planned and counts all calls; a pickled copy is the object itself, in the same process.

    Each fault of the plan counts the calls that match it; the first one that is due is raised. `abort` never fails: it
    is best effort by contract and already runs because of an error.
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
                result.close()  # nobody else can: the caller gets the error instead
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


@dataclass(frozen=True, slots=True)
class SweepRun(Generic[Result]):
    """The result of one run with one fault."""

    fault: Fault  # with its position in `at`
    call: Call  # that failed
    file_system: FileSystem  # as the run left it, free of faults: recover on it and check
    error: FtfileError | None  # raised by the scenario; None means that it survived the fault
    result: Result | None  # returned by a scenario that survived

    def __str__(self) -> str:
        outcome = "survived" if self.error is None else f"raised {self.error!r}"
        where = f"{self.call.operation} {self.call.path!r}, call {self.fault.at}"
        return f"{self.fault.error.__name__} {self.fault.effect} {where}: {outcome}"


def fault_sweep(
    fault: Fault, make: Callable[[], FileSystem], scenario: Callable[[FileSystem], Result], step: int = 1
) -> Iterator[SweepRun[Result]]:
    """Run the scenario on a fresh file system for each call that `fault` may hit; end when a run meets none.

    Args:
        fault: its `at` is where the sweep starts.
        make: prepares what the scenario starts from, without faults.
        scenario: errors of ftfile that it raises are reported in the run; any other is a defect and passes.
        step: how many calls it is from one that fails to the next.
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
        yield SweepRun(fault, faulty.injected[0][1], inner, error, result)
        fault = dataclasses.replace(fault, at=fault.at + step)
