"""Runs of a keyed store beside LMDB, RocksDB and SQLite: single gets, many at once, scans, building, opening."""

from __future__ import annotations

import logging
import statistics
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.kv_engines import ENGINES, Design
from benchmarks.kv_rates import bulk_rates, cpu_s, draw_keys, get_all, get_rate
from benchmarks.kv_rows import rows_of
from benchmarks.report import Table
from ftfile.kv.hashing import KeyHasher, hash_rows
from ftfile.kv.key_columns import key_array
from ftfile.kv.run.pages import Cache
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
        self._hash = KeyHasher([pa.binary()]).hash

    def getter(self) -> Callable[[bytes], Any]:
        get, hash_key = self._reader.get, self._hash

        def value_of(key: bytes) -> Any:  # noqa: ANN401 - as it is stored
            wanted = (key,)
            found = get(wanted, hash_key(wanted))
            return None if found is None else found[0]

        return value_of

    def multi_get(self, keys: list[bytes]) -> int:
        columns = pa.RecordBatch.from_arrays([key_array(keys, pa.binary())], ["key"])
        return len(self._reader.multi_get(columns, hash_rows(columns.columns))[1].column(1).to_pylist())

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
    keys = draw_keys(rows, gets)
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
    build_s = cpu_s(lambda: design.build(rows))
    open_s = cpu_s(design.open)
    get = design.getter()
    get_all(get, wanted)  # warm
    gets = get_rate(get, wanted), get_rate(get, absent)
    bulk = bulk_rates(design, keys, rows.num_rows)
    design.close()
    build = rows.num_rows / 1_000_000 / build_s
    return [build, design.size_bytes() / rows.num_rows, open_s * 1_000, *gets, *bulk]
