"""Streams of other programs' files where Sparks differ: offsets, limits, restarts, progress. On every Spark."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

import ftfile
from ftfile.log.format import layout
from ftfile.source.plan import position_of
from ftfile.source.plan_log import PlanLog
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.kit.rotating import RotatingLog
from tests.spark import deadly_files
from tests.spark.deadly_files import Death
from tests.spark.file_queries import AT_ONCE, AVAILABLE, FileQuery, lines
from tests.spark.following import limits_hold
from tests.spark.waiting import wait_until
from tests.unit.source.plans import add_plans, small_bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> FileQuery:
    return FileQuery(spark, tmp_path)


def test_a_growing_log_is_tailed_line_by_line(query: FileQuery) -> None:
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    running = query.start()
    try:
        wait_until(lambda: query.values() == lines(0, 3), "the first lines")
        log.write_text("half a line")
        log.write_text(", and its rest\nanother half")
        expected = ["half a line, and its rest", *lines(0, 3)]
        wait_until(lambda: query.values() == expected, "the line in two pieces")
        log.write_text("\n")
        wait_until(lambda: query.values() == ["another half", *expected], "the end of a line")
        if limits_hold(query.spark):
            wait_until(lambda: shown_backlog(running) == (1, 0), "the backlog in the progress")
    finally:
        running.stop()
        log.close()
    check_directory(open_filesystem(query.out), rows_of=lambda _: ())


def shown_backlog(running: StreamingQuery) -> tuple[int, int]:
    """Return the number of known files, and of unread bytes, in the newest progress."""
    assert running.lastProgress is not None
    shown = json.loads(running.lastProgress.json)["sources"][0]["latestOffset"]
    return shown["known"], shown["bytesBehind"]


def test_available_now_reads_what_is_there_within_limits(query: FileQuery) -> None:
    for number in range(5):
        (query.source / f"{number}.log").write_text(f"{number}\n")
    running = query.run(maxFilesPerTrigger="2")
    if limits_hold(query.spark):
        assert query.values() == list("01234")
        assert [progress.numInputRows for progress in running.recentProgress if progress.numInputRows] == [2, 2, 1]
    else:
        assert query.values() == list("01")


def test_once_reads_everything(query: FileQuery) -> None:
    for number in range(3):
        (query.source / f"{number}.log").write_text(f"{number}\n")
    query.start({"once": True}, maxFilesPerTrigger="1").awaitTermination()
    assert query.values() == (list("012") if limits_hold(query.spark) else ["0"])


def test_a_batch_has_at_most_so_many_bytes(query: FileQuery) -> None:
    (query.source / "large.log").write_text("".join(f"{line}\n" for line in lines(0, 1000)))
    running = query.run(maxBytesPerTrigger="20k")
    if limits_hold(query.spark):
        assert query.values() == lines(0, 1000)
        assert max(progress.numInputRows for progress in running.recentProgress) <= 20_480 // len(lines(0, 1)[0])


def test_latest_reads_what_comes_later_also_when_the_first_batch_is_repeated(query: FileQuery) -> None:
    """Scenario 2: the first batch fixes where the query began."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run(startingOffsets="latest")
    log.write(lines(3, 2))
    query.forget("commits", 0)
    query.run_all(startingOffsets="latest")
    assert query.values() == lines(3, 2)
    log.close()


def test_a_batch_that_is_repeated_has_the_same_rows(query: FileQuery) -> None:
    """Scenario 1: killed before Spark recorded the end of the batch."""
    with closing(RotatingLog(query.source / "app.log")) as log:
        for first in (0, 3):
            log.write(lines(first, 3))
            query.run()
        query.forget("commits", 1)
        log.write(lines(6, 3))
        query.run_all()
    assert query.values() == lines(0, 9)
    assert [version.batch_id for version in ftfile.open(query.out).history()] == [0, 1, 2]


def test_a_plan_of_which_spark_noted_nothing_is_used(query: FileQuery) -> None:
    """Scenario 1: killed after the plan was made and before Spark recorded the beginning of the batch."""
    with closing(RotatingLog(query.source / "app.log")) as log:
        log.write(lines(0, 3))
        query.run()
        log.write(lines(3, 3))
        begin = json.loads((query.checkpoint / "offsets" / "0").read_text().splitlines()[-1])
        options = {"path": str(query.source), "checkpointLocation": str(query.checkpoint), **AT_ONCE}
        reader: Any = FtFileDataSource({"fileFormat": "text", **options}).streamReader(
            StructType().add("value", "string")
        )
        assert reader.latestOffset(begin)["plan"] == 1
        log.write(lines(6, 2))
        running = query.run_all()
    assert query.values() == lines(0, 8)
    if limits_hold(query.spark):
        assert [progress.numInputRows for progress in running.recentProgress if progress.numInputRows] == [3, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_planning_is_killed_around_the_creation_of_a_plan(query: FileQuery, when: str) -> None:
    """Scenario 4: the planner is killed before its plan exists, or before it gets the result of its creation."""
    state = {"stateLocation": f"deadly+file:{query.home}/state"}
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run(**state)
    log.write(lines(3, 3))
    Death(when, whole=False).order(Path(os.environ[deadly_files.ORDER]))
    with pytest.raises(Exception, match=r"(?i)exited unexpectedly|crashed|EOF|terminated|exception"):
        query.run(**state)
    assert not Path(os.environ[deadly_files.ORDER]).exists()
    log.write(lines(6, 3))
    query.run_all(**state)
    assert query.values() == lines(0, 9)
    log.close()


def test_a_plan_that_comes_when_its_place_was_trimmed_ends_the_query(
    query: FileQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scenario 5: the planner stands still before it creates the record, and others continue until it is trimmed."""
    state = {"stateLocation": f"slow:{tmp_path}/state"}
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run(**state)
    (tmp_path / "state/hold-records").touch()
    log.write(lines(3, 3))
    running = query.start(AVAILABLE, **state)
    wait_until((tmp_path / "state/held").exists, "a plan that is about to be created")
    position = position_of(json.loads((query.checkpoint / "offsets/0").read_text().splitlines()[-1]))
    assert position is not None
    fs = open_filesystem(f"{tmp_path}/state/{position.log_id}")
    small_bounds(monkeypatch)
    add_plans(PlanLog(fs, position.log_id, "other run"), 30, position)
    assert not fs.exists(layout.record_path(position.plan + 1))
    (tmp_path / "state/hold-records").unlink()
    with pytest.raises(Exception, match=r"StateLost.*Stop this run"):
        running.awaitTermination()
    assert fs.exists(layout.record_path(position.plan + 1))  # no process reads this record
    with pytest.raises(Exception, match=r"StateLost.*the oldest remaining plan"):
        query.run(**state)
    assert query.values() == lines(0, 3)
    log.close()


def test_a_lost_state_is_an_error(query: FileQuery, tmp_path: Path) -> None:
    """Scenario 7."""
    state = {"stateLocation": str(tmp_path / "state")}
    (query.source / "app.log").write_text("one\n")
    query.run(**state)
    shutil.rmtree(tmp_path / "state")
    (query.source / "b.log").write_text("two\n")
    with pytest.raises(Exception, match=r"StateLost.*new checkpointLocation"):
        query.run(**state)
    assert query.values() == ["one"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fileFormat": "parquet"}, r"columns of fileFormat=parquet are not known.*\.schema\("),
        ({"maxFilePerTrigger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"startingVersion": "1"}, "'startingVersion' is for following"),
        ({"checkpointLocation": ""}, r"(?s)'checkpointLocation'.*'stateLocation'"),
    ],
)
def test_mistakes_are_told_before_the_first_batch(query: FileQuery, options: dict[str, str], text: str) -> None:
    (query.source / "a.log").write_text("one\n")
    with pytest.raises(Exception, match=text):
        query.run(**options)
    assert not (query.checkpoint / "offsets" / "0").exists()


def test_what_is_at_the_path_is_looked_at_before_the_first_batch(query: FileQuery, tmp_path: Path) -> None:
    query.source = tmp_path / "nowhere"
    with pytest.raises(Exception, match=r"path=.* does not exist"):
        query.run()
    query.source = tmp_path / "written"
    query.spark.range(3).write.format("ftfile").mode("append").save(str(query.source))
    with pytest.raises(Exception, match=r"an ftfile directory.*omit fileFormat"):
        query.run()
    assert not (query.checkpoint / "offsets" / "0").exists()
