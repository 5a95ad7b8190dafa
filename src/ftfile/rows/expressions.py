"""Arrow expressions of bound conditions, in which NaN equals NaN and is greater than all other numbers."""

from __future__ import annotations

import math
import operator

import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.predicate import Always, Compare, Leaf, Match, Null, Tree, fold
from ftfile.rows.statistics.bounds import end_of_prefix

_COMPARED = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def expression_of(tree: Tree) -> pc.Expression:
    """Return the expression that is true for the rows of a bound tree. An unknown leaf is true for all rows."""
    return fold(tree, _leaf, operator.and_, operator.or_)


def _leaf(leaf: Leaf) -> pc.Expression:
    if isinstance(leaf, Always):
        return pc.scalar(leaf.value is not False)
    column = pc.field(*leaf.column.path)
    if isinstance(leaf, Null):
        return column.is_null() if leaf.is_null else column.is_valid()
    if isinstance(leaf, Compare):
        return _compare_column(column, leaf.sign, leaf.value)
    if isinstance(leaf, Match):
        return _match_column(column, leaf)
    if len(leaf.values) == 1:
        return _compare_column(column, "=" if leaf.is_in else "!=", leaf.values[0])
    is_one = _is_one_of(column, leaf.values)
    return is_one if leaf.is_in else ~is_one & column.is_valid()


def _compare_column(column: pc.Expression, sign: str, literal: pa.Scalar) -> pc.Expression:
    compared = _COMPARED[sign](column, pc.scalar(literal))
    if not pa.types.is_floating(literal.type):
        return compared
    is_nan = pc.is_nan(column)
    if math.isnan(literal.as_py()):
        not_nan = ~is_nan
        never = pc.scalar(False)  # noqa: FBT003 - a literal of the expression
        answers = {"=": is_nan, ">=": is_nan, "!=": not_nan, "<": not_nan, "<=": column.is_valid(), ">": never}
        return answers[sign]
    return compared | is_nan if sign in (">", ">=") else compared


def _match_column(column: pc.Expression, leaf: Match) -> pc.Expression:
    text = leaf.value.as_py()
    if leaf.place == "start":
        # Unlike `starts_with`, Arrow can compare a range with the bounds of a row group.
        end = end_of_prefix(text)
        matched = column >= leaf.value
        if end is not None:
            matched &= column < pa.scalar(end, leaf.value.type)
    elif leaf.place == "end":
        matched = pc.ends_with(column, text)
    else:
        matched = pc.match_substring(column, text)
    return matched if leaf.matches else ~matched


def _is_one_of(column: pc.Expression, literals: tuple[pa.Scalar, ...]) -> pc.Expression:
    kind = literals[0].type
    if not pa.types.is_floating(kind):
        return column.isin(pa.array(literals, kind))
    numbers = [literal.as_py() for literal in literals]
    zeros = [0.0, -0.0] if 0.0 in numbers else []  # strings that are equal to Arrow, and have other bytes
    condition = column.isin(pa.array([*numbers, *zeros], kind))
    return condition | pc.is_nan(column) if any(map(math.isnan, numbers)) else condition
