"""The files of a snapshot that may contain rows that meet filters of Spark.

In a filter, Spark compares an unchanged column with a value of the column's type. For a comparison that casts the
column, Spark makes no filter. So no other comparison excludes a file, however a condition was given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.formats.api import RowFilter
from ftfile.read.file_answers import StatisticsReader
from ftfile.read.selection import Selection
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.value_text import UTC

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ftfile.log.read.snapshot import Snapshot
    from ftfile.read.selection import FilePlace
    from ftfile.rows.predicate import Tree
    from ftfile.storage.api import FileSystem


class Chosen(NamedTuple):
    """What a read with filters reads."""

    snapshot: Snapshot  # with the adds that may contain a row that meets the filters
    places: Collection[FilePlace] | None = None  # of those adds that are read; None for all
    row_filter: RowFilter | None = None  # None for all rows


def choose(snapshot: Snapshot, filters: Sequence[Tree], requested_json: str, fs: FileSystem | None) -> Chosen:
    """Return what may contain a row of a snapshot that meets all filters. No file is opened.

    Args:
        snapshot: the adds to choose from.
        filters: on the rows, with paths of names in lower case.
        requested_json: the columns that Spark reads, as the JSON of their schema.
        fs: the directory of the log, from which statistics are read; without it, only partitions exclude files.
    """
    from ftfile.spark.pushdown import condition_of, match_columns  # noqa: PLC0415 - imports the kernels of Arrow
    from ftfile.spark.pushed_bounds import PushedFilters  # noqa: PLC0415

    if snapshot.schema is None or not filters:
        return Chosen(snapshot)
    recorded_json = snapshot.definitions[snapshot.schema]
    columns = match_columns(recorded_schema(recorded_json), recorded_json, requested_json)
    if fs is not None:
        pushed = PushedFilters(filters, columns)
        statistics = StatisticsReader(snapshot, pushed, recorded=columns, filtered=pa.schema([]), time_zone=UTC)
        table, _ = statistics.narrow(fs)
        snapshot = replace(snapshot, adds=table)
    where = condition_of(filters, columns)
    if where is None:
        return Chosen(snapshot)
    selection = Selection(snapshot, columns, columns=(), where=where, time_zone=UTC)
    return Chosen(snapshot, frozenset(selection.possible_places()), RowFilter(where, selection.filtered))
