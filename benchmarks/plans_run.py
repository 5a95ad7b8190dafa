"""The plans of one application, as `plans` asks for them."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

import ftfile.spark
from benchmarks.progress import show_progress
from benchmarks.spark_session import open_session, transports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

LOGGER = logging.getLogger("benchmarks.plans_run")
QUERIES = {"all": "true", "one directory": "p = 3"}
PUSHES = str(hasattr(DataSourceReader, "pushFilters")).lower()
LOAD_WHERE = "ftfile.spark.load, where="
WAYS: Mapping[str, Callable[[SparkSession, str], DataFrame]] = {
    "ftfile.spark.load": ftfile.spark.load,
    LOAD_WHERE: lambda spark, out: ftfile.spark.load(spark, out, where=QUERIES["one directory"]),
    'format("ftfile")': lambda spark, out: spark.read.format("ftfile").option("filterPushdown", PUSHES).load(out),
    "spark.read.parquet": lambda spark, out: spark.read.parquet(out),
    "delta": lambda spark, out: spark.read.format("delta").load(out),
    "iceberg": lambda spark, out: spark.read.format("iceberg").load(f"{out}/_iceberg"),
}


def main(asked: str) -> None:
    """Plan the reads that a JSON object describes, and write figures as JSON to the file that it names."""
    work = json.loads(asked)
    more = {"spark.driver.memory": "6g", "spark.sql.python.filterPushdown.enabled": "true"} | work["settings"]
    more["spark.databricks.delta.formatCheck.enabled"] = "false"  # or it refuses to read the files as Parquet
    plans: list[dict[str, Any]] = [
        {"way": way, "query": query, "s": [], "tasks": 0}
        for way in work["ways"]
        for query in QUERIES
        if (way, query) != (LOAD_WHERE, "all")
    ]
    with open_session(Path(work["directory"]), unix_sockets=[*transports().values()][-1], more=more) as spark:
        if "iceberg" in work["ways"]:
            _rewrite_manifests(spark, f"{work['out']}/_iceberg")
        for _ in range(work["rounds"]):
            for each in plans:
                began = time.perf_counter()
                read: Any = WAYS[each["way"]](spark, work["out"]).where(QUERIES[each["query"]])
                # Rows would run the plan.
                each["tasks"] = read._jdf.queryExecution().toRdd().getNumPartitions()  # noqa: SLF001
                each["s"].append(time.perf_counter() - began)
                LOGGER.info("plans: %s of %s: %.2f s", each["way"], each["query"], each["s"][-1])
        figures = {"plans": plans, "spark": spark.version}
    Path(work["figures"]).write_text(json.dumps(figures))


def _rewrite_manifests(spark: SparkSession, table: str) -> None:
    """Let Iceberg write the manifests of a table anew, as its own writers leave them."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - its API is Java's alone
    tables = jvm.org.apache.iceberg.hadoop.HadoopTables(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # noqa: SLF001
    began = time.perf_counter()
    actions.rewriteManifests(tables.load(table)).execute()
    LOGGER.info("plans: iceberg's manifests are rewritten: %.2f s", time.perf_counter() - began)


if __name__ == "__main__":
    show_progress()
    main(sys.argv[1])
