"""The selection of the parts of a snapshot that Spark's built-in sources can read.

For every other part, the result contains the reason why ftfile must read it.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import columns_in_path, columns_of_directory, rescaled_columns
from ftfile.log.format import layout
from ftfile.log.places import list_or_empty
from ftfile.log.sealed import keys_of
from ftfile.read.selection import Selection
from ftfile.rows.buffers import field_names, leaf_types
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import is_wider, quoted_name, recorded_schema, spark_schema_json
from ftfile.rows.zone_clocks import is_zone
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileInfo, FileSystem


_DATES_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"

# Syntax that Spark reads differently from ftfile: escapes in a text, quoted column names, doubled quotes, numbers with
# a fraction, and `${name}`, which Spark substitutes everywhere.
_READ_DIFFERENTLY = re.compile(r"[\\\"$]|''|[0-9][.eE]|\.[0-9]")
# Types in a schema that compare different texts as equal.
_LOOSE_TEXTS = re.compile(r'collat|char_varchar|"(?:var)?char\(', re.IGNORECASE)


def compares_as_texts(spark: SparkSession) -> bool:
    """Return True if a session may cast a column to text to compare it with a text, as in `month NOT IN ('02')`."""
    is_ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower()
    dates_as_texts = str(spark.conf.get(_DATES_AS_TEXTS, "false")).lower()
    return is_ansi != "true" or dates_as_texts != "false"


def at_once(spark: SparkSession, where: str | Mapping[str, object] | None) -> str | Mapping[str, object] | None:
    """Return a condition with literals instead of the current time; unchanged if ftfile cannot parse it.

    The literals are in the time zone of the session.
    """
    zone = None
    if isinstance(where, str):
        zone = spark.conf.get("spark.sql.session.timeZone")
    if zone is None or not is_zone(zone):
        return where
    try:
        return with_clock_values(where, SYSTEM.clock.now_ms(), zone)
    except ConfigError:  # Spark's conditions have more syntax
        return where


def filtered(frame: DataFrame, where: str | Mapping[str, object] | None) -> DataFrame:
    """Return the rows for which a condition is true."""
    if where is None:
        return frame
    if isinstance(where, str):
        return frame.where(where)
    if not _is_by_column(where):
        raise ConfigError(
            f"where={where!r}: it takes a condition as text, such as \"month >= 7 and city = 'a'\", or a mapping from "
            "columns to values, such as {'month': [7, 8]}"
        )
    for name, values in where.items():
        frame = frame.where(_condition(name, values))
    return frame


def _is_by_column(where: object) -> bool:
    return isinstance(where, Mapping) and all(isinstance(name, str) for name in where)


def _condition(name: str, values: object) -> Column:
    column = F.col(quoted_name(name))
    if isinstance(values, range) and values.step == 1:
        return (column >= values.start) & (column < values.stop)
    if isinstance(values, list | tuple | set | frozenset | range):
        several = list(values)
    else:
        several = [values]
    values_present = [value for value in several if value is not None]
    condition = column.isin(values_present)
    if len(values_present) == len(several):
        return condition
    return condition | column.isNull()


def possible_adds(snapshot: Snapshot, where: str | Mapping[str, object] | None, *, as_texts: bool = False) -> list[Add]:
    """Return the adds whose partitions may contain rows for which a condition is true.

    If Spark may read the condition differently, all adds are returned. If no add matches, one add is returned, because
    Spark's DataFrame would lack columns without a file. The condition must not contain the current time. With
    `as_texts`, Spark may cast numbers, dates and booleans to text to compare them with a text.
    """
    adds = list(snapshot.adds.values())
    if where is None or snapshot.schema is None or not _is_plain(where):
        return adds
    schema = recorded_schema(snapshot.definitions[snapshot.schema])
    encodings = {add.encoding: snapshot.definitions[add.encoding] for add in adds}
    in_path = set(chain.from_iterable(map(columns_in_path, encodings.values())))
    kinds = [field.type for field in schema if field.name in in_path]
    is_alike = all(_is_compared_alike(kind) for kind in kinds)
    if not in_path or not is_alike or _LOOSE_TEXTS.search(snapshot.definitions[snapshot.schema]):
        return adds
    has_text = isinstance(where, str) and "'" in where
    has_only_texts = all(pa.types.is_string(kind) for kind in kinds)
    if as_texts and has_text and not has_only_texts:
        return adds
    try:
        selection = Selection(snapshot, schema, columns=(), where=where, time_zone="UTC")
        return [chosen.add for chosen in selection.adds()] or adds[:1]
    except ConfigError:  # Spark may accept the condition, or reports the error
        return adds


def _is_plain(where: object) -> bool:
    """Return True for a condition that ftfile and Spark read in the same way."""
    if isinstance(where, str):
        return not _READ_DIFFERENTLY.search(where)
    if not isinstance(where, Mapping):
        return False
    values: list[object] = []
    for value in where.values():
        if isinstance(value, list | tuple):
            values += value
        else:
            values.append(value)
    return {type(value) for value in values} <= {type(None), int, str, bool, datetime.date}


def _is_compared_alike(kind: pa.DataType) -> bool:
    """Return True for types that ftfile and Spark compare with literals in the same way, in any time zone."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    return bool(pa.types.is_string(kind) or pa.types.is_date32(kind))


@dataclass(frozen=True)
class NativeGroup:
    """Parts that Spark's built-in source returns in one read."""

    format: str  # Spark's name of the format
    options: Mapping[str, str]  # of Spark's reader
    schema_json: str  # the columns in the files, then the columns in the paths, as Spark's JSON
    partition_by: tuple[str, ...]  # the columns in the paths
    decimals: pa.Schema  # the partition columns of decimal types
    # the parts, each with the existing file at its name
    files: list[tuple[Add, FileInfo]] = field(default_factory=list)

    @functools.cached_property
    def key(self) -> str:
        """Return the common properties of the parts of a group, as text."""
        return json.dumps([self.format, self.options, self.schema_json, self.partition_by], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Ways:
    """How the adds of a snapshot are read."""

    groups: list[NativeGroup]  # read with Spark's built-in sources
    rest: list[Add]  # read with ftfile's reader
    reasons: Counter[str]  # reasons for `rest`, with the number of adds

    def leave(self, add: Add, reason: str) -> None:
        """Assign an add to ftfile's reader."""
        self.rest.append(add)
        self.reasons[reason] += 1


def plan_groups(
    fs: FileSystem, snapshot: Snapshot, adds: Iterable[Add], live: Collection[str], *, legacy_times: bool = False
) -> Ways:
    """Return how each of these adds of a snapshot is read. Each directory of parts is listed once.

    Args:
        fs: of the directory.
        snapshot: of the version to read; it has a schema.
        adds: the adds to read.
        live: the ids of the newest version's adds. Other parts are no longer at their final names.
        legacy_times: the session parses dates and times as Spark 2 did.
    """
    assert snapshot.schema is not None, "a directory without a commit has no rows"
    ways = Ways([], [], Counter())
    is_sealed = keys_of(fs) is not None
    recorded = recorded_schema(snapshot.definitions[snapshot.schema])
    own_groups: dict[str, NativeGroup | str] = {}
    native: list[tuple[Add, NativeGroup]] = []
    for add in adds:
        encoding = snapshot.definitions[add.encoding]
        if add.encoding not in own_groups:
            if is_sealed:
                own_groups[add.encoding] = "the directory is encrypted"
            else:
                own_groups[add.encoding] = _group_of(encoding, recorded, legacy_times=legacy_times)
        group = own_groups[add.encoding]
        if isinstance(group, str):
            ways.leave(add, group)
            continue
        fault = _fault_of(add, live, encoding, group.decimals)
        if fault is None:
            native.append((add, group))
        else:
            ways.leave(add, fault)
    listed = _listed(fs, [add for add, _ in native])
    groups: dict[str, NativeGroup] = {}
    for add, group in native:
        info = listed.get(add.final_path or "")
        if info is None or info.size_bytes != add.length:
            ways.leave(add, "files are not published")
            continue
        groups.setdefault(group.key, group).files.append((add, info))
    ways.groups.extend(groups.values())
    return ways


def _group_of(encoding: Mapping[str, Any], recorded: pa.Schema, *, legacy_times: bool) -> NativeGroup | str:
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
        return "names in orc have backticks, or are empty"  # Spark does not find these columns in the file
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
        kind,
        options,
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


def _fault_of(add: Add, live: Collection[str], encoding: Mapping[str, Any], decimals: pa.Schema) -> str | None:
    """Return why Spark cannot read a part, although it can read its encoding; None if it can."""
    if add.kind == "segment" or add.final_path is None:
        return "files are still open"
    if add.id not in live:
        return "a later version removed files"
    directory, _, name = add.final_path.rpartition("/")
    if layout.unique_part(add.id) not in name:
        return "names of files may be used again"
    is_gzip_of_lines = add.filters == _GZIP and name.endswith(".gz") and encoding["format"]["name"] in _LINES
    if add.filters and not is_gzip_of_lines:
        return f"filters are {'|'.join(add.filters)}"
    partition_by = tuple(encoding["partitionBy"])
    if partition_by and (
        directory.count("/") + 1 != len(partition_by) or columns_of_directory(directory) != partition_by
    ):
        return "directories are more than partition columns"
    is_rescaled = len(decimals) and rescaled_columns(directory, decimals)
    return "decimals in directories have another scale" if is_rescaled else None


def _listed(fs: FileSystem, parts: Iterable[Add]) -> dict[str, FileInfo]:
    """Return the files in the directories of parts, by path."""
    directories = sorted({layout.parent(part.final_path or "") for part in parts})
    files = {}
    for info in chain.from_iterable(parallel(fs, partial(list_or_empty, fs), directories)):
        if not info.is_directory:
            files[info.path] = info
    return files


def _format_fault(definition: Mapping[str, Any], in_file: pa.Schema, *, is_partitioned: bool) -> str | None:
    """Return why Spark's reader of a format would return other rows; None if it returns the same rows."""
    kind = definition["name"]
    set_options = [name for name in _TIMES if name in definition]
    faults = {
        "avro": {"numbers of 8 or 16 bits within columns of avro": _has_small_within(in_file)},
        "parquet": {"Spark has no codec for brotli": definition.get("compression") == "brotli"},
        # Spark assumes that an old Hive version generated these names, and finds columns by place.
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
_GZIP = ("gzip",)
_NULLS = ("", "\\N")
_TIMES = ("timestampFormat", "timestampNTZFormat", "dateFormat", "timeZone")
_BY_NAME = frozenset({"avro", "parquet", "orc", "json"})
_LINES = frozenset({"json", "text", "csv"})
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
