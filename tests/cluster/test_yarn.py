"""Applications on YARN, in cluster and client mode, with the commands of docs/cluster.md."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.testing.context import open_filesystem
from tests.cluster import yarn_job
from tests.cluster.cluster import command_of, executor_of, kill
from tests.cluster.yarn import MASTER, Yarn
from tests.cluster.yarn_job import FILES_PER_BATCH
from tests.demos.files.hdfs_path import HdfsPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster

FILES = 4
# Up to two batches are committed for each of four kills.
FILES_FOR_KILLS = 20
ROWS_PER_FILE = 10


@pytest.fixture(scope="module")
def yarn(hdfs: MiniCluster) -> Iterator[Yarn]:
    with Yarn(hdfs) as servers:
        yield servers


class Application:
    """An application with its directories on HDFS.

    Attributes:
        home: the directory of `spark-submit`, with `application.py`.

    Args:
        yarn: runs it.
        hdfs: the file system.
        home: an empty directory, whose name is the name of the application.
        variables: the environment of `spark-submit`, without PYSPARK_PYTHON.
    """

    def __init__(self, yarn: Yarn, hdfs: MiniCluster, home: Path, variables: dict[str, str]) -> None:
        self.home = home
        self._yarn = yarn
        self._variables = variables
        name = home.name
        self._urls = [f"{hdfs.url}/{name}/{kind}" for kind in ("in", "out", "checkpoint")]
        self._output = HdfsPath(hdfs.pages, hdfs.url, f"/{name}/out")
        self._rows = range(0)
        shutil.copy(yarn_job.__file__, home / "application.py")
        open_filesystem(f"{hdfs.url}/").make_directories(f"{name}/in")
        self.extend_input(FILES)

    def extend_input(self, files: int) -> None:
        """Write more files, until the input has this number."""
        for number in range(len(self._rows) // ROWS_PER_FILE, files):
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            lines = "".join(f'{{"id": {row}}}\n' for row in ids)
            open_filesystem(f"{self._urls[0]}/").create_exclusive(f"{number}.json", lines.encode())
        self._rows = range(files * ROWS_PER_FILE)

    def start(self, python: str, *options: str, more: Sequence[str] = ()) -> None:
        """Run `spark-submit` with these options, and more arguments of the application."""
        variables = self._variables | {"PYSPARK_PYTHON": python}
        arguments = [*options, "application.py", *self._urls, *more]
        self._yarn.submit(self.home.name, self.home, variables, arguments)

    def run(self, python: str, *options: str, more: Sequence[str] = ()) -> None:
        """Run `spark-submit` to its end."""
        self.start(python, *options, more=more)
        self._yarn.wait_for_end(self.home.name)

    def batches(self) -> int:
        """Return the number of committed batches."""
        log = self._output / "_ftfile/log"
        if not log.exists():
            return 0
        return sum(file.name.endswith(".record") for file in log.iterdir())

    def check(self) -> None:
        """Check that each row is there once, for a plain reader and for ftfile."""
        rows: Counter[int] = Counter()
        for file in self._output.iterdir():
            if not file.name.startswith(("_", ".")):
                rows.update(json.loads(line)["id"] for line in file.read_text("utf-8").splitlines())
        assert rows == Counter(self._rows)
        assert Counter(ftfile.open(str(self._output)).to_arrow().column("id").to_pylist()) == Counter(self._rows)


@pytest.fixture
def application(yarn: Yarn, hdfs: MiniCluster, plain_environment: dict[str, str], tmp_path: Path) -> Application:
    variables = {name: text for name, text in plain_environment.items() if not name.startswith("PYSPARK_")}
    return Application(yarn, hdfs, tmp_path, variables)


def test_no_process_of_a_container_outlives_its_servers(hdfs: MiniCluster) -> None:
    with Yarn(hdfs, nodes=2) as servers:
        assert len(servers.running_nodes()) == 2
        servers.run_command("sleep 100000")
        servers.wait_for("start a container", servers.container_processes)
        # A NodeManager that is killed leaves its containers.
        servers.kill("node0")
        servers.kill("node1")
        assert servers.container_processes()
    assert not servers.container_processes()
    assert not servers.processes


def test_an_environment_in_cluster_mode(application: Application, launched: Path) -> None:
    shutil.copy(launched, application.home)
    archives = ("--archives", "environment.tar.gz#environment")
    application.run("./environment/bin/ftfile-python", "--deploy-mode", "cluster", *archives)
    application.check()


def test_an_environment_in_client_mode(application: Application, launched: Path) -> None:
    shutil.copy(launched, application.home)
    # Spark starts the same Python in the driver's directory.
    (application.home / "environment").mkdir()
    subprocess.run(["tar", "-xzf", launched, "-C", application.home / "environment"], check=True)
    application.run("./environment/bin/ftfile-python", "--archives", "environment.tar.gz#environment")
    application.check()


def test_a_registered_wheel_in_client_mode(application: Application, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, application.home)
    application.run(str(python), "--py-files", "ftfile.zip", more=["--register"])
    application.check()


def test_a_wheel_in_cluster_mode_needs_no_registration(application: Application, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, application.home)
    application.run(str(python), "--deploy-mode", "cluster", "--py-files", "ftfile.zip")
    application.check()


class HeldStream:
    """A stream in cluster mode whose tasks are held, and kills of its processes.

    Args:
        yarn: runs it.
        application: the stream.
    """

    def __init__(self, yarn: Yarn, application: Application) -> None:
        self._yarn = yarn
        self._application = application
        self.directory = application.home / "hold"
        self.directory.mkdir()
        (self.directory / "now").touch()

    def interrupt(self, kill_processes: Callable[[], None]) -> None:
        """Kill processes while all tasks of a batch are held, and let the batch be committed.

        At most one more batch is committed.
        """
        self._yarn.wait_for("hold the tasks of a batch", self._is_batch_held)
        batches = self._application.batches()
        kill_processes()

        def is_committed() -> bool:
            self._release()
            return self._application.batches() > batches

        self._yarn.wait_for("commit a batch after the kill", is_committed)

    def kill_executor(self) -> None:
        """Kill the executor of a held task."""
        kill(executor_of(self._held()[0]))

    def kill_resource_manager(self) -> None:
        self._yarn.kill("resourcemanager")

    def kill_master(self) -> None:
        """Kill all processes of the application master's container."""
        kill(*self._yarn.container_processes(MASTER))

    def kill_master_jvm(self) -> None:
        """Kill the JVM of the application master. Its Python processes must end without a signal."""
        processes = self._yarn.container_processes(MASTER)
        kill(*(process for process in processes if command_of(process).split(" ")[0].endswith("/java")))

    def end_hold(self) -> None:
        """Let all tasks continue, now and later."""
        (self.directory / "now").unlink()

    def _held(self) -> list[int]:
        """Return the living processes that are held."""
        processes = [int(path.name.partition("-")[2]) for path in self.directory.glob("held-*")]
        return [process for process in processes if command_of(process)]

    def _is_batch_held(self) -> bool:
        return len(self._held()) >= FILES_PER_BATCH

    def _release(self) -> None:
        for path in self.directory.glob("held-*"):
            path.unlink()


def test_each_row_is_there_once_if_processes_are_killed(
    yarn: Yarn, application: Application, wheel: Path, python: Path
) -> None:
    shutil.copy(wheel, application.home)
    application.extend_input(FILES_FOR_KILLS)
    stream = HeldStream(yarn, application)
    options = ("--deploy-mode", "cluster", "--py-files", "ftfile.zip")
    application.start(str(python), *options, more=["--hold", str(stream.directory)])
    stream.interrupt(stream.kill_executor)
    # Batches are also committed while it is away.
    stream.interrupt(stream.kill_resource_manager)
    yarn.start_resource_manager()
    yarn.wait_for_nodes()
    stream.interrupt(stream.kill_master)
    stream.interrupt(stream.kill_master_jvm)
    stream.end_hold()
    yarn.wait_for_end(application.home.name)
    assert len(yarn.attempts(application.home.name)) == 3
    application.check()
