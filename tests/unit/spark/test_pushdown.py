"""The partitions and rows that remain after filters, without a JVM."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import datasource as ds
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from ftfile.core.errors import ConfigError
from ftfile.read import shares
from ftfile.rows.bounds.guarantees import may_be_true
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.filters import tree_of
from ftfile.spark.pushdown import condition_of
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.spark.pickled import pickled

if TYPE_CHECKING:
    from pathlib import Path

if not hasattr(ds, "Not"):
    pytest.skip("Spark 4.0 passes no filters to a reader", allow_module_level=True)

COLUMNS = {
    "n": pa.array([1, 2, None]),
    "name": pa.array(["a", "b%", None]),
    "day": pa.array([dt.date(2024, 7, 1), dt.date(2024, 7, 2), None]),
    "price": pa.array([Decimal("1.5"), Decimal(2), None], pa.decimal128(5, 1)),
    "wide": pa.array([Decimal(10**26), Decimal("1" * 38), None], pa.decimal128(38, 0)),
    "yes": pa.array([True, False, None]),
    "x": pa.array([1.0, float("nan"), None]),
}


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (ds.EqualTo(("n",), 1), [0]),
        (ds.EqualTo(("N",), 1), [0]),
        (ds.Not(ds.EqualTo(("n",), 1)), [1]),
        (ds.EqualNullSafe(("n",), 1), [0]),
        (ds.EqualNullSafe(("n",), None), [2]),
        (ds.Not(ds.EqualNullSafe(("n",), 1)), [1, 2]),
        (ds.In(("n",), (2, 3, None)), [1]),
        (ds.Not(ds.In(("n",), (1,))), [1]),
        (ds.GreaterThan(("n",), 1), [1]),
        (ds.GreaterThanOrEqual(("n",), 1), [0, 1]),
        (ds.LessThan(("n",), 2), [0]),
        (ds.LessThanOrEqual(("n",), 1), [0]),
        (ds.IsNull(("n",)), [2]),
        (ds.IsNotNull(("n",)), [0, 1]),
        (ds.Not(ds.IsNull(("n",))), [0, 1]),
        (ds.StringStartsWith(("name",), "b"), [1]),
        (ds.StringEndsWith(("name",), "%"), [1]),
        (ds.Not(ds.StringContains(("name",), "%")), [0]),
        (ds.EqualTo(("day",), dt.date(2024, 7, 2)), [1]),
        (ds.GreaterThanOrEqual(("day",), dt.date(2024, 7, 2)), [1]),
        (ds.LessThan(("price",), Decimal(2)), [0]),
        (ds.EqualTo(("yes",), True), [0]),
        (ds.EqualTo(("n",), 1.5), None),  # Arrow would cast the value to 1
        (ds.EqualTo(("n",), "1"), None),
        (ds.EqualTo(("n",), None), None),
        (ds.In(("n",), (1.5,)), None),
        (ds.LessThan(("price",), Decimal("1.55")), None),  # the type of the column differs
        (ds.Not(ds.LessThan(("price",), Decimal("1.55"))), None),
        (ds.LessThan(("wide",), Decimal("9" * 27)), [0]),
        # PySpark passes 38 ones as this value
        (ds.EqualTo(("wide",), Decimal("1" * 28).scaleb(10)), None),
        (ds.In(("wide",), (Decimal(7), Decimal("1" * 28).scaleb(10))), None),
        (ds.StringContains(("n",), "a"), None),
        (ds.GreaterThan(("x",), 1.0), None),
        (ds.EqualTo(("x",), float("nan")), None),
        (ds.EqualTo(("other",), 1), None),
        (ds.EqualTo(("n", "inner"), 1), None),
    ],
)
def test_a_condition_keeps_the_rows_that_match(condition: ds.Filter, kept: list[int] | None) -> None:
    rows = pa.table({**COLUMNS, "number": [0, 1, 2]})
    found = condition_of(map(tree_of, [ds.EqualTo(("other",), 1), condition]), rows.schema)
    if kept is None:
        assert found is None
        return
    assert rows.filter(found)["number"].to_pylist() == kept
    both = condition_of(map(tree_of, [condition, ds.IsNotNull(("yes",))]), rows.schema)
    assert rows.filter(both)["number"].to_pylist() == [number for number in kept if number < 2]


@pytest.mark.parametrize(
    ("condition", "is_possible"),
    [
        (ds.GreaterThan(("n",), 20), False),
        (ds.Not(ds.GreaterThan(("n",), 9)), False),
        (ds.Not(ds.GreaterThanOrEqual(("n",), 10)), False),
        (ds.Not(ds.GreaterThanOrEqual(("n",), 11)), True),
        (ds.Not(ds.LessThan(("n",), 21)), False),
        (ds.Not(ds.LessThanOrEqual(("n",), 19)), True),
        (ds.Not(ds.EqualTo(("n",), 10)), True),
        (ds.StringStartsWith(("name",), "bb"), True),
        (ds.StringStartsWith(("name",), "b"), True),
        (ds.StringStartsWith(("name",), ""), True),
        (ds.StringStartsWith(("name",), "a"), False),
        (ds.StringStartsWith(("name",), "cc"), False),
        (ds.StringStartsWith(("name",), "a\U0010ffff"), False),
        (ds.StringStartsWith(("name",), "\U0010ffff"), False),
        (ds.Not(ds.StringStartsWith(("name",), "b")), True),
        (ds.Not(ds.StringStartsWith(("name",), "")), False),
    ],
    ids=str,
)
def test_a_condition_is_compared_with_bounds(condition: ds.Filter, is_possible: bool) -> None:
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    n, name = pc.field("n"), pc.field("name")
    bounds = (n >= 10) & (n <= 20) & (name >= "b") & (name <= "c")
    assert may_be_true(condition_of([tree_of(condition)], schema), [bounds], schema) == [is_possible]


@pytest.mark.parametrize("prefix", ["", "b", "b\ud7ff", "b\U0010ffff", "\U0010ffff", "\U0010ffff\U0010ffff", "ä", "\0"])
def test_prefixes_have_the_same_rows_as_a_range(prefix: str) -> None:
    texts = ["", "\0", "\0\0", "a", "b", "bb", "b\ud7ff", "b\ud7ffb", "b\ue000", "b\U0010ffff", "b\U0010ffffb"]
    texts += ["c", "ä", "äb", "å", "\U0010fffe", "\U0010ffff", "\U0010ffff\U0010ffff"]
    rows = pa.table({"name": [*texts, None]})
    matches = [text for text in texts if text.startswith(prefix)]
    for pushed, expected in (
        (ds.StringStartsWith(("name",), prefix), matches),
        (ds.Not(ds.StringStartsWith(("name",), prefix)), [text for text in texts if text not in matches]),
    ):
        assert rows.filter(condition_of([tree_of(pushed)], rows.schema))["name"].to_pylist() == expected
    assert condition_of([tree_of(ds.StringStartsWith(("name",), "\ud800"))], rows.schema) is None


@pytest.mark.slow
def test_a_reader_leaves_out_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters also remove rows in open files, and partitions of files in another time zone."""
    out = str(tmp_path / "out")
    rows = [{"a": n, "b": f"{n}", "c": n} for n in range(4)]
    columns = {"a": "integer", "b": "string", "c": "long"}
    for batch, more in enumerate(({}, {"timeZone": "Asia/Tokyo"}, {"maxBatchesPerFile": "3"})):
        MicroBatch(out, columns, {"partitionBy": "b,a", **more}).run(batch, [rows])

    def found(*filters: ds.Filter, schema: StructType | None = None) -> list[Any]:
        source = FtFileDataSource({"path": out, "filterPushdown": "true"})
        reader: Any = source.reader(schema or source.schema())
        assert list(reader.pushFilters(list(filters))) == list(filters)
        partitions = reader.partitions()
        reader = pickle.loads(pickled(reader))
        return sorted(row["c"] for part in partitions for batch in reader.read(part) for row in batch.to_pylist())

    assert found() == [n for n in range(4) for _ in range(3)]
    with monkeypatch.context() as patched:
        patched.delattr(shares, "matching_rows")  # not called, because all rows of the remaining files match
        assert found(ds.EqualTo(("a",), 1)) == [1, 1, 1]
    assert found(ds.In(("b",), ("1", "3")), ds.GreaterThan(("a",), 1)) == [3, 3, 3]
    assert found(ds.EqualTo(("c",), 1)) == [1, 1, 1]
    assert found(ds.EqualTo(("c",), 1), ds.GreaterThan(("a",), 1)) == []
    assert found(ds.LessThan(("c",), 3), ds.GreaterThan(("a",), 1)) == [2, 2, 2]
    assert found(ds.EqualTo(("a",), 7)) == []
    assert found(*[ds.Not(ds.EqualTo(("a",), n)) for n in range(7, 3_000)]) == found()
    wider = StructType().add("A", LongType()).add("c", LongType()).add("b", StringType())
    assert found(ds.EqualTo(("A",), 1), schema=wider) == found()


@pytest.mark.parametrize(
    ("filters", "files"),
    [
        ((), 6),
        ((ds.EqualTo(("id",), 25),), 1),
        ((ds.GreaterThan(("id",), 35), ds.LessThan(("name",), "name 5")), 2),
        ((ds.Not(ds.LessThan(("id",), 40)),), 2),
        ((ds.In(("id",), (5, 55)),), 2),
        ((ds.StringStartsWith(("name",), "name 3"),), 1),
        ((ds.IsNull(("id",)),), 0),
        ((ds.GreaterThan(("id",), 1000),), 0),
    ],
)
def test_a_reader_leaves_out_files_by_their_statistics(
    tmp_path: Path, filters: tuple[ds.Filter, ...], files: int
) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long", "name": "string"}, {"fileFormat": "json"})
    for batch in range(6):
        query.run(batch, [[{"id": 10 * batch + n, "name": f"name {batch}"} for n in range(10)]])
    source = FtFileDataSource({"path": out, "filterPushdown": "true"})
    reader: Any = source.reader(source.schema())
    list(reader.pushFilters(list(filters)))
    assert sum(len(part.share.ranges) for part in reader.partitions()) == files


@parametrize("file_format", ["parquet", "orc", "json", "csv", "avro"], quick=1)
def test_a_reader_leaves_out_rows(tmp_path: Path, file_format: str) -> None:
    """Filters refer to the requested type of a column, not to its type in the file."""
    out = str(tmp_path / "out")
    more = {"fileFormat": file_format, "onSchemaChange": "widen"}
    MicroBatch(out, {"N": "integer", "word": "string"}, more).run(0, [[{"N": n, "word": f"{n}"} for n in range(4)]])
    columns = {"N": "long", "word": "string", "x": "double"}
    MicroBatch(out, columns, more).run(1, [[{"N": 1 << 40 | n, "word": None, "x": n / 2} for n in range(4)]])

    def found(schema: StructType, *filters: ds.Filter) -> list[Any]:
        reader: Any = FtFileDataSource({"path": out, "filterPushdown": "true"}).reader(schema)
        list(reader.pushFilters(list(filters)))
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert {batch.schema for batch in batches} <= {to_arrow_schema(schema)}
        assert all(batch.num_rows for batch in batches)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    schema = StructType().add("x", DoubleType()).add("n", LongType())
    assert found(schema, ds.GreaterThan(("n",), 2)) == [(None, 3), *((n / 2, 1 << 40 | n) for n in range(4))]
    assert found(schema, ds.IsNotNull(("n",)), ds.In(("n",), (3, 1 << 40, None))) == [(None, 3), (0.0, 1 << 40)]
    assert found(schema, ds.EqualTo(("x",), 0.5), ds.LessThan(("n",), 1)) == [(None, 0)]
    assert found(schema, ds.LessThan(("n",), 0)) == []


@pytest.mark.slow
def test_each_core_has_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": number}] for number in range(32)])
    source = FtFileDataSource({"path": out})
    for cores, tasks in ((1, 1), (4, 4), (64, 8)):
        monkeypatch.setattr("ftfile.spark.reader.cores", lambda cores=cores: cores)
        assert len(source.reader(source.schema()).partitions()) == tasks


def test_filters_are_not_asked_for_without_the_option(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    source = FtFileDataSource({"path": out})
    assert type(source.reader(source.schema())).pushFilters is ds.DataSourceReader.pushFilters


def test_older_sparks_give_no_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    source = FtFileDataSource({"path": out, "filterPushdown": "true"})
    monkeypatch.delattr(ds.DataSourceReader, "pushFilters")
    with pytest.raises(ConfigError, match=r"from 4\.1 on, with spark\.sql\.python\.filterPushdown"):
        source.reader(source.schema())
