"""Runs with right checksums that ftfile does not write: reads end with an error or with other rows."""

from __future__ import annotations

import itertools
import random
import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.run import writer
from ftfile.kv.run.block_batch import SMALL_PLAIN_BYTES
from ftfile.kv.run.index import decode_index, encode_index, index_bytes_of
from ftfile.kv.run.pages import PageShape
from tests.hostile.watched import bound_time, late, unbound_time
from tests.kit.parameters import parametrize
from tests.unit.kv.runs import NUMBERS, keys_of, numbered, open_run, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.kv.run.index import Index

ROWS = 4200  # enough rows for several pages
BATCH = numbered(ROWS)
EMPTY = np.uint32(0)
# The first offsets of texts in the first block, and offsets outside it.
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
    """The bytes of a run, which can be changed with right checksums."""

    def __init__(self, batch: pa.RecordBatch = BATCH, compression: str = "none") -> None:
        self.content = bytearray(written([batch], NUMBERS, ["id"], compression, 4096))
        self._start = len(self.content) - index_bytes_of(memoryview(self.content), len(self.content), "a")
        self.index = decode_index(memoryview(self.content)[self._start :], len(self.content), "a")

    def change_pages(self, change: Callable[[np.ndarray], None]) -> bytes:
        index = self.index
        crcs = index.page_crcs.copy()
        for page in range(len(crcs)):
            start, end = index.page_range(page)
            slots = np.frombuffer(self.content[start:end], "<u4").copy()
            change(slots)
            self.content[start:end] = slots.tobytes()
            crcs[page] = crc32(slots.tobytes())
        return self.with_index(replace(index, page_crcs=crcs))

    def change_block(self, old: bytes, new: bytes) -> bytes:
        """Replace bytes in the first block, at their last occurrence."""
        end = int(self.index.block_ends[0])
        place = self.content.rindex(old, 0, end)
        self.content[place : place + len(new)] = new
        crcs = self.index.block_crcs.copy()
        crcs[0] = crc32(self.content[:end])
        return self.with_index(replace(self.index, block_crcs=crcs))

    def with_index(self, index: Index) -> bytes:
        index = replace(index, blocks_crc=crc32(self.content[: self.index.pages_offset]))
        return bytes(self.content[: self._start]) + encode_index(index, self._start)


def read_all(content: bytes) -> None:
    """Read a run in all ways. A `CorruptData` of one way does not stop the next."""
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
    assert forged.with_index(forged.index) == forged.content
    assert open_run(forged.with_index(forged.index)).multi_get(BATCH, hash_rows([BATCH["id"]]))[1].num_rows == ROWS


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
    place_mask = (1 << forged.index.shape.place_bits) - 1
    place = {
        "a block behind the last one": place_mask,
        "a row behind the last one": 1 << forged.index.row_bits,
        "no place": 0,
    }[kind]

    def change(slots: np.ndarray) -> None:
        taken = slots != EMPTY
        slots[taken] = slots[taken] & np.uint32(~place_mask & 0xFFFFFFFF) | np.uint32(place)

    run = open_run(forged.change_pages(change))
    key, hashed = keys_of(BATCH)[7]
    error = "which a page has" if kind == "a row behind the last one" else "places of rows"
    with pytest.raises(CorruptData, match=error):
        run.get(key, hashed)
    with pytest.raises(CorruptData, match=error):
        run.multi_get(BATCH.slice(7, 1), np.array([hashed], np.uint64))


READS: list[Callable[[Any], object]] = [
    lambda run: run.get((0,), int(hash_rows([pa.array([0])])[0])),
    lambda run: run.multi_get(BATCH.slice(0, 1), hash_rows([pa.array([0])])),
    lambda run: [*run.scan()],
    lambda run: [*run.scan(columns=["text"])],
    lambda run: run.verify(),
]


def test_texts_behind_the_end_of_a_block_are_refused() -> None:
    content = Forged().change_block(OFFSETS, FAR)
    for call in READS:
        with pytest.raises(CorruptData, match="in block 0"):
            call(open_run(content))


def test_a_value_that_is_no_text_is_none_of_pythons() -> None:
    text = BATCH["text"][1].as_py().encode()
    run = open_run(Forged().change_block(text, b"\xff" * len(text)))
    with pytest.raises(UnicodeDecodeError):
        run.get(*keys_of(BATCH)[1])


HUGE_BYTES = (1 << 32) - 1


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("size", [1, 8, 1 << 16, HUGE_BYTES])
def test_a_block_that_declares_other_bytes_than_it_has_is_refused(compression: str, size: int) -> None:
    forged = Forged(BATCH.slice(0, 20), compression)
    sizes = forged.index.plain_bytes.copy()
    sizes[0] = max(size, sizes[0] + size) if size < HUGE_BYTES else size
    content = forged.with_index(replace(forged.index, plain_bytes=sizes))
    for read in READS:
        with pytest.raises(CorruptData, match=r"in block 0|block 0 with crc32|at most .* bytes, decompressed"):
            read(open_run(content))
    assert pa.default_memory_pool().max_memory() < HUGE_BYTES


def test_a_length_of_another_block_is_refused() -> None:
    forged = Forged(compression="lz4")
    for place, read in itertools.product((0, 3), READS):
        content = bytearray(forged.content)
        content[place] ^= 0x80
        with pytest.raises(CorruptData, match="a prefix with another length"):
            read(open_run(bytes(content)))


LONG = pa.record_batch([pa.array([0]), pa.array(["x" * 4_321_987])], schema=NUMBERS)


@pytest.mark.slow
def test_a_block_that_is_decompressed_to_far_more_than_its_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(read(open_run(written([LONG], NUMBERS, ["id"], "zstd"))) != [] for read in READS)
    zstd = pa.Codec("zstd")
    monkeypatch.setattr(writer, "compress", lambda content, _: zstd.compress(content, asbytes=True))
    content = written([LONG], NUMBERS, ["id"], "zstd")
    with pytest.raises(CorruptData, match=f"at most {SMALL_PLAIN_BYTES} bytes, decompressed"):
        open_run(content)


def test_first_keys_that_are_null_or_too_few_are_refused() -> None:
    forged = Forged(BATCH.slice(0, 200))
    keys = forged.index.first_keys
    nulls = pa.record_batch([pa.array([None] * keys.num_rows, pa.int64())], schema=pa.schema([("id", pa.int64())]))
    for other in (nulls, keys.slice(1)):
        with pytest.raises(CorruptData, match="first keys"):
            open_run(forged.with_index(replace(forged.index, first_keys=other)))


def test_another_last_key_is_noticed() -> None:
    forged = Forged(BATCH.slice(0, 200))
    ids = [*forged.index.first_keys.column(0).to_pylist()[:-1], 10_000]
    keys = pa.record_batch([pa.array(ids)], schema=forged.index.first_keys.schema)
    with pytest.raises(CorruptData, match="the last key"):
        open_run(forged.with_index(replace(forged.index, first_keys=keys))).verify()


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("id", pa.float64()), ("text", pa.string())]),
        pa.schema([("id", pa.list_(pa.int64())), ("text", pa.string())]),
    ],
    ids=["float", "list"],
)
def test_keys_of_types_that_no_key_has_are_refused(schema: pa.Schema) -> None:
    forged = Forged(BATCH.slice(0, 200))
    with pytest.raises(CorruptData, match="1 key columns"):
        open_run(forged.with_index(replace(forged.index, schema=schema)))


@pytest.mark.parametrize("text", ["", "{}", '{"fields":[{"name":"id","type":"fork"}]}', "[" * 50_000, "\udcff"])
def test_a_schema_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = Forged(BATCH.slice(0, 200))
    encoded = text.encode(errors="surrogateescape")
    monkeypatch.setattr("ftfile.kv.run.index.spark_schema_json", lambda _: SimpleNamespace(encode=lambda: encoded))
    with pytest.raises(CorruptData, match="the schema of rows"):
        open_run(forged.with_index(forged.index))


@pytest.mark.parametrize("depth", [31, 33, 200, 400, 5000])
def test_a_schema_of_any_depth_is_read_or_refused(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = '{"type":"map","keyType":"string","valueContainsNull":true,"valueType":' * depth + '"long"' + "}" * depth
    text = '{"type":"struct","fields":[{"name":"id","type":"long"},{"name":"text","type":' + kind + "}]}"
    forged = Forged(BATCH.slice(0, 200))
    monkeypatch.setattr("ftfile.kv.run.index.spark_schema_json", lambda _: text)
    content = forged.with_index(forged.index)
    if 2 * depth > 64:
        with pytest.raises(CorruptData, match="the schema of rows"):
            open_run(content)
    read_all(content)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": ROWS + 1},
        {"row_bits": 200},
        {"key_columns": 3},
        {"plain_bytes": None},
        {"pages_offset": 1 << 62},
        {"shape": PageShape(2, 3, 20)},
        {"shape": PageShape(2, 1 << 31, 20)},
        {"block_rows": None},
        {"block_ends": None},
    ],
    ids=str,
)
def test_an_index_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    forged = Forged()
    for name in ("block_rows", "block_ends", "plain_bytes"):
        if name in change:
            change = {name: getattr(forged.index, name)[::-1].copy()}
            if name != "block_ends":
                change[name][0] += 1
    content = forged.with_index(replace(forged.index, **change))
    for read in READS:
        with pytest.raises(CorruptData):
            read(open_run(content))


def test_another_number_of_rows_in_a_block_is_refused() -> None:
    forged = Forged()
    rows = forged.index.block_rows.copy()
    rows[0], rows[1] = rows[0] - 1, rows[1] + 1
    run = open_run(forged.with_index(replace(forged.index, block_rows=rows)))
    with pytest.raises(CorruptData, match="in block 0"):
        [*run.scan()]


@parametrize("seed", range(8), quick=1)
def test_reads_of_a_run_with_any_bytes_end(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(4):
        forged = Forged()
        block = generator.randrange(forged.index.blocks)
        start, end = (int(forged.index.block_ends[number]) if number >= 0 else 0 for number in (block - 1, block))
        crcs = forged.index.block_crcs.copy()
        for _ in range(3):
            place = generator.randrange(start, min(end, start + 400) - 8)
            forged.content[place : place + 4] = some_numbers(generator, 32).to_bytes(4, "little")
        crcs[block] = crc32(forged.content[start:end])
        read_all(forged.with_index(replace(forged.index, block_crcs=crcs)))
