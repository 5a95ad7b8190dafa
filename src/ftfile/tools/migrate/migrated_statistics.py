"""Statistics of the rows of files that other programs wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.rows.statistics.collector import Collector
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Collection


def collector_of(format_name: str, file: BinaryIO, schema: pa.Schema) -> Collector:
    """Return a collector for the rows that a read of a file returns, with these columns.

    Times in INT96 are cut to microseconds. Readers of an export may not cut them, so they could be outside of bounds.
    """
    inexact: set[str] = set()
    if format_name == "parquet":
        inexact = _paths_in_int96(file)
    keys: list[str] = []
    for path, _ in leaves(schema):
        if ".".join(path) not in inexact:
            keys.append(key_of(path))
    return Collector(schema, keys)


def _paths_in_int96(file: BinaryIO) -> set[str]:
    paths: set[str] = set()
    described = pq.read_metadata(file).schema
    for number in range(len(described)):
        column = described.column(number)
        if column.physical_type == "INT96":
            paths.add(column.path)
    return paths


def comparable_columns(file_schema: pa.Schema, table_schema: pa.Schema, columns: Collection[str]) -> set[str]:
    """Return the keys of columns with the same type in a file and in the table, or with whole numbers in both."""
    types: dict[str, pa.DataType] = {}
    for path, field in leaves(table_schema):
        types[key_of(path)] = field.type
    keys: set[str] = set()
    for path, field in leaves(file_schema):
        key = key_of(path)
        kind = types.get(key)
        if (
            key in columns
            and kind is not None
            and (field.type.equals(kind) or (_is_whole(field.type) and _is_whole(kind)))
        ):
            keys.add(key)
    return keys


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind))
