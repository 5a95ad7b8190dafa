"""Conditions on files: True for each file that may contain a row for which the condition is true."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.bounds.entries import BoundArrays, bound_arrays, compared_type
from ftfile.rows.comparisons import Columns
from ftfile.rows.statistics.columns import is_bounded, key_of
from ftfile.rows.value_text import value_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.core.bounds import BoundsColumn

    Mask: TypeAlias = NDArray[np.bool_]

# Files are compared with the least and the greatest of more values.
VALUES_MAX = 64
_FUNCTIONS = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@dataclass(frozen=True, slots=True)
class FileBounds(Columns):
    """The columns of files that conditions can compare. An answer is a mask over the files.

    Masks are joined like conditions, because a parser negates comparisons, and never a joined condition. An unknown
    bound never excludes a file.
    """

    bounds: Mapping[str, BoundsColumn]  # by `key_of`; a missing column is unknown in all files
    rows: Sequence[int | None]  # of each file
    _arrays: dict[str, BoundArrays] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check that each column has one entry for each file."""
        for name, column in self.bounds.items():
            if not {*map(len, column)} <= {len(self.rows)}:
                raise ValueError(f"column {name!r} does not have {len(self.rows)} entries")

    def always(self, value: bool) -> Mask:  # noqa: FBT001 - a literal of the condition
        """Return the same answer for all files."""
        return np.full(len(self.rows), value)

    def is_null(self, field: pa.Field) -> Mask:
        """Return True for files that may have a row with `field IS NULL`."""
        column = self._column(field)
        if column is None:
            return self.always(True)  # noqa: FBT003 - a literal of the condition
        return unless_unknown(pc.not_equal(column.nulls, 0))

    def is_valid(self, field: pa.Field) -> Mask:
        """Return True for files that may have a row with `field IS NOT NULL`."""
        column = self._column(field)
        if column is None:
            return self.always(True)  # noqa: FBT003 - a literal of the condition
        return unless_unknown(pc.not_equal(column.nulls, pa.array(self.rows, pa.int64())))

    def compare(self, field: pa.Field, sign: str, value: object) -> Mask:
        """Return True for files that may have a row with `field sign value`."""
        if value is None:
            return self.always(False)  # noqa: FBT003 - a literal of the condition
        return self._compare(field, sign, self.literal(field, value)) & self.is_valid(field)

    def is_one_of(self, field: pa.Field, values: Sequence[object]) -> Mask:
        """Return True for files that may have a row with `field IN (values)`."""
        literals = self._literals(field, values)
        if len(literals) > VALUES_MAX:
            return self._is_between(field, literals) & self.is_valid(field)
        mask = self.always(False)  # noqa: FBT003 - a literal of the condition
        for literal in literals:
            mask |= self._compare(field, "=", literal)
        return mask & self.is_valid(field)

    def is_none_of(self, field: pa.Field, values: Sequence[object]) -> Mask:
        """Return True for files that may have a row with `field NOT IN (values)`."""
        literals = self._literals(field, values)
        if len(literals) < len(values):
            return self.always(False)  # noqa: FBT003 - a literal of the condition
        mask = self.is_valid(field)
        for literal in literals[:VALUES_MAX]:  # more literals could only exclude more files
            mask &= self._compare(field, "!=", literal)
        return mask

    def has_no_nulls(self, field: pa.Field) -> Mask:
        """Return True for each file in which the column is certainly not null."""
        return ~self.is_null(field)

    def has_only_nulls(self, field: pa.Field) -> Mask:
        """Return True for each file in which the column is certainly null in all rows."""
        return ~self.is_valid(field)

    def _literals(self, field: pa.Field, values: Iterable[object]) -> list[pa.Scalar]:
        return [self.literal(field, value) for value in values if value is not None]

    def _is_between(self, field: pa.Field, literals: Sequence[pa.Scalar]) -> Mask:
        """Return True for files that may have a value between the least and the greatest literal, or NaN."""
        numbers = pa.array(literals, literals[0].type)
        mask = self.always(False)  # noqa: FBT003 - a literal of the condition
        if pa.types.is_floating(numbers.type):
            if pc.is_nan(numbers).true_count:
                mask = self._compare(field, "=", pa.scalar(math.nan, numbers.type))
            numbers = numbers.filter(pc.invert(pc.is_nan(numbers)))
        if not len(numbers):
            return mask
        ends = pc.min_max(numbers)
        return mask | (self._compare(field, ">=", ends["min"]) & self._compare(field, "<=", ends["max"]))

    def _compare(self, field: pa.Field, sign: str, literal: pa.Scalar) -> Mask:
        """Return True for files that may have a value for which a comparison is true, as if no value were null."""
        column = self._column(field)
        if column is None:
            return self.always(True)  # noqa: FBT003 - a literal of the condition
        literal = literal.cast(compared_type(literal.type))
        if pa.types.is_floating(literal.type) and math.isnan(literal.as_py()):
            return self._compare_nan(sign, column.high)
        if sign == "=":
            return _compare_bound(column, "<=", literal) & _compare_bound(column, ">=", literal)
        if sign == "!=":
            return unless_unknown(pc.not_equal(column.low, literal)) | unless_unknown(
                pc.not_equal(column.high, literal)
            )
        return _compare_bound(column, sign, literal)

    def _compare_nan(self, sign: str, high: pa.Array) -> Mask:
        """Compare files with NaN, which is greater than all other numbers. A file with NaN has no greatest number."""
        if sign in ("=", ">="):
            mask: Mask = high.is_null().to_numpy(zero_copy_only=False)
            return mask
        return self.always(sign != ">")

    def _column(self, field: pa.Field) -> BoundArrays | None:
        """Return the entries of a column; None if they are unknown."""
        column, kind = self.bounds.get(self._key(field)), value_type(field.type)
        if column is None or not is_bounded(kind):
            return None
        if field.name not in self._arrays:
            self._arrays[field.name] = bound_arrays(column, kind)
        return self._arrays[field.name]

    def _key(self, field: pa.Field) -> str:
        """Return the key of a column in `bounds`."""
        return key_of((field.name,))


def _compare_bound(column: BoundArrays, sign: str, literal: pa.Scalar) -> Mask:
    """Compare the bounds that can match: the least values by `<` and `<=`, the greatest by `>` and `>=`."""
    bounds = column.high
    if sign in ("<", "<="):
        bounds = column.low
    return unless_unknown(pc.call_function(_FUNCTIONS[sign], [bounds, literal]))


def unless_unknown(answers: pa.BooleanArray) -> Mask:
    """Return the answers as a mask. An unknown answer is True."""
    mask: Mask = answers.fill_null(True).to_numpy(zero_copy_only=False)  # noqa: FBT003 - the answer
    return mask
