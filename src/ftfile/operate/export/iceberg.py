"""An Iceberg table over the files of a directory, with a snapshot for each version.

The format is version 2 of https://iceberg.apache.org/spec/. The metadata is in a directory that readers of plain files
ignore. A commit is the atomic creation of `vN.metadata.json`: only one of several exporters writes it, and a crash
leaves no partial commit. Its property `ftfile.export` contains the version and the log that it represents.
"""

from __future__ import annotations

import json
import re
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, CorruptData, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.log.places import delete_file, names_in
from ftfile.operate.export.iceberg_avro import ANEW, ICEBERG, METADATA, read_avro, read_paths, relative_path_of
from ftfile.operate.export.iceberg_manifests import SnapshotManifests, count_live, live_entries
from ftfile.operate.export.iceberg_schemas import FieldIds, promotes
from ftfile.operate.export.limits import LIMITS
from ftfile.operate.export.tables import Exported, ExportTable
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ftfile.operate.export.tables import TableChange
    from ftfile.storage.api import FileSystem


# Each metadata file names all kept snapshots.
SNAPSHOTS_KEPT = 500
# Readers that started with an older metadata file can read it for this number of commits.
METADATA_KEPT = 100
# Commits after which expired files are deleted. They are found by a listing, which includes files of killed exports.
EXPIRE_EVERY = 100
_HINT = f"{METADATA}/version-hint.text"
_NAME = re.compile(r"v(\d+)\.metadata\.json")
# A metadata file, a list of manifests, or a manifest, with the number of its commit.
_NUMBERED = re.compile(r"(v|snap-|)(\d+)(?:\.metadata\.json|(?:-m)?-[0-9a-f]{32}\.avro)")
_OWN = "ftfile.export"
_MAPPING = "schema.name-mapping.default"
_FIRST_PARTITION_ID = 1000
# Writers of rows, and all Python committers, load this class and fail; readers do not load it. Trino refuses to write.
# The last property prevents deletions of ftfile's files.
_KEEPING_AWAY = {
    "write.location-provider.impl": "read_only_export_of_ftfile.Table",
    "write.py-location-provider.impl": "read_only_export_of_ftfile.Table",
    "gc.enabled": "false",
}
_log = get_logger(__name__)

Json = dict[str, Any]


class IcebergTable(ExportTable):
    """The commits of an Iceberg table in a directory."""

    limits = LIMITS["iceberg"]

    def __init__(self, fs: FileSystem, url: str) -> None:
        self._fs, self._url = fs, url
        self._metadata: Json | None = None
        self._manifests: list[Json] = []  # of the current snapshot

    def newest(self) -> Exported | None:  # noqa: D102 - the interface describes it
        number = max(self._numbers(), default=None)
        if number is None:
            return None
        path = f"{METADATA}/{_name(number)}"
        try:
            metadata = json.loads(self._fs.read(path))
            state = json.loads(metadata["properties"].get(_OWN, "{}"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(path, "metadata of an Iceberg table", repr(error), ANEW) from error
        if state.get("commit") != number - 1 or metadata["current-snapshot-id"] != _snapshot_id(state["version"]):
            raise ConfigError(f"{path!r} is not an export of ftfile: another program wrote to this table. {ANEW}")
        if metadata["location"] != self._location:
            raise ConfigError(
                f"the metadata of {ICEBERG!r} contains the location {metadata['location']!r}, but this directory is "
                f"{self._location!r}: Iceberg names files by absolute paths. Export with the former path; if the "
                f"directory moved, delete {ICEBERG!r} to export again"
            )
        self._metadata = metadata
        self._manifests = self._list(metadata["snapshots"][-1])
        return Exported(**state)

    def live_paths(self) -> set[str]:  # noqa: D102
        paths: set[str] = set()
        start = len(self._url)
        for manifest in self._manifests:
            for entry in live_entries(read_paths(self._fs, self._url, manifest["manifest_path"])):
                paths.add(entry["data_file"]["file_path"][start:])
        return paths

    def refuse(self, whole: TableChange) -> None:  # noqa: D102
        if retyped := self._list_retyped(whole):
            _refuse_retyped(retyped, self.live_paths() & {file.path for file in whole.adds})

    def append(self, change: TableChange, done: Callable[[int], object] | None) -> None:  # noqa: D102
        exported = change.exported
        if self._metadata is None:
            self._fs.make_directories(METADATA)
            for directory in (ICEBERG, ""):
                self._fs.sync_directory(directory)
        if retyped := self._list_retyped(change):
            _refuse_retyped(retyped, self.live_paths() - {*change.removes})
        metadata = self._with_definitions(change, retyped)
        number, time_ms = exported.commit + 1, max(change.time_ms, metadata["last-updated-ms"])
        snapshot_id = _snapshot_id(exported.version)
        commit = SnapshotManifests(self._fs, self._url, metadata=metadata, snapshot_id=snapshot_id, number=number)
        before = list(filter(count_live, self._manifests))
        # Readers look up the columns of all partitions in manifests, also of removed partitions.
        is_anew = _has_former_columns(metadata, before) and self.live_paths() <= {*change.removes}
        if is_anew:
            old_manifests = []
        else:
            old_manifests = commit.drop_removed(before, change.removes)
        commit.add(change.adds, change.columns, done)
        manifests = [*commit.manifests, *commit.merge(old_manifests)]
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": time_ms,
            "manifest-list": commit.write_list(manifests),
            "summary": _summary(change, before, manifests),
            "schema-id": metadata["current-schema-id"],
        }
        if metadata["snapshots"]:
            snapshot["parent-snapshot-id"] = metadata["current-snapshot-id"]
        kept_snapshots = [*metadata["snapshots"], snapshot][-SNAPSHOTS_KEPT:]
        metadata |= {
            "last-sequence-number": number,
            "last-updated-ms": time_ms,
            "current-snapshot-id": snapshot_id,
            "snapshots": kept_snapshots,
            "snapshot-log": list(map(_log_entry, kept_snapshots)),
            "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
            "properties": metadata["properties"] | {_OWN: json.dumps(exported._asdict())},
        }
        content = json.dumps(metadata, separators=(",", ":")).encode()
        self._fs.create_exclusive(f"{METADATA}/{_name(number)}", content)
        self._metadata, self._manifests = metadata, manifests

    def follow_up(self, exported: Exported, whole: Callable[[], TableChange]) -> None:  # noqa: D102
        del whole
        number = exported.commit + 1
        try:
            if self._is_hinted(number):
                return
            # A delayed export must not point readers to an older version.
            if number == max(self._numbers()):
                self._fs.put(_HINT, str(number).encode())
            if number % EXPIRE_EVERY == 0:
                self._delete_expired(number)
        except (StorageError, CorruptData) as error:
            _log.warning("version %d is exported, but old metadata could not be deleted: %s", exported.version, error)

    def _is_hinted(self, number: int) -> bool:
        try:
            return self._fs.read(_HINT) == str(number).encode()
        except NotFound:
            return False

    @property
    def _location(self) -> str:
        return f"{self._url}{ICEBERG}"

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        for name in names_in(self._fs, METADATA):
            if not name.endswith(".metadata.json"):
                continue
            match = _NAME.fullmatch(name)
            if match is None:
                raise ConfigError(f"{METADATA}/{name} is not an export of ftfile: another program wrote it. {ANEW}")
            numbers.append(int(match[1]))
        return numbers

    def _list(self, snapshot: Json) -> list[Json]:
        return read_avro(self._fs, self._url, snapshot["manifest-list"]).records

    def _with_definitions(self, change: TableChange, retyped: list[str]) -> Json:
        """Return the metadata of the previous commit, with the columns and partitions of a change."""
        current = self._metadata
        if current is None:
            current = _first_metadata(self._location, change)
        metadata = dict(current)
        ids = FieldIds(metadata["properties"].get(_MAPPING, "[]"))
        ids.renew(retyped)
        fields = ids.schema(change.columns)
        # Some readers confuse other columns of a file with columns that the mapping does not name.
        for columns in change.file_columns:
            ids.schema(columns)
        metadata |= {
            "last-column-id": ids.last,
            "properties": metadata["properties"] | {_MAPPING: ids.name_mapping()},
        }
        if not change.is_redefined:
            return metadata
        schemas, specs = list(metadata["schemas"]), list(metadata["partition-specs"])
        schema_id = _id_of(schemas, "schema-id", fields)
        if schema_id is None:
            schema_id = len(schemas)
            schemas.append({"type": "struct", "schema-id": schema_id, "fields": fields})
        parts = _partition_fields(specs, {ids.of(name): name for name in change.exported.partition_by})
        spec_id = _id_of(specs, "spec-id", parts)
        if spec_id is None:
            spec_id = len(specs)
            specs.append({"spec-id": spec_id, "fields": parts})
        last_partition_id = _FIRST_PARTITION_ID - 1
        for field in _fields_of(specs):
            last_partition_id = max(last_partition_id, field["field-id"])
        return metadata | {
            "schemas": schemas,
            "current-schema-id": schema_id,
            "partition-specs": specs,
            "default-spec-id": spec_id,
            "last-partition-id": last_partition_id,
        }

    def _list_retyped(self, change: TableChange) -> list[str]:
        """Return current and former partition columns whose new type readers do not accept for older values."""
        if self._metadata is None or not change.is_redefined:
            return []
        schemas, specs = self._metadata["schemas"], self._metadata["partition-specs"]
        sources = {field["source-id"] for field in _fields_of(specs)}
        retyped: list[str] = []
        for now in FieldIds(self._metadata["properties"][_MAPPING]).schema(change.columns):
            if now["id"] not in sources and now["name"] not in change.exported.partition_by:
                continue
            for former in _fields_of(schemas):
                if former["id"] == now["id"] and not promotes(former["type"], now["type"]):
                    retyped.append(now["name"])
                    break
        return retyped

    def _delete_expired(self, number: int) -> None:
        """Delete old metadata, lists before the oldest snapshot, and manifests that no later list can name."""
        assert self._metadata is not None
        oldest = self._metadata["snapshots"][0]
        first = oldest["sequence-number"]
        # A later list contains only manifests of this list, and manifests that were written after it.
        named = set()
        for manifest in self._list(oldest):
            named.add(relative_path_of(self._url, manifest["manifest_path"]))
        newest_expired = {"v": number - METADATA_KEPT, "snap-": first - 1, "": first}
        expired: list[str] = []
        for info in self._fs.list(METADATA):
            match = _NUMBERED.fullmatch(info.path, len(METADATA) + 1)
            if match is not None and int(match[2]) <= newest_expired[match[1]] and info.path not in named:
                expired.append(info.path)
        parallel(self._fs, partial(delete_file, self._fs), expired)


def _log_entry(snapshot: Json) -> Json:
    return {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": snapshot["timestamp-ms"]}


def _first_metadata(location: str, change: TableChange) -> Json:
    table = change.exported.table
    return {
        "format-version": 2,
        "table-uuid": "-".join((table[:8], table[8:12], table[12:16], table[16:20], table[20:])),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": change.time_ms,
        "last-column-id": 0,
        "schemas": [],
        "current-schema-id": 0,
        "partition-specs": [],
        "default-spec-id": 0,
        "last-partition-id": _FIRST_PARTITION_ID - 1,
        "properties": dict(_KEEPING_AWAY),
        "snapshots": [],
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
    }


def _fields_of(definitions: Iterable[Json]) -> Iterator[Json]:
    """Yield the fields of schemas, or of partition specs."""
    for definition in definitions:
        yield from definition["fields"]


def _id_of(definitions: Iterable[Json], id_name: str, fields: list[Json]) -> int | None:
    """Return the id of the schema or partition spec with these fields; None if there is none."""
    for definition in definitions:
        if definition["fields"] == fields:
            return int(definition[id_name])
    return None


def _partition_fields(specs: list[Json], columns: Mapping[int, str]) -> list[Json]:
    """Return the partition fields of columns, given as names by id; all specs have the same field id for a column."""
    field_ids: dict[int, int] = {}
    for field in _fields_of(specs):
        field_ids[field["source-id"]] = field["field-id"]
    fields: list[Json] = []
    for column, name in columns.items():
        field_ids.setdefault(column, max(field_ids.values(), default=_FIRST_PARTITION_ID - 1) + 1)
        fields.append({"source-id": column, "field-id": field_ids[column], "transform": "identity", "name": name})
    return fields


def _has_former_columns(metadata: Json, manifests: list[Json]) -> bool:
    """Return True if manifests have partitions by a column that the table no longer has, or has with another id."""
    ids = {field["id"] for field in metadata["schemas"][metadata["current-schema-id"]]["fields"]}
    spec_ids = {manifest["partition_spec_id"] for manifest in manifests}
    specs = [metadata["partition-specs"][spec_id] for spec_id in spec_ids]
    return any(field["source-id"] not in ids for field in _fields_of(specs))


def _refuse_retyped(columns: list[str], staying: set[str]) -> None:
    """Raise a ConfigError if remaining files have values of a column's former type."""
    if staying:
        raise ConfigError(
            f"column {columns[0]!r} has another type than in exported partitions, and Iceberg does not support this "
            f"change. {ANEW}"
        )


def _summary(change: TableChange, before: list[Json], manifests: list[Json]) -> dict[str, str]:
    """Return the summary of a snapshot: Iceberg's name of the operation, and counts."""
    operation = "append"
    if not (change.is_change or any(file.is_change for file in change.adds)):
        operation = "replace"
    elif change.removes:
        operation = "delete"
        if change.adds:
            operation = "overwrite"
    added, total = sum(map(attrgetter("rows"), change.adds)), _rows(manifests)
    numbers: dict[str, int] = {
        "added-data-files": len(change.adds),
        "deleted-data-files": len(change.removes),
        "added-records": added,
        "deleted-records": _rows(before) + added - total,
        "total-data-files": sum(map(count_live, manifests)),
        "total-records": total,
        "ftfile.version": change.exported.version,
    }
    summary = {"operation": operation, "ftfile.operation": change.operation}
    for name, number in numbers.items():
        summary[name] = str(number)
    return summary


def _rows(manifests: list[Json]) -> int:
    rows = 0
    for manifest in manifests:
        rows += manifest["added_rows_count"] + manifest["existing_rows_count"]
    return rows


def _snapshot_id(version: int) -> int:
    return version + 1  # some readers treat 0 as no snapshot


def _name(number: int) -> str:
    return f"v{number}.metadata.json"
