"""Streams to a store on a file system that fails: the same scenarios of batches, with letters as keys."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile import kv
from ftfile.kv.config import StoreConfig
from ftfile.testing.context import current
from ftfile.testing.micro_batch import BatchQuery, StoreBatch, spark_schema
from tests.crash.world import CRASH_KEYS, Batch, Scenario
from tests.kit.store_check import check_store
from tests.unit.kv.stores import rows_in

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

    from ftfile.storage.api import FileSystem
    from ftfile.testing.checker import DirectoryReport

__all__ = (
    "ENCRYPTED_STORE",
    "REBUCKETED_STORE",
    "REPLACED_STORE",
    "STORE",
    "TWO_INTO_A_STORE",
    "WIDENED_STORE",
    "StoreScenario",
)

COLUMNS = {"k": "string", "n": "long", "batch": "long", "gone": "boolean"}
# The next batch merges each pair of runs. All keys are in one bucket.
OPTIONS = {
    "keyColumns": "k",
    "merge": "n:sum",
    "deleteColumn": "gone",
    "buckets": "1",
    "flushIntervalCount": "2",
    "compression": "none",
    "vacuumInterval": "0s",  # no vacuum: its thread would take no turns
}
# The number of buckets after a change.
BUCKETS = 2


@dataclass
class Query(StoreBatch):
    """A query whose settings are checked once, not for every batch."""

    options: dict[str, str] = field(default_factory=dict)

    def config(self) -> StoreConfig:
        return _config(tuple(self.all_options().items()), tuple(self.columns.items()), overwrite=self.overwrite)


@functools.cache
def _config(
    options: tuple[tuple[str, str], ...], columns: tuple[tuple[str, str], ...], *, overwrite: bool
) -> StoreConfig:
    return StoreConfig.from_options(dict(options), spark_schema(dict(columns)), overwrite=overwrite)


@dataclass(frozen=True)
class StoreScenario(Scenario):
    """Batches that count letters and store the last batch of each letter. A capital letter deletes the small letter."""

    found: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict, compare=False)  # rows by live runs

    def query_at(self, path: str, name: str) -> BatchQuery:
        checkpoint = f"memory://spark/{self.name}/{name}" if self.checkpoint else None
        return Query(path, COLUMNS, OPTIONS | dict(self.options), name, checkpoint)

    def run_batch(self, batch: Batch, query: BatchQuery, run: int = 1) -> None:
        if batch.change == "window":
            self.run_window(batch, query.path)
            return
        before = self.batches[: self.batches.index(batch)]
        if any(each.change == "rebucket" for each in before):
            query.options = {**query.options, "buckets": str(BUCKETS)}
        super().run_batch(batch, query, run)

    def run_window(self, batch: Batch, path: str) -> None:
        """Let an operator write a window that may already have ended or be recorded."""
        with kv.KeyValueStore(
            path,
            writer=batch.query,
            keys={"k": "string"},
            values={"n": "long", "batch": "long"},
            buckets=1,
            merge="n:sum",
            maintenance="inline",
            options={"flushIntervalCount": "2", "compression": "none", "vacuumInterval": "0s"},
            context=current(),
        ) as store:
            if store.last_window < batch.batch_id:
                store.begin_window(batch.batch_id)
                for letter in batch.letters:
                    if letter.isupper():
                        store.delete(letter.lower())
                    else:
                        store.merge(letter, (1, batch.batch_id))
                store.end_window()
            store.committed(batch.batch_id)

    def maintain(self, batch: Batch, path: str) -> None:
        how: dict[str, Any] = {"key_provider": dict(self.options).get("keyProvider"), "context": current()}
        if batch.change == "rebucket":
            kv.rebucket(path, BUCKETS, **how)
        elif batch.change == "purge":
            kv.purge(path, batch.letters, chr(ord(batch.letters) + 1), **how)
        else:
            kv.compact(path, **how)

    def deal(self, batch: Batch, tasks: int) -> list[list[dict[str, Any]]]:
        rows = [
            {"k": letter.lower(), "n": 1, "batch": batch.batch_id, "gone": letter.isupper()} for letter in batch.letters
        ]
        return [rows[task::tasks] for task in range(tasks)]

    def rows_of(self, content: bytes) -> Iterable[Hashable]:  # noqa: ARG002
        """Return no rows: the rows of runs differ from the rows of a version, and maintenance changes them."""
        return ()

    def check(self, fs: FileSystem, recorded: Sequence[str], old_names: Collection[str] = ()) -> DirectoryReport:
        report, batches = self.check_batches(fs, recorded, old_names)
        expected = self.rows_after(batches)
        done = {
            batch.note for batch in self.batches if batch.change in {"purge", "rebucket"} and batch.note in recorded
        }
        assert done <= {batch.note for batch in batches}, f"{done} returned without a record of each"
        runs = tuple((add.id, add.checksum, *add.rolling_stats["at"]) for add in report.live.values())
        if runs and runs not in self.found:
            self.found[runs] = rows_in(self.with_keys(fs))
        found = self.found[runs] if runs else {}
        assert found == expected, f"the store should hold {expected} and holds {found}"
        return report

    def rows_after(self, batches: Iterable[Batch]) -> dict[str, tuple[Any, ...]]:
        """Return the expected values by key after these batches were committed in this order."""
        found: dict[str, tuple[Any, ...]] = {}
        for batch in batches:
            if batch.change == "overwrite":
                found = {}
            for letter in batch.letters:
                if batch.change == "purge" or letter.isupper():
                    found.pop(letter.lower(), None)
                else:
                    found[letter] = (found.get(letter, (0, 0))[0] + 1, batch.batch_id)
        return found

    def check_finished(self, fs: FileSystem, old_names: Collection[str] = ()) -> None:
        directory = self.check(fs, [batch.note for batch in self.batches], old_names)
        check_store(self.with_keys(fs), directory=directory)


@dataclass(frozen=True)
class WidenedStore(StoreScenario):
    """From one batch on, rows have another column, with the letter, and batch numbers are longs.

    Attributes:
        wide_from: the number of that batch.
    """

    wide_from: int = 2

    def is_wide(self, batch: Batch) -> bool:
        return batch.batch_id >= self.wide_from

    def run_batch(self, batch: Batch, query: BatchQuery, run: int = 1) -> None:
        query.columns = {**COLUMNS, "letter": "string"} if self.is_wide(batch) else {**COLUMNS, "batch": "integer"}
        super().run_batch(batch, query, run)

    def deal(self, batch: Batch, tasks: int) -> list[list[dict[str, Any]]]:
        more = self.is_wide(batch)
        return [[row | ({"letter": row["k"]} if more else {}) for row in own] for own in super().deal(batch, tasks)]

    def rows_after(self, batches: Iterable[Batch]) -> dict[str, tuple[Any, ...]]:
        batches = [*batches]
        found = super().rows_after(batches)
        if not any(map(self.is_wide, batches)):
            return found
        return {key: (*values, key if values[1] >= self.wide_from else None) for key, values in found.items()}


# Later batches merge the runs of earlier ones. One batch deletes. Attempts lose and fail.
STORE = StoreScenario(
    "store",
    (Batch("aab"), Batch("bc", batch_id=1, troubled=True), Batch("Ad", batch_id=2), Batch("a", batch_id=3)),
    settled=1,
    new_processes=True,
)
# A repeated batch write runs between the batches, and its rows are replaced.
REPLACED_STORE = StoreScenario(
    "replaced-store",
    (Batch("ab"), Batch("bc", "transaction", "app", 3), Batch("d", "overwrite", batch_id=1), Batch("d", batch_id=2)),
    settled=1,
    checkpoint=True,
)
TWO_INTO_A_STORE = StoreScenario(
    "two-into-a-store",
    (Batch("ab"), Batch("bA", query="b"), Batch("c", batch_id=1), Batch("a", query="b", batch_id=1)),
    settled=1,
    options=(("onNewQuery", "continue"),),
)
ENCRYPTED_STORE = StoreScenario(
    "encrypted-store",
    (Batch("aab"), Batch("bA", batch_id=1, troubled=True), Batch("a", batch_id=2)),
    settled=1,
    options=(("encryption", "aes-gcm"), ("keyProvider", CRASH_KEYS)),
)
# Due runs are purged and then rewritten for another number of buckets. A query continues with the new buckets.
REBUCKETED_STORE = StoreScenario(
    "rebucketed-store",
    (
        Batch("aabcd"),
        Batch("bA", batch_id=1),
        Batch("b", "purge", "upkeep"),
        Batch("", "rebucket", "upkeep", 1),
        Batch("acE", batch_id=2),
    ),
    settled=2,
)
# Tasks with the wide schema execute jobs that were planned for narrow runs.
WIDENED_STORE = WidenedStore(
    "widened-store",
    (Batch("aab"), Batch("bc", batch_id=1), Batch("Ad", batch_id=2, troubled=True), Batch("ab", batch_id=3)),
    settled=1,
    options=(("onSchemaChange", "widen"),),
)
