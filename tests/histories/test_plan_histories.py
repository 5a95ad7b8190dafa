"""Random histories of files and of queries that read them: every line is read once, in spite of faults."""

from __future__ import annotations

import json
import logging
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import StateLost
from ftfile.log import checkpoints
from ftfile.source import plan_log
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.source_run import Killed
from tests.kit.files_run import FilesRun
from tests.kit.plan_check import check_batches, check_plans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.testing.source_run import Moment

HISTORIES = int(os.environ.get("FTFILE_PLAN_HISTORIES", "160"))
AT_ONCE = 20
STEPS = 30
ROTATED_MAX = 3
LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxFilesPerTrigger": "1"},
    {"maxFilesPerTrigger": "2"},
    {"maxBytesPerTrigger": "10"},
    {"maxBytesPerTrigger": "40", "maxFilesPerTrigger": "3"},
)
MOMENTS: tuple[Moment, ...] = ("planned", "offsets written", "committed", "partitions asked", "rows read")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace `fsync`, because no power is cut here, and disable log messages about intended failures."""
    monkeypatch.setattr(os, "fsync", os.fstat)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class Files:
    """Logs that grow by lines and are rotated by renaming."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng = path, rng
        path.mkdir()
        self.lines: list[str] = []
        self._open: dict[str, str] = {}  # by name, the rest of an unfinished line

    def write(self) -> None:
        name = self.rng.choice(("a.log", "b.log", f"{len(self.lines)}.txt"))
        text = ""
        for _ in range(self.rng.randrange(1, 5)):
            text += self._finish(name)
            line = f"{name} {len(self.lines)} {'x' * self.rng.randrange(8)}"
            self.lines.append(line)
            cut = self.rng.randrange(1, len(line) + 1)
            text += line[:cut]
            self._open[name] = line[cut:]
        if self.rng.random() < 0.7:
            text += self._finish(name)
        self._append(name, text)

    def rotate(self) -> None:
        """Rename a log and its rotated predecessors. The oldest file is kept under a unique name."""
        name = self.rng.choice(("a.log", "b.log"))
        self.finish(name)
        if not (self.path / name).exists():
            return
        for number in range(ROTATED_MAX, -1, -1):
            old = self.path / (f"{name}.{number}" if number else name)
            if old.exists():
                old.rename(
                    self.path / (f"{name}.{number + 1}" if number < ROTATED_MAX else f"{name}-{len(self.lines)}")
                )

    def finish(self, name: str) -> None:
        if name in self._open:
            self._append(name, self._finish(name))

    def finish_all(self) -> None:
        for name in [*self._open]:
            self.finish(name)

    def _append(self, name: str, text: str) -> None:
        """Append to a file, with a modification time that many files share."""
        with (self.path / name).open("a") as file:
            file.write(text)
        now_s = current().clock.now_ms() // 20_000 * 20
        os.utime(self.path / name, (now_s, now_s))

    def _finish(self, name: str) -> str:
        rest = self._open.pop(name, None)
        return "" if rest is None else f"{rest}\n"


class Queries:
    """A query, and queries that continue copies of its checkpoint on the same state."""

    def __init__(self, files: Files, state: Path, rng: random.Random) -> None:
        self.files, self.state, self.rng = files, state, rng
        options = {"fileFormat": "text", "stateLocation": str(state), "closeInactive": "1000h", **rng.choice(LIMITS)}
        protocol: Any = rng.choice(("4.0", "4.2"))
        self.runs = [FilesRun(str(files.path), {"value": "string"}, options, protocol, pause_s=2)]
        self.lost = 0

    def go(self) -> None:
        run = self.rng.choice(self.runs)
        choice = self.rng.randrange(8)
        if choice == 0:
            run.kill_at = self.rng.choice(MOMENTS)
        elif choice == 1:
            run.restart()
        elif choice == 2:
            kept = {name: run.options[name] for name in ("fileFormat", "stateLocation", "closeInactive")}
            run.options = kept | self.rng.choice(LIMITS)
            run.restart()
        elif choice == 3 and len(self.runs) < 3 and run.offsets and json.loads(run.offsets[0])["kind"] == "plans":
            self.runs.append(run.copied())
        self._run(run, available=choice == 4)

    def finish(self) -> None:
        self.files.finish_all()
        for run in [*self.runs]:
            run.kill_at = None
            self._run(run, to_the_end=True)
        assert self.runs, "all drivers are lost"
        for run in self.runs:
            self._check(run)

    def _run(self, run: FilesRun, *, available: bool = False, to_the_end: bool = False) -> None:
        try:
            if available:
                run.run_available()
            else:
                run.run(1000 if to_the_end else self.rng.choice((1, 2, 1000)))
        except Killed:
            run.restart()
        except StateLost:
            # Another driver continued, and the plans after this driver's last offset are trimmed.
            assert len(self.runs) > 1
            assert max(len(other.offsets) for other in self.runs) > len(run.offsets) + plan_log.VERSIONS_KEPT - 1
            self.runs.remove(run)
            self.lost += 1

    def _check(self, run: FilesRun) -> None:
        found = Counter(row["value"] for row in run.rows)
        expected = Counter(self.files.lines)
        assert found == expected, f"read {found - expected} too often, {expected - found} not at all"
        check_batches(run)
        offsets = [offset for offset in run.offsets if json.loads(offset)["kind"] == "plans"]
        if offsets:
            fs = LocalFileSystem(str(self.state / json.loads(offsets[0])["id"]), SYSTEM)
            furthest = max(self.runs, key=lambda other: len(other.offsets))
            check_plans(fs, furthest.offsets, furthest.commits, kept_max=plan_log.VERSIONS_KEPT + 16)
            check_plans(fs, run.offsets, furthest.commits)


def play(seed: int, path: Path) -> tuple[int, int]:
    """Play a history; return the number of its plans, and of drivers that were overtaken."""
    rng = random.Random(seed)
    with repeatable(ManualClock(), SeededIds(seed)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_log, "VERSIONS_KEPT", rng.choice((0, 2, 5)))
        patch.setattr(plan_log, "COLUMNS_MIN_BYTES", checkpoints.RECORD_COST_BYTES)
        files = Files(path / "in", rng)
        queries = Queries(files, path / "state", rng)
        for _ in range(STEPS):
            (files.write, files.write, files.rotate, queries.go, queries.go, queries.go)[rng.randrange(6)]()
        queries.finish()
        return max(len(run.offsets) for run in queries.runs), queries.lost


@pytest.mark.parametrize("first", range(0, HISTORIES, AT_ONCE))
def test_every_line_is_read_once(first: int, tmp_path: Path) -> None:
    plans = 0
    for seed in range(first, min(first + AT_ONCE, HISTORIES)):
        (tmp_path / str(seed)).mkdir()
        print(f"seed {seed}")  # pytest shows it if the test fails
        plans += play(seed, tmp_path / str(seed))[0]
    assert plans > AT_ONCE


def test_histories_trim_and_overtake(tmp_path: Path) -> None:
    """Check that some histories trim plans and overtake drivers: otherwise they would not test either."""
    lost = 0
    for seed in range(60):
        (tmp_path / str(seed)).mkdir()
        lost += play(seed, tmp_path / str(seed))[1]
        if lost:
            return
    raise AssertionError("no driver was overtaken")
