"""Reading on, checkpoints, dead slots, the record format."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CommitOutcomeUnknown, CorruptData, NotFound
from ftfile.log import checkpoints
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint, list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    Fingerprint,
    Job,
    MaintenanceAuthor,
    Origin,
    Record,
    Remove,
    SourceRange,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.record import decode_record, encode_record
from ftfile.log.policy import find_record
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from tests.unit.log.conftest import Driver, rows
from tests.unit.log.plans import FILES_PLAN

if TYPE_CHECKING:
    from ftfile.log.format.model import Author
    from ftfile.storage.api import FileSystem

SEGMENT = Add(
    id="s1",
    kind="segment",
    path="_ftfile/staged/q/0/a.spool",
    final_path=None,
    length=10,
    logical_length=20,
    checksum="crc32:00000000",
    rows=3,
    directory_key="a=1",
    encoding="e",
    origin=Origin("q", 0, 4),
    offset=100,
    filters=("zstd", "aead"),
)
PART = structs.replace(
    SEGMENT, id="p1", kind="part", final_path="a=1/p", offset=0, ranges=(SourceRange("s1", "bytes", 0, 10),), filters=()
)


def _no_companion(path: str) -> bytes:
    raise AssertionError(path)


class TestRecordFormat:
    @pytest.mark.parametrize(
        "author",
        [
            StreamAuthor("q", "r", 3, "sha256:1", [{"0": 5}, None]),
            StreamAuthor("q", "r", 3),
            BatchWriteAuthor("j"),
            BatchWriteAuthor("j", Transaction("a", 7)),
            MaintenanceAuthor("compact", "j"),
        ],
    )
    def test_round_trip(self, author: Author) -> None:
        record = Record(
            version=4,
            nonce="n",
            author=author,
            time_ms=5,
            adds=(SEGMENT, PART),
            removes=(Remove.of(PART), Remove.of(SEGMENT)),
            overwrite=True,
            jobs=(
                Job(
                    "d",
                    "size",
                    (SEGMENT, structs.replace(SEGMENT, id="s2", skip_rows=3, rolling_stats={"ms": 7})),
                    2,
                    FILES_PLAN,
                ),
            ),
            settings="set",
            tasks=8,
            lineage_start=3,
            horizon_ms=99,
            schema="sch",
            encoding="enc",
            definitions={"sch": "x"},
            fingerprint=Fingerprint("k", "d", covers_content=True),
            metrics={"any": [1, "\n\u2028é"]},
        )
        encoded = encode_record(record)
        assert encoded.companion is None
        assert decode_record(encoded.content, "path", _no_companion) == record

    def test_a_large_record_keeps_its_adds_in_a_companion(self, monkeypatch: pytest.MonkeyPatch) -> None:
        record = Record(0, "n", BatchWriteAuthor("j"), 0, adds=(PART,))
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 10)
        encoded = encode_record(record)
        companion = encoded.companion
        assert companion is not None
        assert b"p1" not in encoded.content
        path = layout.companion_path(0, "n")
        assert decode_record(encoded.content, "path", {path: companion}.__getitem__) == record
        for damaged in (companion[:-1], companion.replace(b"p1", b"p2")):
            with pytest.raises(CorruptData, match=path):
                decode_record(encoded.content, "path", {path: damaged}.__getitem__)

    @pytest.mark.slow
    def test_every_damaged_byte_and_every_truncation_is_detected(self) -> None:
        content = encode_record(Record(0, "n", BatchWriteAuthor("j"), 0, adds=(PART,))).content
        for position in range(len(content)):
            damaged = bytearray(content)
            damaged[position] ^= 1
            for broken in (bytes(damaged), content[:position]):
                with pytest.raises(CorruptData, match="path"):
                    decode_record(broken, "path", _no_companion)

    def test_a_later_format_is_refused(self) -> None:
        from ftfile.log.format.record import to_checked_text

        with pytest.raises(CorruptData, match="newer version of ftfile"):
            decode_record(to_checked_text([b'{"ftfile":2}', b"{}"]), "path", _no_companion)


def test_large_batches_go_through_the_log(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    adds = tuple(driver.stage(0) for _ in range(40))
    record = Record(0, "n", driver.author(0), 0, adds=adds)
    driver.log.prepare_directory()
    monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 100)
    assert driver.log.create(record)
    assert driver.log.read_record(0) == record
    assert driver.fs.exists(layout.companion_path(0, "n"))


class TestCheckpoints:
    def test_round_trip(self, driver: Driver) -> None:
        driver.commit_new(0, offsets_hash="h", definitions={"e": "1"}, schema="e", tasks=2)
        add = driver.stage(5)
        segment = structs.replace(SEGMENT, id="live")
        driver.create_record(
            adds=(add, segment),
            jobs=(Job("d", "size", (segment,), payload=FILES_PLAN),),
            horizon_ms=5,
            tasks=3,
        )
        driver.create_record(author=BatchWriteAuthor("j", Transaction("app", 3)), removes=(Remove.of(add),))
        state = CommitLog(driver.fs).refresh()
        assert decode_checkpoint(encode_checkpoint(state), "path") == state
        assert set(state.segments) == {"live"}
        assert state.removed == {add.id: 2}

    def test_a_checkpoint_stands_for_all_records_up_to_it(self, driver: Driver) -> None:
        for batch in range(3):
            driver.commit_new(batch)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        for version in range(2):
            driver.fs.delete(layout.record_path(version))
        driver.restart()
        assert driver.log.refresh().queries["query-1"].last_batch == 2
        assert driver.commit(2, driver.stage(2)).replayed
        driver.commit_new(3)
        assert driver.log.refresh().version == 3

    def test_it_lists_what_is_not_published_and_roll_forward_starts_there(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        driver.create_record(author=BatchWriteAuthor("j"))
        write_checkpoint(driver.fs, SYSTEM.ids, CommitLog(driver.fs).refresh())
        driver.fs.delete(layout.record_path(0))
        driver.restart()
        driver.commit_new(1)
        assert add.final_path in driver.visible()

    def test_a_cache_older_than_the_newest_checkpoint_starts_over_from_it(self, driver: Driver) -> None:
        """The records in between are deleted, and a delayed committer created one of them again."""
        driver.commit_new(0)
        stale = CommitLog(driver.fs)
        stale.refresh()
        driver.commit_new(1)
        driver.commit_new(2)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        driver.fs.delete(layout.record_path(1))
        assert stale.refresh().version == 2
        stale = CommitLog(driver.fs, start=replace(driver.log.refresh().view(), version=0, nonce="gone"))
        assert stale.refresh().version == 2

    def test_a_record_in_a_dead_slot_publishes_nothing_and_starts_over(self, driver: Driver) -> None:
        driver.commit_new(0)
        add = driver.stage(1)
        theirs: list[Add] = []

        class Sleepy(WrapperFileSystem):
            """Pauses before it creates its record, while other writers commit and delete the old records."""

            slept = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path == layout.record_path(1) and not self.slept:
                    self.slept = True
                    others = type(driver)(driver.fs, "query-2").with_policy(on_new_query="continue")
                    theirs.extend(others.commit_new(batch) for batch in range(3))
                    write_checkpoint(driver.fs, SYSTEM.ids, others.log.refresh())
                    for version in range(3):
                        driver.fs.delete(layout.record_path(version))
                super().create_exclusive(path, content)

        done = driver.commit(1, add, log=CommitLog(Sleepy(driver.fs)))
        assert done.version == 4
        assert {a.final_path for a in [add, *theirs]} < driver.visible()

    def passed_long_ago(self, driver: Driver) -> FileSystem:
        """Return a storage system on which the log is at version 500 as soon as somebody creates version 1."""
        driver.commit_new(0)
        state = replace(driver.log.refresh(), version=500, nonce="x", recent=((500, "x"),))
        record = Record(500, "x", MaintenanceAuthor("test", "x"), 0)

        class Sleepy(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path == layout.record_path(1):
                    super().create_exclusive(layout.record_path(500), encode_record(record).content)
                    write_checkpoint(driver.fs, SYSTEM.ids, state)
                super().create_exclusive(path, content)

        return Sleepy(driver.fs)

    def test_of_a_job_whose_slot_was_passed_long_ago_nothing_is_claimed(self, driver: Driver) -> None:
        log = CommitLog(self.passed_long_ago(driver))
        with pytest.raises(CommitOutcomeUnknown, match="history"):
            driver.commit_as(BatchWriteAuthor("j"), adds=(driver.stage(1),), log=log)

    def test_a_transaction_whose_slot_was_passed_long_ago_is_looked_for_and_made_again(self, driver: Driver) -> None:
        log = CommitLog(self.passed_long_ago(driver))
        author = BatchWriteAuthor("j", Transaction("app", 1))
        fingerprint = rows()
        assert driver.commit_as(author, adds=(driver.stage(1),), fingerprint=fingerprint, log=log).version == 501
        assert driver.commit_as(author, adds=(driver.stage(1),), fingerprint=fingerprint, log=log).replayed

    def test_checkpoints_are_written_now_and_then_and_old_ones_dropped(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 8 * checkpoints.RECORD_COST_BYTES)
        for batch in range(29):
            driver.commit(batch)
        assert sorted(name.version for name in checkpoints.list_checkpoints(driver.fs)) == [15, 23]

    def test_a_checkpoint_replaced_while_it_is_opened_is_looked_for_again(self, driver: Driver) -> None:
        driver.commit_new(0)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())

        class Racing(WrapperFileSystem):
            raced = False

            def read(self, path: str, bytes_max: int | None = None) -> bytes:
                if path.endswith(".checkpoint") and not self.raced:
                    self.raced = True
                    driver.commit_new(1)
                    write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
                    driver.fs.delete(path)
                return super().read(path, bytes_max)

        assert CommitLog(Racing(driver.fs)).refresh().version == 1

    def test_a_damaged_checkpoint_is_as_good_as_none(self, driver: Driver) -> None:
        driver.commit_new(0)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        (name,) = list_checkpoints(driver.fs)
        driver.fs.put(layout.log_checkpoint_path(name), b"{}\n")
        driver.restart()
        assert driver.log.refresh().version == 0
        driver.commit_new(1)
        driver.fs.delete(layout.record_path(0))
        driver.restart()
        with pytest.raises(CorruptData, match="no record, although version 1 exists"):
            driver.log.refresh()


class TestCache:
    def test_a_directory_that_was_replaced_is_read_anew(self, driver: Driver) -> None:
        driver.commit_new(0)
        driver.commit_new(1)
        for info in driver.fs.list(layout.LOG):
            driver.fs.delete(info.path)
        driver.fs.delete(layout.PUBLISHED_HINT)
        assert driver.log.refresh().version == -1
        driver.create_record(author=MaintenanceAuthor("test", "other"))
        driver.create_record(author=MaintenanceAuthor("test", "other2"))
        assert driver.log.refresh().queries == {}

    @pytest.mark.slow
    def test_a_view_is_small_and_answers_for_its_queries(self, driver: Driver) -> None:
        driver.with_policy(on_new_query="continue")
        other = CommitLog(driver.fs)
        for number in range(300):
            driver.create_record(other, author=StreamAuthor(f"{number:036d}", "r", 0), lineage_start=0)
        view = driver.log.refresh().view()
        assert len(pickle.dumps(view)) < 64 * 1024
        driver.create_record(author=StreamAuthor(f"{299:036d}", "r", 1))
        seen = CommitLog(driver.fs, start=view).refresh()
        assert seen.has(StreamAuthor(f"{299:036d}", "r", 1))
        assert not seen.has(StreamAuthor(f"{299:036d}", "r", 2))

    def test_find_record_reads_back(self, driver: Driver) -> None:
        for batch in range(3):
            driver.commit_new(batch)
        found = find_record(driver.log, driver.log.refresh(), StreamAuthor("query-1", "r", 1))
        assert found is not None
        assert found.version == 1
        assert find_record(driver.log, driver.log.refresh(), StreamAuthor("query-1", "r", 9)) is None
        assert find_record(driver.log, driver.log.refresh(), StreamAuthor("nobody", "r", 0)) is None


def test_a_first_record_survives_a_power_cut() -> None:
    fs = CrashingFileSystem()
    Driver(fs).create_record()
    fs.note("created")
    states = [state for state in crash_states(fs) if state.notes]
    assert states
    assert {CommitLog(state.filesystem()).refresh().version for state in states} == {0}


def test_a_missing_directory_is_an_empty_log(driver: Driver) -> None:
    assert driver.log.refresh().version == -1
    with pytest.raises(NotFound):
        driver.log.check_layout()
