"""Runs demonstrations in separate processes, as `make` does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("count_kills", "ended_demo", "run_demo")

ROOT = Path(__file__).parents[2]


def run_demo(module: str, *options: str, directory: Path) -> str:
    """Run a demonstration in its short form and return its output; check that it succeeds and leaves no file.

    Args:
        module: of the command.
        options: in addition to `--quick`.
        directory: for temporary files, empty.
    """
    command = [sys.executable, "-m", module, "--quick", *options]
    environment = os.environ | {"TMPDIR": str(directory)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1700, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert list(directory.iterdir()) == []
    return run.stdout


def count_kills(output: str) -> int:
    """Return the number of times that a demonstration killed its application in the planned moment."""
    return len(re.findall(r"SIGKILL to \d+ processes", output)) - output.count("too late: this kill does not count")


@contextlib.contextmanager
def ended_demo(module: str, *options: str, by: signal.Signals, directory: Path) -> Iterator[int]:
    """Yield the process id of a demonstration; end it after the block, and check that it leaves no file.

    Args:
        module, options, directory: as for `run_demo`.
        by: the signal that ends it; SIGKILL leaves files.
    """
    command = [sys.executable, "-m", module, "--quick", *options]
    environment = os.environ | {"TMPDIR": str(directory)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as demo:
        yield demo.pid
        demo.send_signal(by)
        output, _ = demo.communicate(timeout=PATIENCE_S)
    if by is not signal.SIGKILL:
        assert demo.returncode == 130, output
        assert list(directory.iterdir()) == []
