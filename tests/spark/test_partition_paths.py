"""Directory names compared with the names of Spark's file sink, and Spark's reads of our names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftfile.formats.partition_paths import parse_partition_path, partition_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ZONE = "Europe/Paris"
# Without doubles whose text differs between JDK 17 and later, and without strings that Spark misreads.
VALUES = {
    "boolean": ["true", "false", "cast(null AS boolean)"],
    "tinyint": ["-1Y", "0Y", "127Y"],
    "smallint": ["-32768S"],
    "int": ["-5", "2147483647"],
    "bigint": ["9223372036854775807L", "-1L"],
    "double": [
        *("0D", "-0.0D", "100D", "0.001D", "0.0001D", "9999999D", "1e7D", "123456789.125D", "-1234567.125D"),
        *("double('NaN')", "double('Infinity')", "double('-Infinity')", "4.9e-324D", "1.7976931348623157E308D"),
    ],
    "float": ["0.1F", "16777216F", "1e10F", "3.4028234e38F", "1.4e-45F", "float('NaN')", "float('-Infinity')"],
    "decimal(10,2)": ["1.50", "-12.34", "0"],
    "decimal(38,18)": ["0", "0.00000000001", "12345678901234567890.5"],
    "date": ["date'2024-02-29'", "date'0001-01-01'", "date_add(date'9999-12-31', 1)", "date'0001-01-01' - 400"],
    "timestamp": [
        *("timestamp'2024-02-29 00:00:00'", "timestamp'2024-07-01 12:34:56.12'", "timestamp_micros(-1)"),
        *("timestamp_seconds(1729989000)", "timestamp_seconds(-3000000000)", "timestamp_micros(253402300800000000)"),
    ],
    "timestamp_ntz": ["timestamp_ntz'2024-02-29 12:34:56.5'", "timestamp_ntz'2024-10-27 02:30:00'"],
    "string": [
        *("cast(null AS string)", "' '", "'a/b'", "'.'", "'..'", "'a%2Fb'", "'%'", "'ü€😀'", "repeat('x', 249)"),
        *(f"concat('<', chr({code}), '>')" for code in range(1, 160)),
    ],
}


@pytest.fixture(scope="module", autouse=True)
def zone(spark: SparkSession) -> Iterator[None]:
    """Set another time zone than other tests, and restore it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("type_", VALUES)
def test_names_are_those_of_spark(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    rows = ", ".join(f"(cast({value} AS {type_}), 1)" for value in VALUES[type_])
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(`a key`, v)")
    frame.write.partitionBy("a key").parquet(str(tmp_path / "out"))
    theirs = {path.name for path in (tmp_path / "out").iterdir() if "=" in path.name}
    values = frame.toArrow().combine_chunks().column("a key").combine_chunks()
    names = partition_names("a key", values, ZONE)
    assert set(names) == theirs
    schema = pa.schema([("a key", values.type)])
    for name, value in zip(names, values, strict=True):
        back = parse_partition_path(name, schema, ZONE)["a key"]
        assert back.equals(value) or str(value) in {"nan", ""}


ODD = {
    "string": ["__HIVE_DEFAULT_PARTITION__", "a._COPYING_", "a\0b", "%", "%5F", "a=b/c", "plain", None],
    "timestamp": [1729989000000000, 1729992600000000, 0, None],
}


@pytest.mark.parametrize("type_", ODD)
def test_spark_reads_every_value_back(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    kind = pa.string() if type_ == "string" else pa.timestamp("us", "UTC")
    values = pa.array(ODD[type_], kind)
    for number, value in enumerate(values):
        (name,) = partition_names(".key", pa.repeat(value, 1), ZONE)
        (inner,) = partition_names("_v", pa.array(["x"]))
        folder = tmp_path / name / inner
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": pa.array([number], pa.int32())}), folder / "part.parquet")
    frame = spark.read.schema(f"n int, `.key` {type_}, _v string").parquet(str(tmp_path))
    found = {row["n"]: row["key"] for row in frame.selectExpr("n", "`.key` AS key").toArrow().to_pylist()}
    assert found == dict(enumerate(values.to_pylist()))


def test_an_empty_string_is_a_bad_record(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes it to the directory of null, and reads null."""
    rows = spark.sql("SELECT * FROM VALUES ('', 1), (null, 2), ('__HIVE_DEFAULT_PARTITION__', 3) AS t(k, n)")
    writer = rows.write.format("ftfile").mode("append").options(fileFormat="parquet", partitionBy="k")
    with pytest.raises(Exception, match="column 'k' contains an empty string"):
        writer.save(str(tmp_path / "out"))
    writer.option("badRecords", "drop").save(str(tmp_path / "out"))
    expected = [(2, None), (3, "__HIVE_DEFAULT_PARTITION__")]
    for found in (
        spark.read.schema("n int, k string").parquet(str(tmp_path / "out")),
        spark.read.format("ftfile").load(str(tmp_path / "out")),
    ):
        assert sorted((row["n"], row["k"]) for row in found.collect()) == expected


def test_a_column_with_a_comma(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 1 AS n, 'x,y' AS `a,b`, 2 AS `c``d`")
    writer = frame.write.format("ftfile").mode("append").options(partitionBy="`a,b`,`c``d`")
    writer.save(str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out").glob("*/*") if "=" in path.name] == ["c`d=2"]
    for found in (spark.read.parquet(str(tmp_path / "out")), spark.read.format("ftfile").load(str(tmp_path / "out"))):
        assert [row.asDict() for row in found.collect()] == [{"n": 1, "a,b": "x,y", "c`d": 2}]


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_instants_come_back_in_a_session_of_their_zone(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Names use the time zone of the session that wrote first, as in Spark. A session with another zone keeps it."""
    out, zones = str(tmp_path / "out"), ["America/New_York", "Asia/Tokyo"]
    try:
        for number, name in enumerate(zones):
            spark.conf.set("spark.sql.session.timeZone", name)
            moments = "explode(array(timestamp_seconds(1782963000), timestamp_seconds(1729989000), null))"
            if kind == "batch":
                frame = spark.range(1).selectExpr(f"id + {number} AS id", f"{moments} AS at")
                frame.write.format("ftfile").mode("append").options(path=out, partitionBy="at").save()
                continue
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load()
            stream = rows.selectExpr(f"value + {number} AS id", f"{moments} AS at").writeStream.format("ftfile")
            where = {"path": out, "partitionBy": "at", "onNewQuery": "continue"}
            query = stream.options(checkpointLocation=str(tmp_path / name[:4]), **where).trigger(availableNow=True)
            query.start().awaitTermination()
        names = {path.name for path in (tmp_path / "out").iterdir() if "=" in path.name}
        null, *clocks = "__HIVE_DEFAULT_PARTITION__", "2026-07-01 23%3A30%3A00", "2024-10-26 20%3A30%3A00"
        assert names == {f"at={clock}" for clock in (null, *clocks)}
        assert seconds(spark.read.format("ftfile").load(out)) == [None, 1729989000, 1782963000]
        spark.conf.set("spark.sql.session.timeZone", zones[0])
        assert seconds(spark.read.parquet(out)) == [None, 1729989000, 1782963000]
        assert spark.read.parquet(out).where("at = TIMESTAMP '2026-07-01 23:30:00'").count() > 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", ZONE)


def seconds(frame: DataFrame) -> list[int | None]:
    """Return the distinct moments of a column, null first."""
    rows = frame.selectExpr("unix_seconds(at) AS at").distinct().orderBy("at").collect()
    return [row["at"] for row in rows]
