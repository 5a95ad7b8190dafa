"""Masks over files for bound conditions: files that may contain a matching row, and files whose rows all match.

An unknown bound, or an unknown part of a condition, never excludes a file.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.bounds.entries import BoundArrays, bound_arrays, compared_type
from ftfile.rows.predicate import Always, Column, Compare, Leaf, Match, Null, Tree, fold, opposite_of
from ftfile.rows.statistics.bounds import end_of_prefix
from ftfile.rows.statistics.columns import is_bounded, key_of
from ftfile.rows.value_text import value_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.bounds import BoundsColumn

    Mask: TypeAlias = NDArray[np.bool_]

# Files are compared with the least and the greatest of more values.
VALUES_MAX = 64
_FUNCTIONS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@dataclass(frozen=True, slots=True)
class FileBounds:
    """The bounds of columns in files."""

    bounds: Mapping[str, BoundsColumn]  # by `key_of`; a missing column is unknown in all files
    rows: Sequence[int | None]  # of each file
    _arrays: dict[str, BoundArrays] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that each column has one entry for each file."""
        for name, column in self.bounds.items():
            if not {*map(len, column)} <= {len(self.rows)}:
                raise ValueError(f"column {name!r} does not have {len(self.rows)} entries")

    def mark_possible(self, tree: Tree) -> Mask:
        """Return True for each file that may contain a row for which a condition is true."""
        return fold(tree, self._mark_leaf_possible, operator.and_, operator.or_)

    def mark_certain(self, tree: Tree) -> Mask:
        """Return True for each file whose rows all certainly match a condition."""
        return fold(tree, self._mark_leaf_certain, operator.and_, operator.or_)

    def _mark_leaf_certain(self, leaf: Leaf) -> Mask:
        """Return True for files in which no row can match the opposite, and no row is null."""
        certain = ~self._mark_leaf_possible(opposite_of(leaf))
        if isinstance(leaf, Always | Null):
            return certain
        return certain & ~self._mark_leaf_possible(Null(leaf.column, is_null=True))

    def _mark_leaf_possible(self, leaf: Leaf) -> Mask:
        if isinstance(leaf, Always):
            return np.full(len(self.rows), leaf.value is not False)
        column = self._arrays_of(leaf.column)
        if column is None:
            return np.full(len(self.rows), fill_value=True)
        if isinstance(leaf, Null):
            return self._has_nulls(column) if leaf.is_null else self._has_values(column)
        if isinstance(leaf, Compare):
            mask = _compare(column, leaf.sign, leaf.value)
        elif isinstance(leaf, Match):
            mask = _match(column, leaf)
        elif leaf.is_in:
            mask = _is_one_of(column, leaf.values)
        else:
            # More literals could only exclude more files.
            masks = [_compare(column, "!=", literal) for literal in leaf.values[:VALUES_MAX]]
            mask = np.logical_and.reduce(masks)
        return mask & self._has_values(column)

    def _has_nulls(self, column: BoundArrays) -> Mask:
        return _mask_of(pc.not_equal(column.nulls, 0))

    def _has_values(self, column: BoundArrays) -> Mask:
        return _mask_of(pc.not_equal(column.nulls, pa.array(self.rows, pa.int64())))

    def _arrays_of(self, column: Column) -> BoundArrays | None:
        """Return the bounds of a column; None if they are unknown."""
        key, kind = key_of(column.path), value_type(column.type)
        bounds = self.bounds.get(key)
        if bounds is None or not is_bounded(kind):
            return None
        if key not in self._arrays:
            self._arrays[key] = bound_arrays(bounds, kind)
        return self._arrays[key]


# The functions below return True for files that may have a value for which a comparison is true, as if no value were
# null.


def _compare(column: BoundArrays, sign: str, literal: pa.Scalar) -> Mask:
    literal = literal.cast(compared_type(literal.type))
    if pa.types.is_floating(literal.type) and math.isnan(literal.as_py()):
        return _compare_nan(column, sign)
    if sign == "=":
        return _compare_bound(column, "<=", literal) & _compare_bound(column, ">=", literal)
    if sign == "!=":
        return _mask_of(pc.not_equal(column.low, literal)) | _mask_of(pc.not_equal(column.high, literal))
    return _compare_bound(column, sign, literal)


def _compare_nan(column: BoundArrays, sign: str) -> Mask:
    """Compare files with NaN, which is greater than all other numbers. A file with NaN has no greatest number."""
    if sign in ("=", ">="):
        mask: Mask = column.high.is_null().to_numpy(zero_copy_only=False)
        return mask
    return np.full(len(column.high), sign != ">")


def _compare_bound(column: BoundArrays, sign: str, literal: pa.Scalar) -> Mask:
    """Compare the bounds that can match: the least values by `<` and `<=`, the greatest by `>` and `>=`."""
    bounds = column.low if sign in ("<", "<=") else column.high
    return _mask_of(pc.call_function(_FUNCTIONS[sign], [bounds, literal]))


def _match(column: BoundArrays, leaf: Match) -> Mask:
    """Compare with the range of all texts that have a prefix. Other parts of texts are unknown."""
    if leaf.place != "start":
        return np.full(len(column.low), fill_value=True)
    end = end_of_prefix(leaf.value.as_py())
    if leaf.matches:
        mask = _compare(column, ">=", leaf.value)
        return mask if end is None else mask & _compare(column, "<", pa.scalar(end))
    mask = _compare(column, "<", leaf.value)
    return mask if end is None else mask | _compare(column, ">=", pa.scalar(end))


def _is_one_of(column: BoundArrays, literals: Sequence[pa.Scalar]) -> Mask:
    if len(literals) > VALUES_MAX:
        return _is_between(column, literals)
    mask = np.full(len(column.low), fill_value=False)
    for literal in literals:
        mask |= _compare(column, "=", literal)
    return mask


def _is_between(column: BoundArrays, literals: Sequence[pa.Scalar]) -> Mask:
    """Compare with the range from the least to the greatest literal, and with NaN if it is a literal."""
    numbers = pa.array(literals, literals[0].type)
    mask = np.full(len(column.low), fill_value=False)
    if pa.types.is_floating(numbers.type):
        if pc.is_nan(numbers).true_count:
            mask = _compare_nan(column, "=")
        numbers = numbers.filter(pc.invert(pc.is_nan(numbers)))
    if not len(numbers):
        return mask
    ends = pc.min_max(numbers)
    return mask | (_compare(column, ">=", ends["min"]) & _compare(column, "<=", ends["max"]))


def _mask_of(answers: pa.BooleanArray) -> Mask:
    """Return the answers as a mask. An unknown answer is True."""
    mask: Mask = answers.fill_null(True).to_numpy(zero_copy_only=False)  # noqa: FBT003 - the answer
    return mask
