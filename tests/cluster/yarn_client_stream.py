"""A stream on YARN in client mode, and kills of its processes at drawn moments."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.cluster.cluster import EXECUTOR, PYTHON_WORKER, command_of, java_processes, kill
from tests.cluster.yarn import ANY, MASTER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.cluster.yarn import Yarn
    from tests.cluster.yarn_application import Application

__all__ = ("ClientStream",)

# A kill is at most so many batches after the last one.
LATEST_BATCH = 3
POLL_S = 0.02


class ClientStream:
    """A stream whose driver is the `spark-submit`, and kills of its processes.

    Args:
        yarn: runs the executors.
        application: with its directories; its `spark-submit` starts with `start`.
        rng: draws the moments and the processes.
        python: for the driver and the executors.
        options: of `spark-submit`.
        more: arguments of the application.
    """

    def __init__(
        self,
        yarn: Yarn,
        application: Application,
        *,
        rng: random.Random,
        python: str,
        options: Sequence[str],
        more: Sequence[str],
    ) -> None:
        self._yarn = yarn
        self._application = application
        self._rng = rng
        self._python, self._options, self._more = python, options, more

    def start(self) -> None:
        """Start the driver."""
        self._application.start(self._python, *self._options, more=self._more)

    def strike(self, kill_processes: Callable[[], None]) -> None:
        """Kill processes in the middle of the next batches, at a moment that is a drawn share of a batch's time."""
        began_s = time.monotonic()
        batches, wanted = self._application.batches(), self._rng.randint(1, LATEST_BATCH)
        while (found := self._application.batches() - batches) < wanted:
            assert self.has_driver(), self._yarn.submitted_output(self._application.name)[-5000:]
            if not found:
                began_s = time.monotonic()
            time.sleep(POLL_S)
        time.sleep(self._rng.random() * (time.monotonic() - began_s) / found)
        assert self.has_driver(), "the stream ended before the kill"
        kill_processes()

    def has_driver(self) -> bool:
        """Return True if the driver runs."""
        return self._yarn.exit_code(self._application.name) is None

    def kill_driver(self) -> None:
        """Kill the driver with its Python processes, and start it again, as another application."""
        name = self._application.name
        processes = self._yarn.submitted_processes(name)
        assert java_processes(processes)
        # It is then no longer a server that must not end.
        self._yarn.kill(name)
        kill(*processes)
        self.start()

    def kill_executor(self) -> None:
        """Kill the JVM of an executor."""
        kill(self._rng.choice(self._processes(EXECUTOR)))

    def kill_workers(self) -> None:
        """Kill the Python processes of all executors."""
        kill(*self._processes(PYTHON_WORKER))

    def kill_master(self) -> None:
        """Kill the application master, which only starts executors. YARN starts another one."""
        attempts = len(self._attempts())
        kill(*self._yarn.newest_processes(self._application.name, MASTER))
        self._yarn.wait_for("start another master", lambda: len(self._attempts()) > attempts)

    def kill_resource_manager(self) -> None:
        """Kill the ResourceManager, and start it again."""
        self._yarn.kill("resourcemanager")
        self._yarn.start_resource_manager()
        self._yarn.wait_for_nodes()

    def _attempts(self) -> list[object]:
        return [*self._yarn.attempts(self._application.name)]

    def _processes(self, kind: str) -> list[int]:
        """Return the processes of the newest attempt's containers with a mark in their command line."""
        found: list[int] = []

        def is_there() -> bool:
            processes = self._yarn.newest_processes(self._application.name, ANY)
            found[:] = [number for number in processes if kind in command_of(number)]
            return bool(found)

        # Executors of a master that was killed are replaced.
        self._yarn.wait_for(f"start {kind}", is_there)
        return found
