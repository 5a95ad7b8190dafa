"""The place on YARN in client mode: executors in containers, and a ResourceManager that is also killed and stopped."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests.cluster.cluster import EXECUTOR, PYTHON_WORKER, SPARK_HOME, SPECULATION, command_of, java_processes
from tests.cluster.yarn import ANY, Yarn
from tests.soak.on_hdfs import HdfsPlace
from tests.soak.place import VICTIMS, After, guarded_server
from tests.soak.processes import roles_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.demos.files.process import SessionApp

__all__ = ("YarnPlace",)

SERVER = "resourcemanager"
# In client mode, the application master only starts executors.
MASTER = "ExecutorLauncher"


class YarnPlace(HdfsPlace):
    """A YARN with two nodes, with speculation, directories on its HDFS, and checkpoints on the local disk.

    The victim `python` is a Python process of the driver or of an executor. The servers of HDFS are not struck.
    """

    name = "yarn"
    patience_s = 120.0
    # While the ResourceManager is away, no application starts.
    server_share = 0.15
    master = "yarn"
    victims: ClassVar[Mapping[str, After]] = MappingProxyType(
        {**VICTIMS, "executor": After.CONTINUES, "all executors": After.CONTINUES, "master": After.CONTINUES}
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._yarn: Yarn | None = None

    @property
    def yarn(self) -> Yarn:
        """The running YARN."""
        assert self._yarn is not None
        return self._yarn

    def start(self) -> None:
        """Start HDFS with the data of earlier runs, and a new YARN."""
        super().start()
        if self._yarn is None:
            self._yarn = Yarn(self.cluster)
            self.servers = {SERVER: guarded_server(self._yarn, SERVER, self._yarn.start_resource_manager)}
            self.settings = {**self._yarn.settings(), **SPECULATION}
            # Spark sends its Python archives from its home to the containers.
            home = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
            self.environment = {"HADOOP_CONF_DIR": str(self._yarn.conf), **home}

    def stop(self) -> None:
        """End YARN and HDFS."""
        if self._yarn is not None:
            self._yarn.stop()
            self._yarn = None
        super().stop()

    def roles(self, app: SessionApp) -> dict[str, list[int]]:
        """Return the living processes by role: `driver`, `jvm`, `python`, `executor`, `master`."""
        commands = {number: command_of(number) for number in self.yarn.container_processes(ANY)}
        of_java = java_processes(commands)
        roles = roles_of(app)
        roles["python"] += [number for number, command in commands.items() if PYTHON_WORKER in command]
        executors = [number for number in of_java if EXECUTOR in commands[number]]
        masters = [number for number in of_java if MASTER in commands[number]]
        return {**roles, "executor": executors, "master": masters}

    def settle(self) -> None:
        """Wait until HDFS and YARN are ready."""
        super().settle()
        self.yarn.wait_for_nodes()
