"""Executors that have another directory than the driver, another ftfile, or no keys: errors with a remedy.

Executors that have all three compact a store together.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.kv.upkeep.compact import CompactReport
from ftfile.operate.rewriting import RewriteReport
from ftfile.spark import compact, verify
from ftfile.testing.micro_batch import MicroBatch
from tests.cluster.cluster import end_session
from tests.crash.share import THOROUGH
from tests.kit.store_check import check_store
from tests.unit.kv.stores import counting, file_system
from tests.unit.writing.files.encrypted import FIRST, ring_text, write_ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.cluster.cluster import Cluster

# The path is a separate directory for each process: this simulates separate disks of several hosts on one machine.
# A variable with a key ring that only the driver has.
KEYS = "FTFILE_KEYS_OF_THE_DRIVER"
EACH_ITS_OWN = "/proc/self/cwd/out"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of the driver, which its workers inherit."""
    before, found = Path.cwd(), tmp_path_factory.mktemp("driver")
    os.chdir(found)
    yield found
    os.chdir(before)


@pytest.fixture(scope="module")
def spark(cluster: Cluster, home: Path, plain_environment: dict[str, str]) -> Iterator[SparkSession]:
    """A session that fails at the first task failure and starts a new Python for each task."""
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(plain_environment | {KEYS: ring_text(first=FIRST)})
    session = (
        SparkSession.builder.master(cluster.url)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.python.worker.reuse", "false")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "600s")
        .config("spark.task.maxFailures", "1")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    end_session(session)
    os.environ.clear()
    os.environ.update(before)


def stream(spark: SparkSession, home: Path, path: str, **options: str) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).option("numPartitions", 4).load()
    writer = rows.writeStream.format("ftfile").trigger(once=True).option("fileFormat", "json")
    writer.options(**options).option("checkpointLocation", str(home / "checkpoint")).start(path).awaitTermination()


def write(spark: SparkSession, home: Path, path: str) -> None:
    del home
    spark.range(0, 8, 1, 4).write.format("ftfile").option("fileFormat", "json").mode("append").save(path)


def read(spark: SparkSession, home: Path, path: str) -> None:
    if not (home / "out/_ftfile/directory/_format").exists():  # refused writes leave only a mark of the directory
        MicroBatch(str(home / "out"), {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    spark.read.format("ftfile").load(path).collect()


def error_of(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's types depend on where it failed
        call(*arguments)
    return str(raised.value)


@pytest.fixture(params=[stream, write] if THOROUGH else ["drawn"])
def put(request: pytest.FixtureRequest, seed: int) -> Callable[..., None]:
    """A way to write: both in `make long`, otherwise a drawn one. Tasks of both detect the error in the same place."""
    drawn = random.Random(f"{seed} {request.node.name}").choice([stream, write])
    return drawn if request.param == "drawn" else request.param


def test_a_local_path_on_separate_hosts_is_refused_to_writers(
    put: Callable[..., None], spark: SparkSession, home: Path, cluster: Cluster
) -> None:
    assert_refused_on_separate_hosts(put, spark, home, cluster)


def test_a_local_path_on_separate_hosts_is_refused_to_readers(
    spark: SparkSession, home: Path, cluster: Cluster
) -> None:
    assert_refused_on_separate_hosts(read, spark, home, cluster)


def assert_refused_on_separate_hosts(
    use: Callable[..., None], spark: SparkSession, home: Path, cluster: Cluster
) -> None:
    text = error_of(use, spark, home, EACH_ITS_OWN)
    assert "ConfigError: path='file:///proc/self/cwd/out': an executor on the host" in text
    assert "sees no such directory there, unlike the driver" in text
    assert "the same storage on every host" in text
    assert [*cluster.home.rglob("_ftfile")] == []


def test_another_version_in_one_worker_is_refused(
    put: Callable[..., None], spark: SparkSession, altered: Path, tmp_path: Path
) -> None:
    shutil.copytree(Path(ftfile.__file__).parent, altered / "ftfile", ignore=shutil.ignore_patterns("__pycache__"))
    try:
        version = altered / "ftfile/core/__init__.py"
        version.write_text(version.read_text().replace(ftfile.__version__, "0.0.9"))
        text = error_of(put, spark, tmp_path, str(tmp_path / "out"))
    finally:
        shutil.rmtree(altered / "ftfile")
    assert f"runs ftfile 0.0.9 from {version}, and the driver {ftfile.__version__}" in text
    assert "Install one version on the driver and on all executors" in text
    put(spark, tmp_path, str(tmp_path / "out"))
    assert len(list((tmp_path / "out").glob("*.json"))) == 4


def test_a_store_is_compacted_by_all_executors(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    write_ring(tmp_path / "keys", first=FIRST)
    provider = f"file:{tmp_path / 'keys'}"
    out, own = tmp_path / "store", home / "store"
    for path, secret in ((out, {"encryption": "aes-gcm", "keyProvider": provider}), (own, {})):
        query = counting(str(path), buckets="8", flushIntervalCount="1000", **secret)
        for batch in range(3):
            query.run(batch, [[{"k": f"k{number}", "n": 1} for number in range(50)]])
    before = {*out.rglob("*.spool")}
    merged = compact(spark, out, full=True, key_provider=provider)
    assert isinstance(merged, CompactReport)
    assert merged.runs_written == 8
    assert {path.name.split("-")[1] for path in {*out.rglob("*.spool")} - before} == {"00000", "00001"}
    assert check_store(file_system(str(out), provider)).rows == {(f"k{number}",): (3,) for number in range(50)}
    text = error_of(lambda: compact(spark, f"{Path(EACH_ITS_OWN).parent}/store", full=True))
    assert "path='file:///proc/self/cwd/store': an executor on the host" in text
    assert len(check_store(file_system(str(own))).rows) == 50


def test_keys_that_only_the_driver_has_are_missed_and_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    out, ring = tmp_path / "out", tmp_path / "keys"

    def encrypted(provider: str) -> None:
        stream(spark, tmp_path, str(out), encryption="aes-gcm", compression="zstd", keyProvider=provider)

    text = error_of(encrypted, f"env:{KEYS}")
    assert f"ConfigError: the environment variable {KEYS}, which should contain keys, is not set on the host" in text
    assert "the driver and every executor need it" in text
    assert not [*out.glob("*.json*")]
    write_ring(ring, first=FIRST)
    encrypted(f"file:{ring}")
    assert sorted(ftfile.open(out, key_provider=f"file:{ring}").to_arrow()["value"].to_pylist()) == [*range(8)]


def test_files_are_merged_and_verified_by_all_executors(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "files")
    query = MicroBatch(out, {"id": "long", "k": "string"}, {"fileFormat": "parquet", "partitionBy": "k"})
    for batch in range(3):
        query.run(batch, [[{"id": batch, "k": letter} for letter in "abcd"]])
    report = compact(spark, out, commit_every=2)
    assert isinstance(report, RewriteReport)
    assert (report.records, report.files_removed, report.files_written) == (2, 12, 4)
    assert verify(spark, out).ok
    assert sorted(ftfile.open(out).to_arrow()["id"].to_pylist()) == [0] * 4 + [1] * 4 + [2] * 4
