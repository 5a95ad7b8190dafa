"""A client of Spark Connect with its server: a stream, batch writes, reads and a merge; one argument, its home."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.kv.upkeep.compact import CompactReport
from ftfile.spark import attach, compact, flush, listen, load, verify

__all__ = ()


def main() -> None:
    home = Path(sys.argv[1])
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    result: dict[str, Any] = {"session": type(spark).__module__}
    # The server finds modules that are installed in this environment.
    try:
        spark.range(1).write.format("ftfile").option("fileFromat", "json").mode("append").save(str(home / "other"))
    except Exception as error:
        result["bad option"] = str(error)
    spark.dataSource.register(ftfile.FtFileDataSource)
    writer = spark.readStream.schema("id long").json(str(home / "in")).writeStream.format("ftfile")
    writer = writer.option("fileFormat", "json").option("maxBatchesPerFile", "5").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(home / "checkpoint")).start(str(home / "out"))
    query.awaitTermination()
    spark.range(10, 12).write.format("ftfile").option("fileFormat", "json").mode("append").save(str(home / "out"))
    result["rows"] = sorted(row.id for row in spark.read.format("ftfile").load(str(home / "out")).collect())
    for call in (attach, listen):
        try:
            call(spark)
        except ConfigError as error:
            result[call.__name__] = str(error)
    result["loaded"] = load(spark, home / "out").count()
    result["finished"] = flush(spark, home / "out", tasks=2).files
    result["whole"] = verify(spark, home / "out", tasks=2).ok
    followed = spark.readStream.format("ftfile").load(str(home / "out")).writeStream.format("ftfile")
    followed = followed.option("checkpointLocation", str(home / "next-checkpoint")).trigger(availableNow=True)
    followed.start(str(home / "next")).awaitTermination()
    for n in (1, 2):
        rows = spark.range(5).selectExpr("id as k", f"{n} as n")
        upsert = rows.write.format("ftkv").mode("append").options(keyColumns="k", buckets=2, merge="n:sum")
        upsert.save(str(home / "store"))
    try:
        compact(spark, home / "store")
    except ConfigError as error:
        result["compact"] = str(error)
    merged = compact(spark, home / "store", full=True, tasks=2)
    assert isinstance(merged, CompactReport)
    result["merged"] = merged.runs_written
    (home / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
