"""Two processes that write small batches into one directory at the same time."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.storage.registry import register
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

BATCHES = 1_000 if os.environ.get("FTFILE_THOROUGH") else 100  # of each process
WAIT_S = 600  # only if the other process was killed
TOGETHER = 10  # batches between two moments at which the processes wait for each other
QUERIES = ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002")
REQUESTS = ("create", "create_exclusive", "delete", "list", "open", "put", "read", "rename", "stat")

_barriers: list[Barrier] = []


class _Metered(PickledByReference, MeteredFileSystem):
    """Counts the requests of one process."""


def _set_barrier(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _write(path: str, number: int) -> Counter[str]:
    """Write batches of one row each; return the numbers of requests."""
    try:
        return _write_batches(path, number)
    except BaseException:
        _barriers[0].abort()
        raise


def _write_batches(path: str, number: int) -> Counter[str]:
    metered = _Metered(open_filesystem(path))
    register("metered", lambda _: metered)
    options = {"fileFormat": "json", "onNewQuery": "continue"}
    query = MicroBatch("metered://directory", {"id": "long"}, options, QUERIES[number])
    for batch in range(BATCHES):
        if batch % TOGETHER == 0:
            _barriers[0].wait(WAIT_S)
        assert not query.run(batch, [[{"id": number * BATCHES + batch}]]).replayed
    calls = metered.counters.calls
    return Counter({name: calls[name] for name in REQUESTS})


@pytest.mark.slow
def test_no_row_of_two_processes_is_lost_or_doubled(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = str(tmp_path)
    context: Any = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(QUERIES))
    with ProcessPoolExecutor(len(QUERIES), context, _set_barrier, (barrier,)) as processes:
        writing = [processes.submit(_write, path, number) for number in range(len(QUERIES))]
        requests = [future.result() for future in writing]
    report = check_directory(open_filesystem(path), recorded_by_spark=dict.fromkeys(QUERIES, range(BATCHES)))
    assert report.committed == {query: [*range(BATCHES)] for query in QUERIES}
    expected = [*range(len(QUERIES) * BATCHES)]
    assert report.visible_rows == Counter(b'{"id":%d}' % number for number in expected)
    directory = ftfile.open(path)
    history = directory.history()
    assert [version.version for version in history] == expected
    assert sorted(directory.to_arrow()["id"].to_pylist()) == expected
    assert sorted(directory.to_arrow(where=f"id >= {BATCHES}")["id"].to_pylist()) == expected[BATCHES:]
    turns = len([*groupby(version.query_id for version in history)])
    assert turns > BATCHES // TOGETHER  # each process waits for the other, so their batches alternate
    per_batch = sum(map(Counter.total, requests)) / len(expected)
    record_property("turns", turns)
    record_property("requests_per_batch", per_batch)
    print(f"{len(expected)} batches in {turns} turns, {per_batch:.1f} requests each: {requests}")
