"""The application on YARN, which continues while it and the servers around it are killed."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.cluster import EXECUTOR, command_of, java_processes, kill, send
from tests.cluster.yarn import ANY, MASTER
from tests.demos.files.kill import Victim
from tests.demos.files.restarts import DemoError
from tests.demos.files.struck import StruckJob
from tests.demos.yarn import job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.yarn import Yarn
    from tests.demos.files.kill import Hit, Kill
    from tests.demos.files.process import Application
    from tests.demos.files.report import Console
    from tests.demos.files.restarts import Watch
    from tests.demos.files.sinks import State, Stream

__all__ = ("YarnJob",)

NAME = "demo"
# Enough that the next batch can begin at once.
BATCHES_AHEAD = 2


class YarnJob(StruckJob):
    """The application in cluster mode, and the servers of YARN.

    Args:
        yarn: runs it.
        home: an empty directory for its input.
        files: the text, which becomes its input as the streams proceed.
        streams: the stream of lines, and the stream of words. Their checkpoints are in one directory.
        console: shows the progress.
        environment: of `spark-submit`.
        seed: draws the executors that are killed.
    """

    def __init__(
        self,
        yarn: Yarn,
        home: Path,
        files: Sequence[Path],
        streams: Sequence[Stream],
        *,
        console: Console,
        environment: dict[str, str],
        seed: int,
    ) -> None:
        batches = len(files) // job.FILES_PER_BATCH
        super().__init__(Path(job.__file__), home, streams, batches, console, environment=environment)
        self._stop = home.with_name("stop")
        self._waiting = [*files]
        self._yarn = yarn
        self._drawn = random.Random(seed)

    def run(self, kills: Sequence[Kill], started_s: float) -> list[Hit]:
        """Run the application to its end under the kills. Each stream commits a batch after each kill.

        Raises:
            DemoError: the application failed, stopped making progress, or ended before the last kill.
        """
        hits: list[Hit] = []
        try:
            for planned in kills:
                hits += self.strike(planned, started_s)
                self._wait_for_commits(hits[-1])
            self.run_on(lambda: not self._waiting)
            self._stop.touch()
            self.run_on()
        finally:
            self.end()
        return hits

    def observe(self) -> list[State]:
        """Read the state of every stream, and add files to the input if the streams have read almost all of it.

        While a server is down, nothing is added: otherwise the text could end before the next kill.
        """
        states = super().observe()
        ahead = self._batches - len(self._waiting) // job.FILES_PER_BATCH - min(state.recorded + 1 for state in states)
        if ahead < BATCHES_AHEAD:
            for file in self._waiting[: job.FILES_PER_BATCH]:
                (self._argument / file.name).hardlink_to(file)
            del self._waiting[: job.FILES_PER_BATCH]
        return states

    def masters(self) -> int:
        """Return the number of application masters that YARN has started."""
        return len(self._yarn.attempts(NAME))

    def _wait_for_commits(self, hit: Hit) -> None:
        recorded = [hit.states[stream.name].recorded for stream in self._targets]
        self.run_on(lambda: all(now.recorded > before for now, before in zip(self.observe(), recorded, strict=True)))
        self._console.line(f"{'':11}both streams have committed a batch since the kill")

    def _begin(self) -> tuple[Application, Watch]:
        self._runs += 1
        self._began_s = time.monotonic()
        lines, words = self._targets
        checkpoints = str(lines.checkpoint).rpartition("/")[0]
        paths = [self._argument.as_uri(), lines.output, words.output, checkpoints, self._stop]
        arguments = ["--deploy-mode", "cluster", str(self._script), *map(str, paths)]
        self._yarn.submit(NAME, self._argument.parent, self._environment, arguments)
        return _Submitted(self._yarn), self._watch()

    def _give_up(self, app: Application) -> None:
        """Raise an error: YARN has started the application again as often as it may."""
        raise DemoError(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")

    def _kill_servers(self, victim: Victim) -> None:
        master = self._yarn.newest_processes(NAME, MASTER)
        if victim is Victim.RESOURCE_MANAGER:
            self._yarn.kill("resourcemanager")
        elif victim is Victim.NODE_MANAGER:
            self._yarn.kill(f"node{self._yarn.node_of(master[0])}")
        elif victim is Victim.MASTER:
            kill(*java_processes(master))
        else:
            machines = java_processes(self._yarn.newest_processes(NAME, ANY))
            kill(self._drawn.choice([process for process in machines if EXECUTOR in command_of(process)]))

    def _start_servers(self, victim: Victim) -> None:
        if victim is Victim.RESOURCE_MANAGER:
            self._yarn.start_resource_manager()
            self._yarn.wait_for_nodes()
        else:
            masters = self.masters()
            self._yarn.start_missing_nodes()
            # The ResourceManager ends the containers of the node when the node registers again.
            self._yarn.wait_for("start another application master", lambda: self.masters() > masters)

    def _name_servers(self, victim: Victim) -> str:
        return victim.value

    def _bring_back(self, victim: Victim) -> None:
        # YARN starts another application master, and the master another executor.
        if victim not in {Victim.EXECUTOR, Victim.MASTER}:
            super()._bring_back(victim)


class _Submitted:
    """The submitted application: its exit code is the exit code of `spark-submit`."""

    def __init__(self, yarn: Yarn) -> None:
        self._yarn = yarn
        self._ended: int | None = None

    @property
    def exit_code(self) -> int | None:
        if self._ended is None:
            self._ended = self._yarn.exit_code(NAME)
        return self._ended

    def freeze(self) -> int:
        processes = self._yarn.container_processes()
        send(signal.SIGSTOP, processes)
        return len(processes)

    def thaw(self) -> None:
        send(signal.SIGCONT, self._yarn.container_processes())

    def kill(self) -> None:
        """Kill `spark-submit`. The containers end with the YARN."""
        self._yarn.kill(NAME)

    def last_words(self) -> str:
        return self._yarn.container_output()
