"""The cache keeps values within its bytes, those longest that are used."""

from __future__ import annotations

from ftfile.kv.run.pages import Cache, Shelf


def test_what_was_not_used_goes_first() -> None:
    cache, shelf = Cache(300), Shelf[str](9)
    for number in range(3):
        assert cache.put(shelf, number, f"value {number}", 100) == f"value {number}"
    cache.put(shelf, 3, "value 3", 100)  # the hand passes all, and the first goes
    assert shelf.values[:4] == [None, "value 1", "value 2", "value 3"]
    shelf.used[1] = 1
    cache.put(shelf, 4, "value 4", 100)
    assert shelf.values[:5] == [None, "value 1", None, "value 3", "value 4"]
    assert cache.size_bytes == 300


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
    cache.grow(first, 0, "grows", 40)
    assert cache.size_bytes == 80
    first.used[0] = 1
    cache.grow(first, 0, "grows", 80)
    assert (first.values, second.values, cache.size_bytes) == (["grows"], [None, None], 90)
    cache.grow(first, 0, "another", 40)
    assert cache.size_bytes == 90
    cache.put(second, 1, "two", 10)
    cache.grow(first, 0, "grows", 100)
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
