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
from tests.cluster.cluster import command_of, kill
from tests.cluster.yarn import MASTER, Yarn
from tests.cluster.yarn_job import FILES_PER_BATCH
from tests.demos.files.hdfs_path import HdfsPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster

FILES = 6
ROWS_PER_FILE = 10
EACH_ROW_ONCE = Counter(range(FILES * ROWS_PER_FILE))


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
        shutil.copy(yarn_job.__file__, home / "application.py")
        files = open_filesystem(f"{hdfs.url}/")
        files.make_directories(f"{name}/in")
        for number in range(FILES):
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            lines = "".join(f'{{"id": {row}}}\n' for row in ids)
            files.create_exclusive(f"{name}/in/{number}.json", lines.encode())

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
        assert rows == EACH_ROW_ONCE
        assert Counter(ftfile.open(str(self._output)).to_arrow().column("id").to_pylist()) == EACH_ROW_ONCE


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


class Hold:
    """A hold for the tasks of an application.

    Attributes:
        directory: for the application.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "now").touch()

    def are_tasks_held(self) -> bool:
        """Return True if all tasks of a batch are held by living processes."""
        processes = [int(path.name.partition("-")[2]) for path in self.directory.glob("held-*")]
        return sum(bool(command_of(process)) for process in processes) >= FILES_PER_BATCH

    def release(self) -> None:
        """Let the held tasks continue."""
        for path in self.directory.glob("held-*"):
            path.unlink()

    def end(self) -> None:
        """Let all tasks continue, now and later."""
        (self.directory / "now").unlink()


def all_of_them(processes: list[int]) -> list[int]:
    return processes


def only_the_jvm(processes: list[int]) -> list[int]:
    """Return the JVM of Spark's application master; its Python processes must end without a signal."""
    return [process for process in processes if command_of(process).split(" ")[0].endswith("/java")]


def test_each_row_is_there_once_if_the_application_master_is_killed(
    yarn: Yarn, application: Application, wheel: Path, python: Path
) -> None:
    shutil.copy(wheel, application.home)
    hold = Hold(application.home / "hold")
    name = application.home.name
    options = ("--deploy-mode", "cluster", "--py-files", "ftfile.zip")
    application.start(str(python), *options, more=["--hold", str(hold.directory)])
    selections: tuple[Callable[[list[int]], list[int]], ...] = (all_of_them, only_the_jvm)
    for selection in selections:
        yarn.wait_for("hold the tasks of a batch", hold.are_tasks_held)
        before = application.batches()
        kill(*selection(yarn.container_processes(MASTER)))

        def is_committed(before: int = before) -> bool:
            hold.release()
            return application.batches() > before

        yarn.wait_for("commit a batch after the kill", is_committed)
    hold.end()
    yarn.wait_for_end(name)
    assert len(yarn.attempts(name)) == 1 + len(selections)
    application.check()
