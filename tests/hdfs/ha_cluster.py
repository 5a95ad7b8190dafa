"""A local HDFS with two NameNodes, one of them active, and a quorum of JournalNodes.

The first NameNode can run in a separate network namespace whose link is cut. Then packets to it are lost without a
reset, as if the machine had lost its power.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.crash.share import THOROUGH
from tests.guarded import CannotStart, free_ports
from tests.hdfs.servers import COMMON, DATA_NODE, NAME_NODE, Servers, bean, is_registered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("SERVICE", "DeadHost", "HaCluster", "why_no_dead_host")

SERVICE = "ha"
NAMES = ("nn1", "nn2")
LOCAL = "127.0.0.1"
JVM = ("-Xmx128m", "-Djava.net.preferIPv4Stack=true")
JOURNAL_NODE = "org.apache.hadoop.hdfs.qjournal.server.JournalNode"
HA_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"


class HaCluster(Servers):
    """A running HDFS with the name service `ha`. Its NameNodes are `nn1`, which is active first, and `nn2`.

    Attributes:
        conf: the directory of core-site.xml and hdfs-site.xml, for HADOOP_CONF_DIR.
        url: the root for Hadoop's protocol.
        web_url: the root for WebHDFS.

    Args:
        settings: more settings of hdfs-site.xml, for servers and clients.
        host: a separate host for the first NameNode; None for the host of all other servers.
        jvm: more arguments of every JVM.
    """

    url = f"hdfs://{SERVICE}"
    web_url = f"webhdfs://{SERVICE}"

    def __init__(
        self, settings: Mapping[str, str] | None = None, host: DeadHost | None = None, jvm: Sequence[str] = ()
    ) -> None:
        super().__init__([*JVM, *jvm], "" if host is None else host.name)
        self.conf = self.directory / "conf"
        self._host = host
        here, there = (LOCAL, LOCAL) if host is None else (host.outside, host.inside)
        quorum = 3 if THOROUGH else 1
        ports = iter(free_ports(2 * quorum + 4 + 3))
        self._journals = [(f"{here}:{next(ports)}", f"{here}:{next(ports)}") for _ in range(quorum)]
        self.rpc = {name: f"{at}:{next(ports)}" for name, at in zip(NAMES, (there, here), strict=True)}
        self.web = {name: f"{at}:{next(ports)}" for name, at in zip(NAMES, (there, here), strict=True)}
        self._data = [f"{here}:{next(ports)}" for _ in range(3)]
        try:
            self._configure(here, settings or {})
            self._begin()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> HaCluster:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    @property
    def active(self) -> str:
        """Return the name of the NameNode that reports itself as active; empty if there is none."""
        return next((name for name in NAMES if self.state(name) == "active"), "")

    def state(self, name: str) -> str:
        """Return a NameNode's state, such as `active`; empty if it does not run, is frozen, or is not ready."""
        if not self.is_up(name):
            return ""
        return str(bean(self.web[name], "NameNode", "NameNodeStatus").get("State", ""))

    def other(self, name: str) -> str:
        """Return the name of the other NameNode."""
        return NAMES[1 - NAMES.index(name)]

    def start_namenode(self, name: str) -> None:
        """Start a NameNode with the same data on the same ports. It begins in standby."""
        self._start(name, NAME_NODE, self.directory / f"conf-{name}", *self._prefix(name))

    def activate(self, name: str) -> None:
        """Make a NameNode active, whether the other runs or not: the journal fences the other."""
        self._run_to_end("admin", HA_ADMIN, "-transitionToActive", "--forceactive", name, conf=self.conf)

    def hand_over(self) -> None:
        """Make the active NameNode a standby, and the standby active."""
        active = self.active
        self._run_to_end("admin", HA_ADMIN, "-transitionToStandby", active, conf=self.conf)
        self.activate(self.other(active))

    def wait_until_ready(self) -> None:
        """Wait until a NameNode is active and writable, and the DataNode has registered with all running NameNodes."""
        self.wait_for("be ready", self._is_ready)

    def _begin(self) -> None:
        for number in range(len(self._journals)):
            self._start(f"journal{number}", JOURNAL_NODE, self.directory / f"conf-journal{number}")
        self.wait_for("have its journal", lambda: all(bean(web, "JournalNode", "*") for _, web in self._journals))
        first = self.directory / "conf-nn1"
        self._run_to_end("format", NAME_NODE, "-format", "-nonInteractive", "-force", conf=first)
        # The directory is still empty, so the second NameNode can start from a copy without a running first one.
        shutil.copytree(self.directory / "name-nn1", self.directory / "name-nn2")
        for name in NAMES:
            self.start_namenode(name)
        self._start("datanode", DATA_NODE, self.directory / "conf-datanode")
        self.wait_for("have two NameNodes", lambda: all(map(self.state, NAMES)))
        self.activate("nn1")
        self.wait_until_ready()

    def _prefix(self, name: str) -> Sequence[str]:
        return () if self._host is None or name != "nn1" else self._host.enter

    def _is_ready(self) -> bool:
        active = self.active
        if not active or not is_registered(self._data[1]):
            return False
        running = [name for name in NAMES if name in self.processes]
        states = {name: bean(self.web[name], "NameNode", "FSNamesystemState") for name in running}
        return states[active].get("FSState") == "Operational" and all(
            state.get("NumLiveDataNodes") == 1 for state in states.values()
        )

    def _configure(self, here: str, settings: Mapping[str, str]) -> None:
        core = {"fs.defaultFS": self.url}
        quorum = ";".join(rpc for rpc, _ in self._journals)
        hdfs = {
            "dfs.nameservices": SERVICE,
            f"dfs.ha.namenodes.{SERVICE}": ",".join(NAMES),
            **{f"dfs.namenode.rpc-address.{SERVICE}.{name}": address for name, address in self.rpc.items()},
            **{f"dfs.namenode.http-address.{SERVICE}.{name}": address for name, address in self.web.items()},
            f"dfs.client.failover.proxy.provider.{SERVICE}": "org.apache.hadoop.hdfs.server.namenode.ha."
            "ConfiguredFailoverProxyProvider",
            "dfs.namenode.shared.edits.dir": f"qjournal://{quorum}/{SERVICE}",
            "dfs.ha.fencing.methods": "shell(/bin/true)",
            "dfs.ha.tail-edits.period": "1s",
            **COMMON,
            "dfs.replication": "1",
            **settings,
        }
        self._write_conf(self.conf, core, hdfs)
        for name in NAMES:
            own = {"dfs.ha.namenode.id": name, "dfs.namenode.name.dir": (self.directory / f"name-{name}").as_uri()}
            self._write_conf(self.directory / f"conf-{name}", core, hdfs | own)
        for number, (rpc, web) in enumerate(self._journals):
            own = {
                "dfs.journalnode.rpc-address": rpc,
                "dfs.journalnode.http-address": web,
                "dfs.journalnode.edits.dir": str(self.directory / f"journal{number}"),
            }
            self._write_conf(self.directory / f"conf-journal{number}", core, hdfs | own)
        names = ("address", "http.address", "ipc.address")
        own = {f"dfs.datanode.{name}": address for name, address in zip(names, self._data, strict=True)}
        own |= {"dfs.datanode.hostname": here, "dfs.datanode.data.dir": (self.directory / "data").as_uri()}
        self._write_conf(self.directory / "conf-datanode", core, hdfs | own)


def why_no_dead_host() -> str:
    """Return the reason why no host can be created whose link is cut; empty if it can."""
    if shutil.which("ip") is None:
        return "needs the command ip (apt-get install iproute2)"
    if os.geteuid() != 0:
        return "needs to be root for a network namespace"
    made = subprocess.run(["ip", "netns", "add", "ftf-try"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"no network namespace can be made here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", "ftf-try"], capture_output=True, check=False)
    return ""


class DeadHost:
    """A network namespace that acts as a separate host until its link is cut.

    Attributes:
        name: of the namespace.
        inside: its address.
        outside: the address of all other hosts.
        enter: prefix of commands that run in the namespace.
    """

    def __init__(self) -> None:
        number = os.getpid() % (1 << 14)
        self.name = f"ftf-{number}"
        self._link, self._peer = f"ftf{number}a", f"ftf{number}b"
        self.outside, self.inside = (
            f"10.{200 + number // 4096}.{number // 16 % 256}.{number % 16 * 16 + k}" for k in (1, 2)
        )
        self.enter = ("ip", "netns", "exec", self.name)
        _ip("netns", "add", self.name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", self._peer, "netns", self.name)
        _ip("address", "add", f"{self.outside}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for arguments in (
            ("address", "add", f"{self.inside}/30", "dev", self._peer),
            ("link", "set", self._peer, "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-netns", self.name, *arguments)
        # Without this entry, address resolution would fail after 3 s with the error that the host does not exist.
        shown = _ip("-netns", self.name, "-oneline", "link", "show", self._peer).split()
        _ip("neighbour", "replace", self.inside, "lladdr", shown[shown.index("link/ether") + 1], "dev", self._link)

    def cut(self) -> None:
        """Cut the link: all packets are lost."""
        _ip("-netns", self.name, "link", "set", self._peer, "down")

    def mend(self) -> None:
        """Restore the link."""
        _ip("-netns", self.name, "link", "set", self._peer, "up")

    def remove(self) -> None:
        """Remove the namespace; idempotent."""
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True, check=False)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotStart(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
