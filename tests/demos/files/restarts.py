"""The Spark application of a demonstration, which is restarted after each kill, and watched."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.demos.files.kill import Hit, Kill, Victim, hunt
from tests.demos.files.process import SparkApp, own_environment
from tests.demos.files.sinks import State, Stream, Target, observe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.demos.files.process import Application
    from tests.demos.files.report import Console

__all__ = ("END_POLL_S", "STALL_TIMEOUT_S", "DemoError", "Job", "MomentMissed", "Watch")

PROGRESS_INTERVAL_S = 0.2
END_POLL_S = 0.05
# A driver, its executors and their Python workers start on a machine that also runs all servers.
STALL_TIMEOUT_S = 600.0
# On a busy machine, most moments are over before they are detected.
ATTEMPTS_PER_KILL = 12


class DemoError(Exception):
    """The demonstration could not run; the message contains the reason."""


class MomentMissed(DemoError):
    """The application ended before a moment was detected, as on a busy machine."""


class Job:
    """The Spark application of a demonstration, which can be started after each kill.

    Args:
        script: of the application.
        argument: of the script; its output is appended to a file next to the argument.
        targets: the streams of the application.
        batches: number of batches of each stream; 0 if unknown.
        console: shows the progress.
        name: of the application in the output, if there are several.
        environment: of the script; by default ours, with its temporary files next to the argument.
    """

    def __init__(
        self,
        script: Path,
        argument: Path,
        targets: Sequence[Stream],
        batches: int,
        console: Console,
        *,
        name: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._script = script
        self._argument = argument
        self._targets = targets
        self._batches = batches
        self._console = console
        self._name = f"{name}, " if name else ""
        self._environment = own_environment(argument.parent) if environment is None else environment
        self._runs = 0
        self._began_s = 0.0

    def strike(self, kill: Kill, started_s: float) -> list[Hit]:
        """Run the application until the planned moment, and kill the victim; repeat it if the kill came too late.

        Returns:
            One hit for each try; the last one counts.

        Raises:
            DemoError: the application failed, stopped making progress, or ended before the moment; or all kills came
                too late.
        """
        hits: list[Hit] = []
        for _ in range(ATTEMPTS_PER_KILL):
            hits.append(self._hit(kill))
            self._console.hit(hits[-1], hits[-1].killed_at_s - started_s)
            self._bring_back(kill.victim)
            if hits[-1].counts:
                return hits
        raise DemoError(f"{self._name}{ATTEMPTS_PER_KILL} kills in a row came too late")

    def run_to_end(self) -> None:
        """Run the application to its end.

        Raises:
            DemoError: the application failed or stopped making progress.
        """
        app, watch = self._begin()
        try:
            while app.exit_code is None:
                watch()
                time.sleep(END_POLL_S)
        finally:
            app.kill()
        if app.exit_code != 0:
            raise DemoError(f"{watch.title}: the application failed (exit code {app.exit_code})\n{app.last_words()}")

    def show(self, text: str) -> None:
        """Show the progress of the application."""
        self._console.progress(text)

    def describe(self, states: list[State]) -> str:
        """Return the number of batches of each stream as a text."""
        if any(isinstance(target, Target) and target.read_back.exists() for target in self._targets):
            return "Spark reads the result"
        of = f" of {self._batches}" if self._batches else ""
        done = [f"{state.recorded + 1}{of}" for state in states]
        if len(done) == 1:
            return f"{done[0]} batches"
        return "batches: " + ", ".join(f"{each.name} {count}" for each, count in zip(self._targets, done, strict=True))

    def observe(self) -> list[State]:
        """Read the state of every stream."""
        return [observe(target) for target in self._targets]

    def _hit(self, kill: Kill) -> Hit:
        app, watch = self._begin()
        try:
            hit = hunt(app, kill, self._targets, watch)
        finally:
            app.kill()
        if hit is None:
            ended = f"ended (exit code {app.exit_code}) before {kill.target} was {kill.moment.value}"
            error = DemoError if app.exit_code else MomentMissed
            raise error(f"{watch.title}: {ended}\n{app.last_words()}")
        return hit

    def _bring_back(self, victim: Victim) -> None:
        """Restart the servers that were killed."""

    def _begin(self) -> tuple[Application, Watch]:
        """Start the application, and return it with its watch."""
        self._runs += 1
        self._began_s = time.monotonic()
        log = self._argument.with_suffix(".log")
        return SparkApp(self._script, self._argument, log, self._environment), self._watch()

    def _watch(self, *, starts: bool = True) -> Watch:
        return Watch(self, f"{self._name}run {self._runs}", self._began_s, starts=starts)


class Watch:
    """Shows the progress of a running job, and stops waiting for a job without progress.

    Args:
        job: the running job.
        title: of this run.
        began_s: monotonic time when the run began.
        starts: the application is starting, so no stream has moved yet.
    """

    def __init__(self, job: Job, title: str, began_s: float, *, starts: bool) -> None:
        self._job = job
        self.title = title
        self._looked_at_s = 0.0
        self._began_s = began_s
        self._moved_at_s = time.monotonic()
        self._states = job.observe()
        self._has_moved = not starts

    def __call__(self) -> None:
        """Check the progress, but not more often than a person can read it.

        Raises:
            DemoError: no stream has moved for a long time.
        """
        now_s = time.monotonic()
        if now_s - self._looked_at_s < PROGRESS_INTERVAL_S:
            return
        self._looked_at_s = now_s
        states = self._job.observe()
        if states != self._states:
            self._states, self._moved_at_s, self._has_moved = states, now_s, True
        if now_s - self._moved_at_s > STALL_TIMEOUT_S:
            raise DemoError(f"{self.title}: no stream has moved for {STALL_TIMEOUT_S:.0f} s")
        doing = self._job.describe(states) if self._has_moved else "Spark starts"
        self._job.show(f"{self.title}, {now_s - self._began_s:.0f} s: {doing}")
