"""One add to Arrow batches: found wherever it lies now, checked against the log, decoded as the log says."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.commit.format.layout import bucket_directory, bucket_stem, storage_identity
from ftfile.commit.read.snapshot import open_add
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.checksum import matches
from ftfile.core.errors import CorruptData
from ftfile.encoding.api import LineFormat
from ftfile.encoding.partitions.columns import bucket_values, columns_in_path, with_path_columns
from ftfile.encoding.registry import format_from_definition
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_file, decoded_piece
from ftfile.filters.decrypted import decrypted_file
from ftfile.fs.streams import as_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.encoding.api import Format
    from ftfile.fs.api import FileSystem, InputFile
    from ftfile.keys.keys import Keys

__all__ = ("plain_part", "read_add", "recorded_names")


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
        for batch in decode(file, add, encoding, in_file, keys_of(fs)):
            rows += batch.num_rows
            yield with_path_columns(batch, values, schema) if values else batch
    if rows != add.rows:
        raise CorruptData(add.final_path or add.path, f"{add.rows} rows", f"{rows} rows", _ADVICE)


def _decode_part(
    file: InputFile, add: Add, encoding: dict[str, Any], schema: pa.Schema, keys: Keys | None
) -> Iterator[pa.RecordBatch]:
    _check_length(file, add)
    file_format = format_from_definition(encoding["format"], keys).for_file(storage_identity("part", add.path))
    return file_format.decode(plain_part(as_file(file), add, file_format, keys), schema)


def plain_part(file: BinaryIO, add: Add, file_format: Format, keys: Keys | None) -> BinaryIO:
    """Return a part as its format wrote it.

    Args:
        file: with its path as `name`.
        add: the part.
        file_format: of it. Lines are decoded, and their checksum verified, as they are read. Others seek: what is only
            encrypted is decrypted where it is read; with other filters, all of a part is held in memory.
        keys: of the directory; None where it is not encrypted.

    Raises:
        CorruptData: it is not what the log says; also by reading.
    """
    chain, identity = Chain.for_reading(add.filters, keys), storage_identity("part", add.path)
    if isinstance(file_format, LineFormat):
        return decoded_file(file, chain, identity, add.logical_length, add.checksum)
    if not chain.filters:
        return file
    if keys is not None and chain.names == (AesGcm.name,):
        return decrypted_file(file, keys, identity, add.logical_length)
    with decoded_file(file, chain, identity, add.logical_length, add.checksum) as decoded:
        plain = io.BytesIO(decoded.read())
    plain.name = add.final_path or add.path  # what errors call it
    return plain


def _decode_segment(
    file: InputFile, add: Add, encoding: dict[str, Any], schema: pa.Schema, keys: Keys | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment that are not in a part already."""
    data = file.read_at(add.offset, add.length)
    if not matches(data, add.checksum):
        raise CorruptData(add.path, f"{add.length} bytes at {add.offset} with {add.checksum}", "others", _ADVICE)
    chain, identity = Chain.for_reading(add.filters, keys), storage_identity("segment", add.path, add.offset)
    data = decoded_piece(data, chain, identity, add.path)
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
