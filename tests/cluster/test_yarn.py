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
from tests.cluster.yarn import Yarn
from tests.demos.files.hdfs_path import HdfsPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster

FILES = 3
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
        home: an empty directory.
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

    def run(self, python: str, *options: str, registers: bool = False) -> None:
        """Run `spark-submit` with these options to its end."""
        name = self.home.name
        variables = self._variables | {"PYSPARK_PYTHON": python}
        arguments = [*options, "application.py", *self._urls, *["register"] * registers]
        self._yarn.submit(name, self.home, variables, arguments)
        self._yarn.wait_for_end(name)

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
        servers.wait_for("start a container", lambda: servers.container_processes("sleep"))
        # A NodeManager that is killed leaves its containers.
        servers.kill("node0")
        servers.kill("node1")
        assert servers.container_processes("sleep")
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
    application.run(str(python), "--py-files", "ftfile.zip", registers=True)
    application.check()


def test_a_wheel_in_cluster_mode_needs_no_registration(application: Application, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, application.home)
    application.run(str(python), "--deploy-mode", "cluster", "--py-files", "ftfile.zip")
    application.check()
