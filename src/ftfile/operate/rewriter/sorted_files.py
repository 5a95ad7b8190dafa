"""The choice of a compaction that sorts rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.bounds import BoundsColumn
from ftfile.core.errors import ConfigError
from ftfile.core.options import kinds
from ftfile.core.remedies import Advice, Argument
from ftfile.formats.partition_paths import columns_in_path
from ftfile.log.format.model import Add
from ftfile.log.read.snapshot import live_table
from ftfile.operate.rewriter.overlaps import Intervals, find_overlapping, intervals_of
from ftfile.operate.rewriter.row_order import RowOrder
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.statistics.columns import is_bounded, key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileSystem

# Rows that one task sorts at once. More would repeat more work after an interruption, and need a larger spill file.
SORTED_BYTES = 2 << 30
# Files below this share of the target are small. New files end by the estimate of their encoder, which can be twice
# their length, and must not be small, or the next call would sort them again.
SMALL = 0.25

_UNKNOWN: tuple[Any, Any, int | None] = (None, None, None)


def order_of(sort_by: str | Sequence[str], target_bytes: int) -> RowOrder:
    """Return the order of column names, or of a text with them; a ConfigError if it is wrong."""
    advice = "name columns, such as 'day, id'. Rows are in ascending order"
    names: Sequence[str] = sort_by if not isinstance(sort_by, str) else ()
    if isinstance(sort_by, str):
        try:
            names = kinds.COLUMNS.parse(sort_by)
        except ValueError:
            raise ConfigError(Advice(Argument("sort_by", sort_by), f": {advice}")) from None
    if not names or len({name.lower() for name in names}) < len(names):
        raise ConfigError(Advice(Argument("sort_by", sort_by), f": {advice}, and each column is named once"))
    return RowOrder(tuple(names), target_bytes)


def resolve_order(order: RowOrder, snapshot: Snapshot) -> RowOrder:
    """Return an order with the column names of the directory.

    Raises:
        ConfigError: a column does not exist, is in the path, or has no bounds.
    """
    if snapshot.schema is None:
        return order
    schema = recorded_schema(snapshot.definitions[snapshot.schema])
    spellings = {field.name.lower(): field for field in schema}
    encodings = [snapshot.definitions[key] for key in dict.fromkeys(add.encoding for add in snapshot.adds.values())]
    names = []
    for name in order.columns:
        field = spellings.get(name.lower())
        if field is None:
            word = name.rpartition(" ")[2].lower()
            if word in ("asc", "desc"):
                raise _fault(name, f"leave out {word.upper()}: rows are always in ascending order")
            raise _fault(name, f"there is no such column. Columns are {', '.join(schema.names)}")
        if any(field.name in columns_in_path(encoding) for encoding in encodings):
            raise _fault(name, "leave out this column of the path, which has one value in each directory")
        if not is_bounded(field.type):
            raise _fault(name, f"files have no bounds of the type {field.type}: name columns of numbers, text or times")
        names.append(field.name)
    sortable = [encoding for encoding in encodings if _has_bounds(encoding, names)]
    if encodings and not sortable:
        raise _fault(
            ", ".join(names),
            "the log has no statistics of the files for these columns, so a reader would open the sorted files as "
            "before. Set the option statisticsColumns of the writer to name them, and compact the files that it writes "
            "then. Encrypted directories have no statistics",
        )
    return RowOrder(tuple(names), order.target_bytes)


def _fault(names: str, reason: str) -> ConfigError:
    return ConfigError(Advice(Argument("sort_by", names), f": {reason}"))


def _has_bounds(encoding: Mapping[str, Any], names: Iterable[str]) -> bool:
    return {key_of((name,)) for name in names} <= {*encoding.get("statistics", ())}


@dataclass(frozen=True, slots=True)
class SortedFiles:
    """The files of a snapshot to sort together."""

    snapshot: Snapshot
    fs: FileSystem
    order: RowOrder

    def groups(self, adds: Iterable[Add]) -> list[list[Add]]:
        """Return the parts to sort together, of some adds, each list in the order of their bounds.

        They overlap, or are small. Parts without bounds overlap all others of their directory.
        """
        by_encoding = defaultdict[str, list[Add]](list)
        for add in adds:
            if add.kind == "part" and _has_bounds(self.snapshot.definitions[add.encoding], self.order.columns):
                by_encoding[add.encoding].append(add)
        groups: list[list[Add]] = []
        for key, parts in by_encoding.items():
            intervals = self._intervals(self.snapshot.definitions[key], parts)
            by_directory = defaultdict[str, list[int]](list)
            for number, add in enumerate(parts):
                by_directory[add.directory_key].append(number)
            for numbers in by_directory.values():
                clusters = [[parts[number] for number in cluster] for cluster in find_overlapping(numbers, intervals)]
                groups += self._pieces(clusters)
        return groups

    def _intervals(self, encoding: Mapping[str, Any], parts: Sequence[Add]) -> list[Intervals]:
        """Return the intervals of the columns in these parts."""
        names = [key_of((name,)) for name in self.order.columns]
        numbers = {add.id: number for number, add in enumerate(parts)}
        entries = {name: [_UNKNOWN] * len(parts) for name in names}
        table = live_table(self.snapshot)
        for (ids, _), bounds in zip(table.columns_by_id(()), table.bounds(self.fs, names), strict=True):
            for name, column in bounds.items():
                for add_id, entry in zip(ids, zip(*column, strict=True), strict=True):
                    if add_id in numbers:
                        entries[name][numbers[add_id]] = entry
        schema = recorded_schema(encoding["schema"])
        rows = [add.rows for add in parts]
        intervals = []
        for name, column_name in zip(names, self.order.columns, strict=True):
            column = BoundsColumn(*map(list, zip(*entries[name], strict=True)))
            intervals.append(intervals_of(column, rows, schema.field(column_name).type))
        return intervals

    def _pieces(self, clusters: Iterable[list[Add]]) -> list[list[Add]]:
        """Return pieces of consecutive files that overlap or are small; other files separate pieces."""
        pieces = [_FilesInOrder()]
        for cluster in clusters:
            is_overlapping = len(cluster) > 1
            if not is_overlapping and cluster[0].length >= SMALL * self.order.target_bytes:
                pieces.append(_FilesInOrder())
                continue
            for add in cluster:
                if pieces[-1].is_complete_before(add):
                    pieces.append(_FilesInOrder())
                pieces[-1].add(add, is_overlapping=is_overlapping)
        return [piece.adds for piece in pieces if piece.is_worth_sorting(self.order)]


class _FilesInOrder:
    """Consecutive files that are sorted together."""

    def __init__(self) -> None:
        self.adds: list[Add] = []
        self.length = 0  # bytes on storage
        self._overlaps = False

    def add(self, add: Add, *, is_overlapping: bool) -> None:
        self.adds.append(add)
        self.length += add.length
        self._overlaps |= is_overlapping

    def is_complete_before(self, add: Add) -> bool:
        """Return True if a file belongs to the next piece. A piece has at least two files."""
        return len(self.adds) > 1 and self.length + add.length > SORTED_BYTES

    def is_worth_sorting(self, order: RowOrder) -> bool:
        """Return True if sorting the files reduces their overlaps or their number."""
        return len(self.adds) > 1 and (self._overlaps or order.files_expected(self.length) < len(self.adds))
