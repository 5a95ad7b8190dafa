from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.share import THOROUGH
from tests.demos.files import data
from tests.demos.files.check import check_directory, connect
from tests.demos.files.kill import LONGEST_DELAY_S, Hit, Kill, Moment, hunt, plan_kills
from tests.demos.files.process import SparkApp, list_processes, session_members
from tests.demos.files.sinks import (
    State,
    Target,
    is_log_complete,
    observe,
    recorded_batches,
    unpublished_parts,
)
from tests.spark.demo_runs import count_kills, ended_demo, run_demo
from tests.spark.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

DEMO = "tests.demos.files"
ROWS, FILES = 337, 4
QUERY_ID = "4d1e8f0c-0000-4000-8000-000000000001"


def test_quick_demo_is_exact_after_kills(seed: int, tmp_path: Path) -> None:
    output = run_demo(DEMO, f"--seed={seed}", directory=tmp_path)
    assert count_kills(output) == 2
    assert re.search(r"record of batch (\d+) there, Spark's commits/\1 not", output)
    assert output.count("each of the 60,000 flights exactly once") == 2


@pytest.mark.skipif(not THOROUGH, reason="Kafka's proof kills on HDFS, too, and test_on_hdfs.py: in `make long`")
def test_quick_demo_on_hdfs_is_exact_after_kills(seed: int, tmp_path: Path) -> None:
    output = run_demo(DEMO, "--fs=hdfs", f"--seed={seed}", directory=tmp_path)
    victims = re.findall(r"SIGKILL to (the NameNode|a DataNode|\d+ processes)", output)
    assert {victim.lstrip("0123456789 ") for victim in victims} == {"the NameNode", "a DataNode", "processes"}
    assert output.count("each of the 30,000 flights exactly once") == 2


# The first two signals are handled the same way.
ENDS = [*[signal.SIGINT] * THOROUGH, signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
def test_ended_demo_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    # Into Spark's sink: the choice of the sink does not matter here.
    with ended_demo(DEMO, "--sink=spark", by=number, directory=tmp_path) as demo:
        application = wait_for(lambda: application_of(demo))
    wait_for(lambda: session_members(application) == ())


def application_of(demo: int) -> int:
    """Return the session of the demo's Spark application once its JVM runs, 0 before."""
    children = [process.number for process in list_processes() if process.parent == demo]
    return next((child for child in children if len(session_members(child)) > 1), 0)


def wait_for(look: Callable[[], int]) -> int:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_application_is_frozen_and_killed_over_process_groups(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # Spark's Python daemon leaves the process group in the same way.
    script.write_text("import os, time\nif os.fork() == 0:\n    os.setpgid(0, 0)\ntime.sleep(600)\n")
    before = {process.number for process in list_processes()}
    app = SparkApp(script, tmp_path, tmp_path / "log", os.environ)
    try:
        children = [process.number for process in list_processes() if process.parent == os.getpid()]
        session = next(child for child in children if child not in before and os.getsid(child) == child)
        wait_for(lambda: len(session_members(session)) == 2)
        assert app.freeze() == 2
        members = session_members(session)
        wait_for(lambda: {each.state for each in list_processes() if each.number in members} == {"T"})
        app.thaw()
        wait_for(lambda: "T" not in {each.state for each in list_processes() if each.number in members})
    finally:
        app.kill()
    assert session_members(session) == ()
    assert app.exit_code == -signal.SIGKILL


# ------------------------------------------------------------------------------- the kills


def test_plan_is_drawn_from_the_seed() -> None:
    plans = {seed: plan_kills(seed, ("json", "parquet"), 50) for seed in range(200)}
    assert plans[7] == plan_kills(7, ("json", "parquet"), 50)
    assert len(set(plans.values())) > 150
    for plan in plans.values():
        deaths = {(kill.target, kill.moment) for kill in plan}
        assert deaths == set(product(("json", "parquet"), Moment))
        assert len(plan) == len(deaths)
        batches = [kill.not_before for kill in plan]
        assert batches == sorted(set(batches))
        assert batches[0] >= 1
        assert batches[-1] <= 40


class SwiftApp:
    """A stream of Spark's sink with batches of a few milliseconds. It stands still while it is frozen."""

    def __init__(self, target: Target, batches: int) -> None:
        self._steps = [
            step
            for batch in range(batches)
            for step in (
                target.checkpoint / "offsets" / f"{batch}",
                Path(str(target.output), f"{batch}.json"),
                Path(str(target.log), f"{batch}"),
                target.checkpoint / "commits" / f"{batch}",
            )
        ]
        for directory in {step.parent for step in self._steps}:
            directory.mkdir(parents=True, exist_ok=True)
        self._goes_on = threading.Lock()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def exit_code(self) -> int | None:
        return None if self._thread.is_alive() else 0

    def freeze(self) -> int:
        self._goes_on.acquire()
        return 1

    def thaw(self) -> None:
        self._goes_on.release()

    def kill(self) -> None:
        self._steps.clear()
        self.thaw()

    def _run(self) -> None:
        while self._steps:
            with self._goes_on:
                if self._steps:
                    self._steps.pop(0).touch()
            time.sleep(0.004)


@pytest.mark.parametrize("moment", Moment)
def test_a_stream_is_hit_however_soon_its_batches_are_over(moment: Moment, tmp_path: Path) -> None:
    target = target_in(tmp_path, "spark")
    app: Any = SwiftApp(target, batches=4_000)
    hit = hunt(app, Kill("json", moment, not_before=1, delay_s=LONGEST_DELAY_S), [target], lambda: None)
    assert hit is not None
    assert hit.counts


STATES = {
    "nothing": State(begun=-1, recorded=-1, committed=-1),
    "first batch": State(begun=0, recorded=-1, committed=-1),
    "between batches": State(begun=4, recorded=4, committed=4),
    "writing": State(begun=5, recorded=4, committed=4),
    "window": State(begun=5, recorded=5, committed=4),
}


def target_in(home: Path, sink: str) -> Target:
    return Target("json", sink, home / "out", home / "checkpoint", "json", "", home / "read")


@pytest.mark.parametrize("sink", ["ftfile", "spark"])
@pytest.mark.parametrize("name", STATES)
def test_states_are_read_from_outside(name: str, sink: str, tmp_path: Path) -> None:
    state = STATES[name]
    target = target_in(tmp_path, sink)
    for log, newest in (("offsets", state.begun), ("commits", state.committed)):
        (target.checkpoint / log).mkdir(parents=True)
        for batch in range(newest + 1):
            (target.checkpoint / log / str(batch)).touch()
        (target.checkpoint / log / f".{newest + 1}.tmp").touch()
    (target.checkpoint / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    Path(str(target.log)).mkdir(parents=True)
    write_log(target, state.recorded)
    assert observe(target) == state
    assert recorded_batches(target) == list(range(state.recorded + 1))
    assert is_log_complete(target) == (state.recorded == state.committed)
    assert state.in_window == (name == "window")
    assert state.in_flight == (name in {"first batch", "writing"})
    for moment, counts in ((Moment.WINDOW, state.in_window), (Moment.WRITING, state.in_flight)):
        kill = Kill("json", moment, not_before=0, delay_s=0.0)
        hit = Hit(kill, {"json": state}, unpublished=0, processes=2, thawed=0, killed_at_s=0.0)
        assert hit.counts == counts


@pytest.mark.parametrize(("batches", "complete"), [((0, 1, 2), True), ((0, 1, 1, 2), False), ((0, 2), False)])
def test_log_holds_each_batch_once(batches: tuple[int, ...], complete: bool, tmp_path: Path) -> None:
    target = target_in(tmp_path, "ftfile")
    (target.checkpoint / "commits").mkdir(parents=True)
    (target.checkpoint / "commits" / "2").touch()
    (target.checkpoint / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    Path(str(target.log)).mkdir(parents=True)
    for version, batch in enumerate(batches):
        author = {"kind": "stream", "queryId": QUERY_ID, "batchId": batch}
        (Path(str(target.log)) / f"_{version:020}.record").write_text(json.dumps({"author": author}))
    assert is_log_complete(target) == complete


def test_unpublished_files_of_a_record_are_counted(tmp_path: Path) -> None:
    target = target_in(tmp_path, "ftfile")
    target.checkpoint.mkdir()
    (target.checkpoint / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    Path(str(target.log)).mkdir(parents=True)
    (Path(str(target.output)) / "a.json").touch()
    author = {"kind": "stream", "queryId": QUERY_ID, "batchId": 3}
    adds = [{"finalPath": "a.json"}, {"finalPath": "month=1/b.json"}]
    lines = [json.dumps({"author": author}), json.dumps({"adds": adds, "removes": []}), "checksum", ""]
    (Path(str(target.log)) / f"_{7:020}.record").write_text("\n".join(lines))
    assert unpublished_parts(target, 3) == 1


def write_log(target: Target, newest: int) -> None:
    if target.sink == "spark":
        for batch in range(newest + 1):
            (Path(str(target.log)) / (f"{batch}.compact" if batch == 3 else str(batch))).touch()
        (Path(str(target.log)) / f".{newest + 1}.tmp").touch()
        return
    stream = [{"kind": "stream", "queryId": QUERY_ID, "batchId": batch} for batch in range(newest + 1)]
    others = [{"kind": "stream", "queryId": "another", "batchId": 99}, {"kind": "maintenance"}]
    for version, author in enumerate(others[:1] + stream + others[1:]):
        (Path(str(target.log)) / f"_{version:020}.record").write_text(json.dumps({"author": author}) + "\nchecksum\n")
    (Path(str(target.log)) / f"_{99:020}.record.unfinished").touch()


# ------------------------------------------------------------------------------- the checker


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DuckDBPyConnection:
    connection = connect()
    # Every thousandth flight: all months occur, and nulls in every column that has nulls.
    data.load_flights(connection, tmp_path_factory.mktemp("csv"), None)
    connection.execute("DELETE FROM flights WHERE ordinal % 1000 > 0")
    return connection


@pytest.fixture(params=["json", "parquet"])
def output(request: pytest.FixtureRequest, source: DuckDBPyConnection, tmp_path: Path) -> Path:
    """A correct output: files of JSON, or Parquet partitioned by month."""
    directory = tmp_path / str(request.param)
    write_output(source, directory, "*")
    return directory


def write_output(source: DuckDBPyConnection, directory: Path, columns: str) -> None:
    directory.mkdir()
    names = ", ".join(column.name for column in data.COLUMNS)
    rows = f"(SELECT {columns} FROM flights) WHERE ordinal // 1000 % {FILES} ="
    for index in range(FILES):
        selected = f"SELECT {names} FROM {rows} {index} ORDER BY ordinal DESC"
        if directory.name == "json":
            source.execute(f"COPY ({selected}) TO '{directory}/part-{index}.json'")
        else:
            options = f"FORMAT parquet, PARTITION_BY month, FILENAME_PATTERN 'part-{index}-{{i}}'"
            source.execute(f"COPY ({selected}) TO '{directory}' ({options}, OVERWRITE_OR_IGNORE)")


def some_file(output: Path) -> Path:
    return max(output.rglob(f"*.{output.name}"))


def test_checker_finds_a_correct_output_exact(source: DuckDBPyConnection, output: Path) -> None:
    verdict = check_directory(source, output, output.name)
    assert verdict.exact
    assert verdict.rows == ROWS
    assert verdict.files == len(list(output.rglob(f"*.{output.name}")))


def test_checker_counts_a_lost_file(source: DuckDBPyConnection, output: Path) -> None:
    some_file(output).unlink()
    verdict = check_directory(source, output, output.name)
    assert not verdict.exact
    assert verdict.missing == ROWS - verdict.rows > 0
    assert (verdict.duplicated, verdict.foreign) == (0, 0)


@pytest.mark.parametrize("where", ["", "_ftfile/staged", ".hidden"])
def test_checker_counts_a_doubled_file(where: str, source: DuckDBPyConnection, output: Path) -> None:
    original = some_file(output)
    copy = output / where / original.relative_to(output).with_stem("copy")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(original, copy)
    verdict = check_directory(source, output, output.name)
    assert not verdict.exact
    assert verdict.duplicated == verdict.rows - ROWS > 0
    assert (verdict.missing, verdict.foreign) == (0, 0)


def test_checker_names_a_torn_file(source: DuckDBPyConnection, output: Path) -> None:
    torn = some_file(output)
    os.truncate(torn, torn.stat().st_size - 10)
    verdict = check_directory(source, output, output.name)
    assert not verdict.exact
    assert verdict.unreadable == (str(torn.relative_to(output)),)


CHANGES = {
    "integer": "{0} + 1",
    "number": "{0} + 0.5",
    "text": "{0} || '\\'",
    "instant": "{0} + INTERVAL 1 MICROSECOND",
}


@pytest.mark.parametrize("change", ["to null", "to another value"])
@pytest.mark.parametrize("file_format", ["json", "parquet"])
def test_checker_sees_a_change_in_each_column(
    file_format: str, change: str, source: DuckDBPyConnection, tmp_path: Path
) -> None:
    # One row without nulls for each column.
    complete = "SELECT ordinal FROM flights WHERE arr_delay + length(tailnum) IS NOT NULL ORDER BY ordinal"
    victims = [row[0] for row in source.execute(complete).fetchmany(len(data.COLUMNS))]
    replaced = []
    for column, victim in zip(data.COLUMNS, victims, strict=True):
        value = "NULL" if change == "to null" else CHANGES[column.kind].format(column.name)
        replaced.append(f"CASE WHEN ordinal = {victim} THEN {value} ELSE {column.name} END AS {column.name}")
    write_output(source, tmp_path / file_format, f"* REPLACE ({', '.join(replaced)})")
    verdict = check_directory(source, tmp_path / file_format, file_format)
    assert verdict.rows == ROWS
    assert verdict.missing == verdict.foreign == len(data.COLUMNS)
