"""Whole stores compared with a dict: two queries, crashes, replays, purges, rebucketing, compaction, vacuum, asOf."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest import mock

from ftfile import kv
from ftfile.core.errors import ConfigError, StaleFiles
from ftfile.kv.definition import DELETE, MERGE, SET
from ftfile.kv.run import writer
from ftfile.log.commit_log import CommitLog
from ftfile.log.vacuum import vacuum
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.due_compactions import compact_due
from tests.kit.store_check import StoreReport, check_store
from tests.unit.kv.histories import Expected

if TYPE_CHECKING:
    from ftfile.kv.key_columns import Key

COLUMNS = {"k": "string", "n": "long", "m": "long", "s": "string", "gone": "boolean"}
MERGES = ("last", "n:sum", "n:sum,m:max,s:append", "m:min,s:coalesce")


class WholeStore:
    """A store that its real writers write, and a dict."""

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.rng = random.Random(seed)
        self.clock = clock
        self.path = f"memory://whole-{seed}/store"
        rng = self.rng
        ordered = rng.random() < 0.2
        options = {
            "keyColumns": "k",
            "deleteColumn": "gone",
            "onNewQuery": "continue",
            "buckets": str(rng.choice((1, 2, 4))),
            "flushIntervalCount": str(rng.choice((2, 3, 5))),
            "flushBytes": str(rng.choice((3000, 1 << 20))),
            "maxFileSize": str(rng.choice((4096, 1 << 27))),
            "tombstoneTtl": "1000d",
            "vacuumInterval": "0s",
            **({"sequenceColumn": "n"} if ordered else {"merge": rng.choice(MERGES)}),
        }
        ids = [f"00000000-0000-0000-0000-00000000000{number}" for number in (1, 2)]
        self.queries = [StoreBatch(self.path, COLUMNS, dict(options), query_id) for query_id in ids]
        self.batches = [0, 0]
        self.expected = Expected(self.queries[0].config().definition)
        self.versions: dict[int, dict[Key, tuple[Any, ...]]] = {}
        self.report: StoreReport | None = None
        self.counts: Counter[str] = Counter()
        self.keys = rng.choice((8, 60))

    @mock.patch.object(writer, "BLOCK_BYTES", 4096)
    def play(self, steps: int) -> None:
        """Let things happen, and check now and then, and at the end."""
        self.batch()
        for step in self.rng.choices([*STEPS], [*STEPS.values()], k=steps):
            self.counts[step.__name__] += 1
            step(self)
            if self.rng.random() < 0.15:
                self.check()
        kv.compact(self.path, full=self.rng.random() < 0.5, context=current())
        self.check()

    # ---------------------------------------------------------------------------------------------------- the writers
    def batch(self) -> None:
        """Write a batch; perhaps its messages, or its success, are lost, and it comes again, partitioned otherwise."""
        place = self.rng.randrange(2)
        query, rows = self.queries[place], self._rows()
        for _ in range(2):
            fate = self.rng.random()
            if fate < 0.1:
                query.run_tasks(self.batches[place], self._parts(rows))
                self.counts["lost"] += 1
                query.restart()
            elif fate < 0.2:
                self._commit(place, rows)
                self.counts["replayed"] += 1
                query.restart()
                assert query.run(self.batches[place], self._parts(rows)).replayed
                self.batches[place] += 1
                return
        self._commit(place, rows)
        self.batches[place] += 1

    def overlapping(self) -> None:
        """Write batches of both queries at once, whose tasks do the same jobs."""
        rows = [self._rows(), self._rows()]
        messages = [self.queries[place].run_tasks(self.batches[place], [rows[place]]) for place in (0, 1)]
        for place in self.rng.sample((0, 1), 2):
            done = self.queries[place].commit(self.batches[place], messages[place])
            self._apply(rows[place])
            self._note(done.version)
            self.batches[place] += 1

    def overwrite(self) -> None:
        """Replace all rows."""
        rows = self._rows()
        query = StoreBatch(self.path, COLUMNS, self.queries[0].options, overwrite=True)
        done = query.run_batch_write(f"job-{self.rng.random()}", [rows])
        self.expected = Expected(self.expected.definition)
        self._apply(rows)
        self._note(done.version)

    def _commit(self, place: int, rows: list[dict[str, Any]]) -> None:
        done = self.queries[place].run(self.batches[place], self._parts(rows))
        assert not done.replayed
        self._apply(rows)
        self._note(done.version)

    # ---------------------------------------------------------------------------------------------------- maintenance
    def purge(self) -> None:
        """End a range of keys."""
        start, end = sorted(self.rng.sample(range(self.keys + 1), 2))
        report = kv.purge(self.path, f"{start:03d}", f"{end:03d}", context=current())
        if report.version is not None:
            self.expected.purge(((b"%03d" % start,), (b"%03d" % end,)))
            self._note(report.version)

    def rebucket(self) -> None:
        """Change the number of buckets; the queries continue with it."""
        buckets = self.rng.choice((1, 2, 4, 8))
        kv.rebucket(self.path, buckets, context=current())
        for query in self.queries:
            query.options = {**query.options, "buckets": str(buckets)}
            query.restart()
        self._note_head()

    def compact(self) -> None:
        """Merge the due runs, or all runs."""
        kv.compact(self.path, full=self.rng.random() < 0.3, context=current())
        self._note_head()

    def due(self) -> None:
        """Merge the due runs as an idle query does."""
        compact_due(CommitLog(open_filesystem(self.path)))
        self._note_head()

    def under_way(self) -> None:
        """Maintain the store while a batch is under way, which then comes late."""
        rows = self._rows()
        messages = self.queries[0].run_tasks(self.batches[0], [rows])
        self.rng.choice((WholeStore.purge, WholeStore.compact, WholeStore.due))(self)
        done = self.queries[0].commit(self.batches[0], messages)
        self._apply(rows)
        self._note(done.version)
        self.batches[0] += 1

    def vacuum(self) -> None:
        """Delete files that no version of the last minute needs."""
        self.clock.advance(self.rng.choice((10, 120)))
        vacuum(self.path, dry_run=False, retention="60s", force=True, context=current())
        self._note_head()

    def as_of(self) -> None:
        """Read an old version, unless a vacuum has taken it."""
        version = self.rng.choice([*self.versions])
        with (
            contextlib.suppress(StaleFiles, ConfigError),
            kv.open(self.path, version=version, context=current()) as store,
        ):
            found = {key: values for batch in store.scan() for key, values in _pairs(batch.to_pydict())}
            assert found == self.versions[version]
            self.counts["read"] += 1

    # ------------------------------------------------------------------------------------------------------ the checks
    def check(self) -> None:
        """Check the invariants, and that the rows equal the dict."""
        self.report = check_store(open_filesystem(self.path), earlier=self.report)
        found = {(key[0].encode(),): values for key, values in self.report.rows.items()}
        assert found == self.expected.rows

    def _note(self, version: int) -> None:
        self.versions[version] = dict(self.expected.rows)

    def _note_head(self) -> None:
        head = CommitLog(open_filesystem(self.path)).refresh().version
        self._note(head)

    # -------------------------------------------------------------------------------------------------------- the rows
    def _rows(self) -> list[dict[str, Any]]:
        rng, ordered = self.rng, self.expected.definition.sequence is not None
        rows = []
        for _ in range(rng.choice((0, 3, 12, 40))):
            number = rng.randrange(100) if ordered else rng.choice((None, rng.randrange(-50, 50)))
            rows.append(
                {
                    "k": f"{rng.randrange(self.keys):03d}",
                    "n": number,
                    "m": rng.choice((None, rng.randrange(-50, 50))),
                    "s": rng.choice((None, "", rng.choice("abc"))),
                    "gone": rng.random() < 0.2,
                }
            )
        return rows

    def _parts(self, rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        cuts = sorted(self.rng.choices(range(len(rows) + 1), k=self.rng.choice((0, 1, 2))))
        return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]

    def _apply(self, rows: list[dict[str, Any]]) -> None:
        definition = self.expected.definition
        for row in rows:
            op = DELETE if row["gone"] else MERGE if definition.merge else SET
            values = tuple(row[name] for name in definition.values)
            if op == DELETE:
                values = (row["n"] if definition.sequence else None, None, None)
            self.expected.apply((op, (row["k"].encode(),), values), 0)


def _pairs(columns: dict[str, list[Any]]) -> list[tuple[Key, tuple[Any, ...]]]:
    return [((key.encode(),), (n, m, s)) for key, n, m, s in zip(*columns.values(), strict=True)]


STEPS = {
    WholeStore.batch: 12,
    WholeStore.overlapping: 3,
    WholeStore.overwrite: 0.4,
    WholeStore.purge: 1.5,
    WholeStore.rebucket: 0.6,
    WholeStore.compact: 1,
    WholeStore.due: 1,
    WholeStore.under_way: 2,
    WholeStore.vacuum: 1,
    WholeStore.as_of: 1.5,
}


def play(seed: int, steps: int = 11) -> WholeStore:
    """Play a history; raises an AssertionError where the store and the dict differ."""
    clock = ManualClock(tick_ms=1)
    with repeatable(clock, SeededIds(seed)):
        store = WholeStore(seed, clock)
        try:
            store.play(steps)
        finally:
            MemoryFileSystem.drop(f"whole-{seed}")
    return store
