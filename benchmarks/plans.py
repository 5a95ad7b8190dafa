"""Plans of reads of a directory of very many files: ftfile's two ways, Spark's own source, Delta and Iceberg."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from benchmarks.compaction import ROOT
from benchmarks.kv_stream import PYTHON, delta_settings
from benchmarks.large_directory import link_files
from benchmarks.large_table import write_delta_log_over
from benchmarks.report import Cell, Table
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
FILES, SMOKE_FILES = 100_000, 140
PARTITIONS = 100
ROUNDS = 3
# Of Spark 4.1, which Iceberg's jar is built for.
ICEBERG_PYTHON, ICEBERG_JARS = ROOT / ".venv-spark41" / "bin" / "python", ROOT / ".jars" / "iceberg"
OWN = ("ftfile.spark.load", "ftfile.spark.load, where=", 'format("ftfile")')
COLUMNS = ("read by", "Spark", "asked for", "files", "first, s", "later, median s", "tasks")
NOTE = (
    "Parquet files in 100 directories of a partition column, in commits of 1,000 files; local disk. From the read of "
    "the path to the tasks of its plan, none of which runs; {} rounds in one application of each Spark with local[2], "
    "each way in turn. Delta and Iceberg have tables over the same files, without statistics of columns: Delta a log "
    "of as many commits with a checkpoint within the last ten, Iceberg manifests that its own rewrite put in the order "
    "of the partitions. Delta's session keeps what it read of the log, and the others read it anew."
)


def run(settings: Settings) -> list[Table]:
    """Write the directory and the tables over it, and plan; without the jars of a peer, or its Spark, the others."""
    files = SMOKE_FILES if settings.smoke else settings.files or FILES
    out = settings.directory / "out"
    query = MicroBatch(str(out), {"id": "long", "text": "string", "p": "integer"}, {"partitionBy": "p"})
    numbers = range(min(files, PARTITIONS))
    query.run(0, [[{"id": number, "text": f"row {number}", "p": number} for number in numbers]])
    link_files(out, files)
    LOGGER.info("plans: %d files are there", files)
    delta, iceberg = (None, None) if settings.smoke else (delta_settings(), _iceberg_settings())
    first = [*OWN, "spark.read.parquet"]
    if delta is not None:
        write_delta_log_over(out)
        first.append("delta")
    asked = {"out": str(out), "directory": str(settings.directory), "rounds": 2 if settings.smoke else ROUNDS}
    python = sys.executable if delta is None else str(PYTHON)
    rows = _plans(python, {**asked, "ways": first, "settings": delta or {}}, files)
    if iceberg is not None:
        ftfile.export(out, to="iceberg")
        rows += _plans(str(ICEBERG_PYTHON), {**asked, "ways": [*OWN, "iceberg"], "settings": iceberg}, files)
    return [Table("plans", COLUMNS, tuple(rows), NOTE.format(asked["rounds"]))]


def _iceberg_settings() -> dict[str, str] | None:
    """Return a session's settings for Iceberg; None without its jar, or its Spark."""
    jars = sorted(map(str, ICEBERG_JARS.glob("*.jar")))
    if not (ICEBERG_PYTHON.exists() and jars):
        LOGGER.warning("there is no Iceberg to compare with: make table-jars smoke-41")
        return None
    return {"spark.jars": ",".join(jars)}


def _plans(python: str, asked: Mapping[str, Any], files: int) -> list[tuple[Cell, ...]]:
    """Return the lines of one application."""
    figures = Path(asked["directory"], "figures.json")
    command = [python, "-m", "benchmarks.plans_run", json.dumps({**asked, "figures": str(figures)})]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found = json.loads(figures.read_text())
    rows: list[tuple[Cell, ...]] = []
    for each in found["plans"]:
        first, *later = each["s"]
        rows.append((each["way"], found["spark"], each["query"], files, first, statistics.median(later), each["tasks"]))
        LOGGER.info("plans: %s", rows[-1])
    return rows
