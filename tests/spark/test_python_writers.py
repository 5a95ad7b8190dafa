"""Programs that write by `ftfile.writer` while queries of Spark write to the same directory and follow it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.spark.following import Paths, batches, follow, ids
from tests.spark.scripted_source import Script, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string()})
COMMITS = 20


def copy(out: str, commits: int) -> None:
    """Commit two rows at a time, and begin again after each fifth commit, as a restarted program does."""
    position = 0
    while position < commits:
        with ftfile.writer(out, "copy", file_format="json", rolling="policy", max_records_per_file=6) as writer:
            position = writer.position or 0
            for number in range(position, min(commits, position + 5)):
                rows = [{"id": 1000 + 2 * number, "word": "program"}, {"id": 1001 + 2 * number, "word": "program"}]
                writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
                writer.commit(number + 1)
                position = number + 1


def test_a_query_follows_a_query_and_a_program_in_one_directory(
    spark: SparkSession, paths: Paths, second: Paths
) -> None:
    script = Script(paths["script"]).write(batches(8), available=0)
    copy(paths["out"], 5)
    query = follow(spark, paths["out"], second)
    program = threading.Thread(target=copy, args=(paths["out"], COMMITS))
    try:
        program.start()
        run(spark, paths, script, 4, maxBatchesPerFile="3")
        run(spark, paths, script, 8, maxBatchesPerFile="3")
        program.join()
        query.processAllAvailable()
        expected = [*range(16), *range(1000, 1000 + 2 * COMMITS)]
        assert ids(second["out"]) == expected
    finally:
        program.join()
        query.stop()
    ftfile.flush(paths["out"])
    assert sorted(row.id for row in spark.read.schema("id long, word string").json(paths["out"]).collect()) == expected
    status = {query.query_id: query for query in ftfile.status(paths["out"]).queries}
    assert len(status) == 2
    assert status["copy"].application is not None
    assert status["copy"].application.position == COMMITS
    check_directory(open_filesystem(paths["out"]))


def test_a_program_continues_what_spark_wrote_and_the_reverse(spark: SparkSession, paths: Paths) -> None:
    """Each accepts the columns, the format and the partitions of the other."""
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, word string")
    options = {"fileFormat": "parquet", "partitionBy": "word"}
    frame.write.format("ftfile").options(**options).mode("append").save(paths["out"])
    with ftfile.writer(paths["out"], "copy", file_format="parquet", partition_by="word") as writer:
        writer.write(pa.table({"id": [3], "word": ["a"]}))
        writer.commit(1)
    frame.write.format("ftfile").options(**options).mode("append").save(paths["out"])
    rows = spark.read.format("ftfile").load(paths["out"]).collect()
    assert sorted((row.id, row.word) for row in rows) == [(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "a")]
