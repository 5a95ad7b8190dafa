"""A YARN whose servers and applications need Kerberos, on a secured HDFS."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

from tests.cluster.yarn import Yarn
from tests.hdfs.kdc import REALM
from tests.hdfs.servers import write_site

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.hdfs.kdc import Kdc
    from tests.hdfs.secured import SecuredCluster

__all__ = ("SecuredYarn",)


class SecuredYarn(Yarn):
    """A running YARN; a `with` block ends it, and the processes of all containers.

    NodeManagers start containers as the user of this process. The web pages of the ResourceManager need no ticket.

    Args:
        kdc: gets principals of the servers.
        hdfs: the default file system, also of the applications' files.
        settings: more settings of yarn-site.xml.
        nodes: number of NodeManagers.
    """

    def __init__(
        self, kdc: Kdc, hdfs: SecuredCluster, settings: Mapping[str, str] | None = None, nodes: int = 2
    ) -> None:
        self._kerberos = f"-Djava.security.krb5.conf={kdc.configuration}"
        self._secured_settings = dict(settings or {})
        for server, name in (("resourcemanager", "rm"), ("nodemanager", "nm")):
            self._secured_settings[f"yarn.{server}.principal"] = f"{name}/localhost@{REALM}"
            self._secured_settings[f"yarn.{server}.keytab"] = str(kdc.add(f"{name}/localhost"))
        super().__init__(hdfs, nodes)

    def __enter__(self) -> SecuredYarn:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def submit(self, name: str, home: Path, variables: Mapping[str, str], arguments: Sequence[str]) -> None:
        """Start `spark-submit` in a directory, as the server `name`; the arguments follow the settings."""
        super().submit(name, home, {**variables, "SPARK_SUBMIT_OPTS": self._kerberos}, arguments)

    def settings(self) -> dict[str, str]:
        settings = super().settings()
        for process in ("driver", "executor"):
            settings[f"spark.{process}.extraJavaOptions"] += f" {self._kerberos}"
        return settings

    def _write_conf(self, directory: Path, yarn: Mapping[str, str]) -> None:
        super()._write_conf(directory, {**yarn, **self._secured_settings})
        # The keytab of HDFS for web pages is not for the servers of YARN.
        core = _read_site(directory / "core-site.xml")
        write_site(
            directory / "core-site.xml",
            {name: text for name, text in core.items() if not name.startswith("hadoop.http.authentication.")},
        )

    def _launch(self, name: str, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        if command[0] == self._java:
            command = [command[0], self._kerberos, *command[1:]]
        return super()._launch(name, command, **options)


def _read_site(path: Path) -> dict[str, str]:
    properties = ET.parse(path).getroot().iter("property")
    return {str(item.findtext("name")): str(item.findtext("value")) for item in properties}
