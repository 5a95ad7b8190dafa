"""The application whose processes are killed: a stream that can be held in the middle of its tasks.

It is started as a script with one argument, a JSON file: `master`, `input` (a directory of JSON files), `checkpoint`,
`options`, `output`, `hold` (a directory) and `scratch`. While the file `hold/now` exists, each task stops after its
first rows, creates a file named after its process, and waits until that file is deleted. The application ends after the
last input file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

__all__ = ("FILES_PER_BATCH", "end_with_parent")

SCHEMA = "id long, text string, k string"
FILES_PER_BATCH = 2


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = (
        SparkSession.builder.master(job["master"])
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.local.dir", job["scratch"])
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .config("spark.sql.files.openCostInBytes", "1m")  # each file is a task
        .config("spark.sql.warehouse.dir", f"{job['scratch']}/warehouse")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_BATCH).json(job["input"])
    writer = frame.mapInArrow(_held_by(job["hold"]), SCHEMA).writeStream.format("ftfile").options(**job["options"])
    query = writer.trigger(availableNow=True).option("checkpointLocation", job["checkpoint"]).start(job["output"])
    query.awaitTermination()
    spark.stop()


def _held_by(directory: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that is pickled by value, because executors do not have this module."""

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            own = Path(directory, f"held-{os.getpid()}")
            if Path(directory, "now").exists():
                own.touch()
            while own.exists():
                time.sleep(0.01)

    return held


def end_with_parent() -> None:
    """Exit at once when the test has ended, which closes our standard input."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
