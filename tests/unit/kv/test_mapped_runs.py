"""Blocks and pages of a mapped file stay where they are: they take no memory of the cache."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import MAPPED_BYTES, RunReader
from tests.unit.kv.runs import NUMBERS, block_sizes, keys_of, numbered, written

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 30_000
BATCH = numbered(ROWS)
TEXTS = BATCH.column(1).to_pylist()


def mapped_run(path: Path, content: bytes, offset: int, cache: Cache) -> RunReader:
    """Return a reader of a run that lies in a file, from an offset on."""
    path.write_bytes(bytes(offset) + content)
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return RunReader(
        lambda start, length: view[offset + start : offset + start + length], len(content), str(path), cache
    )


def read_all(run: RunReader) -> None:
    """Read each row by its key, separately and together with the others."""
    keys = keys_of(BATCH)
    assert [run.get(key, hashed) for key, hashed in keys] == [(text,) for text in TEXTS]
    hashes = hash_rows([BATCH.column(0)])
    numbers, rows = run.multi_get(BATCH.select(["id"]), hashes)
    assert rows.column(1).to_pylist() == [TEXTS[number] for number in numbers.tolist()]
    assert sorted(numbers.tolist()) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 64, 8, 3])
def test_what_is_not_compressed_is_read_in_place(tmp_path: Path, offset: int) -> None:
    cache = Cache(1 << 30)
    content = written([BATCH], NUMBERS, ["id"], "none", block_bytes=8 << 10)
    run = mapped_run(tmp_path / "run", content, offset, cache)
    read_all(run)
    blocks, pages = len(block_sizes(run)), run._shape.pages  # noqa: SLF001 - that there are several of both
    assert blocks > 50
    assert pages > 5
    # The slots for look-ups of many keys are in memory, as one table.
    assert cache.size_bytes <= (blocks + pages) * 2 * MAPPED_BYTES + 4 * 4096 * pages + len(content) // 4


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_others_are_decompressed(tmp_path: Path, compression: str) -> None:
    cache = Cache(1 << 30)
    content = written([BATCH], NUMBERS, ["id"], compression, block_bytes=8 << 10)
    run = mapped_run(tmp_path / "run", content, 0, cache)
    read_all(run)
    assert cache.size_bytes > BATCH.nbytes


@pytest.mark.slow
def test_what_is_beyond_the_cache_is_read_again(tmp_path: Path) -> None:
    cache = Cache(20 * MAPPED_BYTES)
    content = written([BATCH], NUMBERS, ["id"], "none", block_bytes=8 << 10)
    run = mapped_run(tmp_path / "run", content, 0, cache)
    read_all(run)
    assert cache.size_bytes <= cache.capacity_bytes


def test_a_damaged_block_is_noticed(tmp_path: Path) -> None:
    content = bytearray(written([BATCH], NUMBERS, ["id"], "none", block_bytes=8 << 10))
    content[content.index(TEXTS[ROWS // 2].encode())] ^= 1
    run = mapped_run(tmp_path / "run", bytes(content), 0, Cache(1 << 30))
    with pytest.raises(CorruptData, match=r"block \d+"):
        read_all(run)


def test_values_are_those_of_blocks_in_memory(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.string()), ("b", pa.binary()), ("f", pa.float64())])
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([f"{number:05}" for number in range(5_000)]),
            pa.array([None if number % 3 else "ü" * (number % 7) for number in range(5_000)]),
            pa.array([None if number % 5 else bytes(number % 4) for number in range(5_000)], pa.binary()),
            pa.array([None if number % 2 else number / 8 for number in range(5_000)]),
        ],
        schema=schema,
    )
    found = []
    for compression in ("none", "lz4"):
        content = written([rows], schema, ["k"], compression, block_bytes=8 << 10)
        run = mapped_run(tmp_path / compression, content, 0, Cache(1 << 30))
        found.append([run.get(key, hashed) for key, hashed in keys_of(rows.select(["k"]))])
    expected = [*zip(*(rows.column(place).to_pylist() for place in (1, 2, 3)), strict=True)]
    assert found == [expected, expected]
