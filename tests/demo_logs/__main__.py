"""The command ``python -m tests.demo_logs``."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from tests.demo.command import run_command
from tests.demo.kill import LONGEST_DELAY_S, Hit, Kill, Moment, hunt
from tests.demo.process import SparkApp, own_environment
from tests.demo.run import DemoError
from tests.demo.sinks import Stream, is_log_complete, observe
from tests.demo_logs import job as job_script
from tests.demo_logs import writing
from tests.demo_logs.counting import LogCount, count_lines
from tests.demo_logs.writing import LOGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.demo.report import Console

__all__ = ()

ROOT = Path(__file__).parents[2]
STALL_TIMEOUT_S = 300.0
PROGRESS_INTERVAL_S = 0.2
# A rotated log that is compressed is read when it has not changed for this long, as the application has it.
COMPLETE_AFTER_S = 2.5


@dataclass(frozen=True, slots=True)
class Settings:
    """The load, and the kills."""

    seed: int
    kills: int
    lines_per_second: int
    rotate_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 not carried out."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo_logs", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws lines, rotations and kills")
    parser.add_argument("--quick", action="store_true", help="two kills, a minute")
    parser.add_argument("--keep", action="store_true", help="keep the files, and print where they are")
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, 2, 150, 30_000) if options.quick else Settings(options.seed, 6, 400, 60_000)
    return run_command("demo-logs", lambda root, console: _Demo(settings, root, console).run(), keep=options.keep)


class _Demo:
    """One demonstration below a directory of its own."""

    def __init__(self, settings: Settings, root: Path, console: Console) -> None:
        self._settings = settings
        self._root = root
        self._console = console
        self._logs = root / "logs"
        self._scratch = root / "scratch"
        for directory in (self._logs, self._scratch):
            directory.mkdir()
        self._target = Stream("logs", "ftfile", root / "parquet", root / "checkpoint")
        self._began_s = time.monotonic()
        self._looked_s = self._moved_s = self._began_s
        self._state = observe(self._target)
        self._drawn = random.Random(settings.seed)

    def run(self) -> bool:
        """Return True if every line is there once."""
        self._console.line(
            f"Spark {version('pyspark')}: two logs of {self._settings.lines_per_second} lines a second each, rotated "
            f"all the time, tailed into Parquet; {self._settings.kills} kills drawn from seed {self._settings.seed}"
        )
        with self._started_writer() as writer:
            try:
                hits = [self._kill_once(number) for number in range(self._settings.kills)]
                assert writer.stdin is not None
                writer.stdin.close()
                words = writer.stdout.read() if writer.stdout else ""
            finally:
                writer.kill()
        if not words:
            raise DemoError("the process that writes the logs failed")
        self._console.line(f"  {self._elapsed()}  the writer has ended; the last run reads what is left")
        time.sleep(COMPLETE_AFTER_S)
        self._run_to_end()
        return self._judge(json.loads(words), hits)

    def _started_writer(self) -> subprocess.Popen[str]:
        job = {
            "logs": str(self._logs),
            "seed": self._settings.seed,
            "lines_per_second": self._settings.lines_per_second,
            "rotate_bytes": self._settings.rotate_bytes,
        }
        command = [sys.executable, writing.__file__, str(self._written("writing", job))]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment()
        )

    def _kill_once(self, number: int) -> Hit:
        """Run the application until a drawn moment, kill it there, and tell of it."""
        moment = list(Moment)[number % len(Moment)]
        not_before = observe(self._target).begun + self._drawn.randint(2, 4)
        delay_s = self._drawn.uniform(0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
        app = self._started(available_now=False)
        try:
            hit = hunt(app, Kill("logs", moment, not_before, delay_s), [self._target], lambda: self._watch(app))
        finally:
            app.kill()
        if hit is None:
            raise DemoError(f"the application ended by itself (exit code {app.exit_code})\n{app.last_words()}")
        self._console.hit(hit, hit.killed_at_s - self._began_s)
        return hit

    def _run_to_end(self) -> None:
        app = self._started(available_now=True)
        try:
            while app.exit_code is None:
                self._watch(app)
                time.sleep(0.05)
        finally:
            app.kill()
        if app.exit_code != 0:
            raise DemoError(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")

    def _started(self, *, available_now: bool) -> SparkApp:
        job = {
            "logs": str(self._logs),
            "output": str(self._target.output),
            "checkpoint": str(self._target.checkpoint),
            "scratch": str(self._scratch),
            "available_now": available_now,
        }
        self._moved_s = time.monotonic()
        script = Path(job_script.__file__)
        return SparkApp(script, self._written("job", job), self._root / "application.log", self._environment())

    def _watch(self, app: SparkApp) -> None:
        """Show how far the stream is, and give up on one that stands still."""
        now_s = time.monotonic()
        if now_s - self._looked_s < PROGRESS_INTERVAL_S:
            return
        self._looked_s = now_s
        state = observe(self._target)
        if state != self._state:
            self._state, self._moved_s = state, now_s
        if now_s - self._moved_s > STALL_TIMEOUT_S:
            raise DemoError(f"the stream has not moved for {STALL_TIMEOUT_S:.0f} s\n{app.last_words()}")
        files = sum(1 for _ in self._logs.iterdir())
        self._console.progress(f"{now_s - self._began_s:.0f} s: {files} log files, stream {state.describe()}")

    def _judge(self, written: dict[str, list[int]], hits: Sequence[Hit]) -> bool:
        counts = count_lines(self._logs, [kind.name for kind in LOGS], Path(str(self._target.output)))
        batches = observe(self._target).committed + 1
        titles = {kind.name: kind.title for kind in LOGS}
        rows: list[tuple[str, ...]] = [
            ("log", "rotated", "times", "files", "lines", "in Parquet", "missing", "twice", "foreign")
        ]
        rows += [(count.name, titles.get(count.name, ""), *_cells(count, written)) for count in counts]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self._console.line()
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
            cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
            self._console.line("  ".join(cells))
        in_window = sum(hit.counts and hit.kill.moment is Moment.WINDOW for hit in hits)
        killed = sum(hit.processes for hit in hits)
        self._console.line(
            f"\n{batches} micro-batches, {len(hits)} kills of {killed} processes in all, {in_window} of them "
            f"{Moment.WINDOW.value}; ftfile {ftfile.__version__}"
        )
        lines = sum(count for count, _ in written.values())
        is_whole = all(count.written == written.get(count.name, [0])[0] for count in counts)
        is_exact = is_whole and all(count.exact for count in counts) and is_log_complete(self._target)
        finding = f"each of the {lines:,} lines exactly once" if is_exact else "NOT every line exactly once"
        self._console.line(f"independent count (DuckDB): {self._console.paint(finding, good=is_exact)}")
        self._console.line(f"{self._elapsed().strip()} in all")
        return is_exact

    def _written(self, name: str, job: dict[str, Any]) -> Path:
        path = self._root / f"{name}.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        return path

    def _environment(self) -> dict[str, str]:
        environment = own_environment(self._root)
        found = [str(ROOT), environment["PYTHONPATH"]]
        return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, found))}

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began_s:5.1f} s"


def _cells(count: LogCount, written: dict[str, list[int]]) -> tuple[str, ...]:
    rotations = written.get(count.name, [0, 0])[1]
    numbers = (rotations, count.files, count.written, count.found, count.missing, count.duplicated, count.foreign)
    return tuple(f"{number:,}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
