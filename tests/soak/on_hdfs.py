"""The place on HDFS: a NameNode and two DataNodes, which are also killed and stopped."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from tests.demos.files.hdfs_path import HdfsPath
from tests.demos.files.on_hdfs import DATANODES, SETTINGS
from tests.hdfs.minicluster import MiniCluster
from tests.soak.place import Place, Size, guarded_server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("HdfsPlace",)


class HdfsPlace(Place):
    """Spark on two cores, directories on HDFS, checkpoints on the local disk.

    The first directory and the store are written by Hadoop's protocol, the second directory by WebHDFS.
    """

    name = "hdfs"
    size: ClassVar[Size] = Size((30, 60), (500, 12_000), (8, 16))

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._cluster: MiniCluster | None = None

    @property
    def cluster(self) -> MiniCluster:
        """The running HDFS."""
        assert self._cluster is not None
        return self._cluster

    def start(self) -> None:
        """Start HDFS with the data of earlier runs."""
        if self._cluster is None:
            servers = self.home / "servers"
            servers.mkdir(exist_ok=True)
            self._cluster = MiniCluster(DATANODES, SETTINGS, home=servers)
            starts = {"namenode": partial(self._cluster.start_namenode, wait=False)}
            for number in range(DATANODES):
                starts[f"datanode{number}"] = partial(self._cluster.start_datanode, number, wait=False)
            self.servers = {name: guarded_server(self._cluster, name, start) for name, start in starts.items()}

    def stop(self) -> None:
        """End HDFS; its data stays."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def directory(self, directory: str) -> HdfsPath:
        """Return the path of a directory for a reader by WebHDFS."""
        root = self.cluster.web_url if directory == "followed" else self.cluster.url
        return HdfsPath(self.cluster.pages, root, f"/soak/{directory}")

    def log(self, query: str) -> HdfsPath:
        """Return the log of a query's sink, for a reader by WebHDFS."""
        return self.directory(query) / "_ftfile/log"

    def settle(self) -> None:
        """Wait until HDFS is ready."""
        self.cluster.wait_until_ready()
