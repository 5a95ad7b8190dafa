"""The stream sink in Spark: from a scripted source to files that all readers read the same."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

import ftfile
from ftfile.testing.checker import check_directory
from tests.spark.committing import noted
from tests.spark.scripted_source import Row, Script, run, start
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ftfile.storage.api import FileSystem

Paths = dict[str, Any]
BATCHES: list[list[list[Row]]] = [
    [[(1, "a"), (2, "b")], [(3, None)]],
    [[], []],
    [[(4, 'quote " and \n newline')], [(5, "é€")]],
]
NUMBERED: list[list[list[Row]]] = [[[(number, "x")]] for number in range(4)]
ROWS = sorted((row for batch in BATCHES for partition in batch for row in partition), key=lambda row: row[0])


def committed(path: str) -> list[tuple[Any, ...]]:
    table = ftfile.open(path).to_arrow()
    return sorted(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def filesystem(path: str) -> FileSystem:
    from ftfile.testing.context import open_filesystem

    return open_filesystem(path)


def query_id(paths: Paths) -> str:
    return str(json.loads((Path(paths["checkpoint"]) / "metadata").read_text())["id"])


def forget_commit(paths: Paths, batch: int) -> None:
    """Delete Spark's record that a batch is done, as after a crash right after the sink's commit."""
    commits = Path(paths["checkpoint"]) / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


def error_of(spark: SparkSession, paths: Paths, **options: Any) -> str:
    """Return the error of a query."""

    def run_once() -> None:
        query = start(spark, paths, **options)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark wraps it in several classes
        run_once()
    return str(raised.value)


@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_rows_arrive_once_for_every_reader(spark: SparkSession, paths: Paths, file_format: str) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3, fileFormat=file_format)
    out = paths["out"]
    assert committed(out) == ROWS
    assert sorted(map(tuple, spark.read.format("ftfile").load(out).collect())) == ROWS
    assert sorted(map(tuple, getattr(spark.read.schema("id long, word string"), file_format)(out).collect())) == ROWS
    extension = "json" if file_format == "json" else "parquet"
    found = duckdb.connect().execute(f"select count(*), sum(id) from '{out}/**/*.{extension}'").fetchone()
    assert found == (5, 15)
    files = sorted(Path(out).glob(f"*.{extension}"))
    read = pd.read_parquet if file_format == "parquet" else lambda file: pd.read_json(file, lines=True)
    assert sorted(pd.concat([read(file) for file in files])["id"]) == [1, 2, 3, 4, 5]
    assert len(files) == 4
    check_directory(filesystem(out), recorded_by_spark={query_id(paths): range(3)})


def test_offsets_rows_and_batches_are_in_the_log(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3)
    history = ftfile.open(paths["out"]).history()
    assert [(version.batch_id, version.rows, version.files) for version in history] == [(0, 3, 2), (1, 0, 0), (2, 2, 2)]
    assert [version.offsets for version in history] == [[{"batches": n}] for n in (1, 2, 3)]
    assert {file.batch_id for file in ftfile.open(paths["out"]).files()} == {0, 2}


def test_where_a_batch_is_committed_it_is_not_planned(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(NUMBERED, available=0)
    run(spark, paths, script, 3, onPublish="tests.spark.committing:note_plan")
    commits = noted(Path(paths["out"]).parent)
    assert [(batch, has_plan) for batch, _, has_plan in commits] == [(0, False), (1, False), (2, False)]


def test_a_first_batch_without_rows_can_be_read(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write([[[], []]], available=0)
    run(spark, paths, script, 1)
    assert committed(paths["out"]) == []
    frame = spark.read.format("ftfile").load(paths["out"])
    assert frame.columns == ["id", "word"]
    assert frame.collect() == []


def test_versions_can_be_read(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write(BATCHES, available=0)
    run(spark, paths, script, 3)
    old = spark.read.format("ftfile").option("versionAsOf", 0).load(paths["out"])
    assert sorted(row.id for row in old.collect()) == [1, 2, 3]


class TestReplay:
    def replay(self, spark: SparkSession, paths: Paths, *, again: list[Any], **options: Any) -> None:
        """Run three batches, delete Spark's record of the last one, and repeat it with `again` as its rows."""
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 3)
        forget_commit(paths, 2)
        script.write([*BATCHES[:2], again])
        query = start(spark, paths, **options)
        query.processAllAvailable()
        query.stop()

    def test_the_same_rows(self, spark: SparkSession, paths: Paths) -> None:
        self.replay(spark, paths, again=BATCHES[2])
        assert committed(paths["out"]) == ROWS

    def test_otherwise_partitioned(self, spark: SparkSession, paths: Paths) -> None:
        self.replay(spark, paths, again=[[row] for partition in reversed(BATCHES[2]) for row in partition] + [[]])
        assert committed(paths["out"]) == ROWS
        check_directory(filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(3)})

    def test_other_rows_from_the_same_offsets_are_not_taken(self, spark: SparkSession, paths: Paths) -> None:
        self.replay(spark, paths, again=[[(99, "other")]])
        assert committed(paths["out"]) == ROWS

    def test_a_batch_that_spark_plans_anew_is_not_the_recorded_one(self, spark: SparkSession, paths: Paths) -> None:
        """Its offsets are equal, but the time in its offsets file differs: for a file source, this is other data."""
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 3)
        for name in ("offsets", "commits"):
            for file in (Path(paths["checkpoint"]) / name).glob("*2*"):
                file.unlink()
        assert "another history" in error_of(spark, paths)
        assert committed(paths["out"]) == ROWS
        run(spark, paths, script, 3, onReplayMismatch="keep")
        assert committed(paths["out"]) == ROWS


class TestLineage:
    def test_a_deleted_checkpoint_is_noticed_before_anything_is_written(
        self, spark: SparkSession, paths: Paths
    ) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 3)
        shutil.rmtree(paths["checkpoint"])
        assert "onNewQuery=continue" in error_of(spark, paths)
        assert committed(paths["out"]) == ROWS

    def test_a_lost_checkpoint_is_followed_by_one_from_the_recorded_offsets(
        self, spark: SparkSession, paths: Paths
    ) -> None:
        script = Script(paths["script"]).write(NUMBERED, available=0)
        run(spark, paths, script, 2)
        shutil.rmtree(paths["checkpoint"])
        assert "onNewQuery=continue" in error_of(spark, paths)
        shutil.rmtree(paths["checkpoint"])
        offsets = ftfile.open(paths["out"]).history()[-1].offsets
        assert offsets is not None
        script.start_at(offsets[0])
        script.release(3)
        run(spark, paths, script, 4, onNewQuery="continue")
        assert [row[0] for row in committed(paths["out"])] == [0, 1, 2, 3]
        check_directory(filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(2)})

    def test_a_query_goes_back_in_its_checkpoint_to_a_log_from_an_older_copy(
        self, spark: SparkSession, paths: Paths, tmp_path: Path
    ) -> None:
        """By the steps of docs/disaster-recovery.md."""
        script = Script(paths["script"]).write(NUMBERED, available=0)
        log, copy = Path(paths["out"]) / "_ftfile", tmp_path / "copy"
        run(spark, paths, script, 1)
        shutil.copytree(log, copy)
        run(spark, paths, script, 3)
        shutil.rmtree(log)
        shutil.copytree(copy, log)
        script.release(4)
        assert "the log expects batch 1" in error_of(spark, paths)
        assert ftfile.repair(paths["out"], quarantine=["part-000000000[1-9]-*"], dry_run=False).ok
        for batch, names in ((1, ("commits",)), (2, ("commits", "offsets")), (3, ("offsets",))):
            for name in names:
                for file in (f"{batch}", f".{batch}.crc"):
                    (Path(paths["checkpoint"]) / name / file).unlink(missing_ok=True)
        run(spark, paths, script, 4)
        assert [row[0] for row in committed(paths["out"])] == [0, 1, 2, 3]
        # The rows of two earlier batches are in one batch now.
        report = check_directory(filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(3)})
        assert report.visible_rows == report.live_rows

    def test_a_copied_checkpoint_that_goes_another_way_is_noticed(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 2)
        copy = paths | {"checkpoint": paths["checkpoint"] + "-copy"}
        shutil.copytree(paths["checkpoint"], copy["checkpoint"])
        run(spark, paths, script, 3)
        assert "another history" in error_of(spark, copy)
        assert committed(paths["out"]) == ROWS

    def test_an_emptied_directory_is_noticed(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 2)
        shutil.rmtree(paths["out"])
        script.release(3)
        assert "the log expects batch 0" in error_of(spark, paths)
        run(spark, paths, script, 3, onGap="accept")
        assert [row[0] for row in committed(paths["out"])] == [4, 5]

    def test_two_queries_write_into_one_directory(self, spark: SparkSession, paths: Paths, tmp_path: Path) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        others = paths | {"checkpoint": str(tmp_path / "other"), "script": tmp_path / "other-script"}
        other_script = Script(others["script"]).write([[[(n + 10, "x")]] for n in range(3)], available=0)
        script.release(1)
        other_script.release(1)
        first = start(spark, paths, onNewQuery="continue")
        second = start(spark, others, onNewQuery="continue")
        for available in (1, 2, 3):
            script.release(available)
            other_script.release(available)
            first.processAllAvailable()
            second.processAllAvailable()
        first.stop()
        second.stop()
        assert [row[0] for row in committed(paths["out"])] == [1, 2, 3, 4, 5, 10, 11, 12]
        check_directory(
            filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(3), query_id(others): range(3)}
        )


class TestFailures:
    def test_a_failing_attempt_leaves_nothing_that_is_seen(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0).fail(0, 0, times=2)
        run(spark, paths, script, 3)
        assert committed(paths["out"]) == ROWS

    def test_a_failed_batch_is_aborted_and_comes_again(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=1).fail(0, 0, times=3)
        assert "the script says" in error_of(spark, paths)
        assert not list(Path(paths["out"]).glob("*.json"))
        run(spark, paths, script, 3)
        assert committed(paths["out"]) == ROWS

    def test_a_failing_commit_is_finished_by_the_next_start(self, spark: SparkSession, paths: Paths) -> None:
        """A directory has the name of the record that is created."""
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(spark, paths, script, 1)
        out = Path(paths["out"])
        log = out / "_ftfile" / "log"
        (log / f"_{1:020d}.record").mkdir()
        script.release(2)
        assert "0001.record" in error_of(spark, paths)
        (log / f"_{1:020d}.record").rmdir()
        run(spark, paths, script, 3)
        assert committed(paths["out"]) == ROWS

    def test_stop_in_commit(self, spark: SparkSession, paths: Paths, tmp_path: Path) -> None:
        """The record exists, the renames wait, and the query is stopped: Spark did not record the batch."""
        script = Script(paths["script"]).write([[[(n, "x")]] for n in range(3)], available=0)
        slow = paths | {"out": f"slow:{paths['out']}"}
        run(spark, slow, script, 1)
        (tmp_path / "hold").touch()
        script.release(2)
        query = start(spark, slow)
        wait_until((Path(paths["out"]) / f"_ftfile/log/_{1:020d}.record").exists, "the record")
        with ThreadPoolExecutor(1) as other:
            stopping = other.submit(query.stop)
            try:
                wait_until(lambda: not query.isActive, "the interruption")
            finally:
                (tmp_path / "hold").unlink()  # otherwise the query would never stop
            stopping.result()
        # Sometimes Spark records the batch although it is interrupted.
        for name in ("1", ".1.crc"):
            Path(paths["checkpoint"], "commits", name).unlink(missing_ok=True)
        run(spark, paths, script, 3)
        assert committed(paths["out"]) == [(n, "x") for n in range(3)]
        check_directory(filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(2)})

    def test_stop_while_writing(self, spark: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write([[[(n, "x") for n in range(20_000)]] * 2] * 3, available=3)
        for _ in range(3):
            start(spark, paths).stop()
        run(spark, paths, script, 3)
        assert ftfile.open(paths["out"]).to_arrow().num_rows == 120_000
        check_directory(filesystem(paths["out"]), recorded_by_spark={query_id(paths): range(1)})


def test_partition_directories_are_found_by_everybody(spark: SparkSession, paths: Paths) -> None:
    words = ["plain", "a b", "a/b", "a=b", "a%b", " ", None, "é"]
    script = Script(paths["script"]).write([[[(n, word) for n, word in enumerate(words)]]], available=0)
    run(spark, paths, script, 1, partitionBy="word", fileFormat="parquet")
    expected = dict(enumerate(words))
    assert {row.id: row.word for row in spark.read.parquet(paths["out"]).collect()} == expected
    assert {row.id: row.word for row in spark.read.format("ftfile").load(paths["out"]).collect()} == expected
    assert Path(paths["out"], "word=a%2Fb").is_dir()
    assert Path(paths["out"], "word=__HIVE_DEFAULT_PARTITION__").is_dir()


def test_limits_split_within_the_batch(spark: SparkSession, paths: Paths) -> None:
    script = Script(paths["script"]).write([[[(n, "x") for n in range(10)]]], available=0)
    run(spark, paths, script, 1, maxRecordsPerFile=4)
    assert [file.rows for file in ftfile.open(paths["out"]).files()] == [4, 4, 2]


def test_a_foreach_batch_that_writes_has_no_share_in_the_streams_identity(spark: SparkSession, paths: Paths) -> None:
    Script(paths["script"]).write(BATCHES, available=3)
    stream = spark.readStream.format("scripted").option("script", str(paths["script"])).load()

    def write(frame: Any, _batch: int) -> None:
        frame.write.format("ftfile").mode("append").option("fileFormat", "json").save(paths["out"])

    query = stream.writeStream.foreachBatch(write).option("checkpointLocation", paths["checkpoint"]).start()
    query.processAllAvailable()
    query.stop()
    assert committed(paths["out"]) == ROWS
    assert {version.operation for version in ftfile.open(paths["out"]).history()} == {"batch"}


def test_a_relative_path_is_made_absolute_on_the_driver(spark: SparkSession, paths: Paths, tmp_path: Path) -> None:
    Script(paths["script"]).write(BATCHES, available=3)
    out = Path.cwd() / f"relative-{tmp_path.name}"
    try:
        query = start(spark, paths | {"out": out.name})
        query.processAllAvailable()
        query.stop()
        assert committed(str(out)) == ROWS
    finally:
        shutil.rmtree(out, ignore_errors=True)
