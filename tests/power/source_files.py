"""A workload of a stream of other programs' files, with its log of plans and the checkpoint of Spark."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.testing.context import open_filesystem
from tests.kit.files_run import FilesRun
from tests.kit.plan_check import check_batches, check_plans
from tests.power.workload import Workload

if TYPE_CHECKING:
    import random

    from ftfile.testing.source_run import Moment

__all__ = ("SourceFiles",)

STEPS = 16
LOGS = ("a.log", "b.log", "c.log")


@dataclass
class StoredRun(FilesRun):
    """A query whose checkpoint and received rows are durable files, written in the order of Spark."""

    checkpoint: Path = field(default=Path())

    def load(self) -> StoredRun:
        """Read the checkpoint."""
        for number, content in numbered(self.checkpoint / "offsets").items():
            assert number == len(self.offsets), f"offset {number} follows {len(self.offsets)} offsets"
            self.offsets.append(content)
        for number, content in numbered(self.checkpoint / "commits").items():
            stored = json.loads(content)
            self.batches[number], self.adds[number] = stored["rows"], stored["ids"]
            self.commits = number + 1
        return self

    def _die(self, moment: Moment) -> None:
        if moment == "offsets written":
            number = len(self.offsets) - 1
            write_durably(self.checkpoint / f"offsets/{number}", self.offsets[-1])
        if moment == "rows read":
            number = max(self.batches)
            if number >= self.commits:
                stored = {"rows": self.batches[number], "ids": self.adds[number]}
                write_durably(self.checkpoint / f"commits/{number}", json.dumps(stored))
        super()._die(moment)


class SourceFiles(Workload):
    """Logs grow and are rotated; a query reads their lines."""

    name = "source"

    def draw(self, drawn: random.Random) -> None:
        self.steps = STEPS
        self.lines: list[dict[str, list[str]]] = []  # of each step, by log
        self.rotated: list[str | None] = []  # a log that each step renames first
        number = 0
        for step in range(STEPS):
            new: dict[str, list[str]] = {}
            for log in drawn.sample(LOGS, drawn.randrange(1, 4)):
                count = drawn.randrange(1, 9)
                new[log] = [f"{log} {number + each} {'x' * drawn.randrange(90)}" for each in range(count)]
                number += count
            self.lines.append(new)
            self.rotated.append(drawn.choice(LOGS) if step and drawn.random() < 0.2 else None)
        self.options = {"fileFormat": "text", "maxFilesPerTrigger": str(drawn.randrange(1, 4))}
        self.run: StoredRun | None = None

    def prepare(self) -> None:
        for folder in ("in", "state", "checkpoint/offsets", "checkpoint/commits"):
            (self.place / folder).mkdir(parents=True)
        for log in LOGS:
            (self.place / "in" / log).write_text(f"{log} begins {'x' * 60}\n")

    def query(self) -> StoredRun:
        """Return the query in a new process, with its checkpoint."""
        options = self.options | {"stateLocation": f"{self.place}/state"}
        path = f"{self.place}/in"
        run = StoredRun(path, {"value": "string"}, options, pause_s=0.01, checkpoint=self.place / "checkpoint")
        return run.load()

    def perform(self, number: int) -> None:
        done = self.place / f"in/.done-{number}"
        if not done.exists():
            self.write_logs(number)
            write_durably(done, "")
        if self.run is None:
            self.run = self.query()
        for _ in range(100):
            if not self.run.run_batch() and len(self.run.rows) >= len(self.expected(number + 1)):
                break

    def write_logs(self, number: int) -> None:
        """Append the lines of a step durably; a repetition completes them."""
        folder = self.place / "in"
        rotated = self.rotated[number]
        if rotated is not None and (folder / rotated).exists() and not (folder / f"{rotated}.{number}").exists():
            (folder / rotated).rename(folder / f"{rotated}.{number}")
            sync(folder)
        for log, lines in self.lines[number].items():
            content = "".join(f"{line}\n" for line in lines)
            path = folder / log
            found = path.read_text() if path.exists() else ""
            start = found.find(lines[0][: len(log) + 6])
            written = found[start:] if start >= 0 else ""
            if not content.startswith(written):
                written = ""
            with path.open("a") as file:
                file.write(content[len(written) :])
                file.flush()
                os.fsync(file.fileno())
        sync(folder)

    def expected(self, done: int) -> list[str]:
        """Return all lines after some steps."""
        lines = [f"{log} begins {'x' * 60}" for log in LOGS]
        for new in self.lines[:done]:
            for log in new:
                lines += new[log]
        return lines

    def check(self, done: int, *, tried: bool) -> None:
        run = self.query()
        run.commits = max(run.commits, len(run.offsets) - 1)
        for offset in run.offsets[-1:]:
            check_plans(open_filesystem(f"{self.place}/state/{json.loads(offset)['id']}"), run.offsets, run.commits)
        check_batches(run)
        found = Counter(row["value"] for row in run.rows)
        twice = [line for line, times in found.items() if times > 1]
        assert not twice, f"{twice[:3]} were received twice"
        acknowledged = set(self.expected(done)) if done else set()
        missing = acknowledged - set(found)
        assert not missing, f"{sorted(missing)[:3]} were not received"
        extra = set(found) - set(self.expected(done + tried))
        assert not extra, f"{sorted(extra)[:3]} were never written"


def numbered(folder: Path) -> dict[int, str]:
    """Return the content of files with numbers as names, in their order."""
    names = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return {number: (folder / str(number)).read_text() for number in names}


def write_durably(path: Path, content: str) -> None:
    """Write a file as Spark writes its checkpoint: another process sees the whole file or no file."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
