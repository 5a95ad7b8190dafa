"""Applications on YARN, in cluster and client mode, with the commands of docs/cluster.md."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cluster.yarn import Yarn
from tests.cluster.yarn_application import Application
from tests.crash.share import in_long

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster


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


# Each of two tests has another mode and another distribution of ftfile: so both modes, and both distributions, run.
@in_long
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


@in_long
def test_a_registered_wheel_in_client_mode(application: Application, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, application.home)
    application.run(str(python), "--py-files", "ftfile.zip", more=["--register"])
    application.check()


def test_a_wheel_in_cluster_mode_needs_no_registration(application: Application, wheel: Path, python: Path) -> None:
    shutil.copy(wheel, application.home)
    application.run(str(python), "--deploy-mode", "cluster", "--py-files", "ftfile.zip")
    application.check()
