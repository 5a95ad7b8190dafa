"""Bounds of columns in the adds of a table: from records and from compacted logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from ftfile.core.bounds import BoundsColumn
from ftfile.log.read.add_table import AddTable
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.log.random_log import plain_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.format.model import Add

FS = MemoryFileSystem("bounds of adds")


def adds_with(entries: Sequence[dict[str, list[object]]]) -> dict[str, Add]:
    """Return adds with these statistics."""
    adds = plain_record(0, files=len(entries)).adds
    pairs = zip(adds, entries, strict=True)
    return {add.id: structs.replace(add, statistics=statistics) for add, statistics in pairs}


class TestAddsOfRecords:
    def test_bounds_are_those_of_the_statistics_and_unknown_otherwise(self) -> None:
        adds = adds_with([{"a": [1, 2, 0]}, {"b": ["x", None, 3]}, {"a": [1, 2], "b": [None, None, 4]}])
        (bounds,) = AddTable((), adds).bounds(FS, ["a", "b", "c"])
        assert bounds == {
            "a": BoundsColumn([1, None, None], [2, None, None], [0, None, None]),
            "b": BoundsColumn([None, "x", None], [None, None, None], [None, 3, 4]),
            "c": BoundsColumn([None] * 3, [None] * 3, [None] * 3),
        }

    def test_possible_adds_are_those_of_the_mask(self) -> None:
        adds = adds_with([{"a": [1, 2, 0]}, {"a": [3, 4, 0]}, {}])

        def may_match(bounds: dict[str, BoundsColumn], rows: list[int]) -> list[bool]:
            assert rows == [10, 10, 10]
            return [low is None or low > 1 for low in bounds["a"].low]

        table = AddTable((), adds).possible(FS, ["a"], may_match)
        assert list(table.values()) == list(adds.values())[1:]
        assert len(table) == 2
