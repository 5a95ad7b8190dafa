"""Histories of a store in memory, whose versions are read in all ways from runs in files: they equal the dict."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.checksum import checksum
from ftfile.kv.definition import DELETE, operations, ops_in
from ftfile.kv.hashing import KeyHasher, hash_rows
from ftfile.kv.key_columns import to_scalar
from ftfile.kv.planning.runs import Run, RunMetadata
from ftfile.kv.reading import levels
from ftfile.kv.reading.levels import Sources
from ftfile.kv.reading.view import View, find, view_of
from ftfile.kv.run import writer
from ftfile.kv.run.pages import Cache
from ftfile.kv.run_files import OpenFiles
from ftfile.log.format.model import Add, Origin
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.crash.share import THOROUGH
from tests.kit.store_check import key_at
from tests.unit.kv.histories import STEPS, Store, Version
from tests.unit.kv.runs import written

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.kv.key_columns import Key

HISTORIES, AT_ONCE = 16 if THOROUGH else 4, 4


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class ReadStore(Store):
    """The store, whose runs are in files in memory. Each of its versions is read."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fs = MemoryFileSystem(f"reading-{seed}")
        self.fs.make_directories("spools")
        self.cache = Cache(self.rng.choice((1, 3000, 1 << 30)))
        self.read = OpenFiles(self.fs)
        self.view: View | None = None
        self.reads = 0

    def _bucket(self, key: Key) -> int:
        kinds = [self.definition.schema.field(name).type for name in self.definition.keys]
        return KeyHasher(kinds).hash(key) & self.definition.buckets - 1

    def _output(self, bucket: str, table: pa.Table) -> Run:
        keys = self.definition.keys
        front = bytes(self.rng.randrange(3))
        content = written(table.to_batches(), table.schema, keys, self.rng.choice(("none", "lz4")), block_bytes=1)
        path = f"spools/{self.ids.unique()}"
        with self.fs.create(path) as file:
            file.write(front + content + front)
        add = Add(
            self.ids.unique(), "segment", path, None, len(content), len(content), checksum(content), table.num_rows,
            bucket, "encoding", Origin("query", 0, 0), len(front),
        )  # fmt: skip
        self.files[path] = table
        ends = (key_at(table, 0, keys), key_at(table, -1, keys)) if table.num_rows else None
        return Run(add, RunMetadata((0, 0), ends, (), ops_in(table), deletes=int((operations(table) == DELETE).sum())))

    def check(self, version: Version) -> None:
        super().check(version)
        # As a reader that refreshes, or as a new one.
        before = self.view if self.rng.random() < 0.7 else None
        sources = Sources(self.read, self.cache, self.definition)
        view = view_of(len(self.versions) - 1, version.live.values(), sources, before)
        self.view = view
        for read in self.rng.sample((self._get, self._lookup, self._scan), self.rng.choice((1, 2, 3))):
            read(view, version.expected)
            self.reads += 1

    def _get(self, view: View, expected: dict[Key, Any]) -> None:
        for key in self._asked():
            hashed = view.hash_key(key)
            bucket = view.buckets.get(view.bucket_of(key, hashed))
            assert (find(bucket, key, hashed) if bucket is not None else None) == expected.get(key), key

    def _lookup(self, view: View, expected: dict[Key, Any]) -> None:
        names = self.definition.keys
        kinds = [self.definition.schema.field(name).type for name in names]
        for number, bucket in view.buckets.items():
            keys = [key for key in self._asked() if view.bucket_of(key, view.hash_key(key)) == number]
            columns = [
                pa.array([to_scalar(key[place], kind).as_py() for key in keys], kind)
                for place, kind in enumerate(kinds)
            ]
            batch = pa.RecordBatch.from_arrays(columns, [*names])
            numbers, rows = bucket.lookup(batch, hash_rows(columns))
            assert sorted(set(numbers.tolist())) == sorted(numbers.tolist())
            values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
            found = dict(zip(numbers.tolist(), values, strict=True))
            assert found == {place: expected[key] for place, key in enumerate(keys) if key in expected}

    def _scan(self, view: View, expected: dict[Key, Any]) -> None:
        bounds = [self.rng.choice((None, *self._asked())) for _ in range(2)]
        start, end = (None if each is None else each[: self.rng.choice((1, 2))] for each in bounds)
        columns = self.rng.choice((self.definition.values, ["m"], []))
        for number, bucket in view.buckets.items():
            found = []
            for batch in bucket.scan(start, end, columns, self.rng.choice((1, 1 << 20))):
                keys = [key_at(batch, row, self.definition.keys) for row in range(batch.num_rows)]
                found += list(zip(keys, batch.select(columns).to_pylist(), strict=True))
            wanted = sorted(
                (key, dict(zip(self.definition.values, values, strict=True)))
                for key, values in expected.items()
                if (start is None or start <= key) and (end is None or key < end)
                if view.bucket_of(key, view.hash_key(key)) == number
            )
            assert found == [(key, {name: values[name] for name in columns}) for key, values in wanted]

    def _asked(self) -> list[Key]:
        """Return keys; some are missing, and some occur twice."""
        return [*self.keys, self._key(len(self.keys) + 7), *self.rng.sample(self.keys, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_reads_are_those_of_a_dict(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for seed in range(place, place + AT_ONCE):
        store = ReadStore(seed)
        least = store.rng.choice((1, 4, 4096))  # rows of runs that are not small
        monkeypatch.setattr(levels, "PAGED_ROWS_MIN", least)
        monkeypatch.setattr(writer, "PAGED_ROWS_MIN", least)
        try:
            for step in store.rng.choices([*STEPS], [*STEPS.values()], k=18):
                step(store)
            store.settle()
            for version in store.rng.sample(store.versions, 5):
                store.check(version)
        except BaseException:
            print(f"seed {seed}")
            raise
        finally:
            MemoryFileSystem.drop(f"reading-{seed}")
        counts += store.counts
    assert counts.keys() >= {"jobs", "descend", "level1", "moved", "purge"}, counts
