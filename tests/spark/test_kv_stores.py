"""Keyed stores in Spark: streams that upsert, merge and delete, batch writes, reads with filters, lookups."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile.kv
from ftfile.spark import lookup
from tests.spark.scripted_source import Row, Script
from tests.spark.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Paths = dict[str, Any]
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
TEXTS = ["to be or not to be", "that is the question", "whether it is nobler", "to die to sleep to sleep"]
BATCHES: list[list[list[Row]]] = [
    [[(0, word) for word in text.split()], [(1, word) for word in reversed(text.split())]] for text in TEXTS
]
COUNTS = Counter(word for text in TEXTS for word in text.split() * 2)


def words(spark: SparkSession, paths: Paths) -> DataFrame:
    return spark.readStream.format("scripted").option("script", str(paths["script"])).load()


def start(frame: DataFrame, paths: Paths, mode: str = "append", **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format("ftkv").outputMode(mode).option("checkpointLocation", paths["checkpoint"])
    return writer.options(keyColumns="word", **{"buckets": 4, **options}).start(paths["out"])


def run(frame: DataFrame, paths: Paths, script: Script, batches: int, mode: str = "append", **options: Any) -> None:
    """Run a query until `batches` batches of the script are done, one by one, and stop it."""
    first = max(1, int((script.directory / "available").read_text()))
    script.release(first)
    query = start(frame, paths, mode, **options)
    try:
        for number in range(first, batches + 1):
            script.release(number)
            query.processAllAvailable()
    finally:
        query.stop()


def forget_commit(paths: Paths, batch: int) -> None:
    """Delete Spark's record that a batch is done, as after a crash right after the store's commit."""
    for name in (str(batch), f".{batch}.crc"):
        (Path(paths["checkpoint"]) / "commits" / name).unlink(missing_ok=True)


def contents(path: str, version: int | None = None) -> dict[Any, Any]:
    with ftfile.kv.open(path, version=version) as reader:
        return {row.pop("word"): [*row.values()] for batch in reader.scan() for row in batch.to_pylist()}


def message(action: Callable[[], object]) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps it in several classes
        action()
    return str(raised.value)


def test_words_are_counted_over_restarts_and_repeated_batches(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    ones = words(spark, paths).selectExpr("word", "1 as n")
    run(ones, paths, script, 2, merge="n:sum", flushIntervalCount=2)
    forget_commit(paths, 1)
    run(ones, paths, script, 4, merge="n:sum", flushIntervalCount=2)
    assert contents(paths["out"]) == {word: [n] for word, n in COUNTS.items()}
    found = spark.read.format("ftkv").load(paths["out"])
    assert found.dtypes == [("word", "string"), ("n", "bigint")]
    assert {row.word: row.n for row in found.collect()} == COUNTS
    first = spark.read.format("ftkv").option("versionAsOf", 0).load(paths["out"])
    assert {row.word: row.n for row in first.collect()} == Counter(TEXTS[0].split() * 2)
    assert ftfile.kv.open(paths["out"]).version == 3


def test_a_stream_looks_up_what_is_stored(spark: SparkSession, paths: Paths, second: Paths, tmp_path: Path) -> None:
    out = str(tmp_path / "known")
    known = spark.createDataFrame([("to", 1, "x"), ("be", 2, None)], "word string, n int, note string")
    known.write.format("ftkv").mode("append").options(keyColumns="word", buckets=2).save(out)
    left = lookup(known.select("word").union(spark.sql("select 'none' union all select null")), out, "word", ["n"])
    assert sorted(left.collect(), key=str) == [("be", 2), ("none", None), ("to", 1), (None, None)]
    script = Script(paths["script"]).write(BATCHES[:2], available=1)
    joined = lookup(words(spark, paths).withColumnRenamed("word", "w"), out, on=["w"], how="inner")
    writer = joined.writeStream.format("ftfile").option("fileFormat", "json").option("path", second["out"])
    query = writer.option("checkpointLocation", second["checkpoint"]).start()
    try:
        query.processAllAvailable()
        change = spark.createDataFrame([("that", 3, "new")], known.schema)
        change.write.format("ftkv").mode("append").options(keyColumns="word", buckets=2).save(out)
        script.release(2)
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.schema(joined.schema).json(second["out"]).select("w", "n", "note").collect()
    assert Counter(rows) == {("to", 1, "x"): 4, ("be", 2, None): 4, ("that", 3, "new"): 2}
    assert lookup(known.select("word"), out, "word", version=0).count() == 2
    for wrong, text in (
        (lambda: lookup(known, out, "word"), "the DataFrame has columns n, note, too"),
        (lambda: lookup(known.select("n"), out, "n"), "column 'n' is int32, but string, the type of the key column"),
        (lambda: lookup(known.select("word"), out, "word", ["n", "N"]), "a column is named twice"),
        (lambda: lookup(known, out, ["word", "n"]), "the key of the store has the columns word"),
        (lambda: lookup(known, str(tmp_path), "word"), "nothing was ever committed"),
    ):
        assert text in message(wrong)


def test_deletes_and_batches_that_are_written_twice(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write([[[(1, "a"), (2, "b"), (3, "c")]], [[(-2, "b"), (5, "c"), (6, "d")]]])
    script.release(1)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        changes = batch.selectExpr("word", "id as n", "id < 0 as gone")
        for _ in range(2):  # as if Spark repeats the function
            writer = changes.write.format("ftkv").mode("append")
            options: dict[str, Any] = {"keyColumns": "word", "buckets": 4, "deleteColumn": "gone", "merge": "n:sum"}
            writer.options(**options, txnAppId="upserts", txnVersion=batch_id).save(paths["out"])

    stream = words(spark, paths).writeStream.outputMode("update").foreachBatch(upsert)
    query = stream.option("checkpointLocation", paths["checkpoint"]).start()
    try:
        query.processAllAvailable()
        script.release(2)
        query.processAllAvailable()
    finally:
        query.stop()
    assert contents(paths["out"]) == {"a": [1], "c": [8], "d": [6]}
    assert ftfile.kv.open(paths["out"]).version == 1


def test_complete_mode_and_overwrite_replace_all(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES[:2], available=0)
    counts = words(spark, paths).groupBy("word").count()
    run(counts, paths, script, 2, "complete")
    expected = Counter(word for text in TEXTS[:2] for word in text.split() * 2)
    assert contents(paths["out"]) == {word: [n] for word, n in expected.items()}
    rest = spark.createDataFrame([("only", 1)], "word string, count long")
    rest.write.format("ftkv").mode("overwrite").options(keyColumns="word", buckets=4).save(paths["out"])
    assert contents(paths["out"]) == {"only": [1]}


@pytest.fixture
def by_day(spark: SparkSession, tmp_path: Path) -> str:
    out = str(tmp_path / "by-day")
    frame = spark.range(60).selectExpr("cast(id % 6 as int) as day", "concat('w', id) as word", "id as n")
    options: dict[str, Any] = {"keyColumns": "day,word", "bucketBy": "day", "buckets": 8}
    frame.write.format("ftkv").mode("append").options(**options).save(out)
    return out


@pytest.mark.parametrize(
    ("condition", "left", "tasks"),
    [
        ("day = 3 and word in ('w9', 'w15', 'none')", "", 1),
        ("day in (1, 2) and n > 10", "n", None),
        ("day > 3 and day <= 5", "", None),
        ("day = 2 and word > 'w2'", "", 1),
        ("word = 'w9'", "word", None),
    ],
)
def test_filters_on_keys_read_less(
    spark: SparkSession, by_day: str, condition: str, left: str, tasks: int | None
) -> None:
    """`left` is the column that Spark filters itself."""
    reader = spark.read.format("ftkv")
    expected = sorted(reader.load(by_day).where(condition).collect())
    spark.conf.set(PUSHDOWN, "true")
    try:
        found = reader.option("filterPushdown", "true").load(by_day).where(condition)
        assert sorted(found.collect()) == expected
        plan = found._jdf.queryExecution().executedPlan().toString()
        filters = " ".join(re.findall(r" Filter (.*)", plan))
        assert {*re.findall(r"(\w+)#", filters)} == ({left} if left else set()), plan
        if tasks is not None:
            assert found.rdd.getNumPartitions() == tasks
    finally:
        spark.conf.unset(PUSHDOWN)


def test_the_trap_of_a_frame_that_is_used_again(spark: SparkSession, by_day: str) -> None:
    """A trap of Spark: because of it, `filterPushdown` is off by default; if this test fails, docs can change."""
    reader = spark.read.format("ftkv")
    usual = reader.load(by_day)
    assert (usual.where("day = 3").count(), usual.count()) == (10, 60)
    spark.conf.set(PUSHDOWN, "true")
    try:
        pushing = reader.option("filterPushdown", "true")
        frame = pushing.load(by_day)
        frame.createOrReplaceTempView("by_day")
        assert (frame.where("day = 3").count(), frame.count()) == (10, 10)
        assert spark.sql("select * from by_day").count() == 10
        assert (pushing.load(by_day).where("day = 3").count(), pushing.load(by_day).count()) == (10, 60)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_columns_of_the_users_own(spark: SparkSession, by_day: str) -> None:
    reader = spark.read.format("ftkv")
    wide = reader.schema("N bigint, DAY bigint, none string").load(by_day)
    assert sorted(wide.where("day = 3").collect()) == [(n, 3, None) for n in range(3, 60, 6)]
    for columns, told in (
        ("day int, word string, n string", "n is int64, but string was requested"),
        ("word int, n int", "word is string, but int32 was requested; n is int64, but int32 was requested"),
    ):
        text = message(reader.schema(columns).load(by_day).collect)
        assert ".schema(…) does not match the stored columns" in text
        assert told in text
        assert "Job aborted" not in text
    changes = (
        spark.readStream.format("ftkv").option("readChangeFeed", "true").schema("word string, new struct<n: date>")
    )

    def follow() -> None:
        query = changes.load(by_day).writeStream.format("memory").queryName("misfit").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    text = message(follow)
    assert "new.n is int64, but date32[day] was requested" in text
    assert "Job aborted" not in text


def test_columns_that_differ_by_case_alone(spark: SparkSession, by_day: str) -> None:
    frame = spark.createDataFrame([(3, "w9", 99), (3, "new", 1)], "Day int, WORD string, N bigint")
    writer = frame.write.format("ftkv").mode("append")
    writer.options(keyColumns="Day,WORD", bucketBy="DAY", buckets=8).save(by_day)
    writer.save(by_day)
    found = spark.read.format("ftkv").load(by_day)
    assert found.columns == ["day", "word", "n"]
    assert sorted(found.where("day = 3 and word in ('w9', 'new')").collect()) == [(3, "new", 1), (3, "w9", 99)]


def test_strings_that_are_not_utf_8(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "select cast(key as string) as word, cast(X'ff' as string) as text from values (X'fffe'), (X'61') t(key)"
    )
    out = str(tmp_path / "store")
    frame.write.format("ftkv").mode("append").options(keyColumns="word", buckets=2).save(out)
    stored = spark.read.format("ftkv").load(out)
    assert sorted(map(tuple, stored.selectExpr("hex(word)", "hex(text)").collect())) == [("61", "FF"), ("FFFE", "FF")]
    assert stored.where("word = cast(X'fffe' as string)").count() == 1


def test_an_encrypted_store(spark: SparkSession, tmp_path: Path) -> None:
    out, keys = tmp_path / "out", tmp_path / "keys"
    keys.write_text(f"k1 {'A' * 43}=\n")
    keys.chmod(0o600)
    secret = {"encryption": "aes-gcm", "keyProvider": f"file:{keys}"}
    frame = spark.sql("select concat('confidential-', id) as word, id as n from range(50)")
    frame.write.format("ftkv").mode("append").options(keyColumns="word", buckets=2, **secret).save(str(out))
    reader = spark.read.format("ftkv").option("keyProvider", secret["keyProvider"])
    assert reader.load(str(out)).where("n = 7").collect() == [("confidential-7", 7)]
    assert lookup(frame.select("word"), str(out), "word", key_provider=secret["keyProvider"]).count() == 50
    for path in out.rglob("*"):
        assert path.is_dir() or b"confidential" not in path.read_bytes(), path


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({}, "keyColumns is not given"),
            ({"keyColumns": "word", "partitionBy": "word"}, "is for files (`ftfile`): writing"),
            ({"keyColumn": "word"}, "did you mean keyColumns"),
            ({"keyColumns": "word", "merge": "n:median"}, "median"),
            ({"keyColumns": "n", "txnAppId": "a"}, "txnAppId without txnVersion"),
        ],
    )
    def test_wrong_options_fail_before_anything_is_written(
        self, spark: SparkSession, tmp_path: Path, options: dict[str, str], text: str
    ) -> None:
        frame = spark.sql("select 'a' as word, 1 as n")
        writer = frame.write.format("ftkv").mode("append").options(**options)
        assert text in message(lambda: writer.save(str(tmp_path / "out")))
        assert not (tmp_path / "out").exists()

    def test_another_definition_and_the_other_kind(self, spark: SparkSession, tmp_path: Path) -> None:
        store, files = str(tmp_path / "store"), str(tmp_path / "files")
        frame = spark.sql("select 'a' as word, 1 as n")
        frame.write.format("ftkv").mode("append").option("keyColumns", "word").save(store)
        frame.write.format("ftfile").mode("append").save(files)
        writer = frame.write.format("ftkv").mode("append").options(keyColumns="word", buckets=8)
        assert "buckets: the store has 16, and 8 is given" in message(lambda: writer.save(store))
        assert "is a directory of files" in message(lambda: writer.save(files))
        assert "is a store of keys and values" in message(
            lambda: frame.write.format("ftfile").mode("append").save(store)
        )
        assert "is a store of keys and values" in message(lambda: spark.read.format("ftfile").load(store))

    def test_attached_continuous_processing_is_stopped_at_once(
        self, attached: SparkSession, paths: Paths, caplog: pytest.LogCaptureFixture
    ) -> None:
        stream = attached.readStream.format("rate").load()
        writer = stream.writeStream.format("ftkv").option("keyColumns", "value")
        writer = writer.option("checkpointLocation", paths["checkpoint"]).trigger(continuous="200 milliseconds")
        query = writer.start(paths["out"])
        try:
            assert query.awaitTermination(PATIENCE_S)  # type: ignore[arg-type] # Spark takes floats
        finally:
            query.stop()
        assert "use a micro-batch trigger, such as trigger(processingTime='1 second')" in caplog.text

    def test_update_mode_and_continuous_processing(self, spark: SparkSession, paths: Paths) -> None:
        Script(paths["script"]).write(BATCHES[:1])
        counts = words(spark, paths).groupBy("word").count()
        assert "update" in message(lambda: start(counts, paths, "update").processAllAvailable()).lower()
        stream = spark.readStream.format("rate").load()
        writer = stream.writeStream.format("ftkv").option("keyColumns", "value")
        writer = writer.option("checkpointLocation", paths["checkpoint"]).trigger(continuous="200 milliseconds")
        query = writer.start(paths["out"])
        query.awaitTermination(2)
        query.stop()
        assert [path.name for path in Path(paths["out"]).rglob("*") if path.is_file()] in ([], ["_marker"])


def test_attached_a_store_is_merged_when_its_stream_ends(attached: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write([[[(0, word)]] for word in "aaaaa"], available=0)
    ones = words(attached, paths).selectExpr("word", "1 as n")
    run(ones, paths, script, 5, merge="n:sum", buckets=1, flushIntervalCount=5)
    wait_until(lambda: ftfile.kv.open(paths["out"]).stats().runs == 1, "the merge of five runs")
    assert contents(paths["out"]) == {"a": [5]}
