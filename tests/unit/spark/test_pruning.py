"""The files that filters of Spark exclude before a query is planned, by their partitions and their statistics."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource as ds

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.spark.native.conditions import filter_frame
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from ftfile.log.read.snapshot import Snapshot

if not hasattr(ds, "Not"):
    pytest.skip("Spark 4.0 has no filters in Python", allow_module_level=True)

from ftfile.spark.chosen_files import choose
from ftfile.spark.filters import tree_of

COLUMNS = {"id": "long", "name": "string", "n": "integer", "day": "date", "city": "string", "at": "timestamp"}
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
DAYS = [datetime.date(2024, 7, day) for day in (1, 2)]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a directory of six files with one row each, in six partitions."""
    directory = str(tmp_path_factory.mktemp("files") / "out")
    query = MicroBatch(directory, COLUMNS, {"fileFormat": "json", "partitionBy": "n,day,city"})
    rows: list[dict[str, Any]] = [
        {"id": number, "name": "x", "n": number % 3, "day": DAYS[number % 2], "city": "ab"[number // 3]}
        for number in range(6)
    ]
    query.run(0, [[row | {"at": NOON} for row in rows]])
    return directory


def chosen(snapshot: Snapshot, *filters: ds.Filter, out: str | None = None) -> int:
    """Return the number of adds that remain: by their partitions or, with `out`, also by their statistics."""
    assert snapshot.schema is not None
    fs = None if out is None else ftfile.open(out).file_system
    remaining, places, _ = choose(snapshot, [*map(tree_of, filters)], snapshot.definitions[snapshot.schema], fs)
    if places is None:
        return len(remaining.adds)
    return sum((add.directory_key, add.encoding) in places for add in remaining.adds.values())


@parametrize(
    ("filters", "files"),
    [
        ([], 6),
        ([ds.EqualTo(("n",), 1)], 2),
        ([ds.GreaterThanOrEqual(("n",), 1), ds.EqualTo(("CITY",), "a")], 2),
        ([ds.In(("n",), (0, 2, None)), ds.GreaterThan(("id",), 3)], 4),
        ([ds.Not(ds.EqualTo(("city",), "a")), ds.LessThan(("day",), DAYS[1])], 1),
        ([ds.EqualTo(("n",), 7)], 0),
        ([ds.EqualTo(("n",), "1")], 6),  # not a value of the type
        ([ds.EqualTo(("at",), NOON)], 6),
    ],
    quick=3,
)
def test_files_of_other_partitions_are_left_out(out: str, filters: list[ds.Filter], files: int) -> None:
    assert chosen(ftfile.open(out).snapshot(), *filters) == files


@parametrize(
    ("filters", "files"),
    [
        ([ds.EqualTo(("id",), 3)], 1),
        ([ds.GreaterThan(("id",), 3), ds.EqualTo(("n",), 2)], 1),
        ([ds.LessThan(("at",), NOON)], 0),
        ([ds.IsNull(("name",))], 0),
    ],
    quick=2,
)
def test_files_are_left_out_by_their_statistics(out: str, filters: list[ds.Filter], files: int) -> None:
    assert chosen(ftfile.open(out).snapshot(), *filters, out=out) == files


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
        ("string", {"__COLLATIONS": {"city": "spark.UTF8_BINARY"}}),
    ],
)
def test_texts_that_spark_pads_or_collates_exclude_no_file(out: str, kind: str, metadata: dict[str, str]) -> None:
    snapshot = ftfile.open(out).snapshot()
    assert snapshot.schema is not None
    schema = json.loads(snapshot.definitions[snapshot.schema])
    (city,) = (field for field in schema["fields"] if field["name"] == "city")
    city.update(type=kind, metadata=metadata)
    changed = dataclasses.replace(snapshot, definitions=snapshot.definitions | {snapshot.schema: json.dumps(schema)})
    assert [chosen(each, ds.EqualTo(("city",), "a")) for each in (snapshot, changed)] == [3, 6]


@pytest.mark.parametrize("where", [7, [("month", "=", 7)], {1: 7}], ids=str)
def test_what_is_no_condition(where: Any) -> None:
    frame: Any = None
    with pytest.raises(ConfigError, match="it takes a condition as text, such as"):
        filter_frame(frame, where)
