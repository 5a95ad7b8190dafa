"""One query of upserts in this process, as `kv_stream` asks for it: into a store, or into Delta by `foreachBatch`.

It runs in the environment of a Spark that Delta supports, which is why it is a program of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark_session import open_session, transports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "k binary, n bigint, v binary"
FILES_A_BATCH = 2
READS = 3
MERGE = (
    "MERGE INTO delta.`{path}` AS t USING (SELECT k, sum(n) AS n, max(v) AS v FROM changes GROUP BY k) AS s "
    "ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = t.n + s.n, v = s.v WHEN NOT MATCHED THEN INSERT *"
)


def main(asked: str) -> None:
    """Run the query that a JSON object describes, and write its figures as JSON to the file that it names."""
    query = json.loads(asked)
    home = Path(query["directory"])
    table = home / "table"
    unix_sockets = list(transports().values())[-1]
    with open_session(home, unix_sockets=unix_sockets, more=query["settings"]) as spark:
        changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_A_BATCH).parquet(query["input"])
        began = time.perf_counter()
        running = _started(spark, changes, query["format"], table, home / "checkpoint")
        running.awaitTermination()
        clock_s = time.perf_counter() - began
        made = [progress for progress in running.recentProgress if progress.numInputRows]
        read_s, rows, total = _read(spark, query["format"], table)
        jvm_bytes, worker_bytes = _memory_peaks()
        files = [file.stat().st_size for file in table.rglob("*") if file.is_file()]
    figures = {
        "clock_s": clock_s,
        "add_batch_ms": [progress.durationMs["addBatch"] for progress in made],
        "files": len(files),
        "bytes": sum(files),
        "read_s": read_s,
        "rows": rows,
        "total": total,
        "jvm_bytes": jvm_bytes,
        "worker_bytes": worker_bytes,
    }
    Path(query["figures"]).write_text(json.dumps(figures))


def _started(spark: SparkSession, changes: DataFrame, into: str, table: Path, checkpoint: Path) -> StreamingQuery:
    if into == "ftkv":
        writer = changes.writeStream.format("ftkv").options(path=str(table), keyColumns="k", merge="n:sum")
    else:
        spark.createDataFrame([], SCHEMA).write.format("delta").save(str(table))
        merge = MERGE.format(path=table)

        def merge_batch(batch: DataFrame, _: int) -> None:
            batch.createOrReplaceTempView("changes")
            batch.sparkSession.sql(merge)

        writer = changes.writeStream.foreachBatch(merge_batch)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def _read(spark: SparkSession, form: str, table: Path) -> tuple[float, int, int]:
    """Return the median seconds of reading all rows, their number, and the sum of a column."""
    taken_s = []
    for _ in range(READS):
        began = time.perf_counter()
        frame = spark.read.format(form).load(str(table))
        ((rows, total, _),) = frame.selectExpr("count(k)", "sum(n)", "sum(length(v))").collect()
        taken_s.append(time.perf_counter() - began)
    return statistics.median(taken_s), rows, total


def _memory_peaks() -> tuple[int, int]:
    """Return the most memory that the JVM, and that the largest of its Python workers, has had."""
    peaks: dict[str, int] = {"java": 0, "python": 0}
    for process in _descendants(os.getpid()):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
        name = next((name for name in peaks if status["Name"].strip().startswith(name)), None)
        if name is not None and "VmHWM" in status:
            peaks[name] = max(peaks[name], int(status["VmHWM"].split()[0]) << 10)
    return peaks["java"], peaks["python"]


def _descendants(process: int) -> Iterator[int]:
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            children = (thread / "children").read_text().split()
        except FileNotFoundError:  # the thread has ended
            continue
        for child in children:
            yield int(child)
            yield from _descendants(int(child))


if __name__ == "__main__":
    main(sys.argv[1])
