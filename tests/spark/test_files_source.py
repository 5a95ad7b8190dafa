"""Streams of other programs' files in Spark: each row once, over restarts, rotations and kills."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.demos.files.process import SparkApp, own_environment
from tests.kit.rotating import RotatingLog
from tests.spark import source_job
from tests.spark.file_queries import AT_ONCE, AVAILABLE, FileQuery, lines
from tests.spark.following import limits_hold
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> FileQuery:
    return FileQuery(spark, tmp_path)


# ------------------------------------------------------------------------------- a log that grows


def test_a_last_line_without_an_end_counts_when_the_file_is_left_alone(query: FileQuery) -> None:
    (query.source / "app.log").write_text("one\ntwo")
    query.run()
    assert query.values() == ["one"]
    query.run(closeInactive="0s")
    assert query.values() == ["one", "two"]


# ------------------------------------------------------------------------------- a driver that stops


def test_another_driver_goes_on_and_the_late_one_ends(query: FileQuery) -> None:
    """Scenario 3: a driver is stopped within a batch, another takes over, and the first one resumes."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 400))
    app = started_app(query, "home", maxBytesPerTrigger="1k")
    try:
        wait_until(lambda: len(query.values()) > 20 or app.exit_code is not None, "a few batches")
        assert app.exit_code is None, app.last_words()
        app.freeze()
        log.rotate()
        log.write(lines(400, 10))
        query.run_all(maxBytesPerTrigger="1g")
        assert query.values() == lines(0, 410)
        # Without new lines, a driver at the end of the files would continue without an error.
        log.write(lines(410, 5))
        app.thaw()
        wait_until(lambda: app.exit_code is not None, "the end of the late driver")
        assert app.exit_code != 0
    finally:
        app.kill()
    query.run()
    assert query.values() == lines(0, 415)
    check_directory(open_filesystem(query.out), rows_of=lambda _: ())
    log.close()


def started_app(query: FileQuery, name: str, **options: str) -> SparkApp:
    """Start the query in a separate application."""
    home = query.home / name
    (home / "scratch").mkdir(parents=True)
    where = {"source": str(query.source), "out": query.out, "checkpoint": str(query.checkpoint), "home": str(home)}
    reader = {"fileFormat": "text", "checkpointLocation": str(query.checkpoint), **AT_ONCE, **options}
    (home / "job.json").write_text(json.dumps({**where, "reader": reader, "writer": {}}))
    environment = {**own_environment(home), "PYTHONPATH": os.environ["PYTHONPATH"]}
    return SparkApp(Path(source_job.__file__), home / "job.json", home / "log", environment)


def test_a_query_goes_on_without_bytes_that_are_lost(query: FileQuery, tmp_path: Path) -> None:
    """A log is copied to another directory and truncated while its batch waits: the error names the option."""
    for number, name in enumerate(["app.log", "other.log"]):
        (query.source / name).write_text("".join(f"{line}\n" for line in lines(10 * number, 10)))
    query.run()
    query.forget("commits", 0)
    shutil.rmtree(query.out)
    shutil.copy(query.source / "app.log", tmp_path)
    os.truncate(query.source / "app.log", 0)
    with pytest.raises(Exception, match="FileChanged") as raised:
        query.run()
    option = re.search(r"skipRanges=([\w.,:%/-]+)", str(raised.value))
    assert option is not None
    query.run_all(skipRanges=option[1])
    assert query.values() == lines(10, 10)
    with (query.source / "app.log").open("a") as log:
        log.writelines(f"{line}\n" for line in lines(20, 5))
    query.run()
    assert query.values() == lines(10, 15)


# ------------------------------------------------------------------------------- checkpoints and states


def test_a_copied_checkpoint_reads_on_by_itself(query: FileQuery, tmp_path: Path) -> None:
    """Scenario 6, copied: state and checkpoint are one directory, and both copies continue."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run()
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    log.write(lines(3, 3))
    query.run()
    other = FileQuery(query.spark, tmp_path)
    other.checkpoint, other.out = tmp_path / "copy", str(tmp_path / "other")
    other.write(other.frame(), AVAILABLE, onGap="accept").awaitTermination()
    log.close()
    assert query.values() == lines(0, 6)
    assert other.values() == lines(3, 3)


def test_a_restored_checkpoint_repeats_the_plans_that_were_made(query: FileQuery, tmp_path: Path) -> None:
    """Scenario 6, restored, with the state elsewhere: the batches are repeated, and the sink requires a decision."""
    state = {"stateLocation": str(tmp_path / "state")}
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run(**state)
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    log.write(lines(3, 3))
    query.run(**state)
    shutil.rmtree(query.checkpoint)
    shutil.move(tmp_path / "copy", query.checkpoint)
    log.write(lines(6, 3))
    log.close()
    for _ in range(1 if limits_hold(query.spark) else 3):
        query.write(query.frame(**state), AVAILABLE, onReplayMismatch="keep").awaitTermination()
    assert query.values() == lines(0, 9)


def test_a_deleted_checkpoint_is_a_new_query(query: FileQuery) -> None:
    """Scenario 6, deleted: all files are read again, and the sink requires a decision."""
    (query.source / "app.log").write_text("one\n")
    query.run()
    shutil.rmtree(query.checkpoint)
    with pytest.raises(Exception, match="onNewQuery"):
        query.run()
    assert query.values() == ["one"]


def test_two_queries_in_one_location_stay_apart(query: FileQuery, tmp_path: Path) -> None:
    """Scenario 30: by mistake, and as the two sources of one query."""
    (query.source / "a.log").write_text("a\n")
    (tmp_path / "more" / "in").mkdir(parents=True)
    (tmp_path / "more" / "in" / "b.log").write_text("b\n")
    other = FileQuery(query.spark, tmp_path / "more", {"stateLocation": str(tmp_path / "state")})
    query.options["stateLocation"] = str(tmp_path / "state")
    for _ in range(2):
        query.run()
        other.run()
    assert (query.values(), other.values()) == (["a"], ["b"])
    both = FileQuery(query.spark, tmp_path / "more")
    both.checkpoint, both.out = tmp_path / "both", str(tmp_path / "both-out")
    frame = both.frame()
    both.source = query.source
    both.write(frame.union(both.frame()), AVAILABLE).awaitTermination()
    (query.source / "a.log").write_text("a\nc\n")
    both.write(frame.union(both.frame()), AVAILABLE).awaitTermination()
    assert both.values() == ["a", "b", "c"]
    assert len(list((both.checkpoint / "ftfile-source").iterdir())) == 2


# ------------------------------------------------------------------------------- rotation


@pytest.mark.parametrize("compressed", [False, True])
def test_a_log_is_renamed_through_a_chain(query: FileQuery, compressed: bool) -> None:
    """Scenario 17: three renames between two runs, also with compression of the renamed file."""
    log = RotatingLog(query.source / "app.log", compressed=compressed)
    options = {"fileIdentity": "content"} if compressed else {}
    first = 0
    for rotations in (0, 1, 3, 1):
        for _ in range(rotations):
            log.write(lines(first, 5))
            first += 5
            log.rotate()
        log.write(lines(first, 7))
        first += 7
        query.run(**options)
    assert query.values() == lines(0, first) == log.lines()
    log.close()


def test_a_log_is_copied_and_truncated(query: FileQuery) -> None:
    """Scenario 18: also with a listing between the copy and the truncation."""
    log = RotatingLog(query.source / "app.log", how="copytruncate")
    options = {"fileIdentity": "content"}
    log.write(lines(0, 20))
    query.run(**options)
    log.write(lines(20, 20))
    log.rotate()
    log.write(lines(40, 5))
    query.run(**options)
    assert query.values() == lines(0, 45)
    log.write(lines(45, 15))
    query.run(**options)
    shutil.copy2(log.path, query.source / "app.log.9")
    query.run(**options)
    assert query.values() == lines(0, 60)
    os.truncate(log.path, 0)
    log.write(lines(60, 5))
    query.run(**options)
    assert query.values() == lines(0, 65)
    log.close()


@pytest.mark.parametrize(("how", "compressed"), [("rename", False), ("rename", True), ("copytruncate", False)])
def test_a_log_is_rotated_while_its_task_waits(query: FileQuery, how: Any, compressed: bool) -> None:
    """Scenario 19: planned, and read after the file was renamed or compressed."""
    log = RotatingLog(query.source / "app.log", how=how, compressed=compressed)
    options = {} if (how, compressed) == ("rename", False) else {"fileIdentity": "content"}
    log.write(lines(0, 20))
    query.run(**options)
    query.forget("commits", 0)
    shutil.rmtree(query.out)
    log.rotate()
    log.write(lines(20, 5))
    query.run_all(**options)
    assert query.values() == lines(0, 25)
    log.close()
