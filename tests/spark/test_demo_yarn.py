"""The demonstration on YARN, in its short form, and its comparison of lines."""

from __future__ import annotations

import io
import re
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.cluster import command_of, wait_for
from tests.crash.share import in_long
from tests.demos.files.process import list_processes
from tests.demos.files.report import Console
from tests.demos.yarn.lines import check_lines, count_lines
from tests.spark.demo_runs import ended_demo, run_demo

if TYPE_CHECKING:
    from collections.abc import Sequence

DEMO = "tests.demos.yarn"
TEXT = ("one", "two", "two", "")


@in_long  # test_yarn_kills.py kills the same processes
def test_quick_demo_is_exact_after_kills(seed: int, tmp_path: Path) -> None:
    output = run_demo(DEMO, f"--seed={seed}", directory=tmp_path)
    victims = re.findall(r"SIGKILL to (an executor|the \w+(?: master| of the application master)?):", output)
    assert len(set(victims)) == 2, output
    assert output.count("both streams have committed a batch since the kill") == 2
    assert output.count("as often as it occurs") == 2


@in_long  # test_yarn_kills.py kills the same processes
def test_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    with ended_demo(DEMO, by=signal.SIGINT, directory=tmp_path):
        wait_for(lambda: containers(tmp_path), "a container")
    assert not containers(tmp_path)
    # Servers, and `spark-submit`, name a directory of the demonstration in their command line.
    assert not [command for process in list_processes() if str(tmp_path) in (command := command_of(process.number))]


def containers(directory: Path) -> list[int]:
    """Return the processes of containers of a YARN in a directory."""
    mark = f"LOCAL_DIRS={directory}/".encode()
    return [process.number for process in list_processes() if mark in environment_of(process.number)]


def environment_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/environ").read_bytes()
    except OSError:  # the process has ended
        return b""


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (("one", "two", "two", ""), "every line as often as it occurs (4 lines)"),
        (("one", "two", "two"), "1 lines MISSING (3 lines)"),
        (("one", "one", "two", "two", ""), "1 lines TOO OFTEN (5 lines)"),
        (("one", "two", "two", "", "three"), "1 lines NOT IN THE TEXT (5 lines)"),
        (("two", "two", "two", "", "three"), "1 lines MISSING, 1 lines TOO OFTEN, 1 lines NOT IN THE TEXT (5 lines)"),
    ],
)
def test_lines_are_compared(lines: Sequence[str], text: str, tmp_path: Path) -> None:
    for number, line in enumerate(lines):
        (tmp_path / f"{number}.txt").write_text(f"{line}\n")
    printed = io.StringIO()
    is_exact = check_lines(Console(printed), Counter(TEXT), count_lines(tmp_path.iterdir()))
    assert is_exact == (tuple(lines) == TEXT)
    first, *_ = printed.getvalue().splitlines()
    assert first == f"plain reader of the visible files: {text}"
