"""The contract of the file system interface on a real HDFS, with both drivers."""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.filesystem import FileSystemContract
from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem
    from tests.hdfs.minicluster import MiniCluster

_directories = (f"/contract-{number}" for number in itertools.count())

BLOCK_BYTES = 16_384
# Long timeouts, because the machine may be busy.
PATIENT = {"timeout": "600", "patience": "600"}


class HdfsContract(FileSystemContract, ABC):
    """Shared by both drivers: the servers, which reveal more state than the driver."""

    counts_late = True
    syncs_of_blocks = 3
    clock_slack_ms = 500
    cluster: MiniCluster
    directory: str

    @abstractmethod
    def root_url(self) -> str:
        """Return the URL of the root of the file system."""

    @pytest.fixture
    def filesystem(self, cluster: MiniCluster) -> FileSystem:
        self.cluster = cluster
        self.directory = next(_directories)
        fs = open_filesystem(self.root_url() + self.directory, settings=PATIENT)
        fs.make_directories("")
        return fs

    def reader(self, filesystem: FileSystem) -> FileSystem:  # noqa: ARG002
        # By WebHDFS, the DataNodes read the file like every Java client.
        return open_filesystem(self.cluster.web_url + self.directory, settings=PATIENT)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        self.cluster.set_space_quota(self.directory, 50_000)
        yield filesystem
        self.cluster.set_space_quota(self.directory, None)

    @contextlib.contextmanager
    def unclosable(self, filesystem: FileSystem, path: str) -> Iterator[FileSystem]:  # noqa: ARG002
        # The stream sends such short data when the file is closed.
        with self.full(filesystem):
            yield filesystem

    def with_blocks(self, filesystem: FileSystem) -> tuple[FileSystem, int]:  # noqa: ARG002
        settings = PATIENT | {"blockSize": str(BLOCK_BYTES)}
        return open_filesystem(self.root_url() + self.directory, settings=settings), BLOCK_BYTES

    def device_syncs(self, filesystem: FileSystem) -> int:  # noqa: ARG002
        return self.cluster.device_syncs()


class TestWebHdfs(HdfsContract):
    # The NameNode decides the winner, and the tests of the other protocol run more rounds.
    race_rounds = rename_rounds = 50 if THOROUGH else 5

    def root_url(self) -> str:
        return self.cluster.web_url


class TestNative(HdfsContract):
    race_rounds = rename_rounds = 50 if THOROUGH else 20

    def root_url(self) -> str:
        return self.cluster.url
