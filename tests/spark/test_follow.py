"""Streams from an ftfile directory: sink, source and sink in a chain, each row once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.errors import FtfileError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.demo.process import SparkApp, own_environment
from tests.spark import follow_job
from tests.spark.scripted_source import Row, Script, run
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Paths = dict[str, Any]


@pytest.fixture
def second(tmp_path: Path) -> Paths:
    """Directories of the second query."""
    return {"out": str(tmp_path / "second"), "checkpoint": str(tmp_path / "second-checkpoint")}


def batches(count: int) -> list[list[list[Row]]]:
    return [[[(2 * n, "even")], [(2 * n + 1, "odd")]] for n in range(count)]


def follow(
    spark: SparkSession, source: str, second: Paths, trigger: dict[str, Any] | None = None, **options: str
) -> StreamingQuery:
    """Start a query from one directory into another."""
    reader = spark.readStream.format("ftfile").options(**options)
    writer = reader.load(source).writeStream.format("ftfile").option("fileFormat", "json")
    writer = writer.option("checkpointLocation", second["checkpoint"])
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(second["out"])


def run_available(spark: SparkSession, source: str, second: Paths, **options: str) -> StreamingQuery:
    query = follow(spark, source, second, {"availableNow": True}, **options)
    query.awaitTermination()
    return query


def ids(path: str) -> list[int]:
    return sorted(ftfile.open(path).to_arrow()["id"].to_pylist())


def rows_in(path: str) -> int:
    """Return the number of committed rows; 0 while there is no directory."""
    try:
        return len(ids(path))
    except FtfileError:
        return 0


def limits_hold(spark: SparkSession) -> bool:
    return not spark.version.startswith(("4.0", "4.1"))


def test_a_chain_has_every_row_once_over_restarts(spark: SparkSession, paths: Paths, second: Paths) -> None:
    script = Script(paths["script"]).write(batches(9), available=0)
    run(spark, paths, script, 2, maxBatchesPerFile="3")
    query = follow(spark, paths["out"], second)
    try:
        run(spark, paths, script, 5, maxBatchesPerFile="3")
        query.processAllAvailable()
        assert ids(second["out"]) == list(range(10))
    finally:
        query.stop()
    run(spark, paths, script, 7, maxBatchesPerFile="3")
    ftfile.flush(paths["out"])
    ftfile.compact(paths["out"])
    query = follow(spark, paths["out"], second, maxFilesPerTrigger="1")
    try:
        run(spark, paths, script, 9, maxBatchesPerFile="3")
        query.processAllAvailable()
        assert ids(second["out"]) == list(range(18))
    finally:
        query.stop()
    check_directory(open_filesystem(second["out"]), rows_of=lambda _: ())


def test_available_now_keeps_to_limits_and_ends(spark: SparkSession, paths: Paths, second: Paths) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(6), available=0), 6)
    for number in range(1, 4):
        query = run_available(spark, paths["out"], second, startingVersion="1", maxFilesPerTrigger="4")
        assert ids(second["out"]) == list(range(2, 12 if limits_hold(spark) else min(12, 2 + 4 * number)))
        assert all(progress.numInputRows <= 4 for progress in query.recentProgress)


def test_once_reads_everything(spark: SparkSession, paths: Paths, second: Paths) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(4), available=0), 4)
    follow(spark, paths["out"], second, {"once": True}, maxFilesPerTrigger="1").awaitTermination()
    assert len(ids(second["out"])) == (8 if limits_hold(spark) else 1)


def test_latest_begins_behind_what_is_there(spark: SparkSession, paths: Paths, second: Paths) -> None:
    script = Script(paths["script"]).write(batches(4), available=0)
    run(spark, paths, script, 2)
    query = follow(spark, paths["out"], second, startingVersion="latest")
    try:
        query.processAllAvailable()
        run(spark, paths, script, 4)
        query.processAllAvailable()
        assert ids(second["out"]) == list(range(4, 8))
    finally:
        query.stop()


def test_a_union_with_itself_reads_every_row_twice(spark: SparkSession, paths: Paths, second: Paths) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(2), available=0), 2)
    frame = spark.readStream.format("ftfile").load(paths["out"])
    writer = frame.union(frame).writeStream.format("ftfile").option("checkpointLocation", second["checkpoint"])
    writer.trigger(availableNow=True).start(second["out"]).awaitTermination()
    assert ids(second["out"]) == sorted([*range(4), *range(4)])


def test_a_directory_is_waited_for_with_a_schema(spark: SparkSession, paths: Paths, second: Paths) -> None:
    with pytest.raises(Exception, match="is not an ftfile directory: it has no log"):
        follow(spark, paths["out"], second)
    frame = spark.readStream.format("ftfile").schema("word string, id long").load(paths["out"])
    writer = frame.writeStream.format("ftfile").option("checkpointLocation", second["checkpoint"])
    query = writer.start(second["out"])
    try:
        run(spark, paths, Script(paths["script"]).write(batches(2), available=0), 2)
        wait_until(lambda: rows_in(second["out"]) == 4, "the rows of two batches")
    finally:
        query.stop()
    assert ids(second["out"]) == list(range(4))


def test_new_columns_end_the_query_and_the_next_one_reads_them(
    spark: SparkSession, paths: Paths, second: Paths
) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(2), available=0), 2)
    query = follow(spark, paths["out"], second)
    try:
        query.processAllAvailable()
        more = spark.createDataFrame([(4, "even", 1.5)], "id long, word string, more double")
        more.write.format("ftfile").options(onSchemaChange="widen", onNewQuery="continue", fileFormat="json").mode(
            "append"
        ).save(paths["out"])
        with pytest.raises(Exception, match="from version 2 on the directory has other columns"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert ids(second["out"]) == list(range(4))
    reader = spark.readStream.format("ftfile").load(paths["out"])
    writer = reader.writeStream.format("ftfile").options(
        checkpointLocation=second["checkpoint"], fileFormat="json", onSchemaChange="widen"
    )
    writer.trigger(availableNow=True).start(second["out"]).awaitTermination()
    table = ftfile.open(second["out"]).to_arrow().sort_by("id")
    assert table["more"].to_pylist() == [None] * 4 + [1.5]


def test_an_overwrite_fails_the_query(spark: SparkSession, paths: Paths, second: Paths) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(2), available=0), 2)
    run_available(spark, paths["out"], second)
    rows = spark.createDataFrame([(4, "even")], "id long, word string")
    rows.write.format("ftfile").mode("overwrite").option("onNewQuery", "continue").save(paths["out"])
    with pytest.raises(Exception, match="version 2, an overwrite, replaces 4 files"):
        run_available(spark, paths["out"], second)
    run_available(spark, paths["out"], second, skipChangeCommits="true")
    assert ids(second["out"]) == list(range(4))


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"fileFormat": "json"}, "option 'fileFormat' is for writing"),
        ({"maxFilesPerTriger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"versionAsOf": "0"}, "option 'versionAsOf' is for reading, not for following"),
        ({"startingVersion": "9"}, "startingVersion=9: the newest version is 1"),
        ({"startingOffsets": "latest"}, "where a stream begins is startingVersion"),
    ],
)
def test_mistakes_are_told_before_the_first_batch(
    spark: SparkSession, paths: Paths, second: Paths, option: dict[str, str], text: str
) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(2), available=0), 2)
    with pytest.raises(Exception, match=text):
        run_available(spark, paths["out"], second, **option)


def test_a_killed_query_goes_on_where_it_was(spark: SparkSession, paths: Paths, second: Paths, tmp_path: Path) -> None:
    """SIGKILL of the driver and its workers, twice, in the middle of batches of one file each."""
    run(spark, paths, Script(paths["script"]).write(batches(20), available=0), 20, maxBatchesPerFile="4")
    for kill in range(2):
        home = tmp_path / f"home{kill}"
        home.mkdir()
        job = {"source": paths["out"], **second, "home": str(home)}
        (home / "job.json").write_text(json.dumps(job))
        environment = {**own_environment(home), "PYTHONPATH": os.environ["PYTHONPATH"]}
        seen = rows_in(second["out"])
        app = SparkApp(Path(follow_job.__file__), home / "job.json", home / "log", environment)
        try:
            wait_until(lambda: rows_in(second["out"]) > seen + 4 or app.exit_code is not None, "a few batches")  # noqa: B023
            assert app.exit_code is None, app.last_words()
        finally:
            app.kill()
        ftfile.flush(paths["out"])
    assert rows_in(second["out"]) < 40
    query = follow(spark, paths["out"], second)
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert ids(second["out"]) == list(range(40))
    check_directory(open_filesystem(second["out"]), rows_of=lambda _: ())


def test_options_of_streams_are_none_of_batch_reads(spark: SparkSession, paths: Paths) -> None:
    run(spark, paths, Script(paths["script"]).write(batches(1), available=0), 1)
    with pytest.raises(Exception, match="option 'startingVersion' is for following"):
        spark.read.format("ftfile").option("startingVersion", "0").load(paths["out"]).collect()
