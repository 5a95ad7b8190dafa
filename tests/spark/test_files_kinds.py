"""Streams of other programs' files in Spark: the kinds of files, and how their rows are read."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow import feather

import ftfile
from tests.spark.file_queries import AVAILABLE, ONE_BATCH, FileQuery
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> FileQuery:
    return FileQuery(spark, tmp_path)


# ------------------------------------------------------------------------------- formats and directories

ROWS = "id long, word string, at timestamp, part double"


def write_parquet(frame: DataFrame, path: str) -> None:
    frame.coalesce(2).write.parquet(path)


def write_avro(frame: DataFrame, path: str) -> None:
    scratch = f"{path}-scratch"
    frame.coalesce(1).write.format("ftfile").option("fileFormat", "avro").mode("append").save(scratch)
    Path(path).mkdir()
    for file in Path(scratch).glob("*.avro"):
        shutil.copy(file, path)


def write_arrow(frame: DataFrame, path: str) -> None:
    Path(path).mkdir()
    feather.write_feather(frame.toArrow(), f"{path}/rows.arrow", compression="lz4")


WRITERS: dict[str, Callable[[DataFrame, str], None]] = {
    "parquet": write_parquet,
    "orc": lambda frame, path: frame.coalesce(2).write.orc(path),
    "json": lambda frame, path: frame.coalesce(2).write.json(path),
    "csv": lambda frame, path: frame.coalesce(2).write.option("header", True).csv(path),
    "avro": write_avro,
    "arrow": write_arrow,
}


@pytest.mark.parametrize("file_format", WRITERS)
def test_each_format_has_the_rows_that_were_written(query: FileQuery, file_format: str) -> None:
    frame = query.spark.range(50).selectExpr(
        "id", "concat('wörd, \"', id, '\"') AS word", "timestamp_millis(id * 1001) AS at", "id / 4 AS part"
    )
    shutil.rmtree(query.source)
    WRITERS[file_format](frame, str(query.source))
    query.schema = ROWS
    options = {"header": "true"} if file_format == "csv" else {}
    query.run(fileFormat=file_format, **options)
    found = query.spark.read.format("ftfile").load(query.out).select("id", "word", "at", "part").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, frame.collect()))
    query.run(fileFormat=file_format, **options)
    assert len(query.values()) == 50


def test_binary_files_are_rows_as_spark_has_them(query: FileQuery) -> None:
    (query.source / "a.bin").write_bytes(b"\x00\xff")
    (query.source / "b.bin").write_bytes(b"b" * 1000)
    query.run(fileFormat="binary")
    found = query.spark.read.format("ftfile").load(query.out).select("length", "content", "modificationTime")
    assert sorted((row.length, bytes(row.content)) for row in found.collect()) == [
        (2, b"\x00\xff"),
        (1000, b"b" * 1000),
    ]
    by_spark = query.spark.read.format("binaryFile").load(str(query.source)).select("modificationTime")
    assert sorted(row[2] for row in found.collect()) == sorted(row[0] for row in by_spark.collect())


def test_compressed_files_are_read_whole(query: FileQuery) -> None:
    (query.source / "a.log.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (query.source / "b.log").write_text("three\n")
    query.run()
    query.run()
    assert query.values() == ["one", "three", "two"]


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_files_in_utf_16(query: FileQuery, file_format: str, encoding: str) -> None:
    words = ["w\u00f6rd \u0a0a \U0001f60a", "\u010a"]
    lines = {"json": [f'{{"value": "{word}"}}' for word in words[:1]], "csv": words}[file_format]
    (query.source / "data").write_bytes("\n".join(lines).encode(encoding))
    query.schema = "value string"
    options = {"encoding": encoding, "multiLine": "true"}
    by_spark = query.spark.read.schema("value string").options(**options).format(file_format).load(str(query.source))
    expected = [row.value for row in by_spark.collect()]
    assert expected == words[: len(lines)]
    query.run(fileFormat=file_format, **options)
    assert query.values() == expected


def test_lines_in_utf_16(query: FileQuery) -> None:
    (query.source / "a.log").write_bytes("one\u0a0a\r\ntwo\n".encode("utf-16"))
    (query.source / "b.log.gz").write_bytes(gzip.compress("three\n".encode("utf-16-be")))
    query.run(fileFormat="text", encoding="UTF-16", tail="false", maxPartitionBytes="1")
    assert sorted(query.values()) == ["one\u0a0a", "three", "two"]


def test_directories_are_columns(query: FileQuery) -> None:
    query.schema = "value string, day date, code string"
    for day, code, text in (("2026-07-01", "007", "a"), ("2026-07-02", "x%3Dy", "b")):
        directory = query.source / f"day={day}" / f"code={code}"
        directory.mkdir(parents=True)
        (directory / "f.log").write_text(f"{text}\n")
    query.run()
    found = query.spark.read.format("ftfile").load(query.out).selectExpr("value", "cast(day AS string)", "code")
    assert sorted(map(tuple, found.collect())) == [("a", "2026-07-01", "007"), ("b", "2026-07-02", "x=y")]


def test_files_are_chosen_by_globs_and_patterns(query: FileQuery) -> None:
    for name in ("a/app.log", "b/app.log", "b/old.log", "c/app.txt", "b/_hidden.log"):
        (query.source / name).parent.mkdir(exist_ok=True)
        (query.source / name).write_text(f"{name}\n")
    root, query.source = query.source, query.source / "{a,b}" / "*.log"
    query.run(ignoreFilePattern="old.*")
    assert query.values() == ["a/app.log", "b/app.log"]
    query.source = root
    query.run(recursiveFileLookup="true", filePattern=".*\\.txt")
    assert query.values() == ["a/app.log", "b/app.log", "c/app.txt"]


def test_bad_rows_and_damaged_files(query: FileQuery) -> None:
    query.schema = "id long"
    (query.source / "a.json").write_text('{"id": 1}\n{"id": \n{"id": 2}\n')
    with pytest.raises(Exception, match="badRecords"):
        query.run(fileFormat="json")
    query.run(fileFormat="json", badRecords="drop")
    assert query.values() == [1, 2]


# ------------------------------------------------------------------------------- information for users


def test_the_status_can_be_asked_for_beside_a_running_query(query: FileQuery) -> None:
    (query.source / "a.log").write_text("one\n")
    running = query.start(ONE_BATCH)
    try:
        wait_until(lambda: query.values() == ["one"], "the first line")
        (query.source / "b.log").write_text("two\nthree\n")
        status = ftfile.source_status(query.source, checkpointLocation=query.checkpoint)
        (written,) = ftfile.open(query.out).status().queries
    finally:
        running.stop()
    (source,) = status
    assert (source.known, source.files_behind, source.bytes_behind) == (1, 1, 10)
    assert source.oldest_unread_ms == (query.source / "b.log").stat().st_mtime_ns // 1_000_000
    assert (source.parked, source.late) == ((), 0)
    assert written.checkpoint is not None
    assert (written.checkpoint.planned_batch, written.checkpoint.problem) == (0, "")
    (behind,) = written.checkpoint.sources
    assert (behind.kind, behind.path, behind.files_behind, behind.bytes_behind) == ("files", source.path, 1, 10)


# ------------------------------------------------------------------------------- mistakes


def test_other_files_are_not_followed(query: FileQuery) -> None:
    (query.source / "a.log").write_text("one\n")
    reader = query.spark.readStream.format("ftfile")
    with pytest.raises(Exception, match=r"no log, but has other files.*set fileFormat"):
        query.write(reader.schema("value string").load(str(query.source)), AVAILABLE).awaitTermination()
    with pytest.raises(Exception, match="fileFormat"):
        query.spark.readStream.format("ftfile").load(str(query.source))
