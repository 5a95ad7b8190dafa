"""Which parts of a snapshot Spark's own sources can read, and why others cannot; needs no Spark."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.nested import field_names, leaf_types
from ftfile.arrays.spark_types import arrow_schema, spark_schema_json
from ftfile.arrays.widening import is_wider
from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.encoding.partitions.paths import columns_of_directory, rescaled_columns
from ftfile.fs.calls.parallel import parallel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import FileInfo, FileSystem


@dataclass(frozen=True)
class NativeGroup:
    """Parts that one read of Spark's own source covers."""

    format: str  # Spark's name of it
    options: Mapping[str, str]  # of its reader
    schema_json: str  # the columns in the files and then those in their paths, as Spark's JSON
    partition_by: tuple[str, ...]  # the columns in the paths
    decimals: pa.Schema  # those of the partition columns
    files: list[tuple[Add, FileInfo]] = field(default_factory=list)  # the parts, each with the file found at its name

    @functools.cached_property
    def key(self) -> str:
        """Return all that is the same for the parts of one group."""
        return json.dumps([self.format, self.options, self.schema_json, self.partition_by], sort_keys=True)


@dataclass(frozen=True, slots=True)
class Ways:
    """How the adds of a snapshot are read."""

    groups: list[NativeGroup]  # by Spark's own sources
    rest: list[Add]  # by ftfile's reader
    reasons: Counter[str]  # of the latter, with the number of adds

    def leave(self, add: Add, reason: str) -> None:
        """Have an add read by ftfile's reader."""
        self.rest.append(add)
        self.reasons[reason] += 1


def find_ways(
    fs: FileSystem, snapshot: Snapshot, adds: Iterable[Add], live: Collection[str], *, legacy_times: bool = False
) -> Ways:
    """Return how each of these adds of a snapshot is read; list each directory of parts once.

    Args:
        fs: of the directory.
        snapshot: of the version to be read, which has a schema.
        adds: those that are read.
        live: the ids of the newest version's adds: a part that is none of them has left its name.
        legacy_times: the session parses dates and times as Spark 2 did.
    """
    assert snapshot.schema is not None, "a directory without a commit has no rows"
    ways = Ways([], [], Counter())
    is_sealed = keys_of(fs) is not None
    recorded = arrow_schema(snapshot.definitions[snapshot.schema])
    own_groups: dict[str, NativeGroup | str] = {}
    native: list[tuple[Add, NativeGroup]] = []
    for add in adds:
        encoding = snapshot.definitions[add.encoding]
        if add.encoding not in own_groups:
            made = _group_of(encoding, recorded, legacy_times=legacy_times)
            own_groups[add.encoding] = "the directory is encrypted" if is_sealed else made
        group = own_groups[add.encoding]
        fault = group if isinstance(group, str) else _fault_of(add, live, encoding, group.decimals)
        if isinstance(group, NativeGroup) and fault is None:
            native.append((add, group))
        else:
            ways.leave(add, fault or "")
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
    """Return the group of the parts of an encoding, without any, or why ftfile reads them."""
    if encoding.get("fileName"):
        return "names of files hold a column"
    definition, in_file = encoding["format"], arrow_schema(encoding["schema"])
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
        # Spark finds columns by name, and null for those that a file lacks: parts of several schemas are one read.
        own = set(in_file.names)
        others = [column for column in recorded if column.name not in partition_by]
        columns = [in_file.field(column.name) if column.name in own else column for column in others] or columns
        if kind == "orc" and any(
            _clashes(*pair) for pair in zip(in_file.types, [each.type for each in columns], strict=False)
        ):
            columns = [*in_file, *(column for column in others if column.name not in own)]
    if kind == "orc" and any("`" in name or not name for name in field_names(columns)):
        return "names in orc have backticks, or are empty"  # Spark finds no such column in the file
    if kind == "avro":
        # It has one type for whole numbers of up to 32 bits; what Spark reads is cast.
        columns = [column.with_type(pa.int32()) if column.type in _SMALL else column for column in columns]
    in_path = [recorded.field(name) if name in recorded.names else pa.field(name, pa.string()) for name in partition_by]
    options = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", **_OPTIONS[kind]}
    options |= {name: str(definition[name]).lower() for name in ("header",) if name in definition}
    options |= {name: definition[name] for name in _PASSED_ON if name in definition}
    if partition_by:
        options["timeZone"] = encoding["timeZone"]
    else:
        options["recursiveFileLookup"] = "true"
    decimals = pa.schema([column for column in in_path if pa.types.is_decimal(column.type)])
    return NativeGroup(kind, options, spark_schema_json(pa.schema([*columns, *in_path])), partition_by, decimals)


def _clashes(in_file: pa.DataType, read: pa.DataType) -> bool:
    """Return True where Spark refuses two columns at one place, which it compares for their sorts of timestamps."""
    zones = [{leaf.tz for leaf in leaf_types(kind) if pa.types.is_timestamp(leaf)} for kind in (in_file, read)]
    return not in_file.equals(read) and all(zones) and len(set().union(*zones)) > 1


def _misfit(recorded: pa.Schema, in_file: pa.Schema, partition_by: Collection[str]) -> str | None:
    """Return why the columns of files are not those of the version, each as it is or cast."""
    spelling = {name.lower(): name for name in in_file.names}
    for column in recorded:
        name = spelling.get(column.name.lower())
        if column.name in partition_by or name is None:
            continue
        if name != column.name:
            return f"column {column.name!r} is {name!r} in files"
        found = in_file.field(name).type
        if not found.equals(column.type) and not is_wider(found, column.type):
            return f"column {column.name!r} has another type in files"
    return None


def _fault_of(add: Add, live: Collection[str], encoding: Mapping[str, Any], decimals: pa.Schema) -> str | None:
    """Return why Spark cannot read a part whose encoding it reads."""
    if add.kind == "segment" or add.final_path is None:
        return "files are still open"
    if add.id not in live:
        return "a later version removed files"
    directory, _, name = add.final_path.rpartition("/")
    if layout.unique_part(add.id) not in name:
        return "names of files may be used again"
    if add.filters and (add.filters != _GZIP or not name.endswith(".gz") or encoding["format"]["name"] not in _LINES):
        return f"filters are {'|'.join(add.filters)}"
    partition_by = tuple(encoding["partitionBy"])
    if partition_by and (
        directory.count("/") + 1 != len(partition_by) or columns_of_directory(directory) != partition_by
    ):
        return "directories are more than partition columns"
    is_rescaled = len(decimals) and rescaled_columns(directory, decimals)
    return "decimals in directories have another scale" if is_rescaled else None


def _listed(fs: FileSystem, parts: Iterable[Add]) -> dict[str, FileInfo]:
    directories = sorted({layout.parent(part.final_path or "") for part in parts})
    listed = parallel(fs, lambda directory: list_or_empty(fs, directory), directories)
    return {info.path: info for infos in listed for info in infos if not info.is_directory}


def _format_fault(definition: Mapping[str, Any], in_file: pa.Schema, *, is_partitioned: bool) -> str | None:
    """Return why Spark's reader of a format would return other rows, or none."""
    kind = definition["name"]
    given = [name for name in _TIMES if name in definition]
    faults = {
        "avro": {"numbers of 8 or 16 bits within columns of avro": _has_small_within(in_file)},
        "parquet": {"Spark has no codec for brotli": definition.get("compression") == "brotli"},
        # Spark takes such names for those that an old Hive made up, and finds columns by place.
        "orc": {"all columns of orc begin with _col": all(name.startswith("_col") for name in in_file.names)},
        "json": {f"{given} of json": bool(given) and _has_times(in_file)},
        "text": {
            "Spark counts partition columns among those of text": is_partitioned,
            "text is binary": not pa.types.is_string(in_file.types[0]),
        },
        "csv": {
            "Spark counts partition columns among those of csv": is_partitioned,
            'Spark reads "" in csv as null': any(map(pa.types.is_string, in_file.types)),
            "nullValue or lineSep of csv": definition.get("nullValue") not in _NULLS or definition["lineSep"] != "\n",
            f"{given} of csv": bool(given) and _has_times(in_file),
        },
    }
    return next((reason for reason, is_so in faults[kind].items() if is_so), None)


def _has_small_within(schema: pa.Schema) -> bool:
    nested = (kind for kind in schema.types if pa.types.is_nested(kind))
    return any(leaf in _SMALL for kind in nested for leaf in leaf_types(kind))


def _has_times(schema: pa.Schema) -> bool:
    return any(pa.types.is_temporal(leaf) for kind in schema.types for leaf in leaf_types(kind))


_SMALL = (pa.int8(), pa.int16())
_GZIP = ("gzip",)
_NULLS = ("", "\\N")
_TIMES = ("timestampFormat", "timestampNTZFormat", "dateFormat", "timeZone")
_BY_NAME = frozenset({"avro", "parquet", "orc", "json"})
_LINES = frozenset({"json", "text", "csv"})
_WITH_TIMES = frozenset({"json", "csv"})
_PASSED_ON = ("lineSep", "sep", "quote", "escape", "nullValue")
# The session's own settings must change no row.
_OPTIONS = {
    "avro": {"mode": "FAILFAST", "datetimeRebaseMode": "CORRECTED", "positionalFieldMatching": "false"},
    "parquet": {"mergeSchema": "false", "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"},
    "orc": {"mergeSchema": "false"},
    "json": {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_ftfile_corrupt_record", "multiLine": "false"},
    "text": {"wholetext": "false"},
    "csv": {"mode": "FAILFAST", "columnNameOfCorruptRecord": "_ftfile_corrupt_record", "multiLine": "false"},
}
