"""Runs of a keyed store beside LMDB, RocksDB and SQLite: single gets, many at once, scans, building, opening."""

from __future__ import annotations

import logging
import sqlite3
import statistics
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.report import Table
from ftfile.arrays.buffers import from_numpy
from ftfile.kv.hashing.one_key import key_hasher
from ftfile.kv.hashing.rows import hash_rows
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
KEY_BYTES, VALUE_BYTES = 16, 100
VALUE_RANDOM_BYTES = 50  # of a value; the others are alike, for codecs to have work
SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())])
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


class Design(ABC):
    """A table on disk from keys to values."""

    def __init__(self, label: str, path: Path) -> None:
        self.label = label
        self.path = path

    @abstractmethod
    def build(self, rows: pa.RecordBatch) -> None:
        """Write all rows."""

    @abstractmethod
    def open(self) -> None:
        """Open what was built, to read it."""

    @abstractmethod
    def getter(self) -> Callable[[bytes], Any]:
        """Return the function from a key to its value, or None."""

    @abstractmethod
    def multi_get(self, keys: list[bytes]) -> int:
        """Look keys up and return how many there are."""

    def lookup(self, keys: pa.Array) -> int:
        """Look keys up that are in Arrow, and make an Arrow array of their values."""
        get = self.getter()
        found = [value for key in keys.to_pylist() if (value := get(key)) is not None]
        return len(pa.array(found, pa.binary()))

    @abstractmethod
    def scan(self) -> int:
        """Read all rows and return how many there are."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""

    def size_bytes(self) -> int:
        """Return the bytes on disk."""
        files = [self.path] if self.path.is_file() else [file for file in self.path.rglob("*") if file.is_file()]
        return sum(512 * file.stat().st_blocks for file in files)


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
        return sum(row is not None for row in self._reader.get_many(wanted, [*map(self._hash, wanted)]))

    def lookup(self, keys: pa.Array) -> int:
        columns = pa.RecordBatch.from_arrays([keys], ["key"])
        return int(self._reader.multi_get(columns, hash_rows(columns.columns))[1].num_rows)

    def scan(self) -> int:
        return sum(batch.num_rows for batch in self._reader.scan())

    def close(self) -> None:
        self._file.close()


class Lmdb(Design):
    """LMDB: a B+tree that is mapped into memory."""

    def build(self, rows: pa.RecordBatch) -> None:
        import lmdb  # noqa: PLC0415 - optional

        with lmdb.open(str(self.path), map_size=1 << 32, sync=False) as made, made.begin(write=True) as change:
            change.cursor().putmulti(zip(*_lists(rows), strict=True), append=True)

    def open(self) -> None:
        import lmdb  # noqa: PLC0415 - optional

        self._environment = lmdb.open(str(self.path), readonly=True, lock=False)
        self._view = self._environment.begin()

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._view.get
        return get

    def multi_get(self, keys: list[bytes]) -> int:
        return len(self._view.cursor().getmulti(keys))

    def scan(self) -> int:
        return sum(1 for _ in self._view.cursor())

    def close(self) -> None:
        self._view.abort()
        self._environment.close()


class RocksDb(Design):
    """RocksDB, with blocks of 16 KiB, LZ4 and a Bloom filter."""

    def _options(self) -> Any:  # noqa: ANN401 - the package is optional
        from rocksdict import BlockBasedOptions, DBCompressionType, Options  # noqa: PLC0415
        from rocksdict import Cache as BlockCache  # noqa: PLC0415

        blocks = BlockBasedOptions()
        blocks.set_block_size(16 << 10)
        blocks.set_bloom_filter(10, block_based=False)
        blocks.set_block_cache(BlockCache(1 << 30))
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(blocks)
        options.set_compression_type(DBCompressionType.lz4())
        return options

    def build(self, rows: pa.RecordBatch) -> None:
        from rocksdict import Rdict, SstFileWriter  # noqa: PLC0415 - optional

        self.path.mkdir()
        sorted_file = self.path / "rows.sst"
        writer = SstFileWriter(options=self._options())
        writer.open(str(sorted_file))
        for key, value in zip(*_lists(rows), strict=True):
            writer[key] = value
        writer.finish()
        made = Rdict(str(self.path / "db"), self._options())
        made.ingest_external_file([str(sorted_file)])
        made.close()
        sorted_file.unlink(missing_ok=True)

    def open(self) -> None:
        from rocksdict import AccessType, Rdict  # noqa: PLC0415 - optional

        self._rows: Any = Rdict(str(self.path / "db"), self._options(), access_type=AccessType.read_only())

    def getter(self) -> Callable[[bytes], Any]:
        get: Callable[[bytes], Any] = self._rows.get
        return get

    def multi_get(self, keys: list[bytes]) -> int:
        return sum(value is not None for value in self._rows.get(keys))

    def scan(self) -> int:
        return sum(1 for _ in self._rows.items())

    def close(self) -> None:
        self._rows.close()


class Sqlite(Design):
    """SQLite: a table without rowid."""

    def build(self, rows: pa.RecordBatch) -> None:
        database = sqlite3.connect(self.path)
        database.execute("PRAGMA journal_mode=off")
        database.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        database.executemany("INSERT INTO rows VALUES (?, ?)", zip(*_lists(rows), strict=True))
        database.commit()
        database.close()

    def open(self) -> None:
        self._database = sqlite3.connect(self.path)
        self._database.execute("PRAGMA mmap_size=4294967296")
        self._database.execute("SELECT count(*) FROM (SELECT 1 FROM rows LIMIT 1)").fetchone()

    def getter(self) -> Callable[[bytes], Any]:
        execute = self._database.execute

        def value_of(key: bytes) -> Any:  # noqa: ANN401 - as it is stored
            found = execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
            return None if found is None else found[0]

        return value_of

    def multi_get(self, keys: list[bytes]) -> int:
        marks = ",".join("?" * len(keys))
        return len(self._database.execute(f"SELECT key, value FROM rows WHERE key IN ({marks})", keys).fetchall())

    def scan(self) -> int:
        return sum(1 for _ in self._database.execute("SELECT key, value FROM rows"))

    def close(self) -> None:
        self._database.close()


def _lists(rows: pa.RecordBatch) -> tuple[list[bytes], list[bytes]]:
    return rows.column(0).to_pylist(), rows.column(1).to_pylist()


def run(settings: Settings) -> list[Table]:
    """Build the same rows with each design, and read them."""
    count, gets, rounds = (SMOKE_ROWS, SMOKE_GETS, SMOKE_ROUNDS) if settings.smoke else (ROWS, GETS, ROUNDS)
    rows = _rows(count)
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
        Lmdb("LMDB", directory / "lmdb"),
        RocksDb("RocksDB", directory / "rocksdb"),
        Sqlite("SQLite", directory / "sqlite"),
    )


def _rows(count: int) -> pa.RecordBatch:
    """Return sorted rows with random keys, of whose values half is random."""
    generator = np.random.default_rng(0)
    # Sorted by their first half, which no two have in common.
    halves = np.sort(generator.integers(0, 1 << 63, count)).astype(">i8").tobytes()
    ends = generator.integers(0, 256, (count, KEY_BYTES // 2), np.uint8)
    numbers = np.hstack([np.frombuffer(halves, np.uint8).reshape(count, -1), ends])
    values = np.zeros((count, VALUE_BYTES), np.uint8)
    values[:, :VALUE_RANDOM_BYTES] = generator.integers(0, 256, (count, VALUE_RANDOM_BYTES), np.uint8)
    columns = [
        pa.Array.from_buffers(pa.binary(), count, [None, _offsets(count, width), pa.py_buffer(data)])
        for width, data in ((KEY_BYTES, numbers.tobytes()), (VALUE_BYTES, values.tobytes()))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _offsets(count: int, width: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))


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
