"""The application on YARN, a stream of JSON files to ftfile with a batch for each file.

Its arguments are the URLs of input, output and checkpoint. With a fourth argument, `register`, it registers the data
source first.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

__all__ = ()


def main() -> None:
    source, output, checkpoint, *more = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    if "register" in more:
        from ftfile import FtFileDataSource

        spark.dataSource.register(FtFileDataSource)
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(source)
    writer = rows.writeStream.format("ftfile").option("fileFormat", "json").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(output).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
