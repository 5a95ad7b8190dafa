"""Events of a query that follows a directory: kills, copies, changes, maintenance. On every Spark."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.demos.files.process import SparkApp, own_environment
from tests.spark import source_job
from tests.spark.following import Paths, follow, ids, offsets_in, rows_in, run_available, write
from tests.spark.waiting import wait_until
from tests.unit.writing.files.encrypted import FIRST, SECOND, forget_all, write_ring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROLLED = {"maxBatchesPerFile": "3"}
COLUMNS = {"id": "long", "word": "string"}


def forget_commit(checkpoint: str, batch: int) -> None:
    """Delete Spark's record that a batch is done."""
    for name in (str(batch), f".{batch}.crc"):
        Path(checkpoint, "commits", name).unlink(missing_ok=True)


def rewrite(out: str) -> None:
    ftfile.flush(out)
    ftfile.compact(out)


def drain(query: StreamingQuery) -> None:
    try:
        query.processAllAvailable()
    finally:
        query.stop()


@pytest.mark.parametrize("sink_knows", [True, False])
def test_a_batch_that_comes_again_has_the_same_rows(
    spark: SparkSession, paths: Paths, second: Paths, sink_knows: bool
) -> None:
    """Killed before Spark recorded the batch, or before the sink did. Files are rewritten meanwhile."""
    write(paths["out"], range(3), **ROLLED)
    run_available(spark, paths["out"], second)
    shutil.copytree(second["out"], f"{second['out']}-before")
    write(paths["out"], range(3, 5), **ROLLED)
    run_available(spark, paths["out"], second)
    last = len(offsets_in(second["checkpoint"])) - 1
    forget_commit(second["checkpoint"], last)
    if not sink_knows:
        shutil.rmtree(second["out"])
        shutil.move(f"{second['out']}-before", second["out"])
    rewrite(paths["out"])
    write(paths["out"], range(5, 8), **ROLLED)
    drain(follow(spark, paths["out"], second, maxFilesPerTrigger="3"))
    assert ids(second["out"]) == list(range(16))
    found = [version for version in ftfile.open(second["out"]).history() if version.batch_id == last]
    assert [version.rows for version in found] == [4]


def test_the_first_batch_comes_again_as_it_was_pinned(spark: SparkSession, paths: Paths, second: Paths) -> None:
    write(paths["out"], range(2))
    query = follow(spark, paths["out"], second, startingVersion="latest")
    try:
        wait_until(lambda: Path(second["checkpoint"], "commits/0").exists(), "the first batch")
    finally:
        query.stop()
    forget_commit(second["checkpoint"], 0)
    shutil.rmtree(second["out"])
    write(paths["out"], range(2, 4))
    drain(follow(spark, paths["out"], second, startingVersion="latest"))
    assert ids(second["out"]) == list(range(4, 8))


def test_another_driver_goes_on_and_the_late_one_ends(
    spark: SparkSession, paths: Paths, second: Paths, tmp_path: Path
) -> None:
    """A driver is stopped within a batch, another takes over, and the first one resumes."""
    write(paths["out"], range(20), maxBatchesPerFile="4")
    app = start_application(tmp_path / "late", paths, second)
    try:
        wait_for_rows(app, second, 4)
        app.freeze()
        ftfile.flush(paths["out"])
        write(paths["out"], range(20, 21), maxBatchesPerFile="4")
        drain(follow(spark, paths["out"], second))
        write(paths["out"], range(21, 22), maxBatchesPerFile="4")
        app.thaw()
        wait_until(lambda: app.exit_code is not None, "the end of the late driver")
        assert app.exit_code == 1, app.last_words()
    finally:
        app.kill()
    drain(follow(spark, paths["out"], second))
    assert ids(second["out"]) == list(range(44))
    check_directory(open_filesystem(second["out"]), rows_of=lambda _: ())


def start_application(home: Path, paths: Paths, second: Paths) -> SparkApp:
    (home / "scratch").mkdir(parents=True)
    options = {"reader": {"maxFilesPerTrigger": "1"}, "writer": {"maxBatchesPerFile": "3"}}
    (home / "job.json").write_text(json.dumps({"source": paths["out"], **second, **options, "home": str(home)}))
    return SparkApp(Path(source_job.__file__), home / "job.json", home / "log", own_environment(home))


def wait_for_rows(app: SparkApp, second: Paths, count: int) -> None:
    wait_until(lambda: rows_in(second["out"]) > count or app.exit_code is not None, "a few batches")
    assert app.exit_code is None, app.last_words()


def test_a_copied_checkpoint_goes_on_and_a_deleted_one_is_told(
    spark: SparkSession, paths: Paths, second: Paths
) -> None:
    write(paths["out"], range(3), **ROLLED)
    run_available(spark, paths["out"], second)
    copy = {name: f"{path}-copy" for name, path in second.items()}
    for name, path in copy.items():
        shutil.copytree(second[name], path)
    write(paths["out"], range(3, 6), **ROLLED)
    run_available(spark, paths["out"], second)
    rewrite(paths["out"])
    run_available(spark, paths["out"], copy)
    assert ids(second["out"]) == ids(copy["out"]) == list(range(12))
    shutil.rmtree(copy["checkpoint"])
    with pytest.raises(Exception, match="set onNewQuery=continue"):
        run_available(spark, paths["out"], copy)
    assert ids(copy["out"]) == list(range(12))


@pytest.mark.parametrize("restored", [False, True])
def test_another_log_at_the_same_path_is_told(spark: SparkSession, paths: Paths, second: Paths, restored: bool) -> None:
    write(paths["out"], range(2))
    if restored:
        shutil.copytree(paths["out"], f"{paths['out']}-copy")
    write(paths["out"], range(2, 4))
    run_available(spark, paths["out"], second)
    shutil.rmtree(paths["out"])
    if restored:
        shutil.move(f"{paths['out']}-copy", paths["out"])
    write(paths["out"], range(2, 6) if restored else range(6))
    with pytest.raises(Exception, match=r"AnotherLog.* The query would skip or repeat rows"):
        run_available(spark, paths["out"], second)
    assert ids(second["out"]) == list(range(8))


@pytest.mark.parametrize("change", ["an overwrite, replaces 4 files", "a drop, removes 2 files"])
def test_changed_rows_end_the_query_or_are_passed_over(
    spark: SparkSession, paths: Paths, second: Paths, change: str
) -> None:
    write(paths["out"], range(2), partitionBy="word")
    run_available(spark, paths["out"], second)
    if change.startswith("a drop"):
        ftfile.drop(paths["out"], {"word": "odd"})
    else:
        options = {"fileFormat": "json", "partitionBy": "word", "onNewQuery": "continue"}
        MicroBatch(paths["out"], COLUMNS, options, overwrite=True).run_batch_write("job", [[{"id": 99, "word": "odd"}]])
    write(paths["out"], range(2, 3), partitionBy="word")
    with pytest.raises(Exception, match=f"ChangedRows.* version 2, {change}"):
        run_available(spark, paths["out"], second)
    run_available(spark, paths["out"], second, skipChangeCommits="true")
    assert ids(second["out"]) == list(range(6))


def test_vacuum_has_passed_a_query_that_stood_still(spark: SparkSession, paths: Paths, second: Paths) -> None:
    write(paths["out"], range(3), **ROLLED)
    run_available(spark, paths["out"], second)
    write(paths["out"], range(3, 9), **ROLLED)
    rewrite(paths["out"])
    age(paths["out"], days=30)
    write(paths["out"], range(9, 10), **ROLLED)
    ftfile.vacuum(paths["out"], dry_run=False)
    with pytest.raises(Exception, match=r"HistoryGone.*vacuum"):
        run_available(spark, paths["out"], second)
    assert ids(second["out"]) == list(range(6))


def age(out: str, days: int) -> None:
    then = time.time() - days * 86_400
    for path in Path(out).rglob("*"):
        os.utime(path, (then, then))


def test_new_columns_end_the_query_and_the_next_one_reads_them(
    spark: SparkSession, paths: Paths, second: Paths
) -> None:
    write(paths["out"], range(2))
    query = follow(spark, paths["out"], second)
    try:
        query.processAllAvailable()
        wide = MicroBatch(
            paths["out"], {**COLUMNS, "more": "double"}, {"fileFormat": "json", "onSchemaChange": "widen"}
        )
        wide.run(2, [[{"id": 4, "word": "even", "more": 1.5}]])
        with pytest.raises(Exception, match=r"SchemaError.* from version 2 on, the directory has other columns"):
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


def test_starting_timestamp(spark: SparkSession, paths: Paths, second: Paths) -> None:
    write(paths["out"], range(4))
    for version in range(4):
        created = 1_720_000_000 + 60 * version
        os.utime(Path(paths["out"], layout.record_path(version)), (created, created))
    time_of_third = "2024-07-03T09:48:30Z"
    run_available(spark, paths["out"], second, startingTimestamp=time_of_third)
    assert ids(second["out"]) == list(range(4, 8))
    assert offsets_in(second["checkpoint"])[0]["from"] == 2


@pytest.mark.parametrize("rolled", [{}, ROLLED], ids=["batch", "rolled"])
def test_an_encrypted_directory(
    spark: SparkSession, paths: Paths, second: Paths, tmp_path: Path, rolled: dict[str, str]
) -> None:
    ring = tmp_path / "keys"
    write_ring(ring, first=FIRST)
    keys = {"keyProvider": f"file:{ring}"}
    write(paths["out"], range(4), encryption="aes-gcm", **keys, **rolled)
    query = follow_with_schema(spark, paths["out"], second, **keys)
    try:
        query.processAllAvailable()
        write(paths["out"], range(4, 6), encryption="aes-gcm", **keys, **rolled)
        query.processAllAvailable()
    finally:
        query.stop()
    assert ids(second["out"]) == list(range(12))
    write(paths["out"], range(6, 7), encryption="aes-gcm", **keys, **rolled)
    write_ring(ring, first=SECOND)
    with pytest.raises(Exception, match=r"(?i)key"):
        drain(follow_with_schema(spark, paths["out"], second, **keys))
    assert ids(second["out"]) == list(range(12))
    forget_all()


def follow_with_schema(spark: SparkSession, source: str, second: Paths, **options: str) -> StreamingQuery:
    """Start a query with a given schema, so that it does not read the directory's columns."""
    reader = spark.readStream.format("ftfile").schema("id long, word string").options(**options)
    writer = reader.load(source).writeStream.format("ftfile").option("fileFormat", "json")
    return writer.option("checkpointLocation", second["checkpoint"]).start(second["out"])
