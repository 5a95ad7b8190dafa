"""The Spark application of the soak: three queries until all input is processed, restarted after each failure.

It is started as a script with one argument, a JSON file: `input`, `checkpoints`, `rows`, `followed`, `words`, `dumped`,
`scratch`, `failures`, `files_per_trigger`, `options` (of the rolled files), `task_attempts`, `settings`,
`vacuum_interval_s` (0 for never), `vacuums_at_end`.

- `rows` writes the rows of the input into rolled files.
- `words` counts their words into a keyed store.
- `followed` follows the directory of the first query and writes its rows into a second directory.

At the end it finishes the open files and dumps the store to Parquet.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from tests.demos.files.application import begin, build_session
from tests.soak.rows import LINE_SCHEMA, NUMBERS_IN_SPARK, ROW_IN_SPARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ()

POLL_S = 0.2
PAUSE_S = 0.5
# Longer than a batch, also if it waits for a server that was killed.
RETENTION = "2min"
# In a row, without a batch in between. Afterwards the application ends, and a new one is started.
FAILURES_MAX = 20


def main() -> None:
    """Process all input, finish the open files, and dump the store."""
    job = begin()
    settings = {"spark.sql.files.openCostInBytes": "1m", "spark.sql.shuffle.partitions": "2", **job["settings"]}
    spark = build_session(job["scratch"], settings, memory="1g", task_attempts=job["task_attempts"])
    queries = _Queries(spark, job)
    queries.run()
    for name in ("rows", "followed"):
        _repeat(job, name, partial(ftfile.flush, job[name]))
    if job["vacuums_at_end"]:
        for name in ("rows", "followed", "words"):
            _repeat(job, name, partial(_vacuum, job, name))
    _repeat(job, "words", partial(_dump, spark, job))
    spark.stop()


def _dump(spark: SparkSession, job: dict[str, Any]) -> None:
    store = spark.read.format("ftkv").load(job["words"])
    store.coalesce(1).write.mode("overwrite").parquet(job["dumped"])


def _vacuum(job: dict[str, Any], name: str) -> None:
    ftfile.vacuum(job[name], retention=RETENTION, force=True, dry_run=False)


def _repeat(job: dict[str, Any], name: str, step: Callable[[], object]) -> None:
    """Repeat a step until it succeeds, because its servers can be killed.

    Raises:
        Exception: it failed repeatedly.
    """
    for left in reversed(range(FAILURES_MAX)):
        try:
            step()
        except Exception as error:
            _note(job, name, error)
            if not left:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def _note(job: dict[str, Any], name: str, error: BaseException | None) -> None:
    line = {"time": time.time(), "query": name, "error": str(error)[:4000]}
    with Path(job["failures"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class _Queries:
    """The three queries, each restarted from its checkpoint after a failure."""

    def __init__(self, spark: SparkSession, job: dict[str, Any]) -> None:
        self._spark = spark
        self._job = job
        self._running: dict[str, StreamingQuery] = {}
        self._failures = {"rows": 0, "words": 0, "followed": 0}
        self._done: set[str] = set()
        self._vacuumed_s = time.monotonic()

    def run(self) -> None:
        """Run the queries until all rows are in both directories and all words in the store.

        Raises:
            RuntimeError: a query failed repeatedly without a batch in between.
        """
        for name in ("rows", "words"):
            self._start(name)
        while self._done != {"rows", "words", "followed"}:
            time.sleep(POLL_S)
            for name in [*self._running]:
                self._watch(name)
            if "followed" not in self._running and "followed" not in self._done and self._has_written("rows"):
                self._start("followed")
            interval_s = self._job["vacuum_interval_s"]
            if interval_s and time.monotonic() > self._vacuumed_s + interval_s and self._has_written("followed"):
                self._vacuumed_s = time.monotonic()
                for name in ("rows", "followed"):
                    _vacuum(self._job, name)

    def _has_written(self, name: str) -> bool:
        commits = Path(self._job["checkpoints"], name, "commits")
        return commits.exists() and any(child.name.isdigit() for child in commits.iterdir())

    def _watch(self, name: str) -> None:
        query = self._running[name]
        if query.isActive:
            if query.lastProgress is not None:
                self._failures[name] = 0
            if name == "followed" and "rows" in self._done and not self._is_last(query):
                query.stop()  # in the middle of a batch, too
                self._start(name)
            return
        error = query.exception()
        if error is not None:
            self._fail(name, error)
            self._start(name)
        elif name != "followed" or self._is_last(query):
            del self._running[name]
            self._done.add(name)
        else:
            self._start(name)

    def _is_last(self, query: StreamingQuery) -> bool:
        """Return True if the following query was started after all rows had been written."""
        return query.name == "followed to the end"

    def _fail(self, name: str, error: BaseException | None) -> None:
        _note(self._job, name, error)
        self._failures[name] += 1
        if self._failures[name] > FAILURES_MAX:
            raise RuntimeError(f"{name} failed {FAILURES_MAX} times in a row") from error
        time.sleep(PAUSE_S)

    def _start(self, name: str) -> None:
        """Start a query, repeatedly if that fails."""
        begin_query = {"rows": self._rows, "words": self._words, "followed": self._followed}[name]
        while True:
            try:
                writer = begin_query()
                checkpoint = str(Path(self._job["checkpoints"], name))
                self._running[name] = writer.option("checkpointLocation", checkpoint).start(self._job[name])
            except Exception as error:
                self._fail(name, error)
            else:
                return

    def _numbers(self) -> DataFrame:
        reader = self._spark.readStream.schema(LINE_SCHEMA).option("maxFileAge", "3650d")
        reader = reader.option("maxFilesPerTrigger", self._job["files_per_trigger"])
        return reader.text(self._job["input"]).selectExpr(NUMBERS_IN_SPARK)

    def _rows(self) -> DataStreamWriter:
        writer = self._numbers().selectExpr(*ROW_IN_SPARK).writeStream.format("ftfile").queryName("rows")
        return writer.options(fileFormat="parquet", **self._job["options"]).trigger(availableNow=True)

    def _words(self) -> DataStreamWriter:
        writer = self._numbers().selectExpr(ROW_IN_SPARK[1], "1L AS n").writeStream.format("ftkv").queryName("words")
        writer = writer.option("keyColumns", "word").option("merge", "sum").option("buckets", 4)
        writer = writer.options(grace=RETENTION, vacuumInterval=RETENTION)
        return writer.trigger(availableNow=True)

    def _followed(self) -> DataStreamWriter:
        rows = self._spark.readStream.format("ftfile").load(self._job["rows"])
        writer = rows.writeStream.format("ftfile").options(fileFormat="json", **self._job["options"])
        if "rows" in self._done:
            return writer.queryName("followed to the end").trigger(availableNow=True)
        return writer.queryName("followed")


if __name__ == "__main__":
    main()
