"""Streams from an ftfile directory: sink, source and sink in a chain, each row once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.spark.following import (
    Paths,
    batches,
    follow,
    ids,
    limits_hold,
    offsets_in,
    rows_in,
    run_available,
    write,
)
from tests.spark.scripted_source import Script, run
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.parametrize(
    "limit",
    # Four files of 22 to 24 bytes.
    [{"maxFilesPerTrigger": "4"}, {"maxRowsPerTrigger": "4"}, {"maxBytesPerTrigger": "96"}],
    ids=str,
)
def test_available_now_keeps_to_limits_and_ends(
    spark: SparkSession, paths: Paths, second: Paths, limit: dict[str, Any]
) -> None:
    write(paths["out"], range(6))
    for number in range(1, 4):
        query = run_available(spark, paths["out"], second, startingVersion="1", **limit)
        assert ids(second["out"]) == list(range(2, 12 if limits_hold(spark) else min(12, 2 + 4 * number)))
        assert all(progress.numInputRows <= 4 for progress in query.recentProgress)
        if limits_hold(spark) and number == 1:
            backlog = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
            assert [each["versionsBehind"] for each in backlog if each["version"] == 5][:2] == [3, 1]
    # The plan in plain Python is the same.
    planned = [offset for offset, _ in ftfile.open(paths["out"]).follow(startingVersion=1, **limit)]
    assert planned == offsets_in(second["checkpoint"])


def test_once_reads_everything(spark: SparkSession, paths: Paths, second: Paths) -> None:
    write(paths["out"], range(4))
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
    write(paths["out"], range(2))
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


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"fileFormat": "text", "stateLocation": "/nowhere"}, "omit fileFormat and load that directory"),
        ({"maxFilesPerTriger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"versionAsOf": "0"}, "option 'versionAsOf' is for reading, not for following"),
        ({"startingVersion": "9"}, "startingVersion=9: the newest version is 1"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets' is for streams of other programs' files"),
    ],
)
def test_mistakes_are_told_before_the_first_batch(
    spark: SparkSession, paths: Paths, second: Paths, option: dict[str, str], text: str
) -> None:
    write(paths["out"], range(2))
    with pytest.raises(Exception, match=text):
        run_available(spark, paths["out"], second, **option)


def test_options_of_streams_are_none_of_batch_reads(spark: SparkSession, paths: Paths) -> None:
    write(paths["out"], range(1))
    with pytest.raises(Exception, match="option 'startingVersion' is for following"):
        spark.read.format("ftfile").option("startingVersion", "0").load(paths["out"]).collect()


def test_the_schema_of_a_stream_may_be_text(spark: SparkSession, paths: Paths, second: Paths) -> None:
    """The text of `ftfile.open(path).schema().ddl` and of `ftfile schema`."""
    struct = "named_struct('a b', array(1.5D), 'c`d', map('k', cast(1 AS DECIMAL(9, 2))))"
    rows = spark.range(2).selectExpr(
        "id", f"{struct} AS `s,:``x`", "current_timestamp() AS at", "date'2024-07-01' AS d"
    )
    rows.write.format("ftfile").mode("append").save(paths["out"])
    schema = ftfile.open(paths["out"]).schema()
    stream = spark.readStream.schema(schema.ddl).format("ftfile").load(paths["out"])
    assert stream.schema == spark.read.format("ftfile").load(paths["out"]).schema
    assert [(column.name, column.type.upper()) for column in schema.columns[::3]] == [("id", "BIGINT"), ("d", "DATE")]
    query = (
        stream.writeStream.format("ftfile")
        .trigger(availableNow=True)
        .options(path=second["out"], checkpointLocation=second["checkpoint"])
    )
    query.start().awaitTermination()
    assert ftfile.open(second["out"]).count() == 2
