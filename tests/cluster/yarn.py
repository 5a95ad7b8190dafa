"""A YARN on an HDFS: a ResourceManager and NodeManagers in separate processes, and applications submitted to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from tests.archives import archive_options, spark_class_path, spark_options
from tests.demos.files.process import session_members
from tests.guarded import JVM, CannotStart, Guarded, free_ports, java
from tests.hdfs.jars import class_path, yarn_jars
from tests.hdfs.servers import ANSWER_S, LOG4J, write_site

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.hdfs.minicluster import MiniCluster

__all__ = ("ANY", "MASTER", "Yarn")

SPARK_HOME = Path(pyspark.__file__).parent
SERVER = "org.apache.hadoop.yarn.server"
HOST = "127.0.0.1"
# The end of the id of the container in which an attempt of an application starts: of Spark's application master.
MASTER = "_000001"
# Matches the end of the id of any container.
ANY = r"_\d{6}"

RM_ADDRESSES = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
NODE_ADDRESSES = ("address", "localizer.address", "webapp.address")

# Settings of yarn-site.xml for all servers.
COMMON = {
    "yarn.resourcemanager.hostname": HOST,
    "yarn.resourcemanager.scheduler.class": f"{SERVER}.resourcemanager.scheduler.capacity.CapacityScheduler",
    "yarn.resourcemanager.am.max-attempts": "20",
    "yarn.resourcemanager.recovery.enabled": "true",
    "yarn.resourcemanager.store.class": f"{SERVER}.resourcemanager.recovery.FileSystemRMStateStore",
    "yarn.resourcemanager.connect.retry-interval.ms": "500",
    "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "1000",
    "yarn.scheduler.minimum-allocation-mb": "128",
    "yarn.nodemanager.resource.memory-mb": "4096",
    "yarn.nodemanager.resource.cpu-vcores": "8",
    # A host of tests may be full or short of memory.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.vmem-check-enabled": "false",
    # Both count from the start of a container, which takes long on a busy machine.
    "yarn.am.liveness-monitor.expiry-interval-ms": "600000",
    "yarn.resourcemanager.rm.container-allocation.expiry-interval-ms": "600000",
    "yarn.nm.liveness-monitor.expiry-interval-ms": "600000",
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
    "yarn.nodemanager.sleep-delay-before-sigkill.ms": "250",
}
SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.root.default.state": "RUNNING",
    # With the default of 0.1, no application starts on small nodes.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
}
# Settings of every application. Its JVMs start from the class archive, which is for class paths that begin like this.
APPLICATION = {
    "spark.driver.extraClassPath": spark_class_path(),
    "spark.executor.extraClassPath": spark_class_path(),
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "2",
    "spark.network.timeout": "900s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.yarn.am.waitTime": "600s",
    "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",
    "spark.yarn.maxAppAttempts": "10",
    "spark.yarn.report.interval": "200ms",
    "spark.yarn.scheduler.heartbeat.interval-ms": "500",
    "spark.yarn.scheduler.initial-allocation.interval": "100ms",
}


class Yarn(Guarded):
    """A running YARN; a `with` block ends it, and the processes of all containers.

    Attributes:
        conf: the directory of the configuration files, for HADOOP_CONF_DIR.

    Args:
        hdfs: the default file system, also of the applications' files.
        nodes: number of NodeManagers.
        settings: more settings of yarn-site.xml.
    """

    def __init__(self, hdfs: MiniCluster, nodes: int = 2, settings: Mapping[str, str] | None = None) -> None:
        self._java = java()
        self._class_path = os.pathsep.join(map(str, [*class_path(), *yarn_jars()]))
        self._jvm = ["-Xmx300m", *JVM, *archive_options(os.pathsep.join(map(str, class_path())))]
        super().__init__("YARN")
        self.conf = self.directory / "conf"
        self._hdfs = hdfs
        self._nodes = nodes
        self._more = settings or {}
        ports = free_ports(len(RM_ADDRESSES) + nodes * len(NODE_ADDRESSES))
        self._ports = ports[: len(RM_ADDRESSES)]
        self._configure(ports[len(RM_ADDRESSES) :])
        try:
            self.start_resource_manager()
            for number in range(nodes):
                self.start_node(number)
            self.wait_for_nodes()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Yarn:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    @property
    def pages(self) -> str:
        """Return the URL of the ResourceManager's web pages."""
        return f"http://{HOST}:{self._ports[-1]}"

    def start_resource_manager(self) -> None:
        """Start the ResourceManager, also after a kill: it recovers its applications."""
        self._start("resourcemanager", "resourcemanager.ResourceManager", self.conf)

    def start_node(self, number: int) -> None:
        """Start a NodeManager."""
        self._start(f"node{number}", "nodemanager.NodeManager", self.directory / f"conf{number}")

    def start_missing_nodes(self) -> None:
        """Start the NodeManagers that were killed, and wait until all are registered."""
        for number in range(self._nodes):
            if not self.is_up(f"node{number}"):
                self.start_node(number)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until all nodes are registered.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        self.wait_for("register the nodes", lambda: len(self.running_nodes()) == self._nodes)

    def running_nodes(self) -> list[str]:
        """Return the addresses of the registered nodes that run, from `/ws/v1/cluster/nodes`."""
        try:
            nodes = self.report("nodes")["nodes"] or {}
        except (OSError, http.client.HTTPException):
            return []
        return [node["id"] for node in nodes.get("node", []) if node["state"] == "RUNNING"]

    def report(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the response of the ResourceManager to GET, or with a body to POST."""
        data, method = (None, "GET") if body is None else (json.dumps(body).encode(), "POST")
        url, headers = f"{self.pages}/ws/v1/cluster/{path}", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            text = reply.read()
        content: dict[str, Any] = json.loads(text or b"{}")
        return content

    def run_command(self, command: str) -> str:
        """Run a shell command in a container, as an application; return the application's id."""
        application: str = self.report("apps/new-application", {})["application-id"]
        container = {"commands": {"command": command}}
        description = {"application-id": application, "application-type": "SHELL", "am-container-spec": container}
        self.report("apps", {**description, "resource": {"memory": 128, "vCores": 1}})
        return application

    def node_of(self, process: int) -> int:
        """Return the number of the NodeManager that started the container of a process."""
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        [directories] = [text.decode() for text in variables if text.startswith(b"LOCAL_DIRS=")]
        return int(directories.removeprefix(f"LOCAL_DIRS={self.directory}/local").partition("/")[0])

    def container_processes(self, ending: str = "", node: int | None = None) -> list[int]:
        """Return the processes of all containers whose id has this ending, of one NodeManager or of all."""
        local = self.directory if node is None else self.directory / f"local{node}"
        place = re.compile(f"^LOCAL_DIRS={re.escape(str(local))}/".encode(), re.MULTILINE)
        container = re.compile(f"^CONTAINER_ID=.*{ending}$".encode(), re.MULTILINE)
        processes = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                variables = (entry / "environ").read_bytes().replace(b"\0", b"\n")
            except OSError:  # the process has ended
                continue
            if place.search(variables) and container.search(variables):
                processes.append(int(entry.name))
        return sorted(processes)

    def attempts(self, name: str) -> list[dict[str, Any]]:
        """Return the attempts of the newest application that was submitted with this name."""
        application = self.applications(name)[-1]
        attempts: list[dict[str, Any]] = self.report(f"apps/{application}/appattempts")["appAttempts"]["appAttempt"]
        return attempts

    def applications(self, name: str) -> list[str]:
        """Return the ids of the applications that were submitted with this name, in the order of their submission."""
        applications = (self.report("apps")["apps"] or {}).get("app", [])
        return sorted(app["id"] for app in applications if app["name"] == name)

    def newest_processes(self, name: str, ending: str) -> list[int]:
        """Return the processes of the newest attempt of a submitted application, in containers with this ending."""
        number = self.applications(name)[-1].removeprefix("application")
        return self.container_processes(f"{number}_{len(self.attempts(name)):02}{ending}")

    def submitted_processes(self, name: str) -> tuple[int, ...]:
        """Return the processes of a `spark-submit`. In client mode, they are the driver."""
        return session_members(self._servers[name].pid)

    def submitted_output(self, name: str) -> str:
        """Return the output of a `spark-submit`."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a `spark-submit`; None while it runs."""
        return self._servers[name].poll()

    def submit(self, name: str, home: Path, variables: Mapping[str, str], arguments: Sequence[str]) -> None:
        """Start `spark-submit` in a directory, as the server `name`; the arguments follow the settings."""
        settings = [word for item in self.settings().items() for word in ("--conf", "=".join(item))]
        environment = {
            **variables,
            "HADOOP_CONF_DIR": str(self.conf),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": HOST,
            "JAVA_TOOL_OPTIONS": spark_options(),
        }
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", "yarn", "--name", name, *settings, *arguments]
        self._launch(name, command, directory=home, environment=environment)

    def wait_for_end(self, name: str) -> None:
        """Wait until a submitted application has ended.

        Raises:
            CannotStart: it failed.
        """
        process = self._servers[name]
        try:
            self.wait_for(f"end {name}", lambda: process.poll() == 0)
        except CannotStart as error:
            raise CannotStart(f"{error}\n{self.container_output()}") from error
        finally:
            self.kill(name)

    def container_output(self, length: int = 5000) -> str:
        """Return the end of each container's output."""
        files = sorted(self.directory.glob("logs*/*/*/std*"))
        return "\n".join(f"{file}: {file.read_text(errors='replace')[-length:]}" for file in files)

    def settings(self) -> dict[str, str]:
        """Return the settings of Spark of every application."""
        options = spark_options()
        return APPLICATION | {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}

    def _configure(self, ports: list[int]) -> None:
        settings = {
            **COMMON,
            **self._more,
            "yarn.resourcemanager.fs.state-store.uri": (self.directory / "state").as_uri(),
            "hadoop.http.staticuser.user": os.environ.get("USER", "root"),
        }
        for address, port in zip(RM_ADDRESSES, self._ports, strict=True):
            settings[f"yarn.resourcemanager.{address}"] = f"{HOST}:{port}"
        self._write_conf(self.conf, settings)
        for number in range(self._nodes):
            # Spark starts a speculative attempt of a task only on another host.
            host = f"127.0.0.{number + 1}"
            node = {
                **settings,
                "yarn.nodemanager.hostname": host,
                "yarn.nodemanager.local-dirs": str(self.directory / f"local{number}"),
                "yarn.nodemanager.log-dirs": str(self.directory / f"logs{number}"),
            }
            for address in NODE_ADDRESSES:
                node[f"yarn.nodemanager.{address}"] = f"{host}:{ports.pop()}"
            self._write_conf(self.directory / f"conf{number}", node)

    def _write_conf(self, directory: Path, yarn: Mapping[str, str]) -> None:
        directory.mkdir()
        for name in ("core-site.xml", "hdfs-site.xml"):
            shutil.copy(self._hdfs.conf / name, directory)
        write_site(directory / "yarn-site.xml", yarn)
        write_site(directory / "capacity-scheduler.xml", SCHEDULER)
        (directory / "log4j2.properties").write_text(LOG4J)

    def _start(self, name: str, server: str, conf: Path) -> None:
        entries = f"{self._class_path}{os.pathsep}{conf}"
        # Containers get the variable of their NodeManager.
        environment = os.environ | {"JAVA_HOME": str(Path(self._java).resolve().parents[1])}
        command = [self._java, *self._jvm, "-cp", entries, f"{SERVER}.{server}"]
        self._launch(name, command, environment=environment)
