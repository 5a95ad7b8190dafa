"""Files that stay open over the batches of a real stream."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.spark
from ftfile.log.commit_log import CommitLog
from ftfile.operate.flush import flush
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.demos.files.process import SparkApp, own_environment
from tests.spark import attached_job
from tests.spark.scripted_source import Row, Script, run, start
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Paths = dict[str, Any]


def batches(count: int, first: int = 0) -> list[list[list[Row]]]:
    return [[[(2 * n, "even")], [(2 * n + 1, "odd")]] for n in range(first, first + count)]


def ids(path: str) -> list[int]:
    return sorted(ftfile.open(path).to_arrow()["id"].to_pylist())


def in_files(spark: SparkSession, paths: Paths, file_format: str) -> list[int]:
    reader = spark.read.schema("id long, word string")
    return sorted(row.id for row in getattr(reader, file_format)(paths["out"]).collect())


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_files_of_several_batches(spark: SparkSession, paths: Paths, file_format: str) -> None:
    script = Script(paths["script"]).write(batches(6), available=0)
    run(spark, paths, script, 4, fileFormat=file_format, maxBatchesPerFile="2")
    run(spark, paths, script, 6, fileFormat=file_format, maxBatchesPerFile="2")
    assert ids(paths["out"]) == list(range(12))
    assert sorted(row.id for row in spark.read.format("ftfile").load(paths["out"]).collect()) == list(range(12))
    assert in_files(spark, paths, file_format) == list(range(8))
    assert [file.rows for file in ftfile.open(paths["out"]).files()] == [4, 4]
    ftfile.flush(paths["out"])
    assert in_files(spark, paths, file_format) == list(range(12))
    check_directory(open_filesystem(paths["out"]), rows_of=lambda _: ())


def test_attached_a_stream_that_ends_leaves_nothing_open(attached: SparkSession, paths: Paths) -> None:
    ftfile.spark.attach(attached)
    script = Script(paths["script"]).write(batches(3), available=0)
    run(attached, paths, script, 3, rolling="policy")
    wait_until(lambda: in_files_or_none(attached, paths) == list(range(6)), "the end of the open files")
    assert len(ftfile.open(paths["out"]).files()) == 1


def test_attached_a_stream_that_is_started_again_before_its_end_is_told(
    attached: SparkSession, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reports the start of a run at once, but the end of the run before it only when its listeners are called."""
    is_running_again, was_told = threading.Event(), threading.Event()

    def slow_flush(*args: Any, **options: Any) -> None:
        if not options["due_only"]:
            is_running_again.wait()
        flush(*args, **options)
        if not options["due_only"]:
            was_told.set()

    monkeypatch.setattr("ftfile.spark.listener.flush", slow_flush)
    script = Script(paths["script"]).write(batches(2), available=1)
    run(attached, paths, script, 1, rolloverInterval="1h")
    query = start(attached, paths, rolloverInterval="1h")
    try:
        is_running_again.set()
        was_told.wait()
        script.release(2)
        query.processAllAvailable()
        assert len(list(Path(paths["out"]).glob("*.json"))) == 1
    finally:
        is_running_again.set()
        query.stop()
    wait_until(lambda: in_files(attached, paths, "json") == list(range(4)), "the end of the open files")


def test_attached_an_idle_stream_ends_files_in_time(attached: SparkSession, paths: Paths) -> None:
    Script(paths["script"]).write(batches(1))
    query = start(attached, paths, rolloverInterval="2s")
    try:
        query.processAllAvailable()
        assert ids(paths["out"]) == [0, 1]
        assert ftfile.open(paths["out"]).history()[0].files == 0
        wait_until(lambda: in_files_or_none(attached, paths) == [0, 1], "the end of the interval")
    finally:
        query.stop()


@pytest.mark.parametrize(("end", "all_end"), [("Ctrl-C", True), ("exit at SIGTERM", True), ("SIGTERM", False)])
def test_attached_a_process_that_exits_leaves_nothing_open(
    paths: Paths, tmp_path: Path, end: str, all_end: bool
) -> None:
    Script(paths["script"]).write(batches(2))
    (tmp_path / "scratch").mkdir()
    where = {name: str(path) for name, path in paths.items()}
    job = {"paths": where, "exits_at_sigterm": end == "exit at SIGTERM", "scratch": str(tmp_path / "scratch")}
    (tmp_path / "job.json").write_text(json.dumps(job))
    app = SparkApp(Path(attached_job.__file__), tmp_path / "job.json", tmp_path / "log", own_environment(tmp_path))
    try:
        wait_until(lambda: attached_job.READY in app.log.read_text() or app.exit_code is not None, "the rows")
        assert app.exit_code is None, app.last_words()
        if end == "Ctrl-C":
            os.killpg(app.session, signal.SIGINT)  # as a terminal does
        else:
            os.kill(app.session, signal.SIGTERM)
        wait_until(lambda: app.exit_code is not None, "the end of the application")
    finally:
        app.kill()
    assert ids(paths["out"]) == list(range(4))
    assert sum(file.rows for file in ftfile.open(paths["out"]).files()) == (4 if all_end else 0), app.last_words()


def test_everything_changes_while_files_are_open_and_due(spark: SparkSession, paths: Paths, tmp_path: Path) -> None:
    """Options for partitions, limits and the format, and the path of the directory."""

    def dealt(batch: int, partitions: int) -> list[list[Row]]:
        rows: list[Row] = [(12 * batch + n, "xyz"[n % 3]) for n in range(12)]
        return [rows[partition::partitions] for partition in range(partitions)]

    partitions = [1, 1, 4, 2, 1, 3, 8, 1, 1]
    batches = [dealt(batch, count) for batch, count in enumerate(partitions)]
    batches[7:] = [[[]], [[]] * 3]
    script = Script(paths["script"]).write(batches, available=0)
    options = {"partitionBy": "word", "maxBatchesPerFile": "2"}
    run(spark, paths, script, 2, **options)
    assert len(CommitLog(open_filesystem(paths["out"])).refresh().jobs) == 3
    run(spark, paths, script, 4, **{**options, "maxRecordsPerFile": "6"})
    assert [file.rows for file in ftfile.open(paths["out"]).files()] == [8] * 3
    Path(paths["out"]).rename(tmp_path / "moved")
    moved = paths | {"out": str(tmp_path / "moved")}
    run(spark, moved, script, 5, **{**options, "maxRecordsPerFile": "6"})
    run(spark, moved, script, 9, **options, fileFormat="parquet", onFormatChange="accept")
    assert ids(moved["out"]) == list(range(84))
    found = {suffix: [*Path(moved["out"]).rglob(f"*.{suffix}")] for suffix in ("json", "parquet")}
    # in each directory one file of 8 records, one of 6 and 2, and one with only the fifth batch
    assert len(found["json"]) == 12
    assert len(found["parquet"]) == 3
    assert not CommitLog(open_filesystem(moved["out"])).refresh().segments
    check_directory(open_filesystem(moved["out"]), rows_of=lambda _: ())


def in_files_or_none(spark: SparkSession, paths: Paths) -> list[int]:
    return in_files(spark, paths, "json") if list(Path(paths["out"]).glob("*.json")) else []


def test_a_batch_write_has_no_later_batches(spark: SparkSession, paths: Paths) -> None:
    with pytest.raises(Exception, match="a batch write has one"):
        spark.range(1).write.format("ftfile").mode("append").option("rolloverInterval", "1h").save(paths["out"])
