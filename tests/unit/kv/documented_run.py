"""The rows of a run as `docs/internals/format.md` describes them, read value by value without any code of ftfile."""

from __future__ import annotations

import json
import struct
import zlib
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("Documented",)

TRAILER = struct.Struct("<6sHQQQIIIIIIIHBBBBI")
FORMATS = {"boolean": "?", "byte": "b", "short": "h", "integer": "i", "long": "q", "float": "f", "double": "d"}
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Documented:
    """A run: `rows` are its rows, `keys` the first key of each block and the last one, in the types of Python."""

    def __init__(self, content: bytes) -> None:
        """Read a run whose bytes are these; an AssertionError if it is none."""
        fields = TRAILER.unpack(content[-TRAILER.size :])
        magic, version, length, self.row_count, self.pages_offset, index_bytes, blocks, pages, self.slots = fields[:9]
        key_bytes, schema_bytes, blocks_crc, key_columns, self.row_bits, self.place_bits, codec, zero, crc = fields[9:]
        assert (magic, version, length, zero) == (b"FTFRUN", 2, len(content), 0)
        index = content[-index_bytes:]
        assert zlib.crc32(index[:-4]) == crc
        assert zlib.crc32(content[: self.pages_offset]) == blocks_crc
        sizes = [8 * blocks, 4 * blocks, 4 * blocks, 4 * blocks, 4 * pages, key_bytes, schema_bytes, TRAILER.size]
        assert sum(sizes) == index_bytes
        parts = [index[start:end] for start, end in pairwise([0, *accumulate(sizes)])]
        ends = [0, *struct.unpack(f"<{blocks}Q", parts[0])]
        plain_bytes, self.block_rows, crcs = (struct.unpack(f"<{blocks}I", part) for part in parts[1:4])
        self.pages = self._pages(content, struct.unpack(f"<{pages}I", parts[4]))
        assert content[ends[-1] : self.pages_offset] == bytes(-ends[-1] % 64)
        self.schema = parts[6].decode()
        self.fields = json.loads(self.schema)["fields"]
        self.key_names = [field["name"] for field in self.fields[:key_columns]]
        self.rows: list[dict[str, Any]] = []
        for (start, end), size, rows, block_crc in zip(pairwise(ends), plain_bytes, self.block_rows, crcs, strict=True):
            payload = self._decompressed(content[start:end], size, codec)
            assert zlib.crc32(payload) == block_crc
            self.rows += rows_of(payload, rows, self.fields)
        self.keys = rows_of(parts[5], blocks + 1, self.fields[:key_columns]) if blocks else []
        assert (len(self.rows), parts[5] == b"") == (self.row_count, blocks == 0)

    def _pages(self, content: bytes, crcs: tuple[int, ...]) -> list[tuple[int, ...]]:
        pages = []
        for number, crc in enumerate(crcs):
            start = self.pages_offset + number * 4 * self.slots
            page = content[start : start + 4 * self.slots]
            assert zlib.crc32(page) == crc
            pages.append(struct.unpack(f"<{self.slots}I", page))
        return pages

    def place_of(self, key_hash: int, is_equal: Callable[[int], bool]) -> int | None:
        """The number of the row of a key, by the hash of the key and a test of rows; None if pages do not find it."""
        high, place_mask = key_hash >> 32, (1 << self.place_bits) - 1
        page = self.pages[high * len(self.pages) >> 32]
        slot = (key_hash >> 20) % self.slots
        while entry := page[slot]:
            block, row = divmod((entry & place_mask) - 1, 1 << self.row_bits)
            number: int = sum(self.block_rows[:block]) + row
            if entry >> self.place_bits == high % (1 << 32 - self.place_bits) and is_equal(number):
                return number
            slot = (slot + 1) % self.slots
        return None

    @staticmethod
    def _decompressed(stored: bytes, size: int, codec: int) -> bytes:
        if codec == 0:
            return stored
        if codec == 2:
            return bytes(pa.Codec("zstd").decompress(stored, size, asbytes=True))
        assert int.from_bytes(stored[:4], "little") == len(stored) - 4
        return bytes(pa.Codec("lz4_raw").decompress(stored[4:], size, asbytes=True))


def rows_of(payload: bytes, rows: int, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a payload."""
    count = sum(buffers_of(field["type"]) for field in fields)
    bounds = struct.unpack_from(f"<{count + 1}I", payload)
    assert bounds[0] == 4 * (count + 1)
    assert payload[bounds[-1] :] == bytes(-bounds[-1] % 8)
    buffers = iter([payload[start:end] for start, end in pairwise(bounds)])
    columns = [values_of(field["type"], rows, buffers) for field in fields]
    names = [field["name"] for field in fields]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def buffers_of(kind: Any) -> int:
    """How many buffers a type has."""
    if not isinstance(kind, dict):
        return 3 if kind in {"string", "binary"} else 2
    if kind["type"] == "array":
        return 2 + buffers_of(kind["elementType"])
    if kind["type"] == "map":
        return 2 + 1 + buffers_of(kind["keyType"]) + buffers_of(kind["valueType"])
    return 1 + sum(buffers_of(field["type"]) for field in kind["fields"])


def values_of(kind: Any, rows: int, buffers: Iterator[bytes]) -> list[Any]:
    """The values of a column, whose buffers come next."""
    validity = next(buffers)
    assert len(validity) in {0, rows}
    if not isinstance(kind, dict):
        values = bytes_of(kind, rows, next(buffers), next(buffers)) if kind in {"string", "binary"} else None
        if values is None:
            values = numbers_of(kind, rows, next(buffers))
    elif kind["type"] == "struct":
        columns = [values_of(field["type"], rows, buffers) for field in kind["fields"]]
        names = [field["name"] for field in kind["fields"]]
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    else:
        starts = struct.unpack(f"<{rows + 1}I", next(buffers))
        if kind["type"] == "array":
            items = values_of(kind["elementType"], starts[-1], buffers)
        else:
            assert next(buffers) == b""  # the validity of the entries
            keys, values = (values_of(kind[name], starts[-1], buffers) for name in ("keyType", "valueType"))
            items = [*zip(keys, values, strict=True)]
        values = [items[start:end] for start, end in pairwise(starts)]
    return [value if not validity or validity[row] else None for row, value in enumerate(values)]


def bytes_of(kind: str, rows: int, starts: bytes, content: bytes) -> list[Any]:
    """The values of a column of strings or binary values; anything where it is null."""
    width = len(content) // max(rows, 1)
    places = struct.unpack(f"<{rows + 1}I", starts) if starts else [width * row for row in range(rows + 1)]
    values = [content[start:end] for start, end in pairwise(places)]
    return [value.decode() for value in values] if kind == "string" else values


def numbers_of(kind: str, rows: int, content: bytes) -> list[Any]:
    """The values of a column of fixed width; anything where it is null."""
    if kind in FORMATS:
        return [*struct.unpack(f"<{rows}{FORMATS[kind]}", content)]
    if kind == "date":
        return [date(1970, 1, 1) + timedelta(days) for days in struct.unpack(f"<{rows}i", content)]
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").rpartition(",")[2])
        unscaled = [int.from_bytes(content[at : at + 16], "little", signed=True) for at in range(0, 16 * rows, 16)]
        return [Decimal(str(value) + f"e-{scale}") for value in unscaled]
    times = [EPOCH + timedelta(microseconds=value) for value in struct.unpack(f"<{rows}q", content)]
    return [time.replace(tzinfo=None) for time in times] if kind == "timestamp_ntz" else times
