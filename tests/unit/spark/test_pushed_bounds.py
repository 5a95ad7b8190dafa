"""Files that filters of Spark exclude by their statistics, without a JVM."""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as ds

from ftfile.log.format.model import Add, Origin
from ftfile.log.read.snapshot import Snapshot
from ftfile.read.file_answers import StatisticsReader
from ftfile.rows.bounds.masks import VALUES_MAX
from ftfile.rows.spark_types import arrow_schema
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.file_statistics import bounds_columns, entries_of
from tests.kit.random_conditions import COLUMNS, RandomConditions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

if not hasattr(ds, "Not"):
    pytest.skip("Spark 4.0 passes no filters to a reader", allow_module_level=True)

from ftfile.spark.filters import tree_of
from ftfile.spark.pushed_bounds import PushedFilters
from tests.kit.pushed_filters import RandomFilters, is_met

FILTERS = int(os.environ.get("FTFILE_CONDITIONS", "10000" if os.environ.get("FTFILE_THOROUGH") else "600"))
OF_THE_FILES = 100
FILES = 30
NAN, INFINITY = float("nan"), float("inf")
LAST = "\U0010ffff"
NOON = dt.datetime.fromisoformat("2024-07-01T12:00:00")
INSTANT = NOON.replace(tzinfo=dt.timezone.utc)
LONG_TEXTS = ["x" * 32, "x" * 33, "x" * 32 + "y", "x" * 31 + LAST * 3, LAST * 40, "\ud7ff" * 33, "\ue000"]
LONG_BYTES = [b"a" * 33, b"\xff" * 31 + b"a" * 9, b"\xff" * 40, b"\x80"]
MORE: dict[str, list[Any]] = {"City": LONG_TEXTS, "raw": LONG_BYTES, "small": [3, 5], "Number": [3, 5], "real": [7.0]}


def possible(values: Sequence[Any], kind: pa.DataType, *filters: ds.Filter) -> bool:
    """Return True if a file with these values of the column `x` may contain a row that meets the filters."""
    rows = pa.table({"x": pa.array(values, kind)})
    bounds = bounds_columns([entries_of(rows)])
    return bool(PushedFilters(map(tree_of, filters), rows.schema).mark_possible(bounds, [len(values)])[0])


@pytest.mark.parametrize(
    ("values", "kind", "pushed", "expected"),
    [
        ([1, 9], pa.int64(), ds.EqualTo(("x",), 5), True),
        ([1, 9], pa.int64(), ds.EqualTo(("x",), 10), False),
        ([1, 9], pa.int64(), ds.EqualTo(("x",), None), True),
        ([1, 9], pa.int64(), ds.EqualTo(("x",), 9.5), True),  # not a value of the type
        ([1, 9], pa.int64(), ds.EqualTo(("y",), 10), True),
        ([7, 7], pa.int64(), ds.Not(ds.EqualTo(("X",), 7)), False),
        ([7, None], pa.int64(), ds.Not(ds.EqualTo(("x",), 7)), False),
        ([7, None], pa.int64(), ds.Not(ds.EqualNullSafe(("x",), 7)), True),
        ([7, 7], pa.int64(), ds.Not(ds.EqualNullSafe(("x",), 7)), False),
        ([7, 7], pa.int64(), ds.EqualNullSafe(("x",), None), False),
        ([None], pa.int64(), ds.Not(ds.EqualNullSafe(("x",), None)), False),
        ([None], pa.int64(), ds.Not(ds.GreaterThan(("x",), 1)), False),
        ([2, None], pa.int64(), ds.Not(ds.GreaterThan(("x",), 1)), False),
        ([1, None], pa.int64(), ds.Not(ds.GreaterThan(("x",), 1)), True),
        ([None], pa.int64(), ds.Not(ds.IsNull(("x",))), False),
        ([2, 3], pa.int64(), ds.Not(ds.In(("x",), (2, 3))), True),
        ([2, 2], pa.int64(), ds.Not(ds.In(("x",), (2, 3, None))), False),
        ([2, None], pa.int64(), ds.Not(ds.In(("x",), ())), True),
        ([2], pa.int64(), ds.In(("x",), ()), False),
        ([2], pa.int64(), ds.In(("x",), (None,)), False),
        ([2], pa.int64(), ds.In(("x",), (1, 3, None)), False),
        ([2], pa.int64(), ds.In(("x",), (1, "2")), True),
        ([2], pa.int64(), ds.In(("x",), tuple(range(3, 4 + VALUES_MAX))), False),
        ([NAN], pa.float64(), ds.Not(ds.GreaterThan(("x",), 1.0)), True),  # a file with NaN has no bounds
        ([1.0, NAN], pa.float64(), ds.EqualTo(("x",), NAN), True),
        ([1.0, 2.0], pa.float64(), ds.EqualTo(("x",), NAN), False),
        ([1.0, 2.0], pa.float64(), ds.GreaterThan(("x",), NAN), False),
        ([1.0, 2.0], pa.float64(), ds.LessThanOrEqual(("x",), NAN), True),
        ([2.0, NAN], pa.float64(), ds.Not(ds.LessThan(("x",), 9.0)), True),
        ([2.0, NAN], pa.float64(), ds.Not(ds.GreaterThan(("x",), 1.0)), False),
        ([1.0, INFINITY], pa.float64(), ds.EqualTo(("x",), INFINITY), True),
        ([-0.0], pa.float64(), ds.EqualTo(("x",), 0.0), True),
        ([0.0], pa.float64(), ds.LessThan(("x",), -0.0), False),
        ([0.5], pa.float32(), ds.EqualTo(("x",), 0.75), False),
        ([0.1], pa.float32(), ds.GreaterThan(("x",), 0.1), True),  # the column is converted to DOUBLE
        ([Decimal("1.5")], pa.decimal128(5, 1), ds.LessThan(("x",), Decimal(1)), False),
        ([Decimal("1.5")], pa.decimal128(5, 1), ds.LessThan(("x",), Decimal("1.05")), True),
        ([b"a", b"\xff"], pa.binary(), ds.GreaterThan(("x",), b"\xff\x00"), False),
        ([b"a"], pa.binary(), ds.EqualTo(("x",), "b"), True),
        ([dt.date(2024, 7, 1)], pa.date32(), ds.EqualTo(("x",), dt.date(2024, 7, 2)), False),
        ([dt.date(2024, 7, 1)], pa.date32(), ds.GreaterThan(("x",), NOON), True),
        ([INSTANT], pa.timestamp("us", "UTC"), ds.GreaterThan(("x",), INSTANT), False),
        ([INSTANT], pa.timestamp("us", "UTC"), ds.GreaterThan(("x",), NOON), True),
        ([NOON], pa.timestamp("us"), ds.GreaterThan(("x",), NOON), False),
        ([NOON], pa.timestamp("us"), ds.GreaterThan(("x",), INSTANT), True),
        ([True], pa.bool_(), ds.Not(ds.EqualTo(("x",), True)), False),
        (["b", "c"], pa.string(), ds.StringStartsWith(("x",), "b"), True),
        (["bb", "c"], pa.string(), ds.StringStartsWith(("x",), "a"), False),
        (["ba", "c"], pa.string(), ds.StringStartsWith(("x",), "ca"), False),
        (["b"], pa.string(), ds.StringStartsWith(("x",), ""), True),
        ([None], pa.string(), ds.StringStartsWith(("x",), ""), False),
        (["ba", "bz"], pa.string(), ds.Not(ds.StringStartsWith(("x",), "b")), False),
        (["ba", "c"], pa.string(), ds.Not(ds.StringStartsWith(("x",), "b")), True),
        (["a", "bz"], pa.string(), ds.Not(ds.StringStartsWith(("x",), "b")), True),
        (["b"], pa.string(), ds.Not(ds.StringStartsWith(("x",), "")), False),
        (["b"], pa.string(), ds.StringStartsWith(("x",), "\ud800"), True),
        ([b"b"], pa.binary(), ds.StringStartsWith(("x",), "c"), True),
        (["b"], pa.string(), ds.StringContains(("x",), "c"), True),
        (["b"], pa.string(), ds.Not(ds.StringEndsWith(("x",), "b")), True),
        ([[1]], pa.list_(pa.int64()), ds.IsNull(("x",)), True),
    ],
    ids=str,
)
def test_a_filter_is_compared_with_bounds(
    values: list[Any], kind: pa.DataType, pushed: ds.Filter, expected: bool
) -> None:
    assert possible(values, kind, pushed) == expected
    assert possible(values, kind, ds.Not(ds.Not(pushed))) == expected
    assert possible(values, kind, ds.IsNull(("other",)), pushed) == expected


@pytest.mark.parametrize("times", [5_000, 5_001])
def test_negations_are_nested_at_any_depth(times: int) -> None:
    pushed: ds.Filter = ds.EqualTo(("x",), 5)
    for _ in range(times):
        pushed = ds.Not(pushed)
    assert possible([1], pa.int64(), pushed) == (times % 2 == 1)
    assert possible([5], pa.int64(), pushed) == (times % 2 == 0)


class Files:
    """Files with few values, and their statistics."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        draw = RandomConditions(dice, [*COLUMNS], "UTC", MORE)
        self.schema = arrow_schema(spark_schema({name: kind for name, (kind, _) in COLUMNS.items()}))
        self.rows: list[list[dict[str, Any]]] = []
        entries = []
        for _ in range(FILES):
            few, nulls = draw.rows(0, 2), dice.choice([0, 0, 0.3, 1])
            count = dice.choice([1, 1, 2, 3, 8])
            self.rows.append([{name: self._one(few, name, nulls) for name in COLUMNS} for _ in range(count)])
            entries.append(entries_of(pa.Table.from_pylist(self.rows[-1], self.schema)))
        for columns in entries:
            for name, entry in [*columns.items()]:
                if dice.random() < 0.05:
                    del columns[name]
                elif dice.random() < 0.1:
                    entry[dice.randrange(3)] = None
        self.bounds = bounds_columns(entries)

    def _one(self, few: list[dict[str, Any]], name: str, nulls: float) -> Any:
        return None if self._dice.random() < nulls else self._dice.choice(few)[name]


def random_values() -> dict[tuple[str, ...], list[Any]]:
    values: dict[tuple[str, ...], list[Any]] = {}
    for name, (_, drawn) in COLUMNS.items():
        values[name,] = [*drawn, *MORE.get(name, [])]
    del values["pair",]
    return values | {("pair", "a"): [7, 8, 9], ("pair", "b"): ["x", "y", "xy"]}


def test_no_file_with_a_row_that_meets_random_filters_is_excluded(seed: int) -> None:
    dice = random.Random(seed)
    draw = RandomFilters(dice, random_values())
    excluded = 0
    for _ in range(0, FILTERS, OF_THE_FILES):
        files = Files(dice)
        counts = [len(rows) for rows in files.rows]
        for _ in range(OF_THE_FILES):
            filters = [draw.draw(3) for _ in range(dice.choice([1, 1, 2]))]
            mask = PushedFilters(map(tree_of, filters), files.schema).mark_possible(files.bounds, counts)
            for number, rows in enumerate(files.rows):
                matches = [row for row in rows if all(is_met(pushed, row) for pushed in filters)]
                assert mask[number] or not matches, (filters, matches)
            excluded += FILES - sum(mask)
    assert excluded > 2 * FILTERS


@pytest.mark.slow
def test_one_of_a_thousand_files_is_read(tmp_path: Path) -> None:
    columns = {"id": "long", "at": "timestamp", "x": "double"}
    rows = [{"id": n, "at": INSTANT + dt.timedelta(days=n), "x": n / 2} for n in range(1_000)]
    MicroBatch(str(tmp_path), columns, {"fileFormat": "json", "maxRecordsPerFile": "1"}).run(0, [rows])
    assert files_of(tmp_path) == 1_000
    assert files_of(tmp_path, ds.EqualTo(("id",), 5)) == 1
    assert files_of(tmp_path, ds.Not(ds.GreaterThan(("x",), 1.0))) == 3
    assert files_of(tmp_path, ds.LessThan(("at",), INSTANT + dt.timedelta(hours=25))) == 2
    assert files_of(tmp_path, ds.IsNull(("x",))) == 0


def struct(*kinds: str) -> dict[str, Any]:
    """Return the type of a struct with fields of these types."""
    fields = []
    for name, kind in zip(("a", "B.c"), kinds, strict=True):
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": fields}


def test_columns_of_older_files_are_compared_if_their_types_are_equal(tmp_path: Path) -> None:
    """Fields of structs follow the same rule as columns."""
    options = {"fileFormat": "json", "onSchemaChange": "any"}
    columns = {"p": "long", "n": "integer", "s": struct("integer", "float"), "d": "float"}
    query = MicroBatch(str(tmp_path), columns, options)
    query.run(0, [[{"p": 1, "n": 5, "s": {"a": 5, "B.c": 0.5}, "d": 0.5}]])
    query.columns = {"p": "long", "n": "long", "s": struct("long", "double"), "d": "double", "more": "long"}
    query.run(1, [[{"p": 2, "n": 1 << 40, "s": None, "d": 0.5, "more": 1}]])
    for pushed, files in (
        (ds.EqualTo(("p",), 2), 1),
        (ds.GreaterThan(("n",), 5), 1),
        (ds.EqualTo(("s", "a"), 6), 0),
        (ds.EqualTo(("S", "A"), 5), 1),
        (ds.IsNull(("s", "a")), 1),
        (ds.GreaterThan(("s", "b.C"), 1.0), 2),
        (ds.EqualTo(("s", "c"), 8), 2),
        (ds.GreaterThan(("d",), 1.0), 2),  # the older file has values of another type
        (ds.EqualTo(("more",), 2), 1),  # the older file does not have the column
        (ds.IsNull(("more",)), 1),
    ):
        assert files_of(tmp_path, pushed) == files, pushed


@pytest.mark.parametrize(("kind", "files"), [("varchar(5)", 0), ("char(5)", 2)])
def test_padded_texts_are_not_compared(tmp_path: Path, kind: str, files: int) -> None:
    query = MicroBatch(str(tmp_path), {"name": kind}, {"fileFormat": "json"})
    for batch in range(2):
        query.run(batch, [[{"name": f"a{batch}"}]])
    assert files_of(tmp_path, ds.EqualTo(("name",), "b")) == files


def files_of(directory: Path, *filters: ds.Filter) -> int:
    """Return the number of files in the tasks of a read with filters."""
    source = FtFileDataSource({"path": str(directory), "filterPushdown": "true"})
    reader: Any = source.reader(source.schema())
    list(reader.pushFilters(list(filters)))
    return sum(len(part.share.ranges) for part in reader.partitions())


def add_of(number: int) -> Add:
    """Return a file with one row."""
    return Add(
        id=str(number),
        kind="part",
        path=f"{number}",
        final_path=f"{number}",
        length=1,
        logical_length=1,
        checksum="",
        rows=1,
        directory_key="",
        encoding="e",
        origin=Origin("query", 0, 0),
        statistics={"id": (number, number, 0)},
    )


def test_filters_are_compared_with_any_number_of_files() -> None:
    encoding = spark_schema({"id": "long"})
    definitions = {"e": {"schema": encoding, "partitionBy": [], "timeZone": "UTC", "format": {}}}
    adds = {str(number): add_of(number) for number in range(30_000)}
    snapshot = Snapshot(version=0, schema=None, definitions=definitions, adds=adds)
    pushed = PushedFilters(map(tree_of, [ds.EqualTo(("id",), 5), ds.IsNotNull(("id",))]), arrow_schema(encoding))
    reader = StatisticsReader(
        snapshot, pushed, recorded=arrow_schema(encoding), filtered=pa.schema([]), time_zone="UTC"
    )
    assert [add.id for add, _ in reader.list_possible(CrashingFileSystem())] == ["5"]
