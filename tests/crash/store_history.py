"""A history of a store: queries and an operator write to it while processes are killed and the power is cut.

A dict follows the log: the effect of each record is what its author wrote, applied once and in order. Changes of a call
that has returned are in the store. Changes of an interrupted call are in the store completely or not at all.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, Fenced, FtfileError, SchemaError, StaleFiles
from ftfile.kv.definition import DELETE, MERGE, SET
from ftfile.kv.run import writer
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import BatchWriteAuthor, StreamAuthor
from ftfile.log.vacuum import vacuum
from ftfile.log.wal import opening_of
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import StoreBatch
from tests.crash.store_processes import Machine, Process
from tests.kit.due_compactions import compact_due
from tests.kit.failing_calls import Killed
from tests.kit.interrupts import Interrupt
from tests.kit.store_check import StoreReport, check_store
from tests.unit.kv.histories import Expected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.kv.key_columns import Key, KeyRange
    from ftfile.log.format.model import Record
    from ftfile.testing.fs.volume import Storage
    from ftfile.writing.messages import TaskCommit

__all__ = ("play",)

Values = tuple[Any, ...]
Rows = list[dict[str, Any]]

COLUMNS = {"k": "string", "n": "long", "m": "long", "s": "string", "gone": "boolean"}
VALUES = ("n", "m", "s")
TYPES = {"n": "long", "m": "long", "s": "string"}
MERGES = ("n:sum,m:max,s:append", "n:sum,m:min,s:coalesce", "n:sum")
QUERIES = tuple(f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))
STORAGE_KINDS: tuple[Storage, ...] = ("disk", "hdfs", "s3")
RETENTION_S = 60
FATES = {"done": 20, "killed": 3, "cut": 1, "fault": 2, "lost answer": 2, "interrupted": 2}


class Version(NamedTuple):
    """The content of a version."""

    rows: dict[Key, Values]
    batches: dict[str, int]  # the last batch of each query
    window: int  # the last recorded window
    buckets: int
    began_ms: int  # a moment before the record


class Change(NamedTuple):
    """A change of a window."""

    op: int
    key: str
    values: Values = ()
    end: str | None = None  # for a purge, whose range begins at the key

    def make(self, store: kv.KeyValueStore) -> None:
        if self.end is not None:
            store.purge(self.key, self.end)
        elif self.op == DELETE:
            store.delete(self.key)
        else:
            (store.put if self.op == SET else store.merge)(self.key, self.values)


class Upkeep(NamedTuple):
    """The effect of an unfinished call on rows."""

    purge: KeyRange | None = None
    buckets: int | None = None
    overwrite: Rows | None = None


class Query(NamedTuple):
    process: Process
    batches: StoreBatch


class Late(NamedTuple):
    """A batch of a slow driver whose tasks have ended."""

    query: Query
    batch_id: int
    messages: Sequence[TaskCommit]
    events: int  # the number of events at that time


class Operator(NamedTuple):
    process: Process
    store: kv.KeyValueStore
    epoch: int
    buckets: int  # at the time when it opened the store


class History:
    """A store and the events of its history."""

    def __init__(self, seed: str, clock: ManualClock) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = clock
        self.machine = Machine(rng.choice(STORAGE_KINDS), clock)
        self.options = {
            "flushIntervalCount": str(rng.choice((2, 3, 5))),
            "flushBytes": str(rng.choice((3000, 1 << 20))),
            "maxFileSize": str(rng.choice((4096, 1 << 27))),
            "vacuumInterval": "0s",
        }
        self.merge = rng.choice(MERGES)
        self.upkeep_of_operator = rng.choice(("inline", "none"))
        self.nothing = Version({}, {}, -1, rng.choice((1, 2, 4)), 0)
        self.keys = rng.choice((8, 40))
        self.versions: list[Version] = []
        self.definition = self._batches("memory://nowhere").config().definition

        self.acked = -1  # the newest version when the last successful call returned
        self.epoch = 0  # of the operator, in the log
        self.opened_epoch = 0  # of the newest opening that returned
        self.batch_rows: dict[tuple[str, int], Rows] = {}
        self.windows: dict[int, list[Change]] = {}
        # the last window whose `end_window` returned, and the last window for which it was called
        self.ended = self.maybe = -1
        self.upkeep = Upkeep()
        self.by_author: dict[str, tuple[int, Upkeep]] = {}
        self.began_ms = 0  # when the last call began
        self.horizon_ms = 0  # vacuum may have deleted versions that had ended by this time
        self.events = 0  # number of rebuckets and vacuums; after one, an unfinished batch may fail

        self.queries: dict[str, Query] = {}
        self.late: list[Late] = []
        self.operators: list[Operator] = []
        self.reader: kv.Reader | None = None
        self.followed, self.follower = -1, dict[Any, Values]()
        self.report: StoreReport | None = None
        self.is_calm = False
        self.counts: Counter[str] = Counter()
        self.step = "the first batch"
        self.trace: list[str] = []

    @property
    def head(self) -> Version:
        return self.versions[-1] if self.versions else self.nothing

    @mock.patch.object(writer, "BLOCK_BYTES", 4096)
    def play(self, steps: int) -> None:
        """Run random events and check the store from time to time; then let all writers finish."""
        while not self.versions:
            self.rng.choice((History.batch, History.window))(self)
        for step in self.rng.choices([*STEPS], [*STEPS.values()], k=steps):
            self.trace.append(step.__name__)
            self.counts[step.__name__] += 1
            self.step = step.__name__
            step(self)
            if self.rng.random() < 0.2:
                self.rng.choice((History.read, History.read_old, History.follow, History.check))(self)
        self.is_calm = True
        self.trace.append("the end")
        self.zombie()
        self.window()
        owner = self.owner()
        if owner is None or owner.buckets != self.head.buckets:
            self.open()
        self.commit_windows(last=True)
        self.batch()
        self.compact()
        for read in (History.read, History.follow, History.check):
            read(self)
        assert kv.verify(self.machine.start().url, context=current()).damaged == ()
        for version in range(len(self.versions)):
            self.read_old(version)

    # ------------------------------------------------------------------------------------------------- events
    def act(self, process: Process, call: Callable[[], Any], *, may_fail: bool = False) -> Any:
        """Return the result of a call.

        None if its process was killed, if the power was cut, if a call of the storage failed, if the call was
        interrupted, or if it was allowed to fail and failed. After an error, an operator ends.
        """
        fate = "done" if self.is_calm else self.rng.choices([*FATES], [*FATES.values()])[0]
        since, self.began_ms = len(self.machine.disk.journal), self.clock.now_ms()
        if fate == "killed":
            process.kill_after(self.rng.randrange(self.rng.choice((8, 60, 150))))
        elif fate in {"fault", "lost answer"}:
            process.fail_at(self.rng.randrange(self.rng.choice((4, 15, 60))), after=fate == "lost answer")
        line = 1 + self.rng.randrange(self.rng.choice((30, 300, 3_000)))
        result = None
        process.has_failed = False
        try:
            with Interrupt(line) if fate == "interrupted" else contextlib.nullcontext():
                result = call()
        except Killed as killed:
            self._count("killed", str(killed))
        except KeyboardInterrupt:
            self._count("interrupted", f"at line {line}")
            self._end_operator(process)
        except FtfileError as error:
            if not may_fail and not process.has_failed:
                raise
            self._count("failed" if process.has_failed else "refused", str(error))
            self._end_operator(process)
        if process.has_failed:
            self._count(fate, "a call of the storage")
        process.kill_after(None)
        process.fail_at(None)
        if fate == "cut":
            result = None
            self._count("cut", self.machine.cut_power(self.rng, since))
            self._forget_processes()
        self.observe()
        return result

    def _end_operator(self, process: Process) -> None:
        if any(operator.process is process for operator in self.operators):
            process.kill()

    def observe(self) -> None:
        """Apply the new records of the log."""
        log = CommitLog(self.machine.disk)
        head = log.refresh()
        for version in range(len(self.versions), head.version + 1):
            record = log.read_record(version)
            assert record is not None, f"the record of version {version} is missing"
            self.versions.append(self._after(self.head, record))
            self.trace.append(f"  version {version}: {record.author}")
        assert len(self.versions) == head.version + 1, f"{len(self.versions)} versions, and the log has {head.version}"
        self.epoch = opening_of(head, "w").epoch

    def _after(self, before: Version, record: Record) -> Version:
        author = record.author
        began_ms, upkeep = self.by_author.setdefault(repr(author), (self.began_ms, self.upkeep))
        expected = Expected(self.definition, {} if record.overwrite else dict(before.rows))
        batches, window, buckets = dict(before.batches), before.window, before.buckets
        if isinstance(author, StreamAuthor):
            assert author.batch_id == batches.get(author.query_id, -1) + 1, f"batch {author} follows {batches}"
            batches[author.query_id] = author.batch_id
            self._apply_rows(expected, self.batch_rows[author.query_id, author.batch_id])
        elif isinstance(author, BatchWriteAuthor) and author.transaction is not None:
            assert author.transaction.version > window, f"window {author.transaction.version} follows {window}"
            for number in sorted(self.windows):
                if window < number <= author.transaction.version:
                    _apply_changes(expected, self.windows[number])
            window = author.transaction.version
        elif isinstance(author, BatchWriteAuthor):
            assert record.overwrite
            assert upkeep.overwrite is not None
            self._apply_rows(expected, upkeep.overwrite)
        elif author.operation == "purge":
            assert upkeep.purge is not None
            expected.purge(upkeep.purge)
        elif author.operation == "rebucket":
            assert upkeep.buckets is not None
            buckets = upkeep.buckets
        return Version(expected.rows, batches, window, buckets, began_ms)

    def _forget_processes(self) -> None:
        self.queries, self.late, self.operators = {}, [], []
        self.reader = self.report = None
        if self.followed > self.acked:
            self.followed, self.follower = -1, {}
        del self.versions[self.acked + 1 :]

    def _returned(self, version: int | None) -> None:
        if version is not None:
            self.acked = max(self.acked, version)

    def _count(self, event: str, text: str) -> None:
        self.counts[event] += 1
        self.counts[f"{self.step} and {event}"] += 1
        self.trace.append(f"  {event}: {text}")

    # ------------------------------------------------------------------------------------------------------ queries
    def batch(self, query_id: str | None = None) -> None:
        """Run a batch of a query."""
        name = query_id or self.rng.choice(QUERIES)
        query, number = self._query(name), self.head.batches.get(name, -1) + 1
        parts = self._parts(self._rows_of(name, number))
        self._returned(self.act(query.process, lambda: query.batches.run(number, parts).version))

    def replay(self) -> None:
        """Repeat a recorded batch with other tasks."""
        for name, number in self.head.batches.items():
            query, parts = self._query(name), self._parts(self._rows_of(name, number))
            query.batches.restart()
            done = self.act(query.process, functools.partial(query.batches.run, number, parts))
            assert done is None or done.replayed

    def begin(self) -> None:
        """Run the tasks of a batch. The driver does not commit it yet, and other drivers continue its query."""
        name = self.rng.choice(QUERIES)
        query, number = self._query(name), self.head.batches.get(name, -1) + 1
        parts = self._parts(self._rows_of(name, number))
        messages = self.act(query.process, lambda: query.batches.run_tasks(number, parts))
        if messages is not None:
            del self.queries[name]
            self.late.append(Late(query, number, messages, self.events))
            if self.rng.random() < 0.4:
                self.batch(name)

    def come_late(self) -> None:
        """Commit the rows that tasks wrote earlier, unless the batch is recorded."""
        alive = [late for late in self.late if late.query.process.is_alive]
        if not alive:
            return
        late = self.rng.choice(alive)
        self.late.remove(late)
        (query, number, messages, events), batches = late, self.head.batches
        last = batches.get(query.batches.query_id, -1)
        done = self.act(query.process, lambda: query.batches.commit(number, messages), may_fail=events < self.events)
        if done is not None:
            assert done.replayed == (number <= last)
            self.counts["zombies" if done.replayed else "late"] += 1

    def overwrite(self) -> None:
        """Replace all rows."""
        process, rows = self.machine.start(), self._rows()
        self.upkeep = Upkeep(overwrite=rows)
        job = self._batches(process.url, overwrite=True)
        self._returned(
            self.act(process, lambda: job.run_batch_write(current().ids.unique(), self._parts(rows)).version)
        )

    def _query(self, name: str) -> Query:
        if name not in self.queries or not self.queries[name].process.is_alive:
            process = self.machine.start()
            self.queries[name] = Query(process, self._batches(process.url, name))
        query = self.queries[name]
        query.batches.options = {**query.batches.options, "buckets": str(self.head.buckets)}
        return query

    def _batches(self, url: str, name: str = QUERIES[0], *, overwrite: bool = False) -> StoreBatch:
        own = {"keyColumns": "k", "deleteColumn": "gone", "onNewQuery": "continue", "merge": self.merge}
        options = {**self.options, **own, "buckets": str(self.head.buckets)}
        return StoreBatch(url, COLUMNS, options, name, overwrite=overwrite)

    # ----------------------------------------------------------------------------------------------------- operator
    def owner(self) -> Operator | None:
        """Return the operator that is not fenced, or None if it is dead."""
        return next((each for each in self.operators if each.epoch == self.epoch and each.process.is_alive), None)

    def open(self) -> None:
        """Start an operator, possibly with a restore, while other operators are alive."""
        restorable = [number for number in self.windows if self.head.window <= number <= self.ended]
        restore = self.rng.choice(restorable) if restorable and not self.is_calm and self.rng.random() < 0.3 else None
        if restore is not None:
            self.ended = restore
        process, buckets = self.machine.start(), self.head.buckets
        store = self.act(process, lambda: self._store(process.url, restore))
        if store is None:
            return
        self.trace.append(f"  opened, restore={restore}, last window {store.last_window}")
        if restore is None:
            assert max(self.ended, self.head.window) <= store.last_window <= max(self.maybe, self.head.window)
        else:
            assert store.last_window == restore
            self.counts["restored"] += 1
        assert store.recorded_window == self.head.window
        self.windows = {number: changes for number, changes in self.windows.items() if number <= store.last_window}
        self.ended = self.maybe = store.last_window
        self.opened_epoch = self.epoch
        self.operators.append(Operator(process, store, self.epoch, buckets))
        self._returned(len(self.versions) - 1)

    def window(self) -> None:
        """End a window."""
        operator = self._owner_or_new()
        if operator is None:
            return
        store = operator.store
        number, changes = store.last_window + self.rng.choice((1, 1, 3)), self._changes()
        store.begin_window(number)
        for change in changes:
            change.make(store)
        self.windows[number], self.maybe = changes, number
        if self.act(operator.process, lambda: _is_done(store.end_window)):
            self.ended = number
        elif self.rng.random() < 0.5:
            self.open()

    def commit(self) -> None:
        """Record changes without a log of windows."""
        operator = self._owner_or_new()
        if operator is None or operator.buckets != self.head.buckets:
            return
        store = operator.store
        number, changes = store.last_window + 1, self._changes()
        for change in changes:
            change.make(store)
        self.windows[number], self.maybe = changes, number
        if self.act(operator.process, lambda: _is_done(store.commit, number)):
            self.ended = number
            self._recorded(number)

    def commit_windows(self, *, last: bool = False) -> None:
        """Record windows that have ended.

        If the number of buckets changed since the operator's opening, the operator must open the store again.
        """
        operator = self.owner()
        numbers = [number for number in self.windows if self.head.window < number <= self.ended]
        if operator is None or not numbers:
            return
        store, number = operator.store, self.ended if last else self.rng.choice(numbers)
        if operator.buckets != self.head.buckets:
            with pytest.raises(SchemaError, match="buckets"):
                store.committed(number)
            self.counts["other buckets"] += 1
            self.observe()
            self.open()
            return
        if self.act(operator.process, lambda: _is_done(store.committed, number)):
            self._recorded(number)

    def zombie(self) -> None:
        """Let fenced operators continue."""
        for zombie in [each for each in self.operators if each.process.is_alive and each.epoch != self.epoch]:
            self.operators.remove(zombie)
            store = zombie.store
            if store.last_window > store.recorded_window and self.rng.random() < 0.5:
                with pytest.raises(Fenced):
                    store.committed(store.last_window)
            has_window = self.rng.random() < 0.5
            if has_window:
                store.begin_window(store.last_window + 1)
            change = Change(SET, "zombie", (1, 1, "z"))
            change.make(store)
            # an opening that was killed has not taken over the windows
            if has_window and zombie.epoch == self.opened_epoch:
                self.maybe = store.last_window + 1
                self.windows[self.maybe] = [change]
            with pytest.raises(Fenced):
                store.end_window() if has_window else store.commit()
            self.counts["fenced"] += 1
            if self.rng.random() < 0.5:
                store.close()
        self.observe()

    def read_as_operator(self) -> None:
        """Read the committed rows, and the rows with pending windows."""
        operator = self.owner()
        if operator is None:
            return
        store = operator.store
        store.refresh()
        pending = Expected(self.definition, dict(self.head.rows))
        for number in sorted(self.windows):
            if self.head.window < number <= store.last_window:
                _apply_changes(pending, self.windows[number])
        for key in self._some_keys():
            assert store.get(key) == self.head.rows.get((key.encode(),)), key
            assert store.read(key) == pending.rows.get((key.encode(),)), key

    def _owner_or_new(self) -> Operator | None:
        if self.owner() is None or self.rng.random() < 0.1:
            self.open()
        return self.owner()

    def _recorded(self, number: int) -> None:
        assert self.head.window == number
        self._returned(len(self.versions) - 1)

    def _store(self, url: str, restore: int | None) -> kv.KeyValueStore:
        return kv.KeyValueStore(
            url,
            writer="w",
            keys={"k": "string"},
            values=TYPES,
            buckets=None if self.versions else self.nothing.buckets,
            merge=self.merge,
            restore=restore,
            maintenance=self.upkeep_of_operator,  # type: ignore[arg-type] # one of these
            options=self.options,
            context=current(),
        )

    # ------------------------------------------------------------------------------------------------------- upkeep
    def purge(self) -> None:
        """End a range of keys."""
        start, end = (f"{number:03d}" for number in sorted(self.rng.sample(range(self.keys + 1), 2)))
        self.upkeep, process = Upkeep(purge=((start.encode(),), (end.encode(),))), self.machine.start()
        self._returned(self.act(process, lambda: kv.purge(process.url, start, end, context=current()).version))

    def rebucket(self) -> None:
        """Change the number of buckets."""
        if self.rng.random() < 0.5:
            self.begin()
        buckets = self.rng.choice((1, 2, 4, 8))
        self.upkeep, process = Upkeep(buckets=buckets), self.machine.start()
        self.events += 1
        self._returned(self.act(process, lambda: kv.rebucket(process.url, buckets, context=current()).version))
        self._surprise()

    def compact(self) -> None:
        """Merge the due runs, or all runs."""
        process, full = self.machine.start(), self.rng.random() < 0.4
        how: dict[str, Any] = {"threads": 1, "context": current()}
        self._returned(self.act(process, lambda: kv.compact(process.url, full=full, **how).version))

    def compact_due(self) -> None:
        """Merge the due runs as a writer does after its commits."""
        process = self.machine.start()
        self.act(process, lambda: compact_due(CommitLog(open_filesystem(process.url))))

    def vacuum(self) -> None:
        """Delete files that no version of the last minute needs."""
        if self.rng.random() < 0.3:
            self.begin()
        self.clock.advance(self.rng.choice((1, RETENTION_S // 2, 2 * RETENTION_S)))
        process = self.machine.start()
        self.events += 1
        how: dict[str, Any] = {"retention": f"{RETENTION_S}s", "force": True, "context": current()}
        self.act(process, lambda: vacuum(process.url, dry_run=False, **how))
        self.horizon_ms = max(self.horizon_ms, self.clock.now_ms() - 1000 * RETENTION_S)
        self._surprise()

    def _surprise(self) -> None:
        """Let a process continue that has not yet read the change."""
        self.rng.choice((History.come_late, History.commit_windows, History.follow))(self)

    # -------------------------------------------------------------------------------------------------------- reads
    def read(self) -> None:
        """Read the newest version in all ways, with a new reader and with a reader that refreshes."""
        if self.reader is None:
            self.reader = kv.open(self.machine.start().url, context=current())
        self.reader.refresh()
        with kv.open(self.machine.start().url, context=current()) as new:
            for reader in (new, self.reader):
                assert reader.version == len(self.versions) - 1
                assert _scanned(reader) == self.head.rows
                keys = self._some_keys()
                expected = [self.head.rows.get((key.encode(),)) for key in keys]
                assert [reader.get(key) for key in keys] == reader.multi_get(keys) == expected
                looked_up = reader.lookup(pa.array(keys)).select(VALUES).to_pylist()
                assert [tuple(row.values()) for row in looked_up] == [values or (None,) * 3 for values in expected]

    def read_old(self, version: int | None = None) -> None:
        """Read a version, unless vacuum may have deleted its files."""
        chosen = self.rng.randrange(len(self.versions)) if version is None else version
        try:
            with kv.open(self.machine.start().url, version=chosen, context=current()) as reader:
                assert _scanned(reader) == self.versions[chosen].rows, f"version {chosen}"
                self.counts["old"] += 1
        except (StaleFiles, ConfigError):
            assert not self._is_kept(chosen), f"version {chosen} is missing"

    def follow(self) -> None:
        """Read all changes since the last call."""
        start, last = self.followed + 1, len(self.versions) - 1
        try:
            changes = [*kv.changes(self.machine.start().url, start, last, context=current())]
        except StaleFiles:
            assert not self._is_kept(max(start - 1, 0)), f"changes since version {start} are missing"
            self.counts["left behind"] += 1
            self.followed, self.follower = last, dict(self.head.rows)
            return
        rows = [row for batch in changes for row in batch.to_pylist()]
        read = {
            (row["_commit_version"], (row["k"].encode(),)): [_values(row["old"]), _values(row["new"])] for row in rows
        }
        assert len(read) == len(rows), "the feed contains a change twice"
        expected: dict[tuple[int, Key], list[Values | None]] = {}
        for version in range(start, last + 1):
            old, new = self.versions[version - 1].rows if version else {}, self.versions[version].rows
            for key in old.keys() | new.keys():
                if old.get(key) != new.get(key):
                    expected[version, key] = [old.get(key), new.get(key)]
        assert read == expected
        self.followed = last

    def check(self) -> None:
        """Check the invariants, and the rows."""
        self.report = check_store(self.machine.disk, earlier=self.report)
        assert {(key[0].encode(),): values for key, values in self.report.rows.items()} == self.head.rows

    def _is_kept(self, version: int) -> bool:
        return version == len(self.versions) - 1 or self.versions[version + 1].began_ms > self.horizon_ms

    # --------------------------------------------------------------------------------------------------------- rows
    def _rows_of(self, name: str, number: int) -> Rows:
        rows = self._rows()
        if not self.batch_rows and self.rng.random() < 0.6:  # a large run, above which merges keep deletes and purges
            rows += [
                {"k": f"b{key:03d}", "n": key, "m": None, "s": f"{self.rng.getrandbits(160):x}", "gone": False}
                for key in range(600)
            ]
        return self.batch_rows.setdefault((name, number), rows)

    def _rows(self) -> Rows:
        rows = []
        for _ in range(self.rng.choice((0, 3, 12, 30))):
            rows.append({"k": self._key(), **dict(zip(VALUES, self._drawn_values(), strict=True))})
            rows[-1]["gone"] = self.rng.random() < 0.2
        return rows

    def _changes(self) -> list[Change]:
        changes = [Change(SET, self._key(), self._drawn_values())]  # a window without changes is not stored
        for _ in range(self.rng.choice((0, 2, 8))):
            op = self.rng.choice((SET, MERGE, MERGE, DELETE))
            changes.append(Change(op, self._key(), () if op == DELETE else self._drawn_values()))
        if self.rng.random() < 0.15:
            start, end = (f"{number:03d}" for number in sorted(self.rng.sample(range(self.keys + 1), 2)))
            changes.insert(self.rng.randrange(len(changes) + 1), Change(DELETE, start, end=end))
        return changes

    def _key(self) -> str:
        return f"{self.rng.randrange(self.keys):03d}"

    def _some_keys(self) -> list[str]:
        return [*(self._key() for _ in range(4)), "b007", "none", "zombie"]

    def _drawn_values(self) -> Values:
        rng = self.rng
        return (*(rng.choice((None, rng.randrange(-50, 50))) for _ in "nm"), rng.choice((None, "", *"abc")))

    def _parts(self, rows: Rows) -> list[Rows]:
        cuts = sorted(self.rng.choices(range(len(rows) + 1), k=self.rng.choice((0, 1, 2))))
        return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def _apply_rows(self, expected: Expected, rows: Rows) -> None:
        for row in rows:
            values = (None, None, None) if row["gone"] else tuple(row[name] for name in VALUES)
            expected.apply((DELETE if row["gone"] else MERGE, (row["k"].encode(),), values), 0)


def _apply_changes(expected: Expected, changes: Sequence[Change]) -> None:
    for change in changes:
        if change.end is not None:
            expected.purge(((change.key.encode(),), (change.end.encode(),)))
        else:
            expected.apply((change.op, (change.key.encode(),), change.values), 0)


def _is_done(call: Callable[..., object], *arguments: object) -> bool:
    call(*arguments)
    return True


def _scanned(reader: kv.Reader) -> dict[Key, Values | None]:
    rows = [row for batch in reader.scan() for row in batch.to_pylist()]
    scanned: dict[Key, Values | None] = {(row["k"].encode(),): _values(row) for row in rows}
    assert len(scanned) == len(rows), "the scan contains a key twice"
    return scanned


def _values(row: dict[str, Any] | None) -> Values | None:
    return None if row is None else tuple(row[name] for name in VALUES)


STEPS: dict[Callable[[History], None], float] = {
    History.batch: 6,
    History.replay: 1,
    History.begin: 2,
    History.come_late: 4,
    History.overwrite: 0.6,
    History.open: 1,
    History.window: 6,
    History.commit: 1,
    History.commit_windows: 4,
    History.zombie: 1.5,
    History.read_as_operator: 1,
    History.purge: 1.5,
    History.rebucket: 1,
    History.compact: 1.5,
    History.compact_due: 1,
    History.vacuum: 1.5,
    History.read: 1,
    History.read_old: 1.5,
    History.follow: 1,
}


def play(seed: str, steps: int = 25) -> Counter[str]:
    """Play a history and return the number of events of each kind. An AssertionError lists the events of the store."""
    clock = ManualClock(tick_ms=1)
    with repeatable(clock, SeededIds(random.Random(seed).getrandbits(32))):
        history = History(seed, clock)
        try:
            history.play(steps)
        except Exception as error:
            raise AssertionError("\n".join([f"history {seed!r}", *history.trace, repr(error)])) from error
        finally:
            history.machine.stop()
    return history.counts
