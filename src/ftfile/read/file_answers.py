"""Answers of the statistics of files about a condition on their rows."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from ftfile.core.checksum import Decoding
from ftfile.formats.partition_paths import columns_in_path
from ftfile.log.format import layout
from ftfile.log.read.snapshot import live_columns, live_table
from ftfile.rows import kernels as pc
from ftfile.rows.bounds.guarantees import FILES_MAX, possible_by_expression
from ftfile.rows.bounds.masks import FileBounds
from ftfile.rows.comparisons import Columns
from ftfile.rows.conditions import tree_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.statistics.columns import is_bounded, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.core.bounds import BoundsColumn
    from ftfile.log.format.model import Add
    from ftfile.log.read.add_table import AddTable
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.rows.bounds.masks import Mask
    from ftfile.rows.statistics.columns import Path
    from ftfile.storage.api import FileSystem


class FileAnswers(NamedTuple):
    """Two masks over files, for a condition on their rows."""

    possible: Mask  # False for each file that contains no matching row
    certain: Mask  # True for each file whose rows all match


@runtime_checkable
class FileCondition(Protocol):
    """A condition on rows that is compared with the bounds of files."""

    def leaves(self) -> Mapping[Path, pa.Field]:
        """Return the columns, and fields of structs, that the condition compares, by path."""

    def mark_possible(self, bounds: Mapping[str, BoundsColumn], rows: Sequence[int | None]) -> Mask:
        """Return False for each file that contains no matching row; the bounds are by `key_of`."""


class StatisticsReader:
    """Compares a condition with the statistics of the files of a snapshot. No file is opened."""

    def __init__(
        self, snapshot: Snapshot, where: object, *, recorded: pa.Schema, filtered: pa.Schema, time_zone: str
    ) -> None:
        """Compare a condition on the columns `filtered` of rows whose schema is `recorded`.

        The condition is one of `Selection`, or a `FileCondition`, which names its columns itself. Times without an
        offset are in `time_zone`.
        """
        self._snapshot = snapshot
        self._where = where
        self._recorded = recorded
        self._filtered = filtered
        self._time_zone = time_zone
        self._keys: list[str] = []
        if not isinstance(where, pc.Expression) or len(snapshot.adds) <= FILES_MAX:
            self._keys = _comparable_keys(_leaves_of(where, filtered), live_encodings(snapshot))

    def list_possible(self, fs: FileSystem) -> Iterator[tuple[Add, bool]]:
        """Yield the adds that may contain a matching row, each with True if all of its rows match."""
        table, certain = self.narrow(fs)
        yield from zip(table.adds(), certain, strict=True)

    def narrow(self, fs: FileSystem) -> tuple[AddTable, Iterable[bool]]:
        """Return the adds that may contain a matching row, without decoding them, and for each if all rows match."""
        table = live_table(self._snapshot)
        masks: list[Sequence[bool]] = []
        certain: list[Sequence[bool]] = []
        for bounds, (rows,) in zip(table.bounds(fs, self._keys), table.columns(["rows"]), strict=True):
            answers = self.answers(bounds, rows)
            masks.append(answers.possible.tolist())
            certain.append(answers.certain[answers.possible].tolist())
        return table.narrow(masks), chain.from_iterable(certain)

    def answers(self, bounds: Mapping[str, BoundsColumn], rows: Sequence[int]) -> FileAnswers:
        """Return the answers for files with these bounds and numbers of rows. A column without bounds is unknown."""
        if not bounds:
            return FileAnswers(np.full(len(rows), fill_value=True), np.full(len(rows), fill_value=False))
        if isinstance(self._where, pc.Expression):
            possible = possible_by_expression(self._where, self._filtered, bounds, rows)
            return FileAnswers(possible, np.full(len(rows), fill_value=False))
        if isinstance(self._where, FileCondition):
            return FileAnswers(self._where.mark_possible(bounds, rows), np.full(len(rows), fill_value=False))
        columns = Columns(
            schema=self._recorded, time_zone=self._time_zone, called="columns", time_zones={}, argument="where"
        )
        condition = columns.bind(tree_of(self._where))
        files = FileBounds(bounds, rows)
        return FileAnswers(files.mark_possible(condition), files.mark_certain(condition))


def live_encodings(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    """Return the encodings of the live adds."""
    keys = dict[str, None]()
    for (encodings,) in live_columns(snapshot, ("encoding",)):
        keys.update(dict.fromkeys(encodings))
    with Decoding(layout.LOG, "encodings of files"):
        return [snapshot.definitions[key] for key in keys]


def _leaves_of(where: object, filtered: pa.Schema) -> Mapping[Path, pa.Field]:
    if isinstance(where, FileCondition):
        return where.leaves()
    return {(field.name,): field for field in filtered if is_bounded(field.type)}


def _comparable_keys(columns: Mapping[Path, pa.Field], encodings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the keys of the columns whose bounds are values of the column's type in all files.

    A column that was dropped can exist again with another type. Readers convert the values of older files.
    """
    unequal: set[Path] = set()
    for encoding in encodings:
        with Decoding(layout.LOG, "the schema of an encoding"):
            stored, in_path = recorded_schema(encoding["schema"]), columns_in_path(encoding)
        for path, field in columns.items():
            if path[0] not in in_path and not is_comparable(field, _siblings(path, stored)):
                unequal.add(path)
    return [key_of(path) for path in columns if path not in unequal]


def _siblings(path: Path, stored: pa.Schema) -> pa.Schema:
    """Return the columns of files, or the fields of their struct, among which the last name of a path is."""
    for name in path[:-1]:
        if name not in stored.names or not pa.types.is_struct(stored.field(name).type):
            return pa.schema([])
        stored = pa.schema(list(stored.field(name).type))
    return stored


def is_comparable(field: pa.Field, stored: pa.Schema) -> bool:
    """Return True if files with these columns have the column with comparable values, or do not have it."""
    if field.name not in stored.names:
        return True
    kind = stored.field(field.name).type
    is_whole: bool = pa.types.is_signed_integer(kind) and pa.types.is_signed_integer(field.type)
    return is_whole or kind == field.type
