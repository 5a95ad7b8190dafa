"""Streams that run while the driver's token file is replaced; one argument, a JSON file.

It contains `master`, `settings` of Spark, `input` (a directory of JSON files), `outputs` (URLs), `scratch` (a
directory), and `result`, the file to which the number of committed rows of each output is written again and again. The
application ends when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tests.cluster.job import end_with_parent

__all__ = ()


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=end_with_parent, daemon=True).start()
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    queries = {}
    for number, output in enumerate(job["outputs"]):
        rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"file://{job['input']}")
        writer = rows.writeStream.format("ftfile").option("fileFormat", "json")
        checkpoint = f"file://{job['scratch']}/checkpoint-{number}"
        queries[output] = writer.option("checkpointLocation", checkpoint).start(output)
    result, temporary = Path(job["result"]), Path(f"{job['result']}.new")
    while True:
        errors = {output: str(query.exception()) for output, query in queries.items() if query.exception() is not None}
        committed = {output: batch_of(query.lastProgress) for output, query in queries.items()}
        temporary.write_text(json.dumps({"committed": committed, "errors": errors}))
        temporary.replace(result)
        time.sleep(0.1)


def batch_of(progress: dict[str, int] | None) -> int:
    """Return the last batch with rows; -1 without one."""
    if progress is None:
        return -1
    return progress["batchId"] - (0 if progress["numInputRows"] else 1)


if __name__ == "__main__":
    main()
