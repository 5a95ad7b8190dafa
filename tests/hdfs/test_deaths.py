"""The whole sink on HDFS while its writers, NameNode and DataNodes are killed: no row is lost or duplicated."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import FtfileError, OutcomeUnknown, Unavailable
from ftfile.log import publish
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.contracts.support import write
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.hdfs.minicluster import MiniCluster
from tests.hdfs.support import COLUMNS, TEXT, checked, new_directory, rows

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(params=["webhdfs", "hdfs"])
def url(cluster: MiniCluster, request: pytest.FixtureRequest) -> str:
    return (cluster.web_url if request.param == "webhdfs" else cluster.url) + new_directory()


# On a busy machine, servers take minutes to restart.
PATIENT = TEXT | {"storage.patience": "600"}

KILLED = """\
import os, signal, sys
from ftfile.storage.hdfs.{module} import {name}
from ftfile.testing.micro_batch import MicroBatch
query = MicroBatch(sys.argv[1], {{"value": "string"}}, {{"fileFormat": "text"}}, checkpoint=sys.argv[1] + "-checkpoint")
left = int(sys.argv[2])
def killed_at(self, operation, path, call, *more, real={name}.run, **limits):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, operation, path, call, *more, **limits)
{name}.run = killed_at
query.run(1, [[{{"value": "b"}}], [{{"value": "c"}}]])
"""


def test_a_process_killed_at_any_call_loses_and_doubles_nothing(url: str, seed: int) -> None:
    native = url.startswith("hdfs:")
    names = ("native", "NativeHdfsFileSystem") if native else ("webhdfs", "WebHdfsFileSystem")
    code = KILLED.format(module=names[0], name=names[1])
    # Every twentieth call, from a first call that differs in each run. The seed of a failure is printed.
    step = 2 if THOROUGH else 20
    for number, calls in enumerate(range(seed % step, 60, step)):
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
    assert number, "no process was killed"


class Interrupted(WrapperFileSystem, PickledByReference):
    """Calls `interrupt` once, before the first call of an operation on a matching path."""

    def __init__(self, inner: Any, operation: str, part: str, interrupt: Callable[[], object]) -> None:
        super().__init__(inner)
        self._operation, self._part, self._interrupt = operation, part, interrupt
        self.done = threading.Lock()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if operation == self._operation and self._part in path and self.done.acquire(blocking=False):
            self._interrupt()
        return call()


STEPS = (
    ("create", "_ftfile/staged"),
    ("create_exclusive", "_ftfile/log"),
    ("rename", "_ftfile/staged"),
    ("put", "_ftfile/hints"),
)


def test_a_namenode_restarted_in_mid_commit_is_survived(cluster: MiniCluster, url: str, seed: int) -> None:
    def restart() -> None:
        cluster.kill_namenode()
        cluster.start_namenode(wait=False)

    fs = open_filesystem(url, settings={"patience": "600"})
    fs.make_directories("")
    chosen = (seed + url.startswith("hdfs:")) % len(STEPS)  # a different step for each driver
    for batch, step in enumerate(STEPS if THOROUGH else STEPS[chosen : chosen + 1]):
        interrupted = Interrupted(fs, *step, restart)
        with mounted(interrupted) as mounted_url:
            MicroBatch(mounted_url, COLUMNS, TEXT).run(batch, [rows(f"a{batch}"), rows(f"b{batch}")])
        assert interrupted.done.locked(), f"no commit made the call {step}"
    cluster.wait_until_ready()
    MicroBatch(url, COLUMNS, TEXT).run(batch + 1, [rows("c")])
    checked(url, "c", *(f"{letter}{number}" for letter in "ab" for number in range(batch + 1)))


def test_a_namenode_killed_in_mid_commit_fails_the_batch_and_the_next_start_repairs_it(
    cluster: MiniCluster, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "PUBLISH_TIMEOUT_S", 1.0)
    # The drivers' tests cover errors of a dead NameNode, so one driver in each run is enough.
    url = (cluster.web_url, cluster.url)[seed % 2] + new_directory()
    fs = open_filesystem(url, settings={"patience": "0"})
    fs.make_directories("")
    # A DataNode may hold a connection to the earlier NameNode, and notices its loss at the next request.
    probe = open_filesystem(f"{url}-probe")
    probe.make_directories("")
    with contextlib.suppress(OutcomeUnknown, Unavailable):
        write(probe, "file", b"data")
    with mounted(Interrupted(fs, "rename", "_ftfile/staged", cluster.kill_namenode)) as mounted_url:
        query = MicroBatch(mounted_url, COLUMNS, TEXT)
        try:
            with pytest.raises(FtfileError, match=r"committed|is unknown whether"):
                query.run(0, [rows("a"), rows("b")])
        finally:
            cluster.start_namenode()
        query.restart()
        for last in (False, False, False, True):
            try:
                query.run(0, [rows("b", "a")])
                break
            except (OutcomeUnknown, Unavailable):
                # A DataNode may have held a connection to the killed NameNode. Spark would retry, too.
                if last:
                    raise
    checked(url, "a", "b")


def test_a_datanode_killed_between_batches_is_waited_for(cluster: MiniCluster) -> None:
    urls = [root + new_directory() for root in (cluster.web_url, cluster.url)]
    for url in urls:
        MicroBatch(url, COLUMNS, TEXT).run(0, [rows("a")])
    cluster.kill_datanode()
    cluster.start_datanode(wait=False)
    # The native driver runs first: it reads data of the DataNode before it writes.
    for url in reversed(urls):
        MicroBatch(url, COLUMNS, PATIENT).run(1, [rows("b")])
    for url in urls:
        checked(url, "a", "b")
    cluster.wait_until_ready()


@pytest.mark.skipif(not THOROUGH, reason="starts more servers: in `make long`; the demonstration kills a DataNode, too")
def test_one_of_two_datanodes_is_enough() -> None:
    with MiniCluster(datanodes=2) as cluster:
        urls = [f"{root}{new_directory()}" for root in (cluster.web_url, cluster.url)]
        queries = [MicroBatch(url, COLUMNS, TEXT, attempts=4) for url in urls]
        for query in queries:
            query.run(0, [rows("a"), rows("b")])
        cluster.kill_datanode(1)
        for query in queries:
            query.run(1, [rows("c"), rows("d")])
        for url in urls:
            checked(url, "a", "b", "c", "d")
