"""Servers on free loopback ports; of S3: moto, and a real one where it is built."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config

from tests.guarded import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = (
    "BUCKET",
    "CREDENTIALS",
    "MINIO",
    "NO_FILES",
    "PROFILES",
    "VERSITY",
    "WRONG",
    "Store",
    "client",
    "minio",
    "moto",
    "versity",
    "versity_with_tls",
    "what_is_missing",
)

ROOT = Path(__file__).parents[2]
VERSITY = ROOT / ".servers" / "versitygw"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "ftfile-access", "AWS_SECRET_ACCESS_KEY": "ftfile-SECRET-value"}
WRONG = "ftfile-WRONG-value"
# No files of the user's, and no question to a cloud that is not there.
NO_FILES = {
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# For `storage.profile`, as a file of credentials; of one the store knows the access key alone.
PROFILES = "".join(
    f"[{name}]\naws_access_key_id = {CREDENTIALS['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {secret}\n"
    for name, secret in {"right": CREDENTIALS["AWS_SECRET_ACCESS_KEY"], "wrong": WRONG}.items()
)
BUCKET = "bucket"
# Nothing builds it; name your own to try it, too.
MINIO = "FTFILE_MINIO"
_VERSITY = (str(VERSITY), "--quiet", "--keep-alive", "--port", "127.0.0.1:{port}", "posix", "{data}")
_MOTO = (
    f"import sys; sys.path.append({str(ROOT)!r}); from tests.object_stores.moto_server import serve; serve({{port}})"
)
START_TIMEOUT_S = 300.0

# Each line it reads is the server that runs now; at the end of its input that has lost its owner.
GUARD = 'trap "" INT TERM HUP; while read -r line; do pid=$line; done; kill -9 $pid 2>/dev/null; rm -rf "$0"'


class Store:
    """A server, with one bucket; its address is known before it is started.

    Args:
        command: that starts it; `{port}` and `{data}` are put in.
        scheme: `http`, or `https`.
    """

    def __init__(self, *command: str, scheme: str = "http") -> None:
        self._scheme = scheme
        [self._port] = free_ports(1)
        self._directory = Path(tempfile.mkdtemp(prefix="ftfile-s3-"))
        data = self._directory / "data"
        data.mkdir()
        self._command = [word.format(port=self._port, data=data) for word in command]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self._directory)], stdin=subprocess.PIPE, start_new_session=True, text=True
        )
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Return where it listens."""
        return self._port

    @property
    def endpoint(self) -> str:
        """Return its URL."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Return the root of its bucket."""
        return f"s3://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Return the driver's settings."""
        return self.settings_at(self.endpoint)

    def settings_at(self, endpoint: str) -> dict[str, str]:
        """Return the driver's settings to reach it at another address."""
        return {"endpoint": endpoint, "region": "us-east-1"}

    def environment_at(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - there are those that depend on it
        """Return the variables that a process needs for these settings."""
        return CREDENTIALS | NO_FILES

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's client; credentials it finds in the environment."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }

    @property
    def credentials(self) -> tuple[str, ...]:
        """Return the credentials of its clients."""
        return tuple(CREDENTIALS.values())

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secrets among these, which no output may show."""
        return self.credentials

    def hadoop_url(self, url: str) -> str:
        """Return a URL below its root in the spelling of Hadoop's client."""
        return url.replace("s3://", "s3a://")

    def kept(self, url: str) -> list[str]:
        """Return all that it has below `_ftfile` of a directory, past the driver: names, metadata and content."""
        asked, found = client(self.endpoint), []
        prefix = f"{url.removeprefix(f'{self.url}/')}/_ftfile/"
        for each in asked.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
            answer = asked.get_object(Bucket=BUCKET, Key=each["Key"])
            found.append(f"{each['Key']} {answer['Metadata']} {answer['Body'].read().decode('latin-1')}")
        return found

    def start(self) -> None:
        """Start it and wait until it answers."""
        names = (("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"), ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"))
        keys = {name: value for both in names for name, value in zip(both, CREDENTIALS.values(), strict=True)}
        log = self._directory / "log"
        with log.open("a") as output:
            server = subprocess.Popen(
                self._command, env=os.environ | keys, stdout=output, stderr=output, start_new_session=True
            )
        self._server = server
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{server.pid}\n")
        self._guard.stdin.flush()
        _wait_until_answers(server, self.endpoint, log)

    def kill(self) -> None:
        """SIGKILL it; its data stay."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def remove(self) -> None:
        """Kill it and forget its data."""
        self.kill()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


@functools.cache
def client(endpoint: str) -> Any:
    """Return a client that is not the driver's."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, read_timeout=START_TIMEOUT_S),
    )


def what_is_missing() -> str:
    """Say that the real server of S3 is not there; empty where it is."""
    if VERSITY.exists():
        return ""
    return "no real S3 server is built, and moto is tried alone: .ci/s3-server builds one where Go is"


def moto() -> AbstractContextManager[Store]:
    """Start moto, which keeps nothing when it ends."""
    return _running(sys.executable, "-c", _MOTO)


def versity() -> AbstractContextManager[Store]:
    """Start the Versity gateway over a temporary directory."""
    return _running(*_VERSITY)


def versity_with_tls(certificate: Path, key: Path) -> AbstractContextManager[Store]:
    """Start the Versity gateway, likewise, which speaks TLS; it has no bucket."""
    # With TLS it loses its place in a connection that is kept, and answers a whole request with a 400.
    kept = [word for word in _VERSITY[1:] if word != "--keep-alive"]
    return _running(_VERSITY[0], "--cert", str(certificate), "--key", str(key), *kept, scheme="https")


def minio() -> AbstractContextManager[Store]:
    """Start MinIO, which the variable `FTFILE_MINIO` leads to, over a temporary directory."""
    return _running(os.environ[MINIO], "server", "--quiet", "--address", "127.0.0.1:{port}", "{data}")


@contextlib.contextmanager
def _running(*command: str, scheme: str = "http") -> Iterator[Store]:
    store = Store(*command, scheme=scheme)
    try:
        store.start()
        if scheme == "http":
            client(store.endpoint).create_bucket(Bucket=BUCKET)
        yield store
    finally:
        store.remove()


def _wait_until_answers(server: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=START_TIMEOUT_S, context=context).close()
        except urllib.error.HTTPError as error:
            error.close()  # an answer, too
            return
        except (OSError, http.client.HTTPException) as error:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}") from error
            time.sleep(0.05)
        else:
            return
