"""A stream on YARN whose tasks and commits are held, and kills of its processes."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.cluster.cluster import command_of, executor_of, java_processes, kill, send
from tests.cluster.held_commit import CommitHold
from tests.cluster.yarn import MASTER
from tests.cluster.yarn_job import FILES_PER_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.yarn import Yarn
    from tests.cluster.yarn_application import Application

__all__ = ("SHUFFLED", "HeldStream")

# Number of tasks of a batch after a shuffle.
SHUFFLED = 3


class HeldStream:
    """A stream whose tasks are held, and kills of its processes. If a method names the driver, it is in cluster mode.

    Attributes:
        application: the stream.
        directory: of the held tasks, on the local disk.
        commit: the hold of its commits.

    Args:
        yarn: runs it.
        application: with its directories.
    """

    def __init__(self, yarn: Yarn, application: Application) -> None:
        self._yarn = yarn
        self.application = application
        self.directory = application.home / "hold"
        self.directory.mkdir()
        (self.directory / "now").touch()
        self.commit = CommitHold(self.directory)

    def interrupt(self, kill_processes: Callable[[], None]) -> None:
        """Kill processes while all tasks of a batch are held, and let a batch be committed.

        At most one more batch is committed.
        """
        self._wait_for_held_batch()
        batches = self.application.batches()
        kill_processes()
        self._wait_for_batches(batches + 1)

    def replace_driver(self, kill_processes: Callable[[], None]) -> None:
        """Kill processes while all tasks of a batch are held, and let the next driver commit a batch."""
        self._wait_for_held_batch()
        attempts = self._attempts()
        run = self.application.newest_run()
        kill_processes()
        self._wait_for_next_driver(attempts, run)

    def kill_executor(self) -> None:
        """Kill the executor of a held task."""
        kill(executor_of(self.held()[0]))

    def kill_resource_manager(self) -> None:
        self._yarn.kill("resourcemanager")

    def kill_master_jvm(self) -> None:
        """Kill the JVM of the application master. Its Python processes must end without a signal."""
        kill(*java_processes(self._master()))

    def kill_node(self) -> None:
        """Kill the NodeManager of the driver. Its containers continue, and commit a batch."""
        batches = self.application.batches()
        self._yarn.kill(f"node{self._node()}")
        self._wait_for_batches(batches + 1)

    def kill_node_with_containers(self) -> None:
        """Kill the NodeManager of the driver and all processes of its containers."""
        node = self._node()
        self._yarn.kill(f"node{node}")
        kill(*self._yarn.container_processes(node=node))

    def freeze_commit(self) -> None:
        """Freeze the host of the driver before it creates a record, and thaw it after commits of the next driver."""
        attempts = self._attempts()
        run = self.application.newest_run()
        self.commit.give_order()
        self._release_until("hold a commit", lambda: self.commit.process() is not None)
        node, committer = self._node(), self.commit.process()
        assert committer is not None
        frozen, master = self._yarn.container_processes(node=node), self._master()
        assert committer in master
        self._yarn.freeze(f"node{node}")
        send(signal.SIGSTOP, frozen)
        self._wait_for_next_driver(attempts, run)
        self._wait_for_batches(self.application.batches() + 1)
        self.commit.release()
        send(signal.SIGCONT, [committer])
        self._yarn.wait_for("continue the held commit", self.commit.calls)
        send(signal.SIGCONT, frozen)
        # The ResourceManager refuses the next heartbeat of the old master.
        self._yarn.wait_for("end the old driver", lambda: not any(map(command_of, master)))
        self._yarn.thaw(f"node{node}")
        self._yarn.wait_for("end the old containers", lambda: not any(map(command_of, frozen)))

    def race_attempts(self) -> None:
        """Let a speculative attempt of a held task win against the first attempt."""
        self._yarn.wait_for("hold tasks", lambda: len(self.held()) >= SHUFFLED)
        self._release(self.held()[0])
        self._yarn.wait_for("start a speculative attempt", self._speculative)
        batches = self.application.batches()
        self._release(self._speculative()[0])
        self._wait_for_batches(batches + 1)

    def decommission_executor(self) -> None:
        """Decommission the executor of a held task, which ends after its tasks."""
        self._wait_for_held_batch()
        executor = executor_of(self.held()[0])
        send(signal.SIGPWR, [executor])
        self._release_until("end the executor", lambda: not command_of(executor))

    def end_hold(self) -> None:
        """Let all tasks continue, now and later."""
        (self.directory / "now").unlink()

    def held(self) -> list[int]:
        """Return the living processes that are held."""
        processes = [int(path.name.partition("-")[2]) for path in self.directory.glob("held-*")]
        return [process for process in processes if command_of(process)]

    def release(self) -> None:
        """Let the held tasks continue."""
        for path in self.directory.glob("held-*"):
            path.unlink(missing_ok=True)

    def _release(self, process: int) -> None:
        """Let the held task of a process continue."""
        (self.directory / f"held-{process}").unlink()

    def _speculative(self) -> list[int]:
        """Return the processes of held tasks that are not the first attempt."""
        processes = []
        for process in self.held():
            _, _, attempt = (self.directory / f"held-{process}").read_text().partition(" ")
            if attempt not in {"", "0"}:
                processes.append(process)
        return processes

    def _attempts(self) -> int:
        return len(self._yarn.attempts(self.application.name))

    def _master(self) -> list[int]:
        """Return the processes of the newest application master."""
        return self._yarn.newest_processes(self.application.name, MASTER)

    def _node(self) -> int:
        return self._yarn.node_of(self._master()[0])

    def _wait_for_held_batch(self) -> None:
        self._yarn.wait_for("hold the tasks of a batch", lambda: len(self.held()) >= FILES_PER_BATCH)

    def _wait_for_batches(self, batches: int) -> None:
        self._release_until("commit a batch", lambda: self.application.batches() >= batches)

    def _wait_for_next_driver(self, attempts: int, run: str | None) -> None:
        """Wait until a driver of a later attempt commits. An earlier one may have committed a batch by then."""
        self._yarn.wait_for("start another driver", lambda: self._attempts() > attempts and self._master())
        self._release_until("commit a batch of another driver", lambda: self.application.newest_run() != run)

    def _release_until(self, event: str, look: Callable[[], bool]) -> None:
        def is_over() -> bool:
            self.release()
            return look()

        self._yarn.wait_for(event, is_over)
