"""Shared parts of demonstrations with one stream: its application, which is killed, and a companion process."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.demos.files.kill import LONGEST_DELAY_S, Kill, Moment
from tests.demos.files.process import own_environment
from tests.demos.files.report import count_kills
from tests.demos.files.restarts import DemoError, Job
from tests.demos.files.sinks import Stream, observe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.demos.files.kill import Hit
    from tests.demos.files.report import Console

__all__ = ("Companion", "OneStream")

# For an endless stream, the greatest number of batches between two kills.
BATCHES_PER_KILL = 4


class OneStream:
    """A stream whose application is killed in each moment in sequence, in a separate directory.

    Args:
        root: the directory, empty.
        console: shows the events.
        seed: draws the kills.
        script: of the application; see `write_job`.
        batches: number of batches of the stream; 0 if it runs until it is killed.
    """

    def __init__(self, root: Path, console: Console, seed: int, script: str, batches: int = 0) -> None:
        self.root = root
        self.console = console
        self.drawn = random.Random(seed)
        self.environment = own_environment(root)
        self.target = Stream("the stream", "ftfile", root / "output", root / "checkpoint")
        self._batches = batches
        self._job = Job(Path(script), root / "job.json", [self.target], batches, console)
        self._began_s = time.monotonic()
        (root / "scratch").mkdir()

    def write_job(self, **more: object) -> None:
        """Write the settings of the application's next runs: all paths, and more."""
        where = {"output": self.target.output, "checkpoint": self.target.checkpoint, "scratch": self.root / "scratch"}
        self.write("job", **where, **more)

    def write(self, name: str, **job: object) -> Path:
        """Write the settings of a program to a file and return its path."""
        path = self.root / f"{name}.json"
        path.write_text(json.dumps(job, default=str), encoding="utf-8")
        return path

    def begin_beside(self, script: str, **job: object) -> Companion:
        """Start a process that runs together with the application."""
        return Companion(Path(script), self.write(Path(script).stem, **job), self.environment)

    def strike(self, kills: int) -> list[Hit]:
        """Run the application until it was killed this often.

        Returns:
            One hit for each try; some tries may have come too late.

        Raises:
            DemoError: it failed, stopped making progress, or ended before.
        """
        hits: list[Hit] = []
        for number in range(kills):
            moment = list(Moment)[number % len(Moment)]
            begun = observe(self.target).begun
            # No kill uses more than its share of the remaining batches: it may succeed only in a later batch.
            share = (self._batches - 1 - begun) // (kills - number + 1) if self._batches else BATCHES_PER_KILL
            not_before = begun + self.drawn.randint(2, max(share, 2))
            delay_s = self.drawn.uniform(0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
            hits += self._job.strike(Kill(self.target.name, moment, not_before, delay_s), self._began_s)
        return hits

    def run_to_end(self) -> None:
        """Run the application to its end.

        Raises:
            DemoError: it failed or stopped making progress.
        """
        self._job.run_to_end()

    def describe(self, hits: Sequence[Hit]) -> str:
        """Return the number of batches and of kills as a text."""
        return f"{observe(self.target).committed + 1} micro-batches, {count_kills(hits)}"

    def elapsed(self) -> str:
        """Return the elapsed time as a text."""
        return f"{time.monotonic() - self._began_s:.1f} s"


class Companion:
    """A process that runs until its standard input closes, and then prints its result as JSON."""

    def __init__(self, script: Path, argument: Path, environment: dict[str, str]) -> None:
        self._script = script
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(argument)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Companion:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def end(self) -> Any:
        """Close its standard input, wait for its end, and return its result.

        Raises:
            DemoError: it failed.
        """
        said, _ = self._process.communicate()
        if self._process.returncode:
            raise DemoError(f"{self._script.name} failed (exit code {self._process.returncode})")
        return json.loads(said)
