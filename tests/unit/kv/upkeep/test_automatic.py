"""Automatic vacuum: after a commit, in a thread, once per interval; it never fails a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.kv.config import StoreConfig
from ftfile.kv.upkeep.automatic import forget_vacuums, vacuum_if_due
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.layout import record_path
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import spark_schema
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, rows_of

if TYPE_CHECKING:
    import threading

    from ftfile.testing.context import ManualClock
    from ftfile.testing.micro_batch import StoreBatch

HOUR_S = 3600


def write(query: StoreBatch, batch: int) -> None:
    query.run(batch, [[{"word": f"w{number}", "n": 1} for number in range(10)]])


def due(grace_s: float = 2 * HOUR_S, interval_s: float = HOUR_S) -> threading.Thread | None:
    log = CommitLog(open_filesystem(PATH))
    options = {"path": PATH, "keyColumns": "word", "grace": f"{grace_s}s", "vacuumInterval": f"{interval_s}s"}
    thread = vacuum_if_due(StoreConfig.from_options(options, spark_schema(COLUMNS)), log)
    if thread is not None:
        thread.join()
    return thread


def staged() -> int:
    fs = open_filesystem(PATH)
    return sum(len(fs.list(owner.path)) for owner in fs.list("_ftfile/staged"))


class TestInterval:
    def test_it_begins_with_the_store_and_each_vacuum(self, clock: ManualClock) -> None:
        write(counts(vacuumInterval="0s"), 0)
        assert due() is None
        clock.advance(HOUR_S)
        assert due() is not None
        assert due() is None
        clock.advance(HOUR_S)
        assert due() is not None

    @pytest.mark.slow
    def test_a_new_process_learns_it_from_the_log(self, clock: ManualClock) -> None:
        query = counts(vacuumInterval="0s", buckets="1", flushIntervalCount="2")
        for batch in range(3):
            write(query, batch)
        clock.advance(3 * HOUR_S)
        write(query, 3)
        assert due() is not None
        assert CommitLog(open_filesystem(PATH)).refresh().horizon_ms > 0
        forget_vacuums()
        assert due() is None

    def test_none(self, clock: ManualClock) -> None:
        write(counts(vacuumInterval="0s"), 0)
        clock.advance(99 * HOUR_S)
        assert due(interval_s=0) is None


class TestVacuum:
    @pytest.mark.slow
    def test_a_commit_starts_it_and_merged_runs_go_after_the_grace(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        threads: list[threading.Thread] = []
        start = vacuum_if_due

        def kept(*arguments: Any, **named: Any) -> None:
            if (thread := start(*arguments, **named)) is not None:
                thread.join()
                threads.append(thread)

        monkeypatch.setattr("ftfile.kv.writer.vacuum_if_due", kept)
        query = counts(buckets="1", flushIntervalCount="4", vacuumInterval="1h", grace="2h")
        for batch in range(4):
            write(query, batch)
        write(query, 4)  # merges the four
        before = staged()
        clock.advance(HOUR_S)
        write(query, 5)
        assert len(threads) == 1
        assert staged() == before + 1  # within the grace
        assert rows_of(PATH, 3) == {f"w{number}": 4 for number in range(10)}
        clock.advance(2 * HOUR_S)
        write(query, 6)
        assert len(threads) == 2
        assert staged() < before
        assert rows_of(PATH) == {f"w{number}": 7 for number in range(10)}

    def test_its_failure_is_only_logged(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("broken")

        write(counts(vacuumInterval="0s"), 0)
        clock.advance(HOUR_S)
        monkeypatch.setattr("ftfile.kv.upkeep.automatic.vacuum", fail)
        assert due() is not None
        assert "will be retried" in caplog.text
        clock.advance(HOUR_S)
        assert due() is not None

    def test_a_log_that_cannot_be_read_is_only_logged(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        write(counts(vacuumInterval="0s"), 0)
        clock.advance(HOUR_S)
        open_filesystem(PATH).put(record_path(0), b"torn")
        assert due() is None
        assert "cannot determine" in caplog.text
