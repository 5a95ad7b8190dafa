"""The application on YARN, a stream of JSON files to ftfile in batches of two files.

Its arguments are the URLs of input, output and checkpoint. With `--register` it registers the data source first. With
`--orders`, the output has this setting of its file system. With `--words`, the URL of a store, another stream counts
the words of the same files there. With `--shuffle`, the rows are distributed to this number of tasks. With `--hold`, a
local directory, each task creates a file after its first rows, and waits until this file or the file `now` of the
directory is deleted. The file is named after the task's process, and contains its partition and attempt.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ("FILES_PER_BATCH",)

FILES_PER_BATCH = 2


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "output", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--register", action="store_true")
    parser.add_argument("--shuffle", type=int)
    for name in ("--hold", "--orders", "--words"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    # Each file is a task.
    spark = SparkSession.builder.config("spark.sql.files.openCostInBytes", "1m").getOrCreate()
    if arguments.register:
        from ftfile import FtFileDataSource

        spark.dataSource.register(FtFileDataSource)
    writer = _rows(spark, arguments, "id long").writeStream.format("ftfile").option("fileFormat", "json")
    if arguments.orders:
        writer = writer.option("storage.orders", arguments.orders)
    writer = writer.trigger(availableNow=True).option("checkpointLocation", arguments.checkpoint)
    queries = [writer.start(arguments.output)]
    if arguments.words:
        ones = _rows(spark, arguments, "word string").selectExpr("word", "1L AS n")
        words = ones.writeStream.format("ftkv").options(keyColumns="word", merge="sum", buckets=2)
        words = words.trigger(availableNow=True).option("checkpointLocation", f"{arguments.checkpoint}-words")
        queries.append(words.start(arguments.words))
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _rows(spark: SparkSession, arguments: argparse.Namespace, schema: str) -> DataFrame:
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES_PER_BATCH).json(arguments.input)
    if arguments.shuffle:
        rows = rows.repartition(arguments.shuffle)
    if arguments.hold:
        rows = rows.mapInArrow(_held_by(arguments.hold), schema)
    return rows


def _held_by(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that is pickled by value, because executors do not have this module."""

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for batch in batches:
            yield batch
            mark, order = Path(directory, f"held-{os.getpid()}"), Path(directory, "now")
            if order.exists():
                mark.write_text(f"{task.partitionId()} {task.attemptNumber()}")
            while mark.exists() and order.exists():
                time.sleep(0.01)

    return held


if __name__ == "__main__":
    main()
