"""Files of other programs on HDFS, with both drivers and the state of the stream on HDFS, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hdfs.support import new_directory
from tests.source_files import check_a_migration, check_lines_are_read_once

if TYPE_CHECKING:
    from tests.hdfs.minicluster import MiniCluster


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs"])
def test_lines_are_read_once(cluster: MiniCluster, scheme: str) -> None:
    root = cluster.web_url if scheme == "webhdfs" else cluster.url
    check_lines_are_read_once(root + new_directory(), {})


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs"])
def test_a_migration(cluster: MiniCluster, scheme: str) -> None:
    root = cluster.web_url if scheme == "webhdfs" else cluster.url
    check_a_migration(root + new_directory(), {})
