"""Rows in Arrow messages from storage, validated before use."""

from __future__ import annotations

import struct

import pyarrow as pa


def validate(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch from storage after checking that no value lies outside of its buffers, in one pass.

    Its strings can be any bytes, like Spark's.

    Raises:
        pa.ArrowInvalid: the batch is not valid output of an Arrow writer.
    """
    batch.validate()
    for column in batch.columns:
        kind = with_binaries(column.type)
        (column if kind == column.type else column.view(kind)).validate(full=True)
    return batch


def with_binaries(kind: pa.DataType) -> pa.DataType:
    """Return a type with binary values in place of strings, for a view of an array."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_binaries(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(with_binaries(kind.key_type), with_binaries(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_binaries(kind.value_type)))
    return kind


def read_rows(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of an uncompressed message of ftfile, like `validated`.

    Raises:
        pa.ArrowInvalid: it is compressed, or not valid output of an Arrow writer.
    """
    _check_is_plain(memoryview(message))
    return validate(pa.ipc.read_record_batch(message, schema))


# pyarrow 26 decompresses a message as the message itself declares, to any size, before a value can be checked, and does
# not return whether it is compressed. So the declaration is read here, not a flag that ftfile could write beside.
# A message is a mark, the length of its metadata, these, and a body. A table in metadata begins with how far before it
# these numbers are: their bytes, its bytes, and where its fields are in it, 0 for those without value.
_HEAD = struct.Struct("<III")
_FIELDS = struct.Struct("<6H")
_BACK = struct.Struct("<i")
_NEXT = struct.Struct("<I")
_LENGTH = struct.Struct("<q")
_LAST = _FIELDS.size - 2  # without a value if the numbers end here
_MARK, _METADATA, _VERSION, _ROWS = 0xFFFFFFFF, 8, 4, 3


def _check_is_plain(message: memoryview) -> None:
    """Refuse a message of compressed rows, of other content than rows, or of another version or length."""
    try:
        mark, metadata_bytes, top = _HEAD.unpack_from(message)
        body = _METADATA + metadata_bytes
        top += _METADATA
        end, _, version, kind, header, length = _FIELDS.unpack_from(message, top - _BACK.unpack_from(message, top)[0])
        body_bytes = 0
        if length and end > _LAST:
            body_bytes = _LENGTH.unpack_from(message, top + length)[0]
        is_of_rows = version and kind and message[top + version] == _VERSION and message[top + kind] == _ROWS
        if mark != _MARK or not is_of_rows or body + body_bytes != len(message):
            raise pa.ArrowInvalid(f"{len(message)} bytes that are not a message of rows, or have another version")
        rows = top + header + _NEXT.unpack_from(message, top + header)[0]
        end, *_, codec = _FIELDS.unpack_from(message, rows - _BACK.unpack_from(message, rows)[0])
    except (struct.error, IndexError) as error:
        raise pa.ArrowInvalid(f"not a message of rows: {error}") from error
    if codec and end > _LAST:
        raise pa.ArrowInvalid("compressed rows, which ftfile writes without compression")
