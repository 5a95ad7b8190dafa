"""The filters that Spark passes to a reader, as conditions (`rows.predicate`)."""

from __future__ import annotations

import decimal
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.rows.predicate import OPPOSITES, UNKNOWN, Column, Compare, In, Match, Null, Tree, any_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import datasource

    from ftfile.rows.statistics.columns import Path

# By the name of Spark's class, since Spark 4.0 does not have these classes.
_SIGNS = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_PLACES = {"StringStartsWith": "start", "StringEndsWith": "end", "StringContains": "anywhere"}


def tree_of(pushed: datasource.Filter) -> Tree:
    """Return a filter as a condition on paths of names in lower case. A filter of an unknown class is unknown."""
    negated = False
    while type(pushed).__name__ == "Not":
        pushed = getattr(pushed, "child")  # noqa: B009 - Spark 4.0 has no such class
        negated = not negated
    value = getattr(pushed, "value", None)
    return comparison(type(pushed).__name__, getattr(pushed, "attribute", ()), value, negated=negated)


def comparison(kind: str, attribute: Iterable[str], value: Any, *, negated: bool = False) -> Tree:  # noqa: ANN401 - as many types as columns
    """Return the filter of this class as a condition, or its opposite.

    Args:
        kind: the name of Spark's class.
        attribute: the names of a column, or of a field of a struct.
        value: the value, or the tuple of values; None is null.
        negated: return the condition that is true if the filter is false.
    """
    path = fold_case(attribute)
    if kind in ("IsNull", "IsNotNull"):
        return Null(path, is_null=(kind == "IsNull") != negated)
    if kind == "EqualNullSafe":
        return _null_safe(path, value, negated=negated)
    if kind == "In":
        values = tuple(item for item in value if item is not None)
        # A null is not in an empty list, depending on a setting of Spark.
        return In(path, values, is_in=not negated) if values or not negated else UNKNOWN
    if kind in _PLACES:
        return Match(path, _PLACES[kind], value, matches=not negated)
    if kind not in _SIGNS or value is None:
        return UNKNOWN
    return Compare(path, OPPOSITES[_SIGNS[kind]] if negated else _SIGNS[kind], value)


def _null_safe(path: Path, value: object, *, negated: bool) -> Tree:
    if value is None:
        return Null(path, is_null=not negated)
    if negated:
        return any_of([Compare(path, "!=", value), Null(path, is_null=True)])
    return Compare(path, "=", value)


def fold_case(path: Iterable[str]) -> Path:
    """Return the names of a path in lower case."""
    return tuple(name.lower() for name in path)


def exact_literal(column: Column, value: Any) -> pa.Scalar | None:  # noqa: ANN401 - as many types as columns
    """Return a value of Spark in the type of a column; None if it is not exactly a value of this type."""
    if isinstance(value, decimal.Decimal) and len(value.as_tuple().digits) >= decimal.getcontext().prec:
        return None  # PySpark multiplies the value, and may have rounded it
    try:
        literal = pa.scalar(value, column.type)
        is_nan = isinstance(value, float) and math.isnan(value) and pa.types.is_floating(column.type)
        is_exact = is_nan or literal.as_py() == value
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return literal if is_exact else None
