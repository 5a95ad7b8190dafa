"""An application that goes on, or is started again, while it and servers around it are killed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.demos.files.kill import Hit, Kill, Victim, hunt
from tests.demos.files.restarts import END_POLL_S, DemoError, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.demos.files.process import SparkApp
    from tests.demos.files.restarts import Watch

__all__ = ("StruckJob",)

GIVEN_UP_MAX = 10


class StruckJob(Job, ABC):
    """The Spark application, and what is killed around it, which is started again.

    Attributes:
        down_s: how long servers are away, at least: long enough for a batch to run into it.
    """

    down_s = 3.0
    _app: SparkApp | None = None
    _given_up = 0

    def run_on(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let the application go on until it ends by itself, or something else is true.

        Raises:
            DemoError: It failed again and again, or stood still.
        """
        while True:
            app, watch = self._running()
            while app.exit_code is None:
                if until():
                    return
                watch()
                time.sleep(END_POLL_S)
            if app.exit_code == 0:
                return
            self._give_up(app)

    def end(self) -> None:
        """Kill the application if it runs."""
        if self._app is not None:
            self._app.kill()
            self._app = None

    @abstractmethod
    def _kill_servers(self, victim: Victim) -> None:
        """Kill the servers that the victim stands for."""

    @abstractmethod
    def _start_servers(self, victim: Victim) -> None:
        """Start them again, and wait until they are ready."""

    @abstractmethod
    def _name_servers(self, victim: Victim) -> str:
        """Return the name of the servers in a sentence."""

    def _hit(self, kill: Kill) -> Hit:
        while True:
            app, watch = self._running()
            strike = None if kill.victim.is_application else lambda: self._kill_servers(kill.victim)
            hit = hunt(app, kill, self._targets, watch, strike)
            if hit is not None:
                if kill.victim.ends_application:
                    self.end()
                return hit
            if app.exit_code == 0:
                raise DemoError(f"ended before {kill.target} was {kill.moment.value}\n{app.last_words()}")
            self._give_up(app)

    def _running(self) -> tuple[SparkApp, Watch]:
        """Return the application, started if need be, and who watches it."""
        if self._app is not None:
            return self._app, self._watch(starts=False)
        self._app, watch = self._begin()
        return self._app, watch

    def _give_up(self, app: SparkApp) -> None:
        """Take note that Spark ended a query, as it may when a server is away for long: a user starts it again."""
        self._given_up += 1
        if self._given_up > GIVEN_UP_MAX:
            raise DemoError(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")
        self._console.line(f"{'':11}Spark ended the stream by itself, and it is started again")
        self.end()

    def _bring_back(self, victim: Victim) -> None:
        if victim.is_application:
            return
        killed_s, name = time.monotonic(), self._name_servers(victim)
        while time.monotonic() < killed_s + self.down_s:
            self.show(f"{name} is down for {time.monotonic() - killed_s:.0f} s")
            time.sleep(0.2)
        self.show(f"{name} starts again")
        self._start_servers(victim)
        self._console.line(f"{'':11}{name} is back after {time.monotonic() - killed_s:.1f} s")
