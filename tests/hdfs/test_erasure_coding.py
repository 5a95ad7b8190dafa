"""The sink in an erasure-coded directory: it works by WebHDFS, and fails before any row by Hadoop's protocol."""

from __future__ import annotations

import pytest

import ftfile
from ftfile.core.errors import Unsupported
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.support import write
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.support import COLUMNS, TEXT, checked, new_directory, rows
from tests.hdfs.test_drivers import status_of

POLICY = "XOR-2-1-1024k"
DATA_AND_PARITY = 2  # blocks of a file that is shorter than a cell


@pytest.fixture
def coded(cluster: MiniCluster) -> str:
    # No DataNode is needed to create a file.
    path = new_directory()
    cluster.make_coded_directory(path, POLICY)
    return path


@pytest.mark.parametrize("options", [{}, {"durability": "close"}, {"rolling": "policy"}])
def test_hadoops_own_protocol_refuses_it_before_any_row(
    cluster: MiniCluster, coded: str, options: dict[str, str]
) -> None:
    url = f"{cluster.url}{coded}/out"
    with pytest.raises(Unsupported, match=r"erasure-coded, .*; write with webhdfs://, or to a replicated directory"):
        MicroBatch(url, COLUMNS, TEXT | options).run(0, [rows("a")])
    fs = open_filesystem(url)
    assert [info.path for info in fs.list("")] == ["_ftfile"]
    assert not fs.exists("_ftfile/directory/_format")


def test_nothing_is_left_of_a_refused_file(cluster: MiniCluster, coded: str) -> None:
    fs = open_filesystem(f"{cluster.url}{coded}")
    fs.make_directories("below")
    for path in ("file", "below/file"):
        with pytest.raises(Unsupported, match="erasure-coded"):
            fs.create(path)
        with pytest.raises(Unsupported, match="erasure-coded"):
            fs.create_exclusive(path, b"data")
    assert [info.path for info in fs.list("")] == ["below"]
    assert fs.list("below") == []


def test_each_directory_of_the_root_has_its_own_policy(cluster: MiniCluster, coded: str) -> None:
    cluster.make_coded_directory(f"{coded}/replicated", "replication")
    fs = open_filesystem(f"{cluster.url}{coded}")
    write(fs, "replicated/file", b"data")
    cluster.make_coded_directory(f"{coded}/replicated/coded", POLICY)
    for path in ("file", "replicated/coded/file"):
        with pytest.raises(Unsupported, match="erasure-coded"):
            fs.create(path)
    url = f"{cluster.url}{coded}/replicated/out"
    MicroBatch(url, COLUMNS, TEXT).run(0, [rows("a")])
    checked(url, "a")


@pytest.mark.skipif(not THOROUGH, reason="needs three DataNodes, and waits until one counts as dead: 40 s")
def test_webhdfs_codes_and_syncs_it_and_loses_nothing_with_a_datanode() -> None:
    # A file needs all three DataNodes, so the NameNode must not skip a busy one.
    with MiniCluster(datanodes=3, settings={"dfs.namenode.redundancy.considerLoad": "false"}) as cluster:
        cluster.make_coded_directory("/coded", POLICY)
        check_late_policy(cluster)
        url = f"{cluster.web_url}/coded/out"
        query = MicroBatch(url, COLUMNS, TEXT)
        query.run(0, [rows("a"), rows("b")])
        rolling = MicroBatch(f"{url}-rolling", COLUMNS, TEXT | {"rolling": "policy", "maxRecordsPerFile": "2"})
        for batch, letter in enumerate("cde"):
            rolling.run(batch, [rows(letter)])
        ftfile.flush(f"{url}-rolling")
        before = cluster.device_syncs()
        write(open_filesystem(f"{cluster.web_url}/coded"), "synced", b"data")
        cluster.wait_for("count its syncs", lambda: cluster.device_syncs() >= before + DATA_AND_PARITY)
        assert status_of(cluster, "/coded/synced")["ecPolicy"] == POLICY
        cluster.kill_datanode(2)
        cluster.wait_for("miss a DataNode", lambda: cluster.bean("FSNamesystemState")["NumLiveDataNodes"] == 2)
        checked(f"{url}-rolling", "c", "d", "e")
        query.run(1, [rows("f")])
        checked(url, "a", "b", "f")


def check_late_policy(cluster: MiniCluster) -> None:
    """Check the error of a sync if the directory was replicated when the process first wrote to it."""
    fs = open_filesystem(f"{cluster.url}/late")
    fs.make_directories("")
    write(fs, "before", b"data")
    cluster.make_coded_directory("/late", POLICY)
    stream = fs.create("after")
    stream.write(b"data")
    with pytest.raises(Unsupported, match="erasure-coded"):
        stream.hsync()
    stream.abort()
