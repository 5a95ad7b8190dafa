"""The stream sink in Spark on a real HDFS, with both drivers. Spark's Hadoop client reads the files."""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import QueryExecutionException

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.crash.share import THOROUGH
from tests.hdfs.minicluster import MiniCluster
from tests.spark.killing import run_until_killed
from tests.spark.scripted_source import SCHEMA, Row, Script, run, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

Paths = dict[str, Any]
DRIVERS = ("hdfs", "webhdfs")
BATCHES: list[list[list[Row]]] = [
    [[(1, "a"), (2, "b")], [(3, None)]],
    [[], []],
    [[(4, "10:30 #50% d")], [(5, "é€")]],
]
ROWS = sorted((row for batch in BATCHES for partition in batch for row in partition), key=lambda row: row[0])

_directories = (f"/spark-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with MiniCluster() as cluster:
        yield cluster


@pytest.fixture(params=DRIVERS if THOROUGH else ["drawn"])
def driver(request: pytest.FixtureRequest, seed: int) -> str:
    """All in `make long`, otherwise one drawn for each test. Tests without Spark always try both."""
    drawn = random.Random(f"{seed} {request.node.name}").choice(DRIVERS)
    return drawn if request.param == "drawn" else str(request.param)


@pytest.fixture
def paths(cluster: MiniCluster, driver: str, tmp_path: Path) -> Paths:
    """Output and checkpoint of one test on HDFS, its script on the disk. PySpark's Hadoop client has no WebHDFS."""
    directory = next(_directories)
    root = cluster.web_url if driver == "webhdfs" else cluster.url
    return {
        "out": f"{root}{directory}/out",
        "plain": f"{cluster.url}{directory}/out",
        "checkpoint": f"{cluster.url}{directory}/checkpoint",
        "script": tmp_path / "script",
    }


def committed(paths: Paths) -> list[tuple[Any, ...]]:
    table = ftfile.open(paths["out"]).to_arrow()
    return sorted(zip(*(table.column(name).to_pylist() for name in ("id", "word")), strict=True))


def check(spark: SparkSession, paths: Paths, file_format: str = "json") -> None:
    """Check that ftfile, ftfile in Spark, and Spark without ftfile find all rows once."""
    assert committed(paths) == ROWS
    by_itself = spark.read.schema("id long, word string").format(file_format).load(paths["plain"])
    for frame in (spark.read.format("ftfile").load(paths["out"]), by_itself):
        assert sorted(map(tuple, frame.select("id", "word").collect())) == ROWS
    query_id = json.loads(open_filesystem(paths["checkpoint"]).read("metadata"))["id"]
    check_directory(open_filesystem(paths["out"]), recorded_by_spark={query_id: range(3)})


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_rows_arrive_once_for_every_reader(spark: SparkSession, paths: Paths, file_format: str) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, fileFormat=file_format)
    check(spark, paths, file_format)
    assert [version.offsets for version in ftfile.open(paths["out"]).history()] == [[{"batches": n}] for n in (1, 2, 3)]


def test_partitioned_with_settings_of_hdfs(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    settings = {"storage.replication": "1", "storage.blockSize": "1MiB"}
    run(spark, paths, script, 3, fileFormat="parquet", partitionBy="word", **settings)
    check(spark, paths, "parquet")
    directories = {file.path.partition("/")[0] for file in ftfile.open(paths["out"]).files()}
    assert "word=10%3A30 %2350%25 d" in directories


def test_a_file_that_another_program_replaces_is_an_error(spark: SparkSession, cluster: MiniCluster) -> None:
    """Spark's client reads the files and lists the directories that a query reads."""
    out = f"{cluster.url}{next(_directories)}/out"
    rows = spark.createDataFrame([(1, "a"), (2, "b")], SCHEMA).coalesce(1)
    for _ in range(2):
        rows.write.format("ftfile").options(fileFormat="parquet", partitionBy="word").mode("append").save(out)
    frame = ftfile.spark.load(spark, out)
    files = [file.path for file in ftfile.open(out).files()]
    assert len(frame.inputFiles()) == len(files) == 4
    assert frame.count() == 4
    one = next(path for path in files if "word=a" in path)
    fs = open_filesystem(out)
    content = fs.read(one)
    for other, fault in ((content, "another time"), (content * 2, f"has {len(content) * 2}")):
        fs.delete(one)
        fs.create_exclusive(one, other)
        with pytest.raises(QueryExecutionException, match=rf"{fault}: another program has replaced it"):
            frame.count()
    fs.delete(one)
    with pytest.raises(QueryExecutionException, match="is gone: a compaction"):
        frame.count()
    assert frame.where("word = 'b'").count() == 2


def test_a_batch_that_spark_forgot_is_not_written_twice(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3)
    open_filesystem(paths["checkpoint"]).delete("commits/2")
    script.write([*BATCHES[:2], [[row] for partition in reversed(BATCHES[2]) for row in partition] + [[]]])
    query = start(spark, paths)
    query.processAllAvailable()
    query.stop()
    check(spark, paths)


def test_a_task_that_fails_is_run_again(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    script.fail(batch=0, partition=1, times=1)
    run(spark, paths, script, 3)
    check(spark, paths)


def test_files_that_stay_open_are_read_and_finished(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, rolling="policy", maxRecordsPerFile="100")
    assert committed(paths) == ROWS
    assert spark.read.format("ftfile").load(paths["out"]).count() == len(ROWS)
    ftfile.flush(paths["out"])
    check(spark, paths)
    assert len(ftfile.open(paths["out"]).files()) == 1


def test_a_namenode_killed_under_a_stream_is_survived(
    spark: SparkSession, cluster: MiniCluster, paths: Paths, tmp_path: Path
) -> None:
    # With the checkpoint on HDFS, Spark's client would end the query before the sink is called.
    paths["checkpoint"] = str(tmp_path / "checkpoint")
    script = Script(paths["script"]).write(BATCHES, available=0)
    query = start(spark, paths, **{"storage.patience": "600"})  # however long the servers take to start
    try:
        script.release(1)
        query.processAllAvailable()
        cluster.kill_namenode()
        script.release(2)
        cluster.start_namenode(wait=False)
        query.processAllAvailable()
        cluster.kill_datanode()
        cluster.start_datanode(wait=False)
        script.release(3)
        query.processAllAvailable()
    finally:
        query.stop()
    cluster.wait_until_ready()
    check(spark, paths)


def test_an_application_is_killed_in_the_middle_of_a_commit(
    spark: SparkSession, paths: Paths, tmp_path: Path, seed: int
) -> None:
    script = Script(paths["script"]).write([BATCHES[1], BATCHES[0], BATCHES[2]], available=0)
    when = random.Random(seed).choice(["before", "after"])
    run_until_killed(tmp_path / "killed", paths, when, {}, {})
    records = open_filesystem(paths["out"]).list("_ftfile/log")
    assert len(records) == {"before": 1, "after": 2}[when]
    run(spark, paths, script, 3)
    check(spark, paths)
