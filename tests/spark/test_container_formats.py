"""ORC, Avro, Arrow and records of bytes: read by Spark's sources, if they exist, and by ftfile in Spark."""

from __future__ import annotations

import datetime as dt
import operator
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql.types import ArrayType, StringType, StructType

import ftfile
from ftfile.core.arguments import Access
from ftfile.core.errors import SchemaError
from ftfile.rows.spark_types import arrow_schema
from ftfile.source.settings import FileDecoding
from ftfile.spark import load_plan
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.load.write_files import FilesToLoad, WriteSettings, write_files
from tests.spark.test_formats_interop import (
    BROKEN_LINES,
    INSTANTS_OF_ALL_ZONES,
    LEAVES,
    TEXTS,
    TIMESTAMP,
    assert_same,
    spark_schema,
    table,
    write,
)
from tests.spark.test_load import ALL as ALL_TYPES
from tests.spark.test_load import same, written
from tests.unit.source.planned import Files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UTC = dt.timezone.utc
DATE = pa.date32()
ALL = {**LEAVES, pa.string(): TEXTS + BROKEN_LINES}
# The values within the range of ORC.
OF_ORC = {
    **ALL,
    DATE: [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(9999, 12, 31)],
    TIMESTAMP: [
        dt.datetime(1677, 9, 22, tzinfo=UTC),
        dt.datetime(1883, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2014, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(2024, 3, 10, 7, 30, 0, 123456, tzinfo=UTC),
        dt.datetime(2262, 4, 11, tzinfo=UTC),
    ],
}
SPARK_AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"


@pytest.mark.parametrize("compression", ["none", "snappy", "zlib", "zstd"])
def test_spark_reads_orc(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    rows = table(OF_ORC, nested=True)
    path = write(tmp_path / "out", "orc", {"compression": compression}, rows)
    spark.range(1).coalesce(1).write.option("compression", compression).orc(str(tmp_path / "spark"))
    read = spark.read.orc(path)
    assert read.schema == spark_schema(rows)
    assert_same(read.toArrow(), rows)
    (named_by_spark,) = (tmp_path / "spark").glob("part-*")
    (ours,) = (tmp_path / "out").glob("part-*")
    assert named_by_spark.name.partition(".")[2] == ours.name.partition(".")[2]


def test_filters_of_spark_know_bounds_of_long_texts(spark: SparkSession, tmp_path: Path) -> None:
    """Statistics contain bounds instead of long texts. Spark uses the bounds to skip stripes and files."""
    long = "k" * 1024
    texts = ["a", long, f"{long}a", f"{long}z", "l", "é" * 2000, "\U0010ffff" * 300]
    for number, some in enumerate([texts[:1], texts[1:4], texts[4:5], texts[5:], [None]]):
        write(tmp_path / f"out{number}", "orc", {}, pa.table({"s": pa.array(some, pa.string())}))
    frame = spark.read.orc(str(tmp_path / "out*"))
    comparisons = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    for text in (*texts, f"{long[1:]}l", f"{long}b"):
        for sign, compare in comparisons.items():
            found = frame.where(f"s {sign} '{text}'").count()
            assert found == sum(compare(each, text) for each in texts), (text[:9], sign)
    assert frame.where("s IS NULL").count() == 1


def test_days_that_the_calendar_of_sparks_orc_reader_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads these days ten days later, even in files that Spark writes. Other readers read them unchanged."""
    rows = pa.table({"day": pa.array([dt.date(1582, 10, 10)])})
    path = write(tmp_path / "out", "orc", {}, rows)
    assert spark.read.orc(path).first() == (dt.date(1582, 10, 20),)
    (file,) = (tmp_path / "out").glob("part-*")
    assert orc.read_table(file).to_pylist() == rows.to_pylist()


@pytest.fixture(scope="module")
def avro(spark: SparkSession) -> None:
    """Spark's Avro source, which is not part of Spark, from Maven's central repository or a mirror."""
    spark.sql(f"ADD JAR 'ivy://{SPARK_AVRO}?transitive=false'")


@pytest.mark.usefixtures("avro")
@pytest.mark.parametrize("compression", ["none", "deflate", "snappy", "zstd"])
def test_spark_reads_avro(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    rows = table(ALL, nested=True)
    path = write(tmp_path / "out", "avro", {"compression": compression}, rows)
    found = spark.read.format("avro").load(path).toArrow()
    for number, name in enumerate(found.column_names):
        if pa.types.is_map(found.schema.field(name).type):  # Java does not keep the order of a map
            entries = [value and sorted(value, reverse=True) for value in found[name].to_pylist()]
            found = found.set_column(number, name, pa.array(entries, found[name].type))
    assert_same(found, rows)


@pytest.mark.usefixtures("avro")
def test_ftfile_and_spark_mean_the_same_avro_schema(spark: SparkSession, tmp_path: Path) -> None:
    values: dict[pa.DataType, list[Any]] = {
        pa.int64(): [1],
        pa.decimal128(10, 2): [Decimal(0)],
        TIMESTAMP: INSTANTS_OF_ALL_ZONES,
    }
    rows = table(values, nested=True)
    path = write(tmp_path / "out", "avro", {}, rows)
    assert spark.read.format("avro").load(path).schema == spark_schema(rows)


@pytest.mark.usefixtures("avro")
def test_small_integers_are_int_in_avro(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32()}
    path = write(tmp_path / "out", "avro", {}, pa.table({name: pa.array([1], kind) for name, kind in kinds.items()}))
    assert dict(spark.read.format("avro").load(path).dtypes) == dict.fromkeys(kinds, "int")


OF_SPARK_2 = {"org.apache.spark.version": "2.4.8"}
FOREIGN_AVRO: dict[str, tuple[Any, list[Any]]] = {
    "i int": ("int", [-(1 << 31), (1 << 31) - 1]),
    "wide bigint": ("int", [1, -1]),
    "double double": ("int", [1, -1]),
    "day date": ({"type": "int", "logicalType": "date"}, [-719_470, -141_428]),
    "midnight timestamp_ntz": ({"type": "int", "logicalType": "date"}, [-719_470, 3_000_000]),
    "of_millis date": ("long", [-86_399_999, 86_400_000]),
    "instant timestamp": ("long", [1 << 40, 1 << 50]),
    "clock timestamp_ntz": ({"type": "long", "logicalType": "local-timestamp-millis"}, [-(1 << 50), -1]),
    "micros timestamp": ({"type": "long", "logicalType": "timestamp-micros"}, [-1, 1 << 60]),
    "number bigint": ({"type": "long", "logicalType": "timestamp-micros"}, [-1, 1 << 60]),
    "f double": ("float", [0.1, float("inf")]),
    "text string": ({"type": "string", "logicalType": "uuid"}, ["ä", "not one"]),
    "symbol string": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"]),
    "data binary": ({"type": "fixed", "name": "f", "size": 2}, [b"ab", b"\xff\0"]),
    "price decimal(5,0)": (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        [b"\0\x96", b"\xff\x6a"],
    ),
    "numbers bigint": (["null", "int", "long"], [None, 1 << 40]),
    "either struct<member0: bigint, member1: string>": (["int", "null", "string"], ["x", 1]),
    "points array<struct<X: bigint, z: int>>": (
        {
            "type": "array",
            "items": ["null", {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}],
        },
        [[{"x": 1}, None], []],
    ),
    "tags map<string, double>": ({"type": "map", "values": "float"}, [{"a": 0.5}, {}]),
}


@pytest.mark.usefixtures("avro")
@pytest.mark.parametrize("metadata", [None, OF_SPARK_2], ids=["of others", "of Spark 2"])
def test_values_of_foreign_avro_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    ddl = ", ".join(FOREIGN_AVRO)
    names = [column.partition(" ")[0] for column in FOREIGN_AVRO]
    kinds, values = zip(*FOREIGN_AVRO.values(), strict=True)
    fields = [{"name": name, "type": kind} for name, kind in zip(names, kinds, strict=True)]
    records = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    with (tmp_path / "data.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, records, metadata=metadata)
    frame = spark.read.schema(ddl).format("avro").load(str(tmp_path / "data.avro"))
    by_spark = frame.toArrow()
    files = Files(tmp_path)
    [batch] = files.batches([files.whole("data.avro")], arrow_schema(frame.schema.json()), FileDecoding("avro"))
    for name in names:
        assert batch.column(name).equals(by_spark.column(name).combine_chunks().cast(batch.column(name).type)), name


WRITTEN = """
    id, cast(id AS tinyint) AS small, cast(id / 3 AS float) AS f, cast(id AS decimal(9,2)) AS price,
    timestamp_micros(id * 1001) AS at, timestamp_ntz'2026-03-04 05:06:07.891' AS clock, date'1969-12-31' AS day,
    encode(cast(id AS string), 'UTF-8') AS data, array(cast(id AS string), null) AS texts,
    map('a', timestamp_micros(id)) AS times, named_struct('X', id, 'clock', timestamp_ntz'1969-12-31 00:00:00.5') AS s
"""


@pytest.mark.usefixtures("avro")
@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_ftfile_write_stores_the_types_and_values_that_spark_reads(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    source, out = str(tmp_path / "in"), str(tmp_path / "out")
    spark.sql(f"SELECT {WRITTEN} FROM range(0, 100, 1, 1)").write.format(file_format).save(source)
    by_spark = spark.read.format(file_format).load(source)
    files = sorted(map(str, (tmp_path / "in").glob(f"*.{file_format}")))
    write_files(out, FilesToLoad(files), WriteSettings(options={}), access=Access())
    written = ftfile.open(out).to_arrow()
    assert written.schema.types == arrow_schema(by_spark.schema.json()).types
    assert written.sort_by("id").to_pylist() == by_spark.sort("id").toArrow().cast(written.schema).to_pylist()


@pytest.mark.usefixtures("avro")
@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("double", 1.5, "int"),
        ("bytes", b"a", "string"),
        ("int", 1, "float"),
        ({"type": "long", "logicalType": "time-micros"}, 1, "timestamp"),
        (["int", "string"], 1, "string"),
    ],
)
def test_types_of_foreign_avro_are_refused_as_by_spark(
    spark: SparkSession, tmp_path: Path, kind: Any, value: Any, column: str
) -> None:
    path = tmp_path / "data.avro"
    with path.open("wb") as file:
        row = {"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]}
        fastavro.writer(file, row, [{"c": value}])
    frame = spark.read.schema(f"c {column}").format("avro").load(str(path))
    with pytest.raises(Exception, match="Cannot convert Avro"):
        frame.collect()
    files = Files(tmp_path)
    with pytest.raises(SchemaError, match="give the column the type"):
        files.batches([files.whole("data.avro")], arrow_schema(frame.schema.json()), FileDecoding("avro"))


@pytest.mark.usefixtures("avro")
def test_load_has_spark_read_avro_where_it_can(spark: SparkSession, tmp_path: Path) -> None:
    plain = {re.sub(r"\W", "_", name): each for name, each in ALL_TYPES.items() if name != "nested"}
    inner = StructType().add("n", "long").add("t", ArrayType(StringType()))
    plain["nested"] = (inner.jsonValue(), [{"n": 1, "t": ["x", None]}, {"n": None, "t": None}, None])
    for number, codec in enumerate(("none", "deflate", "snappy", "zstd")):
        out = str(tmp_path / codec)
        written(out, plain, fileFormat="avro", compression=codec, **({"partitionBy": "Id"} if number else {}))
        more = {"Id": ("long", [4, 5, 6]), "new": ("short", [7, None, 9])}
        rows = [dict(zip(more, values, strict=True)) for values in zip(*(v for _, v in more.values()), strict=True)]
        partition = {"partitionBy": "Id"} if number else {}
        options = {"fileFormat": "avro", "compression": codec, "onSchemaChange": "any", **partition}
        MicroBatch(out, {name: kind for name, (kind, _) in more.items()}, options).run(1, [rows])
        plan = load_plan(spark, out)
        assert set(plan.spark_files) == {"avro"}, plan
        assert not plan.ftfile_files
        same(spark, out)
    within = {"s": (StructType().add("n", "short").jsonValue(), [{"n": 1}, None, None])}
    plan = load_plan(spark, written(str(tmp_path / "within"), within, fileFormat="avro"))
    assert plan.ftfile_files == {"numbers of 8 or 16 bits within columns of avro": 2}


@pytest.mark.parametrize(
    ("options", "expression"),
    [
        ({"fileFormat": "avro"}, "struct(id, cast(id as string) s) v"),
        ({"fileFormat": "orc"}, "struct(id, cast(id as string) s) v"),
        ({"fileFormat": "arrow"}, "struct(id, cast(id as string) s) v"),
        ({"fileFormat": "binary", "lengthPrefix": "varint"}, "cast(cast(id as string) as binary) v"),
        ({"fileFormat": "binary", "delimiter": "\\x00", "compression": "gzip"}, "cast(id as string) v"),
    ],
    ids=["avro", "orc", "arrow", "lengths", "delimiters"],
)
def test_through_ftfile(spark: SparkSession, paths: dict[str, Any], options: dict[str, str], expression: str) -> None:
    rows = spark.range(1_000).selectExpr(expression)
    for _ in range(2):
        rows.write.format("ftfile").mode("append").options(**options).save(paths["out"])
    expected = sorted(map(repr, [row.v for row in rows.collect()] * 2))
    found = spark.read.format("ftfile").load(paths["out"])
    assert found.schema.simpleString() == rows.schema.simpleString()
    assert sorted(repr(row.v) for row in found.collect()) == expected
    ftfile.compact(paths["out"])
    assert sorted(repr(row.v) for row in spark.read.format("ftfile").load(paths["out"]).collect()) == expected


def test_an_encoder_of_the_users(spark: SparkSession, paths: dict[str, Any]) -> None:
    rows = spark.createDataFrame([("a",), ("bad",), ("c",)], "word string").coalesce(1)
    options = {
        "fileFormat": "binary",
        "encoder": "tests.unit.formats.user_encoders:Marked",
        "encoder.mark": "->",
        "badRecords": "drop",
    }
    rows.write.format("ftfile").mode("append").options(**options).save(paths["out"])
    assert [row.value for row in spark.read.text(f"{paths['out']}/*.marked").collect()] == ["->a", "->c"]
