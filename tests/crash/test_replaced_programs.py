"""A process of a program that is stopped before each call: a newer process replaces it, or vacuum deletes its files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import CommitError, Fenced, FtfileError
from ftfile.filters.keys import forget_keys
from ftfile.log import checkpoints
from ftfile.log import publish as keeping
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.records import RECORD_AGE_MIN_MS
from ftfile.storage.registry import register
from ftfile.testing.context import current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.crash.programs import Program, ProgramScenario
from tests.crash.scenarios import CSV, ENCRYPTED
from tests.crash.share import THOROUGH
from tests.crash.turns import Interrupted
from tests.crash.world import CLOCK, CRASH_KEYS, IDS, Batch, prefixed
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.testing.fs.volume import Storage

pytestmark = pytest.mark.slow

# Batch 2 is stopped. The first two leave an open file and, with due files, a job for it.
BATCHES = tuple(Batch(letter * 3, batch_id=number) for number, letter in enumerate("abcde"))
STOPPED, LAST = 2, 4
OPTIONS = {
    "files": (),
    "open files": (*CSV, ("maxRecordsPerFile", "2"), ("rolling", "policy")),
    "due files": (("maxBatchesPerFile", "2"),),
    "encrypted": ENCRYPTED.options,
}
# A pause after which vacuum deletes the records that follow the ones that the stopped process has read.
LONG_MS = RECORD_AGE_MIN_MS + 1000
# Other records between them, so that vacuum has checkpoints to keep.
RECORDS = 6


@pytest.fixture(autouse=True)
def _with_checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write checkpoints and compacted logs at about every second version, so that vacuum deletes records, too."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
    monkeypatch.setattr(keeping, "COMPACTED_EVERY", 2)
    monkeypatch.setenv(CRASH_KEYS.partition(":")[2], ring_text(first=FIRST))
    with repeatable(CLOCK, IDS):
        yield
    forget_keys()


class Stopped:
    """A run in which a process of a program is stopped before one of its calls.

    Args:
        options: key of `OPTIONS`.
        storage: the kind of storage.
        at: number of the call, from the first rows of batch 2 on; no call by default.
    """

    def __init__(self, options: str, storage: Storage, at: int = -1) -> None:
        self.scenario = ProgramScenario(
            options, BATCHES, checkpoint=True, options=OPTIONS[options], flush=options != "files"
        )
        self.disk = CrashingFileSystem(clock=CLOCK, storage=storage)
        self.fs = Interrupted(self.disk)
        self.at = at
        IDS.start(1, 0)
        self.program = self.start(self.fs, "stopped")
        self.run_to(self.program, STOPPED - 1)
        self.next_version = self.program.open().version + 1

    def start(self, fs: FileSystem, driver: str) -> Program:
        """Return a new process of the program."""
        register(driver, lambda _: fs)
        program = self.scenario.query_at(f"{driver}://directory", "a")
        assert isinstance(program, Program)
        program.restart()
        program.open()
        return program

    def run_to(self, program: Program, last: int) -> None:
        """Write the batches after the position of a process, as far as a batch."""
        for batch in BATCHES[: last + 1]:
            program.run(batch.batch_id, self.scenario.deal(batch, tasks=1))

    def stop(self, act: Callable[[], object]) -> Exception | None:
        """Write the next batch, run `act` before the call, and return the error of the batch."""
        self.fs.calls, self.fs.at, self.fs.act = 0, self.at, act
        try:
            self.run_to(self.program, STOPPED)
        except FtfileError as error:
            return error
        return None

    def maintain(self, pause_ms: int) -> None:
        """Finish the open files, compact, commit records of others, and vacuum with a retention of zero."""
        path = self.program.path.replace("stopped", "maintenance")
        register("maintenance", lambda _: self.disk)
        keys = dict(OPTIONS["encrypted"]).get("keyProvider") if self.scenario.name == "encrypted" else None
        ftfile.flush(path, key_provider=keys, context=current())
        ftfile.compact(path, key_provider=keys, context=current())
        log = CommitLog(self.scenario.with_keys(open_filesystem(path)))
        for number in range(RECORDS):
            CLOCK.advance(1)
            commit(log, MaintenanceAuthor("vacuum", f"{number} of nothing"), lambda *_: Body())
        CLOCK.advance(pause_ms / 1000)
        # The horizon does not pass the newest record.
        commit(log, MaintenanceAuthor("vacuum", "of nothing"), lambda *_: Body())
        ftfile.vacuum(path, retention="0s", force=True, dry_run=False, key_provider=keys, context=current())
        CLOCK.advance(1)

    def finish(self) -> None:
        """Write the remaining batches by a new process, and check all rows."""
        self.run_to(self.start(self.disk, "last"), LAST)
        self.scenario.play(self.disk, 4, [batch.note for batch in BATCHES], lambda _: None)
        self.scenario.check_finished(self.disk)


def calls_of(options: str, storage: Storage) -> int:
    run = Stopped(options, storage)
    assert run.stop(lambda: None) is None
    return run.fs.calls


def steps(calls: int, storage: Storage, seed: int) -> list[int]:
    """Return the calls before which the suite stops a process: the first call, and a share of the others."""
    stride = 4 if storage == "s3" else 8
    if THOROUGH:
        stride = 1
    return sorted({1, *range(1 + seed % stride, calls + 1, stride)})


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("storage", ["disk", "s3"])
@pytest.mark.parametrize("pause_ms", [0, LONG_MS])
def test_a_replaced_process_is_fenced_and_leaves_nothing(
    storage: Storage, options: str, pause_ms: int, seed: int
) -> None:
    fenced, emptied = 0, []
    calls = calls_of(options, storage)
    for at in steps(calls, storage, seed):
        run = Stopped(options, storage, at)

        def replace(run: Stopped = run) -> None:
            IDS.start(2, 0)
            run.run_to(run.start(run.disk, "newer"), LAST - 1)
            run.maintain(pause_ms)
            emptied.append(not run.disk.exists(layout.record_path(run.next_version)))

        with prefixed(f"{options} on {storage}, a pause of {pause_ms} ms before call {at} of {calls}"):
            error = run.stop(replace)
            assert run.fs.act is None
            writer = run.program.writer
            assert writer is not None
            if error is None:  # it had created its record, and only wrote files that save work
                assert writer.position == STOPPED
            elif not isinstance(error, Fenced):
                # Vacuum has deleted a file during its write.
                writer.abort()
                with pytest.raises(Fenced):
                    run.run_to(run.program, STOPPED)
            fenced += error is not None
            with pytest.raises(CommitError, match="another process"):
                run.run_to(run.program, LAST)
            if error is not None:
                with pytest.raises(Fenced):
                    writer.abort()
            writer.close()
            run.scenario.check(run.disk, [batch.note for batch in BATCHES[:LAST]])
            run.finish()
    assert fenced
    assert any(emptied) == (pause_ms == LONG_MS), "records of other ages were deleted"


@pytest.mark.parametrize("storage", ["disk", "s3"])
def test_an_opening_continues_after_all_commits_before_its_record(storage: Storage) -> None:
    """The older process commits before each call of the opening, until it is fenced."""
    outcomes = Counter[bool]()
    at = calls = 1
    while at <= calls:
        run = Stopped("files", storage)
        overtaken = Interrupted(run.disk)
        overtaken.at = at

        def commit_before(run: Stopped = run) -> None:
            try:
                run.run_to(run.program, STOPPED)
            except Fenced:
                outcomes[False] += 1
            else:
                outcomes[True] += 1

        overtaken.act = commit_before
        with prefixed(f"a commit before call {at} of an opening on {storage}"):
            newer = run.start(overtaken, "newer")
            calls = overtaken.calls
            position = newer.open().position
            run.run_to(newer, LAST)
            run.finish()
        assert position == (STOPPED if run.program.open().position == STOPPED else STOPPED - 1)
        at += 1
    assert outcomes[True] > 1


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("storage", ["disk", "s3"])
def test_a_slow_batch_whose_files_vacuum_deletes_is_written_again(storage: Storage, options: str, seed: int) -> None:
    failed = 0
    calls = calls_of(options, storage)
    for at in steps(calls, storage, seed):
        run = Stopped(options, storage, at)
        with prefixed(f"{options} on {storage}, vacuum before call {at} of {calls}"):
            error = run.stop(lambda run=run: run.maintain(0))  # type: ignore[misc]
            assert not isinstance(error, Fenced)
            writer = run.program.writer
            assert writer is not None
            if error is not None:
                failed += 1
                writer.abort()
                assert writer.position == STOPPED - 1
            run.run_to(run.program, LAST - 1)
            run.finish()
    assert failed or not THOROUGH
