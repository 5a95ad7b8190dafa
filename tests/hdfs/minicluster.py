"""A local HDFS: a NameNode and DataNodes, each a process of its own, on free ports, in a temporary directory.

Each server can be killed and started again, with the same data at the same address. Whatever becomes of the process
that started them, nothing is left: a guard waits for its end, kills the servers and removes the directory.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from tests.demo.process import list_processes
from tests.hdfs.jars import CannotStart, class_path, java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

__all__ = ("MiniCluster",)

START_TIMEOUT_S = 90.0
POLL_S = 0.05

# C1 alone: the servers live for seconds, and share the machine with what is tested.
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"

# Each line it reads is the list of servers that run now; at the end of its input they have lost their owner.
GUARD = 'trap "" INT TERM HUP; while read -r line; do pids=$line; done; kill -9 $pids 2>/dev/null; rm -rf "$0"'

LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class MiniCluster:
    """A running HDFS; a `with` block ends it.

    Attributes:
        directory: with the servers' data and logs.
        conf: the directory of core-site.xml and hdfs-site.xml, as HADOOP_CONF_DIR names it.

    Args:
        datanodes: how many.
        settings: more of hdfs-site.xml, for servers and clients.
    """

    def __init__(self, datanodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self._java = java()
        self._class_path = os.pathsep.join(map(str, class_path()))
        self.directory = Path(tempfile.mkdtemp(prefix="ftfile-hdfs-"))
        self.conf = self.directory / "conf"
        self._rpc_port, self._http_port, *ports = _free_ports(2 + 3 * datanodes)
        self._data_ports = [ports[3 * number : 3 * number + 3] for number in range(datanodes)]
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._configure(settings or {})
            self._run_to_end("format", NAME_NODE, "-format", "-nonInteractive", "-force")
            self._start("namenode", NAME_NODE, self.conf)
            for number in range(datanodes):
                self.start_datanode(number, wait=False)
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> MiniCluster:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return the root for Hadoop's own protocol."""
        return f"hdfs://127.0.0.1:{self._rpc_port}"

    @property
    def web_url(self) -> str:
        """Return the root for WebHDFS."""
        return f"webhdfs://127.0.0.1:{self._http_port}"

    @property
    def pages(self) -> str:
        """Return where a browser looks."""
        return f"http://127.0.0.1:{self._http_port}/"

    @property
    def processes(self) -> dict[str, int]:
        """Return the process ids of the servers that run, by name."""
        return {name: server.pid for name, server in self._servers.items()}

    def kill_namenode(self) -> None:
        """SIGKILL it."""
        self._kill("namenode")

    def start_namenode(self, *, wait: bool = True) -> None:
        """Start it again, with the same data at the same ports."""
        self._start("namenode", NAME_NODE, self.conf)
        if wait:
            self.wait_until_ready()

    def kill_datanode(self, number: int = 0) -> None:
        """SIGKILL one."""
        self._kill(f"datanode{number}")

    def start_datanode(self, number: int = 0, *, wait: bool = True) -> None:
        """Start one again, with the same data at the same ports."""
        self._start(f"datanode{number}", DATA_NODE, self.directory / f"conf{number}")
        if wait:
            self.wait_until_ready()

    def freeze(self, name: str) -> None:
        """Stop a server where it stands: it takes connections, and answers nothing."""
        self._servers[name].send_signal(signal.SIGSTOP)
        # Until the signal has arrived it goes on answering.
        number = self._servers[name].pid
        self.wait_for("stop", lambda: any(each.number == number and each.state == "T" for each in list_processes()))

    def thaw(self, name: str) -> None:
        """Let a frozen server go on."""
        self._servers[name].send_signal(signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Wait until all DataNodes that run can be written to, and the NameNode has left its safe mode.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        self.wait_for("be ready", self._is_ready)

    def wait_for(self, what: str, look: Callable[[], bool]) -> None:
        """Wait until `look` says yes.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not look():
            for name, server in self._servers.items():
                if server.poll() is not None:
                    raise CannotStart(f"the {name} ended with {server.returncode}: {self._last_words(name)}")
            if time.monotonic() > deadline_s:
                raise CannotStart(f"HDFS took more than {START_TIMEOUT_S:.0f} s to {what}")
            time.sleep(POLL_S)

    def admin(self, *arguments: str) -> str:
        """Run `hdfs dfsadmin` and return what it printed; it takes a second."""
        return self._run_to_end("admin", "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)

    def bean(self, name: str) -> dict[str, Any]:
        """Return a bean of the NameNode, such as `FSNamesystemState`; empty as long as it does not answer."""
        return _bean(self._http_port, "NameNode", name)

    def device_syncs(self) -> int:
        """Return how often the DataNodes synced a block to their disks since they were started."""
        beans = [_bean(http_port, "DataNode", "DataNodeActivity*") for _, http_port, _ in self._data_ports]
        return sum(int(bean["FsyncCount"]) for bean in beans)

    def set_space_quota(self, path: str, size_bytes: int | None) -> None:
        """Limit what a directory takes, all replicas counted; None for no limit."""
        self._change(
            path,
            "SETQUOTA",
            namespacequota=2**63 - 1,
            storagespacequota=-1 if size_bytes is None else size_bytes,
        )

    def make_coded_directory(self, path: str, policy: str) -> None:
        """Make a directory of erasure-coded files; the policy `replication` makes one of others below such a one."""
        if policy != "replication":
            self._change("/", "ENABLEECPOLICY", ecpolicy=policy)
        self._change(path, "MKDIRS")
        self._change(path, "SETECPOLICY", ecpolicy=policy)

    def stop(self) -> None:
        """Kill all servers and remove the directory; idempotent."""
        for name in [*self._servers]:
            self._kill(name)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _change(self, path: str, operation: str, **parameters: str | int) -> None:
        query = urllib.parse.urlencode({"op": operation, "user.name": getpass.getuser(), **parameters})
        request = urllib.request.Request(f"{self.pages}webhdfs/v1{path}?{query}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def _is_ready(self) -> bool:
        state = self.bean("FSNamesystemState")
        ports = [self._data_ports[int(name[8:])] for name in self._servers if name.startswith("datanode")]
        if state.get("FSState") != "Operational" or state.get("NumLiveDataNodes", 0) < len(ports):
            return False
        return all(_is_registered(http_port) for _, http_port, _ in ports)

    def _configure(self, settings: Mapping[str, str]) -> None:
        hdfs = {
            "dfs.namenode.rpc-address": f"127.0.0.1:{self._rpc_port}",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http_port}",
            "dfs.namenode.name.dir": (self.directory / "name").as_uri(),
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            # A DataNode that is gone counts as dead after 12 s, not 10 min.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.heartbeat.recheck-interval": "1000",
            "dfs.namenode.redundancy.interval.seconds": "1",
            "dfs.replication": str(len(self._data_ports)),
            # Tokens also without Kerberos.
            "dfs.namenode.delegation.token.always-use": "true",
            # As delivered, half of all closes wait 400 ms.
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
            **settings,
        }
        self._write_conf(self.conf, hdfs)
        for number, ports in enumerate(self._data_ports):
            names = ("address", "http.address", "ipc.address")
            own = {f"dfs.datanode.{name}": f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
            own |= {
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.datanode.data.dir": (self.directory / f"data{number}").as_uri(),
            }
            self._write_conf(self.directory / f"conf{number}", hdfs | own)

    def _write_conf(self, directory: Path, hdfs: Mapping[str, str]) -> None:
        directory.mkdir()
        core = {"fs.defaultFS": self.url, "hadoop.tmp.dir": str(self.directory / "tmp")}
        _write_site(directory / "core-site.xml", core)
        _write_site(directory / "hdfs-site.xml", hdfs)
        (directory / "log4j2.properties").write_text(LOG4J)
        (directory / "hadoop-metrics2.properties").write_text("*.periodMillis=50\n")

    def _command(self, conf: Path, main: str, *arguments: str) -> list[str]:
        class_path = f"{conf}{os.pathsep}{self._class_path}"
        return [self._java, *JVM, "-cp", class_path, main, *arguments]

    def _start(self, name: str, main: str, conf: Path) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                self._command(conf, main),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
            )
        self._tell_guard()

    def _kill(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is not None:
            server.kill()
            server.wait()
            self._tell_guard()

    def _tell_guard(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(" ".join(str(server.pid) for server in self._servers.values()).encode() + b"\n")
        self._guard.stdin.flush()

    def _run_to_end(self, name: str, main: str, *arguments: str) -> str:
        command = self._command(self.conf, main, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, timeout=60, check=False)
        if done.returncode != 0:
            raise CannotStart(f"{name} of HDFS ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def _last_words(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _bean(port: int, service: str, name: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service={service},name={name}"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            beans: list[dict[str, Any]] = json.load(reply)["beans"]
    except (OSError, http.client.HTTPException):
        return {}
    return beans[0] if beans else {}


def _is_registered(http_port: int) -> bool:
    actors = json.loads(_bean(http_port, "DataNode", "DataNodeInfo").get("BPServiceActorInfo", "[]"))
    return bool(actors) and all(actor["ActorState"] == "RUNNING" for actor in actors)


def _write_site(path: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
