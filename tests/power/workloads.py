"""Runs a workload on a mounted disk: `python -m tests.power.workloads NAME PLACE MARK SEED DONE COUNT [MISTAKE]`.

Each step is noted before and after it. The process begins after DONE steps, and ends after COUNT further steps. A
mistake of `tests.power.mistakes` is planted in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import random
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.power.directories import Encrypted, Partitioned, Plain, Rolled
from tests.power.migrations import Migrations
from tests.power.mistakes import MISTAKES
from tests.power.model import mirrored
from tests.power.source_files import SourceFiles
from tests.power.stores import Batches, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.power.workload import Workload

__all__ = ("OF_MODEL", "WORKLOADS")

TABLE: tuple[type[Workload], ...] = (
    Plain,
    Windows,
    SourceFiles,
    Partitioned,
    Migrations,
    Rolled,
    Batches,
    Encrypted,
)
WORKLOADS = {workload.name: workload for workload in TABLE}
# Workloads that change their disk only by file systems of ftfile, so that the model of a disk sees each change.
OF_MODEL = {"plain", "partitioned", "rolled", "encrypted", "windows", "batches"}
WRITEBACK_S = 0.1


@contextlib.contextmanager
def written_back(place: Path, seed: int) -> Iterator[None]:
    """Let a thread sync the whole file system at random moments, as the kernel does after seconds."""
    drawn, ended = random.Random(seed), threading.Event()
    library = ctypes.CDLL(None)
    descriptor = os.open(place, os.O_RDONLY)

    def write_back() -> None:
        while not ended.wait(drawn.expovariate(1 / WRITEBACK_S)):
            library.syncfs(descriptor)

    thread = threading.Thread(target=write_back)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        os.close(descriptor)


def main(words: list[str]) -> None:
    """Run the steps."""
    name, place, mark, seed, done, count, disk = words[:7]
    logging.disable(logging.CRITICAL)
    workload = WORKLOADS[name](Path(place), int(seed))
    notes = os.open(mark, os.O_WRONLY)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, notes)
        for mistake in words[7:]:
            stack.enter_context(MISTAKES[mistake].planted())
        if int(seed) % 2:
            stack.enter_context(written_back(Path(place), int(seed)))
        if disk == "new" and name in OF_MODEL and not words[7:]:  # the model begins with an empty disk
            journal = Path(mark).parents[1] / "journal"
            stack.enter_context(mirrored(Path(place), journal, lambda text: os.write(notes, text)))
        for number in range(int(done), min(int(done) + int(count), workload.steps)):
            os.write(notes, b"begin %d" % number)
            workload.perform(number)
            os.write(notes, b"end %d" % number)
        os.write(notes, b"stop")


if __name__ == "__main__":
    main(sys.argv[1:])
