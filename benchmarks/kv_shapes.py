"""Stores of other shapes than a key and a value: wide tables, of which all or one narrow column is read, encrypted."""

from __future__ import annotations

import base64
import logging
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import ftfile.kv
from benchmarks.kv_rates import cpu_s, draw_keys, get_all
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
ROUNDS, SMOKE_ROUNDS = 5, 1
GETS = 20_000
MANY = 1_000  # keys of a multi_get
NUMBERS, FRACTIONS, TEXTS = 8, 6, 5  # columns of each kind beside the key
NARROW = "number0"
LETTERS = 12 << 14  # of texts of up to twelve
SHAPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a value": ("value", {}),
    "a value, encrypted": ("value", {"encryption": "aes-gcm"}),
    "20 columns": ("wide", {}),
    "20 columns, encrypted": ("wide", {"encryption": "aes-gcm"}),
}
COLUMNS = (
    "rows of",
    "build M rows/s",
    "bytes a row",
    "get k/s",
    "multi_get k/s",
    "scan M rows/s",
    "scan of one column M rows/s",
)
NOTE = (
    "{:,} rows with random keys of 16 bytes in one bucket, lz4; medians of {} rounds in turn; processor time. A value "
    f"has 100 bytes; 20 columns are the key, {NUMBERS} int64, {FRACTIONS} doubles and {TEXTS} texts of 6 to 10 "
    f"letters, and the one column is an int64. multi_get is of {MANY:,} keys."
)


class Figures(NamedTuple):
    """Of one store."""

    build: float
    row_bytes: float
    get: float
    many: float
    scan: float
    scan_one: float


def run(settings: Settings) -> list[Table]:
    """Build and read a store of each shape, round after round."""
    rows, rounds = (SMOKE_ROWS, SMOKE_ROUNDS) if settings.smoke else (ROWS, ROUNDS)
    figures: dict[str, list[Figures]] = {shape: [] for shape in SHAPES}
    for number in range(rounds):
        for shape in list(SHAPES)[:: 1 if number % 2 == 0 else -1]:
            path = settings.directory / f"kvshapes-{number}-{list(SHAPES).index(shape)}"
            figures[shape].append(in_own_process(_measure, path, shape, rows))
            LOGGER.info("kvshapes: %s: %s", shape, figures[shape][-1])
    lines = tuple((shape, *map(statistics.median, zip(*found, strict=True))) for shape, found in figures.items())
    return [Table("stores of other shapes", COLUMNS, lines, NOTE.format(rows, rounds))]


def _measure(path: Path, shape: str, count: int) -> Figures:
    kind, options = SHAPES[shape]
    _figures(path.with_name(f"{path.name}-warm"), kind, options, 1_000)  # imports, and what begins once
    return _figures(path, kind, options, count)


def _figures(path: Path, kind: str, options: Mapping[str, Any], count: int) -> Figures:
    rows = rows_of("random", count) if kind == "value" else _wide(count)
    access: dict[str, Any] = {}
    if options:
        ring = path.with_name(f"{path.name}-keys")
        ring.write_text(f"first {base64.b64encode(bytes(range(32))).decode()}\n", encoding="ascii")
        ring.chmod(0o600)
        options = {**options, "keyProvider": f"file:{ring}"}
        access = {"key_provider": f"file:{ring}"}
    store = Store(kind, path, buckets="1", maxOpenBytes="1g", **options)
    build_s = cpu_s(lambda: store.write(rows)) + cpu_s(lambda: ftfile.kv.compact(path, full=True, **access))
    keys = draw_keys(rows, GETS if count >= GETS else count).to_pylist()
    parts = [keys[start : start + MANY] for start in range(0, len(keys), MANY)]
    one = "value" if kind == "value" else NARROW
    with ftfile.kv.open(path, **access) as reader:
        get_all(reader.get, keys)
        get_s = cpu_s(lambda: get_all(reader.get, keys))
        many_s = cpu_s(lambda: [reader.multi_get(part) for part in parts])
        scanned: list[int] = []
        scan_s = cpu_s(lambda: scanned.append(sum(batch.num_rows for batch in reader.scan())))
        one_s = cpu_s(lambda: scanned.append(sum(batch.num_rows for batch in reader.scan(columns=[one]))))
        assert scanned == [count, count]
        row_bytes = reader.stats().size_bytes / count
    thousands, millions = len(keys) / 1_000, count / 1_000_000
    return Figures(
        millions / build_s, row_bytes, thousands / get_s, thousands / many_s, millions / scan_s, millions / one_s
    )


def _wide(count: int) -> pa.RecordBatch:
    """Return rows with random keys and 19 other columns."""
    generator = np.random.default_rng(1)
    columns = {"key": rows_of("random", count).column(0)}
    for number in range(NUMBERS):
        columns[f"number{number}"] = from_numpy(generator.integers(0, 1 << (8 + 6 * number), count), pa.int64())
    for number in range(FRACTIONS):
        columns[f"fraction{number}"] = from_numpy(generator.normal(20, 5, count).round(3), pa.float64())
    letters = np.frombuffer(generator.integers(97, 123, LETTERS, np.uint8).tobytes(), "S12").astype(str)
    for number in range(TEXTS):
        texts = pa.array([letter[: 6 + number] for letter in letters.tolist()])
        columns[f"text{number}"] = texts.take(pa.array(generator.integers(0, len(texts), count)))
    return pa.RecordBatch.from_pydict(columns)
