"""Filters that Spark gives to a reader, and the directories of partition columns in which no row meets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import datasource

__all__ = ("require_pushdown", "rows_that_may_match")

_log = get_logger(__name__)

# By the name of Spark's class: 4.0 has none of them.
_COMPARISONS: dict[str, Callable[[pa.Array, pa.Scalar], pa.BooleanArray]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
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


def _flags(each: datasource.Filter, columns: Mapping[str, pa.Array]) -> pa.BooleanArray | None:
    """Return True, False or null for each row, as SQL does, but True for some nulls; None for what is not known."""
    if type(each).__name__ == "Not":
        inner = _flags(getattr(each, "child"), columns)  # noqa: B009 - 4.0 has no such class
        return None if inner is None else pc.invert(inner)
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    column = columns.get(attribute[0].lower()) if len(attribute) == 1 else None
    # Spark orders NaN as Arrow does not, and an instant may come by the clocks of the session.
    if column is None or pa.types.is_floating(column.type) or pa.types.is_timestamp(column.type):
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
