"""The directory of a history: its queries, the actions of other programs, and the failures that these explain."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, FtfileError
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import ShiftedClock, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.micro_batch import MicroBatch
from tests.histories.oracle import Oracle
from tests.histories.troubles import TroubledFileSystem
from tests.kit.liveness import DueWatch
from tests.kit.rolling import RowFacts, Rules, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.testing.context import ManualClock
    from ftfile.writing.messages import TaskCommit
    from tests.histories.plan import History, QueryPlan
    from tests.histories.programs import PlayedProgram


_numbers = itertools.count()

Tasks = list[list[dict[str, Any]]]


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
    """The state of a history: the store with its faults and URL, its clock, and a clock for each process."""

    def __init__(self, history: History, clock: ManualClock, url: str, fs: TroubledFileSystem) -> None:
        self.history, self.clock, self.url, self.fs = history, clock, url, fs
        self.raw: FileSystem = fs.inner
        self.oracle = Oracle(self.raw)
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
        self.settings: dict[str, str] = {}  # of the newest files, which another program has chosen
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
    def store(history: History, clock: ManualClock) -> TroubledFileSystem:
        """Return a new store of the history's kind."""
        if history.store is None:
            return TroubledFileSystem(MemoryFileSystem(f"history-{next(_numbers)}", clock=clock))
        return TroubledFileSystem(CrashingFileSystem(clock=clock, store=history.store))

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
        """Return True while the store fails."""
        return self.fs.trouble is not None

    def open_segments(self) -> dict[str, Add]:
        """Return the segments that are open by the records."""
        return {add.id: add for add in self.oracle.live.values() if add.kind == "segment"}

    def live_parts(self) -> list[Add]:
        """Return the finished parts by the records."""
        return [add for add in self.oracle.live.values() if add.kind == "part"]

    def head(self) -> LogState:
        """Return the state of the log as a new process sees it."""
        return CommitLog(self.raw).refresh()

    def explains(self, error: FtfileError, *, of_damage: bool = False) -> bool:
        """Return True if an action on the directory, or damage that the call read, explains the error."""
        text = str(error)
        if self.is_troubled and self.fs.failed:
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
        if all(played.query.options.get("lineSep", "\n") == newest for played in self.queries) and "lineSep" in text:
            return False
        self.settings = {"lineSep": newest}
        for played in self.queries:
            played.query.options = {**played.query.options, **self.settings}
            played.late.clear()  # their files have the other settings
            played.query.restart()
        return True

    def call(self, what: str, action: Any, *args: Any, of_damage: bool = False, **more: Any) -> Any:
        """Return the action's result or an explained error. An unexplained error is a violation of L3."""
        self.fs.failed = False
        try:
            return action(*args, **more)
        except FtfileError as error:
            if self.explains(error, of_damage=of_damage):
                return error
            raise InvariantViolation("L3", f"{what} raised without any reason: {error!r}") from error

    def remove_named(self) -> None:
        """Move away the foreign files that errors named, as the errors request."""
        for path in sorted(self.named & self.foreign.keys()):
            self.raw.delete(path)
            del self.foreign[path]
        self.named.clear()

    def unpublished(self) -> set[str]:
        """Return the ids of parts that are staged."""
        return {add.id for add in self.live_parts() if add.path != add.final_path and self.raw.exists(add.path)}
