"""The contract of the port on moto and on a real S3 server."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from ftfile.fs.paths import NAME_BYTES_MAX
from ftfile.fs.registry import open_filesystem
from ftfile.testing.fs_contract import ODD_NAMES, FileSystemContract
from tests.crash.share import THOROUGH
from tests.object_stores.servers import BUCKET, client

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem
    from tests.object_stores.servers import Store

_directories = (f"contract-{number}" for number in itertools.count())


class S3Contract(FileSystemContract):
    rename_rounds = 50 if THOROUGH else 5  # a request takes milliseconds
    url: str
    client: object

    @pytest.fixture
    def filesystem(self, server: Store) -> FileSystem:
        self.directory = next(_directories)
        self.endpoint = server.endpoint
        return open_filesystem(f"{server.url}/{self.directory}", settings=server.settings)

    def stored(self, filesystem: FileSystem, path: str) -> bytes:  # noqa: ARG002
        answer = client(self.endpoint).get_object(Bucket=BUCKET, Key=f"{self.directory}/{path}")
        content: bytes = answer["Body"].read()
        return content


@pytest.mark.xdist_group("moto")
class TestMoto(S3Contract):
    @pytest.mark.parametrize("name", [name for name in ODD_NAMES if "\n" not in name], ids=ascii)
    def test_odd_names(self, filesystem: FileSystem, name: str) -> None:
        # It finds no object whose name has a line feed.
        super().test_odd_names(filesystem, name)

    @pytest.fixture
    def server(self, moto: Store) -> Store:
        return moto


@pytest.mark.xdist_group("versity")
class TestVersity(S3Contract):
    @pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
    def test_odd_names(self, filesystem: FileSystem, name: str) -> None:
        # It keeps objects as files, and replaces one by way of a longer name.
        super().test_odd_names(filesystem, name[:60] if len(name.encode()) == NAME_BYTES_MAX else name)

    @pytest.fixture
    def server(self, real: Store) -> Store:
        return real
