"""One Spark session per worker, and helpers to run scripted queries in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.object_stores.azure import AzureStorage

pytest.register_assert_rewrite("tests.spark.chain", "tests.spark.storage_scenarios", "tests.spark.waiting")

ROOT = Path(__file__).parents[2]
PARQUET_JAR = ROOT / ".jars/parquet/parquet-hadoop-1.17.0-tests.jar"
# Spark reads local times of ORC files in the time zone of its JVM.
ZONE = "-Duser.timezone=UTC"
# Hadoop's clients of S3 and Azure.
OBJECT_STORE_JARS = ROOT / ".jars/object-stores"
# Readers of exported tables, each built for one version of Spark: another Spark would load them and fail.
TABLE_SPARKS = {"iceberg": "4.1.", "delta": "4.2."}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # With the default, each read of a log has fifty tasks.
    "spark.databricks.delta.snapshotPartitions": "1",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzureStorage]:
    """Azure's emulator, not started, whose address Spark's workers already have."""
    from tests.object_stores.azure import AzureStorage

    storage = AzureStorage()
    yield storage
    storage.remove()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, azurite: AzureStorage) -> Iterator[SparkSession]:
    """A session of two cores in which a task may fail twice."""
    import pyspark
    from pyspark.sql import SparkSession

    from tests import quick_python, quick_spark
    from tests.object_stores import azure
    from tests.object_stores.servers import CREDENTIALS, PROFILES
    from tests.spark import deadly_files, dying_files, failing_files, slow_files
    from tests.spark.scripted_source import ScriptedSource

    # The drivers of S3 and Azure read these variables by default, also in workers.
    os.environ.update({**CREDENTIALS, azure.CONNECTION: azurite.connection})
    home = tmp_path_factory.mktemp("spark")
    (home / "profiles").write_text(PROFILES)
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(home / "profiles")
    slow_files.install(home / "packages")
    failing_files.install(home / "packages")
    dying_files.install(home / "packages")
    deadly_files.install(home / "packages")
    os.environ[deadly_files.ORDER] = str(home / "death")
    # Workers unpickle the helpers of the tests by name.
    found = [home / "packages", ROOT / "src", ROOT, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, found))
    jars = [PARQUET_JAR, OBJECT_STORE_JARS / "*"]
    tables = [name for name, version in TABLE_SPARKS.items() if pyspark.__version__.startswith(version)]
    jars += [ROOT / ".jars" / name / "*" for name in tables]
    builder = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {ZONE} {quick_spark.java_options()}")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.streaming.stopTimeout", "600s")
        # Hadoop's client waits for a busy DataNode.
        .config("spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries", "12")
    )
    for key, value in DELTA.items() if "delta" in tables else ():
        builder = builder.config(key, value)
    quick_python.start(home)
    with mock.patch.dict(os.environ, quick_spark.environment(*jars)):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    session.dataSource.register(ScriptedSource)
    yield session
    session.stop()


@pytest.fixture
def attached(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, attached until the test ends. Tests that restart with open files need it detached."""
    from ftfile.spark import attach, detach

    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    attach(spark)
    yield spark
    detach(spark)
    detach(spark)  # a repeated call has no effect
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Any]:
    """Directories of one test: output, checkpoint, script."""
    return {"out": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint"), "script": tmp_path / "script"}


@pytest.fixture
def second(tmp_path: Path) -> dict[str, Any]:
    """Directories of the query that follows."""
    return {"out": str(tmp_path / "second"), "checkpoint": str(tmp_path / "second-checkpoint")}
