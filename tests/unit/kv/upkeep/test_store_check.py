"""Each invariant of a store is noticed where it is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile import kv
from ftfile.kv.planning.runs import run_of
from ftfile.kv.run.pages import build_pages
from ftfile.log.apply import Fold
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import BatchWriteAuthor, Body, MaintenanceAuthor, Remove, Transaction
from ftfile.log.format.record import definition_key
from ftfile.log.protocol import commit, record_of
from ftfile.log.wal import Opening, set_opening
from ftfile.testing.checker import InvariantViolation, check_directory
from ftfile.testing.context import current, open_filesystem
from tests.kit.parameters import parametrize
from tests.kit.store_check import check_store
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.testing.micro_batch import StoreBatch


def write(query: StoreBatch, batch: int, words: str, **others: Any) -> None:
    query.run(batch, [[{"word": word, "n": 1, **others} for word in words]])


def record(make: Callable[[LogState], Body]) -> None:
    """Create a record that no writer would create."""
    commit(CommitLog(open_filesystem(PATH)), MaintenanceAuthor("compact", "broken"), lambda head, _: make(head))


def replaced(run: Add, **metadata: Any) -> Body:
    """Return the body that gives a run other metadata."""
    changed = run_of(run).with_metadata(replace(run_of(run).metadata, **metadata), id=f"broken-{run.id}")
    return Body(adds=(changed,), removes=(Remove.of(run),))


def runs(head: LogState) -> list[Add]:
    return sorted(head.segments.values(), key=lambda add: run_of(add).metadata.at)


def broken() -> str:
    fs = open_filesystem(PATH)
    with pytest.raises(InvariantViolation) as caught:
        check_store(fs)
    with pytest.raises(InvariantViolation) as after_another:
        check_store(fs, directory=check_directory(fs, rows_of=lambda _: ()))
    assert after_another.value.invariant == caught.value.invariant
    return caught.value.invariant


@pytest.fixture
def query() -> StoreBatch:
    query = counts(buckets="1", flushIntervalCount="1000")
    write(query, 0, "abcd")
    write(query, 1, "cdef")
    return query


@pytest.mark.usefixtures("query")
class TestBroken:
    @pytest.mark.slow
    def test_a_store_in_order(self) -> None:
        report = check_store(open_filesystem(PATH))
        assert report.rows == {("a",): (1,), ("b",): (1,), ("c",): (2,), ("d",): (2,), ("e",): (1,), ("f",): (1,)}
        assert check_store(open_filesystem(PATH), earlier=report).checked == {0, 1}
        again = check_store(open_filesystem(PATH), directory=report.directory)
        assert (again.rows, again.directory) == (report.rows, report.directory)

    def test_k1_runs_that_meet_at_one_place(self) -> None:
        record(lambda head: replaced(runs(head)[0], at=run_of(runs(head)[1]).metadata.at))
        assert broken() == "K1"

    @pytest.mark.slow
    def test_k2_metadata_that_is_not_that_of_the_rows(self) -> None:
        record(lambda head: replaced(runs(head)[0], keys=((b"a",), (b"x",))))
        assert broken() == "K2"

    @pytest.mark.slow
    def test_k2_another_bucket(self) -> None:
        kv.rebucket(PATH, 2, context=current())

        def swapped(head: LogState) -> Body:
            run = runs(head)[0]
            other = structs.replace(
                run, id="broken-1", directory_key="b=00001" if run.directory_key == "b=00000" else "b=00000"
            )
            return Body(adds=(other,), removes=tuple(map(Remove.of, runs(head))))

        record(swapped)
        assert broken() == "K2"

    @pytest.mark.slow
    def test_k3_pages_that_find_nothing(self, query: StoreBatch, monkeypatch: pytest.MonkeyPatch) -> None:
        empty = lambda *arguments: (0 * pages for pages in build_pages(*arguments))  # noqa: E731
        monkeypatch.setattr("ftfile.kv.run.writer.build_pages", empty)
        query.run(2, [[{"word": f"w{number}", "n": 1} for number in range(5000)]])
        assert broken() == "K3"

    @pytest.mark.slow
    def test_k4_a_purge_that_ends_more_than_its_range(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = __import__("ftfile.kv.upkeep.purge", fromlist=["_PurgeRuns"])
        prepare = module._PurgeRuns.prepare  # noqa: SLF001

        def too_much(self: Any, head: LogState, snapshot: Any) -> Body:
            body: Body = prepare(self, head, snapshot)
            return structs.replace(body, removes=(Remove.of(runs(head)[0]),))

        monkeypatch.setattr(module._PurgeRuns, "prepare", too_much)  # noqa: SLF001
        kv.purge(PATH, "e", context=current())
        assert broken() == "K4"

    @pytest.mark.slow
    def test_k5_a_delete_that_leaves_too_early(self, query: StoreBatch) -> None:
        query.columns = {**COLUMNS, "gone": "boolean"}
        query.options = {**query.options, "deleteColumn": "gone"}
        write(query, 2, "a", gone=True)
        assert ("a",) not in check_store(open_filesystem(PATH)).rows
        record(lambda head: Body(removes=(Remove.of(runs(head)[2]),)))
        assert broken() == "K5"

    def test_k6_rows_that_maintenance_loses(self) -> None:
        record(lambda head: Body(removes=(Remove.of(runs(head)[0]),)))
        assert broken() == "K6"

    def test_k7_another_definition(self) -> None:
        def other(head: LogState) -> Body:
            assert head.encoding is not None
            encoding = head.definitions[head.encoding]
            text = {**encoding, "store": {**encoding["store"], "buckets": 2}}
            return Body(encoding=definition_key(text), definitions={definition_key(text): text})

        record(other)
        assert broken() == "K7"

    @parametrize("opening", [(1, 1), (0, 0), (2, 0), (1, 0)], quick=1)
    def test_k8_an_opening_that_neither_fences_nor_takes_over(self, opening: tuple[int, int]) -> None:
        with kv.KeyValueStore(PATH, writer="w", maintenance="none", context=current()) as store:
            store.merge("a", 1)
            store.commit(3)
        check_store(open_filesystem(PATH))
        record(lambda _: Body(tables=set_opening("w", Opening(*opening, "id"))))
        assert broken() == "K8"

    @pytest.mark.slow
    def test_k10_a_run_of_level_1_that_is_newer_than_one_of_level_0(self) -> None:
        record(lambda head: replaced(runs(head)[0], level=1))
        check_store(open_filesystem(PATH))
        record(lambda head: replaced(runs(head)[1], level=1, at=run_of(runs(head)[1]).metadata.at))
        record(lambda head: replaced(runs(head)[0], level=0))
        assert broken() == "K10"

    def test_k2_another_number_of_deletes(self) -> None:
        record(lambda head: replaced(runs(head)[0], deletes=1))
        assert broken() == "K2"

    def test_a_window_that_comes_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with kv.KeyValueStore(PATH, writer="w", maintenance="none", context=current()) as store:
            store.merge("a", 1)
            store.commit(3)
            monkeypatch.setattr(Fold, "_check", lambda *_: None)
            log = CommitLog(open_filesystem(PATH))
            again = record_of(
                log, log.refresh(), Body(), BatchWriteAuthor("again", Transaction("w", 3)), log.ids.unique()
            )
            assert log.create(again) is not None
        assert broken() == "I2"
