"""The whole sink on HDFS: commits, replays, rolling, vacuum, reading back."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, OutOfSpace, Unsupported
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.hdfs.support import COLUMNS, TEXT, checked, new_directory, rows
from tests.hdfs.test_drivers import status_of
from tests.unit.writing.files.encrypted import SECOND, forget_all, ring, words_in, write_ring

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster


__all__ = ("ring",)


@pytest.fixture(params=["webhdfs", "hdfs"])
def url(cluster: MiniCluster, request: pytest.FixtureRequest) -> str:
    return (cluster.web_url if request.param == "webhdfs" else cluster.url) + new_directory()


def test_batches_replays_and_restarts(url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
    query.run(0, [rows("a"), rows("b")])
    query.run(1, [[], []])
    query.restart()
    assert query.next_batch() == 2
    query.run(2, [rows("c", "d")])
    query.restart()
    assert query.run(2, [rows("d"), rows("c")]).replayed
    report = checked(url, "a", "b", "c", "d")
    assert report.committed == {query.query_id: [0, 1, 2]}


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_files_stay_open_over_batches_and_are_assembled(url: str, file_format: str) -> None:
    options = {"fileFormat": file_format, "partitionBy": "letter", "maxRecordsPerFile": "4", "rolling": "policy"}
    query = MicroBatch(url, {"letter": "string", "id": "long"}, options)
    for batch in range(5):
        query.run(batch, [[{"letter": letter, "id": batch * 2 + task} for letter in "xy"] for task in range(2)])
    assert len(ftfile.open(url).files()) >= 2
    ftfile.flush(url)
    found = ftfile.open(url).to_arrow()
    assert sorted(found.column("id").to_pylist()) == sorted([*range(10)] * 2)
    paths = [file.path for file in ftfile.open(url).files()]
    assert all(path.startswith(("letter=x/", "letter=y/")) for path in paths)
    assert all(open_filesystem(url).exists(path) for path in paths)


def test_encrypted_batches(cluster: MiniCluster, url: str, tmp_path: Path, ring: Path) -> None:
    """A file of two batches, a replay after a restart, compaction, permissions, and a reader with another key."""
    options = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}", "compression": "gzip", "maxBatchesPerFile": "2"}
    query = MicroBatch(url, COLUMNS, TEXT | options, checkpoint=f"{url}-checkpoint")
    query.run(0, [rows("a", "a secret"), rows("b")])
    query.restart()
    assert query.run(0, [rows("b"), rows("a", "a secret")]).replayed
    query.run(1, [rows("c"), rows("d")])
    query.run(2, [rows("e")])
    for finish in (ftfile.flush, ftfile.compact):
        finish(url)
        forget_all()
        assert sorted(ftfile.open(url).to_arrow()["value"].to_pylist()) == ["a", "a secret", "b", "c", "d", "e"]
    check_directory(ftfile.open(url).file_system, rows_of=words_in)
    raw = open_filesystem(url)
    for file in ftfile.open(url).files():
        assert file.path.endswith(".txt.gz.enc")
        assert raw.read(file.path).startswith(b"FTE\x01")
        assert status_of(cluster, f"{url[url.index('/', 12) :]}/{file.path}")["permission"] == "600"
    other = tmp_path / "other-keys"
    write_ring(other, first=SECOND)
    with pytest.raises(CorruptData, match="another key has this name"):
        ftfile.open(url, key_provider=f"file:{other}").to_arrow()


def test_compacting_dropping_and_vacuum(url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT)
    for batch, letter in enumerate("abc"):
        query.run(batch, [rows(letter)])
    ftfile.compact(url)
    assert len(ftfile.open(url).files()) == 1
    checked(url, "a", "b", "c")
    ftfile.drop(url, "all")
    query.run(3, [rows("d")])
    assert len(open_filesystem(url).list("_ftfile/retired")) == 4
    ftfile.vacuum(url, retention="0s", force=True, dry_run=False)
    checked(url, "d")
    assert open_filesystem(url).list("_ftfile/retired") == []


def test_two_drivers_of_one_query_commit_each_batch_once(url: str) -> None:
    code = (
        "import sys\nfrom ftfile.testing.micro_batch import MicroBatch\n"
        "query = MicroBatch(sys.argv[1], {'value': 'string'}, {'fileFormat': 'text'})\n"
        "for batch in range(6): query.run(batch, [[{'value': f'{batch}'}]])\n"
    )
    drivers = [subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [driver.communicate(timeout=600)[1].decode() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], errors
    checked(url, *map(str, range(6)))


def test_a_quota_that_is_used_up_fails_the_batch_and_nothing_else(cluster: MiniCluster, url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT)
    query.run(0, [rows("a")])
    directory = url[url.index("/", 12) :]
    cluster.set_space_quota(directory, 1)
    try:
        with pytest.raises(OutOfSpace, match="quota"):
            query.run(1, [rows("b")])
    finally:
        cluster.set_space_quota(directory, None)
    checked(url, "a")
    query.run(1, [rows("b")])
    checked(url, "a", "b")


def test_options_of_hdfs_act_and_are_checked(cluster: MiniCluster, url: str) -> None:
    options = {
        "storage.replication": "2",
        "storage.blockSize": "64KiB",
        "filePermission": "640",
        "directoryPermission": "750",
    }
    MicroBatch(url, COLUMNS, TEXT | options).run(0, [rows("a")])
    [file] = ftfile.open(url).files()
    status = status_of(cluster, f"{url[url.index('/', 12) :]}/{file.path}")
    assert (status["replication"], status["blockSize"], status["permission"]) == (2, 65536, "640")
    with pytest.raises(ConfigError, match="a multiple of 512 bytes"):
        MicroBatch(url, COLUMNS, TEXT | {"storage.blockSize": "1000"}).pickled_plan()
    # Settings that only the server can check are tried before the query starts.
    for refused in ({"storage.blockSize": "512"}, {"storage.replication": "700"}):
        with pytest.raises(Unsupported, match="set another " + "".join(refused)):
            MicroBatch(f"{url}-new", COLUMNS, TEXT | refused).pickled_plan()
    assert open_filesystem(f"{url}-new").list("_ftfile") == []


def test_a_name_that_hdfs_cannot_store_is_a_bad_record_or_escaped(url: str) -> None:
    columns = {"value": "string", "file": "string"}
    query = MicroBatch(url, columns, {"fileFormat": "text", "partitionBy": "file"})
    query.run(0, [[{"value": "a", "file": "10:30"}]])
    assert [file.path.partition("/")[0] for file in ftfile.open(url).files()] == ["file=10%3A30"]
    named = MicroBatch(f"{url}-named", columns, {"fileFormat": "text", "fileNameColumn": "file"})
    with pytest.raises(FtfileError, match=r"colon|':'"):
        named.run(0, [[{"value": "a", "file": "10:30"}]])
