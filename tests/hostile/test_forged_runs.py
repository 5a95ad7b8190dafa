"""Runs whose bytes have right checksums, and are not what ftfile writes: reads end, with an error or other rows."""

from __future__ import annotations

import random
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.run import writer
from ftfile.kv.run.directory import SMALL_PLAIN_BYTES, bytes_behind_pages, decode_directory, encode_directory
from ftfile.kv.run.pages import PageShape
from tests.hostile.forging import message_of
from tests.hostile.watched import bound_time, late, unbound_time
from tests.unit.kv.runs import NUMBERS, keys_of, numbered, open_run, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.kv.run.directory import Directory

ROWS = 4200  # with pages
BATCH = numbered(ROWS)
EMPTY = np.uint32(0)
# The first offsets of texts in the first block, and others.
OFFSETS = np.cumsum([0, *(len(text) for text in BATCH["text"].to_pylist()[:3])]).astype("<i4").tobytes()
FAR = np.array([0, 1 << 30], "<i4").tobytes()


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    signals = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, late) for number in signals]
    bound_time()
    yield
    unbound_time()
    for number, handler in zip(signals, before, strict=True):
        signal.signal(number, handler)


class Forged:
    """The bytes of a run, to be changed, with right checksums again."""

    def __init__(self, batch: pa.RecordBatch = BATCH, compression: str = "none") -> None:
        self.content = bytearray(written([batch], NUMBERS, ["id"], compression, 4096))
        behind = bytes_behind_pages(memoryview(self.content), len(self.content), "a")
        self._start = len(self.content) - behind
        self.directory, _ = decode_directory(memoryview(self.content)[self._start :], len(self.content), "a")
        self.end_bytes = next(
            size
            for size in range(len(self.content))
            if crc32(self.content[-size:] if size else b"") == self.directory.end_crc
        )

    def change_pages(self, change: Callable[[np.ndarray], None]) -> bytes:
        directory = self.directory
        crcs = directory.page_crcs.copy()
        for page in range(len(crcs)):
            start, end = directory.page_range(page)
            slots = np.frombuffer(self.content[start:end], "<u4").copy()
            change(slots)
            self.content[start:end] = slots.tobytes()
            crcs[page] = crc32(slots.tobytes())
        return self.with_directory(replace(directory, page_crcs=crcs))

    def change_block(self, old: bytes, new: bytes) -> bytes:
        """Put other bytes in the place of some that the first block has; of those that it has again, the last ones."""
        start, end = self.directory.block_range(0)
        place = self.content.rindex(old, start, end)
        self.content[place : place + len(new)] = new
        crcs = self.directory.block_crcs.copy()
        crcs[0] = crc32(self.content[start:end])
        return self.with_directory(replace(self.directory, block_crcs=crcs))

    def with_directory(self, directory: Directory) -> bytes:
        end = bytes(self.content[-self.end_bytes :])
        return bytes(self.content[: self._start]) + encode_directory(directory, self._start, len(end)) + end


def read_all(content: bytes) -> None:
    """Read a run in all ways; `CorruptData` of one does not keep the next from being tried."""
    calls: list[Callable[[Any], object]] = [
        lambda run: [run.get(key, hashed) for key, hashed in keys_of(BATCH)[:: ROWS // 20]],
        lambda run: run.get((-1,), int(hash_rows([pa.array([-1])])[0])),
        lambda run: run.multi_get(BATCH.select(["id"]), hash_rows([BATCH["id"]])),
        lambda run: pa.Table.from_batches(run.scan(), run.schema).to_pylist(),
        lambda run: [*run.scan((5,), (4000,), ["text"])],
        lambda run: run.verify(),
    ]
    for call in calls:
        try:
            call(open_run(content))
        except CorruptData:
            continue


def some_numbers(generator: random.Random, bits: int) -> int:
    return generator.choice([0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), generator.getrandbits(bits)])


def test_a_forgery_of_nothing_is_the_run() -> None:
    forged = Forged()
    assert forged.with_directory(forged.directory) == forged.content
    assert (
        open_run(forged.with_directory(forged.directory)).multi_get(BATCH, hash_rows([BATCH["id"]]))[1].num_rows == ROWS
    )


def test_a_page_without_an_empty_slot_is_refused() -> None:
    def fill(slots: np.ndarray) -> None:
        slots[slots == EMPTY] = slots[slots != EMPTY][0]

    run = open_run(Forged().change_pages(fill))
    with pytest.raises(CorruptData, match="an empty slot"):
        run.get((-1,), int(hash_rows([pa.array([-1])])[0]))
    with pytest.raises(CorruptData, match="an empty slot"):
        run.multi_get(BATCH, hash_rows([BATCH["id"]]))


@pytest.mark.parametrize("kind", ["a block behind the last one", "a row behind the last one", "no place"])
def test_a_page_with_places_of_no_row_is_refused(kind: str) -> None:
    forged = Forged()
    place_mask = (1 << forged.directory.shape.place_bits) - 1
    place = {
        "a block behind the last one": place_mask,
        "a row behind the last one": 1 << forged.directory.row_bits,
        "no place": 0,
    }[kind]

    def change(slots: np.ndarray) -> None:
        taken = slots != EMPTY
        slots[taken] = slots[taken] & np.uint32(~place_mask & 0xFFFFFFFF) | np.uint32(place)

    run = open_run(forged.change_pages(change))
    key, hashed = keys_of(BATCH)[7]
    with pytest.raises(CorruptData, match="places of rows"):
        run.get(key, hashed)


def test_texts_behind_the_end_of_a_block_are_refused() -> None:
    content = Forged().change_block(OFFSETS, FAR)
    for call in (
        lambda run: run.get(*keys_of(BATCH)[1]),
        lambda run: [*run.scan()],
        lambda run: [*run.scan(columns=["text"])],
    ):
        with pytest.raises(CorruptData, match="rows as Arrow has them"):
            call(open_run(content))


def test_a_value_that_is_no_text_is_none_of_pythons() -> None:
    text = BATCH["text"][1].as_py().encode()
    run = open_run(Forged().change_block(text, b"\xff" * len(text)))
    with pytest.raises(UnicodeDecodeError):
        run.get(*keys_of(BATCH)[1])


LONG_BYTES, HUGE_BYTES = 4_321_987, 8 << 30
LONG = pa.record_batch([pa.array([1]), pa.array(["x" * LONG_BYTES])], schema=NUMBERS)
READS: list[Callable[[Any], object]] = [
    lambda run: run.get((1,), int(hash_rows([pa.array([1])])[0])),
    lambda run: [*run.scan()],
    lambda run: [*run.scan(columns=["id"])],
    lambda run: run.verify(),
]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_block_that_declares_more_than_it_can_have_is_refused(compression: str) -> None:
    declared = LONG_BYTES.to_bytes(8, "little"), HUGE_BYTES.to_bytes(8, "little")
    content = Forged(LONG, compression).change_block(*declared)
    for read in READS:
        with pytest.raises(CorruptData, match=f"at most .* bytes, decompressed.*{str(HUGE_BYTES)[:4]}"):
            read(open_run(content))
    assert pa.default_memory_pool().max_memory() < HUGE_BYTES


def test_a_block_that_is_decompressed_to_far_more_than_its_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(read(open_run(written([LONG], NUMBERS, ["id"], "zstd"))) != [] for read in READS)
    monkeypatch.setattr(writer, "_padding", lambda _: None)
    content = written([LONG], NUMBERS, ["id"], "zstd")
    for read in READS:
        with pytest.raises(CorruptData, match=f"at most {SMALL_PLAIN_BYTES} bytes, decompressed"):
            read(open_run(content))


def test_another_message_behind_that_of_a_block_is_refused() -> None:
    forged = Forged(BATCH.slice(0, 200))
    directory = forged.directory
    assert directory.blocks > 1
    one = replace(
        directory,
        block_ends=directory.block_ends[-1:],
        block_rows=directory.block_rows[:1] * 0 + directory.rows,
        block_crcs=np.array([crc32(forged.content[directory.header_bytes : int(directory.block_ends[-1])])], "<u4"),
        first_keys=directory.first_keys.take(pa.array([0, directory.blocks])),
        row_bits=8,
    )
    with pytest.raises(CorruptData, match="no message of rows"):
        [*open_run(forged.with_directory(one)).scan()]


class _Message:
    """Takes the place of rows that are to be written."""

    def __init__(self, content: bytes) -> None:
        self.serialize = lambda: content


def test_first_keys_that_are_compressed_are_refused() -> None:
    forged = Forged(BATCH.slice(0, 200))
    keys: Any = _Message(message_of(forged.directory.first_keys, compression="zstd"))
    with pytest.raises(CorruptData, match="compressed rows of"):
        open_run(forged.with_directory(replace(forged.directory, first_keys=keys)))


def test_an_end_that_is_no_footer_is_refused() -> None:
    forged = Forged()
    forged.content[-40:-10] = bytes(30)
    end = bytes(forged.content[-forged.end_bytes :])
    with pytest.raises(CorruptData, match="a footer of Arrow"):
        open_run(forged.with_directory(replace(forged.directory, end_crc=crc32(end))))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": ROWS + 1},
        {"row_bits": 200},
        {"key_columns": 3},
        {"header_bytes": 1 << 31},
        {"pages_offset": 1 << 62},
        {"shape": PageShape(2, 3, 20)},
        {"shape": PageShape(2, 1 << 31, 20)},
        {"block_rows": None},
        {"block_ends": None},
    ],
    ids=str,
)
def test_a_directory_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    forged = Forged()
    for name in ("block_rows", "block_ends"):
        if name in change:
            change = {name: getattr(forged.directory, name)[::-1].copy()}
            if name == "block_rows":
                change[name][0] += 1
    with pytest.raises(CorruptData):
        open_run(forged.with_directory(replace(forged.directory, **change)))


def test_another_number_of_rows_in_a_block_is_refused() -> None:
    forged = Forged()
    rows = forged.directory.block_rows.copy()
    rows[0], rows[1] = rows[0] - 1, rows[1] + 1
    run = open_run(forged.with_directory(replace(forged.directory, block_rows=rows)))
    with pytest.raises(CorruptData, match="in block 0"):
        [*run.scan()]


@pytest.mark.parametrize("seed", range(8))
def test_reads_of_a_run_with_any_bytes_end(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(4):
        forged = Forged()
        block = generator.randrange(forged.directory.blocks)
        start, end = forged.directory.block_range(block)
        crcs = forged.directory.block_crcs.copy()
        for _ in range(3):
            place = generator.randrange(start, min(end, start + 400) - 8)
            forged.content[place : place + 4] = some_numbers(generator, 32).to_bytes(4, "little")
        crcs[block] = crc32(forged.content[start:end])
        read_all(forged.with_directory(replace(forged.directory, block_crcs=crcs)))
