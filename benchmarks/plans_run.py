"""The plans of one application, as `plans` asks for them."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

import ftfile
import ftfile.spark
from benchmarks.spark_session import open_session, transports
from ftfile.commit.format import layout
from ftfile.commit.format.model import Origin, Record, StreamAuthor
from ftfile.commit.log.bases import write_base
from ftfile.commit.log.log import CommitLog
from ftfile.core.context import SYSTEM
from ftfile.maintenance.ranges import merge_ranges
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from ftfile.commit.format.model import Add

PARTITIONS = 100
FILES_A_COMMIT = 1_000
QUERIES = {"all": "true", "one directory": "p = 3"}


def main(asked: str) -> None:
    """Write the files that a JSON object describes, plan reads, and write figures as JSON to the file that it names."""
    work = json.loads(asked)
    home = Path(work["directory"])
    out = str(home / "out")
    write_directory(Path(out), work["files"])
    export_s = None
    if work["delta"] is not None:
        began = time.perf_counter()
        ftfile.export(out, to="delta")
        export_s = time.perf_counter() - began
    more = {"spark.driver.memory": "6g", "spark.sql.python.filterPushdown.enabled": "true"} | (work["delta"] or {})
    more["spark.databricks.delta.formatCheck.enabled"] = "false"  # or it refuses to read the files as Parquet
    with open_session(home, unix_sockets=[*transports().values()][-1], more=more) as spark:
        plans: list[dict[str, Any]] = [
            {"way": way, "query": query, "s": [], "tasks": 0}
            for way in _ways(spark, out, delta=work["delta"] is not None)
            for query in QUERIES
        ]
        for _ in range(work["rounds"]):
            for each in plans:
                read = _ways(spark, out, delta=True)[each["way"]]
                began = time.perf_counter()
                planned: Any = read().where(QUERIES[each["query"]])._jdf  # noqa: SLF001 - rows would run the plan
                each["tasks"] = planned.queryExecution().toRdd().getNumPartitions()
                each["s"].append(time.perf_counter() - began)
    Path(work["figures"]).write_text(json.dumps({"plans": plans, "export_s": export_s}))


def _ways(spark: SparkSession, out: str, *, delta: bool) -> dict[str, Callable[[], DataFrame]]:
    pushes = str(hasattr(DataSourceReader, "pushFilters")).lower()
    ways: dict[str, Callable[[], DataFrame]] = {
        "ftfile.spark.load": lambda: ftfile.spark.load(spark, out),
        'format("ftfile")': lambda: spark.read.format("ftfile").option("filterPushdown", pushes).load(out),
        "spark.read.parquet": lambda: spark.read.parquet(out),
    }
    return ways | {"delta": lambda: spark.read.format("delta").load(out)} if delta else ways


def write_directory(path: Path, files: int) -> None:
    """Write a directory of this number of files in commits of 1,000: copies of 100 by links, and real records."""
    query = MicroBatch(str(path), {"id": "long", "text": "string", "p": "integer"}, {"partitionBy": "p"})
    rows = [{"id": number, "text": f"row {number}", "p": number % PARTITIONS} for number in range(10 * PARTITIONS)]
    query.run(0, [rows[: min(files, PARTITIONS)]])
    fs = open_filesystem(str(path))
    log = CommitLog(fs)
    originals = [*ftfile.open(path).snapshot().adds.values()]
    for batch, first in enumerate(range(len(originals), files, FILES_A_COMMIT), start=1):
        numbers = range(first, min(files, first + FILES_A_COMMIT))
        adds = tuple(_linked(path, originals[number % len(originals)], batch) for number in numbers)
        head = log.read_on()
        author = StreamAuthor(originals[0].origin.query_id, "run-1", batch)
        nonce, now_ms = SYSTEM.ids.unique(), SYSTEM.clock.now_ms()
        log.create(Record(head.version + 1, nonce, author, now_ms, adds=adds, tasks=2, previous_nonce=head.nonce))
    merge_ranges(str(path))
    # The files are at their final names already.
    head = CommitLog(fs).read_on()
    head.unpublished.clear()
    write_base(fs, SYSTEM.ids, head)


def _linked(path: Path, original: Add, batch: int) -> Add:
    """Return the add of a further name of a file; a file system allows some ten thousand of them."""
    assert original.final_path is not None, f"{original.id} is no part"
    unique = SYSTEM.ids.unique()
    final = f"{layout.parent(original.final_path)}/part-{batch:010d}-{layout.unique_part(unique)}.parquet"
    os.link(path / original.final_path, path / final)
    staged = f"{layout.staged_directory(original.origin.query_id, batch)}/00000-0-{unique}.staged"
    origin = Origin(original.origin.query_id, batch, batch)
    return replace(original, id=unique, path=staged, final_path=final, origin=origin)


if __name__ == "__main__":
    main(sys.argv[1])
