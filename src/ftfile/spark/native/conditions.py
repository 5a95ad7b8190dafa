"""Conditions of `ftfile.spark.load`, for Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.arrays.moments import settled
from ftfile.arrays.time_zones import is_zone
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DATES_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"


def compares_as_texts(spark: SparkSession) -> bool:
    """Return True if a session may cast a column to text where it is compared with one: `month NOT IN ('02')`."""
    is_ansi, dates_as_texts = spark.conf.get("spark.sql.ansi.enabled"), spark.conf.get(_DATES_AS_TEXTS, "false")
    return (str(is_ansi).lower(), str(dates_as_texts).lower()) != ("true", "false")


def at_once(spark: SparkSession, where: str | Mapping[str, object] | None) -> str | Mapping[str, object] | None:
    """Return a condition with times by a clock as literals, of now and of the session's zone, if ftfile reads it."""
    zone = spark.conf.get("spark.sql.session.timeZone") if isinstance(where, str) else None
    if zone is None or not is_zone(zone):
        return where
    try:
        return settled(where, SYSTEM.clock.now_ms(), zone)
    except ConfigError:  # Spark has more words
        return where


def filtered(frame: DataFrame, where: str | Mapping[str, object] | None) -> DataFrame:
    """Return the rows for which a condition is true."""
    if where is None:
        return frame
    if isinstance(where, str):
        return frame.where(where)
    if not _is_by_column(where):
        raise ConfigError(
            f"where={where!r}: it takes a condition as text, such as \"month >= 7 and city = 'a'\", or a mapping from "
            "columns to values, such as {'month': [7, 8]}"
        )
    for name, values in where.items():
        frame = frame.where(_condition(name, values))
    return frame


def _is_by_column(where: object) -> bool:
    return isinstance(where, Mapping) and all(isinstance(name, str) for name in where)


def _condition(name: str, values: object) -> Column:
    column = F.col(quoted(name))
    if isinstance(values, range) and values.step == 1:
        return (column >= values.start) & (column < values.stop)
    several = list(values) if isinstance(values, list | tuple | set | frozenset | range) else [values]
    given = [value for value in several if value is not None]
    found = column.isin(given)
    return found if len(given) == len(several) else found | column.isNull()


def quoted(name: str) -> str:
    """Return a column's name as an expression."""
    return f"`{name.replace('`', '``')}`"
