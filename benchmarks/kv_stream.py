"""Streaming upserts from Spark: a store that merges by itself, beside `foreachBatch` with `MERGE` into Delta."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.kv_puts import remove
from benchmarks.kv_stream_run import FILES_A_BATCH
from benchmarks.report import Cell, Table, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.settings import Settings

__all__ = ("PYTHON", "delta_settings", "run")

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
# Of Spark 4.2, which Delta 4.4 is built for; both sinks run there.
PYTHON, JARS = ROOT / ".venv-spark42" / "bin" / "python", ROOT / ".jars" / "delta"
BATCHES, SMOKE_BATCHES = 100, 2
ROWS = 1_000  # of a batch
KEYS = 100_000
VALUE_BYTES = 100
ROUNDS = 3
LONG_BATCHES = 200  # from then on one round says enough
COLUMNS = (
    "sink",
    "batches/s",
    "addBatch p50 ms",
    "p99 ms",
    "files",
    "MB written",
    "read s",
    "Python worker MB",
    "JVM MB",
)
NOTE = (
    "{:,} batches of {:,} rows in {} tasks, random keys of {:,}, values of {} bytes and a sum; {} rounds, each query "
    "in an application of its own, medians of the rounds. Files and bytes are all that is below the table's directory "
    "at the end, merged files and logs included: nothing was deleted. `read` is a full scan at the end, memory the "
    "peak of the process."
)


class Contestant(NamedTuple):
    """A sink as tables name it, its format, and what the Spark session needs for it."""

    label: str
    form: str
    settings: Mapping[str, str]


def run(settings: Settings) -> list[Table]:
    """Stream the same input into each sink; without Delta's jars, or its Spark, into the store alone."""
    batches = SMOKE_BATCHES if settings.smoke else settings.batches or BATCHES
    rounds = 1 if settings.smoke or batches >= LONG_BATCHES else ROUNDS
    source = settings.directory / "input"
    _write_input(source, batches)
    contestants = _contestants()[:: 2 if settings.smoke else 1]  # as delivered, Delta takes minutes for some batches
    found: dict[str, list[dict[str, Any]]] = {each.label: [] for each in contestants}
    for number in range(rounds):
        for each in contestants if number % 2 == 0 else contestants[::-1]:
            LOGGER.info("kvstream: round %d of %d: %s", number + 1, rounds, each.label)
            home = settings.directory / f"{each.form}-{number}"
            found[each.label].append(_figures(each, source, home))
            remove(home)
    _check(found, batches)
    note = NOTE.format(batches, ROWS, FILES_A_BATCH, KEYS, VALUE_BYTES, rounds)
    return [Table("streaming upserts", COLUMNS, tuple(_row(*each, batches) for each in found.items()), note)]


def _contestants() -> tuple[Contestant, ...]:
    store, delta = Contestant("store", "ftkv", {}), delta_settings()
    if delta is None:
        return (store,)
    few = {"spark.databricks.delta.snapshotPartitions": "2"}
    return (
        store,
        Contestant("Delta MERGE", "delta", delta),
        Contestant("Delta MERGE, snapshotPartitions 2", "delta", delta | few),
    )


def delta_settings() -> dict[str, str] | None:
    """Return a session's settings for Delta; None without its jars, or its Spark."""
    jars = sorted(map(str, JARS.glob("*.jar")))
    if not (PYTHON.exists() and jars):
        LOGGER.warning("there is no Delta to compare with: make delta")
        return None
    return {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def _write_input(directory: Path, batches: int) -> None:
    """Write files of which each batch takes some, in the order of their times."""
    directory.mkdir()
    generator = np.random.default_rng(0)
    keys = generator.bytes(16 * KEYS)
    count = ROWS // FILES_A_BATCH
    for number in range(batches * FILES_A_BATCH):
        drawn = generator.integers(0, KEYS, count)
        columns = {
            "k": pa.array([keys[16 * key : 16 * key + 16] for key in drawn], pa.binary()),
            "n": pa.array(np.ones(count, np.int64)),
            "v": pa.array([generator.bytes(VALUE_BYTES) for _ in range(count)], pa.binary()),
        }
        file = directory / f"{number:06}.parquet"
        pq.write_table(pa.table(columns), file)
        os.utime(file, (number, number))


def _figures(contestant: Contestant, source: Path, home: Path) -> dict[str, Any]:
    home.mkdir()
    figures = home / "figures.json"
    asked = {
        "directory": str(home),
        "input": str(source),
        "format": contestant.form,
        "settings": dict(contestant.settings),
        "figures": str(figures),
    }
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    command = [python, "-m", "benchmarks.kv_stream_run", json.dumps(asked)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(figures.read_text())
    return found


def _check(found: Mapping[str, list[dict[str, Any]]], batches: int) -> None:
    """Refuse figures of queries that did not end with the same rows."""
    ends = {(made["rows"], made["total"]) for rounds in found.values() for made in rounds}
    if len(ends) != 1 or {total for _, total in ends} != {batches * ROWS}:
        raise RuntimeError(f"sums over {batches * ROWS} rows differ: {ends}")


def _row(label: str, rounds: list[dict[str, Any]], batches: int) -> tuple[Cell, ...]:
    of_rounds = [
        (
            batches / made["clock_s"],
            percentile(made["add_batch_ms"], 50),
            percentile(made["add_batch_ms"], 99),
            float(made["files"]),
            made["bytes"] / 1e6,
            made["read_s"],
            made["worker_bytes"] / 1e6,
            made["jvm_bytes"] / 1e6,
        )
        for made in rounds
    ]
    return (label, *map(statistics.median, zip(*of_rounds, strict=True)))
