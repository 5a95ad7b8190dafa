"""Whole stores beside LMDB, RocksDB and SQLite: built, opened, read warm and cold, and put into window by window."""

from __future__ import annotations

import logging
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import kv_memory, kv_puts, kv_upkeep
from benchmarks.kv_engines import ENGINES, Design
from benchmarks.kv_rates import bulk_rates, cpu_s, draw_keys, get_all, get_rate
from benchmarks.kv_rows import KEYS, rows_of
from benchmarks.kv_whole import Store
from benchmarks.memory import memory_mib
from benchmarks.report import Table
from benchmarks.spark_session import in_own_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS = 1_000_000
REFRESHES = 20
# Rows of one task in one piece, as a bulk load has them: by default, a task sorts 16 MiB at a time.
BULK = {"maxOpenBytes": "1g"}
STORES: Mapping[str, Mapping[str, Any]] = {
    "store, lz4": {"buckets": "1", **BULK},
    "store, none": {"buckets": "1", "compression": "none", **BULK},
    "store, lz4, 16 buckets": {"buckets": "16"},
    "store, lz4, all cached": {"buckets": "1", **BULK, "cache_bytes": 16 << 30},
}
LZ4, NONE, MANY_BUCKETS, ALL_CACHED = STORES
NOTE = (
    "{:,} rows, values of 100 bytes, half of them random; median of {} alternating rounds, each build and each reader "
    "in a process of its own. Rates are by the CPU time of the process, a store's build ends with its compaction, "
    "and with one bucket its task has a GiB; "
    "`cold` is by the clock: single gets after the files were dropped from the page cache (`posix_fadvise`), which the "
    "disk below may still have. `multi_get` is of 1,000 keys, `Arrow` of 10,000 to and from Arrow arrays. `memory` is "
    "what the reader has allocated after its gets, caches included, files mapped into memory excluded. Engines have "
    "int64 keys as 8 bytes, which they need not encode."
)


class Size(NamedTuple):
    """How much is measured."""

    rows: int
    gets: int
    cold_gets: int
    rounds: int
    puts: int
    window: int  # puts of one


class Figures(NamedTuple):
    """Of one design and one kind of keys; the names are columns of the table, see `COLUMNS`."""

    build: float
    row_bytes: float
    open_ms: float
    get: float
    cold: float
    many: float
    arrow: float
    scan: float
    refresh_ms: float | None
    memory: float


COLUMNS = (
    "design",
    "build M rows/s",
    "bytes a row",
    "open ms",
    "get k/s",
    "cold k/s",
    "multi_get k/s",
    "Arrow k/s",
    "scan M rows/s",
    "idle refresh ms",
    "memory MB",
)


class Target(NamedTuple):
    """A ratio, or a figure, that is wanted; `most` if it must not be more."""

    what: str
    wanted: float
    found: Callable[[Mapping[str, Figures]], float]
    most: bool = False


TARGETS = (
    Target("get, x RocksDB", 2, lambda of: of[LZ4].get / of["RocksDB"].get),
    Target("get, x LMDB", 0.5, lambda of: of[LZ4].get / of["LMDB"].get),
    Target("multi_get, x RocksDB", 2, lambda of: of[LZ4].many / of["RocksDB"].many),
    Target("multi_get, x SQLite", 1.5, lambda of: of[LZ4].many / of["SQLite"].many),
    Target("Arrow lookup without compression, x LMDB", 1.2, lambda of: of[NONE].arrow / of["LMDB"].arrow),
    Target("scan, x LMDB", 2, lambda of: of[LZ4].scan / of["LMDB"].scan),
    Target("build, x LMDB", 0.6, lambda of: of[LZ4].build / of["LMDB"].build),
    Target("build without compression, x LMDB", 1.1, lambda of: of[NONE].build / of["LMDB"].build),
    Target("open, ms", 10, lambda of: of[LZ4].open_ms, most=True),
    Target("idle refresh, ms", 5, lambda of: of[LZ4].refresh_ms or 0.0, most=True),
)


def run(settings: Settings) -> list[Table]:
    """Build the same rows with each design, read them, and put them in by windows."""
    size = _size(settings)
    tables = [table for kind in KEYS for table in _read_tables(settings.directory, kind, size)]
    tables += kv_memory.tables(settings.directory, min(size.rows, ROWS), size.gets)
    tables += kv_upkeep.tables(settings.directory, smoke=settings.smoke)
    return [*tables, *kv_puts.tables(settings.directory, size.puts, size.window, size.rounds)]


def _size(settings: Settings) -> Size:
    if settings.smoke:
        return Size(rows=5_000, gets=500, cold_gets=5, rounds=1, puts=2_000, window=500)
    rows = settings.rows or ROWS
    return Size(rows, 100_000, 300, 5 if rows <= ROWS else 3, min(rows, ROWS), 10_000)


def _read_tables(directory: Path, kind: str, size: Size) -> list[Table]:
    names = [*STORES, *ENGINES]
    if size.rows <= ROWS:
        names.remove(ALL_CACHED)  # as all stores are
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(size.rounds):
        for name in names if number % 2 == 0 else names[::-1]:
            LOGGER.info("kvstore: %s, round %d of %d: %s", kind, number + 1, size.rounds, name)
            path = directory / f"{kind}-{number}-{name}".replace(" ", "-")
            build_s = in_own_process(_build_s, name, path, kind, size.rows)
            found[name].append(in_own_process(_read, name, path, kind, size, build_s))
            kv_puts.remove(path)
    medians = {name: _medians(figures) for name, figures in found.items()}
    ratios = tuple((each.what, _bound(each), each.found(medians)) for each in TARGETS)
    note = NOTE.format(size.rows, size.rounds)
    return [
        Table(f"stores beside engines: {kind} keys", COLUMNS, tuple((n, *f) for n, f in medians.items()), note),
        Table(f"what is wanted of a store: {kind} keys", ("figure", "wanted", "found"), ratios),
    ]


def _bound(target: Target) -> str:
    return f"{'<=' if target.most else '>='} {target.wanted}"


def _medians(rounds: Sequence[Figures]) -> Figures:
    medians: dict[str, Any] = {}
    for name in Figures._fields:
        found = [getattr(figures, name) for figures in rounds]
        medians[name] = None if None in found else statistics.median(found)
    return Figures(**medians)


def _design(name: str, path: Path) -> Design:
    return ENGINES[name](name, path) if name in ENGINES else Store(name, path, **STORES[name])


def _warm_up(name: str, path: Path, kind: str) -> None:
    """Use a small table as the measured one is used: what is imported and begun once is not counted."""
    rows = rows_of(kind, 100, encoded=name in ENGINES)
    design = _design(name, path.with_name(f"{path.name}-warm"))
    design.build(rows)
    design.open()
    design.getter()(rows.column(0)[0].as_py())
    design.lookup(rows.column(0))
    design.scan()
    design.close()
    kv_puts.remove(design.path)


def _build_s(name: str, path: Path, kind: str, count: int) -> float:
    _warm_up(name, path, kind)
    rows = rows_of(kind, count, encoded=name in ENGINES)
    design = _design(name, path)
    return cpu_s(lambda: design.build(rows))


def _read(name: str, path: Path, kind: str, size: Size, build_s: float) -> Figures:
    rows = rows_of(kind, size.rows, encoded=name in ENGINES)
    keys = draw_keys(rows, size.gets)
    del rows
    wanted = keys.to_pylist()
    _warm_up(name, path, kind)
    design = _design(name, path)
    kv_puts.drop_from_page_cache(path)
    before = memory_mib("RssAnon")
    began = time.perf_counter()
    design.open()
    open_s = time.perf_counter() - began
    get = design.getter()
    began = time.perf_counter()
    assert all(get(key) is not None for key in wanted[: size.cold_gets])
    cold_s = time.perf_counter() - began
    get_all(get, wanted)  # warm
    rate = get_rate(get, wanted)
    memory = memory_mib("RssAnon") - before
    many, arrow, scan = bulk_rates(design, keys, size.rows)
    refresh_ms = _refresh_ms(design)
    design.close()
    return Figures(
        build=size.rows / 1_000_000 / build_s,
        row_bytes=design.size_bytes() / size.rows,
        open_ms=open_s * 1_000,
        get=rate,
        cold=size.cold_gets / 1_000 / cold_s,
        many=many,
        arrow=arrow,
        scan=scan,
        refresh_ms=refresh_ms,
        memory=memory,
    )


def _refresh_ms(design: Design) -> float | None:
    if not isinstance(design, Store):
        return None
    began = time.perf_counter()
    for _ in range(REFRESHES):
        design.refresh()
    return (time.perf_counter() - began) * 1_000 / REFRESHES
