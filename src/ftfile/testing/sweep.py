"""Running a scenario with a fault at its first call, at its second, and so on until none is left to fail."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ftfile.core.errors import FtfileError
from ftfile.testing.fs.faulty import FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.faulty import Call, Fault


__all__ = ("SweepRun", "fault_sweep")


Result = TypeVar("Result")


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
