"""The state of a committer: the result of all records, in dictionaries with cheap copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import field

from ftfile.core.errors import CorruptData
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    Count,
    Fingerprint,
    Job,
    Number,
    OrAbsent,
    Remove,
    StreamAuthor,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, ValuesView

    from ftfile.log.format.model import Author


K = TypeVar("K")
V = TypeVar("V")

# A copy shares the dictionary of its original until this number of entries, or this share of it, has changed.
CHANGES_MIN = 256
CHANGES_SHARE = 64


class Definitions(dict[str, Any]):
    """Definitions by key; CorruptData for a key that a record names and none defines."""

    def __missing__(self, key: str) -> Any:  # noqa: ANN401 - JSON
        raise CorruptData(layout.LOG, f"a definition with the key {key!r:.80}", "no definition")


class SharedMap(Mapping[K, V]):
    """An immutable dictionary, in the order in which its keys were set last; see `builder`."""

    __slots__ = ("gone", "newer", "older")

    def __init__(
        self, older: dict[K, V] | None = None, newer: dict[K, V] | None = None, gone: set[K] | None = None
    ) -> None:
        self.older, self.newer, self.gone = older or {}, newer or {}, gone or set()

    def builder(self) -> MapBuilder[K, V]:
        """Return a mutable copy."""
        return MapBuilder(self)

    def __getitem__(self, key: K) -> V:
        if key in self.newer:
            return self.newer[key]
        if key in self.gone:
            raise KeyError(key)
        return self.older[key]

    def __contains__(self, key: object) -> bool:
        return key in self.newer or (key in self.older and key not in self.gone)

    def __iter__(self) -> Iterator[K]:
        if self.gone:
            yield from (key for key in self.older if key not in self.gone)
        else:
            yield from self.older
        yield from self.newer

    def __len__(self) -> int:
        return len(self.older) - len(self.gone) + len(self.newer)

    def __repr__(self) -> str:
        return repr(self.to_dict())

    def to_dict(self) -> dict[K, V]:
        """Return a plain copy."""
        entries = self.older.copy()
        for key in self.gone:
            del entries[key]
        entries.update(self.newer)
        return entries

    def items(self) -> ItemsView[K, V]:
        """Return keys and values."""
        if self.newer or self.gone:
            return self.to_dict().items()
        return self.older.items()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        if self.newer or self.gone:
            return self.to_dict().values()
        return self.older.values()


class MapBuilder(SharedMap[K, V]):
    """Changes of a `SharedMap`, which is not changed."""

    __slots__ = ("_owns_all", "_owns_changes")

    def __init__(self, start: SharedMap[K, V]) -> None:
        self.older, self.newer, self.gone = start.older, start.newer, start.gone
        # True once `newer` and `gone`, and possibly `older`, are copies of this builder.
        self._owns_changes = self._owns_all = False

    def oldest(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values without a copy; no entry may be changed meanwhile."""
        yield from (item for item in self.older.items() if item[0] not in self.gone)
        yield from self.newer.items()

    def set(self, key: K, value: V) -> None:
        """Set a key, which becomes the last one."""
        self._copy_base()
        if self._owns_all:
            self.older.pop(key, None)
            self.older[key] = value
            return
        self.newer.pop(key, None)
        if key in self.older:
            self.gone.add(key)
        self.newer[key] = value

    def drop(self, key: K) -> None:
        """Remove a key, if it exists."""
        self._copy_base()
        if self._owns_all:
            self.older.pop(key, None)
        elif key in self.newer:
            del self.newer[key]
        elif key in self.older:
            self.gone.add(key)

    def finish(self) -> SharedMap[K, V]:
        """Return the changed map; the builder cannot be used afterwards."""
        return SharedMap(self.older, self.newer, self.gone)

    def _copy_base(self) -> None:
        """Copy the changes before the first write, and the whole map after many changes."""
        if self._owns_all:
            return
        if not self._owns_changes:
            self._owns_changes = True
            self.newer, self.gone = self.newer.copy(), self.gone.copy()
        if len(self.newer) + len(self.gone) >= max(CHANGES_MIN, len(self.older) // CHANGES_SHARE):
            self.older, self.newer, self.gone = self.to_dict(), {}, set()
            self._owns_all = True


# The queries that a view contains; a batch of another query is written, and the commit finds it in the log.
VIEW_QUERIES = 256

# Entries of tables, by table and key: when it was set last, in milliseconds, and the value.
Tables = Mapping[str, SharedMap[str, list[Any]]]


class QueryState(Value, frozen=True):
    """The last record of one query, and the start of its lineage. Never forgotten."""

    last_batch: Count
    version: Count
    run_id: str
    offsets_hash: str | None
    lineage_start: Count = field(name="lineageStartBatch")
    fingerprint: Fingerprint | None
    settings: OrAbsent[str] = None


class TransactionState(Value, frozen=True):
    """The last write of one application. Never forgotten."""

    last: Number = field(name="lastTransaction")  # the user's number of it
    version: Count  # of its record
    fingerprint: Fingerprint | None


class Unpublished(Value, frozen=True):
    """The adds and removes of a record that are not known to be published."""

    version: Count
    query_id: str | None
    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """The changes of the record (version, nonce) to the live segments."""

    version: int
    nonce: str
    opened: tuple[Add, ...]
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The part of a state by which a task finds that its batch is committed; at most 64 KiB pickled."""

    version: int
    nonce: str
    last_batches: dict[str, int]
    transactions: dict[str, int]
    has_jobs: bool

    def has(self, author: Author) -> bool:
        """Return True if this batch, or this transaction, was in the log; see `LogState.has`."""
        return self.to_state().has(author)

    def to_state(self) -> LogState:
        """Return a state that only answers `has` for streams and transactions."""
        queries: dict[str, QueryState] = {}
        for query_id, last_batch in self.last_batches.items():
            queries[query_id] = QueryState(
                last_batch, self.version, run_id="", offsets_hash=None, lineage_start=0, fingerprint=None
            )
        transactions = {app: TransactionState(last, self.version, None) for app, last in self.transactions.items()}
        return LogState(
            version=self.version,
            nonce=self.nonce,
            queries=SharedMap(queries),
            transactions=SharedMap(transactions),
            whole=False,
        )


@dataclass(frozen=True, slots=True)
class LogState:
    """The log up to and including `version`. Immutable, except for `unpublished`.

    All of it follows from the records, except for how it was read, which comparisons ignore.
    """

    version: int = -1  # -1 for an empty log
    nonce: str = ""  # of the record at `version`; a cached state is valid while it matches
    queries: SharedMap[str, QueryState] = dataclasses.field(default_factory=SharedMap)
    transactions: SharedMap[str, TransactionState] = dataclasses.field(default_factory=SharedMap)
    horizon_ms: int = 0
    log_start: int = 0  # the oldest kept record; files of earlier versions are invalid
    vacuumed_to: int = 0  # files of adds that were removed at this version or before can be deleted
    schema: str | None = None
    encoding: str | None = None
    definitions: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Live ones. Parts are not included, so that the size does not depend on the number of files.
    segments: SharedMap[str, Add] = dataclasses.field(default_factory=SharedMap)
    # Of the last records, for indexes that follow them.
    segment_changes: tuple[SegmentChange, ...] = dataclasses.field(default=(), compare=False)
    jobs: tuple[Job, ...] = ()
    # Version that removed each part since `removed_since`.
    removed: SharedMap[str, int] = dataclasses.field(default_factory=SharedMap)
    removed_since: int = 0
    # Names of removed parts that can repeat, with the version that removed each. No part may have one of them while
    # that record is kept: a late publisher would retire the new part.
    reserved: SharedMap[str, int] = dataclasses.field(default_factory=SharedMap)
    tables: Tables = dataclasses.field(default_factory=dict)
    # (version, nonce) of the last records: shows if a record of this process is in a checkpoint.
    recent: tuple[tuple[int, str], ...] = ()
    unpublished: dict[int, Unpublished] = dataclasses.field(
        default_factory=dict
    )  # by version; publishing removes an entry
    whole: bool = dataclasses.field(default=True, compare=False)  # False for a state from a view

    def has(self, author: Author) -> bool:
        """Return True if this batch, or this transaction, is in the log; also for batches before the last one."""
        return has_author(author, self.queries, self.transactions)

    def remaining_jobs(self, removes: Iterable[Remove]) -> tuple[Job, ...]:
        """Return the jobs that can still run after these removes."""
        ended = ids_of(removes)
        return tuple(job for job in self.jobs if ended.isdisjoint(ids_of(job.inputs)))

    def includes(self, version: int, nonce: str) -> bool | None:
        """Return True if this record is in the log up to here; None if it is too old to decide."""
        at = -1
        if self.recent:
            at = version - self.recent[0][0]
        if at < 0:
            return None
        return at < len(self.recent) and self.recent[at] == (version, nonce)

    def is_live(self, add: Add, read_version: int) -> bool:
        """Return True if an add that was live at version `read_version` still is; False if it is too old to decide."""
        if add.kind == "segment":
            return add.id in self.segments
        return read_version >= self.removed_since - 1 and add.id not in self.removed

    def view(self, app_id: str | None = None) -> LogView:
        """Return the part that tasks need: the queries that wrote last, and the named application."""
        newest = sorted(self.queries.items(), key=lambda item: item[1].version, reverse=True)[:VIEW_QUERIES]
        last_batches = {query_id: query.last_batch for query_id, query in newest}
        transactions = {app: transaction.last for app, transaction in self.transactions.items() if app == app_id}
        return LogView(
            version=self.version,
            nonce=self.nonce,
            last_batches=last_batches,
            transactions=transactions,
            has_jobs=bool(self.jobs),
        )


def has_author(
    author: Author, queries: SharedMap[str, QueryState], transactions: SharedMap[str, TransactionState]
) -> bool:
    """Return True if these queries and transactions contain the write of an author; see `LogState.has`."""
    if isinstance(author, StreamAuthor):
        query = queries.get(author.query_id)
        return query is not None and author.batch_id <= query.last_batch
    if isinstance(author, BatchWriteAuthor) and author.transaction is not None:
        last = transactions.get(author.transaction.app_id)
        return last is not None and author.transaction.version <= last.last
    return False
