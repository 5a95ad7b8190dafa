"""The files that `ftfile.spark.load` omits before Spark plans a query."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.spark.native.conditions import filtered, possible_files, possible_places
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.read.snapshot import Snapshot

COLUMNS = {
    "id": "long",
    "name": "string",
    "n": "integer",
    "day": "date",
    "city": "string",
    "real": "float",
    "at": "timestamp",
}
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
DAYS = [datetime.date(2024, 7, day) for day in (1, 2)]


def written(tmp_path: Path, partition_by: str) -> str:
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": partition_by})
    rows: list[dict[str, Any]] = [
        {"id": number, "name": "x", "n": number % 3, "day": DAYS[number % 2], "city": "ab"[number // 3]}
        for number in range(6)
    ]
    query.run(0, [[row | {"real": 0.5, "at": NOON} for row in rows]])
    return out


def left(out: str, where: Any) -> int:
    return possible(ftfile.open(out).snapshot(), where)


def possible(snapshot: Snapshot, where: Any, *, as_texts: bool = False) -> int:
    """Return the number of adds whose places are possible."""
    places = possible_places(snapshot, where, as_texts=as_texts)
    if places is None:
        return len(snapshot.adds)
    return sum((add.directory_key, add.encoding) in places for add in snapshot.adds.values())


@parametrize(
    ("where", "files"),
    [
        (None, 6),
        ("n = 1", 2),
        ("n >= 1 AND city = 'a'", 2),
        ("N IN (0, 2) AND id > 3", 4),
        ("day < DATE '2024-07-02'", 3),
        ("day BETWEEN '2024-07-02' AND '2024-07-31' AND NOT city = 'a' AND name <> 'y'", 2),
        ("n = 7", 1),  # for the columns that Spark reads from a file
        ({"n": 7}, 1),
        ("n = 1 OR id = 3", 6),
        ({"n": 1}, 2),
        ({"n": [0, None], "city": "b", "id": 3}, 1),
        ({"day": DAYS[0]}, 3),
        # Conditions that Spark may interpret differently, or that only Spark supports.
        ("n % 2 = 1", 6),
        ("n = 1.0", 6),
        ('city = "a"', 6),
        (r"city = 'a\x'", 6),
        ("city = 'a''b'", 6),
        ("city = '${city}'", 6),
        ("city = 7", 6),
        ("missing = 7", 6),
        ("n = 1 AND lower(city) = 'a'", 6),
        ("day < TIMESTAMP '2024-07-02 12:00:00'", 6),
        ({"n": 1.0}, 6),
        ({"n": range(1)}, 6),
        (7, 6),
    ],
    quick=3,
)
def test_files_of_other_partitions_are_left_out(tmp_path: Path, where: Any, files: int) -> None:
    assert left(written(tmp_path, "n,day,city"), where) == files


@pytest.mark.slow
def test_numbers_with_a_fraction_and_times_are_for_spark(tmp_path: Path) -> None:
    assert left(written(tmp_path / "a", "n,real"), "n = 1") == 3
    assert left(written(tmp_path / "b", "n,at"), "n = 1") == 3
    assert left(written(tmp_path / "c", "n"), "n = 1") == 1


@parametrize(
    ("partition_by", "where", "by_value", "as_texts"),
    [
        ("n", "n NOT IN ('01')", 2, 3),  # true for 1
        ("day,city", "day > '2024-07-01'", 2, 4),
        ("n", "n > 0 AND id = 2", 2, 2),
        ("n", {"n": ["1"]}, 1, 1),
        ("city", "city NOT IN ('a')", 1, 1),
    ],
    quick=3,
)
def test_what_a_session_compares_as_texts_is_for_spark(
    tmp_path: Path, partition_by: str, where: Any, by_value: int, as_texts: int
) -> None:
    snapshot = ftfile.open(written(tmp_path, partition_by)).snapshot()
    assert possible(snapshot, where) == by_value
    assert possible(snapshot, where, as_texts=True) == as_texts


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        ("string", {"__COLLATIONS": {"city": "spark.UTF8_BINARY"}}),
        ("varchar(3)", {}),
    ],
)
def test_texts_that_spark_pads_or_collates_are_for_spark(tmp_path: Path, kind: str, metadata: dict[str, str]) -> None:
    snapshot = ftfile.open(written(tmp_path, "city")).snapshot()
    assert snapshot.schema is not None
    schema = json.loads(snapshot.definitions[snapshot.schema])
    (city,) = (field for field in schema["fields"] if field["name"] == "city")
    city.update(type=kind, metadata=metadata)
    changed = dataclasses.replace(snapshot, definitions=snapshot.definitions | {snapshot.schema: json.dumps(schema)})
    assert [possible(each, "city = 'a'") for each in (snapshot, changed)] == [1, 2]


@pytest.mark.parametrize("where", [7, [("month", "=", 7)], {1: 7}], ids=str)
def test_what_is_no_condition(where: Any) -> None:
    frame: Any = None
    with pytest.raises(ConfigError, match="it takes a condition as text, such as"):
        filtered(frame, where)


@pytest.fixture(scope="module")
def one_row_each(tmp_path_factory: pytest.TempPathFactory) -> ftfile.Directory:
    """Return a directory of six files with one row each."""
    out = str(tmp_path_factory.mktemp("files") / "out")
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    for number in range(6):
        row = {"id": number, "name": "xyz"[number % 3], "n": number % 3, "day": DAYS[number % 2], "city": None}
        query.run(number, [[row | {"real": 0.5, "at": NOON}]])
    return ftfile.open(out)


@pytest.mark.parametrize(
    ("where", "files"),
    [
        (None, 6),
        ("id = 3", 1),
        ("ID >= 4", 2),
        ("id BETWEEN 1 AND 3 AND name <> 'x'", 2),
        ("id = 1 OR name = 'z'", 3),
        ("city IS NOT NULL", 1),  # for the columns that Spark reads from a file
        ("city IS NULL", 6),
        ("day = DATE '2024-07-02'", 3),
        ("id = 99", 1),
        ("at < TIMESTAMP '2020-01-01 00:00:00'", 1),
        ({"id": 5}, 1),
        ({"id": [0, 5], "n": 0}, 1),
        ({"day": DAYS[0]}, 3),
        # Conditions that Spark may interpret differently, or that only Spark supports.
        ("real > 0.5", 6),
        ("id % 2 = 1", 6),
        ("id = 1.0", 6),
        ("missing = 1", 6),
        ("name > 5", 6),
    ],
)
def test_files_are_left_out_by_their_statistics(one_row_each: ftfile.Directory, where: Any, files: int) -> None:
    snapshot = one_row_each.snapshot()
    assert len(possible_files(snapshot, where, one_row_each.file_system, time_zone="UTC").adds) == files


@pytest.mark.parametrize(
    ("time_zone", "hour", "files"),
    [
        ("Asia/Kathmandu", 18, 6),
        ("Asia/Kathmandu", 17, 1),
        ("UTC", 13, 6),
        ("UTC", 12, 1),
        ("", 0, 6),
        ("+27:00", 0, 6),
    ],
)
def test_times_are_in_the_zone_of_the_session(
    one_row_each: ftfile.Directory, time_zone: str, hour: int, files: int
) -> None:
    """All rows are from noon UTC. Without a time zone that ftfile has, no file is left out."""
    snapshot = one_row_each.snapshot()
    where = f"at < TIMESTAMP '{NOON.date()} {hour:02}:00:00'"
    assert len(possible_files(snapshot, where, one_row_each.file_system, time_zone=time_zone).adds) == files


@pytest.mark.parametrize(("where", "files"), [("name = 'x'", 2), ("day = '2024-07-02'", 6), ("id = 1", 1)])
def test_statistics_are_not_compared_where_spark_may_compare_texts(
    one_row_each: ftfile.Directory, where: str, files: int
) -> None:
    snapshot = one_row_each.snapshot()
    assert len(possible_files(snapshot, where, one_row_each.file_system, time_zone="UTC", as_texts=True).adds) == files
