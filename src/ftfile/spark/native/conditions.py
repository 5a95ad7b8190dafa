"""The condition of a call of `ftfile.spark.load`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import columns_in_path
from ftfile.log.read.snapshot import live_columns
from ftfile.read.selection import Selection
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import quoted_name, recorded_schema
from ftfile.rows.zone_clocks import is_zone

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame, SparkSession

    from ftfile.log.read.snapshot import Snapshot
    from ftfile.read.selection import FilePlace
    from ftfile.storage.api import FileSystem


_DATES_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"

# Syntax that Spark reads differently from ftfile: escapes in a text, quoted column names, doubled quotes, numbers with
# a fraction, and `${name}`, which Spark substitutes everywhere.
_READ_DIFFERENTLY = re.compile(r"[\\\"$]|''|[0-9][.eE]|\.[0-9]")
# Types in a schema that compare different texts as equal.
_LOOSE_TEXTS = re.compile(r'collat|char_varchar|"(?:var)?char\(', re.IGNORECASE)


def compares_as_texts(spark: SparkSession) -> bool:
    """Return True if a session may cast a column to text to compare it with a text, as in `month NOT IN ('02')`."""
    is_ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower()
    dates_as_texts = str(spark.conf.get(_DATES_AS_TEXTS, "false")).lower()
    return is_ansi != "true" or dates_as_texts != "false"


def at_once(spark: SparkSession, where: str | Mapping[str, object] | None) -> str | Mapping[str, object] | None:
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


def possible_places(
    snapshot: Snapshot, where: str | Mapping[str, object] | None, *, as_texts: bool = False
) -> Collection[FilePlace] | None:
    """Return the places of adds whose partitions may contain rows for which a condition is true; None for all adds.

    If Spark may read the condition differently, None is returned. If no add matches, the first place is returned,
    because Spark's DataFrame would lack columns without a file. The condition must not contain the current time. With
    `as_texts`, Spark may cast numbers, dates and booleans to text to compare them with a text.
    """
    if where is None or snapshot.schema is None or not _is_plain(where):
        return None
    schema = recorded_schema(snapshot.definitions[snapshot.schema])
    places: dict[FilePlace, None] = {}
    for directory_keys, encodings in live_columns(snapshot, ("directory", "encoding")):
        places.update(dict.fromkeys(zip(directory_keys, encodings, strict=True)))
    definitions = [snapshot.definitions[encoding] for encoding in {encoding for _, encoding in places}]
    in_path = set(chain.from_iterable(map(columns_in_path, definitions)))
    kinds = [field.type for field in schema if field.name in in_path]
    is_alike = all(_is_compared_alike(kind) for kind in kinds)
    if not in_path or not is_alike or _LOOSE_TEXTS.search(snapshot.definitions[snapshot.schema]):
        return None
    has_text = isinstance(where, str) and "'" in where
    has_only_texts = all(pa.types.is_string(kind) for kind in kinds)
    if as_texts and has_text and not has_only_texts:
        return None
    try:
        selection = Selection(snapshot, schema, columns=(), where=where, time_zone="UTC")
        return {*selection.possible_places()} or {*islice(places, 1)}
    except ConfigError:  # Spark may accept the condition, or reports the error
        return None


def possible_files(
    snapshot: Snapshot,
    where: str | Mapping[str, object] | None,
    fs: FileSystem,
    *,
    time_zone: str,
    as_texts: bool = False,
) -> Snapshot:
    """Return a snapshot without the adds whose statistics exclude rows for which a condition is true.

    If Spark may read the condition differently, no add is left out. At least one add remains, as in `possible_places`.
    `time_zone` is the zone of the session, or an empty text.
    """
    if where is None or snapshot.schema is None or not _is_plain(where):
        return snapshot
    schema = recorded_schema(snapshot.definitions[snapshot.schema])
    has_zone = is_zone(time_zone)
    try:
        selection = Selection(
            snapshot, schema, columns=(), where=where, time_zone=time_zone if has_zone else "UTC", fs=fs
        )
    except ConfigError:  # Spark may accept the condition, or reports the error
        return snapshot
    kinds = [field.type for field in selection.filtered]
    is_alike = all(_is_compared_alike(kind) or (has_zone and _is_instant(kind)) for kind in kinds)
    if not is_alike or _LOOSE_TEXTS.search(snapshot.definitions[snapshot.schema]):
        return snapshot
    has_text = isinstance(where, str) and "'" in where
    if as_texts and has_text and not all(pa.types.is_string(kind) for kind in kinds):
        return snapshot
    possible = selection.possible_files()
    if possible.adds or not snapshot.adds:
        return possible
    first_id = next(iter(snapshot.adds))
    return replace(snapshot, adds={first_id: snapshot.adds[first_id]})


def _is_plain(where: object) -> bool:
    """Return True for a condition that ftfile and Spark read in the same way."""
    if isinstance(where, str):
        return not _READ_DIFFERENTLY.search(where)
    if not isinstance(where, Mapping):
        return False
    values: list[object] = []
    for value in where.values():
        if isinstance(value, list | tuple):
            values += value
        else:
            values.append(value)
    return {type(value) for value in values} <= {type(None), int, str, bool, datetime.date}


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_compared_alike(kind: pa.DataType) -> bool:
    """Return True for types that ftfile and Spark compare with literals in the same way, in any time zone."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    return bool(pa.types.is_string(kind) or pa.types.is_date32(kind))
