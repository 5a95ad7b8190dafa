"""The directory of a history: its queries, the actions of other programs, and the failures that these explain."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import (
    BatchGap,
    ConfigError,
    CorruptData,
    FtfileError,
    HistoryGone,
    InvalidMessages,
    MissingPart,
    NotFound,
    ReplayMismatch,
    StaleFiles,
    StillOpen,
)
from ftfile.filters.keys import Keys
from ftfile.log.commit_log import CommitLog
from ftfile.log.sealed import SealedFileSystem
from ftfile.storage import calls
from ftfile.testing.context import ShiftedClock, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, RootedFileSystem
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.micro_batch import MicroBatch
from tests.histories.oracle import Oracle, rows_in
from tests.histories.troubles import DIRECTORY, TroubledFileSystem
from tests.kit.liveness import DueWatch
from tests.kit.rolling import RowFacts, Rules, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.testing.context import ManualClock
    from ftfile.testing.fs.disk import Loss
    from ftfile.writing.messages import TaskCommit
    from tests.histories.pairs import Met
    from tests.histories.plan import Event, History, QueryPlan, Step
    from tests.histories.programs import PlayedProgram
    from tests.histories.streams import PlayedFollower, PlayedLoader


_numbers = itertools.count()

Tasks = list[list[dict[str, Any]]]


class Ended(FtfileError):
    """The process has ended during the call, or the call was interrupted."""

    def __init__(self, reason: str, *, is_dead: bool) -> None:
        super().__init__(reason)
        self.is_dead = is_dead


# Errors of a process that stood still while another one did the same, or replaced what it was reading.
_OF_OTHERS = (ReplayMismatch, BatchGap, StaleFiles)
# After weeks, vacuum has deleted its files.
_OF_LATE = (*_OF_OTHERS, CorruptData, HistoryGone, InvalidMessages, MissingPart, NotFound, StillOpen)


@dataclass
class PlayedQuery:
    """A query and the part of its state that Spark has."""

    query: MicroBatch  # with its current options
    plan: QueryPlan
    watch: DueWatch
    rules: Rules | None
    next_batch: int = 0
    pending: Tasks | None = None  # rows of the batch that Spark retries; None if the last batch returned
    last: tuple[int, Tasks] | None = None  # the number and rows of the last batch that returned
    # messages of batches that were not committed
    late: list[tuple[int, list[TaskCommit]]] = field(default_factory=list)


class World:
    """The state of a history: the storage with its faults and URL, its clock, and a clock for each process.

    Attributes:
        storage_url: of the whole storage, which also has the files and stores of streams.
        volume: the whole storage without injected faults.
        raw: the directory in it.
        meet: runs a call with an event.
        act: executes a step.
        pairs: what the history has met.
        event: happens to the next call.
        met_events: that have happened in this step.
        acknowledged: versions before this one were acknowledged, so no power cut may lose them.
        old_names: paths in the directory that power cuts left beside the new names of the files.
    """

    def __init__(
        self,
        history: History,
        clock: ManualClock,
        url: str,
        fs: TroubledFileSystem,
        *,
        meet: Callable[[World, Event, Callable[[], Any]], Any],
        act: Callable[[World, Step], None],
        pairs: Met,
    ) -> None:
        self.history, self.clock, self.fs = history, clock, fs
        self.storage_url, self.url = url, f"{url}/{DIRECTORY}"
        self.meet, self.act, self.pairs = meet, act, pairs
        self.event: Event | None = None
        self.met_events: list[Event] = []
        self.acknowledged = 0
        self.old_names: set[str] = set()
        self.query = 0  # of the step
        self.is_program = False  # the process of the step is the program's
        self.volume: FileSystem = fs.inner
        self.raw: FileSystem = RootedFileSystem(self.volume, DIRECTORY)
        self.keyed = self._with_keys()
        self.oracle = Oracle(self.keyed, rows_in(history.columns), pairs.record)
        self.final: set[bytes] = set()  # rows that end their files
        self._facts_of: dict[str, Sequence[RowFacts]] = {}  # by segment id: they never change
        self.numbers = itertools.count()
        self.trouble_ends = 0
        self.step = 0
        self.foreign: dict[str, bytes] = {}
        self.named: set[str] = set()
        self.damaged = self.oracle.damaged
        self.damaged_paths = self.oracle.damaged_paths
        self.damaged_ranges: set[str] = set()
        self.old_hints: list[bytes] = []
        self.transactions: list[tuple[str, int, Tasks]] = []
        self.untold: set[str] = set()
        self.program: PlayedProgram | None = None
        self.loader: PlayedLoader | None = None
        self.follower: PlayedFollower | None = None
        self.settings: dict[str, str] = {}  # of the newest files, which another program has chosen
        self.depth = 0  # of calls within calls
        self.queries = [self._query(number, plan) for number, plan in enumerate(history.queries)]
        # by query; the last clock is for maintenance
        self.clocks = [ShiftedClock(clock) for _ in range(len(history.queries) + 1)]

    @contextlib.contextmanager
    def process(self, number: int) -> Iterator[None]:
        """Run the block as a process with a separate clock, by its place in `clocks`."""
        with repeatable(self.clocks[number], current().ids):
            yield

    def now_ms(self) -> int:
        """Return the time of the running process."""
        return current().clock.now_ms()

    @staticmethod
    def storage(history: History, clock: ManualClock) -> TroubledFileSystem:
        """Return a new storage system of the history's kind."""
        if history.storage is None:
            return TroubledFileSystem(MemoryFileSystem(f"history-{next(_numbers)}", clock=clock))
        return TroubledFileSystem(CrashingFileSystem(clock=clock, storage=history.storage))

    def _query(self, number: int, plan: QueryPlan) -> PlayedQuery:
        query_id = f"00000000-0000-0000-0000-{number:012d}"
        options = {**self.history.format_options, **plan.options}
        query = MicroBatch(self.url, self.history.columns, options, query_id)
        return PlayedQuery(query, plan, DueWatch(self.facts_of), rules_of(options))

    def facts_of(self, segment: Add) -> Sequence[RowFacts]:
        """Return the facts of a segment's rows."""
        if segment.id not in self._facts_of:
            batch = segment.origin.last_batch
            committed = self.oracle.times_ms.get((segment.origin.query_id, batch), 0)
            rows = self.oracle.rows[segment.id]
            self._facts_of[segment.id] = [RowFacts(batch, committed, row in self.final) for row in rows]
        return self._facts_of[segment.id]

    @property
    def is_troubled(self) -> bool:
        """Return True while the storage fails, and after an event of the step."""
        return self.fs.trouble is not None or bool(self.met_events)

    def open_segments(self) -> dict[str, Add]:
        """Return the segments that are open by the records."""
        return {add.id: add for add in self.oracle.live.values() if add.kind == "segment"}

    def live_parts(self) -> list[Add]:
        """Return the finished parts by the records."""
        return [add for add in self.oracle.live.values() if add.kind == "part"]

    def head(self) -> LogState:
        """Return the state of the log as a new process sees it."""
        return CommitLog(self.keyed).refresh()

    def restart(self) -> None:
        """Start new processes of all queries, which have only Spark's checkpoints."""
        for played in self.queries:
            played.query.restart()
        for stream in (self.loader, self.follower):
            if stream is not None:
                stream.restart()

    def lose(self, left: FileSystem, loss: Loss) -> None:
        """Replace the storage by the disk that a power cut has left."""
        for path in loss.old_names:
            self.old_names.add(path.removeprefix(f"{DIRECTORY}/"))
        self.volume = self.fs.inner = left
        self.raw = RootedFileSystem(left, DIRECTORY)
        self.keyed = self.oracle.fs = self._with_keys()

    def _with_keys(self) -> FileSystem:
        """Return the directory as a process with its keys sees it."""
        provider = self.history.format_options.get("keyProvider")
        return self.raw if provider is None else SealedFileSystem(self.raw, Keys(provider))

    def drawn_version(self, draw: int) -> int | None:
        """Return a version that can be read and has columns; None if there is none, or the storage fails."""
        oldest = None if self.oracle.first_rows is None else self.oldest_version()
        return None if oldest is None else oldest + draw % (self.oracle.records - oldest)

    def oldest_version(self) -> int | None:
        """Return the oldest version that can be read and has columns; None if the storage fails."""
        oldest = self.call("the oldest version", ftfile.open(self.url, context=current()).oldest_version)
        return None if isinstance(oldest, FtfileError) else max(oldest, self.oracle.first_rows or 0)

    def explains(self, error: FtfileError, *, of_damage: bool = False) -> bool:
        """Return True if an action on the directory, or damage that the call read, explains the error."""
        text = str(error)
        if self.fs.failed or self._is_conflict(error):
            return True
        if isinstance(error, ConfigError) and self._adopts_settings(text):
            return True
        blocking = {path for path in self.foreign if path in text}
        if blocking:
            self.named |= blocking
            return True
        if not of_damage:
            return False
        self.oracle.follow(self.now_ms())  # the call can have recorded copies of damaged files
        return any(path in text for path in self.damaged_paths)

    def _adopts_settings(self, text: str) -> bool:
        """Give all queries the settings that an error names, as it requests; True if another program changed them."""
        head = self.head()
        newest = "\n"
        if head.encoding is not None:
            newest = head.definitions[head.encoding]["format"].get("lineSep", newest)
        if "lineSep is" not in text and "line_sep was" not in text:
            return False
        if self.depth > 1:
            return True  # the outer call, whose options stay the same, has changed them, or reports it as well
        writers = [*self.queries, *([] if self.loader is None else [self.loader.played])]
        if all(played.query.options.get("lineSep", "\n") == newest for played in writers) and "lineSep" in text:
            return False
        self.settings = {"lineSep": newest}
        for played in writers:
            played.query.options = {**played.query.options, **self.settings}
            played.late.clear()  # their files have the other settings
            played.query.restart()
        return True

    def call(self, what: str, action: Any, *args: Any, of_damage: bool = False, **more: Any) -> Any:
        """Return the action's result or an explained error. An unexplained error is a violation of L3."""
        event, self.event = self.event, None
        acting = partial(action, *args, **more)
        self.pairs.call(what, action, None if self.program is None else self.program.program)
        records = self.oracle.records
        self.depth += 1
        try:
            done = acting() if event is None else self.meet(self, event, acting)
        except FtfileError as error:
            if self.explains(error, of_damage=of_damage):
                return error
            raise InvariantViolation("L3", f"{what} raised without any reason: {error!r}") from error
        finally:
            self.depth -= 1
        if not isinstance(done, Ended):
            self.oracle.follow(self.now_ms())
            if self.oracle.records > records:
                self.acknowledged = self.oracle.records
        return done

    def met(self, event: Event, *, is_counted: bool = True) -> None:
        """Note that an event has happened, and count it if it had an effect."""
        if event not in self.met_events:
            self.met_events.append(event)
        if is_counted:
            self.pairs.event(event.kind)

    def _is_conflict(self, error: FtfileError) -> bool:
        """Return True if an event explains the error: another process has acted meanwhile."""
        kinds = {event.kind for event in self.met_events}
        if "late process" in kinds and isinstance(error, _OF_LATE):
            return True
        if "clock step" in kinds and isinstance(error, StaleFiles):
            return True  # the horizon of a vacuum is ahead
        return bool(kinds & {"other process", "twin", "second thread"}) and isinstance(error, _OF_OTHERS)

    def wait_for_threads(self, limit_s: float = 20) -> int:
        """Wait until no thread of an interrupted or ended process runs; return the number that still do.

        Threads of an open writer wait for rows, so they run until it is closed.
        """
        deadline_s = time.monotonic() + limit_s
        # Nothing signals that the last one has ended.
        while calls._running.here and time.monotonic() < deadline_s:  # noqa: SLF001 - nothing of the product asks for it
            time.sleep(0.0005)
        return len(calls._running.here)  # noqa: SLF001 - nothing of the product asks for it

    def remove_named(self) -> None:
        """Move away the foreign files that errors named, as the errors request."""
        for path in sorted(self.named & self.foreign.keys()):
            self.raw.delete(path)
            del self.foreign[path]
        self.named.clear()

    def unpublished(self) -> set[str]:
        """Return the ids of parts that are staged."""
        return {add.id for add in self.live_parts() if add.path != add.final_path and self.raw.exists(add.path)}
