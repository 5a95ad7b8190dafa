"""The change feed of a keyed store, followed in Spark over restarts and repeated batches."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import ftfile.kv
from tests.spark.scripted_source import Script
from tests.spark.test_kv_stores import BATCHES, TEXTS, forget_commit, message, run, words

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Paths = dict[str, Any]


def follow(spark: SparkSession, paths: Paths, changes: Paths, **options: Any) -> None:
    """Write the existing changes as JSON."""
    stream = spark.readStream.format("ftkv").options(readChangeFeed=True, **options).load(paths["out"])
    writer = stream.writeStream.format("ftfile").options(fileFormat="json", checkpointLocation=changes["checkpoint"])
    query = writer.start(changes["out"])
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_changes_of_word_counts(spark: SparkSession, paths: Paths, second: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    ones = words(spark, paths).selectExpr("word", "1 as n")
    options: dict[str, Any] = {"merge": "n:sum", "flushIntervalCount": 2}
    run(ones, paths, script, 1, **options)
    follow(spark, paths, second)
    run(ones, paths, script, 3, **options)
    ftfile.kv.purge(paths["out"], "to", "tp")
    follow(spark, paths, second, maxFilesPerTrigger=3)
    forget_commit(second, 1)
    run(ones, paths, script, 4, **options)
    follow(spark, paths, second)
    schema = (
        "word string, old struct<n: bigint>, new struct<n: bigint>, _change_type string, _commit_version long, "
        "_commit_timestamp timestamp"
    )
    stream = spark.readStream.format("ftkv").option("readChangeFeed", "true").load(paths["out"])
    assert stream.schema.simpleString() == spark.createDataFrame([], schema).schema.simpleString()
    rows = spark.read.schema(schema).json(second["out"]).orderBy("_commit_version").collect()
    state: dict[str, int] = {}
    for row in rows:
        assert (row.old and row.old.n) == state.get(row.word), row
        assert row._change_type == ("insert" if row.old is None else "delete" if row.new is None else "update")
        state.pop(row.word, None)
        if row.new is not None:
            state[row.word] = row.new.n
    counts = Counter(word for text in TEXTS for word in text.split() * 2)
    counts["to"] = 2 * TEXTS[3].split().count("to")
    assert state == counts
    assert [row.word for row in rows if row._change_type == "delete"] == ["to"]
    batches = ftfile.kv.changes(paths["out"], 1)
    assert Counter(row["word"] for batch in batches for row in batch.to_pylist()) == Counter(
        row.word for row in rows if row._commit_version > 0
    )


def test_an_encrypted_store(spark: SparkSession, paths: Paths, second: Paths, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"k1 {'A' * 43}=\n")
    keys.chmod(0o600)
    secret = {"encryption": "aes-gcm", "keyProvider": f"file:{keys}"}
    frame = spark.sql("select concat('w', id) as word, id as n from range(5)")
    for _ in range(2):
        frame.write.format("ftkv").mode("append").options(keyColumns="word", merge="sum", **secret).save(paths["out"])
    follow(spark, paths, second, startingVersion=1, keyProvider=secret["keyProvider"])
    rows = spark.read.json(second["out"]).selectExpr("word", "old.n", "new.n").collect()
    assert sorted(rows) == [(f"w{n}", n, 2 * n) for n in range(1, 5)]


def test_refusals(spark: SparkSession, paths: Paths) -> None:
    spark.createDataFrame([("a", 1)], "word string, n int").write.format("ftkv").mode("append").options(
        keyColumns="word"
    ).save(paths["out"])

    def start(**options: Any) -> None:
        frame = spark.readStream.format("ftkv").options(**options).load(paths["out"])
        query = frame.writeStream.format("memory").queryName("refused").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "set readChangeFeed=true"),
        ({"readChangeFeed": "true", "skipChangeCommits": "true"}, "skipChangeCommits"),
        ({"readChangeFeed": "true", "startingVersion": 9}, "the newest version is 0"),
    )
    for given, text in refused:
        assert text in message(partial(start, **given))
    with pytest.raises(Exception, match="readChangeFeed"):
        spark.read.format("ftkv").option("readChangeFeed", "true").load(paths["out"]).collect()
