"""A local HDFS: a NameNode and DataNodes, each in a separate process, on free ports, in a temporary directory."""

from __future__ import annotations

import getpass
import json
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.guarded import free_ports, reserve_ports
from tests.hdfs.servers import ANSWER_S, COMMON, DATA_NODE, NAME_NODE, SOON_DEAD, Servers, bean, is_registered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("MiniCluster",)


class MiniCluster(Servers):
    """A running HDFS; a `with` block ends it.

    Attributes:
        directory: with the servers' data and logs.
        conf: the directory of core-site.xml and hdfs-site.xml, for HADOOP_CONF_DIR.

    Args:
        datanodes: number of DataNodes.
        settings: more settings of hdfs-site.xml, for servers and clients.
        core: more settings of core-site.xml.
        jvm: more arguments of every JVM.
        home: an existing directory for data and logs, which is kept at the end. A later cluster with the same directory
            has the same files at the same URLs.
    """

    def __init__(
        self,
        datanodes: int = 1,
        settings: Mapping[str, str] | None = None,
        core: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
        home: Path | None = None,
    ) -> None:
        super().__init__(jvm, home=home)
        self.conf = self.directory / "conf"
        formatted = self.directory / "ports.json"
        is_formatted = formatted.exists()
        if is_formatted:
            drawn = json.loads(formatted.read_text())
            reserve_ports(drawn)
        else:
            drawn = free_ports(2 + 3 * datanodes)
        self._rpc_port, self._http_port, *ports = drawn
        self._data_ports = [ports[3 * number : 3 * number + 3] for number in range(datanodes)]
        self._core = {"fs.defaultFS": self.url, **(core or {})}
        try:
            self._configure(settings or {})
            if not is_formatted:
                self._run_to_end("format", NAME_NODE, "-format", "-nonInteractive", "-force", conf=self.conf)
                formatted.write_text(json.dumps(drawn))
            self._start("namenode", NAME_NODE, self.conf)
            for number in range(datanodes):
                self.start_datanode(number, wait=False)
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> MiniCluster:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    @property
    def url(self) -> str:
        """Return the root for Hadoop's protocol."""
        return f"hdfs://127.0.0.1:{self._rpc_port}"

    @property
    def web_url(self) -> str:
        """Return the root for WebHDFS."""
        return f"webhdfs://127.0.0.1:{self._http_port}"

    @property
    def pages(self) -> str:
        """Return the URL of the web pages."""
        return f"http://127.0.0.1:{self._http_port}/"

    def kill_namenode(self) -> None:
        """Kill the NameNode with SIGKILL."""
        self.kill("namenode")

    def start_namenode(self, *, wait: bool = True) -> None:
        """Start the NameNode again, with the same data on the same ports."""
        self._start("namenode", NAME_NODE, self.conf)
        if wait:
            self.wait_until_ready()

    def kill_datanode(self, number: int = 0) -> None:
        """Kill a DataNode with SIGKILL."""
        self.kill(f"datanode{number}")

    def start_datanode(self, number: int = 0, *, wait: bool = True) -> None:
        """Start a DataNode again, with the same data on the same ports."""
        self._start(f"datanode{number}", DATA_NODE, self.directory / f"conf{number}")
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all running DataNodes are writable and the NameNode has left safe mode.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        self.wait_for("be ready", self._is_ready)

    def admin(self, *arguments: str) -> str:
        """Run `hdfs dfsadmin` and return its output. It takes a second."""
        return self._run_to_end("admin", "org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments, conf=self.conf)

    def bean(self, name: str) -> dict[str, Any]:
        """Return a bean of the NameNode, such as `FSNamesystemState`; empty while it does not respond."""
        return bean(f"127.0.0.1:{self._http_port}", "NameNode", name)

    def device_syncs(self) -> int:
        """Return the number of block syncs to disk by the DataNodes since their start."""
        beans = [
            bean(f"127.0.0.1:{http_port}", "DataNode", "DataNodeActivity*") for _, http_port, _ in self._data_ports
        ]
        return sum(int(each["FsyncCount"]) for each in beans)

    def set_space_quota(self, path: str, size_bytes: int | None) -> None:
        """Limit the size of a directory including all replicas; None removes the limit."""
        self._change(
            path,
            "SETQUOTA",
            namespacequota=2**63 - 1,
            storagespacequota=-1 if size_bytes is None else size_bytes,
        )

    def make_coded_directory(self, path: str, policy: str) -> None:
        """Make a directory of erasure-coded files. The policy `replication` makes a replicated directory inside one."""
        if policy != "replication":
            self._change("/", "ENABLEECPOLICY", ecpolicy=policy)
        self._change(path, "MKDIRS")
        self._change(path, "SETECPOLICY", ecpolicy=policy)

    def _change(self, path: str, operation: str, **parameters: str | int) -> None:
        query = urllib.parse.urlencode({"op": operation, "user.name": getpass.getuser(), **parameters})
        request = urllib.request.Request(f"{self.pages}webhdfs/v1{path}?{query}", method="PUT")
        urllib.request.urlopen(request, timeout=ANSWER_S).close()

    def _is_ready(self) -> bool:
        state = self.bean("FSNamesystemState")
        ports = [self._data_ports[int(name[8:])] for name in self._servers if name.startswith("datanode")]
        if state.get("FSState") != "Operational" or state.get("NumLiveDataNodes", 0) < len(ports):
            return False
        return all(is_registered(f"127.0.0.1:{http_port}") for _, http_port, _ in ports)

    def _configure(self, settings: Mapping[str, str]) -> None:
        hdfs = {
            "dfs.namenode.rpc-address": f"127.0.0.1:{self._rpc_port}",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http_port}",
            "dfs.namenode.name.dir": (self.directory / "name").as_uri(),
            **COMMON,
            **(SOON_DEAD if len(self._data_ports) > 1 else {}),
            "dfs.replication": str(len(self._data_ports)),
            # Delegation tokens also without Kerberos.
            "dfs.namenode.delegation.token.always-use": "true",
            **settings,
        }
        self._write_conf(self.conf, self._core, hdfs)
        for number, ports in enumerate(self._data_ports):
            names = ("address", "http.address", "ipc.address")
            own = {f"dfs.datanode.{name}": f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
            own |= {
                "dfs.datanode.hostname": "127.0.0.1",
                "dfs.datanode.data.dir": (self.directory / f"data{number}").as_uri(),
            }
            self._write_conf(self.directory / f"conf{number}", self._core, hdfs | own)
