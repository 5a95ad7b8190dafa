"""Schemas as types of Spark, by a closed table.

Spark's own `StructType.fromJson` imports the module that a user-defined type names, and may unpickle what stands beside
it: it gets nothing that a directory says.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from ftfile.rows.spark_types import COLLATIONS_KEY, recorded_schema

_ATOMIC: dict[str, DataType] = {
    "boolean": BooleanType(),
    "byte": ByteType(),
    "short": ShortType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
    "decimal": DecimalType(),
}
_SIZED = {"decimal": DecimalType, "char": CharType, "varchar": VarcharType}
_NUMBER = re.compile(r"\d+", re.ASCII)


def struct_type(schema_json: str) -> StructType:
    """Return a schema, given as Spark's JSON, as Spark's type; nothing is imported for it.

    Raises:
        CorruptData: it is no schema, or has a type that ftfile does not store.
    """
    recorded_schema(schema_json)
    return _struct(json.loads(schema_json))


def _struct(spark: dict[str, Any]) -> StructType:
    return StructType([_field(field) for field in spark["fields"]])


def _field(field: dict[str, Any]) -> StructField:
    metadata = {key: value for key, value in (field.get("metadata") or {}).items() if key != COLLATIONS_KEY}
    return StructField(field["name"], _type(field["type"]), bool(field.get("nullable", True)), metadata)


def _type(spark: str | dict[str, Any]) -> DataType:
    """Return a type that `recorded_schema` has accepted."""
    if isinstance(spark, str):
        return _ATOMIC.get(spark) or _sized(spark)
    if spark["type"] == "array":
        return ArrayType(_type(spark["elementType"]), bool(spark.get("containsNull", True)))
    if spark["type"] == "map":
        nullable = bool(spark.get("valueContainsNull", True))
        return MapType(_type(spark["keyType"]), _type(spark["valueType"]), nullable)
    return _struct(spark)


def _sized(spark: str) -> DataType:
    name, _, sizes = spark.partition("(")
    if name not in _SIZED:
        return StringType()  # with the collation that all strings have
    sized: DataType = _SIZED[name](*map(int, _NUMBER.findall(sizes)))
    return sized
