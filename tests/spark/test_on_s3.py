"""The stream sink in Spark on a server of S3: ftfile, in and out of Spark, reads what it wrote."""

from __future__ import annotations

import itertools
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import ftfile
from ftfile.fs.registry import open_filesystem
from ftfile.testing.checker import check_directory
from tests.object_stores import servers
from tests.object_stores.servers import BUCKET, CREDENTIALS
from tests.spark.killing import run_until_killed
from tests.spark.scripted_source import Row, Script, run, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.object_stores.servers import Store

Paths = dict[str, Any]
BATCHES: list[list[list[Row]]] = [
    [[(1, "a"), (2, "b")], [(3, None)]],
    [[], []],
    [[(4, "10:30 #50% d")], [(5, "é€")]],
]
ROWS = sorted((row for batch in BATCHES for partition in batch for row in partition), key=lambda row: row[0])

_directories = (f"spark-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with servers.versity() if servers.VERSITY.exists() else servers.moto() as store:
        yield store


@pytest.fixture
def paths(store: Store, tmp_path: Path) -> Paths:
    """Output of one test on the store; its checkpoint, which needs Spark's own client, on the disk."""
    return {
        "out": f"{store.url}/{next(_directories)}",
        "checkpoint": str(tmp_path / "checkpoint"),
        "script": tmp_path / "script",
        "storage": store.settings,
    }


def options(paths: Paths, **more: str) -> dict[str, str]:
    return {f"storage.{name}": text for name, text in paths["storage"].items()} | more


def check(spark: SparkSession, paths: Paths) -> None:
    """Check that ftfile by itself and in Spark find all rows once."""
    table = ftfile.open(paths["out"], storage=paths["storage"]).to_arrow()
    assert sorted(zip(*(table.column(name).to_pylist() for name in ("id", "word")), strict=True)) == ROWS
    frame = spark.read.format("ftfile").options(**options(paths)).load(paths["out"])
    assert sorted(map(tuple, frame.select("id", "word").collect())) == ROWS
    query_id = json.loads(open_filesystem(paths["checkpoint"]).read("metadata"))["id"]
    fs = open_filesystem(paths["out"], settings=paths["storage"])
    check_directory(fs, recorded_by_spark={query_id: range(3)}, rows_of=lambda content: content.splitlines())


@pytest.mark.parametrize("publish", ["copy", "direct"])
def test_rows_arrive_once(spark: SparkSession, paths: Paths, publish: str) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, **options(paths, publish=publish))
    check(spark, paths)


def test_partitioned_parquet(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, **options(paths, fileFormat="parquet", partitionBy="word"))
    check(spark, paths)
    files = ftfile.open(paths["out"], storage=paths["storage"]).files()
    assert "word=10%3A30 %2350%25 d" in {file.path.partition("/")[0] for file in files}


def test_a_batch_that_spark_forgot_is_not_written_twice(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, **options(paths))
    for name in ("2", ".2.crc"):
        (Path(paths["checkpoint"]) / "commits" / name).unlink()
    script.write([*BATCHES[:2], [[row] for partition in reversed(BATCHES[2]) for row in partition] + [[]]])
    query = start(spark, paths, **options(paths))
    query.processAllAvailable()
    query.stop()
    check(spark, paths)


def test_a_task_that_fails_is_run_again(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    script.fail(batch=0, partition=1, times=1)
    run(spark, paths, script, 3, **options(paths, publish="direct"))
    check(spark, paths)


def test_files_that_stay_open_are_finished_when_the_stream_ends(attached: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(attached, paths, script, 3, **options(paths, rolling="policy", maxRecordsPerFile="100"))
    deadline_s = time.monotonic() + 60
    while len(ftfile.open(paths["out"], storage=paths["storage"]).files()) != 1:
        assert time.monotonic() < deadline_s, "the listener finished nothing"
        time.sleep(0.1)
    check(attached, paths)


def test_a_store_killed_under_a_stream_is_survived(spark: SparkSession, paths: Paths, store: Store) -> None:
    if not servers.VERSITY.exists():
        pytest.skip("moto keeps nothing when it is killed")
    script = Script(paths["script"]).write(BATCHES, available=0)
    query = start(spark, paths, **options(paths))
    try:
        script.release(1)
        query.processAllAvailable()
        store.kill()
        script.release(2)
        time.sleep(1)
        store.start()
        query.processAllAvailable()
        script.release(3)
        query.processAllAvailable()
    finally:
        query.stop()
    check(spark, paths)


def assert_no_credentials(*told: str) -> None:
    found = [text for text in told if any(word in text for word in (*CREDENTIALS.values(), "ftfile-WRONG-value"))]
    assert not found, f"of {len(told)} texts {len(found)} hold credentials, the first is {found[0][:2000]}"


def kept(store: Store, paths: Paths) -> list[str]:
    """Return all that the store keeps below `_ftfile`, past the driver: names, metadata and content."""
    asked, found = servers.client(store.endpoint), []
    below = paths["out"].removeprefix(f"{store.url}/")
    for each in asked.list_objects_v2(Bucket=BUCKET, Prefix=f"{below}/_ftfile/")["Contents"]:
        answer = asked.get_object(Bucket=BUCKET, Key=each["Key"])
        found.append(f"{each['Key']} {answer['Metadata']} {answer['Body'].read().decode('latin-1')}")
    return found


def test_an_application_is_killed_in_the_middle_of_a_commit(
    spark: SparkSession, paths: Paths, store: Store, tmp_path: Path, seed: int
) -> None:
    """Its credentials are in variables that options name, and in nothing that it told before it died."""
    script = Script(paths["script"]).write([BATCHES[1], BATCHES[0], BATCHES[2]], available=0)
    when = random.Random(seed).choice(["before", "after"])
    environment = dict(zip(("STORE_ACCESS", "STORE_SECRET"), CREDENTIALS.values(), strict=True))
    variables = zip(("storage.accessKeyVariable", "storage.secretKeyVariable"), environment, strict=True)
    told = run_until_killed(tmp_path / "killed", paths, when, options(paths, **dict(variables)), environment)
    assert "INFO:ftfile" in told
    assert "SparkListenerSQLExecutionStart" in told
    fs = open_filesystem(paths["out"], settings=paths["storage"])
    assert len(fs.list("_ftfile/log")) == {"before": 1, "after": 2}[when]
    assert_no_credentials(told, *kept(store, paths))
    run(spark, paths, script, 3, **options(paths))
    check(spark, paths)


def test_credentials_of_a_profile_are_told_nowhere(
    spark: SparkSession, paths: Paths, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    Script(paths["script"]).write(BATCHES)
    right = options(paths, **{"storage.profile": "right"})
    query = start(spark, paths, **right)
    try:
        query.processAllAvailable()
        query.explain(extended=True)
    finally:
        query.stop()
    spark.read.format("ftfile").options(**right).load(paths["out"]).explain(extended=True)
    explained = capsys.readouterr().out
    assert "WriteToMicroBatchDataSource ftfile" in explained
    assert "BatchScan ftfile" in explained
    assert_no_credentials(explained, str(query.recentProgress), *kept(store, paths))


def test_a_refusal_repeats_no_credentials(spark: SparkSession, paths: Paths) -> None:
    if not servers.VERSITY.exists():
        pytest.skip("moto believes everybody")
    Script(paths["script"]).write(BATCHES)
    query = start(spark, paths, **options(paths, **{"storage.profile": "wrong"}))
    with pytest.raises(StreamingQueryException, match="does not know these credentials") as caught:
        query.awaitTermination()
    assert_no_credentials(str(caught.value), repr(query.exception()), str(query.status))
