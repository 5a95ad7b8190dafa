"""The command ``python -m tests.demo_kv``."""

from __future__ import annotations

import argparse
import json
import random
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile import kv
from tests.demo.command import run_command
from tests.demo.kill import LONGEST_DELAY_S, Hit, Kill, Moment, hunt
from tests.demo.process import SparkApp, own_environment
from tests.demo.run import DemoError
from tests.demo.sinks import Stream, is_log_complete, observe
from tests.demo_kv import job as job_script
from tests.demo_kv import looking, windows
from tests.demo_kv.text import Text, write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.demo.report import Console

__all__ = ()

STALL_TIMEOUT_S = 300.0
PROGRESS_INTERVAL_S = 0.2
END_POLL_S = 0.05


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
    """Run the demonstration and return the exit code: 0 exact, 1 not exact, 2 not carried out."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo_kv", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws the kills")
    parser.add_argument("--quick", action="store_true", help="less text, two kills of the stream, half a minute")
    parser.add_argument("--keep", action="store_true", help="keep the files, and print where they are")
    options = parser.parse_args(arguments)
    settings = Settings(options.seed, 16, 1, 2, 60, 4) if options.quick else Settings(options.seed, 60, 5, 6, 300, 12)
    return run_command("demo-kv", lambda root, console: _Demo(settings, root, console).run(), keep=options.keep)


class _Demo:
    """One demonstration below a directory of its own."""

    def __init__(self, settings: Settings, root: Path, console: Console) -> None:
        self._settings = settings
        self._root = root
        self._console = console
        (root / "scratch").mkdir()
        self._text: Text = write_text(root / "text", settings.files, settings.times)
        self._target = Stream("words", "ftfile", root / "store", root / "checkpoint")
        self._began_s = time.monotonic()
        self._looked_s = self._moved_s = self._began_s
        self._state = observe(self._target)
        self._drawn = random.Random(settings.seed)
        self._environment = own_environment(root)

    def run(self) -> bool:
        """Return True if both stores have each word as often as it occurs."""
        words, kinds = self._text.totals[-1], len(self._text.counts)
        self._console.line(
            f"Spark {version('pyspark')}: {words:,} words, {kinds:,} different ones, in {len(self._text.files)} files, "
            f"a batch each; kills drawn from seed {self._settings.seed}"
        )
        with self._started_looker() as looker:
            try:
                hits = [self._kill_once(number) for number in range(self._settings.kills)]
                self._run_to_end()
                assert looker.stdin is not None
                looker.stdin.close()
                last_words = looker.stdout.read() if looker.stdout else ""
            finally:
                looker.kill()
        if not last_words:
            raise DemoError("the process that looks words up failed")
        is_exact = self._judge_stream(json.loads(last_words), hits)
        is_exact &= self._count_in_windows()
        self._console.line(f"{self._elapsed()} in all; ftfile {ftfile.__version__}")
        return is_exact

    def _started_looker(self) -> subprocess.Popen[str]:
        words = self._drawn.sample(sorted(self._text.counts), 200)
        job = {
            "store": str(self._target.output),
            "totals": self._text.totals,
            "words": [*words, "no-such-word"],
            "seed": self._settings.seed,
        }
        command = [sys.executable, looking.__file__, str(self._written("looking", job))]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )

    # --------------------------------------------------------------------------- the stream

    def _kill_once(self, number: int) -> Hit:
        """Run the application until a drawn moment, kill it there, and tell of it."""
        moment = list(Moment)[number % len(Moment)]
        not_before = observe(self._target).begun + self._drawn.randint(2, 4)
        delay_s = self._drawn.uniform(0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
        app = self._started()
        try:
            hit = hunt(app, Kill("words", moment, not_before, delay_s), [self._target], lambda: self._watch(app))
        finally:
            app.kill()
        if hit is None:
            raise DemoError(f"the application ended by itself (exit code {app.exit_code})\n{app.last_words()}")
        self._console.hit(hit, hit.killed_at_s - self._began_s)
        return hit

    def _run_to_end(self) -> None:
        app = self._started()
        try:
            while app.exit_code is None:
                self._watch(app)
                time.sleep(END_POLL_S)
        finally:
            app.kill()
        if app.exit_code != 0:
            raise DemoError(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")

    def _started(self) -> SparkApp:
        job = {
            "text": str(self._root / "text"),
            "store": str(self._target.output),
            "checkpoint": str(self._target.checkpoint),
            "scratch": str(self._root / "scratch"),
        }
        self._moved_s = time.monotonic()
        script = Path(job_script.__file__)
        return SparkApp(script, self._written("job", job), self._root / "application.log", self._environment)

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
        self._console.progress(f"{now_s - self._began_s:.0f} s: stream {state.describe()}")

    def _judge_stream(self, looked: dict[str, Any], hits: Sequence[Hit]) -> bool:
        batches = observe(self._target).committed + 1
        in_window = sum(hit.counts and hit.kill.moment is Moment.WINDOW for hit in hits)
        killed = sum(hit.processes for hit in hits)
        self._console.line(
            f"{batches} micro-batches, {len(hits)} kills of {killed} processes in all, {in_window} of them "
            f"{Moment.WINDOW.value}"
        )
        microseconds = 1e6 * looked["getSeconds"] / max(looked["gets"], 1)
        self._console.line(
            f"meanwhile another process looked at {looked['versions']} versions: {looked['gets']:,} lookups of "
            f"{microseconds:.0f} us, {len(looked['faults'])} of them wrong"
        )
        for fault in looked["faults"][:5]:
            self._console.line(f"  {fault}")
        is_whole = looked["versions"] > 1 and not looked["faults"] and is_log_complete(self._target)
        return self._judge("the stream", Path(str(self._target.output))) and is_whole

    # --------------------------------------------------------------------------- windows without Spark

    def _count_in_windows(self) -> bool:
        """Count the words again by a program that is killed within drawn windows; return True if its counts are right.

        Raises:
            DemoError: the program failed, stood still, or ended before the last kill.
        """
        store, checkpoint = self._root / "windows-store", self._root / "windows-checkpoint"
        last = self._settings.windows - 1
        job = {
            "text": str(self._root / "text"),
            "store": str(store),
            "checkpoint": str(checkpoint),
            "windows": self._settings.windows,
            "checkpoint_every": 5,
        }
        path = self._written("windows", job)
        killed_in = [-1]
        for kills_left in range(self._settings.window_kills, 0, -1):
            # Within its share of the windows that are left, so that however far a run gets, the next ones have theirs.
            share = (last - killed_in[-1]) // (kills_left + 1)
            killed_in.append(self._run_windows(path, killed_in[-1] + self._drawn.randint(1, max(share, 1))))
        self._run_windows(path, None)
        self._console.line(
            f"without Spark: {self._settings.windows} windows, a checkpoint every 5; killed in windows "
            f"{', '.join(map(str, killed_in[1:]))}"
        )
        return self._judge("the windows", store)

    def _run_windows(self, job: Path, until: int | None) -> int:
        """Run the program to its end, or kill it soon after it has begun a window; return the last that it has begun.

        Raises:
            DemoError: it failed, stood still, or ended before that window.
        """
        log, window, began_s = self._root / "windows.log", -1, 0.0
        command = [sys.executable, windows.__file__, str(job)]
        with (
            log.open("ab") as errors,
            # Without a buffer, in which `select` would see no line.
            subprocess.Popen(
                command, bufsize=0, stdout=subprocess.PIPE, stderr=errors, env=self._environment
            ) as program,
        ):
            try:
                for window in _begun_windows(program):
                    before_s, began_s = began_s or time.monotonic(), time.monotonic()
                    self._console.progress(f"{self._elapsed()}: window {window} of {self._settings.windows}")
                    if until is not None and window >= until:
                        # At any moment of the window, which takes about as long as the one before.
                        time.sleep(self._drawn.uniform(0, began_s - before_s))
                        return window
                program.wait(STALL_TIMEOUT_S)
            finally:
                program.kill()
        if until is not None or program.returncode:
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise DemoError(f"the program without Spark ended in window {window} ({program.returncode})\n{said}")
        return window

    # --------------------------------------------------------------------------- the count

    def _judge(self, who: str, store: Path) -> bool:
        """Compare a store with the independent count."""
        found = {row["word"]: row["n"] for batch in kv.open(str(store)).scan() for row in batch.to_pylist()}
        wrong = {word for word in found.keys() | self._text.counts.keys() if found.get(word) != self._text.counts[word]}
        finding = "every word as often as it occurs" if not wrong else f"{len(wrong)} words with a WRONG count"
        painted = self._console.paint(finding, good=not wrong)
        self._console.line(f"independent count of {who}: {painted} ({sum(found.values()):,} words)")
        return not wrong

    def _written(self, name: str, job: dict[str, Any]) -> Path:
        path = self._root / f"{name}.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        return path

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began_s:.1f} s"


def _begun_windows(program: subprocess.Popen[bytes]) -> Iterator[int]:
    """Yield each window as the program begins it.

    Raises:
        DemoError: it stands still.
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
