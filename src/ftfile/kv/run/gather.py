"""Rows of many blocks gathered to one batch, column by column: kernels for each block would cost more than its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy, strings_from
from ftfile.kv.key_columns import is_byte_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ftfile.kv.run.blocks import Block, ByteColumn, NumberColumn

    Numbers = NDArray[np.int64]

# Longer values lie in a buffer of their own in an array of views, shorter ones in the view itself.
_INLINE_BYTES_MAX = 12
_VIEW = np.dtype([("length", "<i4"), ("prefix", "<i4"), ("buffer", "<i4"), ("offset", "<i4")])


def gathered(blocks: Sequence[Block], ends: Sequence[int], rows: Numbers, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of at least one block as one batch.

    Rows are numbers within their blocks, those of the first block first; `ends` has the place behind those of each.
    """
    bounds = [*pairwise([0, *ends])]
    columns = [_column(blocks, bounds, rows, place, field.type) for place, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(
    blocks: Sequence[Block], bounds: Sequence[tuple[int, int]], rows: Numbers, place: int, kind: pa.DataType
) -> pa.Array:
    parts = [block.columns[place] for block in blocks]
    if any(part is None or part.has_nulls for part in parts):
        pieces = [
            block.batch.column(place).take(from_numpy(rows[start:end], pa.int64()))
            for block, (start, end) in zip(blocks, bounds, strict=True)
        ]
        return pa.concat_arrays(pieces)
    if not is_byte_key(kind):
        numbers: Any = parts
        return _number_column(numbers, bounds, rows, kind)
    texts: Any = parts
    return _byte_column(texts, bounds, rows, kind)


def _number_column(
    parts: Sequence[NumberColumn], bounds: Sequence[tuple[int, int]], rows: Numbers, kind: pa.DataType
) -> pa.Array:
    found = np.empty(len(rows), parts[0].values.dtype)
    for part, (start, end) in zip(parts, bounds, strict=True):
        found[start:end] = part.values[rows[start:end]]
    return from_numpy(found, kind)


def _byte_column(
    parts: Sequence[ByteColumn], bounds: Sequence[tuple[int, int]], rows: Numbers, kind: pa.DataType
) -> pa.Array:
    counts = [end - start for start, end in bounds]
    if all(part.width is not None for part in parts):
        lengths = np.repeat([part.width or 0 for part in parts], counts)
        starts = np.repeat([int(part.starts[0]) for part in parts], counts) + rows * lengths
    else:
        starts, lengths = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for part, (start, end) in zip(parts, bounds, strict=True):
            own = rows[start:end]
            starts[start:end] = part.starts[own]
            lengths[start:end] = part.starts[own + 1]
            lengths[start:end] -= starts[start:end]
    if lengths.min() <= _INLINE_BYTES_MAX:
        pairs = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        data = b"".join(
            [
                part.content[low:high]
                for part, (start, end) in zip(parts, bounds, strict=True)
                for low, high in pairs[start:end]
            ]
        )
        return strings_from(np.append(0, np.cumsum(lengths)), np.frombuffer(data, np.uint8), kind)
    views = np.zeros(len(rows), _VIEW)
    views["length"], views["offset"] = lengths, starts
    views["buffer"] = np.repeat(np.arange(len(parts)), counts)
    buffers = [pa.py_buffer(part.content) for part in parts]
    # Their prefixes, which nothing looks at here, stay empty.
    view = pa.string_view() if pa.types.is_string(kind) else pa.binary_view()
    return pa.Array.from_buffers(view, len(rows), [None, pa.py_buffer(views), *buffers]).cast(kind)
