"""The place on a standalone cluster: a master and two workers with executors, which are also killed and stopped."""

from __future__ import annotations

import shutil
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests.archives import spark_options
from tests.cluster.cluster import SPECULATION, Cluster
from tests.demos.files.process import own_environment
from tests.soak.place import VICTIMS, After, Place
from tests.soak.processes import roles_of, send

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.demos.files.process import SessionApp

__all__ = ("StandalonePlace",)

WORKER = "deploy.worker.Worker"


class StandalonePlace(Place):
    """Two workers of one core each, with speculation, and a local disk.

    The victim `python` is a Python process of the driver or of an executor. A worker is killed with its executor.
    """

    name = "standalone"
    patience_s = 120.0
    server_share = 0.25
    servers = ("worker0", "worker1")
    victims: ClassVar[Mapping[str, After]] = MappingProxyType(
        {**VICTIMS, "executor": After.CONTINUES, "all executors": After.CONTINUES}
    )
    settings = MappingProxyType({**SPECULATION, "spark.executor.memory": "512m", "spark.network.timeout": "900s"})

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The running cluster."""
        assert self._cluster is not None
        return self._cluster

    def start(self) -> None:
        """Start the master and the workers."""
        if self._cluster is not None:
            return
        home = self.home / "servers"
        shutil.rmtree(home, ignore_errors=True)
        (home / "scratch").mkdir(parents=True)
        # The master never ends an application because its executors were killed repeatedly.
        options = f"{spark_options()} -Dspark.deploy.maxExecutorRetries=-1"
        self._cluster = Cluster(home, {**own_environment(home), "JAVA_TOOL_OPTIONS": options})
        self._cluster.wait()
        self.master = self._cluster.url
        for server in self.servers:
            self._cluster.start_worker(server)

    def stop(self) -> None:
        """Kill all servers."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def roles(self, app: SessionApp) -> dict[str, list[int]]:
        """Return the living processes by role: `driver`, `jvm`, `python`, `executor`."""
        roles = roles_of(app)
        roles["python"] += self.cluster.python_processes()
        return {**roles, "executor": self.cluster.executors()}

    def kill_server(self, server: str) -> None:
        """SIGKILL a worker and its executor."""
        self.cluster.workers[server].kill()

    def start_server(self, server: str) -> None:
        """Start a killed worker again."""
        if not self._processes(server):
            self.cluster.start_worker(server, wait=False)

    def freeze_server(self, server: str) -> None:
        """Stop a worker by SIGSTOP. Its executor continues."""
        send(self._processes(server), signal.SIGSTOP)

    def thaw_server(self, server: str) -> None:
        """Resume a stopped worker."""
        send(self._processes(server), signal.SIGCONT)

    def settle(self) -> None:
        """Wait until all workers are registered."""
        for server in self.servers:
            self.cluster.wait_for_worker(server)

    def _processes(self, server: str) -> list[int]:
        return self.cluster.workers[server].members(WORKER)
