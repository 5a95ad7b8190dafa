"""The statistics of files with given rows, as the log contains them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.bounds import BoundsColumn
from ftfile.rows.bounds.masks import FileBounds
from ftfile.rows.comparisons import Columns
from ftfile.rows.conditions import tree_of
from ftfile.rows.statistics.collector import Collector
from ftfile.rows.statistics.columns import key_of, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.rows.bounds.masks import Mask
    from ftfile.rows.predicate import Tree

Entry = list[Any]


def as_lists(statistics: Mapping[str, Iterable[Any]]) -> dict[str, Entry]:
    """Return the statistics of a file with a list for each entry, as decoded JSON."""
    return {name: list(entry) for name, entry in statistics.items()}


def entries_of(rows: pa.Table) -> dict[str, Entry]:
    """Return the entries of a file with these rows, as they are read back from JSON."""
    collector = Collector(rows.schema, [key_of(path) for path, _ in leaves(rows.schema)])
    for batch in rows.to_batches():
        collector.update(batch)
    decoded: dict[str, Entry] = json.loads(json.dumps(collector.entries(), allow_nan=False))
    return decoded


def entry_of(values: Sequence[Any], kind: pa.DataType) -> Entry:
    """Return the entry of a column of this type."""
    return entries_of(pa.table({"x": pa.array(values, kind)}))["x"]


def bounds_columns(files: Sequence[Mapping[str, Entry]]) -> dict[str, BoundsColumn]:
    """Return the entries of all files by column. A missing entry is unknown."""
    columns = {}
    for name in {name for entries in files for name in entries}:
        lists = zip(*(entries.get(name, [None] * 3) for entries in files), strict=True)
        columns[name] = BoundsColumn(*map(list, lists))
    return columns


@dataclass(frozen=True)
class BoundedFiles:
    """The bounds of files with rows of a schema."""

    schema: pa.Schema
    bounds: Mapping[str, BoundsColumn]
    rows: Sequence[int | None]  # of each file
    time_zone: str

    def possible(self, where: str | Mapping[str, Any]) -> Mask:
        """Return True for each file that may contain a row that matches a condition."""
        return FileBounds(self.bounds, self.rows).mark_possible(self._tree(where))

    def certain(self, where: str | Mapping[str, Any]) -> Mask:
        """Return True for each file whose rows all certainly match a condition."""
        return FileBounds(self.bounds, self.rows).mark_certain(self._tree(where))

    def _tree(self, where: str | Mapping[str, Any]) -> Tree:
        columns = Columns(
            schema=self.schema, time_zone=self.time_zone, called="columns", time_zones={}, argument="where"
        )
        return columns.bind(tree_of(where))
