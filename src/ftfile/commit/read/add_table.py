"""The live adds of a version: columns of documents, from which they are made when they are asked for."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit.format.columns import FIELDS, decode_adds, decode_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.commit.format.model import Add


@dataclass(slots=True)
class Block:
    """The adds of a document, or the chosen ones."""

    ids: Sequence[str]  # of all adds of the document
    rest: bytes  # the second stream of the document
    chosen: Sequence[bool] | None = None  # a flag for each id; None for all

    def without(self, removed: AbstractSet[str]) -> int:
        """Take adds out and return their number."""
        if removed.isdisjoint(self.ids):
            return 0
        before = self.count()
        kept = [add_id not in removed for add_id in self.ids]
        self.chosen = kept if self.chosen is None else list(map(operator.and_, kept, self.chosen))
        return before - self.count()

    def count(self) -> int:
        """Return the number of adds."""
        return len(self.ids) if self.chosen is None else sum(self.chosen)

    def chosen_ids(self) -> Iterator[str]:
        """Yield the ids of the adds."""
        return iter(self.ids) if self.chosen is None else itertools.compress(self.ids, self.chosen)

    def adds(self) -> Iterator[Add]:
        """Yield the adds, made anew."""
        adds = decode_adds(self.ids, self.rest)
        return adds if self.chosen is None else itertools.compress(adds, self.chosen)

    def columns(self, names: Sequence[str]) -> list[list[Any]]:
        """Return fields of the adds by their names in records."""
        columns = decode_columns(len(self.ids), self.rest, names)
        return columns if self.chosen is None else [[*itertools.compress(each, self.chosen)] for each in columns]


class AddTable(Mapping[str, "Add"]):
    """Adds by id, those of blocks first. Iterating makes them anew each time; looking one up keeps its block."""

    def __init__(self, blocks: Sequence[Block] = (), others: dict[str, Add] | None = None) -> None:
        self._blocks = blocks
        self._others = others or {}
        self._count = sum(block.count() for block in blocks) + len(self._others)
        self._homes: dict[str, int] | None = None
        self._made: dict[int, dict[str, Add]] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for block in self._blocks:
            yield from block.chosen_ids()
        yield from self._others

    def __contains__(self, key: object) -> bool:
        return key in self._others or key in self._home()

    def __getitem__(self, key: str) -> Add:
        if key in self._others:
            return self._others[key]
        number = self._home()[key]
        if number not in self._made:
            self._made[number] = {add.id: add for add in self._blocks[number].adds()}
        return self._made[number][key]

    def values(self) -> ValuesView[Add]:
        """Return the adds, in the order of the ids."""
        return _Values(self)

    def adds(self) -> Iterator[Add]:
        """Yield the adds, made anew."""
        for block in self._blocks:
            yield from block.adds()
        yield from self._others.values()

    def columns(self, names: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield fields of the adds by their names in records, block by block."""
        for block in self._blocks:
            yield block.columns(names)
        yield columns_of(self._others.values(), names)

    def newest_first(self) -> Iterator[Add]:
        """Yield the adds in the reverse order, and decode few more than are taken."""
        yield from reversed(self._others.values())
        for block in reversed(self._blocks):
            yield from reversed([*block.adds()])

    def _home(self) -> dict[str, int]:
        """Return the number of the block of each add."""
        if self._homes is None:
            numbered = enumerate(self._blocks)
            self._homes = {add_id: number for number, block in numbered for add_id in block.chosen_ids()}
        return self._homes


class _Values(ValuesView["Add"]):
    _mapping: AddTable

    def __iter__(self) -> Iterator[Add]:
        return self._mapping.adds()


def columns_of(adds: Iterable[Add], names: Sequence[str]) -> list[list[Any]]:
    """Return fields of adds by their names in records."""
    attributes = [row.attribute for name in names for row in FIELDS if row.name == name]
    return [list(map(operator.attrgetter(attribute), adds)) for attribute in attributes]
