"""Conditions of `ftfile.spark.load`: for Spark, and which files may have rows that one is true for."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.arrays.moments import settled
from ftfile.arrays.spark_types import arrow_schema
from ftfile.arrays.time_text import is_zone
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.encoding.partitions.paths import columns_in_path
from ftfile.source.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot

_DATES_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"

# What Spark takes otherwise: escapes in a text, names of columns in quotes, doubled quotes, numbers with a fraction,
# and `${name}`, which it replaces wherever it is.
_OTHERWISE = re.compile(r"[\\\"$]|''|[0-9][.eE]|\.[0-9]")
# In a schema: texts that are equal though they differ.
_ALIKE = re.compile(r'collat|char_varchar|"(?:var)?char\(', re.IGNORECASE)


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


def possible_adds(snapshot: Snapshot, where: str | Mapping[str, object] | None, *, as_texts: bool = False) -> list[Add]:
    """Return the adds whose partitions allow rows for which a condition is true: all where Spark may mean another one.

    If there are none, return an add nevertheless: without a file, Spark's DataFrame would lack columns that it has. No
    time by a clock is left in the condition. With `as_texts`, Spark may compare numbers, dates and booleans with a text
    as texts.
    """
    adds = list(snapshot.adds.values())
    if where is None or snapshot.schema is None or not _is_plain(where):
        return adds
    schema = arrow_schema(snapshot.definitions[snapshot.schema])
    encodings = {add.encoding: snapshot.definitions[add.encoding] for add in adds}
    in_path = {name for encoding in encodings.values() for name in columns_in_path(encoding)}
    kinds = [schema.field(name).type for name in in_path if name in schema.names]
    if not in_path or not all(map(_is_alike, kinds)) or _ALIKE.search(snapshot.definitions[snapshot.schema]):
        return adds
    if as_texts and isinstance(where, str) and "'" in where and not all(map(pa.types.is_string, kinds)):
        return adds
    try:
        return [chosen.add for chosen in Selection(snapshot, schema, (), where, "UTC").adds()] or adds[:1]
    except ConfigError:  # Spark may understand it, or tells what is wrong
        return adds


def _is_plain(where: object) -> bool:
    if isinstance(where, str):
        return not _OTHERWISE.search(where)
    if not isinstance(where, Mapping):
        return False
    values = [each for value in where.values() for each in (value if isinstance(value, list | tuple) else [value])]
    return all(value is None or type(value) in (int, str, bool, datetime.date) for value in values)


def _is_alike(kind: pa.DataType) -> bool:
    """Return True for types whose values are compared with literals as Spark compares them, by no time zone."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_boolean)
    return any(is_kind(kind) for is_kind in kinds)
