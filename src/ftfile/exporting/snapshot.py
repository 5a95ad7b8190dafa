"""The manifests of a snapshot: those that stay, those written anew for removed files, merged ones, and new ones."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData
from ftfile.exporting.manifests import ADDED, DELETED, EXISTING, Content, entry_schema, read_avro, write_avro
from ftfile.exporting.schemas import avro_type, raw_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.exporting.model import File
    from ftfile.fs.api import FileSystem

ICEBERG = "_iceberg"
METADATA = f"{ICEBERG}/metadata"
ANEW = f"Delete {ICEBERG!r} to export anew"
# A removed file makes its manifest be written anew; a reader opens all of them.
MANIFEST_FILES = 10_000
SMALL_MANIFESTS = 100

Json = dict[str, Any]


class SnapshotManifests:
    """Writes the manifests that one snapshot brings; `manifests` describes them, as the list of a snapshot does."""

    def __init__(self, fs: FileSystem, url: str, metadata: Json, snapshot_id: int, number: int) -> None:
        self._fs, self._url, self._metadata = fs, url, metadata
        self._number = number
        self.snapshot_id = snapshot_id
        self.manifests: list[Json] = []

    def texts(self) -> dict[str, str]:
        """Return the texts in the header of the list of the manifests."""
        texts = {"snapshot-id": self.snapshot_id, "sequence-number": self._number, "format-version": 2}
        parent = self._metadata["current-snapshot-id"] if self._metadata["snapshots"] else None
        return {name: str(value) for name, value in texts.items()} | {"parent-snapshot-id": str(parent or "null")}

    def without(self, manifests: list[Json], removes: Iterable[str]) -> list[Json]:
        """Return the manifests that have none of the removed files; write those anew that have some."""
        gone = {f"{self._url}{path}" for path in removes}
        kept: list[Json] = []
        for manifest in manifests:
            content = read_avro(self._fs, relative(self._url, manifest["manifest_path"])) if gone else None
            if content is None or not any(_path(entry) in gone for entry in content.records):
                kept.append(manifest)
                continue
            entries = [entry for entry in content.records if entry["status"] != DELETED]
            for entry in entries:
                _inherit(entry, manifest)
                is_gone = _path(entry) in gone
                entry["status"] = DELETED if is_gone else EXISTING
                if is_gone:
                    entry["snapshot_id"] = self.snapshot_id
                    gone.discard(_path(entry))
            self._write(content, entries, manifest["partition_spec_id"])
        if gone:
            raise CorruptData(METADATA, f"the removed file {min(gone)!r}", "it in no manifest", ANEW)
        return kept

    def merged(self, manifests: list[Json]) -> list[Json]:
        """Return manifests with many small ones merged: a reader opens all of them."""
        small = [manifest for manifest in manifests if live(manifest) < MANIFEST_FILES // 2]
        if len(small) < SMALL_MANIFESTS:
            return manifests
        merged: dict[tuple[int, str], tuple[Content, list[Json]]] = {}
        for manifest in small:
            content = read_avro(self._fs, relative(self._url, manifest["manifest_path"]))
            key = manifest["partition_spec_id"], json.dumps(content.schema)
            _, entries = merged.setdefault(key, (content, []))
            for entry in content.records:
                if entry["status"] != DELETED:
                    _inherit(entry, manifest)
                    entries.append(entry | {"status": EXISTING})
        large = [manifest for manifest in manifests if live(manifest) >= MANIFEST_FILES // 2]
        before = len(self.manifests)
        for (spec_id, _), (content, entries) in merged.items():
            self._write(content, entries, spec_id)
        written = self.manifests[before:]
        del self.manifests[before:]
        return [*written, *large]

    def add(self, files: list[File], done: Callable[[int], object]) -> None:
        """Write manifests of new files, and call `done` with the number of files in each."""
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
        self._write(Content(entry, texts, []), entries, spec["spec-id"], done)

    def _write(
        self, like: Content, entries: list[Json], spec_id: int, done: Callable[[int], object] = lambda _: None
    ) -> None:
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
            done(len(some))


def relative(url: str, path: str) -> str:
    """Return the path of a metadata file in its directory, from its URL; CorruptData for other URLs."""
    if not path.startswith(f"{url}{METADATA}/"):
        raise CorruptData(path, f"a file below {METADATA!r}", "another path", ANEW)
    return path[len(url) :]


def live(manifest: Json) -> int:
    """Return the number of files that a manifest has."""
    count: int = manifest["added_files_count"] + manifest["existing_files_count"]
    return count


def _inherit(entry: Json, manifest: Json) -> None:
    """Say what an entry takes from its manifest, so that it can be moved to another one."""
    for name in ("sequence_number", "file_sequence_number"):
        if entry[name] is None:
            entry[name] = manifest["sequence_number"]


def _path(entry: Json) -> str:
    path: str = entry["data_file"]["file_path"]
    return path
