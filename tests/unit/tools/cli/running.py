"""Runs of the command in tests: in this process or in a separate process, with or without a terminal."""

from __future__ import annotations

import functools
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from typer import testing
from typer.main import get_command

from ftfile.tools.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer.testing import Result

__all__ = ("COMMAND", "ENVIRONMENT", "answering", "documents", "in_terminal", "invoke", "lines", "run")

SOURCES = Path(__file__).parents[4] / "src"
COMMAND = (sys.executable, "-m", "ftfile.tools.cli")
PYTHONPATH = os.pathsep.join([str(SOURCES), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH, "TERM": "xterm-256color"}


# Typer builds all commands again for each run, which takes longer than most commands.
_made_once = functools.cache(get_command)


def invoke(arguments: Sequence[str], answer: str | None = None) -> Result:
    """Run the command in this process."""
    with mock.patch.object(testing, "_get_command", _made_once):
        return testing.CliRunner().invoke(app, arguments, input=answer, prog_name="ftfile")


def run(*arguments: object, code: int = 0, answer: str | None = None) -> Result:
    """Run the command in this process, and compare its exit code."""
    result = invoke([*map(str, arguments)], answer)
    assert result.exit_code == code, f"{result.exit_code}: {result.output}{result.exception!r}"
    assert "Traceback" not in result.output
    return result


def lines(*arguments: object) -> list[list[str]]:
    """Run the command, and return its table as a pipe receives it, without the heading."""
    return [line.split("\t") for line in run(*arguments).stdout.splitlines()[1:]]


def documents(*arguments: object, code: int = 0) -> list[Any]:
    """Run the command with `--json`, and return its documents, one for each line."""
    return [json.loads(line) for line in run(*arguments, "--json", code=code).stdout.splitlines()]


def in_terminal(columns: int, *arguments: object) -> str:
    """Run the command in a terminal of this width, and return the text on the terminal."""
    parent, child = pty.openpty()
    environment = {**ENVIRONMENT, "COLUMNS": str(columns), "LINES": "50"}
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    found = b""
    try:
        while piece := os.read(parent, 65_536):
            found += piece
    except OSError:  # the end of the output on Linux
        pass
    finally:
        os.close(parent)
    assert process.wait() == 0, found.decode()
    return found.decode().replace("\r\n", "\n")


def answering(answer: str, *arguments: object) -> tuple[str, str]:
    """Run the command in a terminal, and answer its question; return the output before and after the answer."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=child, stdout=child, stderr=child, env=ENVIRONMENT
    )
    os.close(child)
    before = after = b""
    try:
        while b"[y/N]" not in before:
            before += os.read(parent, 65_536)
        time.sleep(0.3)  # a running bar is redrawn ten times a second
        while select.select([parent], [], [], 0)[0]:
            before += os.read(parent, 65_536)
        os.write(parent, f"{answer}\n".encode())
        while piece := os.read(parent, 65_536):
            after += piece
    except OSError:  # the end of the output on Linux
        pass
    finally:
        os.close(parent)
    assert process.wait() == 0, after.decode()
    return before.decode(), after.decode()
