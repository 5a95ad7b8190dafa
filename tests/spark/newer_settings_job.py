"""Streams and writes with newer settings of Spark; one argument, a JSON file with `settings` and `home`, a directory.

Writes `home/result.json`: the rows of each output, and the error of a write that fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import ftfile
from ftfile import kv

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ()

SCHEMA = "id long, word string"


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    home = Path(job["home"])
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in job["settings"].items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    for run in range(2):
        # A new run of each query, which continues the offset log of the last one.
        write_input(home / "in", run)
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(str(home / "in"))
        stream(rows, "ftfile", home / "files", fileFormat="json")
        stream(rows.selectExpr("word", "1L as n"), "ftkv", home / "words", keyColumns="word", merge="n:sum")
        followed = spark.readStream.format("ftfile").load(str(home / "files"))
        stream(followed, "ftfile", home / "followed", fileFormat="parquet")
    error = failed_write(spark, home / "batch")
    # The Python processes of the failed tasks may be used again.
    spark.range(1000).write.format("ftfile").mode("append").save(str(home / "batch"))
    words: dict[str, int] = {}
    for batch in kv.open(str(home / "words")).scan():
        words |= {row["word"]: row["n"] for row in batch.to_pylist()}
    result = {
        "files": [row.id for row in spark.read.json(str(home / "files")).collect()],
        "followed": ftfile.open(str(home / "followed")).to_arrow().column("id").to_pylist(),
        "batch": spark.read.parquet(str(home / "batch")).count(),
        "versions": len(ftfile.open(str(home / "files")).history()),
        "words": words,
        "error": error,
    }
    (home / "result.json").write_text(json.dumps(result))
    spark.stop()


def write_input(directory: Path, run: int) -> None:
    directory.mkdir(exist_ok=True)
    for number in range(4):
        file = 4 * run + number
        ids = range(100 * file, 100 * (file + 1))
        lines = "".join(f'{{"id": {row}, "word": "w{row % 7}"}}\n' for row in ids)
        (directory / f"{file}.json").write_text(lines)


def stream(rows: DataFrame, sink: str, path: Path, **options: str) -> None:
    """Write all available rows."""
    writer = rows.writeStream.format(sink).options(**options).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{path}-checkpoint").start(str(path)).awaitTermination()


def failed_write(spark: SparkSession, path: Path) -> str:
    """Return the error of a write whose tasks fail after many rows."""

    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3:
                raise ValueError("the row is bad")
            yield batch

    rows = spark.range(0, 100_000, 1, 4).mapInArrow(fails, "id long")
    try:
        rows.write.format("ftfile").mode("append").save(str(path))
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
