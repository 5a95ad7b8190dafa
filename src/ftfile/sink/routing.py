"""The rows of a batch to the buckets they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ftfile.encoding.memory import from_numpy, values_of
from ftfile.encoding.partition_paths import bucket_names
from ftfile.encoding.partition_values import UTC
from ftfile.sink.array_words import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ("route", "sort_by_bucket")


def route(
    batch: pa.RecordBatch, columns: Sequence[str], *, time_zone: str = UTC
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each bucket's path once, with its rows in their order; buckets in the order of their first rows.

    Each bucket costs as much as a hundred rows: give it many rows at once. What comes out are slices of one
    batch, so that any of them keeps the memory of all.

    Args:
        batch: rows of any number of buckets.
        columns: the partition columns, outermost directory first; at least one, all checked.
        time_zone: whose clocks show timestamps that are instants.

    Raises:
        EncodingError: a value cannot be part of a path; names the column.
    """
    rows, counts = sort_by_bucket(batch, columns, time_zone=time_zone)
    start = 0
    for path, count in counts:
        yield path, rows.slice(start, count)
        start += count


def sort_by_bucket(
    batch: pa.RecordBatch, columns: Sequence[str], *, time_zone: str = UTC
) -> tuple[pa.RecordBatch, list[tuple[str, int]]]:
    """Return the rows bucket by bucket, without the partition columns, and each bucket's path and number of rows.

    Args:
        batch: see `route`.
        columns: see `route`; without any, all rows are of the bucket with the empty path.
        time_zone: see `route`.

    Raises:
        EncodingError: see `route`.
    """
    if not batch.num_rows:
        return batch.drop_columns(list(columns)), []
    if not columns:
        return batch, [("", batch.num_rows)]
    paths, codes = _buckets([(column, batch.column(column)) for column in columns], time_zone)
    rows = batch.drop_columns(list(columns))
    if np.any(codes[1:] < codes[:-1]):
        # A stable sort: rows of one bucket stay in their order.
        rows = rows.take(pc.array_sort_indices(from_numpy(codes, pa.int64())))
    return rows, list(zip(paths, np.bincount(codes).tolist(), strict=True))


def _buckets(columns: list[tuple[str, pa.Array]], time_zone: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the paths, and for each row the index of its own; both in the order of first rows."""
    (name, values), *inner = columns
    paths, codes = _directories(name, values, time_zone)
    for name, values in inner:
        directories, inner_codes = _directories(name, values, time_zone)
        pairs = from_numpy(codes * len(directories) + inner_codes, pa.int64()).dictionary_encode()
        outer_and_inner = (divmod(pair, len(directories)) for pair in pairs.dictionary.to_pylist())
        paths = [f"{paths[outer]}/{directories[index]}" for outer, index in outer_and_inner]
        codes = _codes(pairs)
    return paths, codes


def _directories(column: str, values: pa.Array, time_zone: str) -> tuple[list[str], NDArray[np.int64]]:
    encoded = plain(values).dictionary_encode(null_encoding="encode")
    names, codes = bucket_names(column, encoded.dictionary, time_zone), _codes(encoded)
    places: dict[str, int] = {}
    merged = [places.setdefault(name, len(places)) for name in names]
    if len(places) < len(names):
        # Different values may share a directory: null and the empty string, one NaN and another.
        codes = np.array(merged)[codes]
    return list(places), codes


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    return values_of(encoded.indices, np.int32).astype(np.int64)
