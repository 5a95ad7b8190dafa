"""The conditions of a record: checked, and checked again when another took the version; old batches; large ones."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import (
    CorruptData,
    NameCollision,
    OutcomeUnknown,
    PermissionDenied,
    ReplayMismatch,
    SchemaError,
    UnknownQuery,
)
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.checks import Rewrite
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Body, MaintenanceAuthor, Record, Remove, StreamAuthor, Transaction
from ftfile.log.format.record import encode_record
from ftfile.log.policy import find_record
from ftfile.log.protocol import Committed, commit
from ftfile.log.read.snapshot import Snapshot, snapshot_at
from ftfile.log.state import SharedMap
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.format.model import Fingerprint
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from tests.unit.log.conftest import Driver


class Rival(WrapperFileSystem):
    """Lets somebody else create a record just before the first one is created here."""

    def __init__(self, inner: FileSystem, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._act: Callable[[], object] | None = act

    def create_exclusive(self, path: str, content: bytes) -> None:
        if path.endswith(".record") and self._act is not None:
            act, self._act = self._act, None
            act()
        super().create_exclusive(path, content)


class TestCheckedAgain:
    """Against the head that another's record made."""

    def test_lineage(self, driver: Driver) -> None:
        add = driver.stage(0)
        log = CommitLog(
            Rival(driver.fs, lambda: driver.create_record(author=StreamAuthor("query-2", "r", 0), lineage_start=0))
        )
        with pytest.raises(UnknownQuery, match="query-2"):
            driver.commit(0, add, log=log)
        assert driver.log.refresh().version == 0
        assert driver.fs.exists(add.path)

    def test_the_objections_of_who_writes(self, driver: Driver) -> None:
        def object_to_any(head: LogState, _: object) -> Body:
            asked.append(head.version)
            if head.version >= 0:
                raise SchemaError("not after that")
            return Body()

        asked: list[int] = []
        log = CommitLog(Rival(driver.fs, lambda: driver.create_record(author=MaintenanceAuthor("test", "rival"))))
        with pytest.raises(SchemaError, match="not after that"):
            commit(log, driver.author(0), object_to_any)
        assert asked == [-1, 0]
        assert driver.log.refresh().version == 0

    def test_rewrites(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        theirs, ours, add = driver.stage(0), driver.stage(0), driver.stage(1)
        removes = (Remove.of(old),)
        log = CommitLog(
            Rival(
                driver.fs,
                lambda: driver.create_record(
                    author=MaintenanceAuthor("compact", "rival"), adds=(theirs,), removes=removes
                ),
            )
        )
        rewrite = Rewrite((old,), (ours,), read_version=0)
        assert driver.commit(1, add, rewrites=(rewrite,), log=log) == Committed(2, replayed=False)
        assert driver.visible() == {theirs.final_path, add.final_path}
        assert driver.fs.exists(ours.path)


class TestPrepare:
    def test_a_batch_that_only_adds_reads_no_snapshot(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(log: CommitLog, head: LogState) -> Snapshot:
            taken.append(head.version)
            return snapshot_at(log, head)

        taken: list[int] = []
        monkeypatch.setattr("ftfile.log.protocol.snapshot_at", read)
        driver.commit_new(0)
        assert taken == []
        driver.commit(1, driver.stage(1), overwrite=True)
        assert taken == [0]

    def test_nothing_to_record_leaves_the_log_as_it_is(self, driver: Driver) -> None:
        driver.commit_new(0)
        assert commit(driver.log, BatchWriteAuthor("j"), lambda *_: None) == Committed(0, replayed=False)
        assert driver.log.refresh().version == 0

    def test_the_protocol_checks_the_adds_of_every_caller(self, driver: Driver) -> None:
        lost, taken = driver.stage(0), driver.stage(0, name="taken")
        driver.fs.delete(lost.path)
        driver.fs.create_exclusive("taken", b"foreign")
        for add, error in ((lost, CorruptData), (taken, NameCollision)):
            with pytest.raises(error):
                commit(driver.log, BatchWriteAuthor("j"), lambda *_, add=add: Body(adds=(add,)))
        assert driver.log.refresh().version == -1


class TestReplay:
    @pytest.mark.parametrize(("recorded", "found"), [("h", None), (None, "h")])
    def test_offsets_known_on_one_side_leave_it_to_the_content(
        self, driver: Driver, recorded: str | None, found: str | None
    ) -> None:
        driver.commit_new(0, offsets_hash=recorded)
        assert driver.commit(0, driver.stage(0), offsets_hash=found).replayed
        with pytest.raises(ReplayMismatch):
            driver.commit(0, driver.stage(0), offsets_hash=found, digest="other")


class TestOldBatches:
    def test_a_batch_that_was_left_out_has_no_record(self, driver: Driver) -> None:
        """It is before the query's last and counts as found: the rows of the batch before it prove nothing."""
        driver.with_policy(on_gap="accept")
        for batch in (0, 5, 6):
            driver.commit_new(batch)
        with pytest.raises(ReplayMismatch):
            driver.commit(3, driver.stage(3))
        assert driver.log.refresh().version == 2

    def test_records_behind_a_checkpoint_decide_nothing(self, driver: Driver) -> None:
        """Its slot was emptied, and a committer that was left behind created another record in it: a dead one."""
        for batch in range(3):
            driver.commit_new(batch, digest=str(batch))
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=2)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        dead = Record(1, "dead", driver.author(1), 0, fingerprint=rows("dead"))
        driver.fs.delete(layout.record_path(1))
        driver.fs.create_exclusive(layout.record_path(1), encode_record(dead).content)
        driver.restart()
        with pytest.raises(ReplayMismatch, match="is older than that run"):
            driver.commit(1, driver.stage(1), digest="dead")

    @pytest.mark.slow
    def test_a_record_behind_a_checkpoint_is_found_while_it_is_kept(self, driver: Driver) -> None:
        for batch in range(6):
            driver.commit_new(batch, digest=str(batch))
            driver.create_record(author=MaintenanceAuthor("test", "x"))
            write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        driver.restart()
        for batch in range(6):
            found = find_record(driver.log, driver.log.refresh(), StreamAuthor("query-1", "r", batch))
            assert found is not None
            assert found.version == 2 * batch
            assert driver.commit(batch, driver.stage(batch), digest=str(batch)).replayed
            if batch < 5:
                with pytest.raises(ReplayMismatch, match="another history"):
                    driver.commit(batch, driver.stage(batch), digest="other")

    @parametrize("others", [(0,), (3,), (0, 4, 1), (5, 0, 0, 2), (0, 0, 0, 0, 0, 9)], ids=str, quick=1)
    def test_each_is_found_among_records_of_others(self, driver: Driver, others: tuple[int, ...]) -> None:
        """A batch number gives a record's version only if the same number of other records precedes each batch."""
        numbers, versions = itertools.count(), []
        for batch in range(14):
            for number in itertools.islice(numbers, others[batch % len(others)]):
                kinds = MaintenanceAuthor("x", "y"), BatchWriteAuthor("z", Transaction("query-1", number))
                driver.create_record(author=kinds[number % 2])
            versions.append(driver.create_record(author=driver.author(batch)).version)
        head = driver.log.refresh()
        found = [find_record(driver.log, head, driver.author(batch)) for batch in range(14)]
        assert [record and record.version for record in found] == versions
        assert find_record(driver.log, head, driver.author(14)) is None

    def test_offsets_decide_for_them_too(self, driver: Driver) -> None:
        for batch in range(3):
            driver.commit_new(batch, digest=str(batch), offsets_hash=str(batch))
        assert driver.commit(1, driver.stage(1), digest="other", offsets_hash="1").replayed
        with pytest.raises(ReplayMismatch, match="offsets"):
            driver.commit(1, driver.stage(1), digest="1", offsets_hash="other")

    def test_a_version_before_the_last_is_compared_with_its_own_record(self, driver: Driver) -> None:
        for version in range(3):
            driver.commit_new(0, author=BatchWriteAuthor("job", Transaction("app", version)), digest=str(version))
        again = BatchWriteAuthor("again", Transaction("app", 1))
        assert driver.commit(0, driver.stage(0), author=again, digest="1").replayed
        with pytest.raises(ReplayMismatch):
            driver.commit(0, driver.stage(0), author=again, digest="2")

    @pytest.mark.parametrize(
        ("then", "now"), [(None, rows()), (rows(), None), (None, None)], ids=["then", "now", "ever"]
    )
    def test_without_a_fingerprint_nothing_is_proven(
        self, driver: Driver, then: Fingerprint | None, now: Fingerprint | None
    ) -> None:
        driver.commit(0, driver.stage(0), fingerprint=then)
        with pytest.raises(ReplayMismatch):
            driver.commit(0, driver.stage(0), fingerprint=now)

    def test_one_that_a_vacuum_lets_go_meanwhile_is_none(self, driver: Driver) -> None:
        for batch in range(3):
            driver.commit_new(batch)
        head = driver.log.refresh()
        assert find_record(driver.log, head, driver.author(0)) is not None
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=2)
        assert find_record(driver.log, head, driver.author(0)) is None

    def test_a_run_that_was_overtaken_is_told_so(self, driver: Driver) -> None:
        """A zombie retries a batch whose record is deleted."""
        for batch in range(4):
            driver.commit_new(batch, offsets_hash=str(batch))
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), log_start=3)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        for version in range(3):
            driver.fs.delete(layout.record_path(version))
        driver.restart()
        add = driver.stage(1)
        with pytest.raises(ReplayMismatch) as told:
            driver.commit(1, add, author=driver.author(1, "1", run_id="run-0"))
        for text in (
            "batch 1 of query query-1 was committed, but the log no longer contains its record",
            "run run-1 of the query continued to batch 3, version 3",
            "If this run, run-0, is older than that run, stop it",
        ):
            assert text in str(told.value)
        assert "another history" not in str(told.value)
        driver.with_policy(on_replay_mismatch="keep")
        assert driver.commit(1, add, offsets_hash="1").replayed

    def test_a_rewrite_of_what_was_live_too_long_ago_is_dropped(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        driver.commit(1, overwrite=True)
        write_checkpoint(driver.fs, SYSTEM.ids, replace(driver.log.refresh(), removed=SharedMap(), removed_since=2))
        driver.restart()
        driver.commit(2, rewrites=(Rewrite((old,), (driver.stage(2),), read_version=0),))
        assert driver.visible() == set()


@pytest.fixture
def _all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 100)


@pytest.mark.usefixtures("_all_are_large")
class TestLargeRecords:
    def test_their_adds_are_there_before_they_are(self, driver: Driver) -> None:
        add = driver.stage(0)
        denied = Fault(PermissionDenied, operations=frozenset({"create_exclusive"}), path="*.changes")
        with pytest.raises(PermissionDenied):
            driver.commit(0, add, log=CommitLog(FaultyFileSystem(driver.fs, [denied])))
        assert driver.log.refresh().version == -1
        driver.commit(0, add)
        assert driver.visible() == {add.final_path}

    def test_a_lost_reply_of_their_adds_is_settled(self, driver: Driver) -> None:
        lost = Fault(OutcomeUnknown, "after", operations=frozenset({"create_exclusive"}), path="*.changes")
        log = CommitLog(FaultyFileSystem(driver.fs, [lost]))
        assert driver.commit(0, driver.stage(0), log=log) == Committed(0, replayed=False)
