"""The programs of docs/python-writing.md, and processes that run them until they are killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("PAGE", "Program", "program_text", "wait_until")

PAGE = Path(__file__).parents[2] / "docs/python-writing.md"
TIMEOUT_S = 600.0  # for hangs only
POLL_S = 0.02


def program_text(heading: str, settings: Mapping[str, str]) -> str:
    """Return the program below a heading of the page, with each key of `settings` replaced where it occurs once."""
    section = PAGE.read_text().split(f"### {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None, heading
    text = found[1]
    for name, value in settings.items():
        assert text.count(name) == 1, name
        text = text.replace(name, value)
    return text


def wait_until(look: Callable[[], object], program: Program | None = None) -> None:
    """Wait until `look` returns a true value, while a program runs."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not look():
        assert program is None or program.is_running(), program
        assert time.monotonic() < deadline_s, "it takes too long"
        time.sleep(POLL_S)


class Program:
    """A process that runs a program; a `with` block kills it."""

    def __init__(self, text: str, home: Path) -> None:
        script, self._log = home / "program.py", home / "program.log"
        script.write_text(text)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([sys.executable, str(script)], stdout=log, stderr=log)

    def __enter__(self) -> Program:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def __repr__(self) -> str:
        return f"{self._process.args!r}: {self._process.poll()}, {self._log.read_text()[-3000:]}"

    def is_running(self) -> bool:
        """Return True until the process ends."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL. It must not have ended before."""
        self._process.kill()
        assert self._process.wait() == -signal.SIGKILL, self

    def end(self) -> int:
        """Wait for the end of the process, and return its code."""
        return self._process.wait(TIMEOUT_S)

    def output(self) -> str:
        """Return the output of this process and of earlier ones in the same directory."""
        return self._log.read_text()
