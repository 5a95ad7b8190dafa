"""Durable puts, window by window, into a store and into engines: their rate, and the bytes that they write."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import ftfile.kv
from benchmarks.kv_rows import ROW_BYTES, rows_of
from benchmarks.report import Table
from benchmarks.spark_session import in_own_process
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ("drop_from_page_cache", "remove", "tables", "written_bytes")

LOGGER = logging.getLogger(__name__)
WINDOWS_A_RECORD = 10
COLUMNS = ("design", "keys", "puts k/s", "puts CPU k/s", "bytes written per byte")
NOTE = (
    "{:,} puts of {} bytes in windows of {:,}, each durable (synced) when it ends; median of {} alternating rounds, "
    "each in a process of its own. A store records {} windows at a time, merges what is due, and closes within the "
    "time; bytes are those given to system calls, WAL, log and merges included. `puts k/s` is by the clock, syncs "
    "included. RocksDB flushes and compacts as it does by default."
)
RATIO_COLUMNS = ("figure", "wanted", "found")

Window = tuple[list[bytes], list[bytes]]


def tables(directory: Path, puts: int, window: int, rounds: int) -> list[Table]:
    """Measure all designs with random and with rising keys."""
    found: dict[tuple[str, str], list[tuple[float, ...]]] = {(name, kind): [] for kind in KINDS for name in PUTTERS}
    for number in range(rounds):
        for name, kind in list(found) if number % 2 == 0 else list(found)[::-1]:
            LOGGER.info("kvstore: puts of %s keys, round %d of %d: %s", kind, number + 1, rounds, name)
            path = directory / f"puts-{kind}-{number}-{name}"
            found[name, kind].append(in_own_process(_measured, name, path, kind, puts, window))
            remove(path)
    medians = {key: tuple(map(statistics.median, zip(*each, strict=True))) for key, each in found.items()}
    random, rising = medians["store", "random"], medians["store", "rising"]
    engines = [medians[name, "random"][1] for name in ("LMDB", "RocksDB")]
    ratios = (
        ("random puts by CPU, x the better of LMDB and RocksDB", ">= 1.5", random[1] / max(engines)),
        ("bytes written per byte, random", "<= 8", random[2]),
        ("bytes written per byte, rising", "<= 4", rising[2]),
    )
    note = NOTE.format(puts, ROW_BYTES, window, rounds, WINDOWS_A_RECORD)
    return [
        Table("durable puts", COLUMNS, tuple((*key, *figures) for key, figures in medians.items()), note),
        Table("what is wanted of durable puts", RATIO_COLUMNS, ratios),
    ]


def _measured(name: str, path: Path, kind: str, puts: int, window: int) -> tuple[float, ...]:
    rows = rows_of(kind, puts)
    if kind == "random":
        rows = rows.take(from_numpy(np.random.default_rng(2).permutation(puts), pa.int64()))
    keys, values = rows.column(0).to_pylist(), rows.column(1).to_pylist()
    windows = [(keys[start : start + window], values[start : start + window]) for start in range(0, puts, window)]
    warm = path.with_name(f"{path.name}-warm")
    PUTTERS[name](warm, windows[:1])  # what is imported and begun once is not counted
    remove(warm)
    before, began, cpu_began = written_bytes(), time.perf_counter(), time.process_time()
    PUTTERS[name](path, windows)
    cpu_s, clock_s, written = time.process_time() - cpu_began, time.perf_counter() - began, written_bytes() - before
    return puts / 1_000 / clock_s, puts / 1_000 / max(cpu_s, 1e-6), written / (puts * ROW_BYTES)


def _put_into_store(path: Path, windows: Sequence[Window]) -> None:
    with ftfile.kv.KeyValueStore(str(path), writer="benchmark", maintenance="inline") as store:
        put = store.put
        for number, (keys, values) in enumerate(windows):
            store.begin_window(number)
            for key, value in zip(keys, values, strict=True):
                put(key, value)
            store.end_window()
            if number % WINDOWS_A_RECORD == WINDOWS_A_RECORD - 1:
                store.committed(number)
        store.committed(len(windows) - 1)
    ftfile.kv.compact(path)


def _put_into_lmdb(path: Path, windows: Sequence[Window]) -> None:
    import lmdb  # noqa: PLC0415 - optional

    with lmdb.open(str(path), map_size=1 << 34) as made:
        for keys, values in windows:
            with made.begin(write=True) as change:
                for key, value in zip(keys, values, strict=True):
                    change.put(key, value)


def _put_into_rocksdb(path: Path, windows: Sequence[Window]) -> None:
    from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions  # noqa: PLC0415 - optional

    options, synced = Options(raw_mode=True), WriteOptions()
    options.set_compression_type(DBCompressionType.lz4())
    synced.sync = True
    made = Rdict(str(path), options)
    for keys, values in windows:
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(keys, values, strict=True):
            batch.put(key, value)
        made.write(batch, synced)
    made.flush()
    made.close()


def _put_into_sqlite(path: Path, windows: Sequence[Window]) -> None:
    path.mkdir()
    database = sqlite3.connect(path / "rows.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=wal")
    database.execute("PRAGMA synchronous=full")
    database.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
    for keys, values in windows:
        database.execute("BEGIN")
        database.executemany("REPLACE INTO rows VALUES (?, ?)", zip(keys, values, strict=True))
        database.execute("COMMIT")
    database.close()


KINDS = ("random", "rising")
PUTTERS: dict[str, Callable[[Path, Sequence[Window]], None]] = {
    "store": _put_into_store,
    "LMDB": _put_into_lmdb,
    "RocksDB": _put_into_rocksdb,
    "SQLite": _put_into_sqlite,
}


def written_bytes() -> int:
    """Return the bytes that this process has given to system calls that write."""
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["wchar"])


def drop_from_page_cache(path: Path) -> None:
    """Make what is at a path durable, and have the kernel forget it, as far as nobody has it mapped."""
    for file in _files(path):
        descriptor = os.open(file, os.O_RDONLY)
        with contextlib.suppress(OSError):  # some file systems have no page cache to drop from
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, or a directory with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.is_file())
