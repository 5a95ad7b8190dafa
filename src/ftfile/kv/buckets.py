"""Buckets of a store: their names in the log, and the bucket of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy
from ftfile.kv.hashing import buckets_of, hash_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.kv.definition import StoreDefinition

_PREFIX = "b="


def bucket_name(number: int) -> str:
    """Return the name of a bucket in the log; names sort as numbers do."""
    return f"{_PREFIX}{number:05d}"


def bucket_number(name: str) -> int:
    """Return the number of a bucket by its name."""
    return int(name.removeprefix(_PREFIX))


def by_bucket(rows: pa.Table, definition: StoreDefinition) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each bucket that has any, in their order, by bucket; the columns of keys have no nulls."""
    if not rows.num_rows:
        return
    keys = rows.select(definition.bucket_by).combine_chunks().to_batches()[0]
    numbers = buckets_of(hash_rows(keys.columns), definition.buckets)
    if (numbers == numbers[0]).all():
        yield bucket_name(int(numbers[0])), rows
        return
    order = np.argsort(numbers, kind="stable")
    sorted_rows, found = rows.take(from_numpy(order, pa.int64())), numbers[order]
    starts = np.flatnonzero(np.diff(found, prepend=-1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(found)], strict=True):
        yield bucket_name(int(found[start])), sorted_rows.slice(start, end - start)
