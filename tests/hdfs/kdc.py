"""A temporary Kerberos realm: MIT's KDC on a free port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.guarded import CannotStart, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("REALM", "Kdc", "why_no_kdc")

REALM = "FTFILE.TEST"
START_TIMEOUT_S = 600.0
# Debian's packages install the servers outside a user's PATH.
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
COMMANDS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")

# The KDC ends with this process, however it ends.
ENDS_WITH_US = ["sh", "-c", '"$@" & cat; kill -KILL $!; rm -rf "$0"']

CONFIGURATION = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  kdc_timesync = 0
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
  127.0.0.1 = {realm}
"""

PROFILE = """\
[kdcdefaults]
  kdc_ports = ""
  kdc_tcp_ports = {port}
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/acl
    max_renewable_life = 1d
    max_life = 1d
  }}
"""


def why_no_kdc() -> str:
    """Return the reason why no KDC can be started; empty if it can."""
    missing = [command for command in COMMANDS if shutil.which(command, path=PATH) is None]
    return f"needs {' and '.join(missing)} (apt-get install krb5-kdc krb5-admin-server krb5-user)" if missing else ""


class Kdc:
    """A running KDC; a `with` block ends it.

    Attributes:
        directory: with its data and the keytabs.
        configuration: the file for KRB5_CONFIG.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ftfile-kdc-"))
        self.configuration = self.directory / "krb5.conf"
        [port] = free_ports(1)
        texts = {"realm": REALM, "port": port, "directory": self.directory}
        self.configuration.write_text(CONFIGURATION.format(**texts))
        (self.directory / "kdc.conf").write_text(PROFILE.format(**texts))
        self._environment = os.environ | {
            "PATH": PATH,
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
        }
        self._server: subprocess.Popen[bytes] | None = None
        try:
            self.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
            self._server = subprocess.Popen(
                [ENDS_WITH_US[0], ENDS_WITH_US[1], ENDS_WITH_US[2], str(self.directory), "krb5kdc", "-n", "-r", REALM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
            _wait_for(port)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Kdc:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add(self, *principals: str) -> Path:
        """Add principals with random keys and return their keytab."""
        keytab = self.directory / f"{principals[0].partition('/')[0]}.keytab"
        for principal in principals:
            self.run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey +allow_renewable {principal}")
            self.run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {keytab} {principal}")
        return keytab

    def ticket(self, cache: Path, principal: str, life: str = "1h", renewable: str = "1h") -> Mapping[str, str]:
        """Get a ticket into a cache; return the environment variables with which a process uses it."""
        keytab = self.directory / f"{principal.partition('/')[0]}.keytab"
        self.run("kinit", "-c", f"FILE:{cache}", "-l", life, "-r", renewable, "-k", "-t", str(keytab), principal)
        return self.variables(cache)

    def renew(self, cache: Path) -> None:
        """Renew the ticket in a cache."""
        self.run("kinit", "-R", "-c", f"FILE:{cache}")

    def variables(self, cache: Path) -> dict[str, str]:
        """Return the environment variables with which a process uses a cache, with or without tickets."""
        return {"KRB5_CONFIG": str(self.configuration), "KRB5CCNAME": f"FILE:{cache}"}

    def run(self, *command: str) -> None:
        """Run a Kerberos command.

        Raises:
            CannotStart: the command failed.
        """
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise CannotStart(f"{command[0]} ended with {done.returncode}: {done.stderr}")

    def stop(self) -> None:
        """Stop the KDC and remove its directory; idempotent."""
        if self._server is not None:
            self._server.communicate()
        shutil.rmtree(self.directory, ignore_errors=True)


def _wait_for(port: int) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), START_TIMEOUT_S).close()
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise CannotStart(f"the KDC took more than {START_TIMEOUT_S:.0f} s to start") from error
            time.sleep(0.05)
        else:
            return
