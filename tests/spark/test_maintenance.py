"""`ftfile.spark.compact`, `flush` and `verify` of an encrypted directory: tasks whose processes are killed, or fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.operate.rewriting import RewriteReport
from ftfile.spark import compact, delete, flush, verify
from ftfile.storage.registry import register, unregister
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.spark import dying_files
from tests.spark.dying_files import Deaths
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def dying() -> Iterator[None]:
    """Register the driver of `dying:` in this process; workers have it installed."""
    register("dying", dying_files.open_location)
    yield
    unregister("dying")


def written(out: str, batches: range, **options: str) -> None:
    """Write one small part of each of four directories in each batch."""
    query = MicroBatch(out, {"id": "long", "k": "string"}, {"fileFormat": "json", "partitionBy": "k"} | options)
    for batch in batches:
        query.run(batch, [[{"id": batch, "k": letter} for letter in "abcd"]])


def parts(out: str) -> int:
    return sum("_ftfile" not in path.parts for path in Path(out).rglob("part-*"))


def staged(out: str) -> int:
    return len([*Path(out, "_ftfile/staged").rglob("*.staged")])


@pytest.mark.usefixtures("dying")
def test_tasks_that_die_are_followed_by_others(spark: SparkSession, tmp_path: Path) -> None:
    out, ring = str(tmp_path / "out"), tmp_path / "keys"
    write_ring(ring, first=FIRST)
    provider, deaths = f"file:{ring}", Deaths(Path(out))
    written(out, range(2), encryption="aes-gcm", keyProvider=provider, rolling="policy")
    deaths.order(0, 0)
    assert flush(spark, f"dying:{out}", key_provider=provider).files == 4
    assert deaths.file_of_the_dead() is not None
    written(out, range(2, 4), encryption="aes-gcm", keyProvider=provider)
    deaths.order(0, 0)
    report = compact(spark, f"dying:{out}", key_provider=provider, commit_every=2)
    assert isinstance(report, RewriteReport)
    assert not Path(out).with_suffix(".dies").exists()
    assert (report.records, report.files_removed, report.files_written) == (2, 12, 4)
    assert verify(spark, f"dying:{out}", key_provider=provider).ok
    rows = ftfile.open(out, key_provider=provider).to_arrow().to_pylist()
    assert sorted((row["id"], row["k"]) for row in rows) == [(batch, letter) for batch in range(4) for letter in "abcd"]
    assert not any(b"id" in path.read_bytes() for path in Path(out).rglob("part-*"))


@pytest.mark.usefixtures("dying")
def test_a_delete_whose_task_dies(spark: SparkSession, tmp_path: Path) -> None:
    out, ring = str(tmp_path / "out"), tmp_path / "keys"
    write_ring(ring, first=FIRST)
    provider, deaths = f"file:{ring}", Deaths(Path(out))
    written(out, range(2), encryption="aes-gcm", keyProvider=provider)
    written(out, range(2, 4), encryption="aes-gcm", keyProvider=provider, rolling="policy")
    where = "id = 1 OR (id = 3 AND k = 'b')"
    assert delete(spark, f"dying:{out}", where, dry_run=True, key_provider=provider).rows_removed == 5
    deaths.order(0, 0)
    assert delete(spark, f"dying:{out}", where, key_provider=provider).rows_removed == 5
    assert not Path(out).with_suffix(".dies").exists()
    rows = ftfile.open(out, key_provider=provider).to_arrow().to_pylist()
    expected = [(batch, letter) for batch in (0, 2, 3) for letter in "abcd"]
    assert sorted((row["id"], row["k"]) for row in rows) == [row for row in expected if row != (3, "b")]
    assert verify(spark, f"dying:{out}", key_provider=provider).ok


@pytest.mark.usefixtures("dying")
def test_a_sort_whose_task_dies(spark: SparkSession, tmp_path: Path) -> None:
    out, deaths = str(tmp_path / "out"), Deaths(tmp_path / "out")
    query = MicroBatch(out, {"id": "long", "k": "string"}, {"fileFormat": "parquet", "partitionBy": "k"})
    rows: list[dict[str, Any]] = [{"id": number * 37 % 400, "k": "ab"[number % 2]} for number in range(400)]
    query.run(0, [rows[task::5] for task in range(5)])
    deaths.order(0, 0)
    report = compact(spark, f"dying:{out}", sort_by="id", target_bytes=1000)
    assert isinstance(report, RewriteReport)
    assert not Path(out).with_suffix(".dies").exists()
    assert (report.records, report.files_removed, report.rows) == (1, 10, 400)
    read = ftfile.open(out).to_arrow().to_pylist()
    for letter in "ab":
        ids = [row["id"] for row in read if row["k"] == letter]
        assert ids == sorted(row["id"] for row in rows if row["k"] == letter)
    assert compact(spark, f"dying:{out}", sort_by="id", target_bytes=1000) == RewriteReport()
    assert verify(spark, f"dying:{out}").ok


@pytest.mark.usefixtures("dying")
def test_when_spark_gives_up_the_records_before_stay(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    written(out, range(2))

    def die(_: object) -> None:
        Deaths(Path(out)).order(0, 0, times=3)

    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        compact(spark, f"dying:{out}", commit_every=3, progress=die, tasks=1)
    assert parts(out) == 3 + 2
    assert staged(out) == 0
    check_directory(open_filesystem(out))
    report = compact(spark, f"dying:{out}")
    assert isinstance(report, RewriteReport)
    assert (parts(out), report.files_written) == (4, 1)
    check_directory(open_filesystem(out))
