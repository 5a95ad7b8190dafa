"""Compares the values that ftfile and Spark read from the same file."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.rows.spark_types import arrow_schema
from ftfile.source.settings import FileDecoding
from tests.unit.source.planned import Files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ("CORRUPT", "Comparison", "comparable", "read_by_ftfile", "read_by_spark")

CORRUPT = "_corrupt_record"


def comparable(value: pa.Scalar) -> Any:
    """Return a value that equals another one only if both are identical, also for NaN, zeros and all times."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_nested(kind):
        return _comparable_parts(value)
    if pa.types.is_temporal(kind):
        return value.value
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return value.as_buffer().to_pybytes()
    plain = value.as_py()
    if pa.types.is_floating(kind):
        return "NaN" if math.isnan(plain) else plain.hex()
    return plain


def _comparable_parts(value: pa.Scalar) -> Any:
    if pa.types.is_struct(value.type):
        return [(name, comparable(item)) for name, item in value.items()]
    if pa.types.is_map(value.type):
        return [(comparable(entry["key"]), comparable(entry["value"])) for entry in value.values]
    return [comparable(item) for item in value.values]


@dataclass
class Comparison:
    """The numbers of values by type (equal, bad for both readers, bad only for ftfile), and the wrong values."""

    equal: Counter[str] = field(default_factory=Counter)
    bad_in_both: Counter[str] = field(default_factory=Counter)
    bad_in_ftfile: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, kind: str, stored: object, by_ftfile: list[Any], by_spark: list[Any]) -> bool:
        """Count a value. Each reader passes the value and if its record is bad. Return True if the values are equal."""
        (value, is_bad), (expected, is_bad_in_spark) = by_ftfile, by_spark
        if is_bad:
            counter = self.bad_in_both if is_bad_in_spark else self.bad_in_ftfile
            counter[kind] += 1
            return False
        if is_bad_in_spark or value != expected:
            shown = "no value" if is_bad_in_spark else repr(expected)
            self.wrong.append(f"{kind}: {stored!r} is {value!r} in ftfile, {shown} in Spark")
            return False
        self.equal[kind] += 1
        return True

    def check(self, least_equal: float, most_bad: float) -> None:
        """Fail if a value is wrong, or if ftfile reads too few values of a type, or too few that Spark reads."""
        assert not self.wrong, "\n".join([f"{len(self.wrong)} wrong values", *self.wrong[:20]])
        equal, bad = self.equal.total(), self.bad_in_ftfile.total()
        print(f"{equal} equal, {self.bad_in_both.total()} bad in both, {bad} in ftfile: {dict(self.bad_in_ftfile)}")
        assert equal >= least_equal * (equal + self.bad_in_both.total() + bad)
        assert bad <= most_bad * (equal + bad), dict(self.bad_in_ftfile)
        kinds = {*self.equal, *self.bad_in_both, *self.bad_in_ftfile}
        assert not kinds - {*self.equal}, "types without a value that was read"


def read_by_spark(spark: SparkSession, path: Path, file_format: str, schema: str, options: dict[str, str]) -> pa.Table:
    """Return the rows that Spark's source reads."""
    return spark.read.format(file_format).schema(schema).options(**options).load(str(path)).toArrow()


def read_by_ftfile(path: Path, file_format: str, schema: str, options: dict[str, Any], zone: str = "UTC") -> pa.Table:
    """Return the rows that ftfile reads, with the fields of `FileDecoding` as options."""
    arrow = arrow_schema(StructType.fromDDL(schema).json())
    decoding = FileDecoding(file_format, times=TimeFormats.from_options({"timeZone": zone}), **options)
    files = Files(path.parent)
    return pa.Table.from_batches(files.batches([files.whole(path.name)], arrow, decoding), arrow)
