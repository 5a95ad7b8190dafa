"""Files of numbers, the input of streams whose processes are killed, and the check of the files with these numbers."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.cluster.cluster import wait_for
from tests.demos.files.kill import LONGEST_DELAY_S, Kill, Moment
from tests.demos.files.sinks import Stream, observe
from tests.spark.waiting import PATIENCE_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ("Numbers", "Watch", "check_numbers", "draw_kill", "query_id")

ROWS_PER_FILE = 10
# A kill is at most so many batches after the start of its run.
LATEST_BATCH = 3


class Numbers:
    """A directory of JSON files, each with the next numbers in the column `id`.

    Attributes:
        directory: of the files.
        count: of the numbers in all files.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.count = 0

    @property
    def files(self) -> int:
        """The number of files."""
        return self.count // ROWS_PER_FILE

    def extend(self, files: int) -> None:
        """Write this number of files more."""
        for _ in range(files):
            ids = range(self.count, self.count + ROWS_PER_FILE)
            hidden = self.directory / f".{self.count:08}"
            hidden.write_text("".join(f'{{"id": {number}}}\n' for number in ids))
            # A stream that runs finds only complete files.
            hidden.rename(self.directory / f"{self.count:08}.json")
            self.count += ROWS_PER_FILE


@dataclass
class Watch:
    """Fails if a stream makes no progress, or ends with an error.

    Attributes:
        streams: of which one must make progress.
        fail: raises if a process of the streams failed.
    """

    streams: list[Stream]
    fail: Callable[[], None]

    def __post_init__(self) -> None:
        self._states = [observe(stream) for stream in self.streams]
        self._moved_s = time.monotonic()

    def __call__(self) -> None:
        self.fail()
        now_s = time.monotonic()
        states = [observe(stream) for stream in self.streams]
        if states != self._states:
            self._states, self._moved_s = states, now_s
        assert now_s - self._moved_s < PATIENCE_S, f"no progress for {PATIENCE_S} s"

    def wait(self, found: Callable[[], bool], what: str) -> None:
        """Wait for an event of the streams."""

        def is_over() -> bool:
            self()
            return found()

        wait_for(is_over, what)


def draw_kill(rng: random.Random, stream: Stream, moment: Moment) -> Kill:
    """Draw the batch of a kill, after the newest batch of the stream, and a delay in this batch."""
    delay_s = rng.uniform(0.0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
    return Kill(stream.name, moment, observe(stream).begun + rng.randint(1, LATEST_BATCH), delay_s)


def check_numbers(stream: Stream, count: int) -> None:
    """Check that a plain reader finds each number once, and the log against the files and Spark's checkpoint."""
    assert isinstance(stream.output, Path)
    ftfile.flush(stream.output)
    report = check_directory(
        open_filesystem(str(stream.output)),
        recorded_by_spark={query_id(stream): range(observe(stream).committed + 1)},
    )
    assert report.live_rows == report.visible_rows
    rows: Counter[int] = Counter()
    for file in stream.output.glob("*.json"):
        rows.update(json.loads(line)["id"] for line in file.read_text("utf-8").splitlines())
    assert rows == Counter(range(count))


def query_id(stream: Stream) -> str:
    """Return the id of a stream's query."""
    return str(json.loads((stream.checkpoint / "metadata").read_text("utf-8"))["id"])
