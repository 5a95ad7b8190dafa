"""`ftfile.writer` with errors at any call, several threads, and several programs."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import (
    AlreadyExists,
    CallOrder,
    CommitError,
    FtfileError,
    OutcomeUnknown,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from ftfile.operate.writers import application_writer, arrow_rows, row_threads
from ftfile.storage.calls import start
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, fault_sweep
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.fs.pickled_by_reference import PickledByReference
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.task import write_task
from tests.kit.interrupts import Interrupt
from tests.unit.operate.numbered_rows import lose_the_response, numbers_of, opened, rows, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.operate.writers.application_writer import DirectoryWriter
    from ftfile.storage.api import FileSystem


_WRITERS = Path(application_writer.__file__).parent


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class TestThreads:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_threads, "ROWS_PER_THREAD", 100)
        monkeypatch.setattr(row_threads, "SMALL_ROWS", 0)
        monkeypatch.setattr(arrow_rows, "BATCH_ROWS", 10)

    def test_a_caller_that_waits_for_a_thread_gets_its_error(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def failing(_plan: object, _identity: object, batches: Iterator[pa.RecordBatch], _context: object) -> None:
            next(batches)
            time.sleep(0.2)  # until the caller waits
            raise PermissionDenied("create", "", "it fails")

        monkeypatch.setattr(row_threads, "write_task", failing)
        many = pa.concat_tables([rows(*range(10))] * 10)
        with opened(out, threads=1) as writer:
            with pytest.raises(PermissionDenied):
                writer.write(many)
            writer.abort()

    def test_large_batches_are_written_by_all(self, out: str) -> None:
        with opened(out, threads=3) as writer:
            for start in range(0, 2000, 500):
                writer.write(rows(*range(start, start + 500)))
            writer.commit(1)
            assert 1 < len(ftfile.open(out).files()) <= 3
            writer.write(rows(*range(2000, 2050)))
            writer.commit(2)
        assert visible(out) == list(range(2050))

    @pytest.mark.parametrize(("values", "threads"), [(["a"] * 40, 0), (["a"] * 41, 1), (["a" * 400] * 3, 1)])
    def test_small_batches_need_none(
        self, out: str, monkeypatch: pytest.MonkeyPatch, values: list[str], threads: int
    ) -> None:
        started: list[Any] = []

        def counting(call: Any) -> Any:
            started.append(call)
            return start(call)

        monkeypatch.setattr(row_threads, "start", counting)
        monkeypatch.setattr(row_threads, "SMALL_ROWS", 40)
        monkeypatch.setattr(row_threads, "SMALL_BYTES", 1000)
        with opened(out) as writer:
            for _ in range(2):
                started.clear()
                for value in values:
                    writer.write(pa.table({"t": [value]}))
                writer.commit()
                assert len(started) == threads
        assert len(ftfile.open(out).to_arrow()) == 2 * len(values)
        assert len(ftfile.open(out).files()) == 2

    def test_waiting_rows_are_bounded(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tasks that do not take rows hold up the source, so it cannot fill the memory."""
        gate = threading.Event()

        def slow(plan: Any, identity: Any, batches: Iterator[pa.RecordBatch], context: Any) -> Any:
            def taken() -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    gate.wait()
                    yield batch

            return write_task(plan, identity, taken(), context)

        monkeypatch.setattr(row_threads, "write_task", slow)
        given: list[int] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(50):
                given.append(number)
                yield from rows(*range(10 * number, 10 * number + 10)).to_batches()

        writer = opened(out, threads=2)
        producer = threading.Thread(target=writer.write, args=(batches(),))
        producer.start()
        time.sleep(0.3)
        assert len(given) < 10
        gate.set()
        producer.join()
        writer.commit()
        assert visible(out) == list(range(500))

    def test_a_program_that_forgets_to_close_ends(self, out: str) -> None:
        program = f"""
import ftfile, pyarrow as pa
writer = ftfile.writer({out!r}, "orders", file_format="json")
writer.write(pa.table({{"n": [1]}}))
writer.commit(1)
writer.write(pa.table({{"n": [2]}}))
"""
        began_s = time.monotonic()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert time.monotonic() - began_s < 20
        assert visible(out) == [1]


class _Source:
    """A source whose rows are the numbers from a position on, as Kafka has them."""

    def __init__(self, end: int) -> None:
        self.end = end

    def run(self, writer: DirectoryWriter, dice: random.Random, *, retries: bool) -> None:
        """Copy all numbers to a writer, with a reaction to each error as a program may have it."""
        position = writer.position or 0
        while position < self.end:
            count = dice.randrange(1, 4)
            numbers = range(position, min(self.end, position + count))
            try:
                writer.write(rows(*numbers))
                writer.commit(numbers[-1] + 1)
            except (StorageError, CommitError):
                if not retries:
                    raise
                self._react(writer, dice, numbers[-1] + 1)
            position = writer.position or 0

    def _react(self, writer: DirectoryWriter, dice: random.Random, position: int) -> None:
        for _ in range(20):
            try:
                if dice.random() < 0.5:
                    writer.abort()
                else:
                    writer.commit(position)
            except CallOrder:
                continue
            except (StorageError, CommitError):
                continue
            return
        raise AssertionError("the error never ends")


def test_a_late_record_of_an_aborted_commit_does_not_count(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage executes a request after the program has aborted the commit."""
    late: list[tuple[LocalFileSystem, str, bytes]] = []

    def hang(fs: LocalFileSystem, path: str, content: bytes) -> Any:
        if path.startswith("_ftfile/log/"):
            late.append((fs, path, content))
            raise OutcomeUnknown("create", path, "no response")
        return create(fs, path, content)

    with repeatable(ManualClock(tick_ms=1)):
        writer = opened(out)
        create = LocalFileSystem.create_exclusive
        monkeypatch.setattr(LocalFileSystem, "create_exclusive", hang)
        writer.write(rows(1))
        with pytest.raises((StorageError, CommitError)):
            writer.commit(1)
        monkeypatch.undo()
        with pytest.raises(CallOrder, match="failed with the position 1"):
            writer.commit()  # with the position of the last commit
        writer.abort()
        assert writer.position is None
        with pytest.raises(AlreadyExists):
            create(*late[0])
        writer.write(rows(1, 2))
        writer.commit(2)
    assert numbers_of(out) == [1, 2]


class _Failing(WrapperFileSystem, PickledByReference):
    """Fails at each call after `calls_left` more calls, until this is None."""

    def __init__(self, inner: FileSystem, error: type[StorageError], effect: str) -> None:
        super().__init__(inner)
        self.calls_left: int | None = None
        self._error, self._effect = error, effect

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        if self.calls_left is None:
            return call()
        if self.calls_left > 0:
            self.calls_left -= 1
            return call()
        if self._effect == "after":
            call()
        raise self._error(operation, path, "it fails")


def fail_twice(fs: _Failing, first: int, second: int, reaction: str) -> bool:
    """Fail a commit, and then the reaction of the program, after a number of calls; return True if that failed."""
    has_failed = False
    with mounted(fs) as url:
        writer = opened(url)
        writer.write(rows(1))
        writer.commit(1)
        writer.write(rows(2))
        react: dict[str, Callable[[], object]] = {"abort": writer.abort, "commit": lambda: writer.commit(2)}
        for calls, act in ((first, react["commit"]), (second, react[reaction])):
            fs.calls_left = calls
            try:
                act()
                has_failed = False
            except FtfileError:
                has_failed = True
        fs.calls_left = None
        writer.abort()
        # The program writes the rows after the position again, in a batch of another size.
        if writer.position == 1:
            writer.write(rows(2, 3))
            writer.commit(3)
        assert numbers_of(url) == list(range(1, writer.position + 1))
        check_directory(open_filesystem(url))
    return has_failed


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("reaction", ["abort", "commit"])
def test_a_failed_reaction_to_a_failed_commit_can_be_repeated(effect: str, reaction: str) -> None:
    """A lost response of the opening by `abort`, or of the search for the batch, is not another process."""
    error = PermissionDenied if effect == "before" else OutcomeUnknown
    both = 0
    for first in (0, 6, 7):
        for second in range(40):
            with repeatable(ManualClock(tick_ms=1)) as context:
                fs = _Failing(CrashingFileSystem(clock=context.clock), error, effect)
                has_failed = fail_twice(fs, first, second, reaction)
            if not has_failed:
                break
            both += 1
    assert both > 10


_LIMITS = {"ROWS_PER_THREAD": 3, "SMALL_ROWS": 0}
# A part with four rows ends within a batch, and the rest stays open in the spool of an earlier batch.
_ROLLING: dict[str, Any] = {"rolling": "policy", "max_records_per_file": 4}


@pytest.fixture
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _LIMITS.items():
        monkeypatch.setattr(row_threads, name, value)
    monkeypatch.setattr(arrow_rows, "BATCH_ROWS", 2)


def interrupted(name: str, interrupt: Interrupt, reaction: str, options: dict[str, Any]) -> None:
    """Interrupt the writing and the commit of rows 9 to 19, react as the documentation describes, and write them."""
    with mounted(MemoryFileSystem(name)) as out:
        _interrupted(out, interrupt, reaction, options)
    MemoryFileSystem.drop(name)


def _interrupted(out: str, interrupt: Interrupt, reaction: str, options: dict[str, Any]) -> None:
    with opened(out, **options) as writer:
        for start, end in ((0, 7), (7, 9)):
            writer.write(rows(*range(start, end)))
            writer.commit(end)
        is_written = False
        try:
            with interrupt:
                writer.write(rows(*range(9, 20)))
                is_written = True
                writer.commit(20)
        except (KeyboardInterrupt, SystemExit):
            pass
        if reaction == "commit" and is_written:
            with contextlib.suppress(CallOrder):
                writer.commit(20)
        if reaction != "close":
            writer.abort()
            assert numbers_of(out) == list(range(writer.position))
    with opened(out, **options) as writer:
        position = writer.position
        assert numbers_of(out) == list(range(position))
        if position < 20:
            writer.write(rows(*range(position, 20)))
            writer.commit(20)
    assert numbers_of(out) == list(range(20))


def interrupt_lines(step: int, first: int, reaction: str, options: dict[str, Any], **where: Any) -> int:
    """Interrupt a batch before each line, by a step: by Ctrl-C, or by the exception of a handler of SIGTERM."""
    for line in range(first, 10_000, step):
        interrupt = Interrupt(line, (KeyboardInterrupt, SystemExit)[line % 2], **where)
        interrupted(f"interrupted-{reaction}-{line}", interrupt, reaction, options)
        if not interrupt.is_raised:
            return line
    pytest.fail("the batch has more lines")


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("reaction", ["commit", "abort", "close"])
@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2, **_ROLLING}], ids=["files", "rolling"])
def test_an_interrupt_at_any_line_of_a_batch_loses_and_doubles_nothing(
    reaction: str, options: dict[str, Any], seed: int
) -> None:
    assert interrupt_lines(3, 1 + seed % 3, reaction, options, below=(str(_WRITERS),)) > 150


@pytest.mark.slow
@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("reaction", ["commit", "abort", "close"])
def test_an_interrupt_at_any_line_of_the_product_loses_and_doubles_nothing(reaction: str, seed: int) -> None:
    """Also before lines of the protocol and of the storage."""
    assert interrupt_lines(31, 1 + seed % 31, reaction, {"threads": 2, **_ROLLING}) > 2000


@pytest.mark.usefixtures("_two_threads")
def test_no_interrupt_is_raised_where_python_would_discard_it(out: str) -> None:
    """A former test's writer can be collected at any line, and Python discards exceptions of its finalizer."""
    writer = ftfile.writer(out, "orders")
    with Interrupt(1, function="_stop") as interrupt:
        del writer
        gc.collect()
    assert not interrupt.is_raised


def test_an_interrupted_write_has_failed() -> None:
    """A program that ignores Ctrl-C, and commits, would record a position whose rows are missing."""
    for line in range(1, 1000):
        interrupt = Interrupt(line, below=(str(_WRITERS),))
        with mounted(MemoryFileSystem(f"ignored-{line}")) as out, opened(out) as writer:
            try:
                with interrupt:
                    writer.write(rows(*range(20)))
            except KeyboardInterrupt:
                with contextlib.suppress(CallOrder):
                    writer.commit(20)
                    assert line < 12, "the call has begun"
        MemoryFileSystem.drop(f"ignored-{line}")
        if not interrupt.is_raised:
            assert line > 50
            return
    pytest.fail("the call has more lines")


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("reaction", ["abort", "close"])
def test_a_thread_that_fails_leaves_the_rest_of_an_open_file(
    out: str, monkeypatch: pytest.MonkeyPatch, reaction: str
) -> None:
    """The other thread has assembled a part; the rest of its rows is in the spool of a committed batch."""
    with opened(out, threads=2, **_ROLLING) as writer:
        writer.write(rows(*range(7)))
        writer.commit(7)
        monkeypatch.setattr(row_threads, "write_task", fail_second)
        with contextlib.suppress(StorageError):
            writer.write(rows(*range(7, 40)))
        with pytest.raises((CallOrder, StorageError)):
            writer.commit(40)
        getattr(writer, reaction)()
    assert numbers_of(out) == list(range(7))
    check_directory(open_filesystem(out))


def fail_second(plan: Any, identity: Any, batches: Iterator[pa.RecordBatch], context: Any) -> Any:
    """Write the rows of a task; the second task fails, such as for a full disk, after the first one has ended."""
    if identity.partition == 1:
        raise PermissionDenied("create", "", "the disk is full")
    return write_task(plan, identity, itertools.islice(batches, 1), context)


def test_positions_with_keys_in_another_order_are_the_same(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = opened(out)
    writer.write(rows(1))
    writer.commit({"a": 1, "b": [{"c": 2, "d": 3}]})
    version = writer.version
    assert writer.commit({"b": [{"d": 3, "c": 2}], "a": 1}) == version
    writer.write(rows(2))
    lose_the_response(monkeypatch)
    with pytest.raises((CommitError, StorageError)):
        writer.commit({"a": 2, "b": 3})
    monkeypatch.undo()
    with pytest.raises(CallOrder, match="failed with the position"):
        writer.commit({"b": 3.0, "a": 2})
    writer.commit({"b": 3, "a": 2})
    assert numbers_of(out) == [1, 2]


def test_the_warning_of_close_names_a_commit_that_may_be_in_the_log(
    out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(out) as writer:
        writer.write(rows(1))
        writer.commit(1)
        writer.write(rows(2))
        lose_the_response(monkeypatch)
        with pytest.raises((CommitError, StorageError)):
            writer.commit(2)
        monkeypatch.undo()
    assert "closed after its last commit failed, with the position 2" in caplog.text
    assert "is still" not in caplog.text
    assert opened(out).position == 2


def test_after_a_failed_abort_the_commit_is_not_repeated(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The opening may be in the log, and would be taken for another process."""

    def fail(*_: Any) -> Any:
        raise PermissionDenied("create", "", "it fails")

    with repeatable(ManualClock(tick_ms=1)):
        writer = opened(out)
        monkeypatch.setattr(LocalFileSystem, "create_exclusive", fail)
        with pytest.raises((CommitError, StorageError)):
            writer.commit(1)
        with pytest.raises((CommitError, StorageError)):
            writer.abort()
        monkeypatch.undo()
        with pytest.raises(CallOrder, match="the last abort failed"):
            writer.commit(1)
        writer.abort()
        writer.commit(2)
        assert opened(out).position == 2


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("reaction", ["open", "retry"])
@pytest.mark.parametrize("options", [{}, {"rolling": "policy", "max_records_per_file": 3}], ids=["files", "rolling"])
def test_an_error_at_any_call_loses_and_doubles_nothing(
    effect: Any, reaction: str, options: dict[str, Any], seed: int
) -> None:
    source = _Source(3)
    error = Unavailable if effect == "before" else OutcomeUnknown

    def scenario(fs: FileSystem) -> None:
        dice = random.Random(seed)
        with mounted(fs) as url:
            writer = opened(url, **options)
            source.run(writer, dice, retries=reaction == "retry")

    runs = 0
    for run in fault_sweep(Fault(error, effect), CrashingFileSystem, scenario, step=1):
        with mounted(run.file_system) as url:
            source.run(opened(url, **options), random.Random(seed), retries=False)
            check_directory(open_filesystem(url))
            assert numbers_of(url) == list(range(3)), run
        runs += 1
    assert runs > 30


@pytest.mark.slow
def test_random_histories_of_several_programs(out: str, seed: int) -> None:
    """Programs, a query and maintenance in any order: each row of a commit is there once, after each step."""
    dice = random.Random(seed)
    expected: Counter[int] = Counter()
    states: dict[int, Counter[int]] = {}
    positions: dict[str, int] = {}
    writers: dict[str, DirectoryWriter] = {}
    pending: dict[str, list[int]] = {}
    numbers = iter(range(1, 1_000_000))
    query = MicroBatch(out, {"n": "long"}, {"fileFormat": "json"})
    batch = 0
    for _ in range(60):
        app = dice.choice(["a", "b"])
        action = dice.choice(["open", "write", "write", "commit", "commit", "abort", "query", "maintain", "restore"])
        if action == "open" or app not in writers:
            options: dict[str, Any] = dice.choice([{}, {"rolling": "policy", "max_records_per_file": 4}])
            writers[app] = opened(out, app, threads=dice.choice([1, 2]), **options)
            pending[app] = []
            assert writers[app].position == positions.get(app)
        elif action == "write":
            new = [next(numbers) for _ in range(dice.randrange(4))]
            writers[app].write(rows(*new))
            pending[app] += new
        elif action == "commit":
            positions[app] = next(numbers)
            writers[app].commit(positions[app])
            expected.update(pending[app])
            pending[app] = []
        elif action == "abort":
            writers[app].abort()
            pending[app] = []
        elif action == "query":
            new = [next(numbers) for _ in range(dice.randrange(1, 4))]
            query.run(batch, [[{"n": number} for number in new]])
            expected.update(new)
            batch += 1
        elif action == "maintain":
            getattr(ftfile, dice.choice(["compact", "flush", "vacuum"]))(out)
        elif states:
            # A restore removes rows, and changes no position.
            version = dice.choice(list(states))
            ftfile.restore(out, version)
            expected = states[version].copy()
        if expected:
            states[ftfile.status(out).version] = expected.copy()
            assert Counter(numbers_of(out)) == expected, action
    ftfile.flush(out)
    assert visible(out) == sorted(expected.elements())
    check_directory(open_filesystem(out))
