"""The command `ftfile` on a large directory, each call in a process of its own, beside Delta's `DESCRIBE`."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING

import ftfile
from benchmarks.compaction import ROOT
from benchmarks.kv_stream import PYTHON, delta_settings
from benchmarks.large_directory import write_directory
from benchmarks.large_table import File, write_delta_log
from benchmarks.report import Cell, Table

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
BATCHES, SMOKE_BATCHES = 100_000, 6
FILES_A_BATCH, SMOKE_FILES_A_BATCH = 10, 2
ROUNDS = 3
COLUMNS = ("call", "lines", "s", "MB")
NOTE = (
    "A directory of {:,} batches and {:,} files, all output to a pipe. A process of its own for each call of the "
    "command, from its start to its end: the best of {} rounds, and the greatest resident size; page cache warm. "
    "Delta's calls are the first and the second of one application with local[2], whose start and JVM are not counted: "
    "a log of as many commits, a checkpoint ten commits before its end; the size is that of the JVM at the end."
)
SHOWN = "1000"
SCHEMA = '{"type":"struct","fields":[{"name":"value","type":"string","nullable":true,"metadata":{}}]}'
# The command ends either in Python's way or at once.
PROGRAM = """
import atexit, os, sys
@atexit.register
def print_most_mb():
    with open("/proc/self/status") as file:
        print(next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM")), file=sys.stderr)
def end_at_once(code, end=os._exit):
    print_most_mb()
    end(code)
os._exit = end_at_once
from ftfile.tools.cli.__main__ import main
main()
"""


def run(settings: Settings) -> list[Table]:
    """Write both logs, and call; without Delta's jars, or its Spark, the command alone."""
    batches, files = settings.batches or BATCHES, FILES_A_BATCH
    if settings.smoke:
        batches, files = SMOKE_BATCHES, SMOKE_FILES_A_BATCH
    directory = settings.directory / "out"
    write_directory(directory, batches, files)
    rounds = 1 if settings.smoke else ROUNDS
    rows: list[tuple[Cell, ...]] = []
    for call in _calls(directory, batches):
        lines, seconds, megabytes = (min(each) for each in zip(*(_measure(call) for _ in range(rounds)), strict=True))
        label = " ".join(["ftfile", *call]).replace(str(directory), "OUT")
        rows.append((label, lines, seconds, megabytes))
        LOGGER.info("command: %s", rows[-1])
    rows += _delta_rows(settings, batches, files)
    return [Table("command", COLUMNS, tuple(rows), NOTE.format(batches, batches * files, rounds))]


def _calls(directory: Path, batches: int) -> list[list[str]]:
    out, (newest,) = str(directory), ftfile.open(directory).files(limit=1)
    return [
        ["--help"],
        ["status", out],
        ["history", out, "--limit", SHOWN],
        ["history", out],
        ["ls", out, "--limit", SHOWN],
        ["ls", out],
        ["show", out, str(batches - 1)],
        ["show", out, newest.path],
        ["verify", out],
    ]


def _measure(call: list[str]) -> tuple[int, float, float]:
    """Return the lines of a call, its seconds, and its megabytes."""
    began = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM, *call]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.count("\n"), time.perf_counter() - began, float(done.stderr.splitlines()[-1])


def _delta_rows(settings: Settings, batches: int, files: int) -> list[tuple[Cell, ...]]:
    session = None if settings.smoke else delta_settings()
    if session is None:
        return []
    table = settings.directory / "delta"
    commits = [
        [File(f"part-{batch:010d}-{number}-{uuid.uuid4()}.parquet", 1_000_000) for number in range(files)]
        for batch in range(batches)
    ]
    write_delta_log(table, commits, SCHEMA, ())
    figures = settings.directory / "figures.json"
    asked = {"directory": str(settings.directory), "table": str(table), "figures": str(figures), "session": session}
    command = [str(PYTHON), "-m", "benchmarks.command_run", json.dumps(asked)]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    found = json.loads(figures.read_text())
    return [
        (f"Delta {each['call']}{again}", each["lines"], seconds, found["mb"])
        for each in found["calls"]
        for again, seconds in zip(("", ", again"), each["s"], strict=True)
    ]
