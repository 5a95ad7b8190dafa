"""Merging many small files: by threads, by tasks of Spark in one process and in executors, by Delta's OPTIMIZE."""

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
FILES, SMOKE_FILES = 400, 10
SMOKE_WRITTEN = 4
ROWS, SMOKE_ROWS = 30_000, 100  # of a file: about a megabyte
ROUNDS = 3
EXECUTORS = 2
COLUMNS = ("merged by", "s", "MB/s", "files before", "files after", "MB after", "MB beyond imports")
NOTE = (
    "{:,} Parquet files of {:,} rows, the same for all, also for Delta, which has a log of its own over them; to files "
    "of 128 MB; medians of {} rounds, each in an application of its own with local[2], or with two executors of one "
    "core in processes of their own, the page cache warm; reading the log counts, also Delta's first look at it. 400 "
    "files are written, and more are further names of them. "
    "MB/s are of the small files. Memory is that of the Python process that merges, where it is the caller's own."
)


def run(settings: Settings) -> list[Table]:
    """Let each merge the same rows; without Delta's jars, or its Spark, ftfile alone."""
    files, rows = (SMOKE_FILES, SMOKE_ROWS) if settings.smoke else (settings.files or FILES, ROWS)
    written = SMOKE_WRITTEN if settings.smoke else min(files, FILES)
    contestants: dict[str, tuple[str, dict[str, str], int]] = {
        "one thread": ("1", {}, 0),
        "a thread for each core": ("", {}, 0),
        "tasks of Spark": ("tasks", {}, 0),
        "tasks of Spark, two executors": ("tasks", {}, EXECUTORS),
    }
    delta = None if settings.smoke else delta_settings()
    if delta is not None:
        contestants["Delta OPTIMIZE"] = ("delta", delta, 0)
        contestants["Delta OPTIMIZE, two executors"] = ("delta", delta, EXECUTORS)
    rounds = 1 if settings.smoke or files > FILES else ROUNDS
    table: list[tuple[Cell, ...]] = []
    for label, (by, session, executors) in contestants.items():
        amounts = {"files": files, "written": written, "rows": rows}
        asked = {"by": by, "settings": session, "executors": executors, **amounts}
        found = [_figures(asked, settings.directory / f"run-{number}") for number in range(rounds)]
        (before,), (after,) = {each["before"] for each in found}, {each["after"] for each in found}
        seconds = statistics.median(each["s"] for each in found)
        speed = statistics.median(each["bytes"] / 1e6 / each["s"] for each in found)
        own = [each["own_mb"] for each in found if each["own_mb"] is not None]
        line = (label, seconds, speed, before, after, found[0]["mb_after"], statistics.median(own) if own else None)
        table.append(line)
        LOGGER.info("compaction: %s", line)
    return [Table("compaction", COLUMNS, tuple(table), NOTE.format(files, rows, rounds))]


def _figures(asked: dict[str, Any], home: Path) -> dict[str, Any]:
    home.mkdir()
    figures = home / "figures.json"
    asked = asked | {"directory": str(home), "figures": str(figures)}
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    command = [python, "-m", "benchmarks.compaction_run", json.dumps(asked)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads(figures.read_text())
    remove(home)
    return found
