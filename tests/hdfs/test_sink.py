"""The whole sink on HDFS: commits, replays, rolling, deaths of writers and servers, vacuum, reading back."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.fs.registry import open_filesystem
from ftfile.fs.wrapper import WrapperFileSystem
from ftfile.sink import writer as sink_writer
from ftfile.testing.by_reference import PickledByReference
from ftfile.testing.checker import check_directory
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.mounting import mounted
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.test_drivers import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.testing.checker import DirectoryReport


_directories = (f"/sink-{number}" for number in itertools.count())

COLUMNS = {"value": "string"}
TEXT = {"fileFormat": "text"}


@pytest.fixture(params=["webhdfs", "hdfs"])
def url(cluster: MiniCluster, request: pytest.FixtureRequest) -> str:
    return (cluster.web_url if request.param == "webhdfs" else cluster.url) + next(_directories)


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    sink_writer.forget_logs()
    yield
    sink_writer.forget_logs()


def rows(*letters: str) -> list[dict[str, Any]]:
    return [{"value": letter} for letter in letters]


def checked(url: str, *letters: str) -> DirectoryReport:
    """Check the directory: a plain lister and ftfile's own reader see these rows once."""
    report = check_directory(open_filesystem(url))
    assert report.live_rows == report.visible_rows == Counter(letter.encode() for letter in letters)
    assert sorted(ftfile.open(url).to_arrow().column("value").to_pylist()) == sorted(letters)
    return report


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


def test_compacting_dropping_and_vacuum(url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT)
    for batch, letter in enumerate("abc"):
        query.run(batch, [rows(letter)])
    ftfile.compact(url)
    assert len(ftfile.open(url).files()) == 1
    checked(url, "a", "b", "c")
    ftfile.drop(url, "all")
    query.run(3, [rows("d")])
    ftfile.vacuum(url, grace="0s", force=True, dry_run=False)
    checked(url, "d")
    assert open_filesystem(url).list("_ftfile/retired") == []


KILLED = """\
import os, signal, sys
from ftfile.fs import {module}
from ftfile.testing.micro_batch import MicroBatch
query = MicroBatch(sys.argv[1], {{"value": "string"}}, {{"fileFormat": "text"}}, checkpoint=sys.argv[1] + "-checkpoint")
left = int(sys.argv[2])
def killed_at(self, operation, path, call, *more, real={module}.{name}.run):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, operation, path, call, *more)
{module}.{name}.run = killed_at
query.run(1, [[{{"value": "b"}}], [{{"value": "c"}}]])
"""


def test_a_process_killed_at_any_call_loses_and_doubles_nothing(url: str, seed: int) -> None:
    native = url.startswith("hdfs:")
    names = ("hdfs_native", "NativeHdfsFileSystem") if native else ("webhdfs", "WebHdfsFileSystem")
    code = KILLED.format(module=names[0], name=names[1])
    # Every tenth call, of another ten in each run; the seed of a failure is printed.
    for number, calls in enumerate(range(seed % 10, 60, 10)):
        directory = f"{url}-{number}"
        query = MicroBatch(directory, COLUMNS, TEXT, checkpoint=f"{directory}-checkpoint")
        query.run(0, [rows("a")])
        killed = subprocess.run(
            [sys.executable, "-c", code, directory, str(calls)], env=os.environ, capture_output=True, check=False
        )
        query.restart()
        check_directory(open_filesystem(directory), recorded_by_spark={query.query_id: range(query.next_batch())})
        if query.next_batch() == 1:
            query.run(1, [rows("c"), rows("b")])
        checked(directory, "a", "b", "c")
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()


class Interrupted(WrapperFileSystem, PickledByReference):
    """Calls `interrupt` once, before the first call of an operation on a matching path."""

    def __init__(self, inner: Any, operation: str, part: str, interrupt: Callable[[], object]) -> None:
        super().__init__(inner)
        self._operation, self._part, self._interrupt = operation, part, interrupt
        self._done = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == self._operation and self._part in path and self._done.acquire(blocking=False):
            self._interrupt()
        return call()


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("create", "_ftfile/staged"),
        ("create_exclusive", "_ftfile/log"),
        ("rename", "_ftfile/staged"),
        ("put", "_ftfile/hints"),
    ],
)
def test_a_namenode_restarted_in_mid_commit_is_survived(
    cluster: MiniCluster, url: str, operation: str, part: str
) -> None:
    def restart() -> None:
        cluster.kill_namenode()
        cluster.start_namenode(wait=False)

    fs = open_filesystem(url, settings={"patience": "60"})
    fs.make_directories("")
    with mounted(Interrupted(fs, operation, part, restart)) as mounted_url:
        query = MicroBatch(mounted_url, COLUMNS, TEXT)
        query.run(0, [rows("a"), rows("b")])
        query.run(1, [rows("c")])
    cluster.wait_until_ready()
    checked(url, "a", "b", "c")


def test_a_namenode_killed_in_mid_commit_fails_the_batch_and_the_next_start_repairs_it(
    cluster: MiniCluster, url: str
) -> None:
    fs = open_filesystem(url, settings={"patience": "0"})
    fs.make_directories("")
    with mounted(Interrupted(fs, "rename", "_ftfile/staged", cluster.kill_namenode)) as mounted_url:
        query = MicroBatch(mounted_url, COLUMNS, TEXT | {"publishTimeout": "1s"})
        try:
            with pytest.raises(FtfileError, match=r"committed|may or may not"):
                query.run(0, [rows("a"), rows("b")])
        finally:
            cluster.start_namenode()
        query.restart()
        query.run(0, [rows("b", "a")])
    checked(url, "a", "b")


def test_a_datanode_killed_between_batches_is_waited_for(cluster: MiniCluster, url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT)
    query.run(0, [rows("a")])
    cluster.kill_datanode()
    cluster.start_datanode(wait=False)
    query.run(1, [rows("b")])
    checked(url, "a", "b")
    cluster.wait_until_ready()


def test_two_drivers_of_one_query_commit_each_batch_once(url: str) -> None:
    code = (
        "import sys\nfrom ftfile.testing.micro_batch import MicroBatch\n"
        "query = MicroBatch(sys.argv[1], {'value': 'string'}, {'fileFormat': 'text'})\n"
        "for batch in range(6): query.run(batch, [[{'value': f'{batch}'}]])\n"
    )
    drivers = [subprocess.Popen([sys.executable, "-c", code, url], stderr=subprocess.PIPE) for _ in range(2)]
    errors = [driver.communicate(timeout=90)[1].decode() for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], errors
    checked(url, *map(str, range(6)))


def test_options_of_hdfs_act_and_are_checked(cluster: MiniCluster, url: str) -> None:
    options = {"replication": "2", "blockSize": "64KiB", "filePermission": "640", "directoryPermission": "750"}
    MicroBatch(url, COLUMNS, TEXT | options).run(0, [rows("a")])
    [file] = ftfile.open(url).files()
    status = status_of(cluster, f"{url[url.index('/', 12) :]}/{file.path}")
    assert (status["replication"], status["blockSize"], status["permission"]) == (2, 65536, "640")
    with pytest.raises(ConfigError, match="multiples of 512 bytes"):
        MicroBatch(url, COLUMNS, TEXT | {"blockSize": "1000"}).plan()


def test_a_name_that_hdfs_cannot_store_is_a_bad_record_or_escaped(url: str) -> None:
    columns = {"value": "string", "file": "string"}
    query = MicroBatch(url, columns, {"fileFormat": "text", "partitionBy": "file"})
    query.run(0, [[{"value": "a", "file": "10:30"}]])
    assert [file.path.partition("/")[0] for file in ftfile.open(url).files()] == ["file=10%3A30"]
    named = MicroBatch(f"{url}-named", columns, {"fileFormat": "text", "fileNameColumn": "file"})
    with pytest.raises(FtfileError, match=r"colon|':'"):
        named.run(0, [[{"value": "a", "file": "10:30"}]])


@pytest.mark.parametrize("scheme", ["webhdfs", "hdfs"])
def test_one_of_two_datanodes_is_enough(scheme: str) -> None:
    with MiniCluster(datanodes=2) as cluster:
        directory = f"{cluster.web_url if scheme == 'webhdfs' else cluster.url}/out"
        query = MicroBatch(directory, COLUMNS, TEXT, attempts=4)
        query.run(0, [rows("a"), rows("b")])
        cluster.kill_datanode(1)
        query.run(1, [rows("c"), rows("d")])
        checked(directory, "a", "b", "c", "d")
