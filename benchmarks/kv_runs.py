"""Runs of a keyed store beside LMDB, RocksDB and SQLite: single gets, many at once, scans, building, opening."""

from __future__ import annotations

import logging
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.kv_engines import ENGINES, Design
from benchmarks.kv_rows import rows_of
from benchmarks.report import Table
from ftfile.arrays.buffers import from_numpy
from ftfile.kv.hashing.one_key import key_hasher
from ftfile.kv.hashing.rows import hash_keys, hash_rows
from ftfile.kv.run.cache import Cache
from ftfile.kv.run.reader import RunReader
from ftfile.kv.run.writer import write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 1_000_000, 5_000
GETS, SMOKE_GETS = 100_000, 500
ROUNDS, SMOKE_ROUNDS = 5, 1
MANY = 1_000  # keys of a multi_get
LOOKED_UP = 10_000  # keys of a multi_get that are in Arrow already
COLUMNS = (
    "design",
    "build M rows/s",
    "bytes a row",
    "open ms",
    "get k/s",
    "absent k/s",
    "multi_get k/s",
    "Arrow k/s",
    "scan M rows/s",
)
NOTE = (
    "{:,} rows of random keys of 16 bytes, values of 100. CPU time of this process, median of {} alternating rounds; "
    "all in memory of the machine. `multi_get` is of 1,000 keys, `Arrow` of 10,000 to and from Arrow arrays. All "
    "engines are read by Python, and built from rows that are sorted; RocksDB ingests a file."
)


class _File:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.position += len(data)
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()


class Run(Design):
    """The run file."""

    def __init__(self, label: str, path: Path, compression: str) -> None:
        super().__init__(label, path)
        self._compression = compression
        self._reader: RunReader

    def build(self, rows: pa.RecordBatch) -> None:
        file = _File(self.path)
        write_run(file, [rows], rows.schema, ["key"], compression=self._compression)
        file.close()

    def open(self) -> None:
        length_bytes = self.path.stat().st_size
        file = self.path.open("rb", buffering=0)

        def read_range(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        self._file = file
        self._reader = RunReader(read_range, length_bytes, str(self.path), Cache(1 << 30))
        self._hash = key_hasher([pa.binary()])

    def getter(self) -> Callable[[bytes], Any]:
        get, hash_key = self._reader.get, self._hash

        def value_of(key: bytes) -> Any:  # noqa: ANN401 - as it is stored
            wanted = (key,)
            found = get(wanted, hash_key(wanted))
            return None if found is None else found[0]

        return value_of

    def multi_get(self, keys: list[bytes]) -> int:
        wanted = [(key,) for key in keys]
        return sum(row is not None for row in self._reader.get_many(wanted, hash_keys(wanted, [pa.binary()])))

    def lookup(self, keys: pa.Array) -> int:
        columns = pa.RecordBatch.from_arrays([keys], ["key"])
        return int(self._reader.multi_get(columns, hash_rows(columns.columns))[1].num_rows)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._reader.scan())

    def close(self) -> None:
        self._file.close()


def run(settings: Settings) -> list[Table]:
    """Build the same rows with each design, and read them."""
    count, gets, rounds = (SMOKE_ROWS, SMOKE_GETS, SMOKE_ROUNDS) if settings.smoke else (ROWS, GETS, ROUNDS)
    rows = rows_of("random", count)
    drawn = np.random.default_rng(1).integers(0, count, gets)
    keys = rows.column(0).take(from_numpy(drawn, pa.int64()))
    absent = [key[::-1] for key in keys.to_pylist()]
    designs = _designs(settings.directory)
    figures: dict[str, list[list[float]]] = {design.label: [] for design in designs}
    for number in range(rounds):
        LOGGER.info("runs: round %d of %d", number + 1, rounds)
        for design in designs:
            path, design.path = design.path, design.path.with_name(f"{design.path.name}-{number}")
            figures[design.label].append(_measured(design, rows, keys, absent))
            design.path = path
    medians = [(label, *map(statistics.median, zip(*found, strict=True))) for label, found in figures.items()]
    return [Table("runs beside engines", COLUMNS, tuple(medians), NOTE.format(count, rounds))]


def _designs(directory: Path) -> Sequence[Design]:
    return (
        *(Run(f"run, {name}", directory / f"{name}.run", name) for name in ("lz4", "zstd", "none")),
        *(engine(label, directory / label.lower()) for label, engine in ENGINES.items()),
    )


def _measured(design: Design, rows: pa.RecordBatch, keys: pa.Array, absent: list[bytes]) -> list[float]:
    wanted = keys.to_pylist()
    build_s = _seconds(lambda: design.build(rows))
    open_s = _seconds(design.open)
    get = design.getter()
    for key in wanted:
        get(key)  # warm
    get_s = _seconds(lambda: _get_all(get, wanted))
    absent_s = _seconds(lambda: _get_all(get, absent))
    parts = [wanted[start : start + MANY] for start in range(0, len(wanted), MANY)]
    many_s = _seconds(lambda: [design.multi_get(part) for part in parts])
    arrays = [keys.slice(start, LOOKED_UP) for start in range(0, len(keys), LOOKED_UP)]
    lookup_s = _seconds(lambda: [design.lookup(array) for array in arrays])
    scanned: list[int] = []
    scan_s = _seconds(lambda: scanned.append(design.scan()))
    assert scanned == [rows.num_rows]
    design.close()
    thousands, millions = len(wanted) / 1_000, rows.num_rows / 1_000_000
    per_row = design.size_bytes() / rows.num_rows
    rates = [thousands / seconds for seconds in (get_s, absent_s, many_s, lookup_s)]
    return [millions / build_s, per_row, open_s * 1_000, *rates, millions / scan_s]


def _get_all(get: Callable[[bytes], Any], keys: list[bytes]) -> None:
    for key in keys:
        get(key)


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return max(time.process_time() - began, 1e-6)
