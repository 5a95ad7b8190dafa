"""Servers of S3 on free loopback ports: moto, and a real one where it is built."""

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

__all__ = ("CREDENTIALS", "VERSITY", "Store", "client", "moto", "versity")

VERSITY = Path(__file__).parents[2] / ".servers" / "versitygw"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "ftfile-access", "AWS_SECRET_ACCESS_KEY": "ftfile-SECRET-value"}
BUCKET = "bucket"
START_TIMEOUT_S = 60.0

# At the end of its input the one who started the server is gone.
GUARD = 'trap "" INT TERM HUP; read -r pid; read -r line; kill -9 $pid 2>/dev/null; rm -rf "$0"'


class Store:
    """A server that runs, with one bucket.

    Attributes:
        endpoint: its URL.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @property
    def url(self) -> str:
        """Return the root of its bucket."""
        return f"s3://{BUCKET}"

    @property
    def settings(self) -> dict[str, str]:
        """Return what the driver must be told."""
        return {"endpoint": self.endpoint, "region": "us-east-1"}


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


@contextlib.contextmanager
def moto() -> Iterator[Store]:
    """Start moto."""
    port = _free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port) as store:
        yield store


@contextlib.contextmanager
def versity() -> Iterator[Store]:
    """Start the Versity gateway over a temporary directory."""
    port = _free_port()
    with _running(
        [str(VERSITY), "--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}", "posix", "{data}"], port
    ) as store:
        yield store


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[Store]:
    directory = Path(tempfile.mkdtemp(prefix="ftfile-s3-"))
    (directory / "data").mkdir()
    command = [word.format(data=directory / "data") for word in command]
    keys = {
        "ROOT_ACCESS_KEY": CREDENTIALS["AWS_ACCESS_KEY_ID"],
        "ROOT_SECRET_KEY": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    }
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, str(directory)], stdin=subprocess.PIPE, start_new_session=True, text=True
    )
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | keys, stdout=log, stderr=log, start_new_session=True)
    assert guard.stdin is not None
    guard.stdin.write(f"{server.pid}\n")
    guard.stdin.flush()
    try:
        store = Store(f"http://127.0.0.1:{port}")
        _wait_until_answers(server, port, directory / "log")
        client(store.endpoint).create_bucket(Bucket=BUCKET)
        yield store
    finally:
        server.kill()
        server.wait()
        guard.stdin.close()
        guard.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_answers(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the server of S3 did not start:\n{log.read_text()}") from error
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
