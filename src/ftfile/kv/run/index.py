"""The index of a run, which locates its blocks and pages.

`docs/internals/format.md` describes the bytes. The index ends with a trailer of fixed length at the end of the run.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData, SchemaError
from ftfile.kv.key_columns import is_key_type
from ftfile.kv.run.block import BLOCK_BYTES_MAX, encode_block, layout_of
from ftfile.kv.run.block_batch import COMPRESSIONS, EXPANSION_MAX, SMALL_PLAIN_BYTES, BlockBatch, join_batches
from ftfile.kv.run.pages import PageShape
from ftfile.rows.spark_types import arrow_schema, spark_schema_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ftfile.kv.run.block import Buffer


# The fields of the trailer, with their formats in `struct`.
TRAILER = {
    "magic": "6s",
    "version": "H",
    "lengthBytes": "Q",
    "rows": "Q",
    "pagesOffset": "Q",
    "indexBytes": "I",
    "blocks": "I",
    "pages": "I",
    "slots": "I",
    "firstKeysBytes": "I",
    "schemaBytes": "I",
    "blocksCrc": "I",
    "keyColumns": "H",
    "rowBits": "B",
    "placeBits": "B",
    "compression": "B",
    "zero": "B",
    "crc": "I",
}
_TRAILER = struct.Struct("<" + "".join(TRAILER.values()))
_MAGIC, _VERSION = b"FTFRUN", 2
_CRC_BYTES = 4
_ALIGNMENT = 64
_SLOT_BITS = 32  # of a slot of a page


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """The contents of a run and their positions; offsets are relative to the run."""

    schema: pa.Schema  # of the rows
    rows: int  # number of rows
    key_columns: int  # number of key columns, which come first
    compression: str  # of the blocks
    row_bits: int  # low bits of a place: row number in the block; the high bits are the block
    block_ends: NDArray[np.uint64]  # end offset of each block
    plain_bytes: NDArray[np.uint32]  # of each block, decompressed
    block_rows: NDArray[np.uint32]  # number of rows in each block
    block_crcs: NDArray[np.uint32]  # checksum of each block, decompressed
    blocks_crc: int  # checksum of all bytes before the pages
    shape: PageShape  # of the pages; without pages, of the pages that a reader builds
    pages_offset: int  # offset of the first page
    page_crcs: NDArray[np.uint32]  # checksum of each page; empty for a run of few rows
    first_keys: pa.RecordBatch  # the first key of each block, and the last key of the run

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.block_ends)

    def page_range(self, page: int) -> tuple[int, int]:
        """Return the start and end offset of a page."""
        page_bytes = 4 * self.shape.slots
        return self.pages_offset + page * page_bytes, self.pages_offset + (page + 1) * page_bytes


def padded_length_of(length: int) -> int:
    """Return a length rounded up to the alignment of pages."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def encode_index(index: Index, offset: int) -> bytes:
    """Return the bytes of an index at `offset`, which end the run."""
    first_keys = b""
    if index.blocks:
        first_keys = encode_block(index.first_keys, layout_of(index.first_keys.schema))
    schema = spark_schema_json(index.schema).encode()
    parts = (
        index.block_ends.astype("<u8").tobytes(),
        index.plain_bytes.astype("<u4").tobytes(),
        index.block_rows.astype("<u4").tobytes(),
        index.block_crcs.astype("<u4").tobytes(),
        index.page_crcs.astype("<u4").tobytes(),
        first_keys,
        schema,
    )
    body = b"".join(parts)
    index_bytes = len(body) + _TRAILER.size
    trailer = _TRAILER.pack(
        _MAGIC,
        _VERSION,
        offset + index_bytes,
        index.rows,
        index.pages_offset,
        index_bytes,
        index.blocks,
        len(index.page_crcs),
        index.shape.slots,
        len(first_keys),
        len(schema),
        index.blocks_crc,
        index.key_columns,
        index.row_bits,
        index.shape.place_bits,
        COMPRESSIONS.index(index.compression),
        0,
        0,
    )[:-_CRC_BYTES]
    return body + trailer + struct.pack("<I", crc32(body + trailer))


def index_bytes_of(end: memoryview, length: int, path: str) -> int:
    """Return the length of the index of a run, given some of the last bytes of the run.

    If the result is greater than the number of these bytes, call it again with that many. CorruptData means that this
    is not a run of this length.
    """
    needed = _TRAILER.size
    if needed <= len(end):
        needed = max(_trailer_fields(end, length, path)["indexBytes"], needed)
    if needed > length:
        raise CorruptData(path, "the index of a run", f"{length} bytes without one")
    return needed


def decode_index(content: memoryview, length: int, path: str) -> Index:
    """Return the index of a run of this length, from exactly the bytes of the index, after verifying them."""
    fields = _trailer_fields(content, length, path)
    require_crc(content[:-_CRC_BYTES], fields["crc"], "an index", path)
    blocks, pages = fields["blocks"], fields["pages"]
    sizes = (8 * blocks, 4 * blocks, 4 * blocks, 4 * blocks, 4 * pages, fields["firstKeysBytes"], fields["schemaBytes"])
    _require_lengths(fields, length, sum(sizes), path)
    bounds = [0, *itertools.accumulate(sizes)]
    ends, plain_bytes, rows, crcs, page_crcs, keys, schema_text = (
        content[start:stop] for start, stop in itertools.pairwise(bounds)
    )
    schema = _schema_of(schema_text, fields["keyColumns"], path)
    index = Index(
        schema=schema,
        rows=fields["rows"],
        key_columns=fields["keyColumns"],
        compression=COMPRESSIONS[fields["compression"]],
        row_bits=fields["rowBits"],
        block_ends=np.frombuffer(ends, "<u8"),
        plain_bytes=np.frombuffer(plain_bytes, "<u4"),
        block_rows=np.frombuffer(rows, "<u4"),
        block_crcs=np.frombuffer(crcs, "<u4"),
        blocks_crc=fields["blocksCrc"],
        shape=PageShape(pages, fields["slots"], fields["placeBits"]),
        pages_offset=fields["pagesOffset"],
        page_crcs=np.frombuffer(page_crcs, "<u4"),
        first_keys=_first_keys(keys, pa.schema([*schema][: fields["keyColumns"]]), blocks, path),
    )
    _require_blocks(index, path)
    return index


def _require_lengths(fields: Mapping[str, int], length: int, body_bytes: int, path: str) -> None:
    """Raise CorruptData for numbers in a trailer that contradict the run, or each other."""
    pages, slots = fields["pages"], fields["slots"]
    fits = (
        fields["indexBytes"] == body_bytes + _TRAILER.size
        and fields["pagesOffset"] + 4 * pages * slots + fields["indexBytes"] == length
        and fields["keyColumns"] > 0
        and slots & (slots - 1) == 0
        and (slots > 0) == (pages > 0)
        and fields["placeBits"] <= _SLOT_BITS
        and fields["rowBits"] <= _SLOT_BITS
        and fields["compression"] < len(COMPRESSIONS)
        and fields["zero"] == 0
    )
    if not fits:
        raise CorruptData(path, "a trailer of this run", f"{fields}")


def _schema_of(text: memoryview, key_columns: int, path: str) -> pa.Schema:
    try:
        schema = arrow_schema(str(text, "utf-8"))
        layout_of(schema)
    except (UnicodeDecodeError, SchemaError) as error:
        raise CorruptData(path, "the schema of rows", f"{error}") from error
    if key_columns > len(schema) or not all(is_key_type(kind) for kind in schema.types[:key_columns]):
        raise CorruptData(path, f"{key_columns} key columns", f"columns of the types {schema.types!r:.200}")
    return schema


def _first_keys(content: memoryview, schema: pa.Schema, blocks: int, path: str) -> pa.RecordBatch:
    if not blocks:
        return join_batches([], schema)
    keys = BlockBatch(
        [content], np.array([blocks + 1]), layout=layout_of(schema), path=path, numbers=["with the first keys"]
    ).batch()
    if any(column.null_count for column in keys.columns):
        raise CorruptData(path, f"{blocks + 1} first keys, none null", "nulls")
    return keys


def _require_blocks(index: Index, path: str) -> None:
    """Raise CorruptData unless blocks are contiguous, precede the pages, and contain all rows."""
    bounds = np.append(np.uint64(0), index.block_ends).astype(np.uint64)
    rows, plain_bytes = index.block_rows, index.plain_bytes.astype(np.int64)
    fits = (
        bool((bounds[1:] > bounds[:-1]).all())
        and padded_length_of(int(bounds[-1])) == index.pages_offset
        and int(rows.sum(dtype=np.uint64)) == index.rows
        and (not len(rows) or (rows.min() > 0 and int(rows.max()) <= 1 << index.row_bits))
    )
    if not fits:
        raise CorruptData(path, f"blocks with {index.rows} rows before the pages", "blocks elsewhere, or of others")
    sizes = np.diff(bounds).astype(np.int64)
    # Each row has at least one byte in each of its columns.
    plain_max = np.minimum(np.maximum(SMALL_PLAIN_BYTES, EXPANSION_MAX * sizes), BLOCK_BYTES_MAX)
    if not ((plain_bytes <= plain_max) & (rows <= plain_bytes)).all():
        raise CorruptData(path, f"blocks of at most {plain_max.max()} bytes, decompressed", f"{plain_bytes.max()}")


def _trailer_fields(end: memoryview, length: int, path: str) -> dict[str, Any]:
    """Return the fields of the trailer at the end of these bytes."""
    if len(end) < _TRAILER.size:
        raise CorruptData(path, "the trailer of a run", f"{len(end)} bytes")
    fields = dict(zip(TRAILER, _TRAILER.unpack(end[-_TRAILER.size :]), strict=True))
    if fields["magic"] != _MAGIC:
        raise CorruptData(path, "the trailer of a run", f"{fields['magic']!r}")
    if fields["version"] != _VERSION:
        raise CorruptData(path, f"version {_VERSION}", f"version {fields['version']}", "Read it with a newer ftfile")
    if fields["lengthBytes"] != length:
        raise CorruptData(path, f"a run of {fields['lengthBytes']} bytes", f"{length} bytes")
    return fields


def require_crc(data: Buffer, expected: int, what: str, path: str) -> None:
    """Raise CorruptData for bytes with another checksum."""
    if (checksum := crc32(data)) != expected:
        raise CorruptData(path, f"{what} with crc32:{expected:08x}", f"crc32:{checksum:08x}")
