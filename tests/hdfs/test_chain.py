"""A chain of two queries in Spark on HDFS, directories and checkpoints, killed again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.demo.hdfs_path import HdfsPath
from tests.spark.chain import Places, lines_in, run_chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster


def test_every_row_is_in_the_last_directory_once(cluster: MiniCluster, tmp_path: Path, seed: int) -> None:
    root = f"{cluster.url}/chain"

    def lines() -> Iterator[str]:
        HdfsPath(cluster.pages, cluster.url, "/chain/end").download(tmp_path / "copy", ".json")
        return lines_in(tmp_path / "copy")

    print(run_chain(tmp_path, Places(root, root, lines), seed))
