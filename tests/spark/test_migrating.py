"""A query of Spark's sink is stopped, its directory is migrated, and it continues with the same checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SCHEMA = "id long, at timestamp, day date"


def row(number: int) -> dict[str, Any]:
    return {"id": number, "at": f"2024-07-0{number} 10:00:00", "day": f"2024-07-0{1 + number % 2}"}


class Query:
    """Reads a file of one row for each batch."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.spark = spark
        self.source, self.out, self.checkpoint = home / "in", home / "out", home / "checkpoint"
        self.source.mkdir()

    def run(self, rows: range, file_format: str, **options: str) -> None:
        for number in rows:
            (self.source / f"{number}.json").write_text(json.dumps(row(number)) + "\n")
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.source))
        writer = stream.writeStream.format(file_format).option("checkpointLocation", str(self.checkpoint))
        if file_format == "parquet":
            writer = writer.partitionBy("day")
        query = writer.options(**options).trigger(availableNow=True).start(str(self.out))
        query.awaitTermination()

    def forget(self, directory: Path, batch: int) -> None:
        """Delete an entry, as if Spark had been killed before it wrote the entry."""
        for name in (f"{batch}", f".{batch}.crc"):
            (directory / name).unlink()


@pytest.mark.parametrize("is_written", [False, True])
def test_the_query_goes_on(spark: SparkSession, tmp_path: Path, is_written: bool) -> None:
    """Spark was killed in its last batch, before or after the batch was in the log of its sink."""
    query = Query(spark, tmp_path)
    query.run(range(1, 4), "parquet")
    query.forget(query.checkpoint / "commits", 2)
    if not is_written:
        query.forget(query.out / "_spark_metadata", 2)
    out = str(query.out)
    report = ftfile.migrate(out, checkpoint=query.checkpoint, partition_by={"day": "date"}, dry_run=False)
    assert (report.source, report.last_batch, report.rows) == ("spark", 1 + is_written, 2 + is_written)
    assert len(report.left_out) == 1 - is_written
    query.run(range(4, 6), "ftfile", partitionBy="day")
    want = [1, 2, 3, 4, 5]
    assert sorted(ftfile.open(out).to_arrow()["id"].to_pylist()) == want
    plain = spark.read.parquet(out).orderBy("id").collect()
    for read in (spark.read.format("ftfile").load(out), ftfile.spark.load(spark, out)):
        assert read.select(plain[0].__fields__).orderBy("id").collect() == plain
    assert [each["id"] for each in plain] == want
    texts = spark.read.parquet(out).selectExpr("id", "cast(at AS string) AS at", "cast(day AS string) AS day")
    assert [each.asDict() for each in texts.orderBy("id").collect()] == [row(number) for number in want]
    assert ftfile.open(out).verify(full=True).ok
    batches = [entry.batch_id for entry in ftfile.open(out).history()]
    assert set(batches) == {*range(1 + is_written, 5)}
