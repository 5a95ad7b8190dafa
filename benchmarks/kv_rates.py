"""The rates of a table from keys to values, by the CPU time of the process, as all benchmarks of stores take them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.kv_engines import Design

__all__ = ("bulk_rates", "cpu_s", "draw_keys", "get_all", "get_rate")

MANY = 1_000  # keys of a multi_get
LOOKED_UP = 10_000  # keys of a lookup, in Arrow


def draw_keys(rows: pa.RecordBatch, count: int) -> pa.Array:
    """Return the keys of rows drawn at random, the same ones in each run."""
    drawn = np.random.default_rng(1).integers(0, rows.num_rows, count)
    return rows.column(0).take(from_numpy(drawn, pa.int64()))


def get_all(get: Callable[[Any], Any], keys: Sequence[Any]) -> None:
    """Get one key after the other."""
    for key in keys:
        get(key)


def get_rate(get: Callable[[Any], Any], keys: Sequence[Any]) -> float:
    """Return how many thousand keys a second are got one by one."""
    return len(keys) / 1_000 / cpu_s(lambda: get_all(get, keys))


def bulk_rates(design: Design, keys: pa.Array, rows: int) -> tuple[float, float, float]:
    """Return thousands of keys a second by `multi_get` and by `lookup`, and millions of rows a second by a scan.

    Args:
        design: open.
        keys: to be looked up.
        rows: number that a scan must find.
    """
    wanted = keys.to_pylist()
    parts = [wanted[start : start + MANY] for start in range(0, len(wanted), MANY)]
    many_s = cpu_s(lambda: [design.multi_get(part) for part in parts])
    arrays = [keys.slice(start, LOOKED_UP) for start in range(0, len(keys), LOOKED_UP)]
    lookup_s = cpu_s(lambda: [design.lookup(array) for array in arrays])
    scanned: list[int] = []
    scan_s = cpu_s(lambda: scanned.append(design.scan()))
    assert scanned == [rows]
    thousands = len(keys) / 1_000
    return thousands / many_s, thousands / lookup_s, rows / 1_000_000 / scan_s


def cpu_s(work: Callable[[], Any]) -> float:
    """Return the CPU time of a call, which is never 0."""
    began = time.process_time()
    work()
    return max(time.process_time() - began, 1e-6)
