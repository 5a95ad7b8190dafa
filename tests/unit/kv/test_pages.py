"""Pages find the places of rows, also if hashes are equal, and searches for other keys end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ftfile.core.errors import EncodingError
from ftfile.kv.run.pages import PageShape, PageTable, Probes, build_pages, one_page, places_of, shape_for

if TYPE_CHECKING:
    from numpy.typing import NDArray


def found_places(shape: PageShape, hashes: NDArray[np.uint64], table: NDArray[np.uint32]) -> list[set[int]]:
    """All places that a search for each hash comes by."""
    pages = PageTable(shape)
    wanted_pages = pages.list_missing(np.arange(shape.pages))
    pages.fill({page: memoryview(table[page]) for page in wanted_pages})
    assert not pages.list_missing(np.arange(shape.pages))
    probes = Probes(shape, hashes, pages)
    found: list[set[int]] = [set() for _ in hashes]
    wanted = np.arange(len(hashes))
    while wanted.size:
        places = probes.next_places(wanted)
        for number, place in zip(wanted.tolist(), places.tolist(), strict=True):
            found[number].add(place)
        wanted = wanted[places >= 0]
    return found


def hashes_of(kind: str, rows: int, seed: int) -> NDArray[np.uint64]:
    random = np.random.default_rng(seed).integers(0, 2**64, rows, np.uint64)
    if kind == "equal":
        random[:] = random[0]
    if kind == "one page":
        random >>= np.uint64(20)
    if kind == "last slots":
        random |= np.uint64(0xFFF << 20)
    return random


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "equal", "one page", "last slots"])
@pytest.mark.parametrize("rows", [1, 4096, 20_000])
def test_every_row_is_found(kind: str, rows: int, seed: int) -> None:
    hashes = hashes_of(kind, rows, seed)
    places = np.arange(rows) * 3
    shape = shape_for(hashes, int(places[-1]))
    table = np.concatenate(list(build_pages(shape, hashes, places)))
    assert table.shape == (shape.pages, shape.slots)
    assert np.count_nonzero(table) == rows
    assert (table == 0).any(axis=1).all(), "a search would not end"
    some = slice(0, rows, max(rows // 20, 1)) if kind in {"equal", "last slots"} else slice(None)
    for place, found in zip(places[some].tolist(), found_places(shape, hashes[some], table), strict=True):
        assert place in found
        assert -1 in found


def test_few_slots_have_the_fingerprint_of_another(seed: int) -> None:
    hashes = hashes_of("random", 100_000, seed)
    shape = shape_for(hashes, 99_999)
    table = np.concatenate(list(build_pages(shape, hashes, np.arange(100_000))))
    assert shape == PageShape(41, 4096, 17)
    absent = found_places(shape, hashes_of("random", 10_000, seed + 1), table)
    assert sum(len(found) - 1 for found in absent) < 20


def test_one_page_has_all_rows(seed: int) -> None:
    for rows in (0, 1, 2, 3, 4095):
        hashes = hashes_of("random", rows, seed)
        (table,) = build_pages(one_page(rows, rows), hashes, np.arange(rows))
        assert np.count_nonzero(table) == rows
        assert (table == 0).any()


def test_places_name_block_and_row() -> None:
    assert places_of([3, 1, 2], 2).tolist() == [0, 1, 2, 4, 8, 9]
    assert places_of([], 0).tolist() == []


def test_more_rows_than_a_slot_can_name_are_refused() -> None:
    with pytest.raises(EncodingError, match="too many"):
        shape_for(np.zeros(1, np.uint64), 2**32 - 1)
    assert shape_for(np.zeros(1, np.uint64), 2**32 - 2).place_bits == 32
