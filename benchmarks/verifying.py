"""Time and memory to verify a large directory, and to ask for its status."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table
from ftfile.commit.format import layout
from ftfile.commit.format.model import Add, Origin, Record, StreamAuthor
from ftfile.commit.format.record import encode_record
from ftfile.commit.log.bases import write_base
from ftfile.commit.log.log import CommitLog
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.maintenance.ranges import merge_ranges
from ftfile.testing.context import open_filesystem

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
    "imports. The directory was written without syncs: records as they are, empty files, one base, one range."
)
CALLS = {
    "status()": "ftfile.open(path).status()",
    "files()": "ftfile.open(path).files()",
    "verify()": "assert ftfile.open(path).verify().ok",
}
PROGRAM = """
import sys, time
import ftfile, ftfile.maintenance.opened
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
        _write(path, batches, files)
        for name, call in CALLS.items():
            rows.append((f"{batches:,}", f"{batches * files:,}", name, *_measure(path, call)))
            LOGGER.info("verifying: %s", rows[-1])
    return [Table("verifying", COLUMNS, tuple(rows), NOTE)]


def _write(path: Path, batches: int, files: int) -> None:
    """Write a directory as `batches` batches leave it."""
    fs = open_filesystem(str(path))
    CommitLog(fs).prepare_directory()
    previous = ""
    for batch in range(batches):
        adds = tuple(_add(batch) for _ in range(files))
        for add in adds:
            (path / (add.final_path or "")).touch()
        author = StreamAuthor("query", "run", batch, f"{batch}", None)
        record = Record(batch, SYSTEM.ids.unique(), author, 0, adds=adds, tasks=2, previous_nonce=previous)
        content = encode_record(record).content
        (path / layout.record_path(batch)).write_bytes(content)
        previous = record.nonce
    merge_ranges(str(path))
    log = CommitLog(fs)
    head = log.read_on()
    head.unpublished.clear()
    write_base(fs, SYSTEM.ids, head)


def _add(batch: int) -> Add:
    unique = SYSTEM.ids.unique()
    return Add(
        id=unique,
        kind="part",
        path=f"{layout.staged_directory('query', batch)}/00000-0-{unique}.staged",
        final_path=f"part-{batch:010d}-{layout.unique_part(unique)}.txt",
        length=0,
        logical_length=0,
        checksum=checksum(b""),
        rows=0,
        bucket="",
        encoding="text",
        origin=Origin("query", batch, batch),
    )


def _measure(path: Path, call: str) -> tuple[float, float]:
    """Return the seconds of a call, and the megabytes that it took."""
    command = [sys.executable, "-c", PROGRAM, str(path), call]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, megabytes = found.stdout.split()
    return float(seconds), float(megabytes)
