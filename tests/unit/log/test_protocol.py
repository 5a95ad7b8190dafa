"""The protocol, clause by clause: each test fails when its clause is taken out."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from ftfile.core.context import SYSTEM
from ftfile.core.errors import (
    AlreadyExists,
    BatchGap,
    CommitOutcomeUnknown,
    ConfigError,
    CorruptData,
    InvalidMessages,
    MissingPart,
    NameCollision,
    NotPublished,
    OutcomeUnknown,
    PermissionDenied,
    ReplayMismatch,
    StaleFiles,
    Unavailable,
    UnknownQuery,
)
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.checks import Rewrite
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import (
    BatchWriteAuthor,
    Fingerprint,
    MaintenanceAuthor,
    Record,
    Remove,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.record import encode_record, to_checked_text
from ftfile.log.protocol import Committed
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.records import PublishedHint, read_published, write_published
from ftfile.storage.registry import WrapperFileSystem
from tests.unit.log.conftest import rows
from tests.wrappers import InContext

if TYPE_CHECKING:
    from ftfile.storage.api import FileInfo, FileSystem
    from tests.unit.log.conftest import Driver


class TestFirstCommit:
    def test_publishes_the_part_and_empties_the_stage(self, driver: Driver) -> None:
        add = driver.stage(0, b"a\nb\n")
        assert driver.commit(0, add) == Committed(0, replayed=False)
        assert driver.visible() == {add.final_path}
        assert driver.text(add.final_path or "") == b"a\nb\n"
        assert driver.fs.list(layout.staged_directory("query-1")) == []

    def test_an_empty_batch_is_a_record_too(self, driver: Driver) -> None:
        assert [driver.commit(batch).version for batch in range(3)] == [0, 1, 2]
        assert driver.log.refresh().queries["query-1"].last_batch == 2

    def test_record_holds_what_was_proposed(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.commit(0, add, offsets_hash="h", definitions={"text": {"x": 1}}, schema="text", metrics={"rows": 1})
        record = driver.log.read_record(0)
        assert record is not None
        assert record.adds == (add,)
        assert record.author == StreamAuthor("query-1", "run-1", 0, "h", None)
        assert (record.definitions, record.schema) == ({"text": {"x": 1}}, "text")
        assert (record.metrics["rows"], record.metrics.keys() - {"rows"}) == (1, {"prepareSeconds"})
        assert record.lineage_start == 0

    def test_definitions_are_written_once(self, driver: Driver) -> None:
        for batch in range(2):
            driver.commit(batch, definitions={"text": {"x": 1}})
        second = driver.log.read_record(1)
        assert second is not None
        assert second.definitions == {}

    def test_a_staged_file_of_another_length_is_refused(self, driver: Driver) -> None:
        add = structs.replace(driver.stage(0), length=3)
        with pytest.raises(CorruptData, match="4 bytes"):
            driver.commit(0, add)
        assert driver.log.read_record(0) is None

    def test_a_staged_file_that_is_gone_is_refused(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.fs.delete(add.path)
        with pytest.raises(CorruptData, match="no such file"):
            driver.commit(0, add)

    @pytest.mark.parametrize("text", ["ftfile directory, layout 2", "ftfile tree"])
    def test_a_directory_of_another_layout_is_refused(self, driver: Driver, text: str) -> None:
        driver.fs.make_directories(layout.DIRECTORY)
        driver.fs.create_exclusive(layout.FORMAT_FILE, to_checked_text([text.encode()]))
        with pytest.raises(ConfigError, match=f"format '{text}', .* install the version that wrote it, or a later one"):
            driver.commit(0)

    @pytest.mark.slow
    def test_a_layout_with_a_wrong_bit_is_never_another_one(self, driver: Driver) -> None:
        driver.log.prepare_directory()
        content = driver.fs.read(layout.FORMAT_FILE)
        for bit in range(8 * len(content)):
            wrong = bytearray(content)
            wrong[bit // 8] ^= 1 << bit % 8
            driver.fs.put(layout.FORMAT_FILE, bytes(wrong))
            with pytest.raises(CorruptData, match=r"ftfile\.repair\(path, dry_run=False\) quarantines it"):
                driver.log.check_layout()


class TestReplay:
    def test_equal_content_is_a_success_and_adds_nothing(self, driver: Driver) -> None:
        first = driver.commit_new(0)
        again = driver.stage(0)
        assert driver.commit(0, again) == Committed(0, replayed=True)
        assert driver.visible() == {first.final_path}

    def test_in_a_new_process(self, driver: Driver) -> None:
        driver.commit_new(0)
        driver.restart()
        assert driver.commit(0, driver.stage(0)).replayed

    def test_other_content_is_another_history(self, driver: Driver) -> None:
        first = driver.commit_new(0)
        with pytest.raises(ReplayMismatch, match="another history"):
            driver.commit(0, driver.stage(0), digest="other")
        assert driver.visible() == {first.final_path}

    def test_keep_keeps_what_is_recorded(self, driver: Driver) -> None:
        first = driver.commit_new(0)
        driver.with_policy(on_replay_mismatch="keep")
        assert driver.commit(0, driver.stage(0), digest="other").replayed
        assert driver.visible() == {first.final_path}

    def test_a_fingerprint_that_does_not_cover_content_proves_nothing(self, driver: Driver) -> None:
        fingerprint = structs.replace(rows(), covers_content=False)
        driver.commit(0, driver.stage(0), fingerprint=fingerprint)
        with pytest.raises(ReplayMismatch):
            driver.commit(0, driver.stage(0), fingerprint=fingerprint)

    def test_nor_does_one_that_covers_content_for_rows_recorded_without(self, driver: Driver) -> None:
        driver.commit(0, driver.stage(0), fingerprint=structs.replace(rows(), covers_content=False))
        with pytest.raises(ReplayMismatch):
            driver.commit(0, driver.stage(0), fingerprint=rows())

    def test_equal_offsets_accept_other_rows_with_a_warning(
        self, driver: Driver, caplog: pytest.LogCaptureFixture
    ) -> None:
        driver.commit_new(0, offsets_hash="h")
        assert driver.commit(0, driver.stage(0), digest="other", offsets_hash="h").replayed
        assert "not deterministic" in caplog.text

    def test_other_offsets_refuse_equal_rows(self, driver: Driver) -> None:
        driver.commit_new(0, offsets_hash="h")
        with pytest.raises(ReplayMismatch, match="offsets"):
            driver.commit(0, driver.stage(0), offsets_hash="another")

    def test_any_batch_up_to_the_last_counts_as_found(self, driver: Driver) -> None:
        for batch in range(3):
            driver.commit_new(batch, digest=str(batch))
        assert driver.commit(1, driver.stage(1), digest="1").replayed
        with pytest.raises(ReplayMismatch):
            driver.commit(1, driver.stage(1), digest="2")
        assert len(driver.visible()) == 3

    def test_a_replay_message_without_a_record_is_an_error(self, driver: Driver) -> None:
        with pytest.raises(InvalidMessages, match="no record"):
            driver.commit(0, task_found_batch=True)
        assert driver.log.read_record(0) is None

    def test_rolls_forward_to_the_head(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), fingerprint=rows(), lineage_start=0)
        assert driver.visible() == set()
        assert driver.commit(0, driver.stage(0)).replayed
        assert driver.visible() == {add.final_path}

    def test_a_record_found_is_made_durable_before_it_is_acted_on(self, driver: Driver) -> None:
        driver.commit_new(0)
        synced: list[str] = []

        class Watched(WrapperFileSystem):
            def sync_directory(self, path: str) -> None:
                synced.append(path)
                super().sync_directory(path)

        log = CommitLog(Watched(driver.fs))
        driver.commit(0, log=log)
        assert layout.LOG in synced

    def test_a_transaction_up_to_the_last_version_counts_as_found(self, driver: Driver) -> None:
        def write(version: int) -> Committed:
            author = BatchWriteAuthor(f"job{version}", Transaction("app", version))
            return driver.commit_as(author, adds=(driver.stage(0),), fingerprint=rows())

        assert [write(v).replayed for v in (2, 3, 3, 2, 4)] == [False, False, True, True, False]
        assert len(driver.visible()) == 3


class TestLineage:
    def test_a_new_query_among_others_is_refused(self, driver: Driver, fs: FileSystem) -> None:
        driver.commit_new(0)
        other = type(driver)(fs, "query-2")
        with pytest.raises(UnknownQuery, match="onNewQuery=continue"):
            other.commit(0, other.stage(0))
        other.with_policy(on_new_query="continue").commit_new(0)
        driver.commit_new(1)
        assert len(driver.visible()) == 3

    def test_batch_jobs_are_no_other_query(self, driver: Driver) -> None:
        driver.commit_as(BatchWriteAuthor("job"), adds=(driver.stage(0),))
        driver.commit_new(0)

    def test_a_first_batch_other_than_zero_is_a_gap(self, driver: Driver) -> None:
        with pytest.raises(BatchGap, match="expects batch 0"):
            driver.commit(7, driver.stage(7))
        driver.with_policy(on_gap="accept").commit_new(7)
        assert driver.log.refresh().queries["query-1"].lineage_start == 7

    def test_a_gap_is_refused_and_may_be_accepted(self, driver: Driver) -> None:
        driver.commit_new(0)
        with pytest.raises(BatchGap, match="expects batch 1"):
            driver.commit(2, driver.stage(2))
        driver.with_policy(on_gap="accept").commit_new(2)
        record = driver.log.read_record(1)
        assert record is not None
        assert record.lineage_start == 2


class LostReply(WrapperFileSystem):
    """Loses the reply of creating a record, once, after or before it took effect."""

    def __init__(self, inner: FileSystem, *, took_effect: bool, times: int = 1) -> None:
        super().__init__(inner)
        self.took_effect = took_effect
        self.times = times

    def create_exclusive(self, path: str, content: bytes) -> None:
        if path.endswith(".record") and self.times:
            self.times -= 1
            if self.took_effect:
                super().create_exclusive(path, content)
            raise OutcomeUnknown("create_exclusive", path, "no reply")
        super().create_exclusive(path, content)


class TestNonce:
    @pytest.mark.parametrize("took_effect", [True, False])
    def test_a_lost_reply_is_settled_by_looking(self, driver: Driver, *, took_effect: bool) -> None:
        add = driver.stage(0)
        log = CommitLog(LostReply(driver.fs, took_effect=took_effect))
        assert driver.commit(0, add, log=log) == Committed(0, replayed=False)
        assert driver.visible() == {add.final_path}
        assert driver.log.refresh().version == 0

    @pytest.mark.slow
    def test_no_answer_for_long_is_unknown_and_deletes_nothing(self, driver: Driver) -> None:
        add = driver.stage(0)
        log = CommitLog(InContext(LostReply(driver.fs, took_effect=False, times=99), clock=_NoWait()))
        with pytest.raises(CommitOutcomeUnknown, match="nothing was deleted"):
            driver.commit(0, add, log=log)
        assert driver.fs.exists(add.path)

    @pytest.mark.parametrize("took_effect", [True, False])
    def test_a_refusal_after_a_lost_reply_settles_nothing(self, driver: Driver, *, took_effect: bool) -> None:
        class Expiring(LostReply):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and not self.times:
                    raise PermissionDenied("create_exclusive", path, "the token expired")
                super().create_exclusive(path, content)

        add = driver.stage(0)
        log = CommitLog(InContext(Expiring(driver.fs, took_effect=took_effect), clock=_NoWait()))
        with pytest.raises(CommitOutcomeUnknown, match=r"is unknown whether version .* was created.*the token expired"):
            driver.commit_as(BatchWriteAuthor("j"), adds=(add,), log=log)
        assert driver.fs.exists(layout.record_path(0)) == took_effect
        assert driver.fs.exists(add.path)

    def test_a_refusal_at_once_is_certain(self, driver: Driver) -> None:
        class Denied(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record"):
                    raise PermissionDenied("create_exclusive", path, "no")
                super().create_exclusive(path, content)

        with pytest.raises(PermissionDenied):
            driver.commit(0, driver.stage(0), log=CommitLog(Denied(driver.fs)))

    def test_an_own_record_that_cannot_be_looked_at_leaves_the_outcome_open(self, driver: Driver) -> None:
        class Blind(LostReply):
            def read(self, path: str, bytes_max: int | None = None) -> bytes:
                if path == layout.record_path(0) and driver.fs.exists(path):
                    raise PermissionDenied("read", path, "the token expired")
                return super().read(path, bytes_max)

        log = CommitLog(InContext(Blind(driver.fs, took_effect=True), clock=_NoWait()))
        with pytest.raises(CommitOutcomeUnknown, match=r"is unknown whether version .* was created.*the token expired"):
            driver.commit_as(BatchWriteAuthor("j"), adds=(driver.stage(0),), log=log)

    def test_something_that_is_no_record_in_its_place_is_an_error(self, driver: Driver) -> None:
        driver.commit_new(0)
        driver.fs.make_directories(layout.record_path(1))
        with pytest.raises(CorruptData, match="Move it away"):
            driver.commit(1, driver.stage(1))

    def test_a_version_taken_by_another_leads_to_the_next(self, driver: Driver) -> None:
        add = driver.stage(0)

        class Rival(WrapperFileSystem):
            beaten = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and not self.beaten:
                    self.beaten = True
                    driver.create_record(author=MaintenanceAuthor("test", "rival"))
                super().create_exclusive(path, content)

        assert driver.commit(0, add, log=CommitLog(Rival(driver.fs))).version == 1

    def test_the_same_batch_by_another_driver_is_found_after_the_race(self, driver: Driver) -> None:
        add, theirs = driver.stage(0), driver.stage(0)

        class Rival(WrapperFileSystem):
            beaten = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and not self.beaten:
                    self.beaten = True
                    driver.create_record(author=driver.author(0), adds=(theirs,), fingerprint=rows())
                super().create_exclusive(path, content)

        assert driver.commit(0, add, log=CommitLog(Rival(driver.fs))) == Committed(0, replayed=True)
        assert driver.visible() == {theirs.final_path}


class _NoWait:
    def __init__(self) -> None:
        self.passed_s = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


class TestHorizon:
    def test_files_not_younger_are_refused_by_the_storages_time(self, driver: Driver) -> None:
        add = driver.stage(0)
        modified_ms = driver.fs.stat(add.path).modified_ms
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), horizon_ms=modified_ms)
        with pytest.raises(StaleFiles, match="longer retention"):
            driver.commit(0, add)
        full = f"{driver.root}/{add.path}"
        os.utime(full, ns=(0, (modified_ms + 1) * 1_000_000))
        driver.commit(0, add)

    def test_holds_at_the_head_that_is_prepared_on(self, driver: Driver) -> None:
        """A horizon that appears between the first look and the record is seen by the second try."""
        add = driver.stage(0)

        class Vacuum(WrapperFileSystem):
            ran = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and not self.ran:
                    self.ran = True
                    driver.create_record(author=MaintenanceAuthor("vacuum", "v"), horizon_ms=2**60)
                super().create_exclusive(path, content)

        with pytest.raises(StaleFiles):
            driver.commit(0, add, log=CommitLog(Vacuum(driver.fs)))
        assert driver.log.refresh().version == 0

    def test_a_rewrite_that_is_too_old_is_dropped_and_the_batch_goes_on(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        rewritten = driver.stage(0)
        driver.create_record(
            author=MaintenanceAuthor("vacuum", "v"), horizon_ms=driver.fs.stat(rewritten.path).modified_ms
        )
        add = driver.stage(1)
        full = f"{driver.root}/{add.path}"
        os.utime(full, ns=(0, 2**61))
        driver.commit(1, add, rewrites=(Rewrite((old,), (rewritten,), read_version=0),))
        assert driver.visible() == {old.final_path, add.final_path}


class TestRewrites:
    def test_replaces_and_retires(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        new = driver.stage(0)
        driver.commit(1, rewrites=(Rewrite((old,), (new,), read_version=0),))
        assert driver.visible() == {new.final_path}
        assert driver.fs.exists(layout.retired_path(old.id))
        assert set(take_snapshot(driver.log).adds) == {new.id}
        assert set(take_snapshot(driver.log, 0).adds) == {old.id}

    def test_inputs_no_longer_live_drop_the_rewrite_and_delete_nothing(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        first, second, add = driver.stage(0), driver.stage(0), driver.stage(2)
        driver.commit(1, rewrites=(Rewrite((old,), (first,), read_version=0),))
        driver.commit(2, add, rewrites=(Rewrite((old,), (second,), read_version=0),))
        assert driver.visible() == {first.final_path, add.final_path}
        assert driver.fs.exists(second.path)

    def test_what_is_left_of_a_live_segment_may_be_older_than_the_horizon(self, driver: Driver) -> None:
        segment = structs.replace(driver.stage(0, b"row\nrow\n"), kind="segment", final_path=None)
        driver.commit(0, segment)
        horizon_ms = driver.fs.stat(segment.path).modified_ms
        driver.create_record(author=MaintenanceAuthor("vacuum", "v"), horizon_ms=horizon_ms)
        rest = structs.replace(segment, id="rest", offset=4, length=4)
        time.sleep(0.01)
        part = driver.stage(1)
        driver.commit(1, rewrites=(Rewrite((segment,), (part, rest), read_version=0),))
        assert set(take_snapshot(driver.log).adds) == {part.id, "rest"}

    def test_inputs_claimed_twice_in_one_record_are_taken_once(self, driver: Driver) -> None:
        old = driver.commit_new(0)
        first, second = driver.stage(0), driver.stage(0)
        driver.commit(
            1, rewrites=(Rewrite((old,), (first,), read_version=0), Rewrite((old,), (second,), read_version=0))
        )
        assert driver.visible() == {first.final_path}

    def test_overwrite_replaces_segments_as_well(self, driver: Driver) -> None:
        segment = structs.replace(driver.stage(0), kind="segment", final_path=None)
        driver.commit(0, segment)
        driver.commit(1, driver.stage(1), overwrite=True)
        assert driver.log.refresh().segments == {}
        assert segment.id not in take_snapshot(driver.log).adds

    def test_overwrite_replaces_what_is_live_at_the_head_it_is_created_on(self, driver: Driver) -> None:
        driver.commit_new(0)
        new = driver.stage(1)
        late = driver.stage(9)

        class Rival(WrapperFileSystem):
            beaten = False

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and not self.beaten:
                    self.beaten = True
                    driver.create_record(author=BatchWriteAuthor("late"), adds=(late,))
                super().create_exclusive(path, content)

        driver.commit(1, new, overwrite=True, log=CommitLog(Rival(driver.fs)))
        assert driver.visible() == {new.final_path}
        assert set(take_snapshot(driver.log).adds) == {new.id}


class TestPublish:
    def test_earlier_records_are_published_before_a_new_one_is_created(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        seen: list[set[str]] = []

        class Watched(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record"):
                    seen.append(driver.visible())
                super().create_exclusive(path, content)

        driver.commit(1, driver.stage(1), log=CommitLog(Watched(driver.fs)))
        assert seen == [{add.final_path}]

    def test_also_when_the_first_try_loses_its_version(self, driver: Driver) -> None:
        theirs = driver.stage(5)
        seen: list[set[str]] = []

        class Rival(WrapperFileSystem):
            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record"):
                    seen.append(driver.visible())
                    if len(seen) == 1:
                        driver.create_record(author=BatchWriteAuthor("rival"), adds=(theirs,))
                super().create_exclusive(path, content)

        driver.commit(0, driver.stage(0), log=CommitLog(Rival(driver.fs)))
        assert seen == [set(), {theirs.final_path}]

    def test_a_collision_names_both_and_is_an_error_at_every_start(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.fs.create_exclusive(add.final_path or "", b"foreign")
        for _ in range(2):
            driver.restart()
            with pytest.raises(NameCollision, match=f"{add.path}.*{add.final_path}"):
                driver.commit(0, add)
        assert driver.text(add.final_path or "") == b"foreign"
        assert driver.text(add.path) == b"row\n"
        driver.fs.delete(add.final_path or "")
        driver.restart()
        driver.commit(0)
        assert driver.text(add.final_path or "") == b"row\n"

    def test_a_collision_does_not_keep_the_batchs_other_parts_back(self, driver: Driver) -> None:
        blocked, free = driver.stage(0), driver.stage(0)
        driver.fs.create_exclusive(blocked.final_path or "", b"foreign")
        with pytest.raises(NameCollision):
            driver.commit(0, blocked, free)
        assert free.final_path in driver.visible()

    def test_anothers_collision_is_a_warning(
        self, driver: Driver, fs: FileSystem, caplog: pytest.LogCaptureFixture
    ) -> None:
        add = driver.stage(0)
        driver.fs.create_exclusive(add.final_path or "", b"foreign")
        with pytest.raises(NameCollision):
            driver.commit(0, add)
        other = type(driver)(fs, "query-2").with_policy(on_new_query="continue")
        other.commit_new(0)
        assert "not completely published" in caplog.text

    def test_a_record_that_removes_waits_for_what_it_removes(self, driver: Driver, fs: FileSystem) -> None:
        add = driver.stage(0)
        driver.fs.create_exclusive(add.final_path or "", b"foreign")
        with pytest.raises(NameCollision):
            driver.commit(0, add)
        other = type(driver)(fs, "query-2").with_policy(on_new_query="continue")
        with pytest.raises(NameCollision):
            other.commit(0, overwrite=True)
        assert driver.log.refresh().version == 0

    def test_both_names_of_one_file_are_settled(self, driver: Driver) -> None:
        add = driver.stage(0)
        root = driver.root
        os.link(f"{root}/{add.path}", f"{root}/{add.final_path}")
        driver.commit(0, add)
        assert driver.visible() == {add.final_path}
        assert not driver.fs.exists(add.path)

    def test_a_copy_with_the_recorded_content_is_settled(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.fs.create_exclusive(add.final_path or "", b"row\n")
        driver.commit(0, add)
        assert not driver.fs.exists(add.path)

    def test_a_part_that_a_consumer_moved_is_a_warning_or_an_error(
        self, driver: Driver, caplog: pytest.LogCaptureFixture
    ) -> None:
        add = driver.commit_new(0)
        driver.fs.delete(add.final_path or "")
        driver.fs.delete(layout.PUBLISHED_HINT)
        driver.restart()
        driver.with_policy(on_missing_part="fail")
        with pytest.raises(MissingPart, match="moved or deleted"):
            driver.commit_new(1)
        driver.with_policy(on_missing_part="warn")
        driver.commit_new(1)
        assert "moved or deleted" in caplog.text

    def test_a_part_that_is_nowhere_may_have_been_removed_meanwhile(self, driver: Driver) -> None:
        """A slow publisher of version 0 meets version 1, which replaced its part, and publishes nothing."""
        old = driver.commit_new(0)
        log = CommitLog(driver.fs)
        entry = log.refresh().unpublished[0]
        new = driver.stage(0)
        driver.commit(1, rewrites=(Rewrite((old,), (new,), read_version=0),))
        from ftfile.log.publish import publish

        assert publish(log, entry, timeout_s=1) is None
        assert driver.visible() == {new.final_path}

    def test_passing_failures_are_tried_again_and_then_raised(self, driver: Driver) -> None:
        class Flaky(WrapperFileSystem):
            fails = 2

            def rename(self, source: str, target: str) -> None:
                if self.fails:
                    self.fails -= 1
                    raise Unavailable("rename", source, "busy")
                super().rename(source, target)

        flaky = Flaky(driver.fs)
        log = CommitLog(InContext(flaky, clock=_NoWait()))
        add = driver.stage(0)
        driver.commit(0, add, log=log)
        assert driver.visible() == {add.final_path}
        flaky.fails = 10**6
        with pytest.raises(Exception, match="version 1 is committed but not completely published"):
            driver.commit(1, driver.stage(1), log=log)
        assert driver.log.refresh().version == 1

    def test_a_lost_reply_of_a_rename_is_settled(self, driver: Driver) -> None:
        class Silent(WrapperFileSystem):
            times = 1

            def rename(self, source: str, target: str) -> None:
                super().rename(source, target)
                if self.times:
                    self.times -= 1
                    raise OutcomeUnknown("rename", source, "no reply")

        add = driver.stage(0)
        driver.commit(0, add, log=CommitLog(InContext(Silent(driver.fs), clock=_NoWait())))
        assert driver.visible() == {add.final_path}

    def test_leftovers_in_the_stage_harm_nothing(self, driver: Driver) -> None:
        leftover, add = driver.stage(0), driver.stage(0)
        driver.commit(0, add)
        assert driver.fs.exists(leftover.path)
        driver.commit_new(1)
        # The directory of a query is kept, that of a job is removed if it is empty.
        job = type(driver)(driver.fs, "job-1")
        leftover = job.stage(0)
        driver.commit_as(BatchWriteAuthor("job-1"), adds=(job.stage(0),))
        assert driver.fs.exists(leftover.path)


class TestHints:
    def test_the_hint_names_a_published_prefix(self, driver: Driver) -> None:
        driver.commit_new(0)
        hint, head = read_published(driver.fs), driver.log.refresh()
        assert hint == PublishedHint(0, head.nonce)

    def test_it_does_not_pass_what_is_unpublished(self, driver: Driver, fs: FileSystem) -> None:
        add = driver.stage(0)
        driver.fs.create_exclusive(add.final_path or "", b"foreign")
        with pytest.raises(NameCollision):
            driver.commit(0, add)
        type(driver)(fs, "query-2").with_policy(on_new_query="continue").commit_new(0)
        assert read_published(driver.fs) is None

    @pytest.mark.parametrize("content", [b"", b"torn", b'{"version": 9, "nonce": "x"}\ncrc32:00000000\n'])
    def test_a_bad_hint_is_as_good_as_none(self, driver: Driver, content: bytes) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        driver.fs.put(layout.PUBLISHED_HINT, content)
        driver.commit_new(1)
        assert add.final_path in driver.visible()

    def test_a_hint_of_another_log_is_not_believed(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        write_published(driver.fs, PublishedHint(0, "nonce of a record that is not here"))
        driver.commit_new(1)
        assert add.final_path in driver.visible()

    def test_without_hints_nothing_changes(self, driver: Driver) -> None:
        adds = [driver.commit_new(batch) for batch in range(3)]
        driver.fs.delete(layout.PUBLISHED_HINT)
        driver.restart()
        driver.commit_new(3)
        assert {add.final_path for add in adds} < driver.visible()


def test_removes_are_of_live_adds_only(driver: Driver) -> None:
    add = driver.commit_new(0)
    driver.create_record(author=MaintenanceAuthor("test", "a"), removes=(Remove.of(add),))
    with pytest.raises(CorruptData, match="already removed"):
        driver.create_record(author=MaintenanceAuthor("test", "b"), removes=(Remove.of(add),))


def test_versions_are_never_created_twice(driver: Driver) -> None:
    driver.commit_new(0)
    with pytest.raises(AlreadyExists):
        driver.fs.create_exclusive(layout.record_path(0), b"")


class TestOthers:
    def test_a_checkpoint_that_appears_while_the_commit_looks_around_hides_nothing(self, driver: Driver) -> None:
        """A missing part makes the commit read on; meanwhile a rival has written a checkpoint, and another state."""
        lost = driver.commit_new(0)
        driver.fs.delete(lost.final_path or "")
        driver.fs.delete(layout.PUBLISHED_HINT)
        add = driver.stage(1)

        class Rival(WrapperFileSystem):
            wrote = False

            def stat(self, path: str) -> FileInfo:
                if path == lost.final_path and not self.wrote:
                    self.wrote = True
                    driver.create_record(author=MaintenanceAuthor("test", "rival"))
                    write_checkpoint(driver.fs, SYSTEM.ids, CommitLog(driver.fs).refresh())
                return super().stat(path)

        rival = Rival(driver.fs)
        driver.commit(1, add, log=CommitLog(rival))
        assert rival.wrote
        assert add.final_path in driver.visible()

    def test_a_failure_after_the_record_says_that_the_batch_is_committed(self, driver: Driver) -> None:
        class Denied(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                raise PermissionDenied("rename", source, target)

        with pytest.raises(NotPublished, match="version 0 is committed but not completely published"):
            driver.commit_as(BatchWriteAuthor("j"), adds=(driver.stage(0),), log=CommitLog(Denied(driver.fs)))
        driver.commit_new(0)
        assert len(driver.visible()) == 2

    def test_a_failure_to_list_the_checkpoints_after_the_record_leaves_the_outcome_open(self, driver: Driver) -> None:
        class Blind(WrapperFileSystem):
            def list(self, path: str) -> list[FileInfo]:
                if path == layout.CHECKPOINTS and driver.fs.exists(layout.record_path(0)):
                    raise PermissionDenied("list", path, "no")
                return super().list(path)

        with pytest.raises(CommitOutcomeUnknown, match=r"is unknown whether version .* was created"):
            driver.commit_as(BatchWriteAuthor("j"), log=CommitLog(Blind(driver.fs)))

    def test_what_others_cannot_publish_is_tried_once(self, driver: Driver, fs: FileSystem) -> None:
        stuck = [driver.stage(batch) for batch in range(3)]
        for batch, add in enumerate(stuck):
            driver.create_record(author=driver.author(batch), adds=(add,), lineage_start=0 if batch == 0 else None)
        tries: list[str] = []

        class Stuck(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                if source in {add.path for add in stuck}:
                    tries.append(source)
                    raise Unavailable("rename", source, "stuck")
                super().rename(source, target)

        clock = _NoWait()
        other = type(driver)(fs, "query-2").with_policy(on_new_query="continue")
        add = other.stage(0)
        other.commit(0, add, log=CommitLog(InContext(Stuck(fs), clock=clock)))
        assert len(tries) == 3
        assert clock.passed_s == 0
        assert add.final_path in driver.visible()

    def test_a_directory_that_vanishes_under_the_rename_is_made_again(self, driver: Driver) -> None:
        add = driver.stage(0, name="bucket/part")

        class Tidy(WrapperFileSystem):
            swept = 0

            def rename(self, source: str, target: str) -> None:
                if self.swept < 2:
                    self.swept += 1
                    self.inner.remove_directory("bucket")
                super().rename(source, target)

        driver.commit(0, add, log=CommitLog(InContext(Tidy(driver.fs), clock=_NoWait())))
        assert driver.text("bucket/part") == b"row\n"

    def test_two_publishers_may_settle_the_same_part(self, driver: Driver) -> None:
        """Where renames take two steps, another publisher may delete the staged name first."""
        add = driver.stage(0)
        root = driver.root
        os.link(f"{root}/{add.path}", f"{root}/{add.final_path}")

        class Rival(WrapperFileSystem):
            def delete(self, path: str) -> None:
                if path == add.path:
                    self.inner.delete(path)
                super().delete(path)

        driver.commit(0, add, log=CommitLog(Rival(driver.fs)))
        assert driver.visible() == {add.final_path}

    def test_a_missing_record_among_later_ones_is_an_error_for_everybody(self, driver: Driver) -> None:
        for batch in range(4):
            driver.commit_new(batch)
        driver.fs.delete(layout.record_path(2))
        driver.restart()
        with pytest.raises(CorruptData, match=r"00002\.record"):
            take_snapshot(driver.log)
        with pytest.raises(CorruptData, match=r"00002\.record"):
            driver.commit_new(2)

    def test_a_bad_record_changes_nothing_that_is_cached(self, driver: Driver) -> None:
        driver.commit_new(0)
        state = driver.log.refresh()
        driver.fs.create_exclusive(layout.record_path(1), encode_record(Record(1, "n", driver.author(0), 0)).content)
        for _ in range(2):
            with pytest.raises(CorruptData, match="a second record"):
                driver.log.refresh()
        assert state.version == 0

    def test_the_stage_of_a_job_is_removed_with_its_owner(self, driver: Driver) -> None:
        job = type(driver)(driver.fs, "job-1")
        driver.commit_as(BatchWriteAuthor("job-1"), adds=(job.stage(0),))
        assert driver.fs.list(layout.STAGED) == []

    def test_another_kind_of_fingerprint_is_no_other_content(
        self, driver: Driver, caplog: pytest.LogCaptureFixture
    ) -> None:
        content = Fingerprint("content/1", "x", covers_content=False)
        driver.commit_new(0, offsets_hash="h", fingerprint=content)
        strong = Fingerprint("strong/1", "x", covers_content=True)
        driver.commit(0, driver.stage(0), offsets_hash="h", fingerprint=strong)
        assert "not deterministic" not in caplog.text
        with pytest.raises(ReplayMismatch, match="had a checkpointLocation then; set it for this batch"):
            driver.commit(0, driver.stage(0), fingerprint=strong)
        driver.commit_new(1, fingerprint=strong)
        with pytest.raises(ReplayMismatch, match="had no checkpointLocation then; omit it for this batch"):
            driver.commit(1, driver.stage(1), offsets_hash="h", fingerprint=content)
