"""Conversion of options, directories and schemas for the Python processes of Spark.

Schemas are converted with a closed table. Spark's `StructType.fromJson` imports the module of a user-defined type, and
may unpickle the data next to it (Spark 4.3). It is never called with the content of a directory.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import types
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
    VariantType,
)

from ftfile.core.context import SYSTEM, absolute_path
from ftfile.core.errors import ConfigError
from ftfile.log.directory import check_marker
from ftfile.log.sealed import open_with_keys
from ftfile.rows.spark_types import COLLATIONS_KEY, recorded_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.options.parsing import Settings
    from ftfile.log.directory import DirectoryMarker
    from ftfile.storage.api import FileSystem


_PATHS = ("path", "statelocation", "sourcearchivedir")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDirectory:
    """A directory that tasks open."""

    path: str
    key_provider: str | None
    storage: Settings  # settings of the file system
    marker: DirectoryMarker | None

    def open(self) -> FileSystem:
        """Open the directory.

        Raises:
            ConfigError: this host sees another directory at the path.
        """
        fs = open_with_keys(self.path, SYSTEM, self.key_provider, self.storage)
        check_marker(fs, self.path, self.marker)
        return fs


def absolute_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with absolute paths, since executors may run in another directory and as another user.

    Spark does not expand `~`: a checkpoint below it is in a directory of that name.
    """
    absolute = dict(options)
    for key, text in options.items():
        if key.lower() == "checkpointlocation":
            absolute[key] = absolute_path(f"./{text}" if text.startswith("~") else text)
        elif key.lower() in _PATHS:
            absolute[key] = absolute_path(text)
    return absolute


def has_file_format(options: Mapping[str, str]) -> bool:
    """Return True if a stream reads files of other programs, and does not follow an ftfile directory."""
    return any(key.lower() == "fileformat" for key in options)


def check_shared(fs: FileSystem, path: str) -> None:
    """Raise a ConfigError unless all Python processes of Spark see the same files."""
    if not fs.capabilities.shared_between_processes:
        raise ConfigError(
            f"path={path!r} exists only inside one process: executors, writers and readers could not see each other's "
            "files"
        )


ATOMIC: dict[str, DataType] = {
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
    "variant": VariantType(),
}
_TIME = "time(6)"
if hasattr(types, "TimeType"):  # Spark 4.0 does not have it
    ATOMIC[_TIME] = types.TimeType(6)
_SIZED = {"decimal": DecimalType, "char": CharType, "varchar": VarcharType}
_NUMBER = re.compile(r"\d+", re.ASCII)


def struct_type(schema_json: str) -> StructType:
    """Return Spark's type of a schema in Spark's JSON. Nothing is imported for it.

    Raises:
        ConfigError: the schema has a TIME column, and this version of Spark does not support the type.
        CorruptData: the text is not a schema, or has a type that ftfile does not store.
    """
    recorded_schema(schema_json)
    return _struct(json.loads(schema_json))


def _struct(spark: dict[str, Any]) -> StructType:
    return StructType([_field(field) for field in spark["fields"]])


def _field(field: dict[str, Any]) -> StructField:
    metadata = dict(field.get("metadata") or {})
    metadata.pop(COLLATIONS_KEY, None)
    return StructField(field["name"], _type(field["type"]), bool(field.get("nullable", True)), metadata)


def _type(spark: str | dict[str, Any]) -> DataType:
    """Return a type that `recorded_schema` has accepted."""
    if spark == _TIME and _TIME not in ATOMIC:
        raise ConfigError(
            "a column is of type TIME, which this version of Spark does not have. Read it with Spark 4.1 or later, or "
            "without Spark by ftfile.open"
        )
    if isinstance(spark, str):
        return ATOMIC.get(spark) or _parse_sized(spark)
    if spark["type"] == "array":
        return ArrayType(_type(spark["elementType"]), bool(spark.get("containsNull", True)))
    if spark["type"] == "map":
        nullable = bool(spark.get("valueContainsNull", True))
        return MapType(_type(spark["keyType"]), _type(spark["valueType"]), nullable)
    return _struct(spark)


def _parse_sized(spark: str) -> DataType:
    name, _, sizes = spark.partition("(")
    if name not in _SIZED:
        return StringType()  # with the same collation as all strings
    sized: DataType = _SIZED[name](*map(int, _NUMBER.findall(sizes)))
    return sized
