"""A few parameters are quick, and all others slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.parameters import parametrize, slow_after

if TYPE_CHECKING:
    from collections.abc import Iterable


def shown(parameters: Iterable[Any]) -> list[tuple[tuple[Any, ...], list[str], Any]]:
    return [(each.values, [mark.name for mark in each.marks], each.id) for each in parameters]


def test_those_after_the_first_are_slow() -> None:
    assert shown(slow_after(1, ["a", "b"])) == [(("a",), [], None), (("b",), ["slow"], None)]
    assert shown(slow_after(0, [(1, 2)], packages=True)) == [(((1, 2),), ["slow", "packages"], None)]


def test_several_names() -> None:
    names, parameters = parametrize(("one", "two"), [(1, 2), (3, 4)], quick=1).args
    assert names == ("one", "two")
    assert shown(parameters) == [((1, 2), [], None), ((3, 4), ["slow"], None)]


def test_ids_and_marks_are_kept() -> None:
    mark = parametrize("one", [1, pytest.param(2, id="two", marks=pytest.mark.contents)], quick=1, ids=str)
    assert mark.kwargs == {"ids": str}
    assert shown(mark.args[1]) == [((1,), [], None), ((2,), ["contents", "slow"], "two")]
