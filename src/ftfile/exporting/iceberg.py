"""An Iceberg table over the files of a directory: a snapshot for each version.

As in https://iceberg.apache.org/spec/, version 2. The metadata lies in a directory that readers of plain files
overlook. A commit is the creation of `vN.metadata.json` in one step, so that one of several exporters writes it, and a
crash leaves all of it or nothing. Its property `ftfile.export` says which version of which log it stands for.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from ftfile.commit.files import delete_file, list_or_empty
from ftfile.core.errors import ConfigError, CorruptData, StorageError
from ftfile.core.logs import get_logger
from ftfile.exporting.limits import LIMITS
from ftfile.exporting.manifests import (
    ADDED,
    DELETED,
    EXISTING,
    MANIFESTS,
    Content,
    entry_schema,
    read_avro,
    write_avro,
)
from ftfile.exporting.model import Exported, Table
from ftfile.exporting.schemas import FieldIds, avro_type, raw_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.exporting.model import Change, File
    from ftfile.fs.api import FileSystem

__all__ = ("ICEBERG", "IcebergTable")

ICEBERG = "_iceberg"
METADATA = f"{ICEBERG}/metadata"
# Each metadata file names all snapshots that are kept.
SNAPSHOTS_KEPT = 500
# Readers that began with an older metadata file find it for as many commits.
METADATA_KEPT = 100
# A removed file makes its manifest be written anew; a reader opens all of them.
MANIFEST_FILES = 10_000
SMALL_MANIFESTS = 100
_HINT = f"{METADATA}/version-hint.text"
_NAME = re.compile(r"v(\d+)\.metadata\.json")
_OWN = "ftfile.export"
_MAPPING = "schema.name-mapping.default"
_FIRST_PARTITION_ID = 1000
# No writer of rows has such a format, so that all of them refuse; and nobody deletes files that are ftfile's.
_KEEPING_AWAY = {"write.format.default": "ftfile", "gc.enabled": "false"}
_ANEW = f"Delete {ICEBERG!r} to export anew"
_log = get_logger(__name__)

Json = dict[str, Any]


class IcebergTable(Table):
    """The commits of an Iceberg table in a directory."""

    limits = LIMITS["iceberg"]
    directory: ClassVar[str] = ICEBERG

    def __init__(self, fs: FileSystem, url: str) -> None:
        self._fs, self._url = fs, url
        self._metadata: Json | None = None
        self._manifests: list[Json] = []  # of the current snapshot
        self._expired: list[Json] = []

    def newest(self) -> Exported | None:  # noqa: D102 - the interface describes it
        number = max(self._numbers(), default=None)
        if number is None:
            return None
        path = f"{METADATA}/{_name(number)}"
        try:
            metadata = json.loads(self._fs.read(path))
            own = json.loads(metadata["properties"].get(_OWN, "{}"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(path, "metadata of an Iceberg table", repr(error), _ANEW) from error
        if own.get("commit") != number - 1 or metadata["current-snapshot-id"] != _snapshot_id(own["version"]):
            raise ConfigError(f"{path!r} is no export of ftfile's: another program wrote to this table. {_ANEW}")
        if metadata["location"] != self._location:
            raise ConfigError(
                f"the metadata of {ICEBERG!r} says that it is at {metadata['location']!r}, and this is "
                f"{self._location!r}: Iceberg names files by whole paths. Export by that path; if the directory moved, "
                f"delete {ICEBERG!r} to export anew"
            )
        self._metadata = metadata
        self._manifests = self._list(metadata["snapshots"][-1])
        return Exported(**own)

    def live_paths(self) -> set[str]:  # noqa: D102
        entries = (entry for manifest in self._manifests for entry in self._read(manifest).records)
        start = len(self._url)
        return {entry["data_file"]["file_path"][start:] for entry in entries if entry["status"] != DELETED}

    def append(self, change: Change) -> None:  # noqa: D102
        exported = change.exported
        if self._metadata is None:
            self._fs.make_directories(METADATA)
            for directory in (ICEBERG, ""):
                self._fs.sync_directory(directory)
        metadata = self._with_definitions(change)
        number, time_ms = exported.commit + 1, max(change.time_ms, metadata["last-updated-ms"])
        snapshot_id = _snapshot_id(exported.version)
        commit = _Commit(self._fs, self._url, metadata, snapshot_id, number)
        kept = self._without(commit, [manifest for manifest in self._manifests if _live(manifest)], change.removes)
        commit.add(change.adds)
        manifests = [*commit.manifests, *self._merged(commit, kept)]
        listed, _ = write_avro(self._fs, METADATA, f"snap-{number}", Content(MANIFESTS, commit.texts(), manifests))
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": time_ms,
            "manifest-list": f"{self._url}{listed}",
            "summary": _summary(change, manifests, commit),
            "schema-id": metadata["current-schema-id"],
        }
        if metadata["snapshots"]:
            snapshot["parent-snapshot-id"] = metadata["current-snapshot-id"]
        snapshots = [*metadata["snapshots"], snapshot]
        self._expired, kept_snapshots = snapshots[:-SNAPSHOTS_KEPT], snapshots[-SNAPSHOTS_KEPT:]
        metadata |= {
            "last-sequence-number": number,
            "last-updated-ms": time_ms,
            "current-snapshot-id": snapshot_id,
            "snapshots": kept_snapshots,
            "snapshot-log": [
                {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]} for each in kept_snapshots
            ],
            "refs": {"main": {"snapshot-id": snapshot_id, "type": "branch"}},
            "properties": metadata["properties"] | {_OWN: json.dumps(exported._asdict())},
        }
        content = json.dumps(metadata, separators=(",", ":")).encode()
        self._fs.create_exclusive(f"{METADATA}/{_name(number)}", content)
        self._metadata, self._manifests = metadata, manifests

    def follow_up(self, exported: Exported, whole: Callable[[], Change]) -> None:  # noqa: D102
        del whole
        number = exported.commit + 1
        try:
            # An export that was late must not lead readers back.
            if number == max(self._numbers()):
                self._fs.put(_HINT, str(number).encode())
            self._delete_expired()
            delete_file(self._fs, f"{METADATA}/{_name(number - METADATA_KEPT)}")
        except StorageError as error:
            _log.warning("version %d is exported, and old metadata stays: %s", exported.version, error)

    @property
    def _location(self) -> str:
        return f"{self._url}{ICEBERG}"

    def _numbers(self) -> list[int]:
        names = [info.path.rpartition("/")[2] for info in list_or_empty(self._fs, METADATA)]
        found = [(name, _NAME.fullmatch(name)) for name in names if name.endswith(".metadata.json")]
        foreign = next((name for name, match in found if match is None), None)
        if foreign is not None:
            raise ConfigError(f"{METADATA}/{foreign} is no export of ftfile's: another program wrote it. {_ANEW}")
        return [int(match[1]) for _, match in found if match is not None]

    def _list(self, snapshot: Json) -> list[Json]:
        return read_avro(self._fs, self._relative(snapshot["manifest-list"])).records

    def _read(self, manifest: Json) -> Content:
        return read_avro(self._fs, self._relative(manifest["manifest_path"]))

    def _relative(self, path: str) -> str:
        start = f"{self._url}{METADATA}/"
        if not path.startswith(start):
            raise CorruptData(path, f"a file below {METADATA!r}", "another path", _ANEW)
        return path[len(self._url) :]

    def _with_definitions(self, change: Change) -> Json:
        """Return the metadata of the commit before, with the columns and partitions of a change."""
        found = self._metadata
        if found is None:
            found = _first_metadata(self._location, change)
        metadata = dict(found)
        if not change.is_redefined:
            return metadata
        ids = FieldIds(metadata["schemas"])
        fields = ids.schema(change.columns)
        schemas, specs = list(metadata["schemas"]), list(metadata["partition-specs"])
        schema_id = next((each["schema-id"] for each in schemas if each["fields"] == fields), None)
        if schema_id is None:
            schema_id = len(schemas)
            schemas.append({"type": "struct", "schema-id": schema_id, "fields": fields})
        parts = _partition_fields(specs, [(ids.of(name), name) for name in change.exported.partition_by])
        spec_id = next((each["spec-id"] for each in specs if each["fields"] == parts), None)
        if spec_id is None:
            spec_id = len(specs)
            specs.append({"spec-id": spec_id, "fields": parts})
        used = [field["field-id"] for spec in specs for field in spec["fields"]]
        return metadata | {
            "schemas": schemas,
            "current-schema-id": schema_id,
            "last-column-id": ids.last,
            "partition-specs": specs,
            "default-spec-id": spec_id,
            "last-partition-id": max(used, default=_FIRST_PARTITION_ID - 1),
            "properties": metadata["properties"] | {_MAPPING: ids.name_mapping()},
        }

    def _without(self, commit: _Commit, manifests: list[Json], removes: Iterable[str]) -> list[Json]:
        """Return the manifests that have none of the removed files; write those anew that have some."""
        gone = {f"{self._url}{path}" for path in removes}
        kept: list[Json] = []
        for manifest in manifests:
            content = self._read(manifest) if gone else None
            if content is None or not any(_path(entry) in gone for entry in content.records):
                kept.append(manifest)
                continue
            entries = [entry for entry in content.records if entry["status"] != DELETED]
            for entry in entries:
                _inherit(entry, manifest)
                is_gone = _path(entry) in gone
                entry["status"] = DELETED if is_gone else EXISTING
                if is_gone:
                    entry["snapshot_id"] = commit.snapshot_id
                    gone.discard(_path(entry))
            commit.write(content, entries, manifest["partition_spec_id"])
        if gone:
            raise CorruptData(METADATA, f"the removed file {min(gone)!r}", "it in no manifest", _ANEW)
        return kept

    def _merged(self, commit: _Commit, manifests: list[Json]) -> list[Json]:
        """Return manifests with many small ones merged: a reader opens all of them."""
        small = [manifest for manifest in manifests if _live(manifest) < MANIFEST_FILES // 2]
        if len(small) < SMALL_MANIFESTS:
            return manifests
        merged: dict[tuple[int, str], tuple[Content, list[Json]]] = {}
        for manifest in small:
            content = self._read(manifest)
            key = manifest["partition_spec_id"], json.dumps(content.schema)
            _, entries = merged.setdefault(key, (content, []))
            for entry in content.records:
                if entry["status"] != DELETED:
                    _inherit(entry, manifest)
                    entries.append(entry | {"status": EXISTING})
        large = [manifest for manifest in manifests if _live(manifest) >= MANIFEST_FILES // 2]
        before = len(commit.manifests)
        for (spec_id, _), (content, entries) in merged.items():
            commit.write(content, entries, spec_id)
        written = commit.manifests[before:]
        del commit.manifests[before:]
        return [*written, *large]

    def _delete_expired(self) -> None:
        assert self._metadata is not None
        for snapshot, following in itertools.pairwise([*self._expired, self._metadata["snapshots"][0]]):
            # What a later snapshot does not name comes back in none.
            still = {manifest["manifest_path"] for manifest in self._list(following)}
            for manifest in self._list(snapshot):
                if manifest["manifest_path"] not in still:
                    delete_file(self._fs, self._relative(manifest["manifest_path"]))
            delete_file(self._fs, self._relative(snapshot["manifest-list"]))
        self._expired = []


class _Commit:
    """The manifests that one snapshot brings."""

    def __init__(self, fs: FileSystem, url: str, metadata: Json, snapshot_id: int, number: int) -> None:
        self._fs, self._url, self._metadata = fs, url, metadata
        self._number = number
        self.snapshot_id = snapshot_id
        self.manifests: list[Json] = []

    def texts(self) -> dict[str, str]:
        """Return what the list of the manifests says of itself."""
        texts = {"snapshot-id": self.snapshot_id, "sequence-number": self._number, "format-version": 2}
        parent = self._metadata["current-snapshot-id"] if self._metadata["snapshots"] else None
        return {name: str(value) for name, value in texts.items()} | {"parent-snapshot-id": str(parent or "null")}

    def add(self, files: list[File]) -> None:
        """Write manifests of new files."""
        if not files:
            return
        metadata = self._metadata
        schema = metadata["schemas"][metadata["current-schema-id"]]
        spec = metadata["partition-specs"][metadata["default-spec-id"]]
        kinds = {field["id"]: field["type"] for field in schema["fields"]}
        parts = [(each["field-id"], each["name"], kinds[each["source-id"]]) for each in spec["fields"]]
        entry = entry_schema([(number, name, avro_type(kind, number)) for number, name, kind in parts])
        (partition,) = (each for each in entry["fields"][-1]["type"]["fields"] if each["name"] == "partition")
        keys = [each["name"] for each in partition["type"]["fields"]]
        texts = {
            "schema": json.dumps(schema),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec["spec-id"]),
            "format-version": "2",
            "content": "data",
        }
        values: dict[int, Json] = {}  # files of a directory share them
        entries: list[Json] = []
        for file in files:
            if id(file.values) not in values:
                raw = (raw_value(file.values[name], kind) for _, name, kind in parts)
                values[id(file.values)] = dict(zip(keys, raw, strict=True))
            data_file = {
                "content": 0,
                "file_path": f"{self._url}{file.path}",
                "file_format": "PARQUET",
                "partition": values[id(file.values)],
                "record_count": file.rows,
                "file_size_in_bytes": file.size_bytes,
            }
            entries.append({"status": ADDED, "snapshot_id": self.snapshot_id, "data_file": data_file})
        self.write(Content(entry, texts, []), entries, spec["spec-id"])

    def write(self, like: Content, entries: list[Json], spec_id: int) -> None:
        """Write manifests of entries, with schema and texts of another one."""
        for first in range(0, len(entries), MANIFEST_FILES):
            some = entries[first : first + MANIFEST_FILES]
            path, length = write_avro(self._fs, METADATA, f"{self._number}-m", Content(like.schema, like.texts, some))
            counts, rows = defaultdict[int, int](int), defaultdict[int, int](int)
            for entry in some:
                counts[entry["status"]] += 1
                rows[entry["status"]] += entry["data_file"]["record_count"]
            live = (entry for entry in some if entry["status"] != DELETED)
            sequences = (entry.get("sequence_number") for entry in live)
            manifest = {
                "manifest_path": f"{self._url}{path}",
                "manifest_length": length,
                "partition_spec_id": spec_id,
                "content": 0,
                "sequence_number": self._number,
                "min_sequence_number": min(
                    (self._number if each is None else each for each in sequences), default=self._number
                ),
                "added_snapshot_id": self.snapshot_id,
            }
            for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
                manifest |= {f"{name}_files_count": counts[status], f"{name}_rows_count": rows[status]}
            self.manifests.append(manifest)


def _first_metadata(location: str, change: Change) -> Json:
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


def _partition_fields(specs: list[Json], columns: list[tuple[int, str]]) -> list[Json]:
    """Return the fields of a partitioning by columns, given by id and name: one column has one id in all of them."""
    known = {field["source-id"]: field["field-id"] for spec in specs for field in spec["fields"]}
    for column, _ in columns:
        known.setdefault(column, max(known.values(), default=_FIRST_PARTITION_ID - 1) + 1)
    return [
        {"source-id": column, "field-id": known[column], "transform": "identity", "name": name}
        for column, name in columns
    ]


def _summary(change: Change, manifests: list[Json], commit: _Commit) -> dict[str, str]:
    """Return what a snapshot says of itself: Iceberg's names for what was done, and numbers."""
    operation = "append"
    if not (change.is_change or any(file.is_change for file in change.adds)):
        operation = "replace"
    elif change.removes:
        operation = "overwrite" if change.adds else "delete"
    deleted = sum(manifest["deleted_rows_count"] for manifest in commit.manifests)
    numbers = {
        "added-data-files": len(change.adds),
        "deleted-data-files": len(change.removes),
        "added-records": sum(file.rows for file in change.adds),
        "deleted-records": deleted,
        "total-data-files": sum(map(_live, manifests)),
        "total-records": sum(each["added_rows_count"] + each["existing_rows_count"] for each in manifests),
        "ftfile.version": change.exported.version,
    }
    named = {"operation": operation, "ftfile.operation": change.operation}
    return named | {name: str(number) for name, number in numbers.items()}


def _inherit(entry: Json, manifest: Json) -> None:
    """Say what an entry takes from its manifest, so that it can be moved to another one."""
    for name in ("sequence_number", "file_sequence_number"):
        if entry[name] is None:
            entry[name] = manifest["sequence_number"]


def _path(entry: Json) -> str:
    path: str = entry["data_file"]["file_path"]
    return path


def _live(manifest: Json) -> int:
    """Return the number of files that a manifest has."""
    count: int = manifest["added_files_count"] + manifest["existing_files_count"]
    return count


def _snapshot_id(version: int) -> int:
    return version + 1  # some readers take 0 for none


def _name(number: int) -> str:
    return f"v{number}.metadata.json"
