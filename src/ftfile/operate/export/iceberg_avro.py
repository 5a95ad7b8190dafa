"""Iceberg's lists of manifests, and manifests, as Avro files of version 2.

The format is https://iceberg.apache.org/spec/#manifests. ExportedFile names are hashes of the content, so a repeated or
concurrent export does not write a second file.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import AlreadyExists, CorruptData
from ftfile.formats.avro_container import block, header, import_fastavro
from ftfile.log.format import layout
from ftfile.operate.export.limits import LIMITS

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem


ICEBERG = LIMITS["iceberg"].directory
METADATA = f"{ICEBERG}/metadata"
ANEW = f"Delete {ICEBERG!r} to export again"

_MARKER = b"ftfile's iceberg"  # of blocks; constant, so that equal contents give equal files
_CODEC = "deflate"
_NAME_BYTES = 16
_NOT_IN_AVRO_NAMES = re.compile(r"[^A-Za-z0-9_]")

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


# The fields of the entries of manifests that are needed to find a file.
_PATHS = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field(0, "status", "int"),
        _field(2, "data_file", {"type": "record", "name": "r2", "fields": [_field(100, "file_path", "string")]}),
    ],
}


def entry_schema(partition: list[tuple[int, str, Any]]) -> Json:
    """Return the schema of manifests with these partition columns: id, name, and Avro type of each."""
    values: list[Json] = []
    for number, name, kind in partition:
        values.append({**_optional(number, _avro_name(name), kind), "iceberg-field-name": name})
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


def partition_fields(entry: Json) -> list[Json]:
    """Return the fields of the partition in the schema of an entry."""
    data_file = entry["fields"][-1]["type"]
    for field in data_file["fields"]:
        if field["name"] == "partition":
            fields: list[Json] = field["type"]["fields"]
            return fields
    return []


@dataclass(frozen=True, slots=True)
class AvroContent:
    """The content of a file: its schema, the other texts of the header, and its records.

    Dates and times are numbers, decimals are bytes.
    """

    schema: Json
    texts: dict[str, str]
    records: list[Json]


def write_avro(fs: FileSystem, kind: str, content: AvroContent) -> tuple[str, int]:
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


def read_paths(fs: FileSystem, url: str, file_url: str) -> list[Json]:
    """Return the entries of a manifest, only with the status and the path of each file, several times faster."""
    return read_avro(fs, url, file_url, _PATHS).records


def read_avro(fs: FileSystem, url: str, file_url: str, fields: Json | None = None) -> AvroContent:
    """Return the content of a file, given by URLs; raise CorruptData if `write_avro` did not write it.

    If `fields` is given, the records only have the fields of this schema.
    """
    fastavro, path = import_fastavro("an export to Iceberg"), relative_path_of(url, file_url)
    data = fs.read(path)
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        # Values as stored in the file, because Python does not support dates after the year 9999.
        start = header(_to_plain(schema), "null", _MARKER)
        records: list[Json] = []
        for part in reader:
            records += fastavro.reader(io.BytesIO(start + block(part.num_records, part.bytes_.read(), _MARKER)), fields)
    except (ValueError, KeyError, TypeError, EOFError, IndexError, zlib.error) as error:  # errors for damaged bytes
        raise CorruptData(path, "a manifest of Iceberg, or a list of them", repr(error), ANEW) from error
    texts: dict[str, str] = {}
    for name, text in reader.metadata.items():
        if not name.startswith("avro."):
            texts[name] = text
    return AvroContent(schema, texts, records)


def _to_plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return list(map(_to_plain, schema))
    if isinstance(schema, dict):
        plain = {key: _to_plain(value) for key, value in schema.items()}
        plain.pop("logicalType", None)
        return plain
    return schema


def _escape_character(character: re.Match[str]) -> str:
    return f"_x{ord(character[0]):X}"


def _avro_name(name: str) -> str:
    """Return a name that Avro accepts; readers use the id of a field."""
    sanitized = _NOT_IN_AVRO_NAMES.sub(_escape_character, name)
    if sanitized[:1].isdigit():
        return f"_{sanitized}"
    return sanitized


def relative_path_of(url: str, path: str) -> str:
    """Return the path of a metadata file in its directory, from its URL; raise CorruptData for other URLs."""
    if not path.startswith(f"{url}{METADATA}/"):
        raise CorruptData(path, f"a file below {METADATA!r}", "another path", ANEW)
    return path[len(url) :]
