"""Iceberg's manifests as Avro files of version 2, and the manifests of a snapshot: kept, rewritten, merged and new.

The format is https://iceberg.apache.org/spec/#manifests. File names are hashes of the content, so a repeated or
concurrent export does not write a second file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import zlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import AlreadyExists, CorruptData
from ftfile.formats.avro_container import block, header, import_fastavro
from ftfile.log.format import layout
from ftfile.operate.export.iceberg_schemas import avro_type, raw_value
from ftfile.operate.export.limits import LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.operate.export.versions import File
    from ftfile.storage.api import FileSystem


ICEBERG = LIMITS["iceberg"].directory
METADATA = f"{ICEBERG}/metadata"
ANEW = f"Delete {ICEBERG!r} to export again"
# Removing a file rewrites its manifest, but a reader opens all manifests.
MANIFEST_FILES = 10_000
SMALL_MANIFESTS = 100

EXISTING, ADDED, DELETED = 0, 1, 2

_MARKER = b"ftfile's iceberg"  # of blocks; constant, so that equal contents give equal files
_CODEC = "deflate"
_NAME_BYTES = 16

Json = dict[str, Any]


def _field(number: int, name: str, kind: Any) -> Json:  # noqa: ANN401 - JSON
    return {"name": name, "field-id": number, "type": kind}


def _optional(number: int, name: str, kind: Any) -> Json:  # noqa: ANN401
    return {**_field(number, name, ["null", kind]), "default": None}


def _pairs(number: int, name: str, key: int, kind: str) -> Json:
    record = {
        "type": "record",
        "name": f"k{key}_v{key + 1}",
        "fields": [_field(key, "key", "int"), _field(key + 1, "value", kind)],
    }
    return _optional(number, name, {"type": "array", "logicalType": "map", "items": record})


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field(509, "contains_null", "boolean"),
        _optional(518, "contains_nan", "boolean"),
        _optional(510, "lower_bound", "bytes"),
        _optional(511, "upper_bound", "bytes"),
    ],
}
# Of a list of manifests.
MANIFESTS = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", {"type": "array", "element-id": 508, "items": _SUMMARY}),
        _optional(519, "key_metadata", "bytes"),
    ],
}


def entry_schema(partition: list[tuple[int, str, Any]]) -> Json:
    """Return the schema of manifests with these partition columns: id, name, and Avro type of each."""
    values = [
        {**_optional(number, _avro_name(name), kind), "iceberg-field-name": name} for number, name, kind in partition
    ]
    data_file = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": values}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _pairs(108, "column_sizes", 117, "long"),
        _pairs(109, "value_counts", 119, "long"),
        _pairs(110, "null_value_counts", 121, "long"),
        _pairs(137, "nan_value_counts", 138, "long"),
        _pairs(125, "lower_bounds", 126, "bytes"),
        _pairs(128, "upper_bounds", 129, "bytes"),
        _optional(131, "key_metadata", "bytes"),
        _optional(132, "split_offsets", {"type": "array", "element-id": 133, "items": "long"}),
        _optional(135, "equality_ids", {"type": "array", "element-id": 136, "items": "int"}),
        _optional(140, "sort_order_id", "int"),
    ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int"),
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            _optional(4, "file_sequence_number", "long"),
            _field(2, "data_file", {"type": "record", "name": "r2", "fields": data_file}),
        ],
    }


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file: its schema, the other texts of the header, and its records.

    Dates and times are numbers, decimals are bytes.
    """

    schema: Json
    texts: dict[str, str]
    records: list[Json]


def write_avro(fs: FileSystem, kind: str, content: Content) -> tuple[str, int]:
    """Write a file whose name begins with `kind`, unless it exists; return its path and length in bytes.

    Raises:
        CorruptData: the log contains more rows or bytes than Iceberg can count.
    """
    file, fastavro = io.BytesIO(), import_fastavro("an export to Iceberg")
    try:
        fastavro.writer(
            file, content.schema, content.records, codec=_CODEC, metadata=content.texts, sync_marker=_MARKER
        )
    except OverflowError:
        raise CorruptData(layout.LOG, "numbers of rows and bytes whose sums have 64 bits", "larger numbers") from None
    data = file.getvalue()
    path = f"{METADATA}/{kind}-{hashlib.blake2b(data, digest_size=_NAME_BYTES).hexdigest()}.avro"
    with contextlib.suppress(AlreadyExists):  # the existing file has the same content
        fs.create_exclusive(path, data)
    return path, len(data)


def read_avro(fs: FileSystem, url: str, file_url: str) -> Content:
    """Return the content of a file, given by URLs; raise CorruptData if `write_avro` did not write it."""
    fastavro, path = import_fastavro("an export to Iceberg"), relative(url, file_url)
    data = fs.read(path)
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        # Values as stored in the file, because Python does not support dates after the year 9999.
        start = header(_plain(schema), "null", _MARKER)
        records: list[Json] = []
        for part in reader:
            records += fastavro.reader(io.BytesIO(start + block(part.num_records, part.bytes_.read(), _MARKER)))
    except (ValueError, KeyError, TypeError, EOFError, IndexError, zlib.error) as error:  # errors for damaged bytes
        raise CorruptData(path, "a manifest of Iceberg, or a list of them", repr(error), ANEW) from error
    return Content(
        schema, {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}, records
    )


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return [_plain(inner) for inner in schema]
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def _avro_name(name: str) -> str:
    """Return a name that Avro accepts; readers use the id of a field."""
    sanitized = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):X}", name)
    if sanitized[:1].isdigit():
        return f"_{sanitized}"
    return sanitized


class SnapshotManifests:
    """Writes the new manifests of a snapshot; `manifests` contains their entries for the snapshot's list."""

    def __init__(self, fs: FileSystem, url: str, metadata: Json, snapshot_id: int, number: int) -> None:
        self._fs, self._url, self._metadata = fs, url, metadata
        self._number = number
        self.snapshot_id = snapshot_id
        self.manifests: list[Json] = []

    def listed(self, manifests: list[Json]) -> str:
        """Write the list of all manifests of the snapshot; return its URL."""
        texts = {"snapshot-id": self.snapshot_id, "sequence-number": self._number, "format-version": 2}
        parent = None
        if self._metadata["snapshots"]:
            parent = self._metadata["current-snapshot-id"]
        head = {name: str(value) for name, value in texts.items()} | {"parent-snapshot-id": str(parent or "null")}
        path, _ = write_avro(self._fs, f"snap-{self._number}", Content(MANIFESTS, head, manifests))
        return f"{self._url}{path}"

    def without(self, manifests: list[Json], removes: Iterable[str]) -> list[Json]:
        """Return the manifests without removed files; rewrite the manifests that contain some."""
        gone = {f"{self._url}{path}" for path in removes}
        old_manifests: list[Json] = []
        for manifest in manifests:
            content = None
            if gone:
                content = read_avro(self._fs, self._url, manifest["manifest_path"])
            if content is None or not any(_path(entry) in gone for entry in content.records):
                old_manifests.append(manifest)
                continue
            entries = [entry for entry in content.records if entry["status"] != DELETED]
            for entry in entries:
                _inherit(entry, manifest)
                is_gone = _path(entry) in gone
                if is_gone:
                    entry["status"] = DELETED
                else:
                    entry["status"] = EXISTING
                if is_gone:
                    entry["snapshot_id"] = self.snapshot_id
                    gone.discard(_path(entry))
            self._write(content, entries, manifest["partition_spec_id"])
        if gone:
            raise CorruptData(METADATA, f"the removed file {min(gone)!r}", "no manifest with it", ANEW)
        return old_manifests

    def merged(self, manifests: list[Json]) -> list[Json]:
        """Return the manifests with many small ones merged, because a reader opens all of them."""
        small = [manifest for manifest in manifests if live(manifest) < MANIFEST_FILES // 2]
        if len(small) < SMALL_MANIFESTS:
            return manifests
        merged: dict[tuple[int, str], tuple[Content, list[Json]]] = {}
        for manifest in small:
            content = read_avro(self._fs, self._url, manifest["manifest_path"])
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
        parts = [(field["field-id"], field["name"], kinds[field["source-id"]]) for field in spec["fields"]]
        entry = entry_schema([(number, name, avro_type(kind, number)) for number, name, kind in parts])
        (partition,) = (field for field in entry["fields"][-1]["type"]["fields"] if field["name"] == "partition")
        keys = [field["name"] for field in partition["type"]["fields"]]
        texts = {
            "schema": json.dumps(schema),
            "schema-id": str(schema["schema-id"]),
            "partition-spec": json.dumps(spec["fields"]),
            "partition-spec-id": str(spec["spec-id"]),
            "format-version": "2",
            "content": "data",
        }
        values: dict[int, Json] = {}  # shared by the files of a directory
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
        """Write manifests of entries, with the schema and texts of another manifest."""
        for first in range(0, len(entries), MANIFEST_FILES):
            some = entries[first : first + MANIFEST_FILES]
            path, length = write_avro(self._fs, f"{self._number}-m", Content(like.schema, like.texts, some))
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
                    (self._number if sequence is None else sequence for sequence in sequences), default=self._number
                ),
                "added_snapshot_id": self.snapshot_id,
            }
            for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
                manifest |= {f"{name}_files_count": counts[status], f"{name}_rows_count": rows[status]}
            self.manifests.append(manifest)
            done(len(some))


def relative(url: str, path: str) -> str:
    """Return the path of a metadata file in its directory, from its URL; raise CorruptData for other URLs."""
    if not path.startswith(f"{url}{METADATA}/"):
        raise CorruptData(path, f"a file below {METADATA!r}", "another path", ANEW)
    return path[len(url) :]


def live(manifest: Json) -> int:
    """Return the number of live files in a manifest."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def _inherit(entry: Json, manifest: Json) -> None:
    """Write the values that an entry inherits from its manifest, so that it can be moved to another manifest."""
    for name in ("sequence_number", "file_sequence_number"):
        if entry[name] is None:
            entry[name] = manifest["sequence_number"]


def _path(entry: Json) -> str:
    return str(entry["data_file"]["file_path"])
