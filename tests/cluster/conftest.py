"""One cluster for all tests of this folder, with a master and two workers of one core each, and one HDFS."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import quick_spark
from tests.archives import spark_options
from tests.cluster.cluster import Cluster
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

ROOT = Path(__file__).parents[2]
# Modules without a test that uses the cluster.
ALONE = ("tests/cluster/test_connect.py", "tests/cluster/test_kubernetes.py")


class OneCluster(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Assigns all tests of the cluster to one worker, and other tests by their class or module to any worker."""

    def _split_scope(self, nodeid: str) -> str:
        needs_none = not nodeid.startswith("tests/cluster/") or nodeid.startswith(ALONE)
        return super()._split_scope(nodeid) if needs_none else "cluster"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneCluster:
    return OneCluster(config, log)


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
