"""The application that distributes ftfile: a stream, then a batch read; one argument, its directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import ftfile

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ()


def main() -> None:
    home = Path(sys.argv[1])
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(ftfile.FtFileDataSource)  # Spark does not search distributed packages for data sources
    writer = spark.readStream.schema("id long").json(str(home / "in")).writeStream.format("ftfile")
    writer = writer.option("fileFormat", "json").option("filters", "counter").trigger(availableNow=True)
    writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "out")).awaitTermination()
    rows = spark.read.format("ftfile").load(str(home / "out")).collect()

    def places(_: Iterable[int]) -> Iterable[dict[str, str | None]]:
        import os
        import sys

        import pyspark

        from ftfile import core

        yield {
            "ftfile": core.__file__,
            "pyspark": pyspark.__file__,
            "path": ":".join(sys.path),
            "python": os.environ.get("STARTED_AS"),
        }

    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(places).collect()
    (home / "result.json").write_text(json.dumps({"rows": sorted(row.id for row in rows), "places": found}))
    spark.stop()


if __name__ == "__main__":
    main()
