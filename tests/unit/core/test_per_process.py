from __future__ import annotations

import itertools
import os
import threading
from typing import TYPE_CHECKING

import pytest

from ftfile.core.per_process import OnePerKey, PerProcess, cached_property

if TYPE_CHECKING:
    from collections.abc import Callable


def is_true_in_a_fork(condition: Callable[[], bool]) -> bool:
    """Fork while another thread holds what `held` yields; return the condition in the child."""
    child = os.fork()
    if child == 0:
        os._exit(0 if condition() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class TestPerProcess:
    def test_a_fork_has_a_lock_that_is_free(self) -> None:
        lock = PerProcess(threading.Lock)
        with lock.here:
            assert is_true_in_a_fork(lambda: lock.here.acquire(blocking=False))
            assert lock.here.locked()

    def test_the_thread_that_forks_leaves_the_block_of_the_lock_that_it_has_entered(self) -> None:
        lock = PerProcess(threading.Lock)

        def left() -> bool:
            block.__exit__(None, None, None)
            return not lock.here.locked()

        block = lock.here
        with block:
            assert is_true_in_a_fork(left)

    def test_a_fork_can_derive_its_state_from_its_parents(self) -> None:
        state = PerProcess(lambda: ["parent"], in_fork=lambda parent: [*parent, "child"])
        assert is_true_in_a_fork(lambda: state.here == ["parent", "child"])
        assert state.here == ["parent"]

    def test_a_fork_of_a_fork_begins_anew_as_well(self) -> None:
        numbers = PerProcess(list[int])
        numbers.here.append(1)

        def in_child() -> bool:
            numbers.here.append(2)
            return is_true_in_a_fork(lambda: numbers.here == []) and numbers.here == [2]

        assert is_true_in_a_fork(in_child)
        assert numbers.here == [1]

    def test_a_fork_destroys_nothing_of_its_parent(self) -> None:
        """Destructors can wait for locks and threads that do not exist in the fork."""

        class Held:
            def __del__(self) -> None:
                destroyed.append(self)

        destroyed: list[object] = []
        held = PerProcess(Held)
        assert is_true_in_a_fork(lambda: not destroyed)
        del held
        assert len(destroyed) == 1


@pytest.mark.slow
def test_made_once_by_all_threads_and_once_more_in_a_fork() -> None:
    made: list[str] = []

    def make(key: str) -> object:
        made.append(key)
        return object()

    things = OnePerKey(make)
    threads = [threading.Thread(target=things.of, args=("a",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    assert things.of("a") is things.of("a") is not things.of("b")
    ours = things.of("a")
    assert is_true_in_a_fork(lambda: things.of("a") is not ours)


def test_a_fork_makes_its_objects_while_its_parent_makes_one() -> None:
    begun, forked = threading.Event(), threading.Event()

    def make(key: str) -> str:
        if key == "slow":
            begun.set()
            assert forked.wait(60)
        return key

    things = OnePerKey(make)
    thread = threading.Thread(target=things.of, args=("slow",))
    thread.start()
    assert begun.wait(60)
    try:
        assert is_true_in_a_fork(lambda: things.of("a") == "a")
    finally:
        forked.set()
        thread.join()


def test_what_cannot_be_made_is_not_kept() -> None:
    errors = [ValueError("not yet")]

    def make(key: str) -> str:
        if errors:
            raise errors.pop()
        return key

    things = OnePerKey(make)
    with pytest.raises(ValueError, match="not yet"):
        things.of("a")
    assert things.of("a") == "a"


def test_made_anew_where_secrets_are_known_to_be_others() -> None:
    numbers = itertools.count()
    things: OnePerKey[str, int] = OnePerKey(lambda _: next(numbers))
    assert [things.of("a", digest) for digest in ("1", "1", "2", None, "2", "1")] == [0, 0, 1, 1, 1, 2]


def test_the_object_that_was_not_used_for_the_longest_time_is_dropped() -> None:
    numbers = itertools.count()
    things: OnePerKey[str, int] = OnePerKey(lambda _: next(numbers), kept=2)
    assert [things.of(key) for key in "abacab"] == [0, 1, 0, 2, 0, 3]
    things.clear()
    assert things.of("b") == 4


def test_a_property_is_computed_once_and_in_a_fork_while_another_thread_computes_it() -> None:
    class Square:
        def __init__(self, side: int) -> None:
            self.side = side

        @cached_property
        def area(self) -> int:
            """Return the area."""
            computed.append(self.side)
            if self.side == 0:
                begun.set()
                assert forked.wait(60)
            return self.side**2

    computed: list[int] = []
    begun, forked = threading.Event(), threading.Event()
    square = Square(3)
    assert (square.area, square.area, computed) == (9, 9, [3])
    assert Square.area.__doc__ == "Return the area."
    thread = threading.Thread(target=lambda: Square(0).area)
    thread.start()
    assert begun.wait(60)
    try:
        assert is_true_in_a_fork(lambda: Square(4).area == 16)
    finally:
        forked.set()
        thread.join()
