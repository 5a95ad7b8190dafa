"""Files of our encoders, read by Spark's sources, pandas and DuckDB."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as T  # noqa: N812 - its usual name
from pyspark.sql.pandas.types import to_arrow_schema

from ftfile.core.errors import SchemaError
from ftfile.formats.api import format_from_options
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from ftfile.spark import load
from tests.unit.formats.rows import encode
from tests.unit.formats.test_parquet_readers import CLAIMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc
TEXTS = [
    *(
        "",
        " ",
        " a ",
        "a,b",
        'say "hi", ok',
        '"',
        "\\",
        "a\\",
        "\\N",
        '\\"',
        '"\\',
        "''",
        "#x",
        "null",
        "NaN",
        "\ufeffx",
    ),
    *("\t", "é😀\u2028", "a\x01b", "x\x7f", "/", "</script>", "{}", "[1", '""', '"a"'),
]
BROKEN_LINES = ["a\nb", "a\r\nb", '"\n"', "\n", "a\rb", "\\\n"]
TIMESTAMP = pa.timestamp("us", tz="UTC")
LEAVES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 127],
    pa.int16(): [-32768, 32767],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float32(): [0.1, 1e-45, 3.4028235e38, 1.0, float("nan"), float("inf"), float("-inf")],
    pa.float64(): [0.1, 5e-324, 1.7976931348623157e308, -0.0, 1e20, float("nan"), float("inf"), float("-inf")],
    pa.decimal128(38, 18): [Decimal("99999999999999999999.999999999999999999"), Decimal("-1E-18"), Decimal(0)],
    pa.decimal128(5, 0): [Decimal(-99999)],
    pa.string(): TEXTS,
    pa.binary(): [b"", b"\x00\xff", b"abc", b"ab"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    TIMESTAMP: [
        dt.datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        dt.datetime(1582, 10, 10, 1, 2, 3, tzinfo=UTC),
        dt.datetime(1883, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        dt.datetime(2024, 11, 3, 9, 30, 0, 500000, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    pa.timestamp("us"): [dt.datetime(1, 1, 1), dt.datetime(2024, 3, 10, 2, 30, 0, 1), dt.datetime(9999, 12, 31, 23)],  # noqa: DTZ001 - without a zone on purpose
}


SUPPORTED = T.StructType(
    [
        *(
            T.StructField(kind.typeName(), kind)
            for kind in (
                *(T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType()),
                *(
                    T.DoubleType(),
                    T.StringType(),
                    T.BinaryType(),
                    T.DateType(),
                    T.TimestampType(),
                    T.TimestampNTZType(),
                ),
            )
        ),
        T.StructField("decimal", T.DecimalType(38, 18), nullable=False, metadata={"comment": "money"}),
        T.StructField("list", T.ArrayType(T.DecimalType(5, 0), containsNull=False)),
        T.StructField("map", T.MapType(T.StringType(), T.ArrayType(T.LongType()), valueContainsNull=False)),
        T.StructField("struct", T.StructType([T.StructField("A.b", T.MapType(T.IntegerType(), T.DateType()))])),
    ]
)


def test_schemas_are_what_spark_says(spark: SparkSession) -> None:
    for text in (SUPPORTED.json(), spark.createDataFrame([], SUPPORTED)._jdf.schema().json()):
        arrow = arrow_schema(text)
        assert arrow == to_arrow_schema(SUPPORTED, timezone="UTC")
        assert T.StructType.fromJson(json.loads(spark_schema_json(arrow))).simpleString() == SUPPORTED.simpleString()


def test_characters_are_strings() -> None:
    schema = T.StructType([T.StructField("c", T.CharType(3)), T.StructField("v", T.VarcharType(9))])
    assert arrow_schema(schema.json()) == pa.schema([("c", pa.string()), ("v", pa.string())])


@pytest.mark.parametrize(
    ("kind", "path", "said"),
    [
        (T.TimeType(3), "v", "time(3)"),
        (T.DayTimeIntervalType(), "v", "interval day to second"),
        (T.YearMonthIntervalType(1), "v", "interval month"),
        (T.CalendarIntervalType(), "v", "interval"),
        (T.NullType(), "v", "void"),
        (T.GeometryType(4326), "v", "st_asbinary"),
        (T.GeographyType(4326), "v", "st_asbinary"),
        (T.StringType("UNICODE_CI"), "v", "UNICODE_CI"),
        (T.ArrayType(T.StringType("UTF8_LCASE")), "v.element", "UTF8_LCASE"),
        (T.MapType(T.StringType(), T.StringType("DE_AI")), "v.value", "DE_AI"),
        (T.StructType([T.StructField("x", T.NullType())]), "v.x", "void"),
        (T.StructType([]), "v", "without fields"),
        (VectorUDT(), "v", "VectorUDT"),
    ],
    ids=str,
)
def test_types_that_no_file_keeps_are_refused_by_name(kind: T.DataType, path: str, said: str) -> None:
    schema = T.StructType([T.StructField("ok", T.LongType()), T.StructField("v", kind)])
    with pytest.raises(SchemaError) as caught:
        arrow_schema(schema.json())
    (line,) = str(caught.value).splitlines()[1:]
    assert f"column `{path}`:" in line
    assert said in line


def table(leaves: Mapping[pa.DataType, list[Any]], *, nested: bool) -> pa.Table:
    """Return a table with one column for each type, with nulls; if `nested`, also inside lists, structs and maps."""
    columns: dict[str, pa.Array] = {}
    rows = max(map(len, leaves.values())) + 1
    for number, (arrow, values) in enumerate(leaves.items()):
        padded = [*values, *[None] * (rows - len(values))]
        columns[f"c{number}"] = pa.array(padded, arrow)
        if nested:
            lists = [[value, None] for value in padded[:-3]] + [[], None, padded[:3]]
            columns[f"list{number}"] = pa.array(lists, pa.list_(pa.field("element", arrow)))
            structs = [{"x": value, "y": {"z": value}} for value in padded[:-2]] + [None, {"x": None, "y": None}]
            inner = pa.struct([("z", arrow)])
            columns[f"struct{number}"] = pa.array(structs, pa.struct([("x", arrow), ("y", inner)]))
            maps: list[Any] = [[("k", value), ("", None)] for value in padded[:-2]] + [[], None]
            columns[f"map{number}"] = pa.array(maps, pa.map_(pa.string(), pa.field("value", arrow)))
    return pa.table(columns)


def write(path: Path, name: str, options: Mapping[str, Any], rows: pa.Table) -> str:
    file_format = format_from_options(name, options)
    file_format.check_schema(rows.schema)
    path.mkdir(exist_ok=True)
    (path / f"part-0{file_format.extension}").write_bytes(encode(file_format, *rows.combine_chunks().to_batches()))
    return str(path)


def spark_schema(rows: pa.Table) -> T.StructType:
    return T.StructType.fromJson(json.loads(spark_schema_json(rows.schema)))


def assert_same(found: pa.Table, rows: pa.Table) -> None:
    for name in rows.column_names:
        expected = rows.column(name)
        assert repr(found.column(name).cast(expected.type).to_pylist()) == repr(expected.to_pylist()), name


# In every time zone, these times are within the years 0001 to 9999.
INSTANTS_OF_ALL_ZONES = LEAVES[TIMESTAMP][1:-1]
PATTERNS = {
    "timestampFormat": "dd.MM.yyyy HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy/MM/dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "dd/MM/yyyy",
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ignoreNullFields": False},
        {"timeZone": "Europe/London"},
        {"lineSep": "\r\n"},
        PATTERNS,
    ],
    ids=["default", "nulls", "zone", "crlf", "patterns"],
)
def test_spark_reads_json(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    instants = INSTANTS_OF_ALL_ZONES if "timeZone" in options else LEAVES[TIMESTAMP]
    rows = table({**LEAVES, pa.string(): TEXTS + BROKEN_LINES, TIMESTAMP: instants}, nested=True)
    path = write(tmp_path / "out", "json", options, rows)
    reader = spark.read.schema(spark_schema(rows)).options(**options).option("mode", "FAILFAST")
    assert_same(reader.json(path).toArrow(), rows)


@pytest.mark.parametrize("nested", [False, True])
def test_spark_reads_json_of_the_fast_encoder(spark: SparkSession, tmp_path: Path, nested: bool) -> None:
    """Without values that need the slower kernels: floats that are not finite, map entries without a value."""
    rows = table({kind: [v for v in values if is_finite(v)] for kind, values in LEAVES.items()}, nested=nested)
    maps = [name for name in rows.column_names if name.startswith("map")]
    for name in maps:
        pairs = [value and [(key, item) for key, item in value if item is not None] for value in rows[name].to_pylist()]
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(pairs, rows[name].type))
    path = write(tmp_path / "out", "json", {}, rows)
    reader = spark.read.schema(spark_schema(rows)).option("mode", "FAILFAST")
    assert_same(reader.json(path).toArrow(), rows)


def is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_spark_reads_floats_that_are_not_finite(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.table({"v": pa.array(LEAVES[kind], kind)})
    path = write(tmp_path / "out", "json", {}, rows)
    assert_same(spark.read.schema(spark_schema(rows)).json(path).toArrow(), rows)


FLAT = {arrow: values for arrow, values in LEAVES.items() if not pa.types.is_binary(arrow)}
NO_EMPTY = [text for text in TEXTS if text]


@pytest.mark.parametrize(
    ("options", "texts"),
    [
        ({}, NO_EMPTY),  # Spark's reader reads "" as null, also in files that Spark wrote
        ({"escape": '"'}, NO_EMPTY),
        ({"header": True, "sep": "|", "quote": "'", "quoteAll": True}, NO_EMPTY),
        ({"nullValue": "\\N"}, [text for text in TEXTS if text != "\\N"]),  # and a quoted nullValue as null
        (PATTERNS, NO_EMPTY),
        ({"timeZone": "Europe/London"}, NO_EMPTY),
    ],
    ids=["default", "rfc4180", "all options", "nulls", "patterns", "zone"],
)
def test_spark_reads_csv(spark: SparkSession, tmp_path: Path, options: dict[str, Any], texts: list[str]) -> None:
    instants = INSTANTS_OF_ALL_ZONES if "timeZone" in options else LEAVES[TIMESTAMP]
    rows = table({**FLAT, pa.string(): texts, TIMESTAMP: instants}, nested=False)
    path = write(tmp_path / "out", "csv", options, rows)
    reader = spark.read.schema(spark_schema(rows)).options(**options).option("mode", "FAILFAST")
    assert_same(reader.csv(path).toArrow(), rows)


@pytest.mark.parametrize("options", [{}, {"escape": '"'}])
def test_spark_reads_csv_with_line_ends_in_values(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    rows = table({pa.string(): [*NO_EMPTY, *BROKEN_LINES], pa.int32(): [1] * 40}, nested=False)
    path = write(tmp_path / "out", "csv", options, rows)
    reader = spark.read.schema(spark_schema(rows)).options(**options, multiLine=True, lineSep="\n")
    assert_same(reader.csv(path).toArrow(), rows)


def test_spark_reads_text(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"value": pa.array([*TEXTS, "a\rb"], pa.string())})
    path = write(tmp_path / "out", "text", {}, rows)
    assert_same(spark.read.option("lineSep", "\n").text(path).toArrow(), rows)


def test_null_is_an_empty_line_of_text_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"value": ["a", None, "b"]})
    write(tmp_path / "ours", "text", {}, rows)
    spark.createDataFrame([("a",), (None,), ("b",)], "value string").coalesce(1).write.text(str(tmp_path / "spark"))
    (ours,), (theirs,) = (list((tmp_path / who).glob("part-*.txt")) for who in ("ours", "spark"))
    assert ours.read_bytes() == theirs.read_bytes() == b"a\n\nb\n"


@pytest.mark.parametrize("name", ["parquet", "json", "csv", "arrow"])
def test_times_of_day(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    texts = ["00:00:00", "01:02:03.5", "12:00:00.000001", "23:59:59.999999", None]
    rows = spark.createDataFrame([*enumerate(texts)], "id long, t string").selectExpr("id", "CAST(t AS TIME) AS t")
    path = str(tmp_path / "out")
    rows.coalesce(1).write.format("ftfile").option("fileFormat", name).mode("append").save(path)
    expected = rows.collect()
    read = spark.read.format("ftfile").load(path)
    assert (read.schema, sorted(read.collect())) == (rows.schema, expected)
    assert sorted(load(spark, path).collect()) == expected
    if name != "arrow":  # Spark has no source for it
        assert sorted(spark.read.schema(rows.schema).format(name).load(path).collect()) == expected


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_variants(spark: SparkSession, tmp_path: Path, name: str) -> None:
    texts = ['{"a":1,"b":[1.5,null,"x"]}', "null", '"text"', "[]", None]
    read_as_text = ["id", "to_json(v) AS v", "to_json(a) AS a"]
    rows = spark.createDataFrame([*enumerate(texts)], "id long, t string")
    rows = rows.selectExpr("id", "parse_json(t) AS v", "array(parse_json(t), null) AS a")
    expected = sorted(rows.selectExpr(*read_as_text).collect())
    path = str(tmp_path / "out")
    rows.coalesce(1).write.format("ftfile").option("fileFormat", name).mode("append").save(path)
    read = spark.read.format("ftfile").load(path)
    frames = [read, load(spark, path)]
    if name == "parquet":
        frames.append(spark.read.schema(read.schema).parquet(path))
    for frame in frames:
        assert frame.schema["v"].dataType == T.VariantType()
        assert sorted(frame.selectExpr(*read_as_text).collect()) == expected


JSON_VALUES = [
    *(
        "null",
        "true",
        "0",
        "-128",
        "128",
        "32768",
        "-2147483649",
        "9223372036854775808",
        "0.1234567891",
    ),
    *(
        "12345678901.25",
        "9" * 38,
        "9" * 39,
        f"0.{'0' * 37}1",
        f"0.{'0' * 38}1",
        "1e3",
        "1.5E-320",
        "1e999",
        '""',
        '"x"',
    ),
    *(
        '"' + "é" * 32 + '"',
        '"' + "x" * 70_000 + '"',
        r'"\"\\/\b\f\n\r\t\u0001\u001f\ud83d\ude00"',
        "[]",
        "{}",
        "[[[]],{}]",
    ),
    *('{"b":1,"a":[1.5,1e3,null]}', '{"\uffff":1,"\U0001f600":2,"":{"b":1}}', "[" * 400 + "]" * 400),
    *(json.dumps(list(range(255))), json.dumps(list(range(300))), json.dumps({str(at): at for at in range(300)})),
    *(json.dumps({f"{at}{'k' * 300}": [at] for at in range(300)}), json.dumps(["x" * 70_000] * 2)),
]
CASTS = [
    *(
        "CAST(NULL AS INT)",
        "1Y",
        "CAST(0.1 AS FLOAT)",
        "CAST('NaN' AS FLOAT)",
        "1e7D",
        "CAST('-Infinity' AS DOUBLE)",
    ),
    *(
        "100BD",
        "DATE'2024-02-29'",
        "DATE'+12345-01-01'",
        "TIMESTAMP'2024-07-01 12:00:00.1234'",
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
    ),
    *("X'00ff10'", "'text'"),
]


WITH_VARIANTS = ("id", "v", "array(ifnull(v, parse_json('null'))) AS a", "map('k', array(struct(v))) AS m")
# Spark omits trailing zeros and then reads another type.
ZEROS = {
    "parse_json('[1.50,0.0]')": "[1.50,0.0]",
    "CAST(1.10BD AS VARIANT)": "1.10",
    "CAST(100.0BD AS VARIANT)": "100.0",
    "CAST(-0.0D AS VARIANT)": "0.0",
}


def test_variants_in_json_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    parsed = spark.createDataFrame([*enumerate(JSON_VALUES)], "id long, t string").selectExpr(
        "id", "parse_json(t) AS v"
    )
    casts = [f"SELECT {1000 + at}L AS id, CAST({cast} AS VARIANT) AS v" for at, cast in enumerate(CASTS)]
    values = parsed.union(spark.sql(" UNION ALL ".join(casts)))
    rows = values.selectExpr(*WITH_VARIANTS)
    zone = {"timeZone": spark.conf.get("spark.sql.session.timeZone")}
    out, theirs = str(tmp_path / "out"), str(tmp_path / "spark")
    rows.coalesce(1).write.options(**zone).json(theirs)
    rows.coalesce(1).write.format("ftfile").options(fileFormat="json", **zone).mode("append").save(out)
    assert text_lines(spark, out) == text_lines(spark, theirs)
    expected = shown(values.selectExpr("id", "parse_json(to_json(v)) AS v").selectExpr(*WITH_VARIANTS))
    for frame in (spark.read.format("ftfile").load(out), load(spark, out), spark.read.schema(rows.schema).json(out)):
        assert frame.schema["v"].dataType == T.VariantType()
        assert shown(frame) == expected


def test_variants_in_json_keep_zeros(spark: SparkSession, tmp_path: Path) -> None:
    selected = " UNION ALL ".join(f"SELECT {at} AS id, {value} AS v" for at, value in enumerate(ZEROS))
    expected = [*enumerate(ZEROS.values())]
    out = str(tmp_path / "out")
    spark.sql(selected).write.format("ftfile").option("fileFormat", "json").mode("append").save(out)
    parsed = shown(spark.createDataFrame(expected, "id int, t string").selectExpr("id", "parse_json(t) AS v"))
    assert shown(spark.read.format("ftfile").load(out)) == shown(load(spark, out)) == parsed


def shown(frame: DataFrame) -> list[str]:
    """Return the rows with all bytes of VARIANTs, because Python cannot compare the values."""
    return [repr(row) for row in frame.sort("id").collect()]


def text_lines(spark: SparkSession, path: str) -> list[str]:
    return sorted(row.value for row in spark.read.text(path).collect())


@pytest.mark.parametrize("compression", CLAIMS)
def test_spark_reads_parquet_as_the_docs_say(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    rows = table({**LEAVES, pa.string(): TEXTS + BROKEN_LINES}, nested=True)
    path = write(tmp_path / "out", "parquet", {"compression": compression}, rows)
    if "not Spark" in CLAIMS[compression]:
        with pytest.raises(Exception, match="BrotliCodec"):
            spark.read.parquet(path).collect()
        return
    assert CLAIMS[compression].startswith("Spark,")
    spark.range(1).coalesce(1).write.option("compression", compression.replace("lz4", "lz4_raw")).parquet(
        str(tmp_path / "spark")
    )
    read = spark.read.parquet(path)
    assert read.schema == spark_schema(rows)
    assert_same(read.toArrow(), rows)
    (named_by_spark,) = (tmp_path / "spark").glob("part-*")
    assert named_by_spark.name.endswith(
        f"-c000{format_from_options('parquet', {'compression': compression}).extension}"
    )


def test_spark_filters_parquet_right(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table(
        {"t": pa.array(range(0, 10**9, 10**6), TIMESTAMP), "s": [f"k{number:04}" for number in range(1000)]}
    )
    path = write(tmp_path / "out", "parquet", {}, rows)
    found = spark.read.parquet(path).where("t >= timestamp'1970-01-01 00:16:30Z' and s < 'k0995'")
    assert sorted(row.s for row in found.collect()) == [f"k{number:04}" for number in range(990, 995)]


def test_pandas_reads_them(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "x": [0.1, None, -5.0], "s": ["a,b", 'say "hi"', "back\\slash"]})
    json_path = next(Path(write(tmp_path / "json", "json", {}, rows)).iterdir())
    csv_path = next(Path(write(tmp_path / "csv", "csv", {"escape": '"', "header": True}, rows)).iterdir())
    parquet_path = write(tmp_path / "parquet", "parquet", {}, rows)
    expected = rows.to_pandas()
    pd.testing.assert_frame_equal(pd.read_json(json_path, lines=True)[["n", "x", "s"]], expected)
    pd.testing.assert_frame_equal(pd.read_csv(csv_path), expected)
    pd.testing.assert_frame_equal(pd.read_parquet(parquet_path), expected)


@pytest.mark.parametrize("name", ["json", "csv", "parquet"])
def test_duckdb_reads_them(tmp_path: Path, name: str) -> None:
    finite = list(filter(is_finite, FLAT[pa.float64()]))
    leaves = {**FLAT, pa.float64(): finite, pa.float32(): [0.5], TIMESTAMP: INSTANTS_OF_ALL_ZONES}
    if name == "json":
        leaves[pa.decimal128(38, 18)] = [Decimal("1.5")]  # DuckDB reads decimals in JSON as doubles first
    rows = table({**leaves, pa.string(): NO_EMPTY + BROKEN_LINES}, nested=False)
    path = write(tmp_path / "out", name, {"escape": '"'} if name == "csv" else {}, rows)
    columns = {column.name: duckdb_type(column.type) for column in rows.schema}
    reader = {
        "json": f"read_json('{path}/*.json', format='newline_delimited', columns={columns})",
        "csv": f"read_csv('{path}/*.csv', header=false, columns={columns}, quote='\"', escape='\"', "
        "allow_quoted_nulls=false)",
        "parquet": f"read_parquet('{path}/*.parquet')",
    }[name]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    found = connection.sql(f"SELECT * FROM {reader}")
    assert found is not None
    assert_same(found.to_arrow_table(), rows)


def duckdb_type(arrow: pa.DataType) -> str:
    text = spark_schema_json(pa.schema([("v", arrow)]))
    kind = str(json.loads(text)["fields"][0]["type"])
    names = {"byte": "TINYINT", "short": "SMALLINT", "long": "BIGINT", "timestamp": "TIMESTAMPTZ"}
    return names.get(kind, "TIMESTAMP" if kind == "timestamp_ntz" else kind.upper())
