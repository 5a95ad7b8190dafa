"""Files that conditions skip in Spark, with each setting that changes the meaning of a condition."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.spark import load
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

FILES = 6
MIDNIGHT = dt.datetime(2024, 7, 1, tzinfo=dt.timezone.utc)
PAIR = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
COLUMNS: dict[str, Any] = {
    "id": "long",
    "name": "string",
    "text": "string",
    "x": "double",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "pair": PAIR,
}
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# The session's time zone in which texts are times, and Spark's rules for casts. Each condition runs with one of them,
# `make long` with all: unit tests compare bounds with all conditions.
SETTINGS = [("UTC", "true"), ("Asia/Kathmandu", "true"), ("America/New_York", "false")]


def row(number: int) -> dict[str, Any]:
    """Return a row of file `number // 10`; `text` has the order of numbers only as a number."""
    at = MIDNIGHT + dt.timedelta(hours=6 * number)
    return {
        "id": number,
        "name": f"name {number // 10}",
        "text": f"{number}",
        "x": float("nan") if number == 25 else number / 2,
        "day": at.date(),
        "at": at,
        "local": at.replace(tzinfo=None),
        "pair": {"a": number},
    }


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory with six files of ten rows."""
    directory = str(tmp_path_factory.mktemp("skipped") / "out")
    query = MicroBatch(directory, COLUMNS, {"fileFormat": "parquet"})
    for file in range(FILES):
        query.run(file, [[row(10 * file + place) for place in range(10)]])
    return directory


def with_settings(cases: Sequence[tuple[Any, int]]) -> list[tuple[Any, ...]]:
    """Return each case with one of the settings, or with all of them."""
    if THOROUGH:
        return [(settings, *case) for case in cases for settings in SETTINGS]
    return [(SETTINGS[number % len(SETTINGS)], *case) for number, case in enumerate(cases)]


@pytest.fixture
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return a session with some settings."""
    zone, is_ansi = request.param
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": is_ansi, PUSHDOWN: "true"}
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@pytest.mark.parametrize(
    ("session", "condition", "files"),
    with_settings(
        [
            ("id = 25", 1),
            ("id IN (5, 55)", 2),
            ("NOT (id > 9)", 1),
            ("name LIKE 'name 3%'", 1),
            ("name <=> NULL", 0),
            ("text > 5", FILES),  # the column is cast to a number
            ("x > 27.0D", 2),  # one of them has NaN
            ("NOT (x < 27.0D)", 2),
            ("x = double('NaN')", 1),
            ("day = DATE '2024-07-15'", 1),
            ("day < '2024-07-02'", 1),
            ("at < TIMESTAMP '2024-07-02 00:00:00'", 1),
            ("at = TIMESTAMP '2024-07-15 12:00:00 UTC'", 1),
            ("at >= TIMESTAMP '2024-07-15 13:00:00 UTC'", 1),
            ("local >= TIMESTAMP_NTZ '2024-07-15 13:00:00'", 1),
            ("at >= '2024-07-15 10:00:00'", 1),
            ("pair.a = 25", 1),
            ("name COLLATE UTF8_LCASE = 'NAME 3'", FILES),
            ("contains(name, '3')", FILES),
            ("id = 25 OR name = 'name 5'", FILES),  # Spark does not pass joined filters
        ]
    ),
    indirect=["session"],
)
def test_files_that_pushed_filters_exclude_have_no_task(
    session: SparkSession, out: str, condition: str, files: int
) -> None:
    """Each file has a task. A query that reads no file has one task."""
    reader = session.read.format("ftfile")
    expected = ids(reader.load(out).where(condition))
    largest = max(file.stat().st_size for file in Path(out).glob("*.parquet"))
    pushing = reader.option("filterPushdown", "true").option("maxPartitionBytes", str(largest))
    assert ids(pushing.load(out).where(condition)) == expected
    assert pushing.load(out).where(condition).rdd.getNumPartitions() == max(files, 1)
    assert bool(expected) == bool(files)


@pytest.mark.parametrize(
    ("session", "where", "files"),
    with_settings(
        [
            ("id = 25", 1),
            ("25 = id", 1),
            ("id < '10'", 1),
            ("NOT (id > 9) AND name >= 'name'", 1),
            ("id = 25 OR name = 'name 5'", 2),
            ("id = 25 AND name LIKE 'name%'", 1),
            ("id = 25 AND name LIKE '%2'", 1),
            ("id = 25 AND length(name) > 1", FILES),
            ("id = 25 AND at < current_timestamp()", 1),
            ("id = 25 AND at < localtimestamp()", FILES),  # each query reads the current time
            ("text > 5", FILES),
            ("text > '5'", 2),
            ("x > 27.0D", 2),  # one of them has NaN
            ("pair.a = 25", 1),
            ("id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12)", 2),
            ("name IN ('name 1', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k')", 1),
            ("day = DATE '2024-07-15'", 1),
            ("day < '2024-07-02'", 1),
            ("at < TIMESTAMP '2024-07-02 00:00:00'", 1),
            ("at < TIMESTAMP '2024-07-03 05:00:00'", 1),
            ("at >= TIMESTAMP '2024-07-15 13:00:00Z'", 1),
            ("at >= '2024-07-15 10:00:00'", 1),
            ("at >= DATE '2024-07-14'", 1),
            ("local < TIMESTAMP_NTZ '2024-07-02 00:00:00'", 1),
            ("name COLLATE UTF8_LCASE = 'NAME 3'", FILES),
            ({"day": dt.date(2024, 7, 15)}, 1),
            ({"at": dt.datetime(2024, 7, 15, 12, tzinfo=dt.timezone.utc)}, 1),
            ({"id": range(5, 15)}, 2),
            ({"name": ["name 1", None]}, 1),
        ]
    ),
    indirect=["session"],
)
def test_files_that_where_excludes_are_not_listed(session: SparkSession, out: str, where: Any, files: int) -> None:
    frame = load(session, out, where=where)
    unaided = load(session, out, where=where, statistics=False)
    assert ids(frame) == ids(unaided)
    assert ids(frame)
    assert len(frame.inputFiles()) == files
    assert len(unaided.inputFiles()) == FILES


@pytest.mark.parametrize("hour", ["01:30", "02:00", "02:30", "03:00"])
@pytest.mark.parametrize("day", ["2024-03-10", "2024-11-03"])
def test_local_times_that_a_change_of_the_clock_skips_or_repeats(
    spark: SparkSession, tmp_path: Path, day: str, hour: str
) -> None:
    out = str(tmp_path / "out")
    start = dt.datetime.fromisoformat(f"{day}T05:00:00+00:00")
    rows = [{"id": number, "at": start + dt.timedelta(minutes=30 * number)} for number in range(8)]
    MicroBatch(out, {"id": "long", "at": "timestamp"}, {"fileFormat": "parquet"}).run(0, [[row] for row in rows])
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for sign in ("<", "="):
            where = f"at {sign} TIMESTAMP '{day} {hour}:00'"
            frame, unaided = load(spark, out, where=where), load(spark, out, where=where, statistics=False)
            assert ids(frame) == ids(unaided)
            assert len(frame.inputFiles()) == len(ids(unaided))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_column_with_a_collation_cannot_be_requested(spark: SparkSession, out: str) -> None:
    """So no filter compares a column by a collation that its statistics do not have."""
    reader = spark.read.format("ftfile").schema("id long, name string collate UTF8_LCASE")
    with pytest.raises(Exception, match="a string with collation UTF8_LCASE cannot be stored"):
        reader.load(out).where("name = 'NAME 3'").collect()
