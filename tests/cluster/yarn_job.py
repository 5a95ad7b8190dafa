"""The application on YARN, a stream of JSON files to ftfile in batches of two files.

Its arguments are the URLs of input, output and checkpoint. With `--register` it registers the data source first. With
`--hold`, a local directory, each task creates a file named after its process after its first rows, and waits until this
file or the file `now` of the directory is deleted.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ("FILES_PER_BATCH",)

SCHEMA = "id long"
FILES_PER_BATCH = 2


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "output", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--register", action="store_true")
    parser.add_argument("--hold")
    arguments = parser.parse_args()
    # Each file is a task.
    spark = SparkSession.builder.config("spark.sql.files.openCostInBytes", "1m").getOrCreate()
    if arguments.register:
        from ftfile import FtFileDataSource

        spark.dataSource.register(FtFileDataSource)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).json(arguments.input)
    if arguments.hold:
        rows = rows.mapInArrow(_held_by(arguments.hold), SCHEMA)
    writer = rows.writeStream.format("ftfile").option("fileFormat", "json").trigger(availableNow=True)
    writer.option("checkpointLocation", arguments.checkpoint).start(arguments.output).awaitTermination()
    spark.stop()


def _held_by(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that is pickled by value, because executors do not have this module."""

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            mark, order = Path(directory, f"held-{os.getpid()}"), Path(directory, "now")
            if order.exists():
                mark.touch()
            while mark.exists() and order.exists():
                time.sleep(0.01)

    return held


if __name__ == "__main__":
    main()
