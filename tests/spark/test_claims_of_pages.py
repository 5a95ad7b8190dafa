"""The claims of docs/formats about differences between our files and Spark's reads of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.test_formats_interop import write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class TestCsv:
    def test_doubled_quotes_shift_columns_without_the_option(self, spark: SparkSession, tmp_path: Path) -> None:
        rows = pa.table({"a": ['say "hi", ok'], "b": ["x"]})
        reader = spark.read.schema("a string, b string")
        path = write(tmp_path / "out", "csv", {"escape": '"'}, rows)
        assert reader.csv(path).first() == ('"say ""hi""', ' ok"')
        assert reader.option("escape", '"').csv(path).first() == ('say "hi", ok', "x")

    def test_empty_strings_and_quoted_null_values_are_null(self, spark: SparkSession, tmp_path: Path) -> None:
        rows = pa.table({"n": [1, 2, 3, 4], "s": ["", None, "-", "x"]})
        for null, found in (("", [None, None, "-", "x"]), ("-", ["", None, None, "x"])):
            path = write(tmp_path / f"out{null}", "csv", {"nullValue": null} if null else {}, rows)
            reader = spark.read.schema("n long, s string").option("nullValue", null)
            assert [row.s for row in reader.csv(path).collect()] == found

    def test_sparks_own_writer_trims_and_leaves_rows_out(self, spark: SparkSession, tmp_path: Path) -> None:
        rows = spark.createDataFrame([(" a ",), (None,), ("b",)], "value string").coalesce(1)
        rows.write.csv(str(tmp_path / "spark"))
        (file,) = (tmp_path / "spark").glob("part-*")
        assert file.read_text() == "a\nb\n"


class TestJson:
    def test_without_a_schema_spark_guesses(self, spark: SparkSession, tmp_path: Path) -> None:
        columns = {"day": [dt.date(2024, 2, 29)], "at": [dt.datetime(2024, 2, 29)], "price": [Decimal("19.90")]}  # noqa: DTZ001 - a local time
        path = write(tmp_path / "out", "json", {}, pa.table(columns))
        assert dict(spark.read.json(path).dtypes) == {"day": "string", "at": "string", "price": "double"}
        guessed = dict(spark.read.option("inferTimestamp", True).json(path).dtypes)
        assert guessed == {"day": "timestamp", "at": "timestamp", "price": "double"}

    def test_a_column_called_like_that_of_malformed_lines(self, spark: SparkSession, tmp_path: Path) -> None:
        path = write(tmp_path / "out", "json", {}, pa.table({"n": [1], "_corrupt_record": ["x"]}))
        reader = spark.read.schema("n long, _corrupt_record string")
        assert reader.json(path).collect() == [(1, None)]
        assert reader.option("columnNameOfCorruptRecord", "other").json(path).collect() == [(1, "x")]


def test_lines_also_end_at_carriage_returns(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "out", "text", {}, pa.table({"value": ["a\rb"]}))
    assert [row.value for row in spark.read.text(path).collect()] == ["a", "b"]
    assert [row.value for row in spark.read.option("lineSep", "\n").text(path).collect()] == ["a\rb"]


def test_spark_reads_records_between_delimiters(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "out", "binary", {"delimiter": "<end>"}, pa.table({"value": ["a\nb", "", "c"]}))
    assert [row.value for row in spark.read.option("lineSep", "<end>").text(path).collect()] == ["a\nb", "", "c"]


def test_java_reads_records_behind_their_length(spark: SparkSession, tmp_path: Path) -> None:
    values = [b"abc", b"", b"\x00\xff"]
    path = write(tmp_path / "out", "binary", {"lengthPrefix": "int32"}, pa.table({"value": values}))
    jvm = spark._jvm
    assert jvm is not None
    stream = jvm.java.io.DataInputStream(jvm.java.io.FileInputStream(f"{path}/part-0.bin"))
    found = []
    while stream.available():
        record = jvm.org.apache.hadoop.io.BytesWritable()
        record.readFields(stream)
        found.append(bytes(record.copyBytes()))
    stream.close()
    assert found == values


def test_spark_has_no_reader_of_arrow_files(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "out", "arrow", {}, pa.table({"n": [1]}))
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        spark.read.format("arrow").load(path)


def test_names_that_differ_by_case_only_are_ambiguous(spark: SparkSession, tmp_path: Path) -> None:
    """Therefore ftfile refuses them; pyarrow writes them."""
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "A"]), tmp_path / "part.parquet")
    with pytest.raises(Exception, match=r"COLUMN_ALREADY_EXISTS|AMBIGUOUS"):
        spark.read.parquet(str(tmp_path)).select("a").collect()
