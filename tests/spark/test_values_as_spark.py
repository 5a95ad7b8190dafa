"""Values that ftfile reads from files of other programs are equal to the values that Spark reads."""

from __future__ import annotations

import json
import os
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow import orc

from tests.spark.drawn_columns import AVRO, COLUMNS, drawn
from tests.spark.drawn_texts import CSV_TYPES, JSON_TYPES, csv_field, json_value
from tests.spark.test_container_formats import SPARK_AVRO
from tests.spark.values_as_spark import CORRUPT, Comparison, comparable, read_by_ftfile, read_by_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(not pyspark.__version__.startswith("4.3."), reason="other versions read other values")

FACTOR = 20 if os.environ.get("FTFILE_THOROUGH") else 1
LINES = 1000 * FACTOR  # for each format
ROWS = 20 * FACTOR  # for each column
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "+05:30", "Australia/Lord_Howe")


class Lines:
    """Lines of JSON or CSV, each with a value of one column."""

    def __init__(self, file_format: str, random: Random) -> None:
        self.file_format = file_format
        self.zone = random.choice(ZONES)
        self.kinds = JSON_TYPES if file_format == "json" else CSV_TYPES
        columns = [f"c{place} {kind}" for place, kind in enumerate(self.kinds)]
        self.schema = ", ".join(["n int", *columns, f"{CORRUPT} string"])
        self.options: dict[str, str] = {}
        if file_format == "csv":
            self.options["escape"] = random.choice('\\"')
        self.values = [self._value(number % len(self.kinds), random) for number in range(LINES)]
        random.shuffle(self.values)

    def _value(self, place: int, random: Random) -> tuple[int, bytes]:
        if self.file_format == "json":
            return place, json_value(self.kinds[place], random)
        return place, csv_field(self.kinds[place], random, self.options["escape"])

    def lines(self, numbers: list[int]) -> list[bytes]:
        """Return the bytes of the lines with these numbers."""
        return [self._line(number) for number in numbers]

    def _line(self, number: int) -> bytes:
        place, text = self.values[number]
        if self.file_format == "json":
            return b'{"n":%d,"c%d":%s}' % (number, place, text)
        return b",".join([b"%d" % number, *[b""] * place, text, *[b""] * (len(self.kinds) - place - 1)])

    def by_spark(self, spark: SparkSession, path: Path, **options: str) -> pa.Table:
        spark_options = {"timeZone": self.zone, **self.options, **options}
        return read_by_spark(spark, path, self.file_format, self.schema, spark_options)

    def by_ftfile(self, path: Path, **options: Any) -> pa.Table:
        return read_by_ftfile(path, self.file_format, self.schema, {**self.options, **options}, self.zone)

    def compare(self, numbers: list[int], found: pa.Table, expected: pa.Table, places: list[int]) -> Comparison:
        """Compare rows of ftfile with rows of Spark at some places, both for the lines with these numbers."""
        assert found.num_rows == len(numbers)
        comparison = Comparison()
        for row, (number, place) in enumerate(zip(numbers, places, strict=True)):
            column, text = self.values[number]
            by_ftfile = self._cell(found, row, column)
            by_spark = self._cell(expected, place, column)
            if by_spark[1] and by_spark[0] == by_ftfile[0] and _repeats_a_field(text):
                by_spark[1] = by_ftfile[1]  # the documentation names this difference
            comparison.add(self.kinds[column], text, by_ftfile, by_spark)
        return comparison

    @staticmethod
    def _cell(table: pa.Table, row: int, column: int) -> list[Any]:
        return [comparable(table[f"c{column}"][row]), table[CORRUPT][row].is_valid]


def _repeats_a_field(text: bytes) -> bool:
    repeated: list[str] = []

    def note(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        repeated.extend(name for name in names if names.count(name) > 1)

    try:
        json.loads(text, object_pairs_hook=note)
    except ValueError:
        return False
    return bool(repeated)


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_values_of_lines(spark: SparkSession, tmp_path: Path, seed: int, file_format: str) -> None:
    """Each value is read next to bad values, among values of its type, and in a file that is read as a whole."""
    lines = Lines(file_format, Random(f"{seed} {file_format}"))
    numbers = [*range(LINES)]
    path = tmp_path / "all"
    path.write_bytes(b"".join(line + b"\n" for line in lines.lines(numbers)))
    expected = lines.by_spark(spark, path)
    found = lines.by_ftfile(path)
    lines.compare(numbers, found, expected, numbers).check(least_equal=0.4, most_bad=0.15)
    good = [number for number in numbers if not found[CORRUPT][number].is_valid]
    for place in range(len(lines.kinds)):
        alike = [number for number in good if lines.values[number][0] == place]
        path = tmp_path / f"c{place}"
        path.write_bytes(b"".join(line + b"\n" for line in lines.lines(alike)))
        lines.compare(alike, lines.by_ftfile(path), expected, alike).check(least_equal=1, most_bad=0)
    good = [number for number in good if not _repeats_a_field(lines.values[number][1])]
    path = tmp_path / "multi-line"
    whole = b"\n".join(lines.lines(good)) + b"\n"
    if file_format == "json":
        whole = b"[" + b",\n".join(lines.lines(good)) + b"]"
    path.write_bytes(whole)
    expected = lines.by_spark(spark, path, multiLine="true")
    found = lines.by_ftfile(path, multi_line=True)
    lines.compare(good, found, expected, [*range(len(good))]).check(least_equal=0.99, most_bad=0.01)


@pytest.mark.parametrize(("file_format", "writer"), COLUMNS)
def test_values_of_columns(spark: SparkSession, tmp_path: Path, seed: int, file_format: str, writer: str) -> None:
    random = Random(seed)
    arrays, targets = {}, {}
    for place, (kind, (draw, types)) in enumerate(COLUMNS[file_format, writer].items()):
        values = drawn(kind, draw, ROWS, random)
        for number, target in enumerate(types):
            arrays[f"c{place}_{number}"] = values
            targets[f"c{place}_{number}"] = target
    path = tmp_path / f"data.{file_format}"
    written_by_pyarrow = tmp_path / "pyarrow.parquet"
    if (file_format, writer) == ("orc", "pyarrow"):
        orc.write_table(pa.table(arrays), str(path))
    else:
        pq.write_table(pa.table(arrays), written_by_pyarrow)
        if writer == "spark":
            frame = spark.read.parquet(str(written_by_pyarrow)).coalesce(1)
            frame.write.format(file_format).save(str(tmp_path / "spark"))
            [written_by_pyarrow] = (tmp_path / "spark").glob("part-*")
        written_by_pyarrow.rename(path)
    compare_columns(spark, path, file_format, targets, arrays).check(least_equal=0.7, most_bad=0.3)


def test_values_of_avro(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    spark.sql(f"ADD JAR 'ivy://{SPARK_AVRO}?transitive=false'")
    random = Random(seed)
    fields, targets = [], {}
    columns: dict[str, list[Any]] = {}
    named = set()
    for place, (kind, draw, types) in enumerate(AVRO):
        values = [draw(random) for _ in range(ROWS)]
        for number, target in enumerate(types):
            name = f"c{place}_{number}"
            again = isinstance(kind, dict) and kind.get("name") in named
            fields.append({"name": name, "type": kind["name"] if again else kind})
            if isinstance(kind, dict) and "name" in kind:
                named.add(kind["name"])
            columns[name] = values
            targets[name] = target
    path = tmp_path / "data.avro"
    rows = [{name: values[row] for name, values in columns.items()} for row in range(ROWS)]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    compare_columns(spark, path, "avro", targets, columns).check(least_equal=0.9, most_bad=0.1)


def compare_columns(
    spark: SparkSession, path: Path, file_format: str, targets: dict[str, str], columns: dict[str, Any]
) -> Comparison:
    """Compare each column, read separately by ftfile, with all columns that Spark reads at once."""
    schema = ", ".join(f"{name} {target}" for name, target in targets.items())
    expected = read_by_spark(spark, path, file_format, schema, {})
    comparison = Comparison()
    for name, target in targets.items():
        found = read_by_ftfile(path, file_format, f"{name} {target}, {CORRUPT} string", {})
        for row, stored in enumerate(columns[name]):
            by_ftfile = [_without_order(found[name][row]), found[CORRUPT][row].is_valid]
            by_spark = [_without_order(expected[name][row]), False]
            comparison.add(target, (name, stored), by_ftfile, by_spark)
    return comparison


def _without_order(value: pa.Scalar) -> Any:
    """Return a comparable value. A map is sorted, because Java does not keep its order."""
    plain = comparable(value)
    return sorted(plain) if pa.types.is_map(value.type) and plain is not None else plain
