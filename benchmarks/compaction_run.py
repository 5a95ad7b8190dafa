"""One compaction in this process, as `compaction` asks for it: of a directory of ftfile, or of a Delta table."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile
from benchmarks.large_directory import link_files
from benchmarks.large_table import write_delta_log_over
from benchmarks.spark_session import ROOT, open_session, transports
from ftfile.spark import compact
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

COLUMNS = ("id", "id % 1000 as k", "rand(7) as x", "sha2(cast(id as string), 256) as v")
TARGET_BYTES = 128 << 20


def main(asked: str) -> None:
    """Write the files that a JSON object describes, merge them, and write figures as JSON to the file that it names."""
    work = json.loads(asked)
    home, files, by = Path(work["directory"]), work["files"], work["by"]
    table = home / "table"
    with (
        _master(home, work["executors"]) as master,
        open_session(home, unix_sockets=[*transports().values()][-1], more=work["settings"] | master) as spark,
    ):
        frame = spark.range(0, work["written"] * work["rows"], 1, work["written"]).selectExpr(*COLUMNS)
        frame.write.format("ftfile").mode("append").save(str(table))
        link_files(table, files)
        if by == "delta":
            write_delta_log_over(table)
        lengths = _lengths(table)
        before_mb, began = _most_mb(), time.perf_counter()
        _merge(spark, by, table)
        seconds, most_mb = time.perf_counter() - began, _most_mb()
        after, bytes_after = _result(spark, by, table)
    if len(lengths) != files:
        raise RuntimeError(f"{files} files should be there, and {len(lengths)} are")
    figures = {
        "s": seconds,
        "bytes": sum(lengths),
        "before": len(lengths),
        "after": after,
        "mb_after": bytes_after / 1e6,
        "own_mb": None if by in {"tasks", "delta"} else most_mb - before_mb,
    }
    Path(work["figures"]).write_text(json.dumps(figures))


@contextlib.contextmanager
def _master(home: Path, executors: int) -> Iterator[dict[str, str]]:
    """Start a worker of one core for each executor; yield the settings of sessions there, none without executors."""
    if not executors:
        yield {}
        return
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    cluster = Cluster(home, os.environ | {"PYTHONPATH": path})
    try:
        cluster.wait()
        for number in range(executors):
            cluster.start_worker(f"worker-{number}")
        yield {"spark.master": cluster.url}
    finally:
        cluster.stop()


def _merge(spark: SparkSession, by: str, table: Path) -> None:
    if by == "delta":
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET_BYTES))
        spark.sql(f"OPTIMIZE delta.`{table}`").collect()
    elif by == "tasks":
        compact(spark, table)
    else:
        ftfile.compact(table, threads=int(by) if by else None)


def _result(spark: SparkSession, by: str, table: Path) -> tuple[int, int]:
    """Return how many files there are now, and their bytes."""
    if by == "delta":
        [found] = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").select("numFiles", "sizeInBytes").collect()
        return found.numFiles, found.sizeInBytes
    lengths = _lengths(table)
    return len(lengths), sum(lengths)


def _lengths(table: Path) -> list[int]:
    """Return the lengths of all files that plain readers see."""
    return [path.stat().st_size for path in table.glob("*.parquet")]


def _most_mb() -> float:
    """Return the greatest resident size of this process so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(sys.argv[1])
