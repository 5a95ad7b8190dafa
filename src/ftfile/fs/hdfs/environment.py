"""The environment of Hadoop's clients: configuration, user, token. The driver hands its own over to executors.

These run elsewhere, and may find something else there, or nothing. Spark does the same for its own Hadoop client.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ftfile.core.errors import ConfigError
from ftfile.fs.hdfs.tokens import FILE_VARIABLE as TOKEN_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("HANDED_OVER", "USER", "Surroundings", "current_user", "hand_over", "is_kerberos")

# The setting in which they travel.
HANDED_OVER = "handedOver"
USER = "HADOOP_USER_NAME"

# What says where a cluster is and how it is talked to: some other properties are passwords, and some of these.
_HANDED_PREFIXES = ("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.rpc.protection", "hadoop.security.authentication")
_SECRETS = re.compile("oauth|password|secret|credential|token|keystore|truststore", re.IGNORECASE)
_AUTHENTICATION = "hadoop.security.authentication"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment handed over to this process; empty by default.

    Attributes:
        handed: properties of Hadoop's configuration; they count more than those that are found here.
        user: in whose name the driver asks; None for the one of this process.
    """

    handed: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None

    @classmethod
    def from_text(cls, text: str) -> Surroundings:
        """Take over what `hand_over` made.

        Raises:
            ConfigError: the driver has a token, and this process has none; or it did not make the text.
        """
        try:
            handed, user, has_token = json.loads(text)
            handed = dict(handed)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"storage.{HANDED_OVER} is what ftfile hands over itself: leave it out") from error
        if has_token and not os.environ.get(TOKEN_FILE):
            raise ConfigError(
                f"the driver has delegation tokens ({TOKEN_FILE}), and an executor on the host "
                f"{socket.gethostname()!r} has none: send the file along (spark-submit --files /…/tokens) and set "
                f"spark.executorEnv.{TOKEN_FILE}=./tokens"
            )
        return cls(handed, user)

    def configuration(self) -> dict[str, str]:
        """Return Hadoop's properties as they count here.

        Raises:
            ConfigError: a file of them is no XML.
        """
        return _read_configuration() | dict(self.handed)


def hand_over(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of an HDFS with what this process, the driver, finds around itself.

    Raises:
        ConfigError: see `Surroundings.configuration`.
    """
    configuration = _read_configuration()
    handed = {name: text for name, text in configuration.items() if _may_travel(name)}
    # With Kerberos a ticket says it, or a token.
    user = None if is_kerberos(configuration) else current_user()
    return {**settings, HANDED_OVER: json.dumps([handed, user, bool(os.environ.get(TOKEN_FILE))])}


def _may_travel(name: str) -> bool:
    return name.startswith(_HANDED_PREFIXES) and not _SECRETS.search(name)


def is_kerberos(configuration: Mapping[str, str]) -> bool:
    """Return True if the cluster asks for Kerberos."""
    return configuration.get(_AUTHENTICATION, "simple").lower() == "kerberos"


def current_user() -> str | None:
    """Return who asks from this process, as Hadoop's own clients find it; None for a number that has no name."""
    named = os.environ.get(USER)
    if named:
        return named
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _read_configuration() -> dict[str, str]:
    """Return the properties of core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR, else in HADOOP_HOME/etc/hadoop.

    Raises:
        ConfigError: one of them is no XML.
    """
    home = os.environ.get("HADOOP_HOME")
    directory = os.environ.get("HADOOP_CONF_DIR") or (home and os.path.join(home, "etc/hadoop"))
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml") if directory else ():
        path = os.path.join(str(directory), name)
        if os.path.exists(path):
            found |= _read_site(path)
    return found


def _read_site(path: str) -> dict[str, str]:
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314 - the administrator's own file
    except (ElementTree.ParseError, OSError) as error:
        raise ConfigError(f"Hadoop's configuration {path!r} cannot be read: {error}") from error
    pairs = ((each.findtext("name"), each.findtext("value")) for each in root.iter("property"))
    return {name.strip(): (value or "").strip() for name, value in pairs if name}
