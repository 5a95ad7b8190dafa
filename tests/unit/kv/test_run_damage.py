"""A damaged run gives `CorruptData` with its path, or right answers; `verify` finds each byte that changed."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import CorruptData
from ftfile.kv.hashing import hash_rows
from ftfile.kv.run.block_batch import COMPRESSIONS
from tests.unit.damage import damaged
from tests.unit.kv.runs import NUMBERS, keys_of, numbered, open_run, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.kv.run.reader import RunReader

# Rows, and how many keys of them are asked for.
SIZES = [0, 1, 40, 300]
PAGED = 4200
COMPRESSED = list(itertools.product(COMPRESSIONS, SIZES))


def answer(call: Callable[[], Any], otherwise: Any = None) -> Any:
    """The answer of a reader, or the other value if it knows of the damage."""
    try:
        return call()
    except CorruptData:
        return otherwise


def require_noticed(changed: bytes, batch: pa.RecordBatch) -> None:
    run: RunReader | None = answer(lambda: open_run(changed))
    if run is None:
        return
    rows = batch.to_pylist()
    step = max(batch.num_rows // 3, 1)
    for (key, hashed), row in zip(keys_of(batch)[::step], rows[::step], strict=True):
        found = answer(partial(run.get, key, hashed), "damaged")
        assert found in ("damaged", (row["text"],))
    keys = batch.select(["id"])
    found = answer(lambda: run.multi_get(keys, hash_rows(keys.columns)))
    assert found is None or (sorted(found[0].tolist()), found[1].sort_by("id").to_pylist()) == (
        [*range(len(rows))],
        rows,
    )
    assert answer(lambda: pa.Table.from_batches(run.scan(), NUMBERS).to_pylist()) in (None, rows)
    with pytest.raises(CorruptData, match=r"a\.spool"):
        open_run(changed).verify()


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(("compression", "rows"), COMPRESSED)
def test_every_byte_that_changes_is_found(compression: str, rows: int) -> None:
    batch = numbered(rows)
    content = written([batch], NUMBERS, ["id"], compression, 1024)
    for place in range(0, len(content), 1 if rows < 100 else 7):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        if place % 20:
            with pytest.raises(CorruptData, match=r"a\.spool"):
                open_run(bytes(changed)).verify()
        else:
            require_noticed(bytes(changed), batch)


@pytest.mark.slow
@pytest.mark.parametrize(("compression", "rows"), COMPRESSED)
def test_every_length_but_its_own_is_found(compression: str, rows: int) -> None:
    content = written([numbered(rows)], NUMBERS, ["id"], compression, 1024)
    for length in range(len(content)):
        with pytest.raises(CorruptData, match=r"a\.spool"):
            open_run(content[:length])
    for more in (b"\0", content[-64:], content):
        with pytest.raises(CorruptData, match=r"a\.spool"):
            open_run(content + more)


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_bytes_of_a_run_with_pages(compression: str, seed: int) -> None:
    batch = numbered(PAGED)
    content = written([batch], NUMBERS, ["id"], compression)
    for place in range(seed % 211, len(content), 211):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        if place % 10:
            with pytest.raises(CorruptData, match=r"a\.spool"):
                open_run(bytes(changed)).verify()
        else:
            require_noticed(bytes(changed), batch)


@pytest.mark.slow
@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    batch = numbered(data.draw(st.sampled_from([3, 200])))
    content = written([batch], NUMBERS, ["id"], data.draw(st.sampled_from([*COMPRESSIONS])), 1024)
    require_noticed(data.draw(damaged(content)), batch)


def test_other_keys_go_on_beside_a_damaged_block() -> None:
    batch = numbered(PAGED)
    content = bytearray(written([batch], NUMBERS, ["id"]))
    content[1000] ^= 1
    run = open_run(bytes(content))
    (first, *_, last) = keys_of(batch)
    assert run.get(*last) is not None
    with pytest.raises(CorruptData, match="expected block 0 with crc32:") as raised:
        run.get(*first)
    assert raised.value.path == "a.spool"


def test_a_run_of_a_newer_version_is_refused() -> None:
    content = bytearray(written([numbered(1)], NUMBERS, ["id"]))
    content[content.rindex(b"FTFRUN") + 6] = 3
    with pytest.raises(CorruptData, match=r"found version 3\. Read it with a newer ftfile"):
        open_run(bytes(content))


def test_a_store_that_returns_too_little_is_noticed() -> None:
    content = written([numbered(PAGED)], NUMBERS, ["id"])
    run = open_run(content)
    run.release()
    run._read_range = lambda offset, length: content[offset : offset + length - 1]  # noqa: SLF001
    key, hashed = keys_of(numbered(1))[0]
    with pytest.raises(CorruptData, match="bytes at"):
        run.get(key, hashed)
