"""Servers of Hadoop, each a process of its own, with one temporary directory for their data and logs.

Each can be killed and started again, with the same data at the same address. Whatever becomes of the process that
started them, nothing is left: a guard waits for its end, kills the servers and removes the directory.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from tests.demo.process import list_processes
from tests.hdfs.jars import CannotStart, class_path, java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = ("COMMON", "DATA_NODE", "NAME_NODE", "Servers", "bean", "free_ports", "is_registered", "write_site")

START_TIMEOUT_S = 90.0
POLL_S = 0.05

# C1 alone: the servers live for seconds, and share the machine with what is tested.
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"

# Each line it reads is the list of servers that run now; at the end of its input they have lost their owner.
GUARD = (
    'trap "" INT TERM HUP; while read -r line; do pids=$line; done; kill -9 $pids 2>/dev/null; rm -rf "$0"; '
    '[ -z "$1" ] || ip netns delete "$1" 2>/dev/null'
)

LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# Of hdfs-site.xml, for every kind of cluster.
COMMON = {
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    # A DataNode that is gone counts as dead after 12 s, not 10 min.
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.heartbeat.recheck-interval": "1000",
    "dfs.namenode.redundancy.interval.seconds": "1",
    # As delivered, half of all closes wait 400 ms.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
}


class Servers:
    """Processes of Hadoop, by name; a `with` block ends them.

    Attributes:
        directory: with the servers' data and logs.

    Args:
        jvm: more arguments of every JVM.
        namespace: of the network, that is removed at the end.
    """

    def __init__(self, jvm: Sequence[str] = (), namespace: str = "") -> None:
        self._java = java()
        self._jvm = [*JVM, *jvm]
        self._class_path = os.pathsep.join(map(str, class_path()))
        self.directory = Path(tempfile.mkdtemp(prefix="ftfile-hdfs-"))
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self.directory), namespace], stdin=subprocess.PIPE, start_new_session=True
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def processes(self) -> dict[str, int]:
        """Return the process ids of the servers that run, by name."""
        return {name: server.pid for name, server in self._servers.items()}

    def freeze(self, name: str) -> None:
        """Stop a server where it stands: it takes connections, and answers nothing."""
        self._servers[name].send_signal(signal.SIGSTOP)
        # Until the signal has arrived it goes on answering.
        number = self._servers[name].pid
        self.wait_for("stop", lambda: any(each.number == number and each.state == "T" for each in list_processes()))

    def thaw(self, name: str) -> None:
        """Let a frozen server go on."""
        self._servers[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """SIGKILL a server; nothing where it does not run."""
        server = self._servers.pop(name, None)
        if server is not None:
            server.kill()
            server.wait()
            self._tell_guard()

    def wait_for(self, what: str, look: Callable[[], object]) -> None:
        """Wait until `look` returns something true.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not look():
            for name, server in self._servers.items():
                if server.poll() is not None:
                    raise CannotStart(f"the {name} ended with {server.returncode}: {self._last_words(name)}")
            if time.monotonic() > deadline_s:
                logs = "\n".join(f"{name}: {self._last_words(name)}" for name in self._servers)
                raise CannotStart(f"HDFS took more than {START_TIMEOUT_S:.0f} s to {what}; {logs}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Kill all servers and remove the directory; idempotent."""
        for name in [*self._servers]:
            self.kill(name)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, name: str, main: str, conf: Path, *prefix: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                [*prefix, *self._command(conf, main)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
            )
        self._tell_guard()

    def _run_to_end(self, name: str, main: str, *arguments: str, conf: Path) -> str:
        command = self._command(conf, main, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, timeout=60, check=False)
        if done.returncode != 0:
            raise CannotStart(f"{name} of HDFS ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        return done.stdout

    def _write_conf(self, directory: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> None:
        directory.mkdir()
        write_site(directory / "core-site.xml", {**core, "hadoop.tmp.dir": str(self.directory / "tmp")})
        write_site(directory / "hdfs-site.xml", hdfs)
        (directory / "log4j2.properties").write_text(LOG4J)
        (directory / "hadoop-metrics2.properties").write_text("*.periodMillis=50\n")

    def _command(self, conf: Path, main: str, *arguments: str) -> list[str]:
        return [self._java, *self._jvm, "-cp", f"{conf}{os.pathsep}{self._class_path}", main, *arguments]

    def _tell_guard(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(" ".join(str(server.pid) for server in self._servers.values()).encode() + b"\n")
        self._guard.stdin.flush()

    def _last_words(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]


def free_ports(count: int) -> list[int]:
    """Return ports that nobody uses at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def bean(address: str, service: str, name: str) -> dict[str, Any]:
    """Return a bean of a server, such as `FSNamesystemState`; empty as long as it does not answer."""
    url = f"http://{address}/jmx?qry=Hadoop:service={service},name={name}"
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            beans: list[dict[str, Any]] = json.load(reply)["beans"]
    except (OSError, http.client.HTTPException):
        return {}
    return beans[0] if beans else {}


def is_registered(address: str) -> bool:
    """Return True if the NameNodes that a DataNode knows have taken it."""
    actors = json.loads(bean(address, "DataNode", "DataNodeInfo").get("BPServiceActorInfo", "[]"))
    return bool(actors) and all(actor["ActorState"] == "RUNNING" for actor in actors)


def write_site(path: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
