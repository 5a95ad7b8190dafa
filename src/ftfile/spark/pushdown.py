"""Conversion of the filters that Spark passes to a reader into a condition on rows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader

from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.rows.expressions import expression_of
from ftfile.rows.predicate import UNKNOWN, Column, all_of, bind, leaves_of
from ftfile.rows.spark_types import arrow_schema
from ftfile.spark.filters import exact_literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.rows.predicate import Tree


_log = get_logger(__name__)

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


def match_columns(recorded: pa.Schema, recorded_json: str, requested_json: str) -> pa.Schema:
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


def condition_of(filters: Iterable[Tree], schema: pa.Schema) -> pc.Expression | None:
    """Return a condition that is true for every row that meets all filters; None if no filter is supported.

    Supported are filters on columns of `schema`, except for floating-point numbers, times and nested columns.
    """
    columns = {}
    for field in schema:
        if _is_compared(field.type):
            columns[field.name.lower(),] = Column((field.name,), field.type)
    conditions = []
    for pushed in filters:
        condition = bind(pushed, columns.get, exact_literal)
        if UNKNOWN not in leaves_of(condition):
            conditions.append(condition)
    if conditions:
        return expression_of(all_of(conditions[:_FILTERS_MAX]))
    return None


def _is_compared(kind: pa.DataType) -> bool:
    # Spark orders NaN differently from Arrow, and an instant may depend on the session's time zone.
    return not (pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_nested(kind))
