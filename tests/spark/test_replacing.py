"""Replacing data from Spark: overwrites, complete mode, transactions in foreachBatch, compaction, old versions."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import col, lit

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.spark.scripted_source import Row, Script, run, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Paths = dict[str, Any]
BATCHES: list[list[list[Row]]] = [[[(1, "a"), (2, "b")]], [[(3, "a")], [(4, "c")]], [[(5, "a")], []]]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, out: str) -> Iterator[str]:
    """Return a table at `out` with the ids 0 to 9."""
    name = "t_" + "".join(c for c in tmp_path.name if c.isalnum())
    spark.range(10).write.format("ftfile").mode("append").save(out)
    spark.sql(f"create table {name} using ftfile options (path '{out}')")
    yield name
    spark.sql(f"drop table if exists {name}")


def ids(path: str, version: int | None = None) -> list[int]:
    return sorted(ftfile.open(path).to_arrow(version)["id"].to_pylist())


def error_of(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps it in several classes
        action()
    return str(raised.value)


def forget_commit(paths: Paths, batch: int) -> None:
    """Delete Spark's record that a batch is done, as after a crash right after the sink's commit."""
    commits = Path(paths["checkpoint"]) / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


class TestOverwrite:
    def test_a_frame_replaces_all_with_another_schema(self, spark: SparkSession, out: str) -> None:
        for frame in (spark.range(10), spark.sql("select 'x' as word, 7L as n")):
            frame.write.format("ftfile").mode("overwrite").save(out)
        assert spark.read.format("ftfile").load(out).collect() == [("x", 7)]
        assert spark.read.parquet(out).collect() == [("x", 7)]
        assert [version.overwrite for version in ftfile.open(out).history()] == [True, True]

    def test_a_frame_without_rows_leaves_a_directory_with_its_columns(self, spark: SparkSession, out: str) -> None:
        spark.range(10).write.format("ftfile").mode("overwrite").save(out)
        spark.createDataFrame([], "id long, n string").write.format("ftfile").mode("overwrite").save(out)
        frame = spark.read.format("ftfile").load(out)
        assert (frame.columns, frame.collect()) == (["id", "n"], [])

    def test_a_directory_may_be_overwritten_by_what_is_read_from_it(self, spark: SparkSession, out: str) -> None:
        spark.range(10).write.format("ftfile").mode("append").save(out)
        frame = spark.read.format("ftfile").load(out).where("id < 3")
        frame.write.format("ftfile").mode("overwrite").save(out)
        assert ids(out) == [0, 1, 2]

    def test_every_statement_that_replaces_a_table(self, spark: SparkSession, out: str, table: str) -> None:
        spark.sql(f"insert overwrite {table} with (path='{out}') values (7L)")
        assert ids(out) == [7]
        frame = spark.range(3)
        frame.writeTo(table).option("path", out).overwrite(lit(True))
        assert ids(out) == [0, 1, 2]
        spark.range(4).write.format("ftfile").mode("overwrite").option("path", out).saveAsTable(table)
        assert ids(out) == [0, 1, 2, 3]
        frame.writeTo(table).using("ftfile").option("path", out).createOrReplace()
        assert ids(out) == [0, 1, 2]

    def test_what_would_replace_a_part_of_it_is_refused_by_spark(
        self, spark: SparkSession, out: str, table: str
    ) -> None:
        writer = spark.range(3).writeTo(table).option("path", out)
        assert "does not support overwrite by filter" in error_of(lambda: writer.overwrite(col("id") == 1))
        assert "does not support dynamic overwrite" in error_of(writer.overwritePartitions)
        assert ids(out) == list(range(10))


class TestPartitions:
    def test_the_option_and_the_mode_of_the_session(self, spark: SparkSession, out: str) -> None:
        def write(frame: DataFrame, **options: str) -> list[tuple[int, int]]:
            writer = frame.write.format("ftfile").mode("overwrite").option("partitionBy", "month")
            writer.options(**options).save(out)
            assert spark.read.parquet(out).count() == spark.read.format("ftfile").load(out).count()
            return [tuple(row) for row in spark.read.format("ftfile").load(out).orderBy("month", "n").collect()]

        def of(*months: int, n: int) -> DataFrame:
            return spark.createDataFrame([(n, month) for month in months], "n int, month int")

        assert write(of(6, 7, 8, n=1)) == [(1, 6), (1, 7), (1, 8)]
        assert write(of(7, n=2), partitionOverwriteMode="dynamic") == [(1, 6), (2, 7), (1, 8)]
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            assert write(of(8, 9, n=3)) == [(1, 6), (2, 7), (3, 8), (3, 9)]
            assert write(of(n=3)) == [(1, 6), (2, 7), (3, 8), (3, 9)]
            assert write(of(7, n=4), replaceWhere="month BETWEEN 6 AND 7") == [(4, 7), (3, 8), (3, 9)]
            error = error_of(lambda: write(of(6, 9, n=5), replaceWhere="month < 8"))
            assert "do not match, such as 'month=9'" in error
            error = error_of(lambda: write(of(1, n=6), fileFormat="json"))
            assert "fileFormat=json, but the directory was written as parquet" in error
            assert "This overwrite replaces only some partitions" in error
            assert not list(Path(out, "_ftfile/staged").rglob("*.json"))
            assert write(of(1, n=6), partitionOverwriteMode="static") == [(6, 1)]
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

    def test_a_statement_gives_the_option(self, spark: SparkSession, out: str, table: str) -> None:
        path = f"{out}-parts"
        spark.sql("select 1L id, 6 month union all select 2L, 7").write.format("ftfile").mode("append").options(
            partitionBy="month"
        ).save(path)
        spark.sql(f"create table {table}_parts (id long, month int) using ftfile")
        given = f"path='{path}', partitionBy='month'"
        try:
            spark.sql(f"insert overwrite {table}_parts with ({given}, partitionOverwriteMode='dynamic') values (9L, 7)")
            assert ids(path) == [1, 9]
            spark.sql(f"insert overwrite {table}_parts with ({given}, replaceWhere='month < 7') values (8L, 6)")
            assert ids(path) == [8, 9]
            spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
            statement = f"insert overwrite {table}_parts with ({given}) values (7L, 6)"
            assert "does not support dynamic overwrite" in error_of(lambda: spark.sql(statement))
            assert ids(path) == [8, 9]
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
            spark.sql(f"drop table {table}_parts")


class TestCompleteMode:
    def counts(self, spark: SparkSession, paths: Paths) -> StreamingQuery:
        stream = spark.readStream.format("scripted").option("script", str(paths["script"])).load()
        writer = stream.groupBy("word").count().writeStream.format("ftfile").outputMode("complete")
        return writer.option("checkpointLocation", paths["checkpoint"]).option("fileFormat", "json").start(paths["out"])

    def run(self, spark: SparkSession, paths: Paths, script: Script, batches: range) -> None:
        script.release(batches.start)
        query = self.counts(spark, paths)
        for available in batches:
            script.release(available)
            query.processAllAvailable()
        query.stop()

    def found(self, paths: Paths, version: int | None = None) -> dict[str, int]:
        table = ftfile.open(paths["out"]).to_arrow(version)
        return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))

    def test_each_batch_replaces_the_one_before_also_when_it_comes_again(
        self, spark: SparkSession, paths: Paths
    ) -> None:
        script = Script(paths["script"]).write(BATCHES, available=1)
        self.run(spark, paths, script, range(1, 3))
        assert self.found(paths) == {"a": 2, "b": 1, "c": 1}
        forget_commit(paths, 1)
        self.run(spark, paths, script, range(2, 4))
        assert self.found(paths) == {"a": 3, "b": 1, "c": 1}
        assert [self.found(paths, version) for version in range(2)] == [{"a": 1, "b": 1}, {"a": 2, "b": 1, "c": 1}]
        history = ftfile.open(paths["out"]).history()
        assert [(version.batch_id, version.overwrite) for version in history] == [(0, True), (1, True), (2, True)]
        report = check_directory(open_filesystem(paths["out"]))
        visible = [json.loads(row) for row in report.visible_rows.elements() if isinstance(row, bytes)]
        assert {row["word"]: row["count"] for row in visible} == self.found(paths)
        assert len(visible) == 3


class TestTransactions:
    def start(self, spark: SparkSession, paths: Paths) -> StreamingQuery:
        stream = spark.readStream.format("scripted").option("script", str(paths["script"])).load()

        def write(frame: DataFrame, batch: int) -> None:
            writer = frame.write.format("ftfile").mode("append").option("fileFormat", "json")
            writer.option("txnAppId", "my job").option("txnVersion", batch).save(paths["out"])

        return stream.writeStream.foreachBatch(write).option("checkpointLocation", paths["checkpoint"]).start()

    def run(self, spark: SparkSession, paths: Paths, script: Script, batches: range) -> None:
        query = self.start(spark, paths)
        for available in batches:
            script.release(available)
            query.processAllAvailable()
        query.stop()

    def test_a_batch_of_foreach_batch_that_comes_again_is_written_once(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=1)
        self.run(spark, paths, script, range(1, 3))
        forget_commit(paths, 1)
        self.run(spark, paths, script, range(2, 4))
        assert ids(paths["out"]) == [1, 2, 3, 4, 5]
        assert [version.operation for version in ftfile.open(paths["out"]).history()] == ["batch"] * 3
        check_directory(open_filesystem(paths["out"]))

    def test_a_stream_has_an_identity_of_its_own(self, spark: SparkSession, paths: Paths) -> None:
        Script(paths["script"]).write(BATCHES)

        def run_once() -> None:
            query = start(spark, paths, txnAppId="my job", txnVersion=1)
            try:
                query.processAllAvailable()
            finally:
                query.stop()

        assert "txnAppId and txnVersion are for batch writes" in error_of(run_once)


class TestOldVersions:
    def test_by_number_and_by_time(self, spark: SparkSession, out: str) -> None:
        for first in (0, 10, 20):
            spark.range(first, first + 2).write.format("ftfile").mode("overwrite").save(out)
        ftfile.drop(out, "all")
        times = [
            datetime.fromtimestamp(version.time_ms / 1000, timezone.utc).isoformat()
            for version in ftfile.open(out).history()
        ]
        for version, expected in enumerate(([0, 1], [10, 11], [20, 21], [])):
            for option, value in (("versionAsOf", version), ("timestampAsOf", times[version])):
                frame = spark.read.format("ftfile").option(option, value).load(out)
                assert sorted(row.id for row in frame.collect()) == expected

    def test_mistakes(self, spark: SparkSession, out: str) -> None:
        spark.range(1).write.format("ftfile").mode("append").save(out)
        reader = spark.read.format("ftfile")
        assert "it takes a point in time" in error_of(lambda: reader.option("timestampAsOf", "now").load(out))
        assert "no version is as old as" in error_of(lambda: reader.option("timestampAsOf", "1999-12-31").load(out))
        both = spark.read.format("ftfile").option("timestampAsOf", "2030-01-01").option("versionAsOf", 0)
        assert "versionAsOf and timestampAsOf" in error_of(lambda: both.load(out))


def test_compaction_and_drop_beside_a_running_stream(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write([[[(n, "ab"[n % 2])], [(n + 100, "a")]] for n in range(6)], available=0)
    run(spark, paths, script, 3, partitionBy="word")
    out = paths["out"]
    before = spark.read.format("ftfile").option("versionAsOf", 2).load(out)
    query = start(spark, paths, partitionBy="word")
    assert ftfile.compact(out).files_removed == 5
    script.release(5)
    query.processAllAvailable()
    assert ftfile.drop(out, where={"word": "b"}).rows_removed == 2
    script.release(6)
    query.processAllAvailable()
    query.stop()
    assert sorted(row.id for row in before.collect()) == [0, 1, 2, 100, 101, 102]
    assert ids(out) == [0, 2, 4, 5, 100, 101, 102, 103, 104, 105]
    assert sorted(row.id for row in spark.read.schema("id long, word string").json(out).collect()) == ids(out)
    check_directory(open_filesystem(out))
