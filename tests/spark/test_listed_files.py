"""The list of files that `ftfile.spark.load` gives to Spark: complete, pruned by Spark, compared with the storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import QueryExecutionException

import ftfile
from ftfile.operate.compact import compact_log
from ftfile.spark import load, load_plan
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": "long", "a": "string", "b": "integer"}
VALUES: tuple[tuple[str | None, int | None], ...] = (("x y", 1), ("x y", None), ("z%#:?ü", 1), (None, None))
BATCHES = 4
THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


def written(out: Path, **options: str) -> str:
    """Write a row of each pair of values in each batch; all but the last batch are in a compacted log."""
    query = MicroBatch(str(out), COLUMNS, options)
    for batch in range(BATCHES):
        if batch == BATCHES - 1:
            compact_log(out)
        query.run(batch, [[{"id": 10 * batch + place, "a": a, "b": b} for place, (a, b) in enumerate(VALUES)]])
    return str(out)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def files_of(out: str) -> set[str]:
    return {f"{out}/{file.path}" for file in ftfile.open(out).files()}


def scanned(frame: DataFrame) -> int:
    """Return the number of files that Spark has read for a DataFrame."""
    metrics: Any = frame._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    return int(metrics.get("numFiles").get().value())


ALL = [10 * batch + place for batch in range(BATCHES) for place in range(len(VALUES))]


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_every_file_of_every_directory(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Nested partitions, nulls among them, and names that URLs encode."""
    out = written(tmp_path / "out a%20#", partitionBy="a,b", fileFormat=kind, partFileName="a b%20#ü {unique}{ext}")
    frame = load(spark, out)
    assert load_plan(spark, out).spark_files == {kind: len(ALL)}
    assert ids(frame) == ALL
    assert {unquote(urlsplit(url).path) for url in frame.inputFiles()} == files_of(out)
    assert len(frame.inputFiles()) == len(ALL)
    for condition, place in (("a = 'x y' AND b = 1", 0), ("a = 'z%#:?ü'", 2), ("a IS NULL", 3), ("a > 'y'", 2)):
        pruned = frame.where(condition)
        assert ids(pruned) == [10 * batch + place for batch in range(BATCHES)]
        assert ids(load(spark, out, where=condition)) == ids(pruned)
        pruned._jdf.queryExecution().toRdd().count()
        assert scanned(pruned) == BATCHES


def test_directories_that_are_not_partitions(spark: SparkSession, tmp_path: Path) -> None:
    out = written(tmp_path / "out", directoryPattern="yyyy/MM", fileFormat="json")
    frame = load(spark, out)
    assert ids(frame) == ALL
    assert {urlsplit(url).path for url in frame.inputFiles()} == files_of(out)


def test_a_filter_of_metadata_is_for_every_file(spark: SparkSession, tmp_path: Path) -> None:
    """Not only for the one file of each directory with which Spark parses the partitions."""
    out = written(tmp_path / "out")
    frame = load(spark, out)
    rows = frame.selectExpr("id", "_metadata.*").collect()
    assert len({row.file_path for row in rows}) == BATCHES
    for row in rows:
        path = Path(unquote(urlsplit(row.file_path).path))
        assert (row.file_size, row.file_name) == (path.stat().st_size, path.name)
        assert int(row.file_modification_time.timestamp() * 1000) == path.stat().st_mtime_ns // 1_000_000
        assert row.id in ids(frame.where(f"_metadata.file_name = '{row.file_name}'"))
        assert row.id in ids(frame.where(f"_metadata.file_size = {row.file_size}"))
    unchecked = load(spark, out, check_files=False).selectExpr("id", "_metadata.*").collect()
    assert sorted(unchecked) == sorted(rows)


def test_the_size_is_that_of_all_files(spark: SparkSession, tmp_path: Path) -> None:
    """Spark broadcasts a side of a join by its size."""
    out = written(tmp_path / "out", partitionBy="a")
    sizes = [Path(path).stat().st_size for path in files_of(out)]
    frame, other = load(spark, out), spark.range(10**6)
    statistics: Any = frame._jdf.queryExecution().optimizedPlan().stats()
    assert int(str(statistics.sizeInBytes())) == sum(sizes)
    usual = spark.conf.get(THRESHOLD)
    try:
        for bytes_max, is_broadcast in ((sum(sizes) - 1, False), (sum(sizes), True)):
            spark.conf.set(THRESHOLD, str(bytes_max))
            plan = other.join(frame.select("id", "a", "b"), "id")._jdf.queryExecution().sparkPlan().toString()
            assert ("BroadcastHashJoin" in plan) == is_broadcast, plan
    finally:
        spark.conf.set(THRESHOLD, usual or "10MB")


def test_cached_rows_need_no_file(spark: SparkSession, tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    frame = load(spark, out).cache()
    try:
        assert ids(frame) == ALL
        for path in files_of(out):
            Path(path).unlink()
        assert ids(frame) == ALL
        assert ids(frame.where("id > 10")) == [number for number in ALL if number > 10]
    finally:
        frame.unpersist()


@pytest.mark.parametrize("partition_by", ["a", ""])
def test_a_file_that_was_replaced_or_deleted_before_the_call(
    spark: SparkSession, tmp_path: Path, partition_by: str
) -> None:
    """No directory is listed by the call. The query compares the lengths with the log."""
    options = {"partitionBy": partition_by} if partition_by else {}
    out = written(tmp_path / "out", fileFormat="json", **options)
    *_, path = sorted(map(Path, files_of(out)))
    content = path.read_bytes()
    for replaced in (content + content, content[:-1], b""):
        path.write_bytes(replaced)
        fault = rf"{path.name} had {len(content)} bytes, and has {len(replaced)}: another program has replaced it\."
        with pytest.raises(Exception, match=fault):
            load(spark, out).collect()
    path.write_bytes(content + content)
    with pytest.raises(Exception, match="another program has replaced it"):
        load(spark, out, check_files=False).count()
    path.unlink()
    with pytest.raises(Exception, match=rf"{path.name}.* is gone: a compaction"):
        load(spark, out).count()
    path.write_bytes(content)
    assert ids(load(spark, out)) == ALL


def test_times_are_those_of_the_first_query(spark: SparkSession, tmp_path: Path) -> None:
    out = written(tmp_path / "out", partitionBy="a,b")
    frame = load(spark, out)
    path, other = (Path(next(name for name in files_of(out) if part in name)) for part in ("a=x y/b=1", "a=z"))
    os.utime(path, (1, 1))
    assert frame.count() == len(ALL)
    for file in (path, other):
        os.utime(file, (2, 2))
    with pytest.raises(QueryExecutionException, match=rf"{path.name} has the length that it had, and another time"):
        frame.where("a = 'x y'").count()
    assert frame.where("a IS NULL").count() == BATCHES
    assert load(spark, out).count() == len(ALL)
