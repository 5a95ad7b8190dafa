"""Plans of reads of a directory of very many files: ftfile's two ways, Spark's own source, and Delta over the same."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.compaction import ROOT
from benchmarks.kv_stream import PYTHON, delta_settings
from benchmarks.report import Cell, Table

if TYPE_CHECKING:
    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
FILES, SMOKE_FILES = 100_000, 40
ROUNDS = 3
COLUMNS = ("read by", "asked for", "files", "first, s", "later, median s", "tasks")
NOTE = (
    "Parquet files in 100 directories of a partition column, in commits of 1,000 files; local disk. From the read to "
    "the tasks of its plan, none of which runs; {} rounds in one application with local[2], each way in turn. "
    "Delta's table is the one that ftfile.export makes of the same files, in {:.1f} s; its "
    "session keeps what it read of the log, and the others read it anew."
)


def run(settings: Settings) -> list[Table]:
    """Write the directory, and plan; without Delta's jars, or its Spark, all others."""
    files = SMOKE_FILES if settings.smoke else settings.files or FILES
    delta = None if settings.smoke else delta_settings()
    figures = settings.directory / "figures.json"
    asked = {
        "files": files,
        "directory": str(settings.directory),
        "figures": str(figures),
        "rounds": 2 if settings.smoke else ROUNDS,
        "delta": delta,
    }
    python = str(PYTHON) if delta is not None else sys.executable
    subprocess.run(
        [python, "-m", "benchmarks.plans_run", json.dumps(asked)], check=True, cwd=ROOT, stdout=subprocess.DEVNULL
    )
    found = json.loads(figures.read_text())
    rows: list[tuple[Cell, ...]] = []
    for each in found["plans"]:
        first, *later = each["s"]
        rows.append((each["way"], each["query"], files, first, statistics.median(later), each["tasks"]))
        LOGGER.info("plans: %s", rows[-1])
    return [Table("plans", COLUMNS, tuple(rows), NOTE.format(asked["rounds"], found["export_s"] or 0))]
