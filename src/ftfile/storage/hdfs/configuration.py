"""The configuration of Hadoop's clients on this host, and the NameNodes that it lists."""

from __future__ import annotations

import os
import pwd
import urllib.parse
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


USER = "HADOOP_USER_NAME"
DEFAULT_FS = "fs.defaultFS"
_AUTHENTICATION = "hadoop.security.authentication"
_RPC = "dfs.namenode.rpc-address"
_HTTP = "dfs.namenode.http-address"
_HTTPS = "dfs.namenode.https-address"
_MEMBERS = "dfs.ha.namenodes"
_RESOLVED = "dfs.client.failover.resolve-needed"
# The NodeManager of YARN sets this variable in each container.
_CONTAINER = "CONTAINER_ID"
# Spark copies the configuration of the submitter to this directory of each container, without setting a variable.
_SENT_BY_SPARK = "__spark_conf__/__hadoop_conf__"


def is_kerberos(configuration: Mapping[str, str]) -> bool:
    """Return True if the cluster requires Kerberos."""
    return configuration.get(_AUTHENTICATION, "simple").lower() == "kerberos"


def current_user() -> str | None:
    """Return the user that Hadoop's clients would use; None for a user id without a name."""
    if named := os.environ.get(USER):
        return named
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def configuration_directory() -> str | None:
    """Return the directory of Hadoop's configuration on this host, or in this container of YARN; None without one."""
    if directory := os.environ.get("HADOOP_CONF_DIR"):
        return directory
    if home := os.environ.get("HADOOP_HOME"):
        return os.path.join(home, "etc/hadoop")
    if os.environ.get(_CONTAINER) and os.path.isdir(_SENT_BY_SPARK):
        return os.path.abspath(_SENT_BY_SPARK)
    return None


def read_configuration(handed: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of core-site.xml and hdfs-site.xml here, overridden by properties that were sent."""
    directory = configuration_directory()
    properties: dict[str, str] = {}
    if directory:
        properties |= _read_properties(os.path.join(directory, "core-site.xml"))
        properties |= _read_properties(os.path.join(directory, "hdfs-site.xml"))
    return properties | dict(handed)


def _read_properties(path: str) -> dict[str, str]:
    """Return the properties in a file of Hadoop's configuration; none if there is no such file."""
    if not os.path.exists(path):
        return {}
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 - the administrator's own file
    except (ElementTree.ParseError, OSError) as error:
        raise ConfigError(f"Hadoop's configuration {path!r} cannot be read: {error}") from error
    properties = {}
    for element in root.iter("property"):
        name = element.findtext("name")
        if name:
            properties[name.strip()] = (element.findtext("value") or "").strip()
    return properties


class NameService:
    """One NameNode, or the NameNodes of one name; an empty authority is the default file system."""

    def __init__(self, authority: str, configuration: Mapping[str, str]) -> None:
        # Of the service, or `host:port`; empty if unknown.
        self.name = authority or urllib.parse.urlsplit(configuration.get(DEFAULT_FS, "")).netloc
        self._configuration = configuration
        listed = configuration.get(f"{_MEMBERS}.{self.name}", "").split(",") if self.name else ()
        # Names of the NameNodes of the service; empty for a single NameNode.
        self.members = [name.strip() for name in listed if name.strip()]
        self.members_property = f"{_MEMBERS}.{self.name}"

    def rpc_addresses(self) -> dict[str, str]:
        """Return the `host:port` of each NameNode's RPC server, by name; empty if only Hadoop's client knows."""
        if self._configuration.get(f"{_RESOLVED}.{self.name}", "").lower() == "true" and self.members:
            return {}  # one DNS name for several hosts
        return self._addresses(_RPC)

    def web_addresses(self, *, tls: bool) -> dict[str, str]:
        """Return the `host:port` of the web server of each NameNode, by name."""
        return self._addresses(_HTTPS if tls else _HTTP)

    def _addresses(self, property_name: str) -> dict[str, str]:
        if not self.members:
            host, _, port = self.name.rpartition(":")
            if host and port.isdigit():
                return {self.name: self.name}
            return {}
        addresses = {}
        for name in self.members:
            address = self._configuration.get(f"{property_name}.{self.name}.{name}", "")
            if address:
                addresses[name] = address
        return addresses


def find_service(scheme: str, authority: str, configuration: Mapping[str, str]) -> NameService:
    """Return the name service of a URL's authority; raises `ConfigError` for several hosts, or a name with a port."""
    service = NameService(authority, configuration)
    if authority:
        written = f"{scheme}://{authority}"
    else:
        written = f"fs.defaultFS={configuration.get(DEFAULT_FS, '')}"
    host, _, port = service.name.rpartition(":")
    if "," in service.name:
        raise ConfigError(
            f"{written} names several NameNodes: write the name of their service, {scheme}://NAME/path, and set "
            "HADOOP_CONF_DIR to the directory of the hdfs-site.xml that lists them in dfs.ha.namenodes.NAME"
        )
    if port.isdigit() and f"{_MEMBERS}.{host}" in configuration:
        raise ConfigError(
            f"{written}: {host!r} is a name service in Hadoop's configuration, and takes no port: write "
            f"{scheme}://{host}/path"
        )
    return service
