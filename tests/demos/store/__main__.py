"""The command ``python -m tests.demos.store``."""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import ftfile
from tests.demos.files.command import run_command
from tests.demos.files.one_stream import OneStream
from tests.demos.files.restarts import STALL_TIMEOUT_S, DemoError
from tests.demos.files.sinks import is_log_complete
from tests.demos.store import job, looking, windows
from tests.demos.store.check import check_words
from tests.demos.store.text import Text, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.demos.files.kill import Hit
    from tests.demos.files.report import Console

__all__ = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """The text, and the kills of the stream and of the program without Spark."""

    seed: int
    files: int
    times: int
    kills: int
    windows: int
    window_kills: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 could not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.demos.store", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws the kills")
    parser.add_argument("--quick", action="store_true", help="less text, two kills of the stream, half a minute")
    parser.add_argument("--keep", action="store_true", help="keep the files, and print where they are")
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, 24, 1, 2, 30, 2) if options.quick else Settings(options.seed, 60, 5, 6, 300, 12)
    return run_command("demo-kv", lambda root, console: _Demo(settings, root, console).run(), keep=options.keep)


class _Demo(OneStream):
    """One demonstration in a separate directory."""

    def __init__(self, settings: Settings, root: Path, console: Console) -> None:
        super().__init__(root, console, settings.seed, job.__file__, settings.files)
        self._settings = settings
        self._text: Text = write_text(root / "text", settings.files, settings.times)

    def run(self) -> bool:
        """Return True if both stores contain the right count of each word."""
        words, kinds = self._text.totals[-1], len(self._text.counts)
        self.console.line(
            f"Spark {version('pyspark')}: {words:,} words, {kinds:,} different ones, in {len(self._text.files)} files, "
            f"a batch each; kills drawn from seed {self._settings.seed}"
        )
        self.write_job(text=self.root / "text")
        sought = [*self.drawn.sample(sorted(self._text.counts), 200), "no-such-word"]
        asked = {"store": self.target.output, "totals": self._text.totals, "words": sought}
        with self.begin_beside(looking.__file__, seed=self._settings.seed, **asked) as looker:
            hits = self.strike(self._settings.kills)
            self.run_to_end()
            looked = looker.end()
        is_exact = self._judge_stream(looked, hits)
        is_exact &= self._count_in_windows()
        self.console.line(f"{self.elapsed()} in all; ftfile {ftfile.__version__}")
        return is_exact

    def _judge_stream(self, looked: dict[str, Any], hits: Sequence[Hit]) -> bool:
        self.console.line(self.describe(hits))
        microseconds = 1e6 * looked["getSeconds"] / max(looked["gets"], 1)
        self.console.line(
            f"meanwhile another process looked at {looked['versions']} versions: {looked['gets']:,} lookups of "
            f"{microseconds:.0f} us, {len(looked['faults'])} of them wrong"
        )
        for fault in looked["faults"][:5]:
            self.console.line(f"  {fault}")
        is_whole = looked["versions"] > 1 and not looked["faults"] and is_log_complete(self.target)
        return check_words(self.console, "the stream", self.target.output, self._text.counts) and is_whole

    def _count_in_windows(self) -> bool:
        """Count the words again by a program that is killed in drawn windows; return True if its counts are right.

        Raises:
            DemoError: the program failed, stopped making progress, or ended before the last kill.
        """
        store, checkpoint = self.root / "windows-store", self.root / "windows-checkpoint"
        last = self._settings.windows - 1
        where = {"text": self.root / "text", "store": store, "checkpoint": checkpoint}
        path = self.write("windows", **where, windows=self._settings.windows, checkpoint_every=5)
        killed_in = [-1]
        for kills_left in range(self._settings.window_kills, 0, -1):
            # A kill uses at most its share of the remaining windows, so that enough windows remain for the next kills.
            share = (last - killed_in[-1]) // (kills_left + 1)
            killed_in.append(self._run_windows(path, killed_in[-1] + self.drawn.randint(1, max(share, 1))))
        self._run_windows(path, None)
        self.console.line(
            f"without Spark: {self._settings.windows} windows, a checkpoint every 5; killed in windows "
            f"{', '.join(map(str, killed_in[1:]))}"
        )
        return check_words(self.console, "the windows", store, self._text.counts)

    def _run_windows(self, argument: Path, until: int | None) -> int:
        """Run the program to its end, or kill it soon after it has begun a window. Return the last window that it has
        begun.

        Raises:
            DemoError: it failed, stopped making progress, or ended before that window.
        """
        log, window, began_s = self.root / "windows.log", -1, 0.0
        command = [sys.executable, windows.__file__, str(argument)]
        with (
            log.open("ab") as errors,
            # Unbuffered, because `select` does not see lines in a buffer.
            subprocess.Popen(
                command, bufsize=0, stdout=subprocess.PIPE, stderr=errors, env=self.environment
            ) as program,
        ):
            try:
                for window in _begun_windows(program):
                    before_s, began_s = began_s or time.monotonic(), time.monotonic()
                    self.console.progress(f"{self.elapsed()}: window {window} of {self._settings.windows}")
                    if until is not None and window >= until:
                        # At a random moment of the window, which takes about as long as the window before.
                        time.sleep(self.drawn.uniform(0, began_s - before_s))
                        return window
                program.wait(STALL_TIMEOUT_S)
            finally:
                program.kill()
        if until is not None or program.returncode:
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise DemoError(f"the program without Spark ended in window {window} ({program.returncode})\n{said}")
        return window


def _begun_windows(program: subprocess.Popen[bytes]) -> Iterator[int]:
    """Yield each window as the program begins it.

    Raises:
        DemoError: it stopped making progress.
    """
    assert program.stdout is not None
    while select.select([program.stdout], [], [], STALL_TIMEOUT_S)[0]:
        line = program.stdout.readline()
        if not line:
            return
        yield int(line)
    raise DemoError(f"the program without Spark has begun no window for {STALL_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
