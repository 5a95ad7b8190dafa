"""The frame of the demonstrations' commands: signals, a separate directory, and the exit code."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files.report import Console
from tests.demos.files.restarts import DemoError
from tests.guarded import CannotStart

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ("run_command",)

EXACT, NOT_EXACT, NOT_CARRIED_OUT, INTERRUPTED = 0, 1, 2, 130


def run_command(name: str, demonstrate: Callable[[Path, Console], bool], *, keep: bool) -> int:
    """Run a demonstration and return the exit code: 0 exact, 1 not exact, 2 could not run, 130 interrupted.

    Args:
        name: begins error lines and the name of the directory.
        demonstrate: is called with an empty directory, and returns True if every row is in the result once.
        keep: keeps the directory and prints its path.
    """
    console = Console(sys.stdout)
    # Also SIGINT: a process that a shell starts in the background ignores it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    root = Path(tempfile.mkdtemp(prefix=f"ftfile-{name}-"))
    try:
        _require_java()
        return EXACT if demonstrate(root, console) else NOT_EXACT
    except (DemoError, CannotStart, FileNotFoundError) as error:
        console.line(f"{name}: {error}")
        return NOT_CARRIED_OUT
    except KeyboardInterrupt:
        console.line(f"{name}: interrupted; every process it started has ended")
        return INTERRUPTED
    finally:
        if keep:
            console.line(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        raise DemoError("no java found: install a JDK (17 or 21) and set JAVA_HOME or PATH")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
