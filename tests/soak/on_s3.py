"""The place on an object store: a server that speaks S3, which is also killed and stopped."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.guarded import CannotStart
from tests.object_stores.servers import BUCKET, CREDENTIALS, NO_FILES, client, versity, what_is_missing
from tests.soak.place import Place, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.object_stores.servers import Storage

__all__ = ("S3Place",)

SERVER = "storage"


@dataclass(frozen=True, slots=True)
class S3Path:
    """A directory or an object, read by a client of Amazon.

    Attributes:
        endpoint: of the server.
        key: of the object, or of the directory without a slash at its end.
    """

    endpoint: str
    key: str

    def __truediv__(self, more: str) -> S3Path:
        return S3Path(self.endpoint, f"{self.key}/{more}")

    def __str__(self) -> str:
        return f"s3://{BUCKET}/{self.key}"

    @property
    def name(self) -> str:
        """The last component."""
        return self.key.rpartition("/")[2]

    def visible_files(self) -> Iterator[S3Path]:
        """Yield the objects of the directory that programs read: Hadoop hides names that begin with `_` or `.`."""
        pages = client(self.endpoint).get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=BUCKET, Prefix=f"{self.key}/", Delimiter="/"):
            for found in page.get("Contents", ()):
                child = S3Path(self.endpoint, found["Key"])
                if child.name and child.name[0] not in "_.":
                    yield child

    def read_bytes(self) -> bytes:
        """Return the content of the object."""
        content: bytes = client(self.endpoint).get_object(Bucket=BUCKET, Key=self.key)["Body"].read()
        return content


class S3Place(Place):
    """Spark on two cores, directories on a server that speaks S3, checkpoints on the local disk."""

    name = "s3"
    environment: Mapping[str, str] = MappingProxyType(CREDENTIALS | NO_FILES)

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._running = ExitStack()
        self._object_store: Storage | None = None

    @property
    def object_store(self) -> Storage:
        """The server, which runs if it was not killed."""
        assert self._object_store is not None
        return self._object_store

    def start(self) -> None:
        """Start the server with the data of earlier runs."""
        if missing := what_is_missing():
            raise CannotStart(missing)
        if self._object_store is None:
            os.environ.update(self.environment)  # for the checks of ftfile
            servers = self.home / "servers"
            servers.mkdir(exist_ok=True)
            self._object_store = self._running.enter_context(versity(servers))
            self.storage = self._object_store.settings
            self.servers = {SERVER: _server_of(self._object_store)}

    def stop(self) -> None:
        """Kill the server; its data stays."""
        self._running.close()
        self._object_store = None

    def directory(self, directory: str) -> S3Path:
        """Return the path of a directory for a client of Amazon."""
        return S3Path(self.object_store.endpoint, f"soak/{directory}")

    def log(self, query: str) -> Path:
        """Return the log of a query's sink on the disk of the server."""
        return self.object_store.data / BUCKET / "soak" / query / "_ftfile/log"

    def settle(self) -> None:
        """Wait until the server responds."""
        self.object_store.wait()


def _server_of(storage: Storage) -> Server:
    def start() -> None:
        if not storage.is_running:
            storage.launch()

    def freeze() -> None:
        if storage.is_running:
            storage.freeze()

    return Server(kill=storage.kill, start=start, freeze=freeze, thaw=storage.thaw)
