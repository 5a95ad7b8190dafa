"""Hadoop servers, each in a separate process, with one temporary directory for their data and logs."""

from __future__ import annotations

import http.client
import json
import os
import urllib.request
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from tests.archives import archive_options
from tests.guarded import JVM, Guarded, java
from tests.hdfs.jars import class_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = (
    "ANSWER_S",
    "COMMON",
    "DATA_NODE",
    "NAME_NODE",
    "SOON_DEAD",
    "Servers",
    "bean",
    "is_registered",
    "write_site",
)

NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"

LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# Settings of hdfs-site.xml for every kind of cluster.
COMMON = {
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.heartbeat.interval": "1",
    # On a busy machine a DataNode may be silent for minutes, and no server must treat it as dead.
    "dfs.namenode.heartbeat.recheck-interval": "300000",
    "dfs.client.socket-timeout": "600000",
    "dfs.qjournal.write-txns.timeout.ms": "600000",
    "dfs.qjournal.start-segment.timeout.ms": "600000",
    "dfs.qjournal.select-input-streams.timeout.ms": "600000",
    "dfs.namenode.redundancy.interval.seconds": "1",
    # With the default, half of all closes wait 400 ms.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
    # A tenth of a second each, five minutes in all.
    "dfs.client.block.write.locateFollowingBlock.max.delay.ms": "100",
    "dfs.client.block.write.locateFollowingBlock.retries": "3000",
}
# Settings of hdfs-site.xml if there are other DataNodes: a lost DataNode counts as dead after 12 s, not 10 min.
SOON_DEAD = {"dfs.namenode.heartbeat.recheck-interval": "1000"}
# On a busy machine a running server responds late; a killed server refuses connections at once.
ANSWER_S = 120


class Servers(Guarded):
    """Hadoop processes, by name; a `with` block ends them.

    Args:
        jvm: more arguments of every JVM.
        namespace: a network namespace, which is removed at the end.
        home: an existing directory for data and logs, which is kept at the end; by default a temporary directory.
    """

    def __init__(self, jvm: Sequence[str] = (), namespace: str = "", home: Path | None = None) -> None:
        self._java = java()
        self._class_path = os.pathsep.join(map(str, class_path()))
        self._jvm = ["-Xmx256m", *JVM, *archive_options(self._class_path), *jvm]
        super().__init__("HDFS", namespace, home)

    def _start(self, name: str, main: str, conf: Path, *prefix: str) -> None:
        self._launch(name, [*prefix, *self._command(conf, main)])

    def _run_to_end(self, name: str, main: str, *arguments: str, conf: Path) -> str:
        return self._complete(name, self._command(conf, main, *arguments))

    def _write_conf(self, directory: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> None:
        directory.mkdir(exist_ok=True)
        write_site(directory / "core-site.xml", {**core, "hadoop.tmp.dir": str(self.directory / "tmp")})
        write_site(directory / "hdfs-site.xml", hdfs)
        (directory / "log4j2.properties").write_text(LOG4J)
        (directory / "hadoop-metrics2.properties").write_text("*.periodMillis=50\n")

    def _command(self, conf: Path, main: str, *arguments: str) -> list[str]:
        return [self._java, *self._jvm, "-cp", f"{self._class_path}{os.pathsep}{conf}", main, *arguments]


def bean(address: str, service: str, name: str) -> dict[str, Any]:
    """Return a bean of a server, such as `FSNamesystemState`; empty while it does not respond."""
    url = f"http://{address}/jmx?qry=Hadoop:service={service},name={name}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as reply:
            beans: list[dict[str, Any]] = json.load(reply)["beans"]
    except (OSError, http.client.HTTPException):
        return {}
    return beans[0] if beans else {}


def is_registered(address: str) -> bool:
    """Return True if a DataNode is registered with all NameNodes in its configuration."""
    actors = json.loads(bean(address, "DataNode", "DataNodeInfo").get("BPServiceActorInfo", "[]"))
    return bool(actors) and all(actor["ActorState"] == "RUNNING" for actor in actors)


def write_site(path: Path, settings: Mapping[str, str]) -> None:
    """Write a file of Hadoop's configuration."""
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))
