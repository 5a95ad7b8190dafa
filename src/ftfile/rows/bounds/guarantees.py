"""Arrow expressions on files: Arrow compares an expression with a guarantee for the rows of each file."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.rows import kernels as pc
from ftfile.rows.bounds.entries import BoundArrays, bound_arrays
from ftfile.rows.conditions import text_of
from ftfile.rows.statistics.columns import is_bounded, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.bounds import BoundsColumn
    from ftfile.rows.bounds.masks import Mask

# A file takes 45 µs. No file is excluded from more files.
FILES_MAX = 20_000
# A file with more columns that may be null has no guarantee for the other ones. Each of them doubles its guarantees.
_NULLABLE_MAX = 3
_MEMBERSHIP, _CAST = "is_in(", "cast("  # in the text of an expression


def possible_by_expression(
    expression: pc.Expression,
    schema: pa.Schema,
    bounds: Mapping[str, BoundsColumn],
    rows: Sequence[int | None],
) -> Mask:
    """Return a mask: False for each file that contains no row for which an expression is true.

    Args:
        expression: a condition on the columns of `schema`; it should name all of them.
        schema: of the rows.
        bounds: by `key_of`; a missing column is unknown in all files.
        rows: the number of rows of each file; None is unknown.
    """
    mask = np.full(len(rows), True)  # noqa: FBT003 - a value
    columns = dict[str, BoundArrays]()
    for field in schema:
        column = bounds.get(key_of((field.name,)))
        # A comparison with NaN is false, so its negation is true for a value outside all bounds.
        if column is not None and is_bounded(field.type) and not pa.types.is_floating(field.type):
            columns[field.name] = bound_arrays(column, field.type)
    if not columns or len(rows) > FILES_MAX or not _compares_exactly(expression, schema):
        return mask
    guarantees, numbers = [], []
    for number, row_count in enumerate(rows):
        for guarantee in _guarantees(columns, number, row_count):
            guarantees.append(guarantee)
            numbers.append(number)
    try:
        possible = may_be_true(expression, guarantees, schema)
    except pa.ArrowException:
        return mask  # the comparison of rows raises the error, with their place
    mask[:] = False
    mask[np.array(numbers, np.int64)[possible]] = True
    return mask


def may_be_true(
    where: pc.Expression | None, guarantees: Sequence[pc.Expression | None], schema: pa.Schema
) -> list[bool]:
    """Return False for each guarantee with which a condition on columns of `schema` cannot be true."""
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem  # noqa: PLC0415

    # Arrow compares a condition with the partitions of fragments, and opens no file.
    file_format, fs = ds.ParquetFileFormat(), LocalFileSystem()
    fragments = []
    for number, guarantee in enumerate(guarantees):
        fragments.append(file_format.make_fragment(str(number), fs, guarantee))
    dataset = ds.FileSystemDataset(fragments, schema, file_format, fs)
    possible = {int(fragment.path) for fragment in dataset.get_fragments(where)}
    return [number in possible for number in range(len(guarantees))]


def _compares_exactly(expression: pc.Expression, schema: pa.Schema) -> bool:
    """Return False for an expression that compares converted values.

    Arrow compares the bounds before a conversion that loses digits: 16,777,217 as a 32-bit float is 16,777,216. A
    value set of another type than its column has such a conversion, too. Seen with pyarrow 26.
    """
    text = text_of(expression)
    if text is None:
        return False
    memberships = 0
    for field in schema:
        memberships += text.count(f"{_MEMBERSHIP}{field.name}, {{value_set={field.type}:")
    return _CAST not in text and text.count(_MEMBERSHIP) == memberships


def _guarantees(
    columns: Mapping[str, BoundArrays], number: int, row_count: int | None
) -> Iterator[pc.Expression | None]:
    """Yield expressions for a file. Each row is true for at least one of them. None is true for all rows.

    Arrow excludes nothing by an expression that allows null, so a column that may be null has two expressions.
    """
    alternatives, nullable = [], 0
    for name, column in columns.items():
        nulls = column.nulls[number].as_py()
        if nulls is not None and nulls == row_count:
            alternatives.append([pc.field(name).is_null()])
            continue
        present = _range_of(pc.field(name), column.low[number], column.high[number])
        if nulls == 0:
            alternatives.append([present])
        elif nullable < _NULLABLE_MAX:
            nullable += 1
            alternatives.append([present, pc.field(name).is_null()])
    for choice in itertools.product(*alternatives):
        yield _all_of(choice)


def _range_of(column: pc.Expression, low: pa.Scalar, high: pa.Scalar) -> pc.Expression:
    """Return the expression that is true for all values of a column that are not null."""
    expression = column.is_valid()
    if low.is_valid:
        expression = column >= low
    if high.is_valid:
        above = column <= high
        expression = expression & above if low.is_valid else above
    return expression


def _all_of(expressions: Sequence[pc.Expression]) -> pc.Expression | None:
    joined = None
    for expression in expressions:
        joined = expression if joined is None else joined & expression
    return joined
