"""A run in which files that are only derived are gone before each step: they save work, and decide nothing."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.commit.log import CommitLog
from ftfile.core.errors import FtfileError, NotFound
from ftfile.fs.wrapper import WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from ftfile.commit.state import LogState
    from ftfile.fs.api import FileSystem

__all__ = ("ABOUT", "DERIVED", "is_about", "is_left_out", "left_out")

# What is deleted, by the name that `--without` takes.
DERIVED = {"hints": layout.HINTS, "ranges": layout.RANGES}
# Directories whose files this run deletes.
_LEFT_OUT: list[str] = []


# Tests that are about what is deleted, or about vacuums that let records go, which they do once ranges stand for them:
# by the file, and the beginning of what follows it.
ABOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "hints": {
        "unit/commit/test_log_start.py": ("TestCommitters::test_a_hint_whose_record_is_gone_is_still_true",),
        "unit/commit/test_protocol.py": (
            "TestHints::test_the_hint_names_a_published_prefix",
            # Nothing else tells of a hole at the end of what can be read.
            "TestOthers::test_a_missing_record_among_later_ones_is_an_error_for_everybody",
        ),
        "unit/commit/test_publish.py": ("TestDurability::test_both_ends_of_a_retirement_are_durable_before_the_hint",),
        "unit/sink/test_sealed_log.py": ("TestFilesOfTheLog", "TestRecords::test_that_are_missing"),
        "unit/upkeep/test_compaction.py": ("TestFailures::test_what_an_earlier_one_could_not_finish_is_finished",),
        "unit/upkeep/test_vacuum.py": ("TestFailing::test_nothing_goes_when_the_log_is_damaged",),
    },
    "ranges": {
        "unit/commit/test_log_start.py": (
            "TestReaders",
            "TestCommitters::test_an_overwrite_needs_no_old_record",
            "TestCommitters::test_a_committer_left_behind_by_a_vacuum_starts_over",
        ),
        "unit/commit/test_ranges.py": ("",),
        "unit/source/test_time_travel.py": ("test_what_vacuum_keeps",),
        "unit/upkeep/test_vacuum.py": ("TestLog", "TestMergeRanges", "TestNames"),
    },
}


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
    read_on = CommitLog.read_on

    @functools.wraps(read_on)
    def read_on_without(log: CommitLog, *args: Any, **more: Any) -> LogState:
        if name == "hints":
            _forget(log.fs, name)
        state = read_on(log, *args, **more)
        if name == "ranges" and state.log_start == 0:
            _forget(log.fs, name)
        return state

    patch.setattr(CommitLog, "read_on", read_on_without)
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
