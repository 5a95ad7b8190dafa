"""Streams to a store that may fail: the same scenarios of batches, whose letters are keys."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.kv.config import StoreConfig
from ftfile.testing.micro_batch import BatchQuery, StoreBatch, spark_schema
from tests.crash.world import CRASH_KEYS, Batch, Scenario
from tests.unit.kv.stores import rows_in

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from ftfile.fs.api import FileSystem
    from ftfile.testing.checker import DirectoryReport

__all__ = ("ENCRYPTED_STORE", "REPLACED_STORE", "STORE", "TWO_INTO_A_STORE", "StoreScenario")

COLUMNS = {"k": "string", "n": "long", "batch": "long", "gone": "boolean"}
# Each pair of runs is merged by the next batch; all keys are in one bucket.
OPTIONS = {
    "keyColumns": "k",
    "merge": "n:sum",
    "deleteColumn": "gone",
    "buckets": "1",
    "flushIntervalCount": "2",
    "compression": "none",
}


@dataclass
class Query(StoreBatch):
    """A query whose settings are checked once and not for every batch."""

    options: dict[str, str] = field(default_factory=dict)

    def config(self) -> StoreConfig:
        return _config(tuple(self.all_options().items()), overwrite=self.overwrite)


@functools.cache
def _config(options: tuple[tuple[str, str], ...], *, overwrite: bool) -> StoreConfig:
    return StoreConfig.from_options(dict(options), spark_schema(COLUMNS), overwrite=overwrite)


@dataclass(frozen=True)
class StoreScenario(Scenario):
    """Batches that count letters, and note in which batch each came last; a capital letter deletes the small one."""

    found: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict, compare=False)  # rows by live runs

    def query_at(self, path: str, name: str) -> BatchQuery:
        checkpoint = f"memory://spark/{self.name}/{name}" if self.checkpoint else None
        return Query(path, COLUMNS, OPTIONS | dict(self.options), name, checkpoint)

    def deal(self, batch: Batch, tasks: int) -> list[list[dict[str, Any]]]:
        rows = [
            {"k": letter.lower(), "n": 1, "batch": batch.batch_id, "gone": letter.isupper()} for letter in batch.letters
        ]
        return [rows[task::tasks] for task in range(tasks)]

    def rows_of(self, content: bytes) -> Iterable[Hashable]:
        return [tuple(row.values()) for row in pa.ipc.open_file(io.BytesIO(content)).read_all().to_pylist()]

    def check(self, fs: FileSystem, recorded: Sequence[str]) -> DirectoryReport:
        report, batches = self.check_batches(fs, recorded)
        expected: dict[str, Any] = {}
        for batch in batches:
            if batch.change == "overwrite":
                expected = {}
            for letter in batch.letters:
                if letter.isupper():
                    expected.pop(letter.lower(), None)
                else:
                    expected[letter] = (expected.get(letter, (0, 0))[0] + 1, batch.batch_id)
        runs = tuple(report.live)
        if runs and runs not in self.found:
            self.found[runs] = rows_in(self.with_keys(fs))
        found = self.found[runs] if runs else {}
        assert found == expected, f"the store should hold {expected} and holds {found}"
        return report

    def check_finished(self, fs: FileSystem) -> None:
        self.check(fs, [batch.note for batch in self.batches])


# Of the first batches runs are merged by the later ones, one of which deletes; attempts lose, and fail.
STORE = StoreScenario(
    "store",
    (Batch("aab"), Batch("bc", batch_id=1, troubled=True), Batch("Ad", batch_id=2), Batch("a", batch_id=3)),
    settled=1,
    new_processes=True,
)
# A batch write that is repeated comes between, and what it brought is replaced.
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
