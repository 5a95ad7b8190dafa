"""Pieces of an operation that rewrites files, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.log.format.adds import ids_of, total_bytes, total_rows
from ftfile.log.format.layout import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.core.errors import FtfileError
    from ftfile.log.checks import Rewrite
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.operate.rewriter.row_order import RowOrder
    from ftfile.read.selection import Without
    from ftfile.storage.api import FileSystem


class RewritePiece(NamedTuple):
    """Files that are rewritten into one file, or with an order of rows into several files, or removed."""

    inputs: tuple[Add, ...]  # in row order, of one directory and encoding
    place: int  # number of the first input among all rewritten files
    least_name: str | None  # the lowest name of the files of the directory that stay; None if no file stays
    without: Without | None  # the rows to remove; None to keep all rows
    order: RowOrder | None = None  # of the rows in the new files; None to keep the order of the inputs

    @property
    def row_count(self) -> int:
        """Return the number of rows."""
        return total_rows(self.inputs)

    def rows_removed(self, fs: FileSystem, definitions: Mapping[str, Any]) -> int:
        """Return the number of rows to remove, which reads the files. For the errors see `Selection.rows`."""
        without = self.without
        if without is None:
            return 0
        rows = 0
        for add in self.inputs:
            rows += without.matches(fs, add, definitions[add.encoding])
        return rows

    def is_live(self, head: LogState, version: int) -> bool:
        """Return True if all inputs, which were live at a version, are live at the head."""
        return all(head.is_live(add, version) for add in self.inputs)

    @property
    def files_expected(self) -> int:
        """Return the expected number of new files, if some rows stay."""
        if self.order is None:
            return 1
        return self.order.files_expected(self.length)

    @property
    def length(self) -> int:
        """Return the bytes on storage."""
        return total_bytes(self.inputs)


class Outcome(NamedTuple):
    """The result of a piece; the files before and after an unreadable file are rewritten separately."""

    rewrites: tuple[Rewrite, ...] = ()  # each has its new files, or no file if no row stays
    errors: tuple[FtfileError, ...] = ()  # about files that are unchanged
    rows_removed: int = 0


def pieces_of(
    adds: Iterable[Add],
    lists: Sequence[Sequence[Add]],
    withouts: Sequence[Without] | None = None,
    order: RowOrder | None = None,
) -> list[RewritePiece]:
    """Return one piece for each list of inputs, given all live adds.

    `withouts` are the rows to remove from each list, and `order` is the order of the rows in new files.
    """
    input_ids: set[str] = set()
    keys: set[str] = set()
    for inputs in lists:
        input_ids |= ids_of(inputs)
        keys.add(inputs[0].directory_key)
    least: dict[str, str] = {}
    for add in adds:
        if add.final_path is not None and add.directory_key in keys and add.id not in input_ids:
            name = name_of(add.final_path)
            least[add.directory_key] = min(name, least.get(add.directory_key, name))
    pieces: list[RewritePiece] = []
    place = 0
    for number, inputs in enumerate(lists):
        without = None
        if withouts is not None:
            without = withouts[number]
        stripped = tuple(add.without_statistics() for add in inputs)
        pieces.append(RewritePiece(stripped, place, least.get(inputs[0].directory_key), without, order=order))
        place += len(inputs)
    return pieces
