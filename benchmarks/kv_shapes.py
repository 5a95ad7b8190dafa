"""Stores of other shapes than a key and a value: wide tables, of which all or one narrow column is read, encrypted."""

from __future__ import annotations

import base64
import logging
import statistics
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.kv_rates import bulk_rates, cpu_s, draw_keys, get_all, get_rate
from benchmarks.kv_rows import rows_of
from benchmarks.kv_whole import Store
from benchmarks.report import Table
from benchmarks.spark_session import in_own_process
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 500_000, 2_000
WARM_ROWS = 1_000  # of a store that is measured first, and not counted: imports, and what begins once
ROUNDS, SMOKE_ROUNDS = 5, 1
GETS = 20_000
NUMBERS, FRACTIONS, TEXTS = 8, 6, 5  # columns of each kind beside the key
NARROW = "number0"
LETTERS = 10  # of the longest texts
# What rows have besides a key, and whether the store is encrypted.
SHAPES: Mapping[str, tuple[str, bool]] = {
    "a value": ("value", False),
    "a value, encrypted": ("value", True),
    "20 columns": ("wide", False),
    "20 columns, encrypted": ("wide", True),
}
COLUMNS = (
    "rows of",
    "build M rows/s",
    "bytes a row",
    "get k/s",
    "multi_get k/s",
    "Arrow k/s",
    "scan M rows/s",
    "scan of one column M rows/s",
)
NOTE = (
    "{:,} rows with random keys of 16 bytes in one bucket, lz4; medians of {} rounds in turn; processor time. A value "
    f"has 100 bytes; 20 columns are the key, {NUMBERS} int64, {FRACTIONS} doubles and {TEXTS} texts of 6 to 10 "
    f"letters, and the one column is an int64. multi_get is of 1,000 keys, Arrow of 10,000 from Arrow arrays."
)


class Figures(NamedTuple):
    """Of one store."""

    build: float
    row_bytes: float
    get: float
    many: float
    arrow: float
    scan: float
    scan_one: float


def run(settings: Settings) -> list[Table]:
    """Build and read a store of each shape, round after round."""
    rows, rounds = (SMOKE_ROWS, SMOKE_ROUNDS) if settings.smoke else (ROWS, ROUNDS)
    figures: dict[str, list[Figures]] = {shape: [] for shape in SHAPES}
    for number in range(rounds):
        for shape in [*SHAPES] if number % 2 == 0 else [*SHAPES][::-1]:
            path = settings.directory / f"{number}-{shape}".replace(" ", "-")
            figures[shape].append(in_own_process(_measure, path, shape, rows))
            LOGGER.info("kvshapes: %s: %s", shape, figures[shape][-1])
    lines = tuple((shape, *map(statistics.median, zip(*found, strict=True))) for shape, found in figures.items())
    return [Table("stores of other shapes", COLUMNS, lines, NOTE.format(rows, rounds))]


def _measure(path: Path, shape: str, count: int) -> Figures:
    kind, is_encrypted = SHAPES[shape]
    key_provider = None
    if is_encrypted:
        ring = path.with_name(f"{path.name}-keys")
        ring.write_text(f"first {base64.b64encode(bytes(range(32))).decode()}\n", encoding="ascii")
        ring.chmod(0o600)
        key_provider = f"file:{ring}"
    _figures(path.with_name(f"{path.name}-warm"), kind, key_provider, WARM_ROWS)
    return _figures(path, kind, key_provider, count)


def _figures(path: Path, kind: str, key_provider: str | None, count: int) -> Figures:
    rows = rows_of("random", count) if kind == "value" else _wide(count)
    store = Store(kind, path, key_provider=key_provider, buckets="1", maxOpenBytes="1g")
    build_s = cpu_s(lambda: store.build(rows))
    keys = draw_keys(rows, GETS)
    wanted = keys.to_pylist()
    store.open()
    get_all(store.getter(), wanted)  # into the cache
    rate = get_rate(store.getter(), wanted)
    many, arrow, scan = bulk_rates(store, keys, count)
    one_s = cpu_s(lambda: store.scan(["value" if kind == "value" else NARROW]))
    store.close()
    millions = count / 1_000_000
    return Figures(millions / build_s, store.size_bytes() / count, rate, many, arrow, scan, millions / one_s)


def _wide(count: int) -> pa.RecordBatch:
    """Return rows with random keys and 19 other columns."""
    generator = np.random.default_rng(1)
    columns = {"key": rows_of("random", count).column(0)}
    for number in range(NUMBERS):
        columns[f"number{number}"] = from_numpy(generator.integers(0, 1 << (8 + 6 * number), count), pa.int64())
    for number in range(FRACTIONS):
        columns[f"fraction{number}"] = from_numpy(generator.normal(20, 5, count).round(3), pa.float64())
    texts = generator.integers(97, 123, LETTERS << 14, np.uint8).tobytes().decode()
    for number in range(TEXTS):
        cut = [texts[at : at + LETTERS - number] for at in range(0, len(texts), LETTERS)]
        columns[f"text{number}"] = pa.array(cut).take(pa.array(generator.integers(0, len(cut), count)))
    return pa.RecordBatch.from_pydict(columns)
