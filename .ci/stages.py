"""Make targets of the Makefile: several lanes at the same time, and in each lane one target after the other.

Usage: stages.py LANE..., where a lane is a list of targets with blanks between them. A lane without further targets
takes the last target of the lane with the most remaining targets. A target that fails does not stop the others. At the
end, the failed tests run once more, one target at a time: if they pass, the target has passed, and the last lines name
these tests. The output of a target is printed as a whole when the target has ended, and is kept in .reports. The last
lines are a table of all reports, with the processor time of each target and of all its descendants. An interrupt ends
the processes of all targets.

If TMPDIR is not set and there is enough memory, the temporary files of targets with servers are in memory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / ".reports"
DESCENDANTS = ROOT / ".ci/descendants.py"
# Targets whose servers and Spark workers sync thousands of files. On a disk, each sync takes milliseconds.
SYNCING = ("server", "hdfs", "spark", "object-store", "s3")
# One directory for each checkout. The next run deletes what a killed run has left.
MEMORY = Path("/dev/shm") / f"ftfile-{zlib.crc32(os.fsencode(ROOT)):08x}"
ROOM_BYTES = 6 << 30
# In the folder of each target: seconds from start to end, and seconds of the processor.
TIMES = "times"
POLL_S = 0.05
# The signals that end the processes of a target, and the seconds after each: tests stop their servers on an interrupt.
ENDING = ((signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))
# The received signals.
ASKED: list[int] = []


class Stage:
    """A running target, in a separate process group.

    Args:
        target: of make.
        again: run only the tests that failed before.

    Attributes:
        exit_code: of make; None until it has ended.
    """

    def __init__(self, target: str, *, again: bool = False) -> None:
        self.target = target
        self.exit_code: int | None = None
        self._title = f"{target}, again," if again else target
        self._began_s = time.monotonic()
        folder = REPORTS / target / "again" if again else REPORTS / target
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "make.log"
        variables = dict(os.environ)
        if target.startswith(SYNCING) and "TMPDIR" not in variables and has_room():
            variables["TMPDIR"] = str(MEMORY / target)
            # It exists if a process of the first run still writes.
            (MEMORY / target).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(DESCENDANTS), os.environ.get("MAKE", "make"), "--no-print-directory"]
        command += ["--keep-going", target, f"REPORTS={folder.relative_to(ROOT)}"]
        print(f"-- {self._title} begins", flush=True)
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "AGAIN=yes"] if again else command,
                cwd=ROOT,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Return True if it has ended, after printing its output, and keeping its times for the table."""
        number, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if not number:
            return False
        self._process.returncode = self.exit_code = os.waitstatus_to_exitcode(status)
        shutil.rmtree(MEMORY / self.target, ignore_errors=True)
        took_s, processor_s = time.monotonic() - self._began_s, used.ru_utime + used.ru_stime
        outcome = "failed" if self.exit_code else "passed"
        (self._log.parent / TIMES).write_text(f"{took_s:.1f} {processor_s:.1f}")
        print(f"== {self._title} {outcome} after {took_s:.0f} s, {processor_s:.0f} s of processor", flush=True)
        sys.stdout.buffer.write(self._log.read_bytes())
        sys.stdout.flush()
        return True

    def send(self, number: int) -> bool:
        """Send a signal to its processes, or 0 to send none; return False if no process remains."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process.pid, os.WNOHANG)
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


def has_room() -> bool:
    """Return True if memory has room for temporary files, and allows programs among them."""
    try:
        found = os.statvfs(MEMORY.parent)
    except OSError:
        return False
    runs_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)  # in most containers it is set
    return runs_programs and os.access(MEMORY.parent, os.W_OK) and found.f_bavail * found.f_frsize >= ROOM_BYTES


def make(lanes: Sequence[list[str]]) -> list[str]:
    """Make all targets until a signal is received. Return the failed and the interrupted targets."""
    running: dict[int, Stage] = {}
    failed: list[str] = []
    try:
        while not ASKED and (running or any(lanes)):
            for number, lane in enumerate(lanes):
                if number in running and running[number].has_ended():
                    stage = running.pop(number)
                    failed += [stage.target] if stage.exit_code else []
                if number not in running and any(lanes):
                    running[number] = Stage(lane.pop(0) if lane else max(lanes, key=len).pop())
            time.sleep(POLL_S)
    finally:  # also if nobody reads the output any more
        end(running.values())
    return [*failed, *(stage.target for stage in running.values())]


def make_again(targets: Sequence[str]) -> list[str]:
    """Run the failed tests of targets once more, one target at a time. Return the targets that failed again."""
    failed: list[str] = []
    for number, target in enumerate(targets):
        if ASKED:
            return [*failed, *targets[number:]]
        stage = Stage(target, again=True)
        try:
            while not stage.has_ended():
                if ASKED:
                    return [*failed, *targets[number:]]
                time.sleep(POLL_S)
        finally:
            if stage.exit_code is None:
                end([stage])
        failed += [target] if stage.exit_code else []
    return failed


def end(stages: Collection[Stage]) -> None:
    """End all processes of the stages; at once after a second signal."""
    for number, wait_s in ENDING:
        deadline_s = time.monotonic() + wait_s
        left = [stage for stage in stages if stage.send(number)]
        while left and time.monotonic() < deadline_s and (len(ASKED) <= 1 or number == signal.SIGKILL):
            time.sleep(POLL_S)
            left = [stage for stage in left if stage.send(0)]


def main(lanes: Sequence[str]) -> int:
    """Make all targets, and print the table of the reports; return 0 if everything passed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, _: ASKED.append(number))
    REPORTS.mkdir(exist_ok=True)
    shutil.rmtree(MEMORY, ignore_errors=True)
    try:
        failed = make_again(make([lane.split() for lane in lanes]))
    finally:
        shutil.rmtree(MEMORY, ignore_errors=True)
    summed_up = subprocess.run([sys.executable, ROOT / ".ci/tally.py", REPORTS, *failed], check=False)
    return 128 + ASKED[0] if ASKED else summed_up.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
