"""Iceberg's manifests and lists of them: Avro files of version 2, written and read by fastavro.

As in https://iceberg.apache.org/spec/#manifests. Files have names by their content, so that an export that is repeated
after a crash, and one beside another, write no second ones.
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
from ftfile.encoding.avro.container import block, header, import_fastavro

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

EXISTING, ADDED, DELETED = 0, 1, 2

_MARKER = b"ftfile's iceberg"  # of blocks: equal contents make equal files
_CODEC = "deflate"
_NAME_BYTES = 16


def _field(number: int, name: str, kind: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"name": name, "field-id": number, "type": kind}


def _optional(number: int, name: str, kind: Any) -> dict[str, Any]:  # noqa: ANN401
    return {**_field(number, name, ["null", kind]), "default": None}


def _pairs(number: int, name: str, key: int, kind: str) -> dict[str, Any]:
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


def entry_schema(partition: list[tuple[int, str, Any]]) -> dict[str, Any]:
    """Return the schema of manifests with these partition columns: id, name, and type in Avro of each."""
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
    """The content of a file: its schema, the texts beside that in the header, and its records.

    Dates and times are numbers, decimals are bytes.
    """

    schema: dict[str, Any]
    texts: dict[str, str]
    records: list[dict[str, Any]]


def write_avro(fs: FileSystem, directory: str, kind: str, content: Content) -> tuple[str, int]:
    """Write a file, whole, whose name begins with `kind`, unless it is there; return its path and length in bytes."""
    file = io.BytesIO()
    import_fastavro("an export to Iceberg").writer(
        file, content.schema, content.records, codec=_CODEC, metadata=content.texts, sync_marker=_MARKER
    )
    data = file.getvalue()
    path = f"{directory}/{kind}-{hashlib.blake2b(data, digest_size=_NAME_BYTES).hexdigest()}.avro"
    with contextlib.suppress(AlreadyExists):  # it is the same
        fs.create_exclusive(path, data)
    return path, len(data)


def read_avro(fs: FileSystem, path: str) -> Content:
    """Return the content of a file; CorruptData if it is none of `write_avro`."""
    fastavro = import_fastavro("an export to Iceberg")
    data = fs.read(path)
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        # Values as they are in the file: Python has no dates of the year 10000.
        start = header(_plain(schema), "null", _MARKER)
        records: list[dict[str, Any]] = []
        for part in reader:
            records += fastavro.reader(io.BytesIO(start + block(part.num_records, part.bytes_.read(), _MARKER)))
    except (ValueError, KeyError, TypeError, EOFError, IndexError, zlib.error) as error:  # what bad bytes lead to
        raise CorruptData(path, "a manifest of Iceberg, or a list of them", repr(error), _REMEDY) from error
    return Content(
        schema, {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}, records
    )


_REMEDY = "Delete _iceberg to export anew"


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    return schema


def _avro_name(name: str) -> str:
    """Return a name that Avro takes; readers go by the id of a field."""
    made = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):X}", name)
    return f"_{made}" if made[:1].isdigit() else made
