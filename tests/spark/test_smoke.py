"""The main path, on older Sparks: no registration, stream, replay, batch, read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.spark
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import open_filesystem
from ftfile.writing.spark_checkpoint import recorded_checkpoint
from tests.spark.committing import noted
from tests.spark.conftest import TABLE_SPARKS
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

SCHEMA = "id long, t timestamp, d decimal(10,2), s string, a array<int>"


def write_input(spark: SparkSession, directory: str, first: int) -> None:
    rows = spark.range(first, first + 10).selectExpr(
        "id", "timestamp_micros(id * 1000001) as t", "cast(id as decimal(10,2)) / 4 as d", "concat('s', id) as s",
        "array(cast(id as int), null) as a",
    )  # fmt: skip
    rows.selectExpr("id", "t", "cast(d as decimal(10,2)) as d", "s", "a").write.mode("append").parquet(directory)


@pytest.mark.parametrize("file_format", ["parquet", "json"])
def test_stream_restart_replay_and_batch(spark: SparkSession, tmp_path: Path, file_format: str) -> None:
    source, out, checkpoint = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))

    def run() -> None:
        stream = spark.readStream.schema(SCHEMA).parquet(source)
        writer = stream.writeStream.format("ftfile").option("fileFormat", file_format)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
        query.awaitTermination()

    for first in (0, 10):
        write_input(spark, source, first)
        run()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    (written,) = ftfile.open(out).status().queries
    assert written.checkpoint is not None
    assert (written.checkpoint.planned_batch, written.checkpoint.committed_batch) == (1, 0)
    assert [(each.kind, each.offset) for each in written.checkpoint.sources] == [("other", {"logOffset": 1})]
    assert abs((written.checkpoint.planned_ms or 0) - (written.time_ms or 0)) < 600_000
    run()
    expected: list[Any] = sorted(map(tuple, spark.read.schema(SCHEMA).parquet(source).collect()))
    assert len(expected) == 20
    assert sorted(map(tuple, spark.read.format("ftfile").load(out).collect())) == expected
    assert sorted(map(tuple, getattr(spark.read.schema(SCHEMA), file_format)(out).collect())) == expected
    assert [version.batch_id for version in ftfile.open(out).history()] == [0, 1]
    frame = spark.read.schema(SCHEMA).parquet(source)
    frame.write.format("ftfile").option("fileFormat", file_format).mode("append").save(out)
    assert ftfile.open(out).to_arrow().num_rows == 40


def test_where_a_batch_is_committed_it_is_not_planned(spark: SparkSession, tmp_path: Path) -> None:
    """Each Spark names the committing program the same way, in a new process and in a reused one."""
    source, out = str(tmp_path / "in"), str(tmp_path / "out")
    for first in (0, 10):
        write_input(spark, source, first)
    writer = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(source).writeStream
    writer = writer.format("ftfile").option("onPublish", "tests.spark.committing:note_plan")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start(out).awaitTermination()
    commits = noted(tmp_path)
    assert [batch for batch, _, _ in commits] == [*range(len(commits))]
    assert len(commits) > 1
    assert not any(has_plan for _, _, has_plan in commits)


def test_spark_reads_a_version_itself(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "o [t]%20")
    day = "date'2024-07-01' + int(id) as day"
    frame = spark.range(4).selectExpr("id", day, "decimal(id) / 4 as d", "timestamp_seconds(id) as at")
    options = {"fileFormat": "orc", "partitionBy": "day,d"}
    frame.write.format("ftfile").options(**options).mode("append").save(out)
    frame.write.format("ftfile").options(**options).mode("overwrite").save(out)
    plan = ftfile.spark.load_plan(spark, out)
    assert plan.spark_files == {"orc": 4}, plan
    found = (
        ftfile.spark.load(spark, out, where={"d": None, "id": 1}),
        plan.rows,
        ftfile.spark.load(spark, out, version=0),
    )
    assert [sorted(each.collect()) for each in found] == [[], *[sorted(frame.collect())] * 2]
    chosen = ftfile.spark.load(spark, out, where="day = '2024-07-02'")
    assert [row.id for row in chosen.select("id", "_metadata.file_size").collect()] == [1]
    replaced = tmp_path / out / ftfile.open(out).files()[0].path
    replaced.write_bytes(replaced.read_bytes() * 2)
    with pytest.raises(Exception, match=f"{replaced.name}.* another program has replaced it"):
        plan.rows.select("id").collect()


def test_conditions_skip_files_by_their_statistics(spark: SparkSession, tmp_path: Path) -> None:
    """A text is compared with a number as a number, and a time in the time zone of the session."""
    out = str(tmp_path / "out")
    at = "timestamp '2024-07-01 00:00:00' + make_dt_interval(0, id) as at"
    frame = spark.range(12).selectExpr("id", "string(id) as text", "id / 2 as x", at)
    frame.write.format("ftfile").options(fileFormat="json", maxRecordsPerFile=1).mode("append").save(out)
    for condition, files, count in (("id = 5", 1, 1), ("NOT (id < 10)", 2, 2), ("text > 5", 12, 6)):
        chosen = ftfile.spark.load(spark, out, where=condition)
        assert (len(chosen.inputFiles()), chosen.count()) == (files, count), condition
    pushing = spark.read.format("ftfile").option("filterPushdown", "true").option("maxPartitionBytes", 1)
    if spark.version.startswith("4.0."):
        with pytest.raises(Exception, match=r"from 4\.1 on"):
            pushing.load(out).collect()
        return
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, files, count in (
            ("id = 5", 1, 1),
            ("NOT (x < 5.0D)", 2, 2),
            ("text LIKE '1%'", 3, 3),
            ("at > TIMESTAMP '2024-07-01 09:30:00'", 2, 2),
            ("text > 5", 12, 6),
            ("text COLLATE UTF8_LCASE = '5'", 12, 1),
        ):
            chosen = pushing.load(out).where(condition)
            assert (chosen.rdd.getNumPartitions(), chosen.count()) == (files, count), condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_errors_are_their_messages(spark: SparkSession, tmp_path: Path) -> None:
    """In planning, in a task, and at the start of a stream: the error shows no frames of ftfile or Spark's workers."""
    out = str(tmp_path / "out")
    frame, reader = spark.range(2).selectExpr("id as Value"), spark.read.format("ftfile")
    writer = frame.write.format("ftfile").mode("append")
    writer.save(out)
    part = ftfile.open(out).files()[0].path
    mixed = str(tmp_path / "mixed")
    for codec in ("zstd", "brotli"):  # Spark reads files of the first codec, and ftfile of the second
        writer.option("compression", codec).save(mixed)
    for file in tmp_path.glob("mixed/*.br.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    files = spark.readStream.schema("s string").format("ftfile").option("fileFormat", "text").load(str(tmp_path))
    ending = {"checkpointLocation": str(tmp_path / "checkpoint")}
    actions: dict[str, Callable[[], Any]] = {
        "mode('overwrite') accepts any schema": lambda: writer.option("overwriteSchema", "true").save(out),
        "value is recorded as Value": lambda: (
            frame.selectExpr("Value as value").write.format("ftfile").save(out, mode="append")
        ),
        "is a file, or lies below one. It lies within": lambda: reader.load(f"{out}/{part}"),
        "a reader reads one directory": lambda: reader.load([out, out]),
        "Value was int64 and is string": lambda: reader.schema("Value string").load(out).collect(),
        "expected a Parquet file": lambda: ftfile.spark.load(spark, mixed).collect(),
        "needs a location for its state": lambda: (
            files.writeStream.format("noop").options(**ending).start().awaitTermination(600)
        ),
    }
    for told, action in actions.items():
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps it in several classes
            action()
        assert told in str(raised.value)
        assert "Traceback" not in str(raised.value)


def test_files_over_batches_are_finished_when_the_stream_ends(attached: SparkSession, tmp_path: Path) -> None:
    spark = attached
    source, out, checkpoint = (str(tmp_path / name) for name in ("in", "out", "checkpoint"))
    spark.conf.set("spark.sql.streaming.checkpointLocation", checkpoint)
    try:
        for first in (0, 10):
            write_input(spark, source, first)
            writer = spark.readStream.schema(SCHEMA).parquet(source).writeStream.format("ftfile").option("path", out)
            writer = writer.queryName("what ends").option("rolloverInterval", "1h")
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    # The listener reports a checkpoint that the writer has no option for.
    ((query_id, known),) = CommitLog(open_filesystem(out)).refresh().queries.items()
    assert (query_id, known.last_batch) == (str(query.id), 1)
    assert known.offsets_hash is not None
    wait_until(lambda: sum(file.rows for file in ftfile.open(out).files()) == 20, "the files to be finished")
    assert spark.read.schema(SCHEMA).parquet(out).count() == 20


@pytest.mark.parametrize("name", ["what counts", None])
def test_a_checkpoint_below_the_location_of_the_session(spark: SparkSession, tmp_path: Path, name: str | None) -> None:
    """The checkpoint of a query with a name is known; for another query its name is random."""
    source, out = str(tmp_path / "in"), str(tmp_path / "out")
    write_input(spark, source, 0)
    spark.conf.set("spark.sql.streaming.checkpointLocation", f"{tmp_path}/check points/")
    try:
        writer = spark.readStream.schema(SCHEMA).parquet(source).writeStream.format("ftfile").option("path", out)
        writer = writer if name is None else writer.queryName(name)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    ((query_id, known),) = CommitLog(open_filesystem(out)).refresh().queries.items()
    assert (known.offsets_hash is not None) == (name is not None)
    assert recorded_checkpoint(CommitLog(open_filesystem(out)).refresh(), query_id) == (
        None if name is None else f"file://{tmp_path}/check points/what counts"
    )


def test_who_reads_compressed_lines(spark: SparkSession, tmp_path: Path) -> None:
    """As in docs/compression.md: zstd from Spark 4.1."""
    is_old = spark.version.startswith("4.0.")
    for codec in ("gzip", "zstd", "lz4", "snappy", "bzip2"):
        out = str(tmp_path / codec)
        rows = spark.range(1000).selectExpr("concat('line ', id) as value").coalesce(1)
        options = {"fileFormat": "text", "compression": codec}
        rows.write.format("ftfile").options(**options).mode("append").save(out)
        if codec == "zstd" and is_old:
            with pytest.raises(Exception, match=r"(?i)zstd|zstandard|native"):
                spark.read.text(out).collect()
        else:
            assert sorted(row.value for row in spark.read.text(out).collect()) == sorted(
                f"line {n}" for n in range(1000)
            )


def test_a_directory_is_followed_with_limits_over_restarts_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    source, middle, out, checkpoint = (str(tmp_path / name) for name in ("in", "middle", "out", "checkpoint"))

    def run_into(reader: DataStreamReader, start: str, end: str, to: str, **options: str) -> None:
        writer = reader.load(start).writeStream.format("ftfile").option("checkpointLocation", to)
        writer.options(**options).trigger(availableNow=True).start(end).awaitTermination()

    def follow() -> None:
        reader = spark.readStream.format("ftfile").option("startingVersion", "1").option("maxFilesPerTrigger", "2")
        run_into(reader, middle, out, checkpoint)

    for first in (0, 10, 20):
        write_input(spark, source, first)
        files = spark.readStream.format("parquet").schema(SCHEMA)
        run_into(files, source, middle, f"{checkpoint}-of-middle", maxBatchesPerFile="2")
        follow()
    while True:
        before = ftfile.open(out).version()
        follow()
        if ftfile.open(out).version() == before:
            break
    newest = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    for name in (str(newest), f".{newest}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    ftfile.flush(middle)
    follow()
    ids = ftfile.open(out).to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(10, 30))


def test_files_of_others_are_read_through_rotations_restarts_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    from tests.kit.rotating import RotatingLog

    out, checkpoint = str(tmp_path / "out"), tmp_path / "checkpoint"
    log = RotatingLog(tmp_path / "in" / "app.log", compressed=True)

    def run() -> None:
        reader = spark.readStream.format("ftfile").options(fileFormat="text", fileIdentity="content", minFileAge="0s")
        lines = reader.option("checkpointLocation", str(checkpoint)).load(str(log.path.parent))
        writer = lines.writeStream.format("ftfile").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(out).awaitTermination()

    for turn in range(3):
        # All logs differ: with identity by content, equal logs would be one.
        log.write(f"{turn} {number} {'of a log ' * 20}" for number in range(5))
        run()
        log.write([f"{turn} written before the rotation"])
        log.rotate()
    newest = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for name in (str(newest), f".{newest}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    run()
    run()
    assert sorted(ftfile.open(out).to_arrow()["value"].to_pylist()) == sorted(log.lines())
    log.close()


def test_a_store_counts_words_over_restarts_and_replays(spark: SparkSession, tmp_path: Path) -> None:
    source, out, checkpoint, changes = (str(tmp_path / name) for name in ("in", "store", "checkpoint", "changes"))

    def run() -> None:
        ones = spark.readStream.schema("word string").json(source).selectExpr("word", "1 as n")
        writer = ones.writeStream.format("ftkv").options(keyColumns="word", buckets=2, merge="n:sum")
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out).awaitTermination()

    def follow() -> None:
        stream = spark.readStream.format("ftkv").options(readChangeFeed="true", startingVersion="0").load(out)
        writer = stream.writeStream.format("ftfile").option("checkpointLocation", f"{checkpoint}-of-changes")
        writer.trigger(availableNow=True).start(changes).awaitTermination()

    def forget(batch: int, directory: str) -> None:
        (tmp_path / directory / "commits" / f"{batch}").unlink()
        (tmp_path / directory / "commits" / f".{batch}.crc").unlink(missing_ok=True)

    for _ in range(2):
        spark.sql("select concat('w', id % 3) as word from range(9)").write.mode("append").json(source)
        run()
        follow()
    forget(1, "checkpoint")
    run()
    forget(1, "checkpoint-of-changes")
    follow()
    changed = spark.read.format("ftfile").load(changes).selectExpr("word", "old.n", "new.n", "_change_type")
    inserted = [(f"w{n}", None, 3, "insert") for n in range(3)]
    assert sorted(map(tuple, changed.collect()), key=str) == sorted(
        [*inserted, *[(f"w{n}", 3, 6, "update") for n in range(3)]], key=str
    )
    read = spark.read.format("ftkv").option("versionAsOf", 1)
    counts = [("w0", 6), ("w1", 6), ("w2", 6)]
    assert sorted(map(tuple, read.load(out).collect())) == counts
    words = spark.sql("select 'w1' as word union all select 'none'")
    assert sorted(map(tuple, ftfile.spark.lookup(words, out, "word").collect())) == [("none", None), ("w1", 6)]
    assert ftfile.spark.compact(spark, out, full=True).version == 2
    assert sorted(map(tuple, spark.read.format("ftkv").load(out).collect())) == counts
    pushing = read.option("filterPushdown", "true")
    if spark.version.startswith("4.0."):
        with pytest.raises(Exception, match=r"from 4\.1 on"):
            pushing.load(out).collect()
        return
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert [tuple(row) for row in pushing.load(out).where("word = 'w1'").collect()] == [("w1", 6)]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_reader_of_delta_or_iceberg_sees_each_exported_version(spark: SparkSession, tmp_path: Path) -> None:
    to = next((name for name, version in TABLE_SPARKS.items() if spark.version.startswith(version)), None)
    if to is None:
        pytest.skip("the jars of Delta and of Iceberg are for other Sparks")
    out = str(tmp_path / "o t")
    columns = (
        "id, concat('s ', id % 3) as s, decimal(id) / 4 as d, timestamp_micros(id * 1000001) as t",
        "named_struct('x', int(id)) as p, array(smallint(id), null) as a, map('k', float(id)) as m",
    )
    frame = spark.sql(f"select {', '.join(columns)} from range(6)")
    options = {"partitionBy": "s,d", "onSchemaChange": "any", "exportTo": to}
    expected = []
    for version, written in enumerate((frame.drop("m"), frame)):
        written.write.format("ftfile").options(**options).mode("append").save(out)
        expected.append(ftfile.spark.load(spark, out, version=version))
    table, first, refusal = {"delta": (out, 0, "ftfileExport"), "iceberg": (f"{out}/_iceberg", 1, "export_of_ftfile")}[
        to
    ]
    for version, rows in enumerate(expected, first):
        found = spark.read.format(to).option("versionAsOf", version).load(table)
        assert sorted(map(str, found.select(rows.columns).collect())) == sorted(map(str, rows.collect()))
    assert [row.id for row in found.where("s = 's 1' and id > 1").collect()] == [4, 4]
    for change in (lambda: ftfile.compact(out), lambda: ftfile.drop(out, {"s": "s 0"}), lambda: ftfile.restore(out, 1)):
        change()
        ftfile.export(out, to)
        found, rows = spark.read.format(to).load(table), ftfile.spark.load(spark, out)
        assert sorted(map(str, found.select(rows.columns).collect())) == sorted(map(str, rows.collect()))
    assert len(rows.collect()) == 12
    retyped = frame.withColumn("d", frame.s)  # a partition column
    retyped.write.format("ftfile").options(**options).mode("overwrite").save(out)
    found = spark.read.format(to).load(table)
    assert sorted(map(str, found.select(frame.columns).collect())) == sorted(map(str, retyped.collect()))
    with pytest.raises(Exception, match=refusal):
        retyped.write.format(to).mode("append").save(table)


def test_workers_see_a_changed_archive_and_read_no_other_again(spark: SparkSession, tmp_path: Path) -> None:
    """Workers that wrote with ftfile also run the user's functions, whose modules are in archives."""
    archive = str(tmp_path / "functions.zip")

    def run(_: Iterable[int]) -> Iterator[tuple[list[int], str]]:
        import importlib
        import sys
        import zipfile
        from zipimport import zipimporter

        from ftfile.spark.workers.tuning import tune_worker

        versions = []
        sys.path.append(archive)
        for version in (1, 2):
            with zipfile.ZipFile(archive, "w") as file:
                file.writestr(f"functions_{version}.py", f"VERSION = {version}")
            # As Spark and ftfile do at each use of a worker.
            importlib.invalidate_caches()
            tune_worker()
            versions.append(importlib.import_module(f"functions_{version}").VERSION)
        yield versions, zipimporter.invalidate_caches.__module__

    is_tuned = spark.version.startswith(("4.0.", "4.1."))
    module = "ftfile.spark.workers.tuning" if is_tuned else "zipimport"
    for _ in range(2):
        assert spark.sparkContext.parallelize([0], 1).mapPartitions(run).collect() == [([1, 2], module)]
