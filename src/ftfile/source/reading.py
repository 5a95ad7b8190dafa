"""One add to Arrow batches: found wherever it lies now, checked against the log, decoded as the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.commit.layout import bucket_directory, bucket_stem
from ftfile.commit.snapshot import open_add
from ftfile.core.checksum import matches
from ftfile.core.errors import CorruptData
from ftfile.encoding.bucket_values import bucket_values, columns_in_path, with_path_columns
from ftfile.encoding.registry import format_from_definition
from ftfile.encoding.spark_types import arrow_schema
from ftfile.fs.streams import as_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.commit.model import Add
    from ftfile.fs.api import FileSystem, InputFile

__all__ = ("read_add", "recorded_names")


def read_add(fs: FileSystem, add: Add, encoding: dict[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an add with the columns of `schema`, those of its path included.

    Args:
        fs: rooted at the directory.
        add: of a snapshot.
        encoding: its definition in the log.
        schema: of the snapshot, or columns of it.

    Raises:
        CorruptData: it is nowhere, or is not what the log says.
    """
    in_path = columns_in_path(encoding)
    in_file = pa.schema([field for field in schema if field.name not in in_path])
    values = bucket_values(encoding, bucket_directory(add.bucket), bucket_stem(add.bucket), schema)
    rows = 0
    with open_add(add, fs.open) as file:
        decode = _decode_segment if add.kind == "segment" else _decode_part
        for batch in decode(file, add, encoding, in_file):
            rows += batch.num_rows
            yield with_path_columns(batch, values, schema) if values else batch
    if rows != add.rows:
        raise CorruptData(add.final_path or add.path, f"{add.rows} rows", f"{rows} rows", _ADVICE)


def _decode_part(file: InputFile, add: Add, encoding: dict[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    _check_length(file, add)
    return format_from_definition(encoding["format"]).decode(as_file(file), schema)


def _decode_segment(file: InputFile, add: Add, encoding: dict[str, Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment that are not in a part already."""
    data = file.read_at(add.offset, add.length)
    if not matches(data, add.checksum):
        raise CorruptData(add.path, f"{add.length} bytes at {add.offset} with {add.checksum}", "others", _ADVICE)
    codec = format_from_definition(encoding["format"]).segments(arrow_schema(encoding["schema"]))
    skip = add.skip_rows
    for batch in codec.decode(data, add.path, schema):
        skipped = min(skip, batch.num_rows)
        skip -= skipped
        yield batch.slice(skipped)


def recorded_names(recorded: Sequence[str], requested: Sequence[str]) -> tuple[str, ...]:
    """Return the log's spelling of each requested column; the user's own where the log has no such column."""
    spelling = {name.lower(): name for name in recorded}
    return tuple(name if name in recorded else spelling.get(name.lower(), name) for name in requested)


_ADVICE = "Another program changed it: restore it from a copy"


def _check_length(file: InputFile, add: Add) -> None:
    if file.size_bytes != add.length:
        raise CorruptData(add.final_path or add.path, f"{add.length} bytes", f"{file.size_bytes} bytes", _ADVICE)
