"""One cluster for all tests of this folder, with a master and two workers; one HDFS, one YARN, and packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import quick_spark
from tests.archives import spark_options
from tests.cluster.cluster import Cluster
from tests.cluster.yarn import Yarn
from tests.hdfs.minicluster import MiniCluster
from tests.unit.filters import filters_of_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

ROOT = Path(__file__).parents[2]
# Settings of the common YARN. A silent node is lost after ten seconds. A container on it is then not waited for.
LOST_SOON = {
    "yarn.nm.liveness-monitor.expiry-interval-ms": "10000",
    "yarn.am.liveness-monitor.expiry-interval-ms": "120000",
    "yarn.client.nodemanager-connect.max-wait-ms": "2000",
    "yarn.client.nodemanager-connect.retry-interval-ms": "500",
}
# Modules whose tests use neither the cluster nor the common YARN.
ALONE = tuple(
    f"tests/cluster/test_{name}.py"
    for name in ("connect", "connect_kills", "kubernetes", "pipeline_kills", "secured_yarn")
)


class OneOfEach(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Assigns all tests with the same servers to one worker, and other tests by their module to any worker."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/hdfs/"):
            return "hdfs"
        if nodeid.startswith("tests/cluster/test_yarn"):
            return "yarn"
        if nodeid.startswith("tests/cluster/") and not nodeid.startswith(ALONE):
            return "cluster"
        scope: str = super()._split_scope(nodeid)
        return scope


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneOfEach:
    return OneOfEach(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="finds processes in /proc"))


@pytest.fixture(scope="session")
def plain_environment() -> dict[str, str]:
    """Our environment without variables that point to Python packages. A driver on two cores starts quickly with it."""
    foreign = {"PYSPARK_SUBMIT_ARGS", "PYTHONPATH", "SPARK_CONF_DIR", "SPARK_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    more = {
        **quick_spark.environment(),
        "JAVA_TOOL_OPTIONS": quick_spark.java_options(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    return environment | more


@pytest.fixture(scope="session")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose packages the second worker's executors prefer; empty until a test adds packages."""
    return tmp_path_factory.mktemp("altered")


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, plain_environment: dict[str, str], altered: Path
) -> Iterator[Cluster]:
    # Executors and drivers each have a separate class data archive.
    of_executors = plain_environment | {"JAVA_TOOL_OPTIONS": spark_options()}
    found = Cluster(tmp_path_factory.mktemp("cluster"), of_executors)
    try:
        found.wait()
        found.start_worker("a")
        found.start_worker("b", PYTHONPATH=str(altered))
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="session")
def hdfs() -> Iterator[MiniCluster]:
    with MiniCluster() as found:
        yield found


@pytest.fixture(scope="session")
def yarn(hdfs: MiniCluster) -> Iterator[Yarn]:
    """A YARN with two nodes. Tests that kill its servers restart them."""
    with Yarn(hdfs, settings=LOST_SOON) as servers:
        yield servers


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under a name that Spark adds to the path: Spark accepts .zip but not .whl."""
    home = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home], cwd=ROOT, check=True)
    (built,) = home.glob("*.whl")
    return Path(shutil.move(built, home / "ftfile.zip"))


@pytest.fixture(scope="session")
def filters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's package with a filter as its entry point, in the form of a wheel."""
    found = tmp_path_factory.mktemp("filters") / "filters.zip"
    with zipfile.ZipFile(found, "w") as package:
        package.write(filters_of_users.__file__, "filters_of_users.py")
        metadata = "Metadata-Version: 2.1\nName: filters_of_users\nVersion: 1.0\n"
        package.writestr("filters_of_users-1.0.dist-info/METADATA", metadata)
        entry = "[ftfile.filters]\ncounter = filters_of_users:ByteCounter\n"
        package.writestr("filters_of_users-1.0.dist-info/entry_points.txt", entry)
    return found


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory, plain_environment: dict[str, str]) -> Path:
    """A Python with the packages of this one, without editable installs, so without ftfile."""
    found = tmp_path_factory.mktemp("python") / "python"
    packages = sysconfig.get_path("purelib")
    path = f"${{PYTHONPATH:+$PYTHONPATH:}}{packages}"
    found.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec {sys.executable} -S "$@"\n')
    found.chmod(0o755)
    script = "import importlib.util; print(importlib.util.find_spec('ftfile'))"
    assert subprocess.check_output([found, "-c", script], env=plain_environment, text=True) == "None\n"
    return found


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory, wheel: Path, filters: Path) -> Path:
    """A virtual environment, packed like by `venv-pack`, with ftfile and its launcher installed from the wheel."""
    home = tmp_path_factory.mktemp("launched")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "environment"], check=True)
    (packages,) = (home / "environment").glob("lib/python3*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "ftfile" not in package.name:
            (packages / package.name).symlink_to(package)
    for archive in (wheel, filters):
        with zipfile.ZipFile(archive) as content:
            content.extractall(packages)
    (launcher,) = packages.glob("*.data/scripts/ftfile-python")
    shutil.move(launcher, home / "environment/bin")
    (home / "environment/bin/ftfile-python").chmod(0o755)
    found = home / "environment.tar.gz"
    with tarfile.open(found, "w:gz") as packed:
        packed.add(home / "environment", ".")
    return found
