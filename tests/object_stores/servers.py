"""Servers on free loopback ports; of S3: moto, and a real one where it is built."""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = (
    "BUCKET",
    "CREDENTIALS",
    "PROFILES",
    "VERSITY",
    "WRONG",
    "Store",
    "client",
    "moto",
    "versity",
    "what_is_missing",
)

VERSITY = Path(__file__).parents[2] / ".servers" / "versitygw"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "ftfile-access", "AWS_SECRET_ACCESS_KEY": "ftfile-SECRET-value"}
WRONG = "ftfile-WRONG-value"
# For `storage.profile`, as a file of credentials; of one the store knows the access key alone.
PROFILES = "".join(
    f"[{name}]\naws_access_key_id = {CREDENTIALS['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {secret}\n"
    for name, secret in {"right": CREDENTIALS["AWS_SECRET_ACCESS_KEY"], "wrong": WRONG}.items()
)
BUCKET = "bucket"
START_TIMEOUT_S = 300.0

# Each line it reads is the server that runs now; at the end of its input that has lost its owner.
GUARD = 'trap "" INT TERM HUP; while read -r line; do pid=$line; done; kill -9 $pid 2>/dev/null; rm -rf "$0"'


class Store:
    """A server, with one bucket; its address is known before it is started.

    Args:
        command: that starts it; `{port}` and `{data}` are put in.
    """

    def __init__(self, *command: str) -> None:
        self._reserved: socket.socket | None = _bound()
        self._port: int = self._reserved.getsockname()[1]
        self._directory = Path(tempfile.mkdtemp(prefix="ftfile-s3-"))
        data = self._directory / "data"
        data.mkdir()
        self._command = [word.format(port=self._port, data=data) for word in command]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self._directory)], stdin=subprocess.PIPE, start_new_session=True, text=True
        )
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Return its URL."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Return the root of its bucket."""
        return f"s3://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Return what the driver must be told."""
        return {"endpoint": self.endpoint, "region": "us-east-1"}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """Return what Hadoop's client must be told; credentials it finds in the environment."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }

    @property
    def credentials(self) -> tuple[str, ...]:
        """Return what those who ask must show."""
        return tuple(CREDENTIALS.values())

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return what of that is told nowhere."""
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
        self._release_port()
        keys = dict(zip(("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"), CREDENTIALS.values(), strict=True))
        log = self._directory / "log"
        with log.open("a") as output:
            server = subprocess.Popen(
                self._command, env=os.environ | keys, stdout=output, stderr=output, start_new_session=True
            )
        self._server = server
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{server.pid}\n")
        self._guard.stdin.flush()
        _wait_until_answers(server, self._port, log)

    def kill(self) -> None:
        """SIGKILL it; its data stay."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def remove(self) -> None:
        """Kill it and forget its data."""
        self.kill()
        self._release_port()
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _release_port(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None


@functools.cache
def client(endpoint: str) -> Any:
    """Return a client that is not the driver's."""
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(s3={"addressing_style": "path"}),
    )


def what_is_missing() -> str:
    """Say that the real server of S3 is not there; empty where it is."""
    if VERSITY.exists():
        return ""
    return "no real S3 server is built, and moto is tried alone: .ci/s3-server builds one where Go is"


def moto() -> AbstractContextManager[Store]:
    """Start moto, which keeps nothing when it ends."""
    return _running(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}")


def versity() -> AbstractContextManager[Store]:
    """Start the Versity gateway over a temporary directory."""
    return _running(str(VERSITY), "--quiet", "--keep-alive", "--port", "127.0.0.1:{port}", "posix", "{data}")


@contextlib.contextmanager
def _running(*command: str) -> Iterator[Store]:
    store = Store(*command)
    try:
        store.start()
        client(store.endpoint).create_bucket(Bucket=BUCKET)
        yield store
    finally:
        store.remove()


def _wait_until_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}") from error
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


def _bound() -> socket.socket:
    """Return what has a port that nobody else is given until it is closed."""
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    return found
