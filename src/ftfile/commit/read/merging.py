"""Ranges made of records, and of other ranges. Pure, values in and values out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.format.columns import Columns
from ftfile.commit.format.range import Document, Range
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.commit.format.model import Add, Record

__all__ = ("clip", "make_range", "merge")

# Adds of a document: more take too much memory at once, fewer compress worse.
DOCUMENT_ADDS = 50_000


class _Packer:
    """Collects adds and makes documents of them."""

    def __init__(self) -> None:
        self._documents: list[Document] = []
        self._waiting = Columns()

    def add(self, columns: Columns, chosen: Sequence[bool] | None = None) -> None:
        self._waiting.extend(columns, chosen)
        while len(self._waiting.ids) >= DOCUMENT_ADDS:
            self._documents.append(Document.of(self._waiting.part(0, DOCUMENT_ADDS)))
            self._waiting = self._waiting.part(DOCUMENT_ADDS)

    def add_whole(self, document: Document) -> None:
        """Take in a document as it is, unless it is a small one."""
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
    ended = Columns()
    removes: dict[str, int] = {}
    schemas: list[tuple[int, str]] = []
    definitions: dict[str, Any] = {}
    for record in records:
        for remove in record.removes:
            if remove.id not in live:
                removes[remove.id] = record.version
                continue
            add, added = live.pop(remove.id)
            if record.version > log_start:
                ended.append(add, added, record.version)
        live.update((add.id, (add, record.version)) for add in record.adds)
        definitions.update(record.definitions)
        if record.schema is not None and (not schemas or schemas[-1][1] != record.schema):
            schemas.append((record.version, record.schema))
    kept, packed, packed_ended = Columns(), _Packer(), _Packer()
    for add, added in live.values():
        kept.append(add, added)
    packed.add(kept)
    packed_ended.add(ended)
    return Range(
        first=records[0].version,
        last=records[-1].version,
        nonce=records[-1].nonce,
        log_start=log_start,
        schemas=tuple(schemas),
        definitions=definitions,
        kept=packed.documents(),
        ended=packed_ended.documents(),
        removes=removes,
        previous_nonce=records[0].after,
    )


def merge(ranges: Sequence[Range], log_start: int) -> Range:
    """Return one range that stands for consecutive ranges, without the adds that ended at `log_start` or before.

    Raises:
        CorruptData: they remove what was never there.
    """
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
    for document in (document for part in ranges for document in _ended(part)):
        columns = document.columns()
        ended.add(columns, [version > log_start for version in columns.removed])
    first, last = ranges[0], ranges[-1]
    if first.first == 0 and removes:
        raise CorruptData("the ranges", "removes of adds of earlier versions", f"others: {list(removes)[:5]}")
    schemas: list[tuple[int, str]] = []
    for version, key in (change for part in ranges for change in part.schemas):
        if not schemas or schemas[-1][1] != key:
            schemas.append((version, key))
    return Range(
        first=first.first,
        last=last.last,
        nonce=last.nonce,
        log_start=max(log_start, *(part.log_start for part in ranges)),
        schemas=tuple(schemas),
        definitions={key: text for part in ranges for key, text in part.definitions.items()},
        kept=kept.documents(),
        ended=ended.documents(),
        removes=removes,
        previous_nonce=first.previous_nonce,
    )


def clip(content: Range, first: int) -> Range:
    """Return the range that stands for the versions from `first` on; the ended adds must have been read."""
    kept, ended = _Packer(), _Packer()
    removes = {add_id: version for add_id, version in content.removes.items() if version >= first}
    for document in content.kept:
        columns = document.columns()
        kept.add(columns, [added >= first for added in columns.added])
    for document in _ended(content):
        columns = document.columns()
        ended.add(columns, [added >= first for added in columns.added])
        removes |= {
            add_id: removed
            for add_id, added, removed in zip(columns.ids, columns.added, columns.removed, strict=True)
            if added < first <= removed
        }
    return Range(
        first=first,
        last=content.last,
        nonce=content.nonce,
        log_start=content.log_start,
        schemas=tuple(change for change in content.schemas if change[0] >= first),
        definitions=content.definitions,
        kept=kept.documents(),
        ended=ended.documents(),
        removes=removes,
    )


def _ended(content: Range) -> Iterable[Document]:
    assert content.ended is not None, "the ended adds were not read"
    return content.ended
