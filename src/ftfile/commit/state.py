"""What a committer must know of the log: the fold of all records, small and independent of the number of files."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.commit import layout
from ftfile.commit.memory import Memory, remember
from ftfile.commit.model import Add, DueJob, Fingerprint, JobAuthor, Record, Remove, StreamAuthor
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from ftfile.commit.model import Author

__all__ = ("RECENT_RECORDS", "LogState", "LogView", "QueryState", "SegmentChange", "Unpublished")

RECENT_RECORDS = 256
RECENT_CHANGES = 16
# Of removed parts so many are remembered, for rewrites that began before; 400 KB of a base at most.
REMOVED_KEPT = 10_000
# Of schemas and encodings that nothing open refers to. One that is forgotten and needed again is written again.
DEFINITIONS_KEPT = 64
VIEW_QUERIES = 256


@dataclass(frozen=True, slots=True)
class QueryState:
    """The last record of one query, and where its lineage began. Never forgotten."""

    last_batch: int
    version: int
    run_id: str
    offsets_hash: str | None
    fingerprint: Fingerprint | None
    lineage_start: int
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class Unpublished:
    """What publishing a record has to do, as far as it is not known to be done."""

    version: int
    query_id: str | None
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """What the record (version, nonce) did to the live segments."""

    version: int
    nonce: str
    opened: tuple[Add, ...]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogView:
    """The little of a state that a task needs to see whether its batch is committed; at most 64 KiB pickled."""

    version: int
    nonce: str
    last_batches: dict[str, int]
    transactions: dict[str, int]

    def to_state(self) -> LogState:
        """Return a state that answers `finds` for streams and transactions, and nothing else, from here on."""
        queries = {
            query_id: QueryState(last_batch, self.version, "", None, None, 0)
            for query_id, last_batch in self.last_batches.items()
        }
        transactions = dict(self.transactions)
        return LogState(version=self.version, nonce=self.nonce, queries=queries, transactions=transactions, whole=False)


@dataclass(slots=True)
class LogState:
    """The log up to and including `version`, which is -1 for an empty log.

    All of it is a function of the records, except what says how it was read: that is left out of comparisons.

    Attributes:
        nonce: of the record at `version`: a cached state is only as good as this still matches.
        log_start: the oldest record that is kept; what lies at versions before it means nothing.
        segments: live segments; parts are not listed, so that the size does not follow the number of files.
        segment_changes: what the last records did to the segments, for who keeps something derived from them.
        removed: id of every part removed since version `removed_since`, and the version that removed it.
        reserved: names of removed parts that lack what makes them unique, and the version that removed each: no part
            may be called so again while that record is kept, since who is late to retire the old one would take the
            new one away.
        memory: what the use case remembers; see `commit.memory`.
        recent: (version, nonce) of the last records: tells whether a record of ours is part of a base.
        unpublished: by version, what roll forward has to look at.
        whole: whether all records stand behind it, or only a view.
        base_bytes: length of the base it was read from.
        delta_bytes: what reading the records since that base costs.
    """

    version: int = -1
    nonce: str = ""
    queries: dict[str, QueryState] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    horizon_ms: int = 0
    log_start: int = 0
    schema: str | None = None
    encoding: str | None = None
    definitions: dict[str, Any] = field(default_factory=dict)
    segments: dict[str, Add] = field(default_factory=dict)
    segment_changes: deque[SegmentChange] = field(default_factory=lambda: deque(maxlen=RECENT_CHANGES), compare=False)
    due: tuple[DueJob, ...] = ()
    removed: dict[str, int] = field(default_factory=dict)
    removed_since: int = 0
    reserved: dict[str, int] = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    recent: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=RECENT_RECORDS))
    unpublished: dict[int, Unpublished] = field(default_factory=dict)
    whole: bool = field(default=True, compare=False)
    base_bytes: int = field(default=0, compare=False)
    delta_bytes: int = field(default=0, compare=False)

    def apply(self, record: Record) -> None:
        """Take in the next record.

        Raises:
            CorruptData: it is not the next, ends an add twice, or is a second record of one batch or transaction;
                nothing changed.
        """
        self.check(record)
        self.version, self.nonce = record.version, record.nonce
        self.recent.append((record.version, record.nonce))
        self._apply_author(record)
        if record.horizon_ms is not None:
            self.horizon_ms = record.horizon_ms
        if record.log_start is not None and record.log_start > self.log_start:
            self.log_start = record.log_start
            self.reserved = {name: at for name, at in self.reserved.items() if at >= self.log_start}
            # A vacuum lets only published records go: an older base or hint may not know it.
            self.unpublished = {at: entry for at, entry in self.unpublished.items() if at >= self.log_start}
        self.schema = record.schema or self.schema
        self.encoding = record.encoding or self.encoding
        ended = tuple(remove.id for remove in record.removes if remove.kind == "segment")
        opened = tuple(add for add in record.adds if add.kind == "segment")
        for add_id in ended:
            self.segments.pop(add_id, None)
        self.segments.update((add.id, add) for add in opened)
        self.segment_changes.append(SegmentChange(record.version, record.nonce, opened, ended))
        self._apply_definitions(record)
        self.due = record.due
        remember(self.memory, record.memory, record.time_ms)
        parts = (*(add for add in record.adds if add.kind == "part"), *record.letters)
        removes = tuple(remove for remove in record.removes if remove.kind == "part")
        self._remember_removed(record.version, removes)
        if parts or removes:
            query_id = record.author.query_id if isinstance(record.author, StreamAuthor) else None
            self.unpublished[record.version] = Unpublished(record.version, query_id, parts, removes)

    def finds(self, author: Author) -> bool:
        """Say whether this batch, or this transaction, is in the log; a batch before the query's last counts."""
        if isinstance(author, StreamAuthor):
            query = self.queries.get(author.query_id)
            return query is not None and author.batch_id <= query.last_batch
        if isinstance(author, JobAuthor) and author.transaction is not None:
            last = self.transactions.get(author.transaction.app_id)
            return last is not None and author.transaction.version <= last
        return False

    def includes(self, version: int, nonce: str) -> bool | None:
        """Say whether this very record is part of the log up to here; None when it is too long ago to tell."""
        at = version - self.recent[0][0] if self.recent else -1
        if at < 0:
            return None
        return at < len(self.recent) and self.recent[at] == (version, nonce)

    def is_live(self, add: Add, known_at: int) -> bool:
        """Say whether an add that was live at version `known_at` still is; too long ago to tell counts as no."""
        if add.kind == "segment":
            return add.id in self.segments
        return known_at >= self.removed_since - 1 and add.id not in self.removed

    def view(self, app_id: str | None = None) -> LogView:
        """Return what tasks need; of very many queries the ones that wrote last, of applications the one named."""
        newest = sorted(self.queries.items(), key=lambda item: item[1].version, reverse=True)[:VIEW_QUERIES]
        last_batches = {query_id: query.last_batch for query_id, query in newest}
        transactions = {app: last for app, last in self.transactions.items() if app == app_id}
        return LogView(self.version, self.nonce, last_batches, transactions)

    def check(self, record: Record) -> None:
        """Refuse a record that the log could not be read with.

        Raises:
            CorruptData: it is not the next, ends an add twice, or is a second record of one batch or transaction.
        """
        path = layout.record_path(record.version)
        if record.version != self.version + 1:
            raise CorruptData(path, f"version {self.version + 1}", f"version {record.version}")
        if record.after not in {None, self.nonce}:
            expected = f"the record that follows version {self.version}, {self.nonce!r}"
            raise CorruptData(path, expected, f"one that follows {record.after!r}: files of the log were exchanged")
        ended = [remove.id for remove in record.removes if self._has_ended(remove)]
        if ended:
            raise CorruptData(path, "removes of live adds", f"adds removed a second time: {ended[:5]}")
        if self.finds(record.author):
            raise CorruptData(path, "a batch that is not in the log", f"a second record of {record.author}")

    def _has_ended(self, remove: Remove) -> bool:
        """Say whether what a record removes is known to be live no more."""
        if remove.kind == "segment":
            return self.whole and remove.id not in self.segments
        return remove.id in self.removed

    def _remember_removed(self, version: int, removes: tuple[Remove, ...]) -> None:
        """Remember removed parts; of more than the bound, forget those of the oldest versions, down to half."""
        self._reserve(version, removes)
        self.removed.update((remove.id, version) for remove in removes)
        if len(self.removed) > REMOVED_KEPT:
            last = len(self.removed) - REMOVED_KEPT // 2 - 1
            (forgotten,) = itertools.islice(self.removed.values(), last, last + 1)
            self.removed = {add_id: at for add_id, at in self.removed.items() if at > forgotten}
            self.removed_since = forgotten + 1

    def _reserve(self, version: int, removes: tuple[Remove, ...]) -> None:
        """Keep names that a later part might want from being used again."""
        for remove in removes:
            if remove.final_path is not None and layout.unique_part(remove.id) not in remove.final_path:
                self.reserved[remove.final_path] = version

    def _apply_definitions(self, record: Record) -> None:
        """Keep the definitions used last, and all that what is open refers to."""
        self.definitions.update(record.definitions)
        used = (record.schema, record.encoding, record.settings, *(add.encoding for add in record.adds))
        for key in dict.fromkeys(used):
            if key is not None and key in self.definitions:
                self.definitions[key] = self.definitions.pop(key)
        if record.definitions and len(self.definitions) > 2 * DEFINITIONS_KEPT:
            needed = self._needed_definitions()
            for key in list(self.definitions)[:-DEFINITIONS_KEPT]:
                if key not in needed:
                    del self.definitions[key]

    def _needed_definitions(self) -> set[str | None]:
        """Return the keys in use; a definition may name others as values."""
        waiting = [self.schema, self.encoding, *(query.settings for query in self.queries.values())]
        waiting += {add.encoding for add in self.segments.values()}
        needed: set[str | None] = set()
        while waiting:
            key = waiting.pop()
            needed.add(key)
            definition = self.definitions.get(key or "")
            named = definition.values() if isinstance(definition, dict) else ()
            waiting += [name for name in named if isinstance(name, str) and name not in needed]
        return needed

    def _apply_author(self, record: Record) -> None:
        author = record.author
        if isinstance(author, StreamAuthor):
            last = self.queries.get(author.query_id)
            start = record.lineage_start if record.lineage_start is not None else last and last.lineage_start
            self.queries[author.query_id] = QueryState(
                author.batch_id,
                record.version,
                author.run_id,
                author.offsets_hash,
                record.fingerprint,
                start or 0,
                record.settings,
            )
        elif isinstance(author, JobAuthor) and author.transaction is not None:
            self.transactions[author.transaction.app_id] = author.transaction.version
