"""Batches of the size that Spark's JVM takes fastest."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

# What the cache of a core holds: the JVM copies a batch, and then goes over its rows. Larger ones take longer.
_ROWS_MAX = 8_192
_BYTES = 256 << 10  # about as many

_P = ParamSpec("_P")


def small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most 8,192 rows and about 256 KiB, and of at least one row; nothing is copied."""
    for batch in batches:
        count = max(1, min(_ROWS_MAX, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, count):
            yield batch if count >= batch.num_rows else batch.slice(start, count)


def in_small_batches(read: Callable[_P, Iterable[pa.RecordBatch]]) -> Callable[_P, Iterator[pa.RecordBatch]]:
    """Return a method whose batches come as small ones."""

    @functools.wraps(read)
    def reading(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[pa.RecordBatch]:
        return small_batches(read(*args, **kwargs))

    return reading
