"""Runs on a store where each call takes long are opened side by side, and not more at once than the store takes."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ftfile import kv
from ftfile.storage.calls import parallel
from ftfile.storage.registry import WrapperFileSystem, register, unregister
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.writing.options import forget_logs
from tests.unit.kv.stores import counting, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import Capabilities, InputFile

RUNS = 4
URL = "distant://store"
KEYS = [f"key-{number}" for number in range(40)]


class Distant(WrapperFileSystem):
    """Opens files once `together` files are requested."""

    together = threading.Barrier(1)

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem("distant"))

    def __reduce__(self) -> tuple[Callable[[], Distant], tuple[()]]:
        return Distant, ()

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, concurrency=2 * RUNS)

    def open(self, path: str) -> InputFile:
        self.together.wait(timeout=300)
        return self.inner.open(path)


@pytest.fixture(autouse=True)
def distant() -> Iterator[None]:
    register("distant", lambda _: Distant())
    yield
    forget_logs()
    MemoryFileSystem.drop("distant")
    unregister("distant")


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setattr(Distant, "together", threading.Barrier(count))


def test_a_job_opens_its_runs(together: Callable[[int], None]) -> None:
    query = counting(URL, buckets="1", flushIntervalCount=str(RUNS))
    for batch in range(RUNS):
        query.run(batch, [rows("a")])
    together(RUNS)
    query.run(RUNS, [[]])
    with kv.open(URL) as reader:
        assert len(reader.runs()) == 1


@pytest.mark.slow
def test_a_scan_opens_its_files(together: Callable[[int], None]) -> None:
    query = counting(URL, buckets=str(RUNS))
    query.run(0, [rows(*KEYS[task::RUNS]) for task in range(RUNS)])  # a file each, with runs of all buckets
    together(RUNS)
    assert sum(batch.num_rows for batch in kv.open(URL).scan()) == len(KEYS)


def test_calls_within_calls_share_threads() -> None:
    fs = Distant()

    def threads_within(_: int) -> set[int]:
        return set(parallel(fs, lambda _: threading.get_ident(), range(50))) - {threading.get_ident()}

    assert parallel(fs, threads_within, range(2 * RUNS)) == [set()] * 2 * RUNS
    assert all(1 <= len(found) <= 2 for found in parallel(fs, threads_within, range(RUNS)))
