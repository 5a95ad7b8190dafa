"""The process that writes and rotates logs until its standard input closes and each log was rotated a few times.

It is started as a script with one argument, a JSON file: ``logs`` (a directory), ``seed``, ``lines_per_second``,
``rotate_bytes``. Its last output is a line of JSON: the number of lines and of rotations of each log.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.kit.rotating import RotatingLog

if TYPE_CHECKING:
    from tests.kit.rotating import Rotation

__all__ = ("LOGS", "LogKind")

PAUSE_S = 0.02
# Also if all planned kills are done early.
ROTATIONS_MIN = 2
# The probability that the last line is written by half, and its rest with the next lines.
HALF = 0.2
LEVELS = ("INFO", "INFO", "INFO", "WARN", "ERROR")
WORDS = [
    "request",
    "response",
    "user",
    "order",
    "paid",
    "shipped",
    "timeout",
    "retry",
    "cache",
    "hit",
    "miss",
    "naïve",
    "東京",
    "café",
]


class LogKind(NamedTuple):
    """One of the logs."""

    name: str
    how: Rotation
    compressed: bool
    title: str


LOGS = (
    LogKind("app.log", "rename", True, "renamed, then gzip"),
    LogKind("audit.log", "copytruncate", False, "copied, then truncated"),
)


class _Writer:
    """One log, its lines numbered from 0."""

    def __init__(self, kind: LogKind, directory: Path, rotate_bytes: int, drawn: random.Random) -> None:
        self.log = RotatingLog(directory / kind.name, how=kind.how, compressed=kind.compressed)
        self.count = 0
        self.rotations = 0
        self._name = kind.name
        self._drawn = drawn
        self._rotate_bytes = rotate_bytes
        self._rest = ""
        self._draw_size()

    def write(self, count: int) -> None:
        """Write some lines, the last of them possibly by half. Rotate only after a complete line, as loggers do."""
        text = self._rest + "".join(f"{self._line()}\n" for _ in range(count))
        cut = len(text)
        if self._drawn.random() < HALF:
            cut -= self._drawn.randrange(1, 30)
        self.log.write_text(text[:cut])
        self._rest = text[cut:]
        if not self._rest and self.log.size_bytes > self._size:
            self.log.rotate()
            self.rotations += 1
            self._draw_size()

    def end(self) -> None:
        """Write the rest of a half line."""
        self.log.write_text(self._rest)
        self.log.close()

    def _line(self) -> str:
        words = " ".join(self._drawn.choices(WORDS, k=self._drawn.randint(2, 12)))
        time_text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = f"{time_text} {self._drawn.choice(LEVELS)} {self._name} {self.count} {words}"
        self.count += 1
        return line

    def _draw_size(self) -> None:
        self._size = self._rotate_bytes * self._drawn.uniform(0.5, 1.5)


def main() -> None:
    """Write and rotate until the standard input closes and each log was rotated."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    drawn = random.Random(job["seed"])
    writers = [_Writer(kind, Path(job["logs"]), job["rotate_bytes"], drawn) for kind in LOGS]
    began_s, written = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0] or min(each.rotations for each in writers) < ROTATIONS_MIN:
        time.sleep(PAUSE_S)
        due = int((time.monotonic() - began_s) * job["lines_per_second"]) - written
        if due > 0:
            for writer in writers:
                writer.write(due)
            written += due
    for writer in writers:
        writer.end()
    names = (kind.name for kind in LOGS)
    counts = {name: [writer.count, writer.rotations] for name, writer in zip(names, writers, strict=True)}
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
