"""Runs in memory, and rows to write to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.kv.hashing import hash_rows
from ftfile.kv.key_columns import StoredKeys
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import RunReader
from ftfile.kv.run.writer import write_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("NUMBERS", "Stream", "Written", "keys_of", "numbered", "open_run", "written")

NUMBERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


class Stream:
    """Bytes that were written."""

    def __init__(self) -> None:
        self.content = bytearray()

    @property
    def position(self) -> int:
        return len(self.content)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.content += data
        return len(data)


class Written:
    """The bytes of a run, whose reads are counted."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.reads: list[tuple[int, int]] = []

    def read_range(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.content[offset : offset + length]


def written(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    keys: Sequence[str],
    compression: str = "lz4",
    block_bytes: int = 4096,
) -> bytes:
    stream = Stream()
    write_run(stream, batches, schema, keys, compression=compression, block_bytes=block_bytes)
    return bytes(stream.content)


def open_run(content: bytes, cache_bytes: int = 1 << 30, **options: Any) -> RunReader:
    return RunReader(Written(content).read_range, len(content), "a.spool", Cache(cache_bytes), **options)


def block_sizes(run: RunReader) -> list[int]:
    """The bytes of each block, as they are stored."""
    sizes: list[int] = np.diff(run._index.block_ends, prepend=np.uint64(0)).tolist()  # noqa: SLF001
    return sizes


def numbered(rows: int, step: int = 3) -> pa.RecordBatch:
    """Rows with the ids 0, 3, 6 …, and texts of several lengths, some null."""
    ids = range(0, rows * step, step)
    texts = [None if id_ % 7 == 1 else f"text {id_} " + "x" * (id_ % 11) for id_ in ids]
    return pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.array(texts, pa.string())], schema=NUMBERS)


def keys_of(batch: pa.RecordBatch, key_columns: int = 1) -> list[tuple[tuple[Any, ...], int]]:
    """The keys of rows as stored values, each with its hash."""
    columns = batch.columns[:key_columns]
    keys = StoredKeys(columns)
    return [(keys[row], hashed) for row, hashed in enumerate(hash_rows(columns).tolist())]
