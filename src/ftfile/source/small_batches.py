"""Batches of the size that Spark's JVM takes fastest."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

__all__ = ("in_small_batches", "small_batches")

# What the cache of a core holds: the JVM copies a batch, and then goes over its rows. Larger ones take longer.
_ROWS_MAX = 8_192
_BYTES = 256 << 10  # about as many

_Method = TypeVar("_Method", bound="Callable[..., Any]")


def small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most 8,192 rows and about 256 KiB, and of at least one row; nothing is copied."""
    for batch in batches:
        count = max(1, min(_ROWS_MAX, _BYTES * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, count):
            yield batch if count >= batch.num_rows else batch.slice(start, count)


def in_small_batches(read: _Method) -> _Method:
    """Return a method whose batches come as small ones."""

    @functools.wraps(read)
    def reading(*args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - as the method has it
        return small_batches(read(*args, **kwargs))

    return reading  # type: ignore[return-value]  # of the method's type
