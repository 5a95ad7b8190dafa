"""Comparison of the filters that Spark passes to a reader with the statistics of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.rows.bounds.masks import FileBounds
from ftfile.rows.predicate import TRUE, Column, all_of, bind, columns_of
from ftfile.rows.statistics.columns import leaves
from ftfile.spark.filters import exact_literal, fold_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.bounds import BoundsColumn
    from ftfile.rows.bounds.masks import Mask
    from ftfile.rows.predicate import Tree
    from ftfile.rows.statistics.columns import Path


class PushedFilters:
    """Filters that all rows of a read meet.

    Filters on columns and on fields of structs exclude files. A filter of another kind, or with a value that is not
    exactly a value of the column's type, excludes no file.
    """

    def __init__(self, filters: Iterable[Tree], schema: pa.Schema) -> None:
        """Compare filters on rows with this schema. As in Spark, the case of names is ignored."""
        tree = all_of([TRUE, *filters])
        names = {*columns_of(tree)}
        columns: dict[Path, Column] = {}  # by their names in lower case
        self._paths: dict[Path, pa.Field] = {}
        for path, field in leaves(schema):
            if fold_case(path) in names:
                columns[fold_case(path)] = Column(path, field.type)
                self._paths[path] = field
        self._condition = bind(tree, columns.get, exact_literal)

    def leaves(self) -> Mapping[Path, pa.Field]:
        """Return the columns, and fields of structs, that the filters compare, by path."""
        return self._paths

    def mark_possible(self, bounds: Mapping[str, BoundsColumn], rows: Sequence[int | None]) -> Mask:
        """Return a mask: False for each file that contains no row that meets all filters."""
        return FileBounds(bounds, rows).mark_possible(self._condition)
