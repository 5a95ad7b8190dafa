"""Rows for stores and engines: sorted keys of a kind, values of 100 bytes of which half are random."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ftfile.rows.buffers import from_numpy

__all__ = ("KEYS", "ROW_BYTES", "rows_of")

KEYS = ("random", "rising", "int64")
KEY_BYTES, VALUE_BYTES = 16, 100
VALUE_RANDOM_BYTES = 50  # of a value; the others are alike, for codecs to have work
ROW_BYTES = KEY_BYTES + VALUE_BYTES


def rows_of(kind: str, count: int, *, encoded: bool = True) -> pa.RecordBatch:
    """Return rows sorted by their keys, `key` and `value`, no two with the same key.

    Args:
        kind: of the keys: 16 random bytes, 16 bytes that count up, or random int64 numbers.
        count: of rows.
        encoded: have numbers as their 8 bytes, which sort as they do.
    """
    generator = np.random.default_rng(0)
    # Sorted by their first half, which no two have in common.
    halves = np.arange(count) if kind == "rising" else np.sort(generator.integers(0, 1 << 63, count))
    ends = generator.integers(0, 256, (count, KEY_BYTES // 2), np.uint8)
    values = np.zeros((count, VALUE_BYTES), np.uint8)
    values[:, :VALUE_RANDOM_BYTES] = generator.integers(0, 256, (count, VALUE_RANDOM_BYTES), np.uint8)
    bytes_of_halves = np.frombuffer(halves.astype(">i8").tobytes(), np.uint8).reshape(count, -1)
    if kind == "int64":
        keys = _binary(bytes_of_halves) if encoded else from_numpy(halves, pa.int64())
    else:
        keys = _binary(np.hstack([bytes_of_halves, ends]))
    schema = pa.schema([pa.field("key", keys.type, nullable=False), pa.field("value", pa.binary())])
    return pa.RecordBatch.from_arrays([keys, _binary(values)], schema=schema)


def _binary(rows: np.ndarray) -> pa.Array:
    """Return an element for each row of bytes."""
    count, width = rows.shape
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(rows.tobytes())])
