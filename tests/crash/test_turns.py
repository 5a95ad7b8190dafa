"""Drivers run alternately, in the exact order of calls of a schedule."""

from __future__ import annotations

import threading

import pytest

from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.crash.turns import Turns, TurnsFileSystem

pytestmark = pytest.mark.slow

# A call takes this long, so that another driver could begin a call that must wait.
CALL_S = 0.1


def done(*schedule: tuple[str, int]) -> list[str]:
    """Return the names of two drivers that make three calls each, in the order of their calls."""
    turns = Turns(schedule)
    order: list[str] = []

    def drive(name: str) -> None:
        for _ in range(3):
            turns.wait(name)
            order.append(name)

    turns.run({"a": lambda: drive("a"), "b": lambda: drive("b")})
    assert turns.calls == {"a": 3, "b": 3}
    return order


def test_turns_are_taken_in_their_order() -> None:
    assert done(("b", 1), ("a", 2), ("b", 0), ("a", 0), ("b", 2)) == ["b", "a", "a", "b", "b", "a"]
    assert done(("a", 1), ("a", 1), ("b", 1)) == ["a", "a", "b", "a", "b", "b"]


def test_who_has_ended_is_passed_over() -> None:
    assert done(("a", 5), ("b", 2), ("a", 1)) == ["a", "a", "a", "b", "b", "b"]


def test_what_is_not_scheduled_goes_one_driver_after_the_other() -> None:
    assert done(("b", 1)) == ["b", "a", "a", "a", "b", "b"]


def test_the_last_call_of_a_turn_is_over_before_another_begins() -> None:
    turns, began = Turns([("a", 1), ("b", 1)]), threading.Event()
    fs = CrashingFileSystem()

    def slow() -> None:
        turns.wait("a")
        assert not began.wait(CALL_S)

    def quick() -> None:
        TurnsFileSystem(fs, "b", turns).make_directories("d")
        began.set()

    assert turns.run({"a": slow, "b": quick}) == {"a": None, "b": None}
