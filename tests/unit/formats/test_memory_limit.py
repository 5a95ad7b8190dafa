"""Rows are decoded within a limit of the memory of the process, which ends with the decoder."""

from __future__ import annotations

import resource
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftfile.core.errors import CorruptData
from ftfile.formats.api import format_from_options
from ftfile.formats.reading import memory_limit
from tests.hostile.watched import data_bytes
from tests.kit.forks import Fork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.record_batch({"a": [1]})


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "is_worker", lambda: True)


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_the_limit_is_that_of_the_decoder_alone() -> None:
    before, within = limit(), []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            within.append(limit())
            yield ROWS

    between = [limit() for _ in memory_limit.limit_batches(batches(), 1 << 20, "a")]
    assert between == [before] * 2
    assert limit() == before
    for one in within:
        assert abs(one - data_bytes() - memory_limit.MEMORY_BYTES - (memory_limit.MEMORY_RATIO << 20)) < 64 << 20


def test_a_program_of_a_user_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "is_worker", lambda: False)
    before, within = limit(), []

    def batches() -> Iterator[pa.RecordBatch]:
        within.append(limit())
        yield ROWS

    assert list(memory_limit.limit_batches(batches(), 1 << 20, "a")) == [ROWS]
    assert within == [before]


@pytest.mark.parametrize("error", [MemoryError("b"), pa.ArrowMemoryError("b")])
def test_rows_that_take_more_are_damage(error: Exception) -> None:
    before = limit()

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise error

    rows = memory_limit.limit_batches(batches(), 0, "a/b")
    assert next(rows) is ROWS
    with pytest.raises(CorruptData, match=f"a/b.*{memory_limit.MEMORY_BYTES} bytes"):
        next(rows)
    assert limit() == before


def test_decoders_in_two_threads_have_what_is_theirs() -> None:
    before, is_begun, may_end, ends = limit(), threading.Event(), threading.Event(), []

    def slow() -> Iterator[pa.RecordBatch]:
        is_begun.set()
        may_end.wait(10)
        ends.append(limit())
        yield ROWS

    thread = threading.Thread(target=lambda: list(memory_limit.limit_batches(slow(), 1 << 30, "a")))
    thread.start()
    is_begun.wait(10)
    assert list(memory_limit.limit_batches(iter([ROWS]), 0, "b")) == [ROWS]
    may_end.set()
    thread.join()
    assert ends[0] not in {before, resource.RLIM_INFINITY}
    assert ends[0] > memory_limit.MEMORY_BYTES + (memory_limit.MEMORY_RATIO << 30)
    assert limit() == before


@pytest.mark.slow
def test_long_rows_come_in_small_batches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [bytes([number]) * (1 << 20) for number in range(200)]}), tmp_path / "a.parquet")
    with (tmp_path / "a.parquet").open("rb") as file:
        batches = list(format_from_options("parquet", {}).decode(file, pa.schema([("a", pa.binary())])))
    assert sum(batch.num_rows for batch in batches) == 200
    assert max(batch.num_rows for batch in batches) <= 128


def test_a_fork_during_a_decoder_of_another_thread_has_no_limit() -> None:
    before = limit()
    begun, may_end = threading.Event(), threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        begun.set()
        may_end.wait()
        yield ROWS

    def check() -> None:
        assert limit() == before
        assert list(memory_limit.limit_batches(iter([ROWS]), 1 << 20, "a")) == [ROWS]
        assert limit() == before

    thread = threading.Thread(target=lambda: list(memory_limit.limit_batches(batches(), 1 << 20, "a")))
    thread.start()
    begun.wait()
    try:
        assert limit() != before
        Fork(check).join()
    finally:
        may_end.set()
        thread.join()
    assert limit() == before
