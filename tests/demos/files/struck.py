"""An application that continues or is restarted while it and the servers around it are killed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.demos.files.kill import Hit, Kill, Victim, hunt
from tests.demos.files.restarts import END_POLL_S, DemoError, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.demos.files.process import Application
    from tests.demos.files.restarts import Watch

__all__ = ("StruckJob",)

GIVEN_UP_MAX = 10


class StruckJob(Job, ABC):
    """The Spark application and its servers, which are killed and restarted.

    Attributes:
        down_s: least downtime of servers in seconds: long enough that a batch fails or waits.
    """

    down_s = 3.0
    _app: Application | None = None
    _given_up = 0

    def run_on(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let the application continue until it ends or `until` returns True.

        Raises:
            DemoError: it failed repeatedly, or stopped making progress.
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
        """Kill the servers of the victim."""

    @abstractmethod
    def _start_servers(self, victim: Victim) -> None:
        """Restart the servers and wait until they are ready."""

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

    def _running(self) -> tuple[Application, Watch]:
        """Return the application, started if necessary, and its watch."""
        if self._app is not None:
            return self._app, self._watch(starts=False)
        self._app, watch = self._begin()
        return self._app, watch

    def _give_up(self, app: Application) -> None:
        """Count a query that Spark ended, as it may if a server is down for long. A user would restart it."""
        self._given_up += 1
        if self._given_up > GIVEN_UP_MAX:
            raise DemoError(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")
        self._console.line(f"{'':11}Spark ended the stream; the stream is restarted")
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
