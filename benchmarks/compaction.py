"""Merging many small files: by threads, by tasks of Spark, and by Delta's OPTIMIZE."""

from __future__ import annotations

import json
import logging
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.kv_puts import remove
from benchmarks.kv_stream import PYTHON, delta_settings
from benchmarks.report import Cell, Table

if TYPE_CHECKING:
    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
FILES, SMOKE_FILES = 400, 4
ROWS, SMOKE_ROWS = 30_000, 100  # of a file: about a megabyte
ROUNDS = 3
COLUMNS = ("merged by", "s", "MB/s", "files before", "files after", "MB beyond imports")
NOTE = (
    "{:,} Parquet files of {:,} rows, one batch write; to files of 128 MB; medians of {} rounds, each in an "
    "application of its own with local[2], the page cache warm. MB/s are of the small files. Memory is that of the "
    "Python process that merges, where it is the caller's own."
)


def run(settings: Settings) -> list[Table]:
    """Let each merge the same rows; without Delta's jars, or its Spark, ftfile alone."""
    files, rows = (SMOKE_FILES, SMOKE_ROWS) if settings.smoke else (settings.files or FILES, ROWS)
    contestants: dict[str, tuple[str, dict[str, str]]] = {
        "one thread": ("1", {}),
        "a thread for each core": ("", {}),
        "tasks of Spark": ("tasks", {}),
    }
    delta = None if settings.smoke else delta_settings()
    if delta is not None:
        contestants["Delta OPTIMIZE"] = ("delta", delta)
    rounds = 1 if settings.smoke or files > FILES else ROUNDS
    table: list[tuple[Cell, ...]] = []
    for label, (by, session) in contestants.items():
        LOGGER.info("compaction: %s", label)
        found = [_figures(by, session, files, rows, settings.directory / f"run-{number}") for number in range(rounds)]
        (before,), (after,) = {each["before"] for each in found}, {each["after"] for each in found}
        seconds = statistics.median(each["s"] for each in found)
        speed = statistics.median(each["bytes"] / 1e6 / each["s"] for each in found)
        own = [each["own_mb"] for each in found if each["own_mb"] is not None]
        table.append((label, seconds, speed, before, after, statistics.median(own) if own else None))
    return [Table("compaction", COLUMNS, tuple(table), NOTE.format(files, rows, rounds))]


def _figures(by: str, session: dict[str, str], files: int, rows: int, home: Path) -> dict[str, Any]:
    home.mkdir()
    figures = home / "figures.json"
    asked = {
        "by": by,
        "settings": session,
        "files": files,
        "rows": rows,
        "directory": str(home),
        "figures": str(figures),
    }
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    command = [python, "-m", "benchmarks.compaction_run", json.dumps(asked)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(figures.read_text())
    remove(home)
    return found
