"""Ranges made of records, and of other ranges. Pure, values in and values out."""

from __future__ import annotations

import itertools
import operator
from dataclasses import replace
from typing import TYPE_CHECKING

from ftfile.commit.format.columns import Columns, Document
from ftfile.commit.format.range import Range
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.commit.format.model import Add, Record

# Adds of a document: more take too much memory at once, fewer compress worse.
DOCUMENT_ADDS = 50_000


class _Packer:
    def __init__(self) -> None:
        self._documents: list[Document] = []
        self._waiting = Columns()

    def add(self, columns: Columns, chosen: Sequence[bool] | None = None) -> _Packer:
        self._waiting.extend(columns, chosen)
        while len(self._waiting.ids) >= DOCUMENT_ADDS:
            self._documents.append(Document.of(self._waiting.part(0, DOCUMENT_ADDS)))
            self._waiting = self._waiting.part(DOCUMENT_ADDS)
        return self

    def add_whole(self, document: Document) -> None:
        if document.count < DOCUMENT_ADDS // 2:
            self.add(document.columns())
            return
        self._flush()
        self._documents.append(document)

    def documents(self) -> tuple[Document, ...]:
        self._flush()
        return tuple(self._documents)

    def _flush(self) -> None:
        if self._waiting.ids:
            self._documents.append(Document.of(self._waiting))
            self._waiting = Columns()


def make_range(records: Sequence[Record], log_start: int) -> Range:
    """Return the range that stands for consecutive records."""
    live: dict[str, tuple[Add, int]] = {}
    kept, ended = Columns(), Columns()
    removes: dict[str, int] = {}
    for record in records:
        for remove in record.removes:
            if remove.id not in live:
                removes[remove.id] = record.version
                continue
            add, added = live.pop(remove.id)
            if record.version > log_start:
                ended.append(add, added, record.version)
        live.update((add.id, (add, record.version)) for add in record.adds)
    for add, added in live.values():
        kept.append(add, added)
    return Range(
        first=records[0].version,
        last=records[-1].version,
        nonce=records[-1].nonce,
        log_start=log_start,
        schemas=_changes((record.version, record.schema) for record in records if record.schema is not None),
        definitions={key: text for record in records for key, text in record.definitions.items()},
        kept=_Packer().add(kept).documents(),
        ended=_Packer().add(ended).documents(),
        removes=removes,
        previous_nonce=records[0].previous_nonce,
    )


def merge(ranges: Sequence[Range], log_start: int) -> Range:
    """Return one range that stands for consecutive ranges, without the adds that ended at `log_start` or before."""
    removed = {add_id: version for part in ranges for add_id, version in part.removes.items()}
    removes = dict(removed)
    kept, ended = _Packer(), _Packer()
    for document in (document for part in ranges for document in part.kept):
        ids = document.versions().ids
        if removed.keys().isdisjoint(ids):
            kept.add_whole(document)
            continue
        columns = document.columns()
        kept.add(columns, [add_id not in removed for add_id in ids])
        columns.removed = [removes.pop(add_id, 0) for add_id in ids]
        ended.add(columns, [version > log_start for version in columns.removed])
    for columns in (columns for part in ranges for columns in _ended(part)):
        ended.add(columns, [version > log_start for version in columns.removed])
    if ranges[0].first == 0 and removes:
        raise CorruptData("the ranges", "removes of adds of earlier versions", f"others: {list(removes)[:5]}")
    return replace(
        ranges[0],
        last=ranges[-1].last,
        nonce=ranges[-1].nonce,
        log_start=max(log_start, *(part.log_start for part in ranges)),
        schemas=_changes(change for part in ranges for change in part.schemas),
        definitions={key: text for part in ranges for key, text in part.definitions.items()},
        kept=kept.documents(),
        ended=ended.documents(),
        removes=removes,
    )


def clip(content: Range, first: int) -> Range:
    """Return the range that stands for the versions from `first` on; the ended adds must have been read."""
    kept, ended = _Packer(), _Packer()
    removes = {add_id: version for add_id, version in content.removes.items() if version >= first}
    for document in content.kept:
        columns = document.columns()
        kept.add(columns, [added >= first for added in columns.added])
    for columns in _ended(content):
        ended.add(columns, [added >= first for added in columns.added])
        versions = zip(columns.ids, columns.added, columns.removed, strict=True)
        removes |= {add_id: removed for add_id, added, removed in versions if added < first <= removed}
    schemas = tuple(change for change in content.schemas if change[0] >= first)
    content = replace(content, first=first, previous_nonce=None, schemas=schemas, removes=removes)
    return replace(content, kept=kept.documents(), ended=ended.documents())


def _changes(schemas: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Return version and key of each schema that differs from the one before."""
    return tuple(next(same) for _, same in itertools.groupby(schemas, key=operator.itemgetter(1)))


def _ended(content: Range) -> Iterable[Columns]:
    assert content.ended is not None, "the ended adds were not read"
    return (document.columns() for document in content.ended)
