"""Conditions on rows as immutable trees, in which a negation is part of a comparison.

A condition selects the rows for which it is true, and null is not true. So `NOT a < b` is `a >= b`, and no node negates
another node. Texts and mappings (`rows.conditions`) and Spark's filters (`spark.filters`) become trees. `bind` converts
the literals of a tree to the types of their columns. `rows.expressions` converts a bound tree to an Arrow expression,
and `rows.bounds.masks` compares it with the bounds of files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

OPPOSITES = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_Answer = TypeVar("_Answer")


class Column(NamedTuple):
    """A column, or a field of a struct, of a bound tree."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Always:
    """A condition that is true for all rows, or for no row. None is unknown: a condition that is not understood."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Null:
    """`column IS NULL`, or `column IS NOT NULL`."""

    column: Any  # in all leaves: a name or a path of names; a `Column` in a bound tree
    is_null: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """`column sign value`."""

    column: Any
    sign: str
    value: Any  # in all leaves: a Python value; an Arrow scalar of the type of the column in a bound tree


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`, or `column NOT IN (values)`. Only `IN` can have no values: it is true for no row."""

    column: Any
    values: tuple[Any, ...]
    is_in: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A text that starts with another text, ends with it or contains it, or does not."""

    column: Any
    place: str  # `start`, `end` or `anywhere`
    value: Any
    matches: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """A condition that is true if all parts are true, or if any part is true. It has at least one part."""

    parts: tuple[Tree, ...]
    by_and: bool


Leaf: TypeAlias = Always | Null | Compare | In | Match
Tree: TypeAlias = Leaf | Joined

TRUE, FALSE, UNKNOWN = Always(True), Always(False), Always(None)  # noqa: FBT003 - the value of the node


def all_of(parts: Sequence[Tree]) -> Tree:
    """Return the condition that is true if all parts are true."""
    return parts[0] if len(parts) == 1 else Joined(tuple(parts), by_and=True)


def any_of(parts: Sequence[Tree]) -> Tree:
    """Return the condition that is true if any part is true."""
    return parts[0] if len(parts) == 1 else Joined(tuple(parts), by_and=False)


def opposite_of(leaf: Leaf) -> Leaf:
    """Return the leaf that is true for the rows for which this leaf is false. Neither is true for null."""
    if isinstance(leaf, Compare):
        return replace(leaf, sign=OPPOSITES[leaf.sign])
    if isinstance(leaf, In):
        return replace(leaf, is_in=not leaf.is_in)
    if isinstance(leaf, Null):
        return replace(leaf, is_null=not leaf.is_null)
    if isinstance(leaf, Match):
        return replace(leaf, matches=not leaf.matches)
    return UNKNOWN if leaf.value is None else Always(not leaf.value)


def of_mapping(where: Mapping[str, object]) -> Tree:
    """Return the condition of a value, or a list of values, by column; None is null. No column is true for all rows."""
    parts: list[Tree] = []
    for name, given in where.items():
        values = [*given] if isinstance(given, list | tuple | set | frozenset | range) else [given]
        present = tuple(value for value in values if value is not None)
        is_one = In(name, present, is_in=True)
        parts.append(any_of([is_one, Null(name, is_null=True)]) if len(present) < len(values) else is_one)
    return all_of(parts) if parts else TRUE


def leaves_of(tree: Tree) -> list[Leaf]:
    """Return the leaves of a tree, in their order."""
    return [leaf for part in tree.parts for leaf in leaves_of(part)] if isinstance(tree, Joined) else [tree]


def columns_of(tree: Tree) -> list[Any]:
    """Return the different columns of a tree, in their order."""
    return [*dict.fromkeys(leaf.column for leaf in leaves_of(tree) if not isinstance(leaf, Always))]


def bind(
    tree: Tree, column_of: Callable[[Any], Column | None], literal_of: Callable[[Column, Any], pa.Scalar | None]
) -> Tree:
    """Return a tree with columns instead of names, and with literals of their types. A null literal is never true.

    Args:
        tree: a tree of names.
        column_of: returns the column of a name, or None if conditions on it are unknown.
        literal_of: returns a value in the type of a column, or None if comparisons with it are unknown.
    """
    if isinstance(tree, Joined):
        return replace(tree, parts=tuple(bind(part, column_of, literal_of) for part in tree.parts))
    if isinstance(tree, Always):
        return tree
    column = column_of(tree.column)
    if column is None:
        return UNKNOWN
    if isinstance(tree, Null):
        return replace(tree, column=column)
    return _with_literals(tree, column, literal_of)


def _with_literals(
    leaf: Compare | In | Match, column: Column, literal_of: Callable[[Column, Any], pa.Scalar | None]
) -> Tree:
    given = leaf.values if isinstance(leaf, In) else (leaf.value,)
    literals: list[pa.Scalar] = []
    for value in given:
        if value is not None:
            literal = literal_of(column, value)
            if literal is None:
                return UNKNOWN
            literals.append(literal)
    if isinstance(leaf, In):
        is_never = not literals if leaf.is_in else len(literals) < len(given)
        return FALSE if is_never else replace(leaf, column=column, values=tuple(literals))
    return replace(leaf, column=column, value=literals[0]) if literals else FALSE


def fold(
    tree: Tree,
    leaf: Callable[[Leaf], _Answer],
    both: Callable[[_Answer, _Answer], _Answer],
    either: Callable[[_Answer, _Answer], _Answer],
) -> _Answer:
    """Return the joined answers for the leaves. The joins have minimal depth, since Arrow evaluates by recursion."""
    if not isinstance(tree, Joined):
        return leaf(tree)
    join = both if tree.by_and else either
    answers = [fold(part, leaf, both, either) for part in tree.parts]
    while len(answers) > 1:
        unpaired = answers[len(answers) // 2 * 2 :]
        answers = [*map(join, answers[0::2], answers[1::2]), *unpaired]
    return answers[0]
