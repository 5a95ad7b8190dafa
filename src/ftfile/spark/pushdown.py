"""Filters that Spark gives to a reader, and the directories of partition columns in which no row meets them."""

from __future__ import annotations

import contextlib
import functools
import operator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.encoding.api import RowFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import datasource

_log = get_logger(__name__)

# By the name of Spark's class: 4.0 has none of them.
_COMPARISONS: dict[str, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_SIGNS: dict[str, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
_TEXTS: dict[str, Callable[..., pa.BooleanArray]] = {
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}


def require_pushdown() -> None:
    """Warn of what Spark does with filters that it gives to a reader; a ConfigError where it gives none."""
    if not hasattr(DataSourceReader, "pushFilters"):
        raise ConfigError(
            "filterPushdown=true: Spark gives filters to Python sources from 4.1 on, with "
            "spark.sql.python.filterPushdown.enabled=true. Leave the option out: Spark filters what is read"
        )
    _log.warning(
        "filterPushdown=true: call load() for each query. Spark keeps what the filters of the first one left, and a "
        "later query of the same DataFrame or view without such filters finds these rows only"
    )


def rows_that_may_match(
    filters: Iterable[datasource.Filter], columns: Mapping[str, pa.Array], rows: int
) -> pa.BooleanArray:
    """Return a flag for each row: False only where a filter is not true.

    Args:
        filters: all of which a row must meet; those on other columns count for nothing.
        columns: by name in lower case.
        rows: their length.
    """
    found = pa.repeat(pa.scalar(True), rows)  # noqa: FBT003 - a value
    for each in filters:
        flags = _flags(each, columns)
        if flags is not None:
            found = pc.and_(found, pc.fill_null(flags, False))  # noqa: FBT003 - a value
    return found


def filter_of_rows(filters: Iterable[datasource.Filter], schema: pa.Schema) -> RowFilter | None:
    """Return a filter that keeps every row for which all filters are true; None if nothing is known of any.

    Known are comparisons of columns of `schema` with values, not of floating-point numbers, times and nested columns.
    """
    fields = {field.name.lower(): field for field in schema if _is_compared(field.type)}
    found = [(field, each) for field, each in _expressions(filters, fields) if each is not None]
    if not found:
        return None
    columns = list({field.name: field for field, _ in found}.values())
    return RowFilter(functools.reduce(operator.and_, (each for _, each in found)), pa.schema(columns))


def _expressions(
    filters: Iterable[datasource.Filter], fields: Mapping[str, pa.Field]
) -> Iterator[tuple[pa.Field, pc.Expression | None]]:
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        field = fields.get(attribute[0].lower()) if len(attribute) == 1 else None
        if field is None:
            continue
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            yield field, _expression(type(each).__name__, field, getattr(each, "value", None))


def _expression(name: str, field: pa.Field, value: Any) -> pc.Expression | None:  # noqa: ANN401 - as many types as columns
    column = pc.field(field.name)
    if name in {"IsNull", "IsNotNull"}:
        return column.is_null() if name == "IsNull" else column.is_valid()
    if name == "In":
        return column.isin(pa.array([_typed(each, field.type) for each in value if each is not None], field.type))
    return _SIGNS[name](column, _typed(value, field.type)) if name in _SIGNS and value is not None else None


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:  # noqa: ANN401 - as many types as columns
    typed = pa.scalar(value, kind)
    if typed.as_py() != value:
        raise ValueError(f"Arrow makes {typed} of {value!r}")
    return typed


def _is_compared(kind: pa.DataType) -> bool:
    # Spark orders NaN as Arrow does not, and an instant may come by the clocks of the session.
    return not (pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_nested(kind))


def _flags(each: datasource.Filter, columns: Mapping[str, pa.Array]) -> pa.BooleanArray | None:
    """Return True, False or null for each row, as SQL does, but True for some nulls; None for what is not known."""
    if type(each).__name__ == "Not":
        inner = _flags(getattr(each, "child"), columns)  # noqa: B009 - 4.0 has no such class
        return None if inner is None else pc.invert(inner)
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    column = columns.get(attribute[0].lower()) if len(attribute) == 1 else None
    if column is None or not _is_compared(column.type):
        return None
    try:
        return _compared(type(each).__name__, column, getattr(each, "value", None))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _compared(name: str, column: pa.Array, value: Any) -> pa.BooleanArray | None:  # noqa: ANN401 - as many types as columns
    if name in {"IsNull", "IsNotNull"}:
        return column.is_null() if name == "IsNull" else column.is_valid()
    if name == "In":
        return pc.is_in(column, pa.array([each for each in value if each is not None], column.type))
    if name in _TEXTS:
        return _TEXTS[name](column, value)
    typed = pa.scalar(value, column.type)
    if name == "EqualNullSafe":
        return pc.fill_null(pc.equal(column, typed), False) if typed.is_valid else column.is_null()  # noqa: FBT003
    return _COMPARISONS[name](column, typed) if name in _COMPARISONS else None
