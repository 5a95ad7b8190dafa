"""The application on HDFS: a stream and a read with each driver; one argument, a JSON file.

Its `input` is a directory of JSON files, `outputs` are URLs, `scratch` is a directory, and `result` is the file for the
results. `settings` are settings of Spark, and `master` is its address. At the end the last output is read by a
registered data source.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from ftfile import FtFileDataSource

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ()


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder.config(name, value)
    spark = builder.getOrCreate()

    def variables(_: Iterable[int]) -> Iterable[dict[str, str]]:
        yield {name: text for name, text in os.environ.items() if name.startswith("HADOOP_")}

    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(variables).collect()
    rows = {}
    for number, output in enumerate(job["outputs"]):
        # If Hadoop's configuration names a default file system, a path without a scheme is on that file system.
        writer = spark.readStream.schema("id long").json(f"file://{job['input']}").writeStream.format("ftfile")
        writer = writer.option("fileFormat", "json").trigger(availableNow=True)
        checkpoint = f"file://{job['scratch']}/checkpoint-{number}"
        writer.option("checkpointLocation", checkpoint).start(output).awaitTermination()
        rows[output] = sorted(row.id for row in spark.read.format("ftfile").load(output).collect())
    spark.dataSource.register(FtFileDataSource)
    result = {"rows": rows, "variables": found, "again": spark.read.format("ftfile").load(output).count()}
    Path(job["result"]).write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
