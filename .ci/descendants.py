"""Run a command, and wait for all its descendants, so that the kernel adds their processor time to this process.

Usage: descendants.py COMMAND...

If the parent of a JVM was killed, or does not wait for it, the JVM would become a child of process 1, and its time
would be lost. On Linux, it becomes a child of this process. Children that still run `GRACE_S` seconds after the end of
the command are named and left alone; after an interrupt, they are killed after `INTERRUPTED_S` seconds. The exit code
is that of the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S, INTERRUPTED_S = 20.0, 3.0
POLL_S = 0.1


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def survive_signals(received: list[int]) -> None:
    """Let signals for the group of processes end the command, but not this process. The command does not inherit it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: received.append(number))


def children() -> dict[int, str]:
    """Return the command lines of the children that still run, by the numbers of the processes."""
    found = {}
    with contextlib.suppress(OSError):
        for number in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            line = Path("/proc", number, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(number)] = line
    return found


def main(command: list[str]) -> int:
    """Run the command, and return its exit code."""
    adopt_orphans()
    received: list[int] = []
    survive_signals(received)
    process = subprocess.Popen(command)
    while True:
        number, status = os.wait()
        if number == process.pid:
            break
    process.returncode = os.waitstatus_to_exitcode(status)
    ended_s = time.monotonic()
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < ended_s + (INTERRUPTED_S if received else GRACE_S):
            # A wait without polling has no time limit.
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(POLL_S)
    for number, line in children().items():
        print(f"still running: {line[:200]}", flush=True)
        if received:
            os.kill(number, signal.SIGKILL)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
