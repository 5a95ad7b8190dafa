"""Conversion of the filters that Spark passes to a reader into a condition on rows."""

from __future__ import annotations

import contextlib
import decimal
import functools
import json
import operator
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.rows.spark_types import arrow_schema
from ftfile.rows.statistics.bounds import end_of_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import datasource


_log = get_logger(__name__)


def _starts_with(column: pc.Expression, prefix: str) -> pc.Expression:
    """Return a condition that Arrow, unlike `starts_with`, can compare with the bounds of a row group."""
    end = end_of_prefix(prefix)
    condition = column >= pa.scalar(prefix)
    if end is not None:
        condition &= column < pa.scalar(end)
    return condition


# By the name of Spark's class, since Spark 4.0 does not have these classes.
_SIGNS: dict[str, Callable[[pc.Expression, pa.Scalar], pc.Expression]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
_TEXTS: dict[str, Callable[[pc.Expression, str], pc.Expression]] = {
    "StringStartsWith": _starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}
# Strings with a collation, and strings that Spark pads.
_LOOSE_TEXTS = re.compile(r'collat|"char\(', re.IGNORECASE)
_FILTERS_MAX = 500  # Arrow evaluates joined conditions recursively; Spark applies the remaining filters


def check_pushdown_enabled() -> None:
    """Log how Spark uses the filters that it passes to a reader.

    Raises:
        ConfigError: this version of Spark does not pass filters.
    """
    if not hasattr(DataSourceReader, "pushFilters"):
        raise ConfigError(
            "filterPushdown=true: Spark gives filters to Python sources from 4.1 on, with "
            "spark.sql.python.filterPushdown.enabled=true. Leave the option out: Spark then filters the rows"
        )
    _log.warning(
        "filterPushdown=true: call load() for each query, and for each side of a join or a union. Spark caches the "
        "filtered rows of a query, and another query of the same DataFrame or view may find only these rows"
    )


def columns_alike(recorded: pa.Schema, recorded_json: str, requested_json: str) -> pa.Schema:
    """Return the recorded columns that Spark reads with the same type, and compares like ftfile."""
    requested = {field.name.lower(): field.type for field in arrow_schema(requested_json)}
    loose = _loose_text_columns(recorded_json) | _loose_text_columns(requested_json)
    fields = []
    for field in recorded:
        name = field.name.lower()
        if name not in loose and requested.get(name) == field.type:
            fields.append(field)
    return pa.schema(fields)


def _loose_text_columns(schema_json: str) -> set[str]:
    """Return the columns of a Spark `StructType.json()` with types that compare different texts as equal."""
    columns = set[str]()
    for field in json.loads(schema_json)["fields"]:
        if _LOOSE_TEXTS.search(json.dumps([field["type"], field.get("metadata")])):
            columns.add(field["name"].lower())
    return columns


def condition_of(filters: Iterable[datasource.Filter], schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that is true for every row that meets all filters; None if no filter is supported.

    Supported are filters on one column of `schema`, except for floating-point numbers, times and nested columns.
    """
    fields = {}
    for field in schema:
        if _is_compared(field.type):
            fields[field.name.lower()] = field
    conditions = []
    for pushed in filters:
        condition = _expression(pushed, fields)
        if condition is not None:
            conditions.append(condition)
    if conditions:
        return functools.reduce(operator.and_, conditions[:_FILTERS_MAX])
    return None


def _is_compared(kind: pa.DataType) -> bool:
    # Spark orders NaN differently from Arrow, and an instant may depend on the session's time zone.
    return not (pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_nested(kind))


def _expression(pushed: datasource.Filter, fields: Mapping[str, pa.Field]) -> pc.Expression | None:
    if type(pushed).__name__ == "Not":
        inner = _expression(getattr(pushed, "child"), fields)  # noqa: B009 - 4.0 has no such class
        if inner is None:
            return None
        return ~inner
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    field = None
    if len(attribute) == 1:
        field = fields.get(attribute[0].lower())
    if field is not None:
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
            return _compared(type(pushed).__name__, field, getattr(pushed, "value", None))
    return None


def _compared(name: str, field: pa.Field, value: Any) -> pc.Expression | None:  # noqa: ANN401 - as many types as columns
    column = pc.field(field.name)
    if name in {"IsNull", "IsNotNull"}:
        return column.is_null() if name == "IsNull" else column.is_valid()
    if name == "In":
        items = [exact_scalar(item, field.type) for item in value if item is not None]
        return column.isin(pa.array(items, field.type))
    if name in _TEXTS:
        return _TEXTS[name](column, value) if pa.types.is_string(field.type) else None
    if name == "EqualNullSafe":
        return column.is_null() if value is None else (column == exact_scalar(value, field.type)) & column.is_valid()
    return _SIGNS[name](column, exact_scalar(value, field.type)) if name in _SIGNS and value is not None else None


def exact_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:  # noqa: ANN401 - as many types as columns
    """Return a value of Spark in the type of a column; ValueError, TypeError or an error of Arrow for other values."""
    if isinstance(value, decimal.Decimal) and len(value.as_tuple().digits) >= decimal.getcontext().prec:
        raise ValueError(f"PySpark may have rounded {value}, which it multiplies")
    typed = pa.scalar(value, kind)
    if typed.as_py() != value:
        raise ValueError(f"Arrow makes {typed} of {value!r}")
    return typed
