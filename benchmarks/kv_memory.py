"""The memory of who writes, merges and reads a store, each in a process of its own, and the bytes of its index."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import ftfile.kv
from benchmarks.kv_puts import remove
from benchmarks.kv_rates import draw_keys, get_all
from benchmarks.kv_rows import KEYS, rows_of
from benchmarks.kv_whole import Store
from benchmarks.memory import memory_mib, peak_mib
from benchmarks.report import Table
from benchmarks.spark_session import in_own_process
from ftfile.kv.run.pages import Cache
from ftfile.kv.run_files import OpenFiles, open_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ("tables",)

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "1 bucket": {"buckets": "1"},
    "16 buckets": {"buckets": "16"},
    "16 buckets, 1 GiB a task": {"buckets": "16", "maxOpenBytes": "1g"},
}
COLUMNS = ("store", "keys", "index bytes a key", "task MiB", "merge MiB", "opened MiB", "reader MiB")
NOTE = (
    "{:,} rows, values of 100 bytes, lz4. `task` and `merge` are by how much the resident memory of a process rises at "
    "most: a task that writes all rows, and one thread that merges all runs of each bucket. `reader` is what a process "
    "has more after {:,} random gets with the default cache of 256 MiB. The index is all of a run but its blocks."
)
RATIO_COLUMNS = ("figure", "wanted", "found")


def tables(directory: Path, rows: int, gets: int) -> list[Table]:
    """Measure each shape of a store with each kind of keys."""
    lines = []
    for shape in SHAPES:
        for kind in KEYS:
            path = directory / f"memory-{kind}-{shape}".replace(" ", "-").replace(",", "")
            written = in_own_process(_written, path, kind, rows, SHAPES[shape])
            lines.append((shape, kind, *written, *in_own_process(_opened, path, kind, rows, gets)))
            remove(path)
    index = max(line[2] for line in lines)
    return [
        Table("memory and index of stores", COLUMNS, tuple(lines), NOTE.format(rows, gets)),
        Table("what is wanted of an index", RATIO_COLUMNS, (("MB for 10 M keys, at most", "<= 70", 10 * index),)),
    ]


def _written(path: Path, kind: str, count: int, options: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the bytes of the index for a key, and the peaks of a task and of a merge."""
    for size, made in ((100, path.with_name(f"{path.name}-warm")), (count, path)):
        store, rows = Store("", made, **options), rows_of(kind, size, encoded=False)
        task = peak_mib(partial(store.write, rows))
        merge = peak_mib(partial(ftfile.kv.compact, made, full=True, threads=1))
        if made != path:
            remove(made)
    return _index_bytes(path) / count, task, merge


def _index_bytes(path: Path) -> int:
    with ftfile.kv.open(path) as reader:
        files, cache = OpenFiles(reader.log.fs), Cache(1 << 20)
        runs = [(run.add.logical_length, open_run(files, run.add, cache)) for run in reader.runs()]
    return sum(length - run._index.pages_offset for length, run in runs)  # noqa: SLF001 - what is behind the blocks


def _opened(path: Path, kind: str, count: int, gets: int) -> tuple[float, float]:
    """Return the memory of a reader once it is open and one row was read, and after many gets."""
    keys = draw_keys(rows_of(kind, count, encoded=False), gets).to_pylist()
    before = memory_mib("RssAnon")
    with ftfile.kv.open(path) as reader:
        reader.get(keys[0])
        opened = memory_mib("RssAnon") - before
        get_all(reader.get, keys)
        return opened, memory_mib("RssAnon") - before
