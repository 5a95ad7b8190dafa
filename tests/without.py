"""A run in which files that are only derived are gone before each step: they save work, and decide nothing.

With `--without` it is a plugin of pytest.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import FtfileError, NotFound
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem

__all__ = ("ABOUT", "DERIVED", "deleted_in", "is_about", "is_left_out", "left_out")

# What is deleted, by the name that `--without` takes; `either` draws one of them for each test.
DERIVED = {"hints": layout.HINTS, "ranges": layout.COMPACTED}
# Directories whose files this run deletes.
_LEFT_OUT: list[str] = []


# Tests that are about what is deleted: by the file, and the beginning of what follows it.
ABOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "hints": {
        # Nothing but a hint tells of the newest records where those are lost.
        "unit/log/test_checkpoints.py": ("TestHoles::test_a_hint_beyond_the_end_of_the_log_is_told_of",),
        "unit/log/test_derived.py": (
            "TestAnotherHistory::test_nothing_is_written_before_somebody_accepts_the_loss",
            "TestAnotherHistory::test_readers_go_on_with_a_warning",
        ),
        "unit/log/test_lost_records.py": (
            "test_batch_writes_stop[there-lost0]",
            "test_batch_writes_stop[there-lost1]",
            "test_a_lost_record_without_parts_is_missed",
            "test_a_warm_committer_stops_too",
        ),
        # Files are made known again by what looks for them in the directory that the link replaces.
        "unit/operate/test_links.py": ("TestVacuum::test_leaves_what_is_behind_a_link",),
        # Every file that is there is harmed.
        "unit/operate/test_every_file.py": ("test_",),
        "unit/operate/test_verify.py": (
            "test_a_cut_off_log_is_no_reason_to_raise",
            # The hint is what is verified, or what tells of the finding; opening the directory reads the log.
            "TestLog::test_a_hint_of_another_type_or_history",
            "TestLog::test_the_newest_record_is_lost",
            "TestParts::test_a_removed_part_is_there_again",
        ),
        "unit/operate/test_repair.py": (
            "TestLog::test_the_newest_record_is_lost",
            "TestLog::test_writers_tell_the_call_that_goes_on",
            # The hint itself is what is repaired.
            "TestLog::test_a_hint_of_another_type_or_history",
            # Whether a part came back, or was never hidden: a hint tells the two apart, and what is done is the same.
            "TestParts::test_old_and_new_rows_side_by_side",
        ),
        # Without a hint nobody knows which versions were published, and each counts.
        "unit/writing/files/test_history.py": (
            "TestCounters::test_recoveries_are_versions_that_others_left_unpublished",
        ),
        # The loss of the newest records is noticed by the hint, and files of one version are searched again without it.
        "unit/log/test_published_version.py": (
            "test_is_before_a_record_that_could_not_be_published",
            "test_a_disk_notices_each_lost_record",
            "test_an_object_store_notices_the_loss_of_the_hinted_version",
        ),
        # Nothing else tells that there were records.
        "unit/kv/operator/test_lost_log.py": (
            "test_it_is_refused_until_the_log_is_back",
            "test_windows_behind_lost_records",
            "test_a_log_that_ends_within_an_opening",
            "test_windows_of_a_process_that_lost_its_records_are_missed",
            "test_it_is_lost_while_the_store_is_open",
            "test_what_tells_of_it_is_written_behind_each_record",
        ),
        "crash/test_operator.py": ("test_a_log_that_is_lost_is_told_of_after_every_crash",),
        # Without a hint, its process looks at the file before it creates the record after which it stands still.
        "unit/log/test_places.py": ("TestLatePublisher::test_keeps_the_newer_part",),
        # What a hint saves.
        "unit/log/test_log_start.py": ("TestCommitters::test_a_hint_whose_record_is_gone_is_still_true",),
        # Its bytes are changed.
        "unit/writing/files/test_sealed_log.py": (
            "TestFilesOfTheLog::test_without_a_mac",
            "TestFilesOfTheLog::test_that_are_right_but_for_the_mac",
            "TestFilesOfTheLog::test_under_the_name_of_another",
            "TestFilesOfTheLog::test_of_another_directory",
            "test_every_changed_byte_of_a_hint_makes_it_none",
        ),
        # Without it a damaged part counts as one that is not published, and is left out with a warning.
        "unit/operate/test_compact.py": ("TestDamage::test_in_one_directory_leaves_the_others",),
        "unit/operate/test_status.py": (
            # What is listed is counted, and deleting lists.
            "test_nothing_is_listed_but_the_log_and_what_is_derived_of_it",
            # Newest records are lost.
            "TestVerdict::test_damage",
            "TestVerdict::test_the_log_is_gone",
        ),
        # All files are compared, also derived ones.
        "unit/tools/migrate/test_migrate.py": ("test_spark_an_interrupted_migration_asks_again",),
        # A dry run publishes nothing, and without a hint it does not know what is published.
        "unit/operate/export/test_trouble.py": ("TestTrouble::test_a_name_that_no_reader_opens_is_refused",),
        "unit/operate/export/test_iceberg.py": ("TestRefusals::test_partitions_of_another_type",),
        # Hints alone tell of what is lost, or are what is damaged.
        "unit/operate/test_accidents.py": (
            "test_accident[The log is lost]",
            "test_accident[The log of a store is lost]",
            "test_accident[Only the log is older]",
            "test_accident[Hints, log checkpoints",
        ),
    },
    "ranges": {
        # Statistics of adds are read from ranges, and damaged there.
        "unit/log/test_bounds_of_adds.py": ("",),
        "unit/writing/files/test_statistics.py": ("test_adds_of_compacted_logs_have_none",),
        "unit/operate/test_sort_by.py": ("test_files_without_statistics_are_sorted_with_all_files",),
        # The newest files of many are found by what ranges stand for.
        "unit/read/test_newest.py": ("test_few_files_of_many",),
        # Which ranges are written, merged and believed.
        "unit/log/test_derived.py": (
            *(
                f"test_harmed[{harm}-_ftfile/compacted]"
                for harm in ("deleted", "empty", "torn", "flipped", "no object", "nested")
            ),
            "test_harmed[numbers are texts-_ftfile/compacted]",
            "TestAnotherHistory::test_what_it_left_behind_is_passed_over",
            "TestAnotherHistory::test_also_of_more_versions_ago_than_are_remembered",
            "test_own_ranges_are_not_dropped_for_a_foreign_one",
            "test_old_ranges_are_proven_by_what_follows_them",
        ),
        # Only ranges let a vacuum release the name of a removed part.
        "unit/log/test_places.py": ("TestLatePublisher::test_keeps_the_newer_part",),
        # A snapshot begins anew where vacuum let records go, for which ranges stand.
        "unit/log/test_limits.py": ("TestRanges", "TestTries::test_to_take_a_snapshot"),
        "unit/log/test_compacted_records.py": ("",),
        "unit/writing/files/test_sealed_log.py": (
            "TestFilesOfTheLog",
            "test_every_changed_byte_of_a_range_is_detected",
        ),
        "unit/operate/test_repair.py": (
            "TestDerived::test_ranges_of_other_adds",
            "TestDerived::test_damaged_ranges",
            "TestDerived::test_ranges_of_another_history",
            "TestDerived::test_a_range_beyond_the_head",
            # Ranges alone tell of the record that is lost.
            "TestDerived::test_a_hole_behind_a_checkpoint",
        ),
        # Vacuum lets records go for which ranges stand.
        "unit/operate/test_diff.py": ("test_a_version_that_is_no_longer_kept",),
        # Files are made known again by what looks for them in the directory that the link replaces.
        "unit/operate/test_links.py": ("TestVacuum::test_leaves_what_is_behind_a_link",),
        # Every file that is there is harmed.
        "unit/operate/test_every_file.py": ("test_",),
        "unit/operate/test_verify.py": (
            "TestDerived::test_damaged_statistics",
            "TestHealthy::test_nothing_is_found",
            "TestDerived::test_a_range",
            "TestDerived::test_a_damaged_range",
            "TestDerived::test_ranges_that_bring_removed_adds_back",
            "TestDerived::test_a_hole_behind_a_checkpoint",
            # Vacuum lets records go only where ranges stand for them, here as in what follows.
            "TestHealthy::test_after_a_vacuum",
            "TestHealthy::test_a_vacuum_meanwhile_is_no_finding",
            "TestBounds::test_vacuums_at_more_looks_than_are_made",
        ),
        "unit/writing/files/test_hooks.py": ("TestBatches::test_whose_record_was_vacuumed",),
        "unit/writing/files/test_live_names.py": ("TestATakenFile::test_unless_it_was_removed_long_ago",),
        "unit/read/test_time_travel.py": ("test_what_vacuum_keeps",),
        "unit/log/test_vacuum.py": (
            "TestRemoved::test_a_vacuum_that_stands_still",
            "TestLog::test_records_go_that_checkpoints_and_ranges_stand_for",
            "TestLog::test_again_and_again",
            "TestLog::test_with_records_goes_what_they_keep_elsewhere",
            "TestLog::test_records_go_before_what_they_keep_elsewhere",
            "TestLog::test_dead_records_go_too",
            "TestLog::test_a_dead_record_may_have_lost_its_companion",
            "TestLog::test_leftovers_of_killed_processes",
            "TestLog::test_ranges_and_checkpoints_that_others_replace",
            "TestLog::test_ranges_forget_what_is_too_old",
            "TestLog::test_two_runs_free_them_where_one_checkpoint_and_no_range_is_left",
            "TestLog::test_two_runs_free_them_where_ranges_are_lost",
            "TestLog::test_they_stay_where_the_newest_snapshot_does_not_read_what_is_damaged",
            "TestLog::test_adds_that_were_removed_before_the_oldest_version_may_be_damaged",
            "TestMergeRanges",
            "TestNames::test_names_are_reserved_for_the_retention",
            "TestNames::test_what_came_back_keeps_its_name_until_a_vacuum_does_not_find_it",
        ),
        "unit/log/test_vacuum_trust.py": (
            "TestClock::test_it_keeps_nothing_longer",
            "TestForeignFiles::test_they_keep_no_record",
            "TestUnpublished::test_a_part_that_takes_the_name_of_one_that_was_hidden_late",
            "TestTwoAtOnce::test_the_later_looks_again",
            "TestLimits::test_more_ranges_than_are_kept_apart",
        ),
        "unit/operate/test_accidents.py": (
            "test_accident[All log checkpoints",
            *(
                f"test_in_other_directories[{variant}-All log checkpoints"
                for variant in ("no hints", "several queries", "open", "encrypted")
            ),
        ),
        # A range of the second key stands for the record of the first, and so a part is the first that needs that.
        "unit/writing/files/test_encryption.py": ("TestKeys::test_that_are_missing_are_so_for_a_file",),
        # What is listed is counted, and deleting lists.
        "unit/operate/test_status.py": ("test_nothing_is_listed_but_the_log_and_what_is_derived_of_it",),
    },
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are about what is deleted, and count them as deselected."""
    runs = [deleted_in(item.nodeid, config.option.without, config.option.seed) is not None for item in items]
    config.hook.pytest_deselected(items=[item for item, is_run in zip(items, runs, strict=True) if not is_run])
    items[:] = itertools.compress(items, runs)


@pytest.fixture(autouse=True)
def derived_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the files that `--without` names deleted before each step."""
    name = deleted_in(request.node.nodeid, request.config.option.without, request.config.option.seed)
    assert name is not None
    with left_out(name, monkeypatch):
        yield


def deleted_in(node_id: str, name: str, seed: int) -> str | None:
    """Return which files are deleted in a test: those of this name, or of `either` those that the seed draws.

    None if the test is about them, and would have nothing to look at.
    """
    names = DERIVED if name == "either" else (name,)
    possible = [each for each in names if not is_about(each, node_id)]
    return random.Random(f"{seed} {node_id}").choice(possible) if possible else None


def is_about(name: str, node_id: str) -> bool:
    """Return True if deleting such files leaves a test nothing to look at."""
    file, _, test = node_id.removeprefix("tests/").partition("::")
    return any(test.startswith(beginning) for beginning in ABOUT[name].get(file, ()))


def is_left_out(path: str) -> bool:
    """Return True if this run deletes a file at any time, so that a test cannot compare what it was with what it is."""
    return path.startswith(tuple(f"{directory}/" for directory in _LEFT_OUT))


@contextlib.contextmanager
def left_out(name: str, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Delete files of this kind whenever somebody reads the log on: each plan, commit, flush, vacuum and open.

    Ranges stay once a record says that old records may be gone: then they are all that tells of those.
    """
    refresh = CommitLog.refresh

    @functools.wraps(refresh)
    def read_on_without(log: CommitLog, *args: Any, **more: Any) -> LogState:
        if name == "hints":
            _forget(log.fs, name)
        state = refresh(log, *args, **more)
        if name == "ranges" and state.log_start == 0:
            _forget(log.fs, name)
        return state

    patch.setattr(CommitLog, "refresh", read_on_without)
    patch.setattr(f"{__name__}._LEFT_OUT", [DERIVED[name]])
    yield


def _forget(fs: FileSystem, name: str) -> None:
    directory, first = DERIVED[name], layout.record_path(0)
    # Past faults, counters and turns of the tests.
    while isinstance(fs, WrapperFileSystem):
        directory, first = fs.inner_path(directory), fs.inner_path(first)
        fs = fs.inner
    with contextlib.suppress(FtfileError):
        if name == "ranges" and not fs.exists(first):
            return  # what is lost of the log, or was let go, is in ranges alone
        for info in fs.list(directory):
            with contextlib.suppress(NotFound):
                fs.delete(info.path)
