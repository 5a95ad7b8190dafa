"""Workloads of keyed stores: windows of a `KeyValueStore`, and batches of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import ftfile
from ftfile import kv
from ftfile.core.errors import ConfigError
from ftfile.log.format import layout
from ftfile.log.wal import recorded_window
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.store_check import check_store
from tests.power.workload import Workload

if TYPE_CHECKING:
    import random

__all__ = ("Batches", "Windows")

WRITER = "operator"
STEPS = 24
KEYS = [f"key-{number:02}" for number in range(30)]
Kind = Literal["write", "record", "compact", "vacuum"]
Rows = dict[str, int]


class Windows(Workload):
    """A program that ends windows and records them."""

    name = "windows"

    def draw(self, drawn: random.Random) -> None:
        self.steps = STEPS
        self.kinds: list[Kind] = ["write", "record"]
        self.kinds += drawn.choices(["write", "record", "compact", "vacuum"], [10, 5, 1, 1], k=STEPS - 2)
        self.changes: list[dict[str, int | None]] = []
        rows: Rows = {}
        ended, recorded = -1, -1
        # After each step: the number of the last ended window, of the last recorded window.
        self.windows: list[tuple[int, int]] = []
        self.rows: list[Rows] = []  # after each window
        for kind in self.kinds:
            if kind == "write":
                keys = drawn.sample(KEYS, drawn.randrange(1, 12))
                change = {key: None if drawn.random() < 0.2 else drawn.randrange(1, 100) for key in keys}
                rows = applied(rows, change)
                self.changes.append(change)
                self.rows.append(rows)
                ended += 1
            elif kind == "record":
                recorded = ended
            self.windows.append((ended, recorded))
        self.store: kv.KeyValueStore | None = None

    @property
    def path(self) -> str:
        """Return the path of the store."""
        return f"{self.place}/store"

    def perform(self, number: int) -> None:
        kind, (ended, _) = self.kinds[number], self.windows[number]
        if kind == "vacuum":
            ftfile.vacuum(self.path, retention="0s", force=True, dry_run=False)
            return
        if kind == "compact":
            kv.compact(self.path, full=True)
            return
        store = self.opened()
        if kind == "record":
            store.committed(ended)
        elif store.last_window < ended:
            assert store.last_window == ended - 1, f"window {ended - 1} is missing: the last is {store.last_window}"
            store.begin_window(ended)
            for key, value in self.changes[ended].items():
                if value is None:
                    store.delete(key)
                else:
                    store.merge(key, value)
            store.end_window()

    def opened(self) -> kv.KeyValueStore:
        """Return the store of this process."""
        if self.store is None:
            self.store = kv.KeyValueStore(
                self.path,
                writer=WRITER,
                keys={"k": "string"},
                values={"n": "long"},
                buckets=2,
                merge="sum",
                maintenance="inline",
                options={"flushIntervalCount": "2", "vacuumInterval": "0s"},
            )
        return self.store

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def check(self, done: int, *, tried: bool) -> None:
        ended, recorded = self.windows[done - 1] if done else (-1, -1)
        may_end, may_record = self.windows[done] if tried else (ended, recorded)
        try:
            reader = kv.open(self.path)
            waiting = kv.read_windows(self.path, WRITER)
        except ConfigError:
            assert ended < 0, "the store with acknowledged windows is missing"
            return
        found, number = read(reader), recorded_window(reader.log.refresh(), WRITER)
        assert number in {recorded, may_record}, f"the last recorded window is {number}, not {recorded}"
        expected = self.rows[number] if number >= 0 else {}
        assert found == expected, f"the store has {found}, not {expected}"
        last = max([number, *(window.number for window in waiting)])
        assert last in {ended, may_end}, f"the last window is {last}, not {ended}"
        fs = open_filesystem(self.path)
        assert {key: n for (key,), (n,) in check_store(fs).rows.items()} == found, "the files have other rows"
        assert kv.verify(self.path).damaged == ()
        if not tried:
            assert ended < 0 or {key: self.opened().read(key) for key in KEYS} == every_key(self.rows[ended])


class Batches(Workload):
    """A query that writes to a store."""

    name = "batches"
    OPTIONS: dict[str, str] = {  # noqa: RUF012
        "keyColumns": "k",
        "buckets": "2",
        "merge": "n:sum",
        "deleteColumn": "gone",
        "flushIntervalCount": "2",
        "vacuumInterval": "0s",
    }

    def draw(self, drawn: random.Random) -> None:
        self.steps = STEPS
        kinds: list[Kind] = ["write", "compact", "vacuum"]
        self.kinds = kinds[:1] + drawn.choices(kinds, [8, 1, 1], k=STEPS - 1)
        self.has_checkpoint = drawn.random() < 0.5
        self.batches: list[dict[str, int | None]] = []
        self.rows: list[Rows] = []  # after each step
        rows: Rows = {}
        self.numbers: list[int] = []
        for kind in self.kinds:
            if kind == "write":
                keys = drawn.sample(KEYS, drawn.randrange(2, 20))
                self.batches.append({key: None if drawn.random() < 0.2 else drawn.randrange(1, 100) for key in keys})
                rows = applied(rows, self.batches[-1])
            self.numbers.append(len(self.batches) - 1)
            self.rows.append(rows)
        self.query: StoreBatch | None = None

    @property
    def path(self) -> str:
        """Return the path of the store."""
        return f"{self.place}/store"

    def perform(self, number: int) -> None:
        kind = self.kinds[number]
        if kind == "compact":
            kv.compact(self.path, full=True)
        elif kind == "vacuum":
            ftfile.vacuum(self.path, retention="0s", force=True, dry_run=False)
        else:
            if self.query is None:
                checkpoint = f"{self.place}/checkpoint" if self.has_checkpoint else None
                columns = {"k": "string", "n": "long", "gone": "boolean"}
                self.query = StoreBatch(self.path, columns, self.OPTIONS, checkpoint=checkpoint)
            batch = self.numbers[number]
            rows: list[dict[str, Any]] = []
            for key, value in self.batches[batch].items():
                rows.append({"k": key, "n": value or 0, "gone": value is None})
            self.query.run(batch, [rows[::2], rows[1::2]])

    def check(self, done: int, *, tried: bool) -> None:
        if not done and not (self.place / "store" / layout.record_path(0)).exists():
            return
        possible = [self.rows[done - 1] if done else {}]
        if tried:
            possible.append(self.rows[done])
        found = read(kv.open(self.path))
        assert found in possible, f"the store has {found}, not {possible}"
        fs = open_filesystem(self.path)
        assert {key: n for (key,), (n,) in check_store(fs).rows.items()} == found, "the files have other rows"
        assert kv.verify(self.path).damaged == ()


def applied(rows: Rows, change: dict[str, int | None]) -> Rows:
    """Return the rows after a change: None deletes a key, and a number is added to its value."""
    found = dict(rows)
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = found.get(key, 0) + value
    return found


def every_key(rows: Rows) -> dict[str, int | None]:
    """Return the value of each key, None for a missing one."""
    return {key: rows.get(key) for key in KEYS}


def read(reader: kv.Reader) -> Rows:
    """Return all rows of a store."""
    return {row["k"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}
