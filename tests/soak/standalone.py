"""The place on a standalone cluster: a master and two workers with executors, which are also killed and stopped."""

from __future__ import annotations

import shutil
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests.archives import spark_options
from tests.cluster.cluster import SPECULATION, Cluster
from tests.demos.files.process import own_environment
from tests.soak.place import VICTIMS, After, Place, Server
from tests.soak.processes import roles_of, send

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.demos.files.process import SessionApp

__all__ = ("StandalonePlace",)

WORKER = "deploy.worker.Worker"
WORKERS = ("worker0", "worker1")


class StandalonePlace(Place):
    """Two workers of one core each, with speculation, and a local disk.

    The victim `python` is a Python process of the driver or of an executor. A worker is killed with its executor.
    """

    name = "standalone"
    patience_s = 120.0
    server_share = 0.25
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
        for name in WORKERS:
            self._cluster.start_worker(name)
        self.servers = {name: self._server(name) for name in WORKERS}

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

    def settle(self) -> None:
        """Wait until all workers are registered."""
        for name in WORKERS:
            self.cluster.wait_for_worker(name)

    def _server(self, name: str) -> Server:
        """Return a worker. It is killed with its executor, and stopped without it."""

        def processes() -> list[int]:
            return self.cluster.workers[name].members(WORKER)

        def kill() -> None:
            self.cluster.workers[name].kill()  # another process after each start

        def start() -> None:
            if not processes():
                self.cluster.start_worker(name, wait=False)

        return Server(
            kill=kill,
            start=start,
            freeze=lambda: send(processes(), signal.SIGSTOP),
            thaw=lambda: send(processes(), signal.SIGCONT),
        )
