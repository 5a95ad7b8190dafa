"""Verified reading of parts on storage."""

from __future__ import annotations

import io
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from ftfile.core.checksum import check_known_checksum, checksum, matches
from ftfile.core.errors import CorruptData, FtfileError, Retry, SchemaError
from ftfile.core.remedies import Advice, Argument, Wording
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decoded_file, decrypted_file, stream_errors
from ftfile.formats.api import LineFormat, Wanted, format_from_definition
from ftfile.formats.partition_paths import columns_in_path, path_column_values, with_path_columns
from ftfile.formats.reading.batches import batch_as
from ftfile.formats.reading.memory_limit import limit_batches
from ftfile.log.format.layout import directory_of, stem_of, storage_identity
from ftfile.log.places import checksum_of, open_add
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import misfits, recorded_schema
from ftfile.storage.api import as_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from ftfile.filters.keys import Keys
    from ftfile.formats.api import Format
    from ftfile.log.format.model import Add
    from ftfile.storage.api import FileSystem, InputFile


def chain_of(encoding: Mapping[str, Any], keys: Keys | None = None) -> Chain:
    """Return the filters of files of an encoding; without keys, encrypting filters only have a name."""
    return Chain.from_definition(encoding["filters"], keys)


def extension_of(encoding: Mapping[str, Any]) -> str:
    """Return the ending of file names of an encoding."""
    return format_from_definition(encoding["format"]).extension + chain_of(encoding).extension


# A part up to this length is verified and decoded in memory, with one call of the storage.
WHOLE_BYTES = 8 << 20

_ALL = Wanted()
_ADVICE = "Another program changed it: restore it from a copy"


def read_add(
    fs: FileSystem,
    add: Add,
    encoding: dict[str, Any],
    schema: pa.Schema,
    *,
    is_old: bool = False,
    wanted: Wanted = _ALL,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an add of a snapshot with the columns of `schema`, including columns of its path.

    If the snapshot `is_old`, it is not the newest one; see `open_add`. Rows that are not `wanted` can be skipped; a
    span is for files that `is_splittable` allows, and no row outside of it is returned.
    """
    _check_fitting(add, encoding, schema)
    in_path = columns_in_path(encoding)
    in_file = pa.schema([field for field in schema if field.name not in in_path])
    keys = keys_of(fs)
    file_format = format_from_definition(encoding["format"], keys)
    # Text is parsed as the written type and then cast, so that every format returns the same value.
    decoded = in_file
    if isinstance(file_format, LineFormat):
        decoded = _narrow_schema(encoding, in_file)
    values = path_column_values(encoding, directory_of(add.directory_key), stem_of(add.directory_key), schema)
    with open_add(add, fs.open, is_old=is_old) as file:
        if add.kind == "segment":
            batches = _segment_rows(file, add, encoding=encoding, schema=decoded, keys=keys)
        else:
            if file.size_bytes != add.length:
                raise _error_of_other(add, f"{add.length} bytes", f"{file.size_bytes} bytes")
            batches = _part_rows(as_file(file), add, file_format=file_format, schema=decoded, keys=keys, wanted=wanted)
        try:
            with closing(batches):  # before the file that it reads
                for batch in batches:
                    if decoded == in_file:
                        rows = batch
                    else:
                        rows = batch_as(batch, in_file)
                    yield with_path_columns(rows, values, schema) if values else rows
        except (CorruptData, pa.ArrowException):
            narrowed = _narrow_schema(encoding, schema)
            if narrowed == schema:
                raise
            # If the file is intact, values do not fit the requested types.
            for _ in read_add(fs, add, encoding, narrowed, is_old=is_old):
                pass
            raise SchemaError(
                f"{add.final_path or add.path!r} has values out of range for the requested types: "
                f"{', '.join(_differing_types(schema, narrowed))}. Omit "
                ".schema(…), or give the stored types"
            ) from None


def _differing_types(requested: pa.Schema, stored: pa.Schema) -> Iterator[str]:
    for column, stored_column in zip(requested, stored, strict=True):
        if column != stored_column:
            yield f"{column.name} {column.type}, stored as {stored_column.type}"


def _narrow_schema(encoding: dict[str, Any], schema: pa.Schema) -> pa.Schema:
    """Return the columns with their types in the file."""
    stored = {field.name.lower(): field.type for field in recorded_schema(encoding["schema"])}
    return pa.schema([field.with_type(stored.get(field.name.lower(), field.type)) for field in schema])


def read_part(
    fs: FileSystem, add: Add, file_format: Format, schema: pa.Schema, keys: Keys | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, with only the columns in the file, after all of its bytes are verified.

    A large part is read twice, first for its checksum, and takes memory for some row groups. For line formats, the
    checksum is compared during the read, so batches are returned before it is known.
    """
    if add.length > WHOLE_BYTES:
        with open_add(add, fs.open) as opened:
            if not isinstance(file_format, LineFormat):
                check_known_checksum(add.checksum)
                actual = checksum_of(opened)
                if actual != (add.length, add.checksum):
                    raise _error_of_other(add, _recorded_text_of(add), f"{actual[0]} bytes with {actual[1]}")
            yield from _part_rows(as_file(opened), add, file_format=file_format, schema=schema, keys=keys)
        return
    content = open_add(add, partial(_read_part, fs, add.length))
    if len(content) != add.length or not matches(content, add.checksum):
        raise _error_of_other(add, _recorded_text_of(add), f"{len(content)} bytes with {checksum(content)}")
    file = io.BytesIO(content)
    file.name = add.final_path or add.path  # its name in errors
    yield from _part_rows(file, add, file_format=file_format, schema=schema, keys=keys)


def _read_part(fs: FileSystem, length: int, path: str) -> bytes:
    return fs.read(path, length)


class UnreadablePart(Exception):
    """`args` are the number of an unreadable part, from 0, and the error."""


def rows_of_parts(
    fs: FileSystem, inputs: Sequence[Add], file_format: Format, schema: pa.Schema
) -> Iterator[tuple[Add, pa.RecordBatch]]:
    """Yield the rows of parts one after the other; raise `UnreadablePart` for a part that cannot be read."""
    for number, add in enumerate(inputs):
        try:
            for batch in read_part(fs, add, file_format=file_format, schema=schema, keys=keys_of(fs)):
                yield add, batch
        except FtfileError as error:
            if error.retry is not Retry.NEVER:
                raise
            raise UnreadablePart(number, error) from error


def is_splittable(kind: str, filters: Sequence[str], encoding: dict[str, Any]) -> bool:
    """Return True if a share of an add of a kind can be read without the rest of it; see `Span`."""
    is_seekable = not filters or tuple(filters) == (AesGcm.name,)
    return kind == "part" and is_seekable and format_from_definition(encoding["format"]).has_groups


def plain_segment(file: InputFile, segment: Add, chain: Chain, *, framed: bool) -> bytes:
    """Return the verified bytes of a segment before its filters; if `framed`, with the frames of lines."""
    data = file.read_at(segment.offset, segment.length)
    if len(data) != segment.length or not matches(data, segment.checksum):
        expected = f"{segment.length} bytes at {segment.offset} with {segment.checksum}"
        raise CorruptData(segment.path, expected, f"{len(data)} bytes with {checksum(data)}", _ADVICE)
    identity = storage_identity("segment", segment.path, segment.offset)
    with stream_errors(segment.path):
        if framed:
            return chain.unseal(data, identity)
        return chain.decode(data, identity)


def _check_fitting(add: Add, encoding: dict[str, Any], schema: pa.Schema) -> None:
    """Raise a SchemaError for columns whose values this file cannot return in the types of `schema`."""
    stored = recorded_schema(encoding["schema"])
    if stored.equals(schema, check_metadata=True):
        clauses = []
    else:
        clauses = [*misfits(stored, schema, narrower=True)]
    if clauses:
        raise SchemaError(
            Advice(
                f"{add.final_path or add.path!r}, which batch {add.origin.last_batch} of {add.origin.query_id} wrote, "
                f"does not fit the columns to read: {'; '.join(clauses)}. Omit .schema(…), or give the stored types "
                "and cast the result. To read a version before the columns changed, use ",
                Wording("versionAsOf in Spark, or version in Python", Argument("version").in_command()),
            )
        )


def _part_rows(
    file: BinaryIO,
    add: Add,
    file_format: Format,
    schema: pa.Schema,
    keys: Keys | None,
    wanted: Wanted = _ALL,
) -> Generator[pa.RecordBatch, None, None]:
    own_format = file_format.for_file(storage_identity("part", add.path))
    plain = _plain_part(file, add, file_format, keys)
    if wanted == _ALL:
        return _count_rows(_limit_memory(own_format.decode(plain, schema), add, file_format), add)
    left_out, batches = own_format.decode_some(plain, schema, wanted)
    return _count_rows(_limit_memory(batches, add, file_format), add, left_out)


def _limit_memory(batches: Iterator[pa.RecordBatch], add: Add, file_format: Format) -> Iterator[pa.RecordBatch]:
    """Return rows that are decoded within a memory limit; a parser of lines can end a process with a limit."""
    if isinstance(file_format, LineFormat):
        return batches
    return limit_batches(batches, add.length, add.final_path or add.path)


def _count_rows(
    batches: Iterable[pa.RecordBatch], add: Add, left_out: int = 0
) -> Generator[pa.RecordBatch, None, None]:
    rows = left_out
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != add.rows:
        raise _error_of_other(add, f"{add.rows} rows", f"{rows} rows")


def _plain_part(file: BinaryIO, add: Add, file_format: Format, keys: Keys | None) -> BinaryIO:
    """Return a part in its format; errors call it `name`.

    Line formats are decoded, and their checksum verified, during the read. Other formats seek: a part that is only
    encrypted is decrypted at any offset; with other filters, the whole part is held in memory.
    """
    chain, identity = Chain.for_reading(add.filters, keys), storage_identity("part", add.path)
    if isinstance(file_format, LineFormat):
        return decoded_file(file, chain, identity=identity, plain_bytes=add.logical_length, checksum=add.checksum)
    if not chain.filters:
        return file
    if keys is not None and chain.names == (AesGcm.name,):
        return decrypted_file(file, keys, identity, add.logical_length)
    with decoded_file(file, chain, identity=identity, plain_bytes=add.logical_length, checksum=add.checksum) as decoded:
        plain = io.BytesIO(decoded.read())
    plain.name = add.final_path or add.path  # its name in errors
    return plain


def _segment_rows(
    file: InputFile, add: Add, encoding: dict[str, Any], schema: pa.Schema, keys: Keys | None
) -> Generator[pa.RecordBatch, None, None]:
    data = plain_segment(file, add, Chain.for_reading(add.filters, keys), framed=False)
    file_format = format_from_definition(encoding["format"])
    codec = file_format.segments(recorded_schema(encoding["schema"]))
    batches = _limit_memory(codec.decode(data, add.path, schema), add, file_format)
    return _count_rows(_skip_rows(batches, add.skip_rows), add)


def _skip_rows(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        skipped = min(skip, batch.num_rows)
        skip -= skipped
        yield batch.slice(skipped)


def recorded_names(recorded: Sequence[str], requested: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the log of requested columns; unknown names are unchanged."""
    spelling = {name.lower(): name for name in recorded}
    return tuple(name if name in recorded else spelling.get(name.lower(), name) for name in requested)


def _recorded_text_of(add: Add) -> str:
    return f"{add.length} bytes with {add.checksum}"


def _error_of_other(add: Add, expected: str, actual: str) -> CorruptData:
    return CorruptData(add.final_path or add.path, expected, actual, _ADVICE)
