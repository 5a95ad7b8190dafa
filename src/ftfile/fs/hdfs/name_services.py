"""Name services of Hadoop's configuration: which NameNodes a URL means."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("NameService", "find_service")

_RPC, _HTTP, _HTTPS = "dfs.namenode.rpc-address", "dfs.namenode.http-address", "dfs.namenode.https-address"
_MEMBERS = "dfs.ha.namenodes"
_RESOLVED = "dfs.client.failover.resolve-needed"


class NameService:
    """One NameNode, or the NameNodes of one name.

    Attributes:
        name: of the service, or `host:port`; empty for nothing.
        members: names of its NameNodes; empty where it is one NameNode.

    Args:
        authority: of a URL; empty for the default file system.
        configuration: Hadoop's properties.
    """

    def __init__(self, authority: str, configuration: Mapping[str, str]) -> None:
        self.name = authority or urllib.parse.urlsplit(configuration.get("fs.defaultFS", "")).netloc
        self._configuration = configuration
        listed = configuration.get(f"{_MEMBERS}.{self.name}", "").split(",") if self.name else ()
        self.members = [name.strip() for name in listed if name.strip()]

    @property
    def members_property(self) -> str:
        """Return the property that lists the members."""
        return f"{_MEMBERS}.{self.name}"

    def rpc_addresses(self) -> dict[str, str]:
        """Return the `host:port` of each NameNode's RPC server by its name; empty where only Hadoop's client knows."""
        if not self.members:
            return {self.name: self.name} if _has_port(self.name) else {}
        if self._configuration.get(f"{_RESOLVED}.{self.name}", "").lower() == "true":
            return {}  # one name of DNS for several
        return self._addresses(_RPC)

    def web_addresses(self, *, tls: bool) -> dict[str, str]:
        """Return the `host:port` of each NameNode's web server by its name."""
        if not self.members:
            return {self.name: self.name} if _has_port(self.name) else {}
        return self._addresses(_HTTPS if tls else _HTTP)

    def _addresses(self, property_name: str) -> dict[str, str]:
        found = {name: self._configuration.get(f"{property_name}.{self.name}.{name}", "") for name in self.members}
        return {name: address for name, address in found.items() if address}


def find_service(scheme: str, authority: str, configuration: Mapping[str, str]) -> NameService:
    """Return the name service of a URL's authority.

    Raises:
        ConfigError: it lists several addresses, or is a name service with a port.
    """
    host, _, port = authority.rpartition(":")
    if "," in authority:
        raise ConfigError(
            f"{scheme}://{authority} names several NameNodes: write the name of their service, {scheme}://NAME/path, "
            "and point HADOOP_CONF_DIR at the hdfs-site.xml that lists them in dfs.ha.namenodes.NAME"
        )
    if port.isdigit() and f"{_MEMBERS}.{host}" in configuration:
        raise ConfigError(
            f"{scheme}://{authority}: {host!r} is a name service of Hadoop's configuration, and has no port: write "
            f"{scheme}://{host}/path"
        )
    return NameService(authority, configuration)


def _has_port(authority: str) -> bool:
    host, _, port = authority.rpartition(":")
    return bool(host) and port.isdigit()
