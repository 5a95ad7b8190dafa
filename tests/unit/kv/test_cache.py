"""The cache keeps values within its bytes, those longest that are used."""

from __future__ import annotations

import gc
import random
import sys
from typing import TYPE_CHECKING

import pytest

from ftfile.kv.run.pages import Cache, Shelf

if TYPE_CHECKING:
    from _typeshed import TraceFunction


def test_what_was_not_used_goes_first() -> None:
    cache, shelf = Cache(300), Shelf[str](9)
    for number in range(3):
        assert cache.put(shelf, number, f"value {number}", 100) == f"value {number}"
    shelf.used[0] = 1
    cache.put(shelf, 3, "value 3", 100)
    assert shelf.values[:4] == ["value 0", None, "value 2", "value 3"]
    cache.put(shelf, 4, "value 4", 100)  # the hand has passed the first one
    assert shelf.values[:5] == ["value 0", None, None, "value 3", "value 4"]
    assert cache.size_bytes == 300


def test_what_is_used_again_outlives_what_is_put_and_never_used() -> None:
    cache, pages, blocks = Cache(300), Shelf[str](1), Shelf[str](100)
    cache.put(pages, 0, "page", 100)
    for number in range(100):
        pages.used[0] = 1
        cache.put(blocks, number, "block", 100)
    assert pages.values == ["page"]
    assert sum(value is not None for value in blocks.values) == 2


def test_shelves_share_the_bytes() -> None:
    cache, first, second = Cache(100), Shelf[str](1), Shelf[str](1)
    cache.put(first, 0, "first", 60)
    cache.put(second, 0, "second", 60)
    assert (first.values, second.values, cache.size_bytes) == ([None], ["second"], 60)


def test_of_two_that_load_a_value_the_first_one_stays() -> None:
    cache, shelf = Cache(100), Shelf[str](1)
    cache.put(shelf, 0, "first", 60)
    assert cache.put(shelf, 0, "second", 60) == "first"
    assert cache.size_bytes == 60


def test_a_value_that_is_too_long_is_returned_and_not_kept() -> None:
    cache, shelf = Cache(100), Shelf[str](2)
    cache.put(shelf, 0, "short", 60)
    assert cache.put(shelf, 1, "long", 600) == "long"
    assert (shelf.values, cache.size_bytes) == ([None, None], 0)


def test_a_value_that_grows_removes_others() -> None:
    cache, first, second = Cache(100), Shelf[str](1), Shelf[str](2)
    cache.put(second, 0, "one", 30)
    cache.put(first, 0, "grows", 10)
    cache.grow(first, 0, "grows", 50)
    assert cache.size_bytes == 80
    first.used[0] = 1
    cache.grow(first, 0, "grows", 90)
    assert (first.values, second.values, cache.size_bytes) == (["grows"], [None, None], 90)
    cache.grow(first, 0, "another", 40)
    assert cache.size_bytes == 90
    cache.put(second, 1, "two", 10)
    cache.grow(first, 0, "grows", 101)
    assert first.values == [None], "it is larger than the cache"
    assert cache.size_bytes == 10 * (second.values[1] is not None)
    cache.put(first, 0, "again", 20)
    cache.drop(second)
    cache.grow(first, 0, "again", 20)
    cache.drop(first)
    assert (cache.size_bytes, first.values) == (0, [None])


def test_dropped_shelves_are_empty() -> None:
    cache, first, second = Cache(100), Shelf[str](1), Shelf[str](1)
    cache.put(first, 0, "first", 10)
    cache.put(second, 0, "second", 10)
    cache.drop(first)
    assert (first.values, second.values, cache.size_bytes) == ([None], ["second"], 10)


@pytest.mark.slow
def test_sizes_are_those_of_what_is_on_the_shelves(seed: int) -> None:
    draw, cache, shelves = random.Random(seed), Cache(3000), [Shelf[int](30) for _ in range(9)]
    for _ in range(5000):
        shelf, number = draw.choice(shelves), draw.randrange(30)
        match draw.randrange(12):
            case 0:
                cache.drop(shelf)
                assert not any(shelf.values)
            case 1 if (value := shelf.values[number]) is not None:
                cache.grow(shelf, number, value, draw.randrange(200))
            case 2:
                cache.resize(draw.choice([0, 1000, 3000]))
            case _:
                cache.put(shelf, number, 1 + number, draw.randrange(1, 100))
        cached = [{n for n, value in enumerate(shelf.values) if value is not None} for shelf in shelves]
        assert cached == [shelf.sizes_bytes.keys() for shelf in shelves]
        assert cache.size_bytes == sum(sum(shelf.sizes_bytes.values()) for shelf in shelves) <= cache.capacity_bytes


def test_a_shelf_is_dropped_without_a_look_at_the_others() -> None:
    cache, others, shelf = Cache(1 << 30), Shelf[int](20_000), Shelf[int](1)
    for number in range(20_000):
        cache.put(others, number, number, 1)
    lines = 0

    def count(*_: object) -> TraceFunction:
        nonlocal lines
        lines += 1
        return count

    for _ in range(3000):  # dropped entries are forgotten in the end
        cache.put(shelf, 0, 1, 1)
        cache.drop(shelf)
    cache.put(shelf, 0, 1, 1)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        cache.drop(shelf)
    finally:
        sys.settrace(before)
    assert lines < 100
    assert cache.size_bytes == 20_000


@pytest.mark.slow
def test_shelves_that_were_dropped_are_freed() -> None:
    def shelves() -> int:
        gc.collect()
        return sum(type(item) is Shelf for item in gc.get_objects())

    before = shelves()
    cache, evicted = Cache(2), Shelf[int](3000)
    for number in range(3000):
        cache.put(evicted, number, 1, 1)
    for _ in range(3000):
        shelf = Shelf[int](1)
        cache.put(shelf, 0, 1, 0)
        cache.drop(shelf)
    assert shelves() - before < 1000
