"""Batch writes and SQL: every way in which Spark can write to `ftfile`, each with `path` as a write option."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from tests.spark.scripted_source import Script
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr("id", "cast(id % 3 as string) as kind")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    name = "t_" + "".join(c for c in tmp_path.name if c.isalnum())
    yield name
    spark.sql(f"drop table if exists {name}")


def ids(path: object) -> list[int]:
    return sorted(ftfile.open(str(path)).to_arrow()["id"].to_pylist())


def message(action: Any) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps it in several classes
        action()
    return str(raised.value)


def one_row(spark: SparkSession, tmp_path: Path) -> DataStreamWriter:
    """Return a writer of a stream of one row, with the id 1."""
    script = Script(tmp_path / "script").write([[[(1, "a")]]])
    stream = spark.readStream.format("scripted").option("script", str(script.directory)).load()
    return stream.writeStream.options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "checkpoint"))


def to_table(writer: DataStreamWriter, table: str) -> None:
    query = writer.toTable(table)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


class TestDataFrameWriter:
    def test_append_is_one_commit_each(self, frame: DataFrame, tmp_path: Path) -> None:
        for _ in range(2):
            frame.write.format("ftfile").mode("append").save(str(tmp_path / "out"))
        assert ids(tmp_path / "out") == sorted([*range(10)] * 2)
        assert [version.rows for version in ftfile.open(str(tmp_path / "out")).history()] == [10, 10]

    def test_an_empty_frame_is_a_commit_with_a_schema(self, frame: DataFrame, tmp_path: Path) -> None:
        frame.where("id < 0").write.format("ftfile").mode("append").save(str(tmp_path / "out"))
        assert ids(tmp_path / "out") == []

    def test_the_explicit_registration_works_too(self, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
        from ftfile import FtFileDataSource

        spark.dataSource.register(FtFileDataSource)
        frame.write.format("FTFILE").mode("append").option("FILEformat", "CSV").save(str(tmp_path / "out"))
        assert ids(tmp_path / "out") == list(range(10))
        assert len(list((tmp_path / "out").glob("*.csv"))) == 2

    def test_rows_that_are_never_null_may_follow_rows_that_are(self, spark: SparkSession, tmp_path: Path) -> None:
        out = str(tmp_path / "out")
        with_null = spark.sql("select cast(null as bigint) as id, array(1, null) as items")
        without = spark.range(3).selectExpr("id", "array(1, 2) as items")
        for frame in (without, with_null, without):
            frame.write.format("ftfile").mode("append").save(out)
        found = spark.read.format("ftfile").load(out)
        assert found.where("id is null and items[1] is null").count() == 1
        assert found.where("id is not null").count() == 6

    def test_a_schema_of_ones_own_matches_names_whatever_their_case(self, spark: SparkSession, tmp_path: Path) -> None:
        frame = spark.sql("select 1L as Id, 'x' as Kind")
        frame.write.format("ftfile").mode("append").option("partitionBy", "kind").save(str(tmp_path / "out"))
        found = spark.read.format("ftfile").schema("KIND string, id long").load(str(tmp_path / "out"))
        assert found.collect() == [("x", 1)]

    def test_partition_by_option(self, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
        frame.write.format("ftfile").mode("append").option("partitionBy", "KIND").save(str(tmp_path / "out"))
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.where("kind = 1").count() == 3
        assert sorted(path.name for path in (tmp_path / "out").glob("kind=*")) == ["kind=0", "kind=1", "kind=2"]


class TestSql:
    def test_insert_into_with_path(self, spark: SparkSession, frame: DataFrame, table: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        frame.write.format("ftfile").mode("append").save(str(out))
        spark.sql(f"create table {table} using ftfile options (path '{out}')")
        spark.sql(f"insert into {table} with (path='{out}') values (10, 'x')")
        assert ids(out) == list(range(11))
        assert spark.sql(f"select count(*) from {table} with (path='{out}')").collect()[0][0] == 11
        frame.writeTo(table).option("path", str(out)).append()
        assert len(ids(out)) == 21

    def test_without_path_the_error_shows_the_working_form(
        self, spark: SparkSession, frame: DataFrame, table: str, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        frame.write.format("ftfile").mode("append").save(str(out))
        spark.sql(f"create table {table} using ftfile options (path '{out}')")
        text = message(lambda: spark.sql(f"insert into {table} values (10, 'x')"))
        assert "INSERT INTO t WITH (path='/data/out')" in text
        assert "writeStream.format('ftfile').option('path', '/data/out').toTable('t')" in text

    def test_first_save_as_table(self, spark: SparkSession, frame: DataFrame, table: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        frame.write.format("ftfile").mode("append").option("path", str(out)).saveAsTable(table)
        assert ids(out) == list(range(10))
        assert spark.read.option("path", str(out)).table(table).count() == 10
        assert "SELECT * FROM t WITH (path='/data/out')" in message(lambda: spark.table(table).count())

    def test_to_table(self, spark: SparkSession, table: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        spark.createDataFrame([(0, "z")], "id long, word string").write.format("ftfile").mode("append").save(str(out))
        spark.sql(f"create table {table} using ftfile options (path '{out}')")
        to_table(one_row(spark, tmp_path), table)
        assert ids(out) == [0, 1]

    def test_to_a_table_that_does_not_exist_yet(self, spark: SparkSession, table: str, tmp_path: Path) -> None:
        """Without a format, the write uses Spark's sink, whose directories ftfile refuses."""
        out = tmp_path / "out"
        to_table(one_row(spark, tmp_path), table)
        assert (out / "_spark_metadata").is_dir()
        assert spark.read.parquet(str(out)).collect() == [(1, "a")]
        frame = spark.sql("select 2L as id, 'b' as word")
        text = message(lambda: frame.write.format("ftfile").mode("append").save(str(out)))
        assert "Spark's own file sink wrote here" in text
        assert "use ftfile.migrate" in text

    def test_a_view_repeats_path_and_version(self, spark: SparkSession, table: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        for number in range(2):
            spark.range(number, number + 1).write.format("ftfile").mode("append").save(str(out))
        spark.sql(f"create temporary view {table} using ftfile options (path '{out}')")
        spark.sql(f"create temporary view {table}_0 using ftfile options (path '{out}', versionAsOf 0)")
        try:
            assert sorted(spark.sql(f"select id from {table}").collect()) == [(0,), (1,)]
            assert spark.sql(f"select id from {table}_0").collect() == [(0,)]
        finally:
            for name in (table, f"{table}_0"):
                spark.catalog.dropTempView(name)

    def test_a_view_stays_at_the_version_of_its_first_query(
        self, spark: SparkSession, table: str, tmp_path: Path
    ) -> None:
        out = str(tmp_path / "out")
        view = f"temporary view {table} using ftfile options (path '{out}')"

        def append() -> None:
            spark.range(1).write.format("ftfile").mode("append").save(out)

        append()
        spark.sql(f"create {view}")
        append()
        try:
            assert spark.table(table).count() == 2
            append()
            spark.sql(f"refresh table {table}")
            assert spark.table(table).count() == 2
            spark.sql(f"create or replace {view}")
            assert spark.table(table).count() == 3
        finally:
            spark.catalog.dropTempView(table)


class TestLayoutsThatSparkKeeps:
    """As in the pages on triggers and SQL: Spark does not pass these layouts to a Python sink, so they are ignored."""

    @pytest.mark.parametrize("way", ["saveAsTable", "bucketBy", "writeTo", "create table", "toTable"])
    def test_they_are_ignored(self, spark: SparkSession, table: str, tmp_path: Path, way: str) -> None:
        out = str(tmp_path / "out")
        frame = spark.sql("select 1L as id, 'a' as word")
        writer = frame.write.format("ftfile").mode("append").option("path", out)
        if way == "saveAsTable":
            writer.partitionBy("word").saveAsTable(table)
        elif way == "bucketBy":
            writer.bucketBy(8, "word").saveAsTable(table)
        elif way == "writeTo":
            frame.writeTo(table).using("ftfile").option("path", out).partitionedBy(frame.word).create()
        elif way == "create table":
            spark.sql(f"create table {table} (id long, word string) using ftfile partitioned by (word)")
            spark.sql(f"insert into {table} with (path='{out}') values (1, 'a')")
        else:
            to_table(one_row(spark, tmp_path).format("ftfile").partitionBy("word"), table)
        assert ids(out) == [1]
        assert [file.path.count("/") for file in ftfile.open(out).files()] == [0]

    def test_a_save_is_refused_by_spark(self, frame: DataFrame, tmp_path: Path) -> None:
        writer = frame.write.format("ftfile").mode("append").partitionBy("kind")
        assert "partitioning" in message(lambda: writer.save(str(tmp_path / "out")))


class TestRefusals:
    def stream_error(self, spark: SparkSession, tmp_path: Path, mode: str = "append", **options: str) -> str:
        script = Script(tmp_path / "script").write([[[(1, "a")]]])
        stream = spark.readStream.format("scripted").option("script", str(script.directory)).load()
        if mode != "append":
            stream = stream.groupBy("word").count()
        writer = stream.writeStream.format("ftfile").outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).options(**options)

        def run() -> None:
            query = writer.start(str(tmp_path / "out"))
            try:
                query.processAllAvailable()
            finally:
                query.stop()

        return message(run)

    def test_update_mode_is_refused_by_spark(self, spark: SparkSession, tmp_path: Path) -> None:
        assert "update" in self.stream_error(spark, tmp_path, "update").lower()

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"filFormat": "json"}, "did you mean fileFormat"),
            ({"fileFormat": "xml"}, "there is no fileFormat 'xml'; there are: arrow, avro, binary"),
            ({"rolling": "policy"}, "leave out rolling=policy"),
            ({"rolloverInterval": "1h"}, "leave out rolling=policy"),
            ({"txnAppId": "a"}, "txnAppId without txnVersion"),
            ({"partitionBy": "nosuch"}, "partitionBy names columns that do not exist: nosuch"),
            ({"maxBytesPerFile": "lots"}, "a size of at least one byte"),
            ({"fileFormat": "json", "header": "true"}, "is for fileFormat=csv"),
            ({"path": "memory://x"}, "inside one process"),
            ({"path": "ftp://x/y"}, "ftp"),
            ({"path": "hdfs://a:1,b:2/out"}, "hdfs://a:1,b:2 names several NameNodes: write the name of their service"),
        ],
    )
    def test_bad_options_fail_before_anything_is_written(
        self, spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str
    ) -> None:
        out = str(tmp_path / "out")
        frame = spark.range(1).selectExpr("id", "'x' as word")
        writer = frame.write.format("ftfile").mode("append").options(**({"path": out} | options))
        assert text in message(writer.save)
        assert not Path(out).exists()

    def test_storage_that_cannot_be_meant_is_told_by_readers_and_writers(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        wrong: list[tuple[str, dict[str, str], str]] = [
            ("webhdfs://a:1,b:2/out", {}, "webhdfs://a:1,b:2 names several NameNodes: write the name of their service"),
            ("s3://bucket/out", {"storage.secretKey": "PLAIN"}, "do not put secrets in them"),
            (f"{tmp_path}/link", {}, "link' is a symbolic link to 'nowhere', which does not exist"),
        ]
        for path, options, text in wrong:
            said = [message(lambda: spark.read.format("ftfile").options(**options).load(path))]  # noqa: B023
            writer = spark.range(1).write.format("ftfile").mode("append").options(**options)
            said.append(message(lambda: writer.save(path)))  # noqa: B023
            assert all(text in each and "PLAIN" not in each for each in said)

    def test_a_path_that_is_a_file(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        text = message(lambda: spark.range(1).write.format("ftfile").mode("append").save(str(tmp_path / "out")))
        assert "is a file, not a directory: give the directory" in text

    def test_reading_what_is_no_ftfile_directory(self, spark: SparkSession, tmp_path: Path) -> None:
        text = message(lambda: spark.read.format("ftfile").load(str(tmp_path)).count())
        assert "not an ftfile directory" in text

    def test_continuous_processing_commits_nothing_and_says_so(self, spark: SparkSession, tmp_path: Path) -> None:
        stream = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        query = (
            stream.writeStream.format("ftfile")
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(continuous="500 milliseconds")
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination(5)
        query.stop()
        assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] in ([], ["_marker"])

    @pytest.mark.parametrize(
        ("settings", "mode", "text"),
        [
            ({}, "append", "not in the sink allowlist"),
            ({"allowlistCheck": "false"}, "append", "set the output mode to Update"),
            ({"allowlistCheck": "false"}, "update", "Sink ftfile does not support async progress tracking"),
        ],
    )
    def test_real_time_mode_is_refused(
        self, spark: SparkSession, tmp_path: Path, settings: dict[str, str], mode: str, text: str
    ) -> None:
        """Spark refuses it, whichever of its checks are turned off."""
        stream = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        writer = stream.writeStream.format("ftfile").option("path", str(tmp_path / "out")).outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.streaming.realTimeMode.{name}", value)
        triggered = writer.trigger(realTime="5 seconds")  # type: ignore[call-overload] # missing in the stubs
        try:
            refused = message(lambda: triggered.start().awaitTermination(60))
        finally:
            for name in settings:
                spark.conf.unset(f"spark.sql.streaming.realTimeMode.{name}")
        assert text in refused
        assert not (tmp_path / "out").exists()


class TestExports:
    def test_tables_have_the_rows_after_each_write(self, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
        out = str(tmp_path / "out")
        writer = frame.write.format("ftfile").option("exportTo", "delta,iceberg").mode("append")
        for version in range(2):
            writer.save(out)
            assert delta_ids(out) == ids(out)
            assert (Path(out) / f"_iceberg/metadata/v{version + 1}.metadata.json").exists()
        assert spark.read.parquet(out).count() == 20

    def test_an_overwrite_renews_exports_that_are_there(self, frame: DataFrame, tmp_path: Path) -> None:
        """Without `exportTo`. An append does not renew them."""
        out = str(tmp_path / "out")
        writer = frame.write.format("ftfile")
        writer.mode("append").save(out)
        ftfile.export(out)
        writer.mode("append").save(out)
        assert delta_ids(out) == list(range(10))
        frame.where("id < 3").write.format("ftfile").mode("overwrite").save(out)
        assert delta_ids(out) == [0, 1, 2]
        assert not (Path(out) / "_iceberg").exists()

    def test_a_stream_goes_on_where_an_export_fails(
        self, attached: SparkSession, frame: DataFrame, tmp_path: Path
    ) -> None:
        out, source, checkpoint = (str(tmp_path / name) for name in ("out", "in", "checkpoint"))

        def run() -> None:
            frame.write.mode("append").parquet(source)
            stream = attached.readStream.schema(frame.schema).parquet(source).writeStream.format("ftfile")
            stream = stream.option("checkpointLocation", checkpoint).option("exportTo", "delta")
            stream.trigger(availableNow=True).start(out).awaitTermination()

        run()
        wait_until(lambda: delta_ids(out) == ids(out), "the export")
        shutil.rmtree(f"{out}/_delta_log")
        (Path(out) / "_delta_log").write_text("in the way")
        run()
        assert len(ids(out)) == 20
        (Path(out) / "_delta_log").unlink()
        run()
        wait_until(lambda: delta_ids(out) == ids(out), "the export")
        assert len(ids(out)) == 30

    def test_inside_foreach_batch(self, spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
        out, source = str(tmp_path / "out"), str(tmp_path / "in")
        frame.write.parquet(source)

        def write(batch: DataFrame, _: int) -> None:
            batch.write.format("ftfile").option("exportTo", "delta").mode("append").save(out)

        stream = spark.readStream.schema(frame.schema).parquet(source).writeStream.foreachBatch(write)
        query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert delta_ids(out) == ids(out) == list(range(10))

    @pytest.mark.parametrize(
        ("options", "column", "text"),
        [
            ({"fileFormat": "orc"}, "id", "exportTo=delta: files are orc"),
            ({}, "id as `a b`", "exportTo=delta: column 'a b': Delta accepts no blank"),
        ],
    )
    def test_what_a_format_cannot_say_is_refused_before_a_row_is_written(
        self, frame: DataFrame, tmp_path: Path, options: dict[str, str], column: str, text: str
    ) -> None:
        writer = frame.selectExpr(column).write.format("ftfile").options(**{"exportTo": "delta", **options})
        assert text in message(lambda: writer.mode("append").save(str(tmp_path / "out")))
        assert not (tmp_path / "out").exists()


def delta_ids(out: str) -> list[int]:
    deltalake = pytest.importorskip("deltalake")
    if not deltalake.DeltaTable.is_deltatable(out):
        return []
    return sorted(deltalake.DeltaTable(out).to_pyarrow_table(columns=["id"])["id"].to_pylist())


class TestNested:
    def test_a_write_inside_a_directory_is_refused(self, frame: DataFrame, tmp_path: Path) -> None:
        out = tmp_path / "out"
        frame.write.format("ftfile").mode("append").save(str(out))
        text = message(lambda: frame.write.format("ftfile").mode("append").save(str(out / "month=1")))
        assert f"{out}', a directory or a store of ftfile" in text
        assert "partitionBy=month" in text
        assert not (out / "month=1").exists()

    @pytest.mark.parametrize("source", ["directory", "files", "spark"])
    def test_a_stream_into_its_own_source_is_refused(self, spark: SparkSession, tmp_path: Path, source: str) -> None:
        out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
        reader = spark.readStream.format("ftfile")
        if source == "directory":
            spark.range(3).write.format("ftfile").mode("append").save(str(out))
        else:
            out.mkdir()
            (out / "a.txt").write_text(f"{'x' * 300}\n")
            reader = spark.readStream.format("text") if source == "spark" else reader.option("fileFormat", "text")
            reader = reader.option("checkpointLocation", str(checkpoint)).schema("value string")
        before = sorted(path for path in out.rglob("*") if not path.name.startswith("_clock"))
        writer = reader.load(str(out)).writeStream.format("ftfile").option("onNewQuery", "continue")
        writer = writer.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
        text = message(lambda: writer.start(str(out)).awaitTermination())
        reason = {"directory": "is the directory that", "files": "whose files", "spark": "contains files that"}[source]
        assert f"{reason} the query reads" in text
        assert sorted(path for path in out.rglob("*") if not path.name.startswith("_clock")) == before
