"""Which buckets an operation is for: values of the partition columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.arrays.spark_types import arrow_schema
from ftfile.arrays.value_text import UTC, value_of
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.encoding.partitions.paths import bucket_names, parse_bucket_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot

__all__ = ("select",)


def select(head: LogState, snapshot: Snapshot, where: Mapping[str, object]) -> list[Add]:
    """Return the adds in whose buckets every named column has (one of) the values asked for, as readers see them.

    `where` has, by column, case aside, a value or a list of values. A text is what stands in the name of the directory,
    before escaping; None is null. The snapshot knows how all adds are encoded, the state only how the last ones are.

    Raises:
        ConfigError: a column is no partition column, or a value none of its type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    columns = _known_columns(where, newest["partitionBy"])
    schema = arrow_schema(head.definitions[head.schema]) if head.schema is not None else pa.schema([])
    named = pa.schema([schema.field(column) for column in columns])
    wanted = {newest["timeZone"]: _directories(named, columns, newest["timeZone"])}
    selected, found = [], dict[tuple[str, str], bool]()
    for add in snapshot.adds.values():
        time_zone = snapshot.definitions[add.encoding]["timeZone"]
        if time_zone not in wanted:
            wanted[time_zone] = _directories(named, columns, time_zone)
        place = add.bucket, time_zone
        if place not in found:
            values = parse_bucket_path(add.bucket, named, time_zone)
            found[place] = all(
                bucket_names(column, pa.array([values[column]], values[column].type), time_zone)[0] in directories
                for column, directories in wanted[time_zone].items()
            )
        if found[place]:
            selected.append(add)
    return selected


def _known_columns(where: Mapping[str, object], known: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values asked for, by the columns' own spelling."""
    spelling = {column.lower(): column for column in known}
    unknown = [column for column in where if column.lower() not in spelling]
    if unknown:
        columns = f"which are {', '.join(spelling.values())}" if spelling else "of which this directory has none"
        raise ConfigError(f"where: {', '.join(map(repr, unknown))} is none of the partition columns, {columns}")
    return {spelling[column.lower()]: _as_list(values) for column, values in where.items()}


def _as_list(values: object) -> list[Any]:
    return list(values) if isinstance(values, list | tuple | set | frozenset) else [values]


def _directories(schema: pa.Schema, columns: Mapping[str, list[Any]], time_zone: str) -> dict[str, frozenset[str]]:
    """Return, for each column, the names of the directories that hold its values."""
    found = {}
    for column, values in columns.items():
        kind = schema.field(column).type
        try:
            typed = pa.array([_typed(value, kind, time_zone) for value in values], kind)
            found[column] = frozenset(bucket_names(column, typed, time_zone))
        except (ValueError, TypeError, OverflowError, pa.ArrowException, EncodingError) as error:
            raise ConfigError(f"where: {column}={values!r} is no value of the column's type {kind}: {error}") from error
    return found


def _typed(value: object, kind: pa.DataType, time_zone: str) -> pa.Scalar:
    if isinstance(value, str):
        return value_of(value, kind, time_zone)
    typed = pa.scalar(value, kind)
    if typed.as_py() != value and not pa.types.is_floating(kind):
        raise ValueError(f"it would be taken for {typed.as_py()!r}")  # Arrow makes 7 of 7.5
    return typed
