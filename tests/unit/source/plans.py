"""Streams of files for tests: a directory of lines, a separate state directory, and small bounds."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ftfile.core.context import SYSTEM
from ftfile.log import checkpoints
from ftfile.source import plan_log
from ftfile.source.plan import PlanPosition, Range, SourcePlan
from ftfile.source.plan_log import PlanLog
from ftfile.storage.local import LocalFileSystem
from tests.kit.files_run import FilesRun
from tests.kit.plan_check import check_batches, check_plans

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from ftfile.storage.api import FileSystem

COLUMNS = {"value": "string"}
PROTOCOLS = ("4.0", "4.2")
LOG_ID = "0" * 32
ROOT = "file:///in"
MOMENTS = ("planned", "offsets written", "committed", "partitions asked", "rows read")


class Source:
    """A directory to which lines are added, and queries that read it."""

    def __init__(self, path: Path) -> None:
        self.path, self.state = path / "in", path / "state"
        self.path.mkdir()
        self.lines: list[str] = []

    def add(self, name: str, count: int = 1) -> None:
        """Append numbered lines to a file of the source."""
        new = [f"{name} {len(self.lines) + number}" for number in range(count)]
        self.lines += new
        with (self.path / name).open("a") as file:
            file.writelines(f"{line}\n" for line in new)

    def query(self, protocol: Any = "4.2", **options: str) -> FilesRun:
        options = {"fileFormat": "text", "stateLocation": str(self.state), **options}
        return FilesRun(str(self.path), COLUMNS, options, protocol, pause_s=2)

    def log_of(self, run: FilesRun) -> Path:
        """Return the directory of a query's plan log."""
        return self.state / str(json.loads(run.offsets[-1])["id"])

    def check(self, run: FilesRun, kept_max: int | None = None) -> None:
        """Check that a query without unread files has read each line once, and check its plans."""
        assert Counter(row["value"] for row in run.rows) == Counter(self.lines)
        check_batches(run)
        check_plans(LocalFileSystem(str(self.log_of(run)), SYSTEM), run.offsets, run.commits, kept_max)


def small_bounds(monkeypatch: pytest.MonkeyPatch, kept: int = 3) -> None:
    """Set limits by which plans are trimmed after a few more plans."""
    monkeypatch.setattr(plan_log, "VERSIONS_KEPT", kept)
    monkeypatch.setattr(plan_log, "COLUMNS_MIN_BYTES", checkpoints.RECORD_COST_BYTES)


def plan_of(number: int, ranges: int = 1) -> SourcePlan:
    """Return a plan that reads the next ten bytes of several files."""
    found = (
        Range(f"{name}.log", 10 * number, 10 * number + 10, "0" * 16, "1" * 16, 10 * number + 10, 1000 + number)
        for name in range(ranges)
    )
    return SourcePlan(ranges=tuple(found), root=ROOT)


def begin() -> PlanPosition:
    """Return the position before the first plan."""
    return PlanPosition(LOG_ID, -1, "")


def driver(fs: FileSystem) -> PlanLog:
    """Return the plan log of a directory as another process opens it."""
    return PlanLog(fs, LOG_ID, "run")


def add_plans(log: PlanLog, count: int, position: PlanPosition | None = None) -> list[PlanPosition]:
    """Add plans. Before each plan, commit the previous batch, as Spark does. Return the positions of the plans."""
    position, positions = position or begin(), []
    for _ in range(count):
        log.read_known()
        before, position = position, log.add(position, plan_of(position.plan + 1))
        if before.plan >= 0:
            log.commit(before)
        positions.append(position)
    return positions
