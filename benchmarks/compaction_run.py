"""One compaction in this process, as `compaction` asks for it: of a directory of ftfile, or of a Delta table."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile
from benchmarks.spark_session import open_session, transports
from ftfile.spark import compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("id", "id % 1000 as k", "rand(7) as x", "sha2(cast(id as string), 256) as v")


def main(asked: str) -> None:
    """Write the files that a JSON object describes, merge them, and write figures as JSON to the file that it names."""
    work = json.loads(asked)
    home, files, by = Path(work["directory"]), work["files"], work["by"]
    table = home / "table"
    form = "delta" if by == "delta" else "ftfile"
    with open_session(home, unix_sockets=list(transports().values())[-1], more=work["settings"]) as spark:
        frame = spark.range(0, files * work["rows"], 1, files).selectExpr(*COLUMNS)
        frame.write.format(form).mode("append").save(str(table))
        lengths = _lengths(table)
        before_mb, began = _most_mb(), time.perf_counter()
        after = _merge(spark, by, table)
        seconds, most_mb = time.perf_counter() - began, _most_mb()
    if len(lengths) != files:
        raise RuntimeError(f"{files} files should be there, and {len(lengths)} are")
    figures = {
        "s": seconds,
        "bytes": sum(lengths),
        "before": len(lengths),
        "after": after,
        "own_mb": None if by in {"tasks", "delta"} else most_mb - before_mb,
    }
    Path(work["figures"]).write_text(json.dumps(figures))


def _merge(spark: SparkSession, by: str, table: Path) -> int:
    """Merge the files, and return how many there are."""
    if by == "delta":
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(128 << 20))
        spark.sql(f"OPTIMIZE delta.`{table}`").collect()
        return len(spark.read.format("delta").load(str(table)).inputFiles())
    if by == "tasks":
        compact(spark, table)
    else:
        ftfile.compact(table, threads=int(by) if by else None)
    return len(_lengths(table))


def _lengths(table: Path) -> list[int]:
    """Return the lengths of all files that plain readers see."""
    return [path.stat().st_size for path in table.glob("*.parquet")]


def _most_mb() -> float:
    """Return the greatest resident size of this process so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(sys.argv[1])
