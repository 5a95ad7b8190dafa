"""LMDB, RocksDB and SQLite as tables from keys to values, to compare a store with."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ("ENGINES", "Design")


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


ENGINES: dict[str, Callable[[str, Path], Design]] = {"LMDB": Lmdb, "RocksDB": RocksDb, "SQLite": Sqlite}
