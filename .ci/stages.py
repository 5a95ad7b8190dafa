"""Makes the targets of `make test`: several lanes at once, in each lane one target after the other.

Usage: stages.py [LANE...], each of them targets with blanks between; without any, LANES. A lane that has made its
targets goes on with the last one of the lane that has most left, until none is left. A target that fails stops no
other. In the end, tests that failed run once more with nothing beside them: a target whose failed tests all pass then
has passed, and the last lines name it. What a target prints comes in one piece when it has ended, and stays in
.reports; the last lines sum up all reports. Interrupted, it ends the processes of all targets.

Where TMPDIR names no place, and there is room, targets with servers have their temporary files in memory.
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
# What waits for servers and JVMs beside what needs a processor all the time.
LANES = (
    "server-tests smoke-spark spark object-store-tests",
    "lint unit crash histories without unit-pythons trials",
)
# Their servers, and Spark's workers, sync thousands of files, each of which takes a disk milliseconds.
SYNCING = {"server-tests", "spark", "object-store-tests"}
# One for each checkout: what a run that was killed has left goes with the next one.
MEMORY = Path("/dev/shm") / f"ftfile-{zlib.crc32(os.fsencode(ROOT)):08x}"
ROOM_BYTES = 6 << 30
POLL_S = 0.05
# What ends the processes of a target, and how long each has an effect: tests stop their servers on an interrupt.
ENDING = ((signal.SIGINT, 30.0), (signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0))
# Signals that have come.
ASKED: list[int] = []


class Stage:
    """A target that is being made, in a process group of its own.

    Args:
        target: of make.
        again: runs only the tests that failed before.

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
        if target in SYNCING and "TMPDIR" not in variables and has_room():
            variables["TMPDIR"] = str(MEMORY / target)
            # It is there if a process that its first run has left still writes.
            (MEMORY / target).mkdir(parents=True, exist_ok=True)
        command = [os.environ.get("MAKE", "make"), "--no-print-directory", "--keep-going", target, f"REPORTS={folder}"]
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
        """Return True once it has, after printing its output and what it took."""
        number, status, used = os.wait4(self._process.pid, os.WNOHANG)
        if not number:
            return False
        self._process.returncode = self.exit_code = os.waitstatus_to_exitcode(status)
        shutil.rmtree(MEMORY / self.target, ignore_errors=True)
        took_s, processor_s = time.monotonic() - self._began_s, used.ru_utime + used.ru_stime
        outcome = "failed" if self.exit_code else "passed"
        print(f"== {self._title} {outcome} after {took_s:.0f} s, {processor_s:.0f} s of processor", flush=True)
        sys.stdout.buffer.write(self._log.read_bytes())
        sys.stdout.flush()
        return True

    def send(self, number: int) -> bool:
        """Send its processes a signal, 0 for none; return False if there are none left."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process.pid, os.WNOHANG)
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


def has_room() -> bool:
    """Return True if temporary files, among which are programs, have room in memory."""
    try:
        found = os.statvfs(MEMORY.parent)
    except OSError:
        return False
    runs_programs = not found.f_flag & getattr(os, "ST_NOEXEC", 0)  # as it is in containers
    return runs_programs and os.access(MEMORY.parent, os.W_OK) and found.f_bavail * found.f_frsize >= ROOM_BYTES


def make(lanes: Sequence[list[str]]) -> list[str]:
    """Make all targets, or as many as are done before a signal comes; return those that failed or were interrupted."""
    running: dict[int, Stage] = {}
    failed: list[str] = []
    while not ASKED and (running or any(lanes)):
        for number, lane in enumerate(lanes):
            if number in running and running[number].has_ended():
                stage = running.pop(number)
                failed += [stage.target] if stage.exit_code else []
            if number not in running and any(lanes):
                running[number] = Stage(lane.pop(0) if lane else max(lanes, key=len).pop())
        time.sleep(POLL_S)
    end(running.values())
    return [*failed, *(stage.target for stage in running.values())]


def make_again(targets: Sequence[str]) -> list[str]:
    """Run what failed of targets once more, one target after the other, and return those that failed again."""
    failed: list[str] = []
    for number, target in enumerate(targets):
        if ASKED:
            return [*failed, *targets[number:]]
        stage = Stage(target, again=True)
        while not stage.has_ended():
            if ASKED:
                end([stage])
                return [*failed, *targets[number:]]
            time.sleep(POLL_S)
        failed += [target] if stage.exit_code else []
    return failed


def end(stages: Collection[Stage]) -> None:
    """End all their processes; a second signal does it at once."""
    for number, wait_s in ENDING:
        deadline_s = time.monotonic() + wait_s
        left = [stage for stage in stages if stage.send(number)]
        while left and time.monotonic() < deadline_s and (len(ASKED) == 1 or number == signal.SIGKILL):
            time.sleep(POLL_S)
            left = [stage for stage in left if stage.send(0)]


def main(lanes: Sequence[str]) -> int:
    """Make all targets and sum up; return 0 if everything passed."""
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
    sys.exit(main(sys.argv[1:] or LANES))
