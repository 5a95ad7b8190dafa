"""Servers on free loopback ports; for S3: moto, and a real server if it is installed."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import shutil
import signal
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
    "Storage",
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
# Ignore the user's files, and do not ask a cloud's metadata service.
NO_FILES = {
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# A file of credentials for `storage.profile`. Of the profile `wrong`, only the access key is right.
PROFILES = "".join(
    f"[{name}]\naws_access_key_id = {CREDENTIALS['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {secret}\n"
    for name, secret in {"right": CREDENTIALS["AWS_SECRET_ACCESS_KEY"], "wrong": WRONG}.items()
)
BUCKET = "bucket"
# No script installs MinIO; this variable names an existing one.
MINIO = "FTFILE_MINIO"
_VERSITY = (str(VERSITY), "--quiet", "--keep-alive", "--port", "127.0.0.1:{port}", "posix", "{data}")
_MOTO = (
    f"import sys; sys.path.append({str(ROOT)!r}); from tests.object_stores.moto_server import serve; serve({{port}})"
)
START_TIMEOUT_S = 300.0

# Each line of its input is the process id of the running server. At the end of its input, the server has no owner.
GUARD = (
    'trap "" INT TERM HUP; while read -r line; do pid=$line; done; kill -9 $pid 2>/dev/null; [ -n "$1" ] || rm -rf "$0"'
)


class Storage:
    """A server with one bucket, whose address is fixed before it is started.

    Args:
        command: starts the server; `{port}` and `{data}` are replaced.
        scheme: `http` or `https`.
        home: an existing directory for data and logs, which is kept at the end; by default a temporary directory.
    """

    def __init__(self, *command: str, scheme: str = "http", home: Path | None = None) -> None:
        self._scheme = scheme
        [self._port] = free_ports(1)
        self._is_kept = home is not None
        self._directory = home or Path(tempfile.mkdtemp(prefix="ftfile-s3-"))
        self.data.mkdir(exist_ok=True)
        self._command = [word.format(port=self._port, data=self.data) for word in command]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self._directory), "kept" if home else ""],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Return the directory of the server's data."""
        return self._directory / "data"

    @property
    def port(self) -> int:
        """Return the address of the server."""
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
        """Return the driver's settings for another address of the server."""
        return {"endpoint": endpoint, "region": "us-east-1"}

    def environment_at(self, endpoint: str) -> dict[str, str]:  # noqa: ARG002 - subclasses depend on it
        """Return the environment variables that a process needs for these settings."""
        return CREDENTIALS | NO_FILES

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Return the settings of Hadoop's client, which reads credentials from the environment."""
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
        """Return the secret credentials, which no output may contain."""
        return self.credentials

    def hadoop_url(self, url: str) -> str:
        """Return a URL below its root in the form of Hadoop's client."""
        return url.replace("s3://", "s3a://")

    def kept(self, url: str) -> list[str]:
        """Return names, metadata and content of all objects below `_ftfile` of a directory, read without the driver."""
        asked, found = client(self.endpoint), []
        prefix = f"{url.removeprefix(f'{self.url}/')}/_ftfile/"
        for each in asked.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
            answer = asked.get_object(Bucket=BUCKET, Key=each["Key"])
            found.append(f"{each['Key']} {answer['Metadata']} {answer['Body'].read().decode('latin-1')}")
        return found

    @property
    def is_running(self) -> bool:
        """Return True if the server was started and not killed."""
        return self._server is not None

    def start(self) -> None:
        """Start the server, also again with the same data, and wait until it responds."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the server without waiting until it responds."""
        names = (("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"), ("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"))
        keys = {name: value for both in names for name, value in zip(both, CREDENTIALS.values(), strict=True)}
        with (self._directory / "log").open("a") as output:
            self._server = subprocess.Popen(
                self._command, env=os.environ | keys, stdout=output, stderr=output, start_new_session=True
            )
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self._server.pid}\n")
        self._guard.stdin.flush()

    def wait(self) -> None:
        """Wait until the server responds.

        Raises:
            RuntimeError: it ended, or it took too long.
        """
        assert self._server is not None
        _wait_until_answers(self._server, self.endpoint, self._directory / "log")

    def freeze(self) -> None:
        """Stop the running server by SIGSTOP."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume a stopped server; nothing if it was killed."""
        if self._server is not None:
            self._server.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server with SIGKILL; its data remain."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def remove(self) -> None:
        """Kill the server and delete its data, unless its directory is kept."""
        self.kill()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        if not self._is_kept:
            shutil.rmtree(self._directory, ignore_errors=True)


@functools.cache
def client(endpoint: str) -> Any:
    """Return another client than the driver's."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}, read_timeout=START_TIMEOUT_S),
    )


def what_is_missing() -> str:
    """Return the reason why the real S3 server cannot run; empty if it can."""
    if VERSITY.exists():
        return ""
    return "no real S3 server is built, and moto is tried alone: .ci/s3-server builds one where Go is"


def moto() -> AbstractContextManager[Storage]:
    """Start moto, whose data are lost when it ends."""
    return _running(sys.executable, "-c", _MOTO)


def versity(home: Path | None = None) -> AbstractContextManager[Storage]:
    """Start the Versity gateway over a temporary directory, or with the data in a directory that is kept."""
    return _running(*_VERSITY, home=home)


def versity_with_tls(certificate: Path, key: Path) -> AbstractContextManager[Storage]:
    """Start the Versity gateway with TLS over a temporary directory, without a bucket."""
    # With TLS and keep-alive it loses its position in the connection and answers valid requests with 400.
    kept = [word for word in _VERSITY[1:] if word != "--keep-alive"]
    return _running(_VERSITY[0], "--cert", str(certificate), "--key", str(key), *kept, scheme="https")


def minio() -> AbstractContextManager[Storage]:
    """Start MinIO, whose path is in the variable `FTFILE_MINIO`, over a temporary directory."""
    return _running(os.environ[MINIO], "server", "--quiet", "--address", "127.0.0.1:{port}", "{data}")


@contextlib.contextmanager
def _running(*command: str, scheme: str = "http", home: Path | None = None) -> Iterator[Storage]:
    storage = Storage(*command, scheme=scheme, home=home)
    try:
        storage.start()
        if scheme == "http" and not (storage.data / BUCKET).exists():
            client(storage.endpoint).create_bucket(Bucket=BUCKET)
        yield storage
    finally:
        storage.remove()


def _wait_until_answers(server: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=START_TIMEOUT_S, context=context).close()
        except urllib.error.HTTPError as error:
            error.close()  # an error is a response, too
            return
        except (OSError, http.client.HTTPException) as error:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}") from error
            time.sleep(0.05)
        else:
            return
