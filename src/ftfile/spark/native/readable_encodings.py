"""The encodings of files that Spark's built-in sources read with the same rows as ftfile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.per_process import cached_property
from ftfile.rows.buffers import field_names, leaf_types
from ftfile.rows.spark_types import is_wider, recorded_schema, spark_schema_json
from ftfile.spark.native.listed_files import FileList

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


@dataclass(frozen=True, kw_only=True)
class NativeGroup:
    """Parts that Spark's built-in source returns in one read."""

    format: str  # Spark's name of the format
    options: Mapping[str, str]  # of Spark's reader
    schema_json: str  # the columns in the files, then the columns in the paths, as Spark's JSON
    partition_by: tuple[str, ...]  # the columns in the paths
    decimals: pa.Schema  # the partition columns of decimal types
    files: FileList = field(default_factory=FileList)

    @cached_property
    def key(self) -> str:
        """Return the common properties of the parts of a group, as text."""
        return json.dumps([self.format, self.options, self.schema_json, self.partition_by], sort_keys=True)


def group_of(encoding: Mapping[str, Any], recorded: pa.Schema, *, legacy_times: bool) -> NativeGroup | str:
    """Return an empty group for the parts of an encoding, or the reason why ftfile must read them."""
    if encoding.get("fileName"):
        return "names of files contain a column"
    definition, in_file = encoding["format"], recorded_schema(encoding["schema"])
    kind = definition["name"]
    if kind not in _OPTIONS:
        return f"Spark has no reader for {kind}"
    partition_by = tuple(encoding["partitionBy"])
    fault = _format_fault(definition, in_file, is_partitioned=bool(partition_by))
    fault = fault or _misfit(recorded, in_file, partition_by)
    if fault is None and legacy_times and kind in _WITH_TIMES and _has_times(in_file):
        fault = "spark.sql.legacy.timeParserPolicy is LEGACY"
    if fault is not None:
        return fault
    columns = list(in_file)
    if kind in _BY_NAME:
        # Spark finds columns by name, and reads null for missing columns. So one read is enough for parts with several
        # schemas.
        columns = _columns_by_name(in_file, recorded, partition_by, is_orc=kind == "orc")
    if kind == "orc" and any("`" in name or not name for name in field_names(columns)):
        return "names in orc have backticks, or are empty"  # Spark 4.3 does not find these columns
    if kind == "avro":
        columns = [_as_avro_reads(column) for column in columns]
    in_path = _path_columns(recorded, partition_by)
    options = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", **_OPTIONS[kind]}
    if "header" in definition:
        options["header"] = str(definition["header"]).lower()
    options |= {name: definition[name] for name in _PASSED_ON if name in definition}
    if partition_by:
        options["timeZone"] = encoding["timeZone"]
    else:
        options["recursiveFileLookup"] = "true"
    decimals = pa.schema([column for column in in_path if pa.types.is_decimal(column.type)])
    return NativeGroup(
        format=kind,
        options=options,
        schema_json=spark_schema_json(pa.schema([*columns, *in_path])),
        partition_by=partition_by,
        decimals=decimals,
    )


def _as_avro_reads(column: pa.Field) -> pa.Field:
    """Return a column as Spark reads it from Avro, which has one type for integers of up to 32 bits."""
    if column.type in _SMALL:
        return column.with_type(pa.int32())
    return column


def _columns_by_name(
    in_file: pa.Schema, recorded: pa.Schema, partition_by: Collection[str], *, is_orc: bool
) -> list[pa.Field]:
    """Return the columns with which Spark reads files whose columns it finds by name."""
    columns, missing = [], []
    for column in recorded:
        if column.name in partition_by:
            continue
        if column.name in in_file.names:
            columns.append(in_file.field(column.name))
        else:
            columns.append(column)
            missing.append(column)
    if is_orc:
        for stored, column in zip(in_file, columns, strict=False):
            if _clashes(stored.type, column.type):
                return [*in_file, *missing]
    return columns or [*in_file]


def _path_columns(recorded: pa.Schema, partition_by: Iterable[str]) -> list[pa.Field]:
    columns = []
    for name in partition_by:
        if name in recorded.names:
            columns.append(recorded.field(name))
        else:
            columns.append(pa.field(name, pa.string()))
    return columns


def _clashes(in_file: pa.DataType, read: pa.DataType) -> bool:
    """Return True if Spark refuses two columns at the same place, because their timestamp types differ."""
    stored_zones, read_zones = _time_zones(in_file), _time_zones(read)
    if in_file.equals(read) or not (stored_zones and read_zones):
        return False
    return len(stored_zones | read_zones) > 1


def _time_zones(kind: pa.DataType) -> set[str | None]:
    """Return the time zones of the timestamps in a type; None stands for a timestamp without a time zone."""
    zones = set()
    for leaf in leaf_types(kind):
        if pa.types.is_timestamp(leaf):
            zones.add(leaf.tz)
    return zones


def _misfit(recorded: pa.Schema, in_file: pa.Schema, partition_by: Collection[str]) -> str | None:
    """Return why the columns of files cannot be read or cast as the columns of the version; None if they can."""
    spelling = {name.lower(): name for name in in_file.names}
    for column in recorded:
        name = spelling.get(column.name.lower())
        if column.name in partition_by or name is None:
            continue
        if name != column.name:
            return f"column {column.name!r} is {name!r} in files"
        stored_type = in_file.field(name).type
        if not stored_type.equals(column.type) and not is_wider(stored_type, column.type):
            return f"column {column.name!r} has another type in files"
    return None


def _format_fault(definition: Mapping[str, Any], in_file: pa.Schema, *, is_partitioned: bool) -> str | None:
    """Return why Spark's reader of a format would return other rows; None if it returns the same rows."""
    kind = definition["name"]
    set_options = [name for name in _TIMES if name in definition]
    faults = {
        "avro": {"numbers of 8 or 16 bits within columns of avro": _has_small_within(in_file)},
        "parquet": {"Spark has no codec for brotli": definition.get("compression") == "brotli"},
        # Spark assumes that an old Hive version generated these names, and finds columns by place: SPARK-32864.
        "orc": {"all columns of orc begin with _col": all(name.startswith("_col") for name in in_file.names)},
        "json": {f"{set_options} of json": bool(set_options) and _has_times(in_file)},
        "text": {
            "Spark counts partition columns among those of text": is_partitioned,
            "text is binary": not pa.types.is_string(in_file.types[0]),
        },
        "csv": {
            "Spark counts partition columns among those of csv": is_partitioned,
            'Spark reads "" in csv as null': any(map(pa.types.is_string, in_file.types)),
            "nullValue or lineSep of csv": definition.get("nullValue") not in _NULLS or definition["lineSep"] != "\n",
            f"{set_options} of csv": bool(set_options) and _has_times(in_file),
        },
    }
    for reason, is_so in faults[kind].items():
        if is_so:
            return reason
    return None


def _has_small_within(schema: pa.Schema) -> bool:
    """Return True if a nested column contains integers of 8 or 16 bits."""
    nested = (kind for kind in schema.types if pa.types.is_nested(kind))
    return any(leaf in _SMALL for leaf in chain.from_iterable(map(leaf_types, nested)))


def _has_times(schema: pa.Schema) -> bool:
    return any(map(pa.types.is_temporal, chain.from_iterable(map(leaf_types, schema.types))))


_SMALL = (pa.int8(), pa.int16())
_NULLS = ("", "\\N")
_TIMES = ("timestampFormat", "timestampNTZFormat", "dateFormat", "timeZone")
_BY_NAME = frozenset({"avro", "parquet", "orc", "json"})
_WITH_TIMES = frozenset({"json", "csv"})
_PASSED_ON = ("lineSep", "sep", "quote", "escape", "nullValue")
# Options of Spark's reader by format. They override settings of the session that would change rows.
_OPTIONS = {
    "avro": {"mode": "FAILFAST", "datetimeRebaseMode": "CORRECTED", "positionalFieldMatching": "false"},
    "parquet": {"mergeSchema": "false", "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"},
    "orc": {"mergeSchema": "false"},
    "json": {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_ftfile_corrupt_record", "multiLine": "false"},
    "text": {"wholetext": "false"},
    "csv": {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_ftfile_corrupt_record", "multiLine": "false"},
}
