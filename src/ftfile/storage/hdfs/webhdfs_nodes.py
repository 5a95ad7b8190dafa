"""The web servers of NameNodes, and which of them is active."""

from __future__ import annotations

import threading
import urllib.parse
from collections import deque
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.per_process import OnePerKey
from ftfile.storage.hdfs.configuration import find_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ftfile.core.options.parsing import Settings


# The seconds for which a test result is valid.
BELIEVED_S = 2.0
# A call of a DataNode to a silent NameNode ends after two minutes, and can delay other calls until then.
HELD_UP_S = 180.0
# Seconds until the first byte of a DataNode in this time: at least, and at most; between these limits, a multiple of
# the longest recent time.
FIRST_WORD_MIN_S, FIRST_WORD_MAX_S = 0.2, 10.0
TIMES_HEARD = 4
# After this number of connections without an answer, a DataNode can be slow rather than held up, so the seconds double.
UNHEARD_MAX = 4

# The parameter that tells a DataNode the NameNode of a file.
_ADDRESS = "namenoderpcaddress"


class SilentNodeError(Exception):
    """A request was abandoned: its NameNode does not answer, and another one is active."""


class WebNodes:
    """The web servers of the NameNodes of a name service, or of one NameNode."""

    def __init__(self, rpc_addresses: Mapping[str, str]) -> None:
        # `host:port` of the RPC server of each NameNode, or "" if unknown, by the URL of its web server.
        self._rpc_addresses = dict(rpc_addresses)
        self._order = deque(rpc_addresses)
        self._is_tls = all(node.startswith("https://") for node in rpc_addresses)
        self._lock = threading.Lock()
        self._silent: dict[str, float] = {}
        self._unheard = 0
        self._heard_s = 0.0
        self._looking = threading.Lock()
        self._found: dict[str, tuple[float, str]] = {}

    def node_of(self, url: str) -> str:
        """Return the server of a URL; empty for a DataNode."""
        return next((node for node in self._rpc_addresses if url.startswith(f"{node}/")), "")

    def note_answer(self, node: str) -> None:
        """Record that a server has answered as the active one."""
        self._found.pop(node, None)
        if len(self._rpc_addresses) > 1:
            self._silent.pop(node, None)
            self._prefer(node)

    def note_silence(self, node: str) -> None:
        """Record that a server cannot be reached, or does not answer."""
        if len(self._rpc_addresses) > 1:
            self._silent[node] = SYSTEM.clock.monotonic_s()

    def check_answers(self, node: str, is_active: Callable[[str], bool]) -> None:
        """Raise `SilentNodeError` if a server does not answer and another one is active; `is_active` tests a server."""
        other_nodes = [other for other in self._rpc_addresses if other != node]
        if not node or not other_nodes:
            return
        found_s, why = self._found.get(node, (float("-inf"), ""))
        # One thread tests at a time; a fork can have happened during a test.
        if SYSTEM.clock.monotonic_s() - found_s >= BELIEVED_S and self._looking.acquire(blocking=False):
            try:
                why = self._why_silent(node, other_nodes, is_active)
                self._found[node] = SYSTEM.clock.monotonic_s(), why
            finally:
                self._looking.release()
        if why:
            raise SilentNodeError(why)

    def _why_silent(self, node: str, other_nodes: Iterable[str], is_active: Callable[[str], bool]) -> str:
        """Return True if another server is active and this one does not answer."""
        if is_active(node):
            return ""
        active = next(filter(is_active, other_nodes), None)
        if active is None:
            return ""
        self.note_silence(node)
        self._prefer(active)
        return f"NameNode {node} is silent, and {active} is active"

    def first_word_s(self) -> float:
        """Return the seconds that a DataNode can take to answer; 0 for no limit.

        A DataNode that waits for a silent NameNode still answers some of its connections.
        """
        now_s = SYSTEM.clock.monotonic_s()
        if all(now_s - noted_s >= HELD_UP_S for noted_s in [*self._silent.values()]):
            return 0.0
        limit_s = max(FIRST_WORD_MIN_S, TIMES_HEARD * self._heard_s)
        return min(limit_s * (1 << min(max(0, self._unheard - UNHEARD_MAX), 8)), FIRST_WORD_MAX_S)

    def note_heard(self, first_word_s: float) -> None:
        """Record that a DataNode has answered, and after how many seconds."""
        self._unheard = 0
        self._heard_s = max(first_word_s, self._heard_s / 2)

    def note_unheard(self) -> None:
        """Record that a connection to a DataNode was abandoned."""
        self._unheard += 1

    def direct(self, node: str, place: str) -> str:
        """Return the URL of a DataNode to which a server redirects, with changes.

        While a NameNode does not answer, the DataNode is told to use the NameNode that redirected to it. Otherwise it
        would start with the first NameNode of its configuration, for each file.

        Raises:
            ConfigError: the NameNodes use TLS, and the URL is plain HTTP, which would expose tokens and rows to other
                hosts.
        """
        if self._is_tls and urllib.parse.urlsplit(place).scheme != "https":
            raise ConfigError(
                f"a server of swebhdfs:// redirects to plain HTTP, to {urllib.parse.urlsplit(place).netloc!r}, which "
                "ftfile does not follow: set dfs.http.policy=HTTPS_ONLY for NameNodes and DataNodes, or use "
                "webhdfs:// if the network is trusted"
            )
        address = self._rpc_addresses.get(node)
        if not address or not self._silent.keys() - {node}:
            return place
        parts = urllib.parse.urlsplit(place)
        query = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        new_query = []
        for name, text in query:
            if name.lower() == _ADDRESS:
                text = address  # noqa: PLW2901
            new_query.append((name, text))
        return parts._replace(query=urllib.parse.urlencode(new_query)).geturl()

    def in_order(self) -> list[str]:
        """Return the servers, the active one first."""
        with self._lock:
            return [*self._order]

    def pass_over(self, node: str) -> None:
        """Try another server first from now on."""
        with self._lock:
            if self._order[0] == node:
                self._order.rotate(-1)

    def _prefer(self, node: str) -> None:
        with self._lock:
            if self._order[0] != node and node in self._order:
                self._order.rotate(-self._order.index(node))


def find_nodes(scheme: str, authority: str, configuration: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name of the service, and the RPC address of each NameNode, if known, by the URL of its web server."""
    service = find_service(scheme, authority, configuration)
    tls = scheme == "swebhdfs"
    if tls:
        web_scheme, usual_port = "https", 9871
    else:
        web_scheme, usual_port = "http", 9870
    rpc_addresses = {}
    if service.members:
        rpc_addresses = service.rpc_addresses()
    addresses = {}
    for name, address in service.web_addresses(tls=tls).items():
        addresses[f"{web_scheme}://{address}"] = rpc_addresses.get(name, "")
    if not addresses or not authority:
        raise ConfigError(
            f"{scheme}://{authority} has no port, and Hadoop's configuration has no name service {authority!r} with "
            f"addresses for it: write {scheme}://namenode:{usual_port}/path, or set HADOOP_CONF_DIR to the directory "
            "of hdfs-site.xml"
        )
    return service.name, addresses


def _open_nodes(rpc_addresses: Settings) -> WebNodes:
    return WebNodes(dict(rpc_addresses))


# By the RPC addresses of `find_nodes`.
web_nodes = OnePerKey(_open_nodes)
