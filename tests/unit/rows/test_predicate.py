"""Conditions as trees: binding, opposites and unknown parts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ftfile.core.bounds import BoundsColumn
from ftfile.rows.bounds.masks import FileBounds
from ftfile.rows.expressions import expression_of
from ftfile.rows.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    Always,
    Column,
    Compare,
    In,
    Joined,
    Leaf,
    Match,
    Null,
    Tree,
    all_of,
    any_of,
    bind,
    columns_of,
    fold,
    opposite_of,
)

NUMBER, TEXT = Column(("x",), pa.int64()), Column(("name",), pa.string())
COLUMNS = {"x": NUMBER, "name": TEXT}
ROWS = pa.table({"x": [1, 2, 3, None], "name": ["ab", "b", None, "bc"], "number": [0, 1, 2, 3]})
LEAVES = [
    Compare("x", "=", 2),
    Compare("x", "<", 2),
    Compare("x", "<=", 2),
    In("x", (1, 3), is_in=True),
    In("x", (1,), is_in=True),
    Null("x", is_null=True),
    Match("name", "start", "b", matches=True),
    Match("name", "end", "b", matches=True),
    Match("name", "anywhere", "b", matches=True),
]


def bound(tree: Tree) -> Tree:
    return bind(tree, COLUMNS.get, lambda column, value: pa.scalar(value, column.type))


def selected(tree: Tree) -> list[int]:
    numbers: list[int] = ROWS.filter(expression_of(bound(tree)))["number"].to_pylist()
    return numbers


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_a_leaf_and_its_opposite_match_each_row_that_is_not_null_once(leaf: Any) -> None:
    column = ROWS[leaf.column]
    present = [number for number, value in enumerate(column) if value.is_valid or isinstance(leaf, Null)]
    assert sorted([*selected(leaf), *selected(opposite_of(leaf))]) == present
    assert opposite_of(opposite_of(leaf)) == leaf


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (Compare("x", "=", None), FALSE),
        (Compare("x", "!=", None), FALSE),
        (In("x", (), is_in=True), FALSE),
        (In("x", (None,), is_in=True), FALSE),
        (In("x", (1, None), is_in=False), FALSE),
        (In("x", (1, None), is_in=True), In(NUMBER, (pa.scalar(1),), is_in=True)),
        (Compare("other", "=", 1), UNKNOWN),
        (Null("other", is_null=True), UNKNOWN),
        (TRUE, TRUE),
        (UNKNOWN, UNKNOWN),
    ],
    ids=str,
)
def test_a_null_literal_is_never_true_and_an_unknown_column_is_unknown(tree: Tree, expected: Tree) -> None:
    assert bound(tree) == expected


@pytest.mark.parametrize("tree", [Compare("x", "=", 1), In("x", (1, 2), is_in=True), In("x", (1, 2), is_in=False)])
def test_a_literal_without_a_value_of_the_type_is_unknown(tree: Tree) -> None:
    literals = {1: None, 2: pa.scalar(2)}
    assert bind(tree, COLUMNS.get, lambda _, value: literals[value]) == UNKNOWN


def test_an_unknown_condition_and_its_opposite_are_possible_and_never_certain() -> None:
    files = FileBounds({"x": BoundsColumn([1], [9], [0])}, [3])
    unknown: list[Leaf] = [UNKNOWN, opposite_of(UNKNOWN)]
    for leaf in unknown:
        assert files.mark_possible(leaf).tolist() == [True]
        assert files.mark_certain(leaf).tolist() == [False]
    assert not files.mark_possible(all_of([UNKNOWN, FALSE])).any()
    assert files.mark_certain(any_of([UNKNOWN, TRUE])).all()


def test_a_tree_has_columns_in_their_order() -> None:
    tree = any_of([all_of([Compare("x", "=", 1), TRUE]), Null("name", is_null=True), Compare("x", "<", 7)])
    assert columns_of(tree) == ["x", "name"]
    assert all_of([TRUE]) is TRUE


@pytest.mark.parametrize(("count", "depth"), [(1, 0), (2, 1), (3, 2), (1000, 10), (1024, 10)])
def test_parts_are_joined_with_minimal_depth_and_in_their_order(count: int, depth: int) -> None:
    tree = Joined(tuple(Compare("x", "=", number) for number in range(count)), by_and=True)

    def joined(first: tuple[int, list[Any]], second: tuple[int, list[Any]]) -> tuple[int, list[Any]]:
        return max(first[0], second[0]) + 1, first[1] + second[1]

    answer = fold(tree, lambda leaf: (0, [leaf]), joined, lambda *_: pytest.fail("the parts are joined by AND"))
    assert answer == (depth, [*tree.parts])


def test_a_constant_is_true_for_all_rows_or_for_no_row() -> None:
    assert selected(Always(value=True)) == selected(UNKNOWN) == [0, 1, 2, 3]
    assert selected(FALSE) == []
