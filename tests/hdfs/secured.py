"""A local HDFS that accepts only Kerberos, also with TLS on its web servers."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.certificates import make_certificate
from tests.guarded import CannotStart, free_ports
from tests.hdfs.kdc import REALM, why_no_kdc
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.servers import ANSWER_S, write_site

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.hdfs.kdc import Kdc

__all__ = ("SecuredCluster", "why_not_secured")

SERVER, WEB = f"hdfs/localhost@{REALM}", f"HTTP/localhost@{REALM}"
SECRET = "changeit"
FETCHER = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
TOKEN_TOOL = "org.apache.hadoop.security.token.DtUtilShell"


def why_not_secured() -> str:
    """Return the reason why no secured HDFS can be used here; empty if it can."""
    if importlib.util.find_spec("requests_kerberos") is None:
        return "needs requests-kerberos (pip), and libkrb5-dev (apt-get) to build it"
    return why_no_kdc()


class SecuredCluster(MiniCluster):
    """A running HDFS; a `with` block ends it.

    Attributes:
        authority: the certificate authority of its TLS certificates, in PEM form.
        secure_web_url: the root for WebHDFS over TLS.

    Args:
        kdc: has principals of the servers and of `etl`, who owns the root.
        settings: more settings of hdfs-site.xml.
    """

    def __init__(self, kdc: Kdc, settings: Mapping[str, str] | None = None) -> None:
        keytab = str(kdc.add("hdfs/localhost", "HTTP/localhost"))
        tls_port, data_tls_port = free_ports(2)
        self.secure_web_url = f"swebhdfs://localhost:{tls_port}"
        tls = kdc.directory / f"tls-{tls_port}"
        tls.mkdir()
        self.authority, _, self._key_store = make_certificate(tls, SECRET)
        core = {
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            # Maps every principal to a user, so that any account can run the servers.
            "hadoop.http.authentication.type": "kerberos",
            "hadoop.http.authentication.kerberos.principal": WEB,
            "hadoop.http.authentication.kerberos.keytab": keytab,
            "hadoop.security.auth_to_local": f"RULE:[2:$1@$0](.*@{REALM})s/@.*//\nRULE:[1:$1@$0](.*@{REALM})s/@.*//",
        }
        secured = {
            "dfs.namenode.kerberos.principal": SERVER,
            "dfs.namenode.keytab.file": keytab,
            "dfs.datanode.kerberos.principal": SERVER,
            "dfs.datanode.keytab.file": keytab,
            "dfs.web.authentication.kerberos.principal": WEB,
            "dfs.web.authentication.kerberos.keytab": keytab,
            "dfs.block.access.token.enable": "true",
            "ignore.secure.ports.for.testing": "true",
            "dfs.permissions.superusergroup": "hdfs",
            "dfs.http.policy": "HTTP_AND_HTTPS",
            "dfs.namenode.https-address": f"localhost:{tls_port}",
            "dfs.datanode.https.address": f"127.0.0.1:{data_tls_port}",
            "dfs.cluster.administrators": "hdfs",
        }
        self._kdc = kdc
        self._own = dict(kdc.ticket(kdc.directory / "of-the-cluster", SERVER))
        super().__init__(settings=secured | dict(settings or {}), core=core, jvm=_jvm(kdc))

    def __enter__(self) -> SecuredCluster:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    @property
    def web_url(self) -> str:
        """Return the root for WebHDFS, with the host name of the server's principal."""
        return super().web_url.replace("127.0.0.1", "localhost")

    def bean(self, name: str) -> dict[str, Any]:
        """Return a bean of the NameNode, which requires a ticket; empty while it does not respond."""
        import requests_kerberos

        with pytest.MonkeyPatch.context() as patch:
            for variable, text in self._own.items():
                patch.setenv(variable, text)
            url = f"http://localhost:{self._http_port}/jmx?qry=Hadoop:service=NameNode,name={name}"
            try:
                reply = requests.get(url, auth=requests_kerberos.HTTPKerberosAuth(), timeout=ANSWER_S)
            except requests.RequestException:
                return {}
        beans: list[dict[str, Any]] = reply.json()["beans"] if reply.ok else []
        return beans[0] if beans else {}

    def fetch_token(self, path: Path, cache: Path, renewer: str = "etl", *, web: bool = False) -> None:
        """Write a delegation token of the ticket's owner to a file."""
        arguments = ["--webservice", f"http://localhost:{self._http_port}"] if web else []
        command = self._command(self.conf, FETCHER, *arguments, "--renewer", renewer, str(path))
        environment = {**os.environ, **self._kdc.variables(cache)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0 or not path.exists():
            raise CannotStart(f"no token came: {done.stdout}{done.stderr}")

    def cancel_token(self, path: Path, cache: Path) -> None:
        """End the tokens of a file; `cache` has a ticket of their owner."""
        command = self._command(self.conf, FETCHER, "--cancel", str(path))
        environment = {**os.environ, **self._kdc.variables(cache)}
        subprocess.run(command, env=environment, capture_output=True, timeout=600, check=True)

    def write_as_protobuf(self, path: Path) -> None:
        """Rewrite a file of tokens in the form of `hadoop dtutil`."""
        self._run_to_end("dtutil", TOKEN_TOOL, "append", "-format", "protobuf", str(path), conf=self.conf)

    def _write_conf(self, directory: Path, core: Mapping[str, str], hdfs: Mapping[str, str]) -> None:
        super()._write_conf(directory, core, hdfs)
        store = {
            "ssl.server.keystore.location": str(self._key_store),
            "ssl.server.keystore.type": "pkcs12",
            "ssl.server.keystore.password": SECRET,
            "ssl.server.keystore.keypassword": SECRET,
        }
        write_site(directory / "ssl-server.xml", store)


def _jvm(kdc: Kdc) -> list[str]:
    return [f"-Djava.security.krb5.conf={kdc.configuration}"]
