"""The check of the soak finds planted faults, a run continues after the former run, and ends only its processes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from ftfile.core.errors import Unavailable
from tests.cluster.cluster import wait_for
from tests.demos.files.process import session_members
from tests.demos.files.report import Console
from tests.soak.bugs import BUGS
from tests.soak.check import check_rows, check_words, fetch, list_published
from tests.soak.job import note
from tests.soak.measure import FIELDS, table
from tests.soak.place import Place, Server
from tests.soak.progress import VARIABLE, Progress, RoundPlan, end_left_processes, lock
from tests.soak.records import Records
from tests.soak.round import Round, RoundFailed, check_round, draw_counts, find_inexcusable
from tests.soak.rows import ROW_IN_DUCKDB, write_input
from tests.soak.strikes import draw_strikes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.demos.files.hdfs_path import HdfsPath

ROWS = 300
ROOT = Path(__file__).parents[2]


def numbers(first: int, end: int, more: str = "") -> str:
    """Return a query of the rows with these numbers, and of more numbers."""
    return f"SELECT {', '.join(ROW_IN_DUCKDB)} FROM (SELECT range AS id FROM range({first}, {end}) {more})"


def publish(directory: Path, name: str, query: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    options = "PARQUET" if name.endswith("parquet") else "JSON"
    duckdb.sql(f"COPY ({query}) TO '{directory / name}' (FORMAT {options})")


def dump(home: Path, query: str) -> None:
    publish(home / "dumped", "part.parquet", f"SELECT word, count(*) AS n FROM ({query}) GROUP BY word")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place after a round in which nothing went wrong."""
    publish(tmp_path / "rows", "1.parquet", numbers(0, 100))
    publish(tmp_path / "rows", "2.parquet", numbers(100, ROWS))
    publish(tmp_path / "rows/_ftfile", "staged.parquet", numbers(0, 5))
    publish(tmp_path / "followed", "1.json", numbers(0, ROWS))
    dump(tmp_path, numbers(0, ROWS))
    return Place(tmp_path)


def faults(place: Place, progress: Progress | None = None) -> list[str]:
    plan = RoundPlan(number=0, place="local", counts=[100, ROWS - 100])
    return check_round(place, (progress or Progress()).state("local"), plan)[0]


def test_a_right_round_has_no_fault_and_the_next_one_reads_only_new_files(place: Place) -> None:
    plan = RoundPlan(number=0, place="local", counts=[100, ROWS - 100])
    found, state = check_round(place, Progress().state("local"), plan)
    assert not found
    assert (state.files, state.rows) == (2, ROWS)
    assert state.published == {"rows": ["1.parquet", "2.parquet"], "followed": ["1.json"]}
    publish(place.home / "rows", "3.parquet", numbers(ROWS, ROWS + 9))
    publish(place.home / "followed", "2.json", numbers(ROWS, ROWS + 9))
    dump(place.home, numbers(0, ROWS + 9))
    assert not check_round(place, state, RoundPlan(number=1, place="local", counts=[9]))[0]
    (place.home / "rows/1.parquet").unlink()
    assert check_round(place, state, RoundPlan(number=1, place="local", counts=[9]))[0] == [
        "rows: 1.parquet is missing"
    ]


def test_a_lost_row_is_found(place: Place) -> None:
    publish(place.home / "rows", "2.parquet", numbers(100, ROWS - 1))
    publish(place.home / "followed", "1.json", numbers(1, ROWS))
    assert faults(place) == ["rows: 1 rows lost, the first: 299", "followed: 1 rows lost, the first: 0"]


def test_a_doubled_row_is_found(place: Place) -> None:
    publish(place.home / "rows", "3.parquet", numbers(7, 8))
    publish(place.home / "followed", "1.json", numbers(0, ROWS, "UNION ALL SELECT 8 UNION ALL SELECT 9"))
    assert faults(place) == [
        "rows: 1 rows more than once, the first: 7",
        "followed: 2 rows more than once, the first: 8, 9",
    ]


def test_a_foreign_row_and_a_changed_row_are_found(place: Place) -> None:
    publish(place.home / "rows", "3.parquet", numbers(ROWS, ROWS + 1))
    changed = f"SELECT id, word, if(id = 5, 'no', text) AS text FROM ({numbers(0, ROWS)})"
    publish(place.home / "followed", "1.json", changed)
    assert faults(place) == [
        "rows: 1 rows foreign or of another round, the first: 300",
        "followed: 1 rows with other contents, the first: 5",
    ]


def test_a_wrong_count_of_a_word_is_found(place: Place) -> None:
    dump(place.home, numbers(0, ROWS, "UNION ALL SELECT 3"))
    word = duckdb.sql(f"SELECT word FROM ({numbers(3, 4)})").fetchall()[0][0]
    assert faults(place) == [f"words: 1 words with a wrong count, the first: {word}"]
    dump(place.home, numbers(4, ROWS))
    assert faults(place)[0].startswith("words: 4 words with a wrong count")


@pytest.mark.parametrize(("count", "twice"), [("NULL", False), ("1", False), ("NULL", True)])
def test_a_word_that_is_null_is_found(place: Place, count: str, *, twice: bool) -> None:
    words = f"SELECT word, count(*) AS n FROM ({numbers(0, ROWS)}) GROUP BY word"
    nulls = f" UNION ALL SELECT NULL, {count}" * (1 + twice)
    publish(place.home / "dumped", "part.parquet", words + nulls)
    wrong = f"words: {1 + twice} words with a wrong count, the first: None"
    assert faults(place)[0].startswith(wrong)
    assert len(faults(place)) == 1 + twice


def test_a_broken_file_is_found(place: Place) -> None:
    (place.home / "rows/2.parquet").write_bytes(b"PAR1")
    assert faults(place)[0].startswith("rows: DuckDB cannot read the files: ")
    assert check_words(f"{place.home}/none/*.parquet", ROWS)


def test_files_elsewhere_are_copied_and_no_file_means_that_all_rows_are_lost(place: Place) -> None:
    names = list_published(place.home / "rows").new
    assert fetch(place.home / "rows", names, place.home / "copies") == [
        str(place.home / "rows" / each) for each in names
    ]
    assert check_rows([], 0, 3) == ["3 rows lost, the first: 0, 1, 2"]


def test_an_error_that_no_kill_excuses_is_found() -> None:
    lost = json.dumps({"query": "rows", "error": "ftfile.core.errors.Unavailable: connection refused"})
    replayed = json.dumps({"query": "rows", "error": "ftfile.core.errors.ReplayMismatch: batch 7"})
    assert not find_inexcusable([lost])
    assert find_inexcusable([lost, replayed]).startswith("a query failed with ReplayMismatch: ftfile")


def raised(error: Exception, file: str, cause: Exception | None = None) -> Exception:
    """Return an error that code in a file has raised, after another one."""
    code = compile("def fail(error, cause):\n    raise error from cause", file, "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        names["fail"](error, cause)
    except Exception as caught:
        return caught
    raise AssertionError


class OfJvm(Exception):
    """An error of Spark, as PySpark has it: only its cause has the traceback of the task."""

    def __init__(self, text: str, trace: str = "", cause: Exception | None = None) -> None:
        super().__init__(text)
        self._stackTrace, self._cause = trace, cause


def inexcusable(tmp_path: Path, error: object) -> str:
    """Return the fault in a round in which a query has failed by a kill, and then by this error."""
    path = tmp_path / "failures.jsonl"
    path.unlink(missing_ok=True)
    for each in (ConnectionRefusedError(111, "Connection refused"), error):
        note({"failures": str(path)}, "rows", each)
    return find_inexcusable([*path.read_text().splitlines(), '{"time": 1, "err'])


OWN, SPARKS = "/env/site-packages/ftfile/log/publish.py", "/env/pyspark.zip/pyspark/worker.py"


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_bug_of_ftfile_is_found_in_the_driver_and_in_a_task(tmp_path: Path, name: str) -> None:
    bug = raised(BUGS[name](7), OWN)
    assert f"{name}: 7" in inexcusable(tmp_path, bug)
    text = "".join(traceback.format_exception(bug))
    of_task = OfJvm("Task 0 failed", f"java.io.IOException\nCaused by: PythonException: {text}\n\tat Task.run")
    assert f"{name}: 7" in inexcusable(tmp_path, OfJvm("Writing job failed.", cause=of_task))
    assert f"{name}: 7" in inexcusable(tmp_path, f"the log of a pipeline {'.' * 5_000}\n{text}")


@pytest.mark.parametrize("is_struck", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_failure_in_the_last_second_is_judged(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_struck: bool, is_repeated: bool
) -> None:
    bug = raised(KeyError(7), OWN)
    trace = "".join(traceback.format_exception(bug))
    (place.home / "application.log").write_text(trace.replace("7", "'of another round'"))
    failures = place.home / "failures.jsonl"
    plan = RoundPlan(number=0, place="local", counts=[ROWS], strikes={"kill jvm": 1})
    played = Round(place, plan, random.Random(1), tmp_path / "measured.csv", Console(sys.stderr), lambda: None)

    def accompany(_: object) -> bool:
        assert not failures.exists(), "the application is started again"
        failures.touch()
        if is_repeated:  # only the output of the application has the failure of a task that Spark repeats
            with (place.home / "application.log").open("a") as file:
                file.write(trace)
        else:
            note({"failures": str(failures)}, "rows", bug)
        return is_struck

    ended = SimpleNamespace(exit_code=0, kill=lambda: None)
    monkeypatch.setattr(played, "_begin", lambda: ended)
    monkeypatch.setattr(played, "_accompany", accompany)
    monkeypatch.setattr("tests.soak.round.Sampler", lambda *_: nullcontext(SimpleNamespace(count=int)))
    with pytest.raises(RoundFailed, match="KeyError: 7"):
        played.run(float("inf"))


def test_errors_that_kills_cause_are_excused(tmp_path: Path) -> None:
    for error in (
        raised(EOFError(), OWN),
        raised(BrokenPipeError(32, "Broken pipe"), OWN),
        raised(Py4JNetworkError("Answer from Java side is empty"), SPARKS),
        raised(AttributeError("'NoneType' object has no attribute 'sc'"), SPARKS),  # the JVM was killed
        raised(Unavailable("open", "a", "it has no field"), OWN, raised(KeyError("field"), OWN)),
        OfJvm("java.lang.AssertionError: assertion failed"),
    ):
        assert not inexcusable(tmp_path, error)
    again = raised(KeyError("field"), OWN, raised(Unavailable("open", "a", "refused"), OWN))
    assert "KeyError: 'field'" in inexcusable(tmp_path, again)


def test_input_and_strikes_are_repeatable(tmp_path: Path) -> None:
    assert draw_counts(1, 2, Place) == draw_counts(1, 2, Place) != draw_counts(1, 3, Place)
    place = Place(tmp_path)
    place.servers = dict.fromkeys(("namenode", "datanode0"), Server(*(list,) * 4))  # nothing is struck
    drawn = [draw_strikes(random.Random(seed), 200, place) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert {"kill driver", "kill jvm", "stop python", "kill namenode", "stop datanode"} <= {
        strike.title for strike in drawn[0]
    }
    for _ in range(2):
        write_input(tmp_path, 4, 10, [3, 5])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "00000004.txt": "10 3\n",
        "00000005.txt": "13 5\n",
    }


def test_the_newest_record_of_a_log_elsewhere_is_found_when_its_server_responds(tmp_path: Path) -> None:
    class Remote:
        is_up = False

        def iterdir(self) -> Iterator[Path]:
            if not self.is_up:
                raise ConnectionRefusedError
            return tmp_path.iterdir()

    log = Remote()
    records = Records(cast("HdfsPath", log))
    assert records.newest() is None
    log.is_up = True
    wait_for(lambda: records.newest() is not None, "a listing")
    assert records.newest() == ""
    for name in ("_1.record", "_2.record", "_3.hint"):
        (tmp_path / name).touch()
        wait_for(lambda: records.newest() == min(name, "_2.record"), "the next record")  # noqa: B023 - is called at once


def test_progress_is_one_line_for_each_round_and_is_read_again(tmp_path: Path) -> None:
    progress = Progress(underway=RoundPlan(number=2, place="local", counts=[4], strikes={"kill jvm": 1}))
    progress.state("local").rows = 7
    progress.rounds = [
        {"round": 0, "place": "local", "strikes": {"kill jvm": 2, "stop jvm": 5}, "rows": 3},
        {"round": 1, "place": "steady", "strikes": {}, "rows": 4},
    ]
    path = tmp_path / "progress.json"
    assert Progress.read(path) == Progress()
    progress.write(path)
    assert Progress.read(path) == progress
    assert (progress.kills(), progress.rows(["local"])) == (2, 3)
    lines = path.read_text().splitlines()
    assert json.loads(lines[3].rstrip(",")) == progress.rounds[0]


def test_only_the_processes_of_the_former_run_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    own = subprocess.Popen(sleep, env={**os.environ, VARIABLE: str(tmp_path)})
    other = subprocess.Popen(sleep, env={**os.environ, VARIABLE: f"{tmp_path}-of-others"})
    try:
        assert end_left_processes(tmp_path) == 1
        assert own.wait() == -9
        assert other.poll() is None
    finally:
        for process in (own, other):
            process.kill()
            process.wait()


def test_frozen_processes_end_with_the_process_that_froze_them(tmp_path: Path) -> None:
    freezes = f"""
import pathlib, time
from tests.cluster.cluster import ENDS_WITH_PARENT
from tests.demos.files.process import SessionApp
app = SessionApp([*ENDS_WITH_PARENT, "sleep", "1000"], pathlib.Path({str(tmp_path / "log")!r}), {{}})
app.freeze()
print(app.session, flush=True)
time.sleep(1000)
"""
    owner = subprocess.Popen([sys.executable, "-c", freezes], stdout=subprocess.PIPE, cwd=ROOT)
    assert owner.stdout is not None
    session = int(owner.stdout.readline())
    assert session_members(session)
    owner.kill()
    owner.communicate()
    wait_for(lambda: not session_members(session), "the end of the frozen processes")


def test_a_second_soak_does_not_get_the_lock(tmp_path: Path) -> None:
    held = lock(tmp_path)
    assert held is not None
    assert lock(tmp_path) is None
    os.close(held)
    again = lock(tmp_path)
    assert again is not None
    os.close(again)


def test_the_table_compares_the_quarters_of_the_longest_life(tmp_path: Path) -> None:
    path = tmp_path / "measured.csv"
    lines = [",".join(FIELDS)]
    lines += [f"{second},local,0,7,{second},driver,1,50,9,3,0" for second in range(50)]
    lines += [f"{second},local,1,8,{second},driver,1,{100 + second},10,4,2" for second in range(100)]
    path.write_text("\n".join(lines))
    printed = table(path).splitlines()
    assert printed[0] == "local, round 1: 99 batches in 99 s"
    assert [line.split() for line in printed if "rss_mb" in line] == [["driver", "rss_mb", "120.5", "188.5", "+56.4%"]]
    path.write_text("\n".join(lines[:9]))
    assert table(path).startswith("no application has lived")
