"""Small runs that are neighbours in a file are read by one call, by jobs and by scans."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from ftfile import kv
from ftfile.core.errors import CorruptData
from ftfile.kv.run_files import CoalescingFiles, OpenFiles
from ftfile.log.format.model import Add, Origin
from ftfile.testing.context import current
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from tests.kit.store_check import check_store
from tests.unit.kv.stores import counting, rows_of
from tests.unit.writing.files.encrypted import ring
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem

__all__ = ("ring",)

BUCKETS, BATCHES = 16, 5
KEYS = [f"k{number:03}" for number in range(160)]


class Metered(MeteredFileSystem):
    """Counts calls that read runs which are not mapped."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.of_runs: Counter[str] = Counter()

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        result = super().around(operation, path, call)
        if path.endswith(".spool") and result is not None:  # of a file that is not mapped
            self.of_runs[operation] += 1
        return result

    def counted(self, call: Callable[[], object]) -> Counter[str]:
        self.of_runs.clear()
        call()
        return Counter({name: self.of_runs[name] for name in ("open", "read_at")})


@pytest.fixture
def fs() -> Iterator[Metered]:
    yield Metered(MemoryFileSystem("coalescing"))
    MemoryFileSystem.drop("coalescing")


def write(url: str, batches: int = BATCHES, **options: str) -> dict[str, int]:
    query = counting(url, **{"buckets": str(BUCKETS), "flushIntervalCount": str(BATCHES)} | options)
    for batch in range(batches):
        query.run(batch, [[{"k": key, "n": batch} for key in KEYS]])
    return dict.fromkeys(KEYS, sum(range(batches)))


def scanned(reader: kv.Reader) -> dict[str, int]:
    return {row["k"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}


@pytest.mark.parametrize("secret", [False, True], ids=["plain", "encrypted"])
class TestCalls:
    """A batch writes a spool with a run of each bucket."""

    @pytest.mark.slow
    def test_a_job_reads_each_spool_once(self, fs: Metered, ring: Path, secret: bool) -> None:
        more = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"} if secret else {}
        with mounted(fs) as url:
            expected = write(url, BATCHES, **more)
            key_provider = more.get("keyProvider")
            calls = fs.counted(lambda: kv.compact(url, threads=1, key_provider=key_provider, context=current()))
            assert calls == {"open": BATCHES, "read_at": BATCHES}
            assert rows_of(url, more.get("keyProvider")) == expected

    @pytest.mark.slow
    def test_a_scan_reads_each_spool_once(self, fs: Metered, ring: Path, secret: bool) -> None:
        more = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"} if secret else {}
        with mounted(fs) as url:
            more["flushIntervalCount"] = "1000"
            expected = write(url, BATCHES, **more)
            reader = kv.open(url, key_provider=more.get("keyProvider"), context=current())
            assert fs.counted(lambda: scanned(reader)) == {"open": BATCHES, "read_at": BATCHES}
            assert scanned(reader) == expected
            write(url, BATCHES + 1, **more)  # the others are in the log
            reader.refresh()
            # What is folded already is not read again.
            calls = fs.counted(lambda: reader.preload(range(BUCKETS)))
            assert calls == {"open": 1, "read_at": 1}
            assert fs.counted(lambda: scanned(reader)) == {"open": 0, "read_at": 0}
            assert scanned(reader) == {key: n + BATCHES for key, n in expected.items()}


@pytest.mark.slow
def test_small_runs_of_one_file_are_opened_by_one_call(fs: Metered) -> None:
    with mounted(fs) as url:
        expected = write(url)
        kv.compact(url, threads=1, context=current())  # one job, and one spool of it
        with kv.open(url, context=current()) as reader:
            assert len(reader.runs()) == BUCKETS
            assert fs.counted(lambda: scanned(reader)) == {"open": 1, "read_at": 1}
            assert scanned(reader) == expected


@pytest.mark.slow
def test_nothing_stays_in_memory_twice(fs: Metered) -> None:
    with mounted(fs) as url:
        expected = write(url)
        kv.compact(url, threads=1, context=current())  # one job, and one spool of it
        reader = kv.open(url, context=current())
        scanned(reader)
        reader.close()
        length = max(run.add.length for run in reader.runs())
        before = fs.counters.bytes_read
        assert fs.counted(lambda: reader.get(KEYS[0]))["read_at"]
        assert fs.counters.bytes_read - before <= length
        assert reader.get(KEYS[0]) == expected[KEYS[0]]


@pytest.mark.slow
def test_a_damaged_run_leaves_its_neighbours(fs: Metered) -> None:
    with mounted(fs) as url:
        expected = write(url)
        with kv.open(url, context=current()) as reader:
            runs = reader.runs()
        hurt = runs[len(runs) // 2]
        inner = fs.inner
        assert isinstance(inner, MemoryFileSystem)
        content = bytearray(inner.read(hurt.add.path))
        content[hurt.add.offset + hurt.add.length // 2] ^= 1
        inner.put(hurt.add.path, bytes(content))
        with pytest.raises(CorruptData):
            kv.compact(url, context=current())
        with kv.open(url, context=current()) as reader:
            assert len(reader.runs()) == BUCKETS - 1 + BATCHES - 1, "two runs before it are merged"
        content[hurt.add.offset + hurt.add.length // 2] ^= 1
        inner.put(hurt.add.path, bytes(content))
        assert rows_of(url) == expected
        check_store(inner)


class Recorded(OpenFiles):
    """Files whose bytes are their offsets modulo 251, and the reads of them."""

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem("recorded"))
        self.reads: list[tuple[str, int, int]] = []
        self.opened: list[str] = []

    def open(self, path: str) -> RecordedFile:
        self.opened.append(path)
        return RecordedFile(path, self.reads)


class RecordedFile(NamedTuple):
    path: str
    reads: list[tuple[str, int, int]]

    def read_at(self, offset: int, length: int) -> bytes:
        self.reads.append((self.path, offset, length))
        return content_at(offset, length)


def content_at(offset: int, length: int) -> bytes:
    start = offset % 251
    return (bytes(range(251)) * (length // 251 + 2))[start : start + length]


def add_at(offset: int, length: int, path: str = "a") -> Add:
    origin = Origin("query", 0, 0)
    return Add(f"{path}-{offset}", "segment", path, None, length, length, "", 1, "b=00000", "e", origin, offset=offset)


def read(files: CoalescingFiles, add: Add) -> None:
    content = files.open(add.path).read_at(add.offset, add.length)
    assert bytes(content) == content_at(add.offset, add.length)


class TestRanges:
    def test_neighbours_come_together_and_others_alone(self) -> None:
        adds = [add_at(0, 100), add_at(128, 50), add_at(200_000, 10), add_at(0, 10, "b")]
        made = Recorded()
        files = CoalescingFiles(made, adds)
        for add in adds:
            read(files, add)
            read(files, add)
        assert made.reads == [
            ("a", 0, 178), ("a", 200_000, 10), ("a", 200_000, 10), ("b", 0, 10), ("b", 0, 10),
        ]  # fmt: skip

    def test_bytes_of_no_run_are_read_as_they_are(self) -> None:
        made = Recorded()
        files = CoalescingFiles(made, [add_at(100, 100), add_at(200, 100)])
        for offset, length in ((0, 10), (250, 51), (300, 1)):
            read(files, add_at(offset, length))
        assert made.reads == [("a", 0, 10), ("a", 250, 51), ("a", 300, 1)]
        read(files, add_at(299, 1))
        assert made.reads[3:] == [("a", 100, 200)]

    def test_files_share_the_memory(self) -> None:
        adds = [add_at(number << 20, 1 << 20, path) for path in "abcd" for number in range(8)]
        made = Recorded()
        files = CoalescingFiles(made, adds)
        for number in range(8):
            for path in range(4):
                read(files, adds[8 * path + number])
        assert len(made.reads) == 8
        assert {length for _, _, length in made.reads} == {4 << 20}

    def test_nothing_is_kept_once_it_is_released(self) -> None:
        adds = [add_at(0, 100), add_at(100, 100)]
        made = Recorded()
        files = CoalescingFiles(made, adds)
        file = files.open("a")
        file.read_at(0, 100)
        files.release()
        file.read_at(100, 100)
        read(files, adds[0])
        assert made.reads == [("a", 0, 200), ("a", 100, 100), ("a", 0, 100)]

    def test_a_file_is_opened_when_it_is_read(self) -> None:
        made = Recorded()
        files = CoalescingFiles(made, [add_at(0, 100), add_at(100, 100)])
        first, second = files.open("a"), files.open("a")
        assert not made.opened
        first.read_at(0, 100)
        second.read_at(100, 100)
        assert made.opened == ["a"]
