"""Time and memory to verify a large directory, to ask for its status, and to report on it."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.large_directory import write_directory
from benchmarks.report import Cell, Table

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
SIZES = ((100_000, 1), (100_000, 10))  # batches, and files of each
SMOKE_SIZES = ((6, 2),)
COLUMNS = ("batches", "files", "call", "s", "MB beyond imports")
NOTE = (
    "Each call in a fresh process, with a warm page cache; MB is the greatest resident size beyond that after the "
    "imports. The directory was written without syncs: records as they are, empty files, one checkpoint, one range."
)
CALLS = {
    "status()": "ftfile.open(path).status()",
    "files()": "ftfile.open(path).files()",
    "verify()": "assert ftfile.open(path).verify().ok",
    "report()": "ftfile.report(path)",
    "report(verify=False)": "ftfile.report(path, verify=False)",
}
PROGRAM = """
import sys, time
import ftfile, ftfile.operate.open_directory, ftfile.tools.report.report
def most_mb():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
path = sys.argv[1]
before = most_mb()
began = time.perf_counter()
exec(sys.argv[2])
print(time.perf_counter() - began, most_mb() - before)
"""


def run(settings: Settings) -> list[Table]:
    """Write each directory, and measure."""
    rows: list[tuple[Cell, ...]] = []
    for batches, files in SMOKE_SIZES if settings.smoke else SIZES:
        path = settings.directory / f"{batches}-{files}"
        write_directory(path, batches, files)
        for name, call in CALLS.items():
            rows.append((f"{batches:,}", f"{batches * files:,}", name, *_measure(path, call)))
            LOGGER.info("verifying: %s", rows[-1])
    return [Table("verifying", COLUMNS, tuple(rows), NOTE)]


def _measure(path: Path, call: str) -> tuple[float, float]:
    """Return the seconds of a call, and the megabytes that it took."""
    command = [sys.executable, "-c", PROGRAM, str(path), call]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = found.stdout.split()
    return float(seconds), float(megabytes)
