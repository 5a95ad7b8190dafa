"""The application on a secured YARN, a stream of JSON files to ftfile in batches of one file.

Its arguments are the URLs of input, output and checkpoint, and the local file that ends it. Each `--option NAME=VALUE`
is an option of the sink. With `--attach`, it calls `ftfile.spark.attach`. It starts a query again after other errors
than ftfile's, because Spark ends a query whose Python processes are killed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import ftfile.spark

__all__ = ()

POLL_S = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("input", "output", "checkpoint", "end"):
        parser.add_argument(name)
    parser.add_argument("--attach", action="store_true")
    parser.add_argument("--option", action="append", default=[])
    arguments = parser.parse_args()
    options = dict(option.split("=") for option in arguments.option)
    spark = SparkSession.builder.getOrCreate()
    if arguments.attach:
        ftfile.spark.attach(spark)
    while True:
        rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(arguments.input)
        writer = rows.writeStream.format("ftfile").options(fileFormat="json", **options)
        writer = writer.option("checkpointLocation", arguments.checkpoint)
        try:
            query = writer.start(arguments.output)  # it also uses Python processes, and fails if they were just killed
            while not query.awaitTermination(POLL_S):
                if Path(arguments.end).exists():
                    query.processAllAvailable()
                    query.stop()
                    spark.stop()
                    return
        except PySparkException as error:
            if "ftfile.core.errors" in str(error):
                raise
            print(f"the query starts again after: {error}", flush=True)


if __name__ == "__main__":
    main()
