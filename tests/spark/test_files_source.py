"""Streams of files that others write, in Spark: each row once, over restarts, rotations and kills."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import feather
from pyspark.sql.types import StructType

import ftfile
from ftfile.errors import FtfileError
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.rotating import RotatingLog
from tests.demo.process import SparkApp, own_environment
from tests.spark import deadly_files, source_job
from tests.spark.deadly_files import Death
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALWAYS = {"processingTime": "0 seconds"}
AVAILABLE = {"availableNow": True}
# Listings as often as can be, and files of others are complete at once.
AT_ONCE = {"scanInterval": "0s", "minFileAge": "0s"}


@dataclass
class Query:
    """A query from files into a directory of JSON, and its checkpoint, which it keeps over runs."""

    spark: SparkSession
    home: Path
    options: dict[str, str] = field(default_factory=dict)
    schema: str | None = None

    def __post_init__(self) -> None:
        self.source = self.home / "in"
        self.out = str(self.home / "out")
        self.checkpoint = self.home / "checkpoint"
        self.source.mkdir(exist_ok=True)

    def frame(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("ftfile").options(
            **{"fileFormat": "text", "checkpointLocation": str(self.checkpoint), **AT_ONCE, **self.options, **options}
        )
        return (reader if self.schema is None else reader.schema(self.schema)).load(str(self.source))

    def start(self, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        return self.write(self.frame(**options), trigger)

    def write(self, frame: DataFrame, trigger: dict[str, Any] | None = None, **options: str) -> StreamingQuery:
        writer = frame.writeStream.format("ftfile").options(fileFormat="json", **options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or ALWAYS)).start(self.out)

    def run(self, **options: str) -> StreamingQuery:
        """Read all that there is."""
        query = self.start(AVAILABLE, **options)
        query.awaitTermination()
        return query

    def values(self) -> list[Any]:
        """Return what was committed of the first column, sorted; nothing while there is no directory."""
        try:
            table = ftfile.open(self.out).to_arrow()
        except FtfileError:
            return []
        return sorted(table.column(0).to_pylist())

    def forget(self, log: str, batch: int) -> None:
        """Delete what Spark noted of a batch: it was killed before that."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / log / name).unlink(missing_ok=True)

    @property
    def newest_batch(self) -> int:
        return max(int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*"))

    def state(self) -> Path:
        """Return the directory of the plans."""
        (found,) = (self.checkpoint / "ftfile-source").iterdir()
        return found


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


def lines(first: int, count: int) -> list[str]:
    return [f"line {number:06} {'of a log ' * 8}" for number in range(first, first + count)]


def limits_hold(spark: SparkSession) -> bool:
    return not spark.version.startswith(("4.0", "4.1"))


# ------------------------------------------------------------------------------- a log that grows


def test_a_growing_log_is_tailed_line_by_line(query: Query) -> None:
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
    """Return the number of known files, and the bytes behind, that the newest progress shows."""
    assert running.lastProgress is not None
    shown = json.loads(running.lastProgress.json)["sources"][0]["latestOffset"]
    return shown["known"], shown["bytesBehind"]


def test_a_last_line_without_an_end_counts_when_the_file_is_left_alone(query: Query) -> None:
    (query.source / "app.log").write_text("one\ntwo")
    query.run()
    assert query.values() == ["one"]
    query.run(closeInactive="0s")
    assert query.values() == ["one", "two"]


def test_available_now_reads_what_is_there_within_limits(query: Query) -> None:
    for number in range(5):
        (query.source / f"{number}.log").write_text(f"{number}\n")
    running = query.run(maxFilesPerTrigger="2")
    if limits_hold(query.spark):
        assert query.values() == list("01234")
        assert [progress.numInputRows for progress in running.recentProgress if progress.numInputRows] == [2, 2, 1]
    else:
        assert query.values() == list("01")


def test_once_reads_everything(query: Query) -> None:
    for number in range(3):
        (query.source / f"{number}.log").write_text(f"{number}\n")
    query.start({"once": True}, maxFilesPerTrigger="1").awaitTermination()
    assert query.values() == (list("012") if limits_hold(query.spark) else ["0"])


def test_a_batch_has_at_most_so_many_bytes(query: Query) -> None:
    (query.source / "large.log").write_text("".join(f"{line}\n" for line in lines(0, 1000)))
    running = query.run(maxBytesPerTrigger="20k")
    if limits_hold(query.spark):
        assert query.values() == lines(0, 1000)
        assert max(progress.numInputRows for progress in running.recentProgress) <= 20_480 // len(lines(0, 1)[0])


def test_latest_reads_what_comes_later_also_when_the_first_batch_is_repeated(query: Query) -> None:
    """Scenario 2: the first batch pins where the query began."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run(startingOffsets="latest")
    log.write(lines(3, 2))
    query.forget("commits", 0)
    query.run(startingOffsets="latest")
    assert query.values() == lines(3, 2)
    log.close()


# ------------------------------------------------------------------------------- what is killed


def test_a_batch_that_is_repeated_has_the_same_rows(query: Query) -> None:
    """Scenario 1: killed before Spark noted the end of the batch."""
    with closing(RotatingLog(query.source / "app.log")) as log:
        for first in (0, 3):
            log.write(lines(first, 3))
            query.run()
        query.forget("commits", 1)
        log.write(lines(6, 3))
        query.run()
    assert query.values() == lines(0, 9)
    assert [version.batch_id for version in ftfile.open(query.out).history()] == [0, 1, 2]


def test_a_plan_of_which_spark_noted_nothing_is_used(query: Query) -> None:
    """Scenario 1: killed before Spark noted the beginning of the batch, with the plan made."""
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
        running = query.run()
    assert query.values() == lines(0, 8)
    if limits_hold(query.spark):
        assert [progress.numInputRows for progress in running.recentProgress if progress.numInputRows] == [3, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_planning_is_killed_around_the_creation_of_a_plan(query: Query, when: str) -> None:
    """Scenario 4: who plans dies before its plan is there, or before it hears that it is."""
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
    query.run(**state)
    assert query.values() == lines(0, 9)
    log.close()


def test_a_killed_application_goes_on_where_it_was(query: Query) -> None:
    """SIGKILL of the driver and its workers, twice, in the middle of batches."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 400))
    for kill in range(2):
        seen = len(query.values())
        app = started_app(query, f"home{kill}", maxBytesPerTrigger="1k")
        try:
            wait_until(lambda: len(query.values()) > seen + 20 or app.exit_code is not None, "a few batches")  # noqa: B023
            assert app.exit_code is None, app.last_words()
        finally:
            app.kill()
        log.rotate()
        log.write(lines(400 + 10 * kill, 10))
    assert len(query.values()) < 400
    query.run(maxBytesPerTrigger="1g")
    assert query.values() == lines(0, 420)
    check_directory(open_filesystem(query.out), rows_of=lambda _: ())
    log.close()


def test_of_two_drivers_the_late_one_ends(query: Query) -> None:
    """Scenario 3: a driver stands still, another one takes over its checkpoint, and the first one wakes up."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 100))
    app = started_app(query, "home", maxBytesPerTrigger="1k")
    try:
        wait_until(lambda: len(query.values()) > 10 or app.exit_code is not None, "a few batches")
        app.freeze()
        query.run(maxBytesPerTrigger="1g")
        log.write(lines(100, 5))
        query.run(maxBytesPerTrigger="1g")
        assert query.values() == lines(0, 105)
        app.thaw()
        wait_until(lambda: app.exit_code is not None, "the end of the late driver")
        assert app.exit_code != 0
    finally:
        app.kill()
    log.write(lines(105, 5))
    query.run()
    assert query.values() == lines(0, 110)
    check_directory(open_filesystem(query.out), rows_of=lambda _: ())
    log.close()


def started_app(query: Query, name: str, **options: str) -> SparkApp:
    """Start the query in an application of its own."""
    home = query.home / name
    home.mkdir()
    where = {"source": str(query.source), "out": query.out, "checkpoint": str(query.checkpoint), "home": str(home)}
    reader = {"fileFormat": "text", "checkpointLocation": str(query.checkpoint), **AT_ONCE, **options}
    (home / "job.json").write_text(json.dumps({**where, "reader": reader, "writer": {}}))
    environment = {**own_environment(home), "PYTHONPATH": os.environ["PYTHONPATH"]}
    return SparkApp(Path(source_job.__file__), home / "job.json", home / "log", environment)


# ------------------------------------------------------------------------------- checkpoints and states


def test_a_copied_checkpoint_reads_on_by_itself(query: Query, tmp_path: Path) -> None:
    """Scenario 6, copied: state and checkpoint are one directory; both copies go on."""
    log = RotatingLog(query.source / "app.log")
    log.write(lines(0, 3))
    query.run()
    shutil.copytree(query.checkpoint, tmp_path / "copy")
    log.write(lines(3, 3))
    query.run()
    other = Query(query.spark, tmp_path)
    other.checkpoint, other.out = tmp_path / "copy", str(tmp_path / "other")
    other.write(other.frame(), AVAILABLE, onGap="accept").awaitTermination()
    log.close()
    assert query.values() == lines(0, 6)
    assert other.values() == lines(3, 3)


def test_a_restored_checkpoint_repeats_the_plans_that_were_made(query: Query, tmp_path: Path) -> None:
    """Scenario 6, restored, the state being elsewhere: the same batches come again, and the sink asks."""
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
    query.write(query.frame(**state), AVAILABLE, onReplayMismatch="keep").awaitTermination()
    assert query.values() == lines(0, 9)


def test_a_deleted_checkpoint_is_a_new_query(query: Query) -> None:
    """Scenario 6, deleted: all is read anew, and the sink asks what that means."""
    (query.source / "app.log").write_text("one\n")
    query.run()
    shutil.rmtree(query.checkpoint)
    with pytest.raises(Exception, match="onNewQuery"):
        query.run()
    assert query.values() == ["one"]


def test_a_lost_state_is_an_error(query: Query, tmp_path: Path) -> None:
    """Scenario 7."""
    state = {"stateLocation": str(tmp_path / "state")}
    (query.source / "app.log").write_text("one\n")
    query.run(**state)
    shutil.rmtree(tmp_path / "state")
    (query.source / "b.log").write_text("two\n")
    with pytest.raises(Exception, match=r"StateLost.*new checkpointLocation"):
        query.run(**state)
    assert query.values() == ["one"]


def test_two_queries_in_one_location_stay_apart(query: Query, tmp_path: Path) -> None:
    """Scenario 30: by mistake, and as the two sources of one query."""
    (query.source / "a.log").write_text("a\n")
    (tmp_path / "more" / "in").mkdir(parents=True)
    (tmp_path / "more" / "in" / "b.log").write_text("b\n")
    other = Query(query.spark, tmp_path / "more", {"stateLocation": str(tmp_path / "state")})
    query.options["stateLocation"] = str(tmp_path / "state")
    for _ in range(2):
        query.run()
        other.run()
    assert (query.values(), other.values()) == (["a"], ["b"])
    both = Query(query.spark, tmp_path / "more")
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
def test_a_log_is_renamed_through_a_chain(query: Query, compressed: bool) -> None:
    """Scenario 17: three renames between two runs, also with compression of what was renamed."""
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


def test_a_log_is_copied_and_truncated(query: Query) -> None:
    """Scenario 18: also with a scan between the copy and the truncation."""
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
def test_a_log_is_rotated_while_its_task_waits(query: Query, how: Any, compressed: bool) -> None:
    """Scenario 19: planned, and read when the file has another name, or is compressed by then."""
    log = RotatingLog(query.source / "app.log", how=how, compressed=compressed)
    options = {} if (how, compressed) == ("rename", False) else {"fileIdentity": "content"}
    log.write(lines(0, 20))
    query.run(**options)
    query.forget("commits", 0)
    shutil.rmtree(query.out)
    log.rotate()
    log.write(lines(20, 5))
    query.run(**options)
    assert query.values() == lines(0, 25)
    log.close()


# ------------------------------------------------------------------------------- formats and directories

ROWS = "id long, word string, at timestamp, part double"


def write_parquet(frame: DataFrame, path: str) -> None:
    frame.coalesce(2).write.parquet(path)


def write_avro(frame: DataFrame, path: str) -> None:
    scratch = f"{path}-scratch"
    frame.coalesce(1).write.format("ftfile").option("fileFormat", "avro").mode("append").save(scratch)
    Path(path).mkdir()
    for file in Path(scratch).glob("*.avro"):
        shutil.copy(file, path)


def write_arrow(frame: DataFrame, path: str) -> None:
    Path(path).mkdir()
    feather.write_feather(frame.toArrow(), f"{path}/rows.arrow", compression="lz4")


WRITERS: dict[str, Callable[[DataFrame, str], None]] = {
    "parquet": write_parquet,
    "orc": lambda frame, path: frame.coalesce(2).write.orc(path),
    "json": lambda frame, path: frame.coalesce(2).write.json(path),
    "csv": lambda frame, path: frame.coalesce(2).write.option("header", True).csv(path),
    "avro": write_avro,
    "arrow": write_arrow,
}


@pytest.mark.parametrize("file_format", WRITERS)
def test_each_format_has_the_rows_that_were_written(query: Query, file_format: str) -> None:
    frame = query.spark.range(50).selectExpr(
        "id", "concat('wörd, \"', id, '\"') AS word", "timestamp_millis(id * 1001) AS at", "id / 4 AS part"
    )
    shutil.rmtree(query.source)
    WRITERS[file_format](frame, str(query.source))
    query.schema = ROWS
    options = {"header": "true"} if file_format == "csv" else {}
    query.run(fileFormat=file_format, **options)
    found = query.spark.read.format("ftfile").load(query.out).select("id", "word", "at", "part").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, frame.collect()))
    query.run(fileFormat=file_format, **options)
    assert len(query.values()) == 50


def test_binary_files_are_rows_as_spark_has_them(query: Query) -> None:
    (query.source / "a.bin").write_bytes(b"\x00\xff")
    (query.source / "b.bin").write_bytes(b"b" * 1000)
    query.run(fileFormat="binary")
    found = query.spark.read.format("ftfile").load(query.out).select("length", "content", "modificationTime")
    assert sorted((row.length, bytes(row.content)) for row in found.collect()) == [
        (2, b"\x00\xff"),
        (1000, b"b" * 1000),
    ]
    by_spark = query.spark.read.format("binaryFile").load(str(query.source)).select("modificationTime")
    assert sorted(row[2] for row in found.collect()) == sorted(row[0] for row in by_spark.collect())


def test_compressed_files_are_read_whole(query: Query) -> None:
    (query.source / "a.log.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    (query.source / "b.log").write_text("three\n")
    query.run()
    query.run()
    assert query.values() == ["one", "three", "two"]


def test_directories_are_columns(query: Query) -> None:
    query.schema = "value string, day date, code string"
    for day, code, text in (("2026-07-01", "007", "a"), ("2026-07-02", "x%3Dy", "b")):
        directory = query.source / f"day={day}" / f"code={code}"
        directory.mkdir(parents=True)
        (directory / "f.log").write_text(f"{text}\n")
    query.run()
    found = query.spark.read.format("ftfile").load(query.out).selectExpr("value", "cast(day AS string)", "code")
    assert sorted(map(tuple, found.collect())) == [("a", "2026-07-01", "007"), ("b", "2026-07-02", "x=y")]


def test_files_are_chosen_by_globs_and_patterns(query: Query) -> None:
    for name in ("a/app.log", "b/app.log", "b/old.log", "c/app.txt", "b/_hidden.log"):
        (query.source / name).parent.mkdir(exist_ok=True)
        (query.source / name).write_text(f"{name}\n")
    root, query.source = query.source, query.source / "{a,b}" / "*.log"
    query.run(ignoreFilePattern="old.*")
    assert query.values() == ["a/app.log", "b/app.log"]
    query.source = root
    query.run(recursiveFileLookup="true", filePattern=".*\\.txt")
    assert query.values() == ["a/app.log", "b/app.log", "c/app.txt"]


def test_bad_rows_and_damaged_files(query: Query) -> None:
    query.schema = "id long"
    (query.source / "a.json").write_text('{"id": 1}\n{"id": \n{"id": 2}\n')
    with pytest.raises(Exception, match="badRecords"):
        query.run(fileFormat="json")
    query.run(fileFormat="json", badRecords="drop")
    assert query.values() == [1, 2]


# ------------------------------------------------------------------------------- what people see


def test_the_status_can_be_asked_for_beside_a_running_query(query: Query) -> None:
    (query.source / "a.log").write_text("one\n")
    running = query.start(scanInterval="1h")
    try:
        wait_until(lambda: query.values() == ["one"], "the first line")
        (query.source / "b.log").write_text("two\nthree\n")
        status = ftfile.source_status(str(query.source), fileFormat="text", checkpointLocation=str(query.checkpoint))
    finally:
        running.stop()
    (source,) = status
    assert (source.known, source.files_behind, source.bytes_behind) == (1, 1, 10)
    assert source.oldest_unread_ms == (query.source / "b.log").stat().st_mtime_ns // 1_000_000
    assert (source.parked, source.late) == ((), 0)


# ------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fileFormat": "parquet"}, r"columns of fileFormat=parquet are not known.*\.schema\("),
        ({"maxFilePerTrigger": "1"}, "did you mean maxFilesPerTrigger"),
        ({"startingVersion": "1"}, "'startingVersion' is for following"),
        ({"checkpointLocation": ""}, r"(?s)'checkpointLocation'.*'stateLocation'"),
    ],
)
def test_mistakes_are_told_before_the_first_batch(query: Query, options: dict[str, str], text: str) -> None:
    (query.source / "a.log").write_text("one\n")
    with pytest.raises(Exception, match=text):
        query.run(**options)
    assert not (query.checkpoint / "offsets" / "0").exists()


def test_what_is_at_the_path_is_looked_at_before_the_first_batch(query: Query, tmp_path: Path) -> None:
    query.source = tmp_path / "nowhere"
    with pytest.raises(Exception, match="there is nothing at path="):
        query.run()
    query.source = tmp_path / "written"
    query.spark.range(3).write.format("ftfile").mode("append").save(str(query.source))
    with pytest.raises(Exception, match=r"an ftfile directory.*leave fileFormat out"):
        query.run()
    assert not (query.checkpoint / "offsets" / "0").exists()


def test_other_files_are_not_followed(query: Query) -> None:
    (query.source / "a.log").write_text("one\n")
    reader = query.spark.readStream.format("ftfile")
    with pytest.raises(Exception, match=r"no log, and other files.*set fileFormat"):
        query.write(reader.schema("value string").load(str(query.source)), AVAILABLE).awaitTermination()
    with pytest.raises(Exception, match="fileFormat"):
        query.spark.readStream.format("ftfile").load(str(query.source))
