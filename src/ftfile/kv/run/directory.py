"""The directory of a run: where its blocks and pages are, their checksums, and the first key of each block.

`docs/internals/format.md` has the bytes. The directory ends in a trailer of fixed length, right before the end of the
Arrow file: an end-of-stream marker, the footer, its length, and the magic bytes.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData
from ftfile.kv.run.blocks import joined
from ftfile.kv.run.pages import PageShape
from ftfile.rows.messages import read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
# The fields of the trailer, with their formats in `struct`.
TRAILER = {
    "magic": "6s",
    "version": "H",
    "lengthBytes": "Q",
    "rows": "Q",
    "pagesOffset": "Q",
    "directoryBytes": "I",
    "blocks": "I",
    "pages": "I",
    "slots": "I",
    "headerBytes": "I",
    "headerCrc": "I",
    "firstKeysBytes": "I",
    "keyColumns": "H",
    "rowBits": "B",
    "placeBits": "B",
    "endCrc": "I",
    "directoryCrc": "I",
}
_TRAILER = struct.Struct("<" + "".join(TRAILER.values()))
_MAGIC, _VERSION = b"FTFRUN", 1
_ARROW_MAGIC = b"ARROW1"
_ARROW_END_BYTES = 4 + len(_ARROW_MAGIC)
_CRC_BYTES = 4
_ALIGNMENT = 64
_SLOT_BITS = 32  # of a slot of a page
# Of a block, decompressed: at most the one times its bytes, which LZ4 cannot exceed, or the other.
EXPANSION_MAX = 256
SMALL_PLAIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Directory:
    """Where everything is in a run; offsets are within it."""

    rows: int  # their number
    key_columns: int  # how many of the first columns are the key
    header_bytes: int  # of the Arrow file before the first block
    header_crc: int  # of these
    row_bits: int  # of a place that hold the row in its block; those above hold the block
    block_ends: NDArray[np.uint64]  # offset behind each block
    block_rows: NDArray[np.uint32]  # number of rows in each block
    block_crcs: NDArray[np.uint32]  # checksum of each block
    shape: PageShape  # of the pages; without pages, of those that a reader builds
    pages_offset: int  # where the first page begins
    page_crcs: NDArray[np.uint32]  # checksum of each page; none for a run of few rows
    first_keys: pa.RecordBatch  # the first key of each block, and the last key of the run
    end_crc: int  # of the Arrow file behind the directory

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.block_ends)

    def block_range(self, block: int) -> tuple[int, int]:
        """Return where a block begins and ends."""
        start = int(self.block_ends[block - 1]) if block else self.header_bytes
        return start, int(self.block_ends[block])

    def page_range(self, page: int) -> tuple[int, int]:
        """Return where a page begins and ends."""
        page_bytes = 4 * self.shape.slots
        return self.pages_offset + page * page_bytes, self.pages_offset + (page + 1) * page_bytes


def padded(length: int) -> int:
    """Return a length that ends where the next thing may begin."""
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def encode_directory(directory: Directory, offset: int, end_bytes: int) -> bytes:
    """Return the bytes of a directory that begins at `offset`, padded for the end of the run, of that many bytes."""
    first_keys = bytes(directory.first_keys.serialize()) if directory.blocks else b""
    body = b"".join(
        (
            directory.block_ends.astype("<u8").tobytes(),
            directory.block_rows.astype("<u4").tobytes(),
            directory.block_crcs.astype("<u4").tobytes(),
            directory.page_crcs.astype("<u4").tobytes(),
            first_keys,
        )
    )
    length = padded(offset + len(body) + _TRAILER.size + end_bytes)
    directory_bytes = length - end_bytes - offset
    body += bytes(directory_bytes - _TRAILER.size - len(body))
    trailer = _TRAILER.pack(
        _MAGIC,
        _VERSION,
        length,
        directory.rows,
        directory.pages_offset,
        directory_bytes,
        directory.blocks,
        len(directory.page_crcs),
        directory.shape.slots,
        directory.header_bytes,
        directory.header_crc,
        len(first_keys),
        directory.key_columns,
        directory.row_bits,
        directory.shape.place_bits,
        directory.end_crc,
        0,
    )[:-_CRC_BYTES]
    return body + trailer + struct.pack("<I", crc32(body + trailer))


def bytes_behind_pages(end: memoryview, length: int, path: str) -> int:
    """Return how many of the last bytes of a run its directory and the end behind it are, given some of them.

    More than these are needed to know, if it returns a greater number: ask again with as many. CorruptData tells that
    it is no run of this length.
    """
    footer_bytes = int.from_bytes(end[-_ARROW_END_BYTES : -len(_ARROW_MAGIC)], "little")
    end_bytes = len(END_OF_STREAM) + footer_bytes + _ARROW_END_BYTES
    needed = end_bytes + _TRAILER.size
    if needed <= len(end):
        fields = _trailer_fields(end[:-end_bytes], length, path)
        needed = end_bytes + fields["directoryBytes"]
    if needed > length or end[-len(_ARROW_MAGIC) :] != _ARROW_MAGIC:
        raise CorruptData(path, "the directory of a run in front of a footer of Arrow", f"{length} bytes without one")
    return needed


def decode_directory(behind_pages: memoryview, length: int, path: str) -> tuple[Directory, pa.Schema]:
    """Return the directory of a run of this length, and the schema of its rows, from as many verified bytes."""
    footer_bytes = int.from_bytes(behind_pages[-_ARROW_END_BYTES : -len(_ARROW_MAGIC)], "little")
    end_bytes = len(END_OF_STREAM) + footer_bytes + _ARROW_END_BYTES
    content, end = behind_pages[:-end_bytes], behind_pages[-end_bytes:]
    fields = _trailer_fields(content, length, path)
    require_crc(content[:-_CRC_BYTES], fields["directoryCrc"], "a directory", path)
    require_crc(end, fields["endCrc"], "an end of the Arrow file", path)
    try:
        schema = pa.ipc.open_file(pa.py_buffer(end)).schema
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(path, "a footer of Arrow", f"{error!r}") from error
    _require_lengths(fields, length, len(content), len(schema), path)
    blocks, pages = fields["blocks"], fields["pages"]
    bounds = [0, *itertools.accumulate((8 * blocks, 4 * blocks, 4 * blocks, 4 * pages, fields["firstKeysBytes"]))]
    ends, rows, crcs, page_crcs, keys = (content[start:stop] for start, stop in itertools.pairwise(bounds))
    key_schema = pa.schema([schema.field(number) for number in range(fields["keyColumns"])])
    directory = Directory(
        rows=fields["rows"],
        key_columns=fields["keyColumns"],
        header_bytes=fields["headerBytes"],
        header_crc=fields["headerCrc"],
        row_bits=fields["rowBits"],
        block_ends=np.frombuffer(ends, "<u8"),
        block_rows=np.frombuffer(rows, "<u4"),
        block_crcs=np.frombuffer(crcs, "<u4"),
        shape=PageShape(pages, fields["slots"], fields["placeBits"]),
        pages_offset=fields["pagesOffset"],
        page_crcs=np.frombuffer(page_crcs, "<u4"),
        first_keys=_first_keys(keys, key_schema, blocks, path),
        end_crc=fields["endCrc"],
    )
    _require_blocks(directory, path)
    return directory, schema


def _require_lengths(fields: Mapping[str, int], length: int, content_bytes: int, columns: int, path: str) -> None:
    """Raise CorruptData for numbers in a trailer that do not fit the run, or each other."""
    blocks, pages, slots = fields["blocks"], fields["pages"], fields["slots"]
    body_bytes = 16 * blocks + 4 * pages + fields["firstKeysBytes"]
    fits = (
        body_bytes + _TRAILER.size <= content_bytes
        and fields["headerBytes"] <= fields["pagesOffset"]
        and fields["pagesOffset"] + 4 * pages * slots + content_bytes <= length
        and 0 < fields["keyColumns"] <= columns
        and slots & (slots - 1) == 0
        and (slots > 0 or pages == 0)
        and fields["placeBits"] <= _SLOT_BITS
        and fields["rowBits"] <= _SLOT_BITS
    )
    if not fits:
        raise CorruptData(path, "a trailer of this run", f"{fields}")


def _first_keys(content: memoryview, schema: pa.Schema, blocks: int, path: str) -> pa.RecordBatch:
    if not blocks:
        return joined([], schema)
    try:
        keys = read_rows(pa.py_buffer(content), schema)
    except (pa.ArrowException, OSError) as error:
        raise CorruptData(path, "the first keys of blocks", f"{error!r}") from error
    if keys.num_rows != blocks + 1 or any(column.null_count for column in keys.columns):
        raise CorruptData(path, f"{blocks + 1} first keys, none null", f"{keys.num_rows}")
    return keys


def _require_blocks(directory: Directory, path: str) -> None:
    """Raise CorruptData unless blocks lie one behind the other, before the pages, and have all rows."""
    bounds = np.concatenate(([directory.header_bytes], directory.block_ends)).astype(np.uint64)
    rows = directory.block_rows
    fits = (
        bool((bounds[1:] > bounds[:-1]).all())
        and int(bounds[-1]) <= directory.pages_offset
        and int(rows.sum(dtype=np.uint64)) == directory.rows
        and (not len(rows) or (rows.min() > 0 and int(rows.max()) <= 1 << directory.row_bits))
    )
    if not fits:
        raise CorruptData(path, f"blocks with {directory.rows} rows before the pages", "blocks elsewhere, or of others")


def _trailer_fields(behind: memoryview, length: int, path: str) -> dict[str, Any]:
    """Return the fields of the trailer in which these bytes end."""
    if len(behind) < _TRAILER.size:
        raise CorruptData(path, "the trailer of a run", f"{len(behind)} bytes")
    fields = dict(zip(TRAILER, _TRAILER.unpack(behind[-_TRAILER.size :]), strict=True))
    if fields["magic"] != _MAGIC:
        raise CorruptData(path, "the trailer of a run", f"{fields['magic']!r}")
    if fields["version"] != _VERSION:
        raise CorruptData(path, f"version {_VERSION}", f"version {fields['version']}", "Read it with a newer ftfile")
    if fields["lengthBytes"] != length:
        raise CorruptData(path, f"a run of {fields['lengthBytes']} bytes", f"{length} bytes")
    return fields


def require_crc(data: memoryview, expected: int, what: str, path: str) -> None:
    """Raise CorruptData for bytes with another checksum."""
    if (checksum := crc32(data)) != expected:
        raise CorruptData(path, f"{what} with crc32:{expected:08x}", f"crc32:{checksum:08x}")
