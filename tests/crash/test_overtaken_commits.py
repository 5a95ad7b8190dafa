"""A committer that is overtaken between two of its calls: others commit, and vacuum deletes the records that follow."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Body
from ftfile.log.protocol import commit
from ftfile.log.records import RECORD_AGE_MIN_MS
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ShiftedClock, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.crash.share import THOROUGH
from tests.crash.turns import Interrupted
from tests.crash.world import CLOCK, IDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

WARM = 3  # batches before the one that is overtaken
OVERTAKING = 6  # records of others; more than two checkpoints, so that vacuum deletes some of them
OPTIONS: dict[str, dict[str, str]] = {
    "files": {},
    "open files": {"rolling": "policy"},
    "due files": {"maxBatchesPerFile": "2"},
}


@pytest.fixture(autouse=True)
def _with_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write checkpoints and compacted logs at about every second version, so that vacuum deletes records, too."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    with repeatable(CLOCK, IDS):
        yield
    forget_caches()


def overtake(fs: FileSystem, url: str, pause_ms: int) -> list[int]:
    """Commit records of others, and vacuum without a retention after a pause; return the deleted versions."""
    log = CommitLog(fs)
    for number in range(OVERTAKING):
        CLOCK.advance(1)
        commit(log, BatchWriteAuthor(f"overtaking {number}"), lambda *_: Body())
    # The horizon does not pass the newest record.
    CLOCK.advance(pause_ms / 1000)
    commit(log, BatchWriteAuthor("overtaking"), lambda *_: Body())
    ftfile.vacuum(url, retention="0s", force=True, dry_run=False, context=current())
    return [version for version in range(log.refresh().version) if not fs.exists(layout.record_path(version))]


def run(storage: Storage, options: dict[str, str], pause_ms: int, at: int) -> tuple[int, list[int], bool]:
    """Overtake a batch before one of its calls.

    Returns:
        The number of its calls, the versions whose records the vacuum deleted, and whether the batch failed.
    """
    forget_caches()
    IDS.start(1, at + 1)
    inner = CrashingFileSystem(clock=CLOCK, storage=storage)
    deleted: list[int] = []
    with mounted(inner) as others, mounted(fs := Interrupted(inner)) as url:
        query = MicroBatch(f"{url}/out", {"value": "string"}, {"fileFormat": "text"} | options)
        for batch in range(WARM):
            query.run(batch, [[{"value": f"row {batch}"}]])
        fs.calls, fs.at = 0, at
        fs.act = lambda: deleted.extend(overtake(open_filesystem(f"{others}/out"), f"{others}/out", pause_ms))
        failed = False
        try:
            query.run(WARM, [[{"value": f"row {WARM}"}]])
        except FtfileError:
            failed = True
        calls = fs.calls
        forget_caches()
        CLOCK.advance(1)
        # Spark runs a batch again only if it failed.
        for batch in (WARM, WARM + 1) if failed else (WARM + 1,):
            query.run(batch, [[{"value": f"row {batch}"}]])
        ftfile.flush(f"{url}/out", context=current())
        expected = Counter(f"row {batch}".encode() for batch in range(WARM + 2))
        report = check_directory(open_filesystem(f"{url}/out"))
        assert report.visible_rows == report.live_rows == expected, at
    return calls, deleted, failed


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("pause_ms", [RECORD_AGE_MIN_MS - 2000 * OVERTAKING, RECORD_AGE_MIN_MS])
@pytest.mark.parametrize("storage", ["disk", "s3"])
def test_a_committer_that_others_overtake_between_two_calls(storage: Storage, options: str, pause_ms: int) -> None:
    """The slot of its next record is empty again, so its record would be created although it is not in the log.

    Vacuum keeps younger records, since an object store's answers show only that the pause was short.
    """
    play = partial(run, storage, OPTIONS[options], pause_ms)
    calls = play(-1)[0]
    emptied = failures = 0
    for at in range(1, calls + 1, 1 if THOROUGH or storage == "s3" else 3):
        _, deleted, failed = play(at)
        emptied += WARM in deleted
        failures += failed
    assert bool(emptied) == (pause_ms == RECORD_AGE_MIN_MS), "records of other ages were deleted"
    assert failures < calls


@pytest.mark.parametrize("set_back_s", [600, 1800, 2999])
def test_a_committer_that_is_overtaken_while_the_clock_of_the_storage_is_set_back(set_back_s: int) -> None:
    """After a vacuum, the storage's answers show a short pause, and only the clock of the process shows a long one."""
    calls = run_set_back(set_back_s, -1)
    assert calls > 5
    for at in range(1, calls + 1):
        run_set_back(set_back_s, at)


def run_set_back(set_back_s: int, at: int) -> int:
    """Overtake a batch before one of its calls, and set the storage's clock back; return the number of its calls."""
    forget_caches()
    IDS.start(1, at + 1)
    own_clock = ShiftedClock(CLOCK)
    inner = CrashingFileSystem(clock=CLOCK, storage="s3")
    with mounted(inner) as others, mounted(fs := Interrupted(inner)) as url, repeatable(own_clock, IDS):
        query = MicroBatch(f"{url}/out", {"value": "string"}, {"fileFormat": "text"})
        for batch in range(WARM):
            query.run(batch, [[{"value": f"row {batch}"}]])
        fs.calls, fs.at = 0, at

        def act() -> None:
            overtake(open_filesystem(f"{others}/out"), f"{others}/out", RECORD_AGE_MIN_MS)
            CLOCK.advance(-set_back_s)
            own_clock.shift_s += set_back_s

        fs.act = act
        try:
            query.run(WARM, [[{"value": f"row {WARM}"}]])
        except FtfileError:
            # Its files are older than the horizon; a vacuum lowers a horizon that is in the future.
            forget_caches()
            ftfile.vacuum(f"{url}/out", dry_run=False, context=current())
            CLOCK.advance(1)
            query.run(WARM, [[{"value": f"row {WARM}"}]])
        calls = fs.calls
        forget_caches()
        report = check_directory(open_filesystem(f"{url}/out"))
        expected = Counter(f"row {batch}".encode() for batch in range(WARM + 1))
        assert report.live_rows == expected, at
        CLOCK.advance(set_back_s)
    return calls
