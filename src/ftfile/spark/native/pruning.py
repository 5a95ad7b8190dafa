"""Which files of a version may have rows that a condition of Spark's is true for; needs no Spark."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.core.errors import ConfigError
from ftfile.encoding.partitions.paths import columns_in_path
from ftfile.source.selection import Selection

if TYPE_CHECKING:
    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot

# What Spark takes otherwise: escapes in a text, names of columns in quotes, doubled quotes, numbers with a fraction,
# and `${name}`, which it replaces wherever it is.
_OTHERWISE = re.compile(r"[\\\"$]|''|[0-9][.eE]|\.[0-9]")
# In a schema: texts that are equal though they differ.
_ALIKE = re.compile(r'collat|char_varchar|"(?:var)?char\(', re.IGNORECASE)


def possible_adds(snapshot: Snapshot, where: str | Mapping[str, object] | None, *, as_texts: bool = False) -> list[Add]:
    """Return the adds whose partitions allow rows for which a condition is true: all where Spark may mean another one.

    If there are none, return an add nevertheless: without a file, Spark's DataFrame would lack columns that it has.

    Args:
        snapshot: with all adds.
        where: as `ftfile.spark.load` takes it, with no time by a clock left in it.
        as_texts: Spark may compare numbers, dates and booleans with a text as texts.
    """
    adds = list(snapshot.adds.values())
    if where is None or snapshot.schema is None or not _is_plain(where):
        return adds
    schema = arrow_schema(snapshot.definitions[snapshot.schema])
    in_path = {name for add in {add.encoding: add for add in adds}.values() for name in _in_path(snapshot, add)}
    kinds = [schema.field(name).type for name in in_path if name in schema.names]
    if not in_path or not all(map(_is_alike, kinds)) or _ALIKE.search(snapshot.definitions[snapshot.schema]):
        return adds
    if as_texts and isinstance(where, str) and "'" in where and not all(map(pa.types.is_string, kinds)):
        return adds
    try:
        return [chosen.add for chosen in Selection(snapshot, schema, (), where, "UTC").adds()] or adds[:1]
    except ConfigError:  # Spark may understand it, or tells what is wrong
        return adds


def _in_path(snapshot: Snapshot, add: Add) -> frozenset[str]:
    return frozenset(columns_in_path(snapshot.definitions[add.encoding]))


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
