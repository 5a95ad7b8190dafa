"""The Spark application of the soak: three queries until all input is processed, restarted after each failure.

It is started as a script with one argument, a JSON file: `input`, `checkpoints`, `rows`, `followed`, `words`, `dumped`,
`scratch`, `failures`, `files_per_trigger`, `options` (of the rolled files), `master`, `settings`, `storage`,
`vacuum_interval_s` (0 for never), `vacuums_at_end`.

`checkpoints` has a directory for each query. `master` can also be the URL of a server of Spark Connect. `storage` has
the settings of the storage of all directories. `kafka` has the options of Kafka's source, if there is one.

- `rows` writes the rows of the input into rolled files.
- `words` counts their words into a keyed store.
- `followed` follows the directory of the first query and writes its rows into a second directory.

At the end it finishes the open files and dumps the store to Parquet.
"""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import ftfile
from tests.demos.files.application import begin, build_session
from tests.soak.bugs import find_bugs, full_text
from tests.soak.rows import LINE_SCHEMA, NUMBERS_IN_SPARK, ROW_IN_SPARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ("FAILURES_MAX", "PAUSE_S", "SETTINGS", "finish", "note", "numbers", "options_of")

POLL_S = 0.2
PAUSE_S = 0.5
SETTINGS = {"spark.sql.files.openCostInBytes": "1m", "spark.sql.shuffle.partitions": "2"}
# Longer than a batch, also if it waits for a server that was killed.
RETENTION = "2min"
# In a row, without a batch in between. Afterwards the application ends, and a new one is started.
FAILURES_MAX = 20


def main() -> None:
    """Process all input, finish the open files, and dump the store."""
    job = begin()
    spark = _session(job)
    queries = _Queries(spark, job)
    queries.run()
    finish(spark, job)
    spark.stop()


def finish(spark: SparkSession, job: dict[str, Any]) -> None:
    """Finish the open files, vacuum the directories if the job says so, and dump the store."""
    for name in ("rows", "followed"):
        _repeat(job, name, partial(ftfile.flush, job[name], storage=job["storage"]))
    if job["vacuums_at_end"]:
        for name in ("rows", "followed", "words"):
            _repeat(job, name, partial(_vacuum, job, name))
    _repeat(job, "words", partial(_dump, spark, job))


def numbers(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """Return the stream of the numbers in the input files, or in the topic with their lines."""
    if job["kafka"]:
        records = spark.readStream.format("kafka").options(startingOffsets="earliest", **job["kafka"])
        records = records.option("maxOffsetsPerTrigger", job["files_per_trigger"])
        return records.load().selectExpr("string(value) AS value").selectExpr(NUMBERS_IN_SPARK)
    reader = spark.readStream.schema(LINE_SCHEMA).option("maxFileAge", "3650d")
    reader = reader.option("maxFilesPerTrigger", job["files_per_trigger"])
    return reader.text(Path(job["input"]).as_uri()).selectExpr(NUMBERS_IN_SPARK)


def options_of(job: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of the sink of a query."""
    if name == "words":
        own = {"keyColumns": "word", "merge": "sum", "buckets": 4, "grace": RETENTION, "vacuumInterval": RETENTION}
    else:
        own = {"fileFormat": "parquet" if name == "rows" else "json", **job["options"]}
    return {**own, **_of_storage(job)}


def _session(job: dict[str, Any]) -> SparkSession:
    settings = {**SETTINGS, **job["settings"]}
    if not job["master"].startswith("sc://"):
        return build_session(job["scratch"], settings, memory="1g", master=job["master"])
    remote: SparkSession = SparkSession.builder.remote(job["master"]).getOrCreate()
    for name, value in settings.items():
        remote.conf.set(name, value)
    return remote


def _dump(spark: SparkSession, job: dict[str, Any]) -> None:
    store = spark.read.format("ftkv").options(**_of_storage(job)).load(job["words"])
    store.coalesce(1).write.mode("overwrite").parquet(Path(job["dumped"]).as_uri())


def _of_storage(job: dict[str, Any]) -> dict[str, str]:
    return {f"storage.{name}": value for name, value in job["storage"].items()}


def _vacuum(job: dict[str, Any], name: str) -> None:
    ftfile.vacuum(job[name], retention=RETENTION, force=True, dry_run=False, storage=job["storage"])


def _repeat(job: dict[str, Any], name: str, step: Callable[[], object]) -> None:
    """Repeat a step until it succeeds, because its servers can be killed.

    Raises:
        Exception: it failed repeatedly.
    """
    for left in reversed(range(FAILURES_MAX)):
        try:
            step()
        except Exception as error:
            note(job, name, error)
            if not left:
                raise
            time.sleep(PAUSE_S)
        else:
            return


def note(job: dict[str, Any], name: str, error: object) -> None:
    """Append a failure of a query to the file of failures."""
    text, whole = str(error), full_text(error)
    line = {
        "time": time.time(),
        "query": name,
        # They can be at the end of a long text.
        "kinds": sorted(set(re.findall(r"\berrors\.\w+", whole))),
        "bugs": find_bugs(whole),
        "error": text[-4000:] if name == "pipeline" else text[:4000],
    }
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
        commits = Path(self._job["checkpoints"][name], "commits")
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
        note(self._job, name, error)
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
                checkpoint = Path(self._job["checkpoints"][name]).as_uri()
                self._running[name] = writer.option("checkpointLocation", checkpoint).start(self._job[name])
            except Exception as error:
                self._fail(name, error)
            else:
                return

    def _rows(self) -> DataStreamWriter:
        writer = numbers(self._spark, self._job).selectExpr(*ROW_IN_SPARK).writeStream.format("ftfile")
        return writer.options(**options_of(self._job, "rows")).queryName("rows").trigger(availableNow=True)

    def _words(self) -> DataStreamWriter:
        words = numbers(self._spark, self._job).selectExpr(ROW_IN_SPARK[1], "1L AS n")
        writer = words.writeStream.format("ftkv").options(**options_of(self._job, "words"))
        return writer.queryName("words").trigger(availableNow=True)

    def _followed(self) -> DataStreamWriter:
        reader = self._spark.readStream.format("ftfile").options(**_of_storage(self._job))
        writer = reader.load(self._job["rows"]).writeStream.format("ftfile")
        writer = writer.options(**options_of(self._job, "followed"))
        if "rows" in self._done:
            return writer.queryName("followed to the end").trigger(availableNow=True)
        return writer.queryName("followed")


if __name__ == "__main__":
    main()
