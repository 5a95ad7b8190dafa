"""The demonstration of tailing logs, in its short form."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH, in_long
from tests.demos.files.process import list_processes, session_members
from tests.demos.logs.counting import count_lines
from tests.kit.rotating import RotatingLog
from tests.spark.demo_runs import count_kills, ended_demo, run_demo
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

DEMO = "tests.demos.logs"


@in_long  # tests of kills stop the same processes
def test_quick_demo_has_every_line_once(seed: int, tmp_path: Path) -> None:
    output = run_demo(DEMO, f"--seed={seed}", directory=tmp_path)
    assert count_kills(output) == 2
    assert re.search(r"each of the [\d,]+ lines exactly once", output)
    rotations = re.findall(r"^a\w+\.log +[\w, ]+? {2,}(\d+) ", output, flags=re.MULTILINE)
    assert len(rotations) == 2, output
    assert all(int(times) > 1 for times in rotations), output


# All demonstrations handle signals the same way, as the tests of the first one show.
@pytest.mark.parametrize("number", [*[signal.SIGTERM] * THOROUGH, signal.SIGKILL], ids=lambda number: number.name)
def test_ended_demo_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    with ended_demo(DEMO, by=number, directory=tmp_path) as demo:
        wait_until(lambda: len(children_of(demo)) == 2, "the writer and the application")
        children = children_of(demo)
    wait_until(lambda: not living(children) and not any(map(session_members, children)), "the end of both")


def children_of(process: int) -> list[int]:
    return [child.number for child in list_processes() if child.parent == process and child.state != "Z"]


def living(processes: list[int]) -> set[int]:
    return {process.number for process in list_processes() if process.state != "Z"} & {*processes}


# ------------------------------------------------------------------------------- the count

LINES = [f"line {number}" for number in range(20)]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs of twenty lines in three files."""
    log = RotatingLog(tmp_path / "logs" / "app.log", compressed=True)
    for first, end in ((0, 5), (5, 12)):
        log.write(LINES[first:end])
        log.rotate()
    log.write(LINES[12:])
    log.close()
    return log.path.parent


def write_parquet(directory: Path, found: list[str]) -> Path:
    from tests.demos.files.check import connect

    directory.mkdir()
    connection: DuckDBPyConnection = connect()
    connection.execute("CREATE TABLE rows (log VARCHAR, line VARCHAR)")
    connection.executemany("INSERT INTO rows VALUES ('app.log', ?)", [[line] for line in found])
    connection.execute(f"COPY rows TO '{directory}/part.parquet'")
    return directory


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (LINES, (0, 0, 0)),
        (LINES[1:], (1, 0, 0)),
        ([*LINES, LINES[7]], (0, 1, 0)),
        ([*LINES, "li"], (0, 0, 1)),
    ],
    ids=["exact", "lost", "twice", "torn"],
)
def test_count_finds_every_mistake(logs: Path, found: list[str], wrong: tuple[int, ...], tmp_path: Path) -> None:
    (count,) = count_lines(logs, ["app.log"], write_parquet(tmp_path / "parquet", found))
    assert (count.files, count.written) == (3, 20)
    assert (count.missing, count.duplicated, count.foreign) == wrong
    assert count.exact == (wrong == (0, 0, 0))
