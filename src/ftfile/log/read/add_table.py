"""Adds as columns of documents: the live adds of a version, and the adds of merged compacted logs."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from ftfile.core.bounds import BoundsColumn, bounds_column
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format.compacted import FIELDS, AddColumns, CompactedLog, Document, SchemaChange
from ftfile.log.format.file_statistics import StatisticsColumns, keep_within_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.log.format.model import Add, Entries, Record
    from ftfile.storage.api import FileSystem


# Adds per document: more need too much memory at once, fewer compress worse.
DOCUMENT_ADDS = 50_000

_log = get_logger(__name__)


@dataclass(slots=True)
class AddBlock:
    """The adds of a document, or some of them."""

    document: Document
    ids: Sequence[str]  # of all adds of the document
    chosen: Sequence[bool] | None = None  # a flag for each id; None for all

    def drop_removed(self, removed: AbstractSet[str]) -> int:
        """Remove adds and return their number."""
        if removed.isdisjoint(self.ids):
            return 0
        before = self.count()
        stays = [add_id not in removed for add_id in self.ids]
        if self.chosen is None:
            self.chosen = stays
        else:
            self.chosen = list(map(operator.and_, stays, self.chosen))
        return before - self.count()

    def count(self) -> int:
        """Return the number of adds."""
        if self.chosen is None:
            return len(self.ids)
        return sum(self.chosen)

    def chosen_ids(self) -> Iterator[str]:
        """Yield the ids of the adds."""
        if self.chosen is None:
            return iter(self.ids)
        return itertools.compress(self.ids, self.chosen)

    def adds(self) -> Iterator[Add]:
        """Yield the adds, newly decoded."""
        adds = self.document.adds(self.ids)
        if self.chosen is None:
            return adds
        return itertools.compress(adds, self.chosen)

    def columns(self, names: Sequence[str]) -> list[list[Any]]:
        """Return fields of the adds by their names in records."""
        columns = self.document.fields(names)
        if self.chosen is None:
            return columns
        return [[*itertools.compress(column, self.chosen)] for column in columns]

    def bounds(self, fs: FileSystem, names: Sequence[str]) -> dict[str, BoundsColumn]:
        """Return the bounds of columns in the adds, by name. A missing column is unknown in all adds.

        If the compacted log was merged since or is damaged, all columns are unknown.
        """
        return {name: self._chosen_bounds(column) for name, column in self._read_bounds(fs, names).items()}

    def with_statistics(self, fs: FileSystem) -> Iterator[Add]:
        """Yield the adds, newly decoded, with their statistics.

        If the compacted log was merged since or is damaged, they have none.
        """
        columns = self._read_bounds(fs, self.document.places)
        if not columns:
            return self.adds()
        read = StatisticsColumns()
        read.extend_columns(columns, len(self.ids))
        statistics: Iterable[Entries] = read.entries()
        if self.chosen is not None:
            statistics = itertools.compress(statistics, self.chosen)
        return map(_with_entries, self.adds(), statistics)

    def _read_bounds(self, fs: FileSystem, names: Iterable[str]) -> dict[str, BoundsColumn]:
        """Return the bounds of columns in all adds of the document; no columns if they cannot be read."""
        if self.document.places.keys().isdisjoint(names):
            return {}
        try:
            with fs.open(self.document.path) as file:
                return self.document.read_bounds(file, names)
        except (NotFound, CorruptData) as error:
            _log.info("statistics were not read, so conditions and readers of exports read more files: %s", error)
            return {}

    def narrow(self, mask: Sequence[bool]) -> AddBlock:
        """Return the adds for which a mask over the adds is True."""
        if self.chosen is None:
            return replace(self, chosen=mask)
        flags = iter(mask)
        return replace(self, chosen=[is_chosen and next(flags) for is_chosen in self.chosen])

    def _chosen_bounds(self, column: BoundsColumn) -> BoundsColumn:
        if self.chosen is None:
            return column
        chosen_values = (list(itertools.compress(values, self.chosen)) for values in column)
        return BoundsColumn(*chosen_values)


class AddTable(Mapping[str, "Add"]):
    """Adds by id, in blocks. Iterating decodes them each time; a lookup caches its block."""

    def __init__(self, blocks: Sequence[AddBlock] = (), single_adds: dict[str, Add] | None = None) -> None:
        self._blocks = blocks
        self._others = single_adds or {}
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
        return _AddsView(self)

    def adds(self) -> Iterator[Add]:
        """Yield the adds, newly decoded."""
        for block in self._blocks:
            yield from block.adds()
        yield from self._others.values()

    def columns(self, names: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield fields of the adds by their names in records, block by block."""
        for block in self._blocks:
            yield block.columns(names)
        yield columns_of(self._others.values(), names)

    def columns_by_id(self, names: Sequence[str]) -> Iterator[tuple[Sequence[str], list[list[Any]]]]:
        """Yield ids, and fields of the adds by their names in records, block by block, without decoding adds.

        In paths, a NUL stands for the part of the id that is in file names, and in `path` for the whole id.
        """
        for block in self._blocks:
            yield [*block.chosen_ids()], block.columns(names)
        columns = AddColumns()
        for add in self._others.values():
            columns.append(add, 0)
        yield columns.ids, [columns.fields[name] for name in names]

    def bounds(self, fs: FileSystem, names: Sequence[str]) -> Iterator[dict[str, BoundsColumn]]:
        """Yield the bounds of columns by name, block by block, in the order of `columns`.

        A missing column is unknown in all adds of the block.
        """
        for block in self._blocks:
            yield block.bounds(fs, names)
        yield _bounds_of(self._others.values(), names)

    def with_statistics(self, fs: FileSystem) -> Iterator[Iterable[Add]]:
        """Yield the adds with their statistics, block by block; see `AddBlock.with_statistics`."""
        for block in self._blocks:
            yield block.with_statistics(fs)
        yield self._others.values()

    def narrow(self, masks: Iterable[Sequence[bool]]) -> AddTable:
        """Return the adds for which a mask is True, given a mask for each block in the order of `columns`."""
        *block_masks, mask = masks
        blocks: list[AddBlock] = []
        for block, block_mask in zip(self._blocks, block_masks, strict=True):
            if any(block_mask):
                blocks.append(block.narrow(block_mask))
        return AddTable(blocks, dict(itertools.compress(self._others.items(), mask)))

    def select_possible(
        self,
        fs: FileSystem,
        names: Sequence[str],
        may_match: Callable[[dict[str, BoundsColumn], list[int]], Sequence[bool]],
    ) -> AddTable:
        """Return the adds that may match, without decoding adds.

        `may_match` returns a mask, given the bounds of the columns `names` in some adds, and their numbers of rows.
        """
        masks: list[Sequence[bool]] = []
        for bounds, (rows,) in zip(self.bounds(fs, names), self.columns(["rows"]), strict=True):
            masks.append(may_match(bounds, rows))
        return self.narrow(masks)

    def newest_first(self) -> Iterator[Add]:
        """Yield the adds in reverse order; few more are decoded than consumed."""
        yield from reversed(self._others.values())
        for block in reversed(self._blocks):
            yield from reversed([*block.adds()])

    def _home(self) -> dict[str, int]:
        """Return the number of the block of each add."""
        if self._homes is None:
            self._homes = {}
            for number, block in enumerate(self._blocks):
                self._homes.update(dict.fromkeys(block.chosen_ids(), number))
        return self._homes


class _AddsView(ValuesView["Add"]):
    _mapping: AddTable

    def __iter__(self) -> Iterator[Add]:
        return self._mapping.adds()


def _with_entries(add: Add, statistics: Entries) -> Add:
    return msgspec.structs.replace(add, statistics=statistics)


def columns_of(adds: Iterable[Add], names: Sequence[str]) -> list[list[Any]]:
    """Return fields of adds by their names in records."""
    attributes = [FIELDS[name].name for name in names]
    return [list(map(operator.attrgetter(attribute), adds)) for attribute in attributes]


def _bounds_of(adds: Iterable[Add], names: Sequence[str]) -> dict[str, BoundsColumn]:
    statistics = [add.statistics for add in adds]
    bounds: dict[str, BoundsColumn] = {}
    for name in names:
        bounds[name] = bounds_column(entries.get(name) for entries in statistics)
    return bounds


class _Packer:
    def __init__(self) -> None:
        self._documents: list[Document] = []
        self._waiting = AddColumns()

    def add(self, columns: AddColumns, chosen: Sequence[bool] | None = None) -> _Packer:
        self._waiting.extend(columns, chosen)
        waiting, rest = self._waiting, 0
        while len(waiting.ids) - rest >= DOCUMENT_ADDS:
            self._documents.append(Document.of(waiting.part(rest, rest + DOCUMENT_ADDS)))
            rest += DOCUMENT_ADDS
        if rest:
            self._waiting = waiting.part(rest)
        return self

    def add_whole(self, document: Document) -> None:
        if document.count < DOCUMENT_ADDS // 2:
            self.add(document.all_columns())
            return
        self._flush()
        self._documents.append(document)

    def documents(self) -> tuple[Document, ...]:
        self._flush()
        statistics = keep_within_limit(document.statistics or {} for document in self._documents)
        pairs = zip(self._documents, statistics, strict=True)
        return tuple(replace(document, statistics=streams) for document, streams in pairs)

    def _flush(self) -> None:
        if self._waiting.ids:
            self._documents.append(Document.of(self._waiting))
            self._waiting = AddColumns()


def compact_records(records: Sequence[Record], log_start: int) -> CompactedLog:
    """Return the compacted log for consecutive records; see `merge_compacted` for omitted adds.

    It depends on no later record; otherwise a compacted log of a lost history could not be distinguished from one of
    this log.
    """
    live: dict[str, tuple[Add, int]] = {}
    live_columns, ended = AddColumns(), AddColumns()
    removes: dict[str, int] = {}
    schemas: list[SchemaChange] = []
    definitions: dict[str, Any] = {}
    for record in records:
        if record.schema is not None:
            schemas.append(SchemaChange(record.version, record.schema))
        definitions |= record.definitions
        for remove in record.removes:
            if remove.id not in live:
                removes[remove.id] = record.version
                continue
            add, added = live.pop(remove.id)
            if record.version > log_start:
                ended.append(add, added, record.version)
        for add in record.adds:
            live[add.id] = add, record.version
    for add, added in live.values():
        live_columns.append(add, added)
    return CompactedLog(
        first=records[0].version,
        last=records[-1].version,
        nonce=records[-1].nonce,
        log_start=log_start,
        schemas=_changes(schemas),
        definitions=definitions,
        kept=_Packer().add(live_columns).documents(),
        ended=_Packer().add(ended).documents(),
        removes=removes,
        previous_nonce=records[0].previous_nonce,
    )


def merge_compacted(contents: Sequence[CompactedLog], log_start: int) -> CompactedLog:
    """Return one compacted log for consecutive compacted logs.

    It omits adds of its versions that were removed at `log_start` or before, since readers cannot read older versions.
    """
    removed: dict[str, int] = {}
    schemas: list[SchemaChange] = []
    definitions: dict[str, Any] = {}
    newest_start = log_start
    for part in contents:
        removed |= part.removes
        schemas += part.schemas
        definitions |= part.definitions
        newest_start = max(newest_start, part.log_start)
    removes = dict(removed)
    live_packer, ended = _Packer(), _Packer()
    for document in itertools.chain.from_iterable(part.kept for part in contents):
        assert document.statistics is not None, "the statistics were not read"
        ids = document.versions().ids
        if removed.keys().isdisjoint(ids):
            live_packer.add_whole(document)
            continue
        columns = document.all_columns()
        live_packer.add(columns, [add_id not in removed for add_id in ids])
        columns.removed = [removes.pop(add_id, 0) for add_id in ids]
        ended.add(columns, [version > log_start for version in columns.removed])
    for columns in itertools.chain.from_iterable(map(_list_ended, contents)):
        ended.add(columns, [version > log_start for version in columns.removed])
    if contents[0].first == 0 and removes:
        raise CorruptData(
            "the compacted logs", "removes of adds of earlier versions", f"other removes: {list(removes)[:5]}"
        )
    return msgspec.structs.replace(
        contents[0],
        last=contents[-1].last,
        nonce=contents[-1].nonce,
        log_start=newest_start,
        schemas=_changes(schemas),
        definitions=definitions,
        kept=live_packer.documents(),
        ended=ended.documents(),
        removes=removes,
    )


def _changes(schemas: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Return each schema that differs from the previous one."""
    return tuple(next(same) for _, same in itertools.groupby(schemas, key=operator.attrgetter("key")))


def _list_ended(content: CompactedLog) -> Iterable[AddColumns]:
    assert content.ended is not None, "the ended adds were not read"
    return map(Document.all_columns, content.ended)
