"""The command ``python -m tests.demos.logs``."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile
from tests.demos.files.command import run_command
from tests.demos.files.one_stream import OneStream
from tests.demos.files.sinks import is_log_complete
from tests.demos.logs import job, writing
from tests.demos.logs.counting import LogCount, count_lines
from tests.demos.logs.writing import LOGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.demos.files.kill import Hit
    from tests.demos.files.report import Console

__all__ = ()

# A rotated, compressed log is read after it has not changed for this long, as the application sets it.
COMPLETE_AFTER_S = 2.5


@dataclass(frozen=True, slots=True)
class Settings:
    """The load and the kills."""

    seed: int
    kills: int
    lines_per_second: int
    rotate_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 could not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.demos.logs", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws lines, rotations and kills")
    parser.add_argument("--quick", action="store_true", help="two kills, a minute")
    parser.add_argument("--keep", action="store_true", help="keep the files, and print where they are")
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, 2, 150, 30_000) if options.quick else Settings(options.seed, 6, 400, 60_000)
    return run_command("demo-logs", lambda root, console: _Demo(settings, root, console).run(), keep=options.keep)


class _Demo(OneStream):
    """One demonstration in a separate directory."""

    def __init__(self, settings: Settings, root: Path, console: Console) -> None:
        super().__init__(root, console, settings.seed, job.__file__)
        self._settings = settings
        self._logs = root / "logs"
        self._logs.mkdir()

    def run(self) -> bool:
        """Return True if every line is in the result once."""
        self.console.line(
            f"Spark {version('pyspark')}: two logs of {self._settings.lines_per_second} lines a second each, rotated "
            f"all the time, tailed into Parquet; {self._settings.kills} kills drawn from seed {self._settings.seed}"
        )
        self.write_job(logs=self._logs, available_now=False)
        load = {"lines_per_second": self._settings.lines_per_second, "rotate_bytes": self._settings.rotate_bytes}
        with self.begin_beside(writing.__file__, logs=self._logs, seed=self._settings.seed, **load) as writer:
            hits = self.strike(self._settings.kills)
            written = writer.end()
        self.console.line("the writer has ended; the last run reads the remaining lines")
        time.sleep(COMPLETE_AFTER_S)
        self.write_job(logs=self._logs, available_now=True)
        self.run_to_end()
        return self._judge(written, hits)

    def _judge(self, written: dict[str, list[int]], hits: Sequence[Hit]) -> bool:
        counts = count_lines(self._logs, [kind.name for kind in LOGS], Path(str(self.target.output)))
        titles = {kind.name: kind.title for kind in LOGS}
        rows: list[tuple[str, ...]] = [
            ("log", "rotated", "times", "files", "lines", "in Parquet", "missing", "twice", "foreign")
        ]
        rows += [(count.name, titles.get(count.name, ""), *_cells(count, written)) for count in counts]
        self.console.line()
        self.console.table(rows, texts=2)
        self.console.line(f"\n{self.describe(hits)}")
        lines = sum(count for count, _ in written.values())
        is_whole = all(count.written == written.get(count.name, [0])[0] for count in counts)
        is_exact = is_whole and all(count.exact for count in counts) and is_log_complete(self.target)
        finding = f"each of the {lines:,} lines exactly once" if is_exact else "NOT every line exactly once"
        self.console.line(f"independent count (DuckDB): {self.console.paint(finding, good=is_exact)}")
        self.console.line(f"{self.elapsed()} in all; ftfile {ftfile.__version__}")
        return is_exact


def _cells(count: LogCount, written: dict[str, list[int]]) -> tuple[str, ...]:
    rotations = written.get(count.name, [0, 0])[1]
    numbers = (rotations, count.files, count.written, count.found, count.missing, count.duplicated, count.foreign)
    return tuple(f"{number:,}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
