"""The listener of `attach(spark)`, without a JVM: it compacts a store while its stream is idle, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile import kv
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import ReadOptions
from ftfile.spark import listener
from ftfile.spark.listener import WrittenPlace
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch

if TYPE_CHECKING:
    import pytest

PATH = "memory://idle-stores/store"
OPTIONS = {"keyColumns": "k", "merge": "n:sum", "buckets": "1", "flushIntervalCount": "4"}


def test_an_idle_stream_does_not_try_again_what_failed_too_often(caplog: pytest.LogCaptureFixture) -> None:
    MemoryFileSystem.drop("idle-stores")
    query = StoreBatch(PATH, {"k": "string", "n": "long"}, OPTIONS)
    for batch in range(8):
        query.run(batch, [[{"k": "a", "n": 2**62} if batch < 4 else {"k": "b", "n": 1}]])
    with kv.open(PATH) as store:
        assert store.stats().held_compactions == 1
    place = WrittenPlace(query.query_id, "ftkv", parse_options({"path": PATH}, ReadOptions), (), ())
    listener._tend(place, due_only=True)  # noqa: SLF001
    assert "tries again" not in caplog.text
    listener._tend(place, due_only=False)  # noqa: SLF001
    assert f"a compaction failed; ftfile.kv.compact({PATH!r}) tries again" in caplog.text
