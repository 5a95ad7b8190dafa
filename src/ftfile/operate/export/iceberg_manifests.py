"""The manifests of a snapshot of an Iceberg table."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData
from ftfile.operate.export.iceberg_avro import (
    ANEW,
    MANIFESTS,
    METADATA,
    AvroContent,
    entry_schema,
    partition_fields,
    read_avro,
    read_paths,
    write_avro,
)
from ftfile.operate.export.iceberg_schemas import avro_type, raw_value
from ftfile.operate.export.iceberg_statistics import IcebergStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.operate.export.tables import ExportedFile
    from ftfile.storage.api import FileSystem


# Removing a file rewrites its manifest, but a reader opens all manifests.
MANIFEST_FILES = 10_000
SMALL_MANIFESTS = 100

EXISTING, ADDED, DELETED = 0, 1, 2

Json = dict[str, Any]


class SnapshotManifests:
    """Writes the new manifests of a snapshot; `manifests` contains their entries for the snapshot's list."""

    def __init__(self, fs: FileSystem, url: str, metadata: Json, snapshot_id: int, number: int) -> None:
        self._fs, self._url, self._metadata = fs, url, metadata
        self._number = number
        self.snapshot_id = snapshot_id
        self.manifests: list[Json] = []

    def write_list(self, manifests: list[Json]) -> str:
        """Write the list of all manifests of the snapshot; return its URL."""
        head = {
            "snapshot-id": str(self.snapshot_id),
            "sequence-number": str(self._number),
            "format-version": "2",
            "parent-snapshot-id": "null",
        }
        if self._metadata["snapshots"]:
            head["parent-snapshot-id"] = str(self._metadata["current-snapshot-id"] or "null")
        path, _ = write_avro(self._fs, f"snap-{self._number}", AvroContent(MANIFESTS, head, manifests))
        return f"{self._url}{path}"

    def drop_removed(self, manifests: list[Json], removes: Iterable[str]) -> list[Json]:
        """Return the manifests without removed files; rewrite the manifests that contain some."""
        gone = {f"{self._url}{path}" for path in removes}
        old_manifests: list[Json] = []
        for manifest in manifests:
            if not gone or gone.isdisjoint(map(_path, read_paths(self._fs, self._url, manifest["manifest_path"]))):
                old_manifests.append(manifest)
                continue
            content = read_avro(self._fs, self._url, manifest["manifest_path"])
            entries = live_entries(content.records)
            for entry in entries:
                _inherit(entry, manifest)
                if _path(entry) not in gone:
                    entry["status"] = EXISTING
                    continue
                entry["status"] = DELETED
                entry["snapshot_id"] = self.snapshot_id
                gone.discard(_path(entry))
            self._write(content, entries, manifest["partition_spec_id"])
        if gone:
            raise CorruptData(METADATA, f"the removed file {min(gone)!r}", "no manifest with it", ANEW)
        return old_manifests

    def merge(self, manifests: list[Json]) -> list[Json]:
        """Return the manifests with many small ones merged, because a reader opens all of them."""
        small: list[Json] = []
        large: list[Json] = []
        for manifest in manifests:
            if count_live(manifest) < MANIFEST_FILES // 2:
                small.append(manifest)
            else:
                large.append(manifest)
        if len(small) < SMALL_MANIFESTS:
            return manifests
        merged: dict[tuple[int, str], tuple[AvroContent, list[Json]]] = {}
        for manifest in small:
            content = read_avro(self._fs, self._url, manifest["manifest_path"])
            key = manifest["partition_spec_id"], json.dumps(content.schema)
            _, entries = merged.setdefault(key, (content, []))
            for entry in live_entries(content.records):
                _inherit(entry, manifest)
                entries.append(entry | {"status": EXISTING})
        before = len(self.manifests)
        for (spec_id, _), (content, entries) in merged.items():
            self._write(content, entries, spec_id)
        written = self.manifests[before:]
        del self.manifests[before:]
        return [*written, *large]

    def add(self, files: list[ExportedFile], columns: str, done: Callable[[int], object] | None) -> None:
        """Write manifests of new files, and call `done` with the number of files in each.

        `columns` contains the columns of the table as Spark's JSON.
        """
        if not files:
            return
        metadata = self._metadata
        schema = metadata["schemas"][metadata["current-schema-id"]]
        spec = metadata["partition-specs"][metadata["default-spec-id"]]
        kinds = {field["id"]: field["type"] for field in schema["fields"]}
        parts: list[tuple[str, str]] = []  # name and type of each partition column
        avro_fields: list[tuple[int, str, Any]] = []
        for field in spec["fields"]:
            number, name, kind = field["field-id"], field["name"], kinds[field["source-id"]]
            parts.append((name, kind))
            avro_fields.append((number, name, avro_type(kind, number)))
        entry = entry_schema(avro_fields)
        keys = [field["name"] for field in partition_fields(entry)]
        texts = {
            "schema": json.dumps(schema),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec["spec-id"]),
            "format-version": "2",
            "content": "data",
        }
        statistics = IcebergStatistics(columns, schema["fields"])
        values: dict[int, Json] = {}  # shared by the files of a directory
        # Entries of all files would need too much memory.
        for first in range(0, len(files), MANIFEST_FILES):
            entries: list[Json] = []
            for file in files[first : first + MANIFEST_FILES]:
                if id(file.values) not in values:
                    partition = {}
                    for key, (name, kind) in zip(keys, parts, strict=True):
                        partition[key] = raw_value(file.values[name], kind)
                    values[id(file.values)] = partition
                data_file = {
                    "content": 0,
                    "file_path": f"{self._url}{file.path}",
                    "file_format": "PARQUET",
                    "partition": values[id(file.values)],
                    "record_count": file.rows,
                    "file_size_in_bytes": file.size_bytes,
                }
                data_file |= statistics.fields(file)
                entries.append({"status": ADDED, "snapshot_id": self.snapshot_id, "data_file": data_file})
            self._write(AvroContent(entry, texts, []), entries, spec["spec-id"], done)

    def _write(
        self, like: AvroContent, entries: list[Json], spec_id: int, done: Callable[[int], object] | None = None
    ) -> None:
        """Write manifests of entries, with the schema and texts of another manifest."""
        for first in range(0, len(entries), MANIFEST_FILES):
            some = entries[first : first + MANIFEST_FILES]
            path, length = write_avro(self._fs, f"{self._number}-m", AvroContent(like.schema, like.texts, some))
            counts, rows = defaultdict[int, int](int), defaultdict[int, int](int)
            for entry in some:
                counts[entry["status"]] += 1
                rows[entry["status"]] += entry["data_file"]["record_count"]
            manifest = {
                "manifest_path": f"{self._url}{path}",
                "manifest_length": length,
                "partition_spec_id": spec_id,
                "content": 0,
                "sequence_number": self._number,
                "min_sequence_number": self._least_sequence(live_entries(some)),
                "added_snapshot_id": self.snapshot_id,
            }
            for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
                manifest |= {f"{name}_files_count": counts[status], f"{name}_rows_count": rows[status]}
            self.manifests.append(manifest)
            if done is not None:
                done(len(some))

    def _least_sequence(self, entries: Iterable[Json]) -> int:
        """Return the lowest sequence number of entries; entries without a number get the number of the snapshot."""
        least: int | None = None
        for entry in entries:
            sequence = entry.get("sequence_number")
            if sequence is None:
                sequence = self._number
            if least is None or sequence < least:
                least = sequence
        if least is None:
            return self._number
        return least


def live_entries(entries: Iterable[Json]) -> list[Json]:
    """Return the entries of files that are not deleted."""
    live = []
    for entry in entries:
        if entry["status"] != DELETED:
            live.append(entry)
    return live


def count_live(manifest: Json) -> int:
    """Return the number of live files in a manifest."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def _inherit(entry: Json, manifest: Json) -> None:
    """Write the values that an entry inherits from its manifest, so that it can be moved to another manifest."""
    for name in ("sequence_number", "file_sequence_number"):
        if entry[name] is None:
            entry[name] = manifest["sequence_number"]


def _path(entry: Json) -> str:
    return str(entry["data_file"]["file_path"])
