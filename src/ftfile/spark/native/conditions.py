"""The condition of a call of `ftfile.spark.load`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import quoted_name
from ftfile.rows.zone_clocks import is_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def check_at_once(spark: SparkSession, where: str | Mapping[str, object] | None) -> str | Mapping[str, object] | None:
    """Return a condition with literals instead of the current time; unchanged if ftfile cannot parse it.

    The literals are in the time zone of the session.
    """
    zone = None
    if isinstance(where, str):
        zone = spark.conf.get("spark.sql.session.timeZone")
    if zone is None or not is_zone(zone):
        return where
    try:
        return with_clock_values(where, SYSTEM.clock.now_ms(), zone)
    except ConfigError:  # Spark's conditions have more syntax
        return where


def filter_frame(frame: DataFrame, where: str | Mapping[str, object] | None) -> DataFrame:
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
    column = F.col(quoted_name(name))
    if isinstance(values, range) and values.step == 1:
        return (column >= values.start) & (column < values.stop)
    if isinstance(values, list | tuple | set | frozenset | range):
        several = list(values)
    else:
        several = [values]
    values_present = [value for value in several if value is not None]
    condition = column.isin(values_present)
    if len(values_present) == len(several):
        return condition
    return condition | column.isNull()
