"""How records change the state of the log."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData
from ftfile.log.format import layout
from ftfile.log.format.adds import parts_of
from ftfile.log.format.model import BatchWriteAuthor, StreamAuthor
from ftfile.log.state import (
    Definitions,
    LogState,
    QueryState,
    SegmentChange,
    SharedMap,
    TransactionState,
    Unpublished,
    has_author,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.log.format.model import Record, Remove
    from ftfile.log.state import MapBuilder, Tables


# The number of last records whose nonces, and changes of segments, a state contains.
RECENT_RECORDS = 256
RECENT_CHANGES = 16
# The number of removed parts in a state, by which older rewrites are rejected; at most 400 KB of a checkpoint.
REMOVED_KEPT = 10_000
# The number of schemas and encodings in a state that nothing open refers to. A forgotten one is recorded again at its
# next use.
DEFINITIONS_KEPT = 64
ENTRIES_MAX = 100_000  # of a table


def state_after(state: LogState, *records: Record) -> LogState:
    """Return the state after more records."""
    fold = Fold(state)
    for record in records:
        fold.apply(record)
    return fold.finish()


class Fold:
    """Applies records one after the other; the initial state is not changed."""

    def __init__(self, state: LogState) -> None:
        self.version, self.nonce, self.whole = state.version, state.nonce, state.whole
        self._horizon_ms, self._log_start = state.horizon_ms, state.log_start
        self._vacuumed_to = state.vacuumed_to
        self._schema, self._encoding, self._jobs = state.schema, state.encoding, state.jobs
        self._definitions, self._removed_since = state.definitions, state.removed_since
        self._tables = TablesBuilder(state.tables)
        self._queries, self._transactions = state.queries.builder(), state.transactions.builder()
        self._removed, self._reserved = state.removed.builder(), state.reserved.builder()
        self._segments = state.segments.builder()
        self._segment_changes = deque(state.segment_changes, RECENT_CHANGES)
        self._recent = deque(state.recent, RECENT_RECORDS)
        self._unpublished = dict(state.unpublished)

    def finish(self) -> LogState:
        """Return the state after all records; the object cannot be used afterwards."""
        return LogState(
            version=self.version,
            nonce=self.nonce,
            queries=self._queries.finish(),
            transactions=self._transactions.finish(),
            horizon_ms=self._horizon_ms,
            log_start=self._log_start,
            vacuumed_to=self._vacuumed_to,
            schema=self._schema,
            encoding=self._encoding,
            definitions=Definitions(self._definitions),
            segments=self._segments.finish(),
            segment_changes=tuple(self._segment_changes),
            jobs=self._jobs,
            removed=self._removed.finish(),
            removed_since=self._removed_since,
            reserved=self._reserved.finish(),
            tables=self._tables.finish(),
            recent=tuple(self._recent),
            unpublished=self._unpublished,
            whole=self.whole,
        )

    def apply(self, record: Record) -> None:
        """Apply the next record; raises CorruptData, without a change, if the log would be invalid with it."""
        self._check(record)
        self.version, self.nonce = record.version, record.nonce
        self._recent.append((record.version, record.nonce))
        self._apply_author(record)
        if record.horizon_ms is not None:
            self._horizon_ms = record.horizon_ms
        if record.vacuumed_to is not None:
            self._vacuumed_to = max(self._vacuumed_to, record.vacuumed_to)
        self._apply_log_start(record)
        # An older checkpoint or hint can lack this information.
        if record.published is not None:
            self._unpublished = {at: entry for at, entry in self._unpublished.items() if at > record.published}
        self._schema = record.schema or self._schema
        self._encoding = record.encoding or self._encoding
        ended = tuple(remove.id for remove in record.removes if remove.kind == "segment")
        opened = tuple(add for add in record.adds if add.kind == "segment")
        for add_id in ended:
            self._segments.drop(add_id)
        for add in opened:
            self._segments.set(add.id, add)
        self._segment_changes.append(SegmentChange(record.version, record.nonce, opened, ended))
        self._apply_definitions(record)
        self._jobs = record.jobs
        self._tables.apply(record.tables, record.time_ms)
        parts = (*parts_of(record.adds), *record.dead_letters)
        removes = tuple(remove for remove in record.removes if remove.kind == "part")
        self._remember_removed(record.version, removes)
        if parts or removes:
            query_id = None
            if isinstance(record.author, StreamAuthor):
                query_id = record.author.query_id
            self._unpublished[record.version] = Unpublished(record.version, query_id, parts, removes)

    def _apply_log_start(self, record: Record) -> None:
        if record.log_start is None or record.log_start <= self._log_start:
            return
        self._log_start = record.log_start
        still_reserved = {}
        for name, reserved_at in self._reserved.items():
            if reserved_at >= self._log_start:
                still_reserved[name] = reserved_at
        self._reserved = SharedMap(still_reserved).builder()

    def _check(self, record: Record) -> None:
        path = layout.record_path(record.version)
        if record.version != self.version + 1:
            raise CorruptData(path, f"version {self.version + 1}", f"version {record.version}")
        if record.previous_nonce not in {None, self.nonce}:
            expected = f"the record that follows version {self.version}, {self.nonce!r}"
            actual = f"a record that follows {record.previous_nonce!r}: files of the log were replaced"
            raise CorruptData(path, expected, actual)
        ended = []
        for remove in record.removes:
            if self._has_ended(remove):
                ended.append(remove.id)
        if ended:
            raise CorruptData(path, "removes of live adds", f"removes of adds that are already removed: {ended[:5]}")
        if has_author(record.author, self._queries, self._transactions):
            raise CorruptData(path, "a batch that is not in the log", f"a second record of {record.author}")

    def _has_ended(self, remove: Remove) -> bool:
        if remove.kind == "segment":
            return self.whole and remove.id not in self._segments
        return remove.id in self._removed

    def _remember_removed(self, version: int, removes: tuple[Remove, ...]) -> None:
        """Add removed parts; above the limit, forget the parts of the oldest versions, down to half."""
        for remove in removes:
            self._removed.set(remove.id, version)
            # A name that a later part could want stays reserved.
            if remove.final_path is not None and not layout.is_unique_name(remove.id, remove.final_path):
                self._reserved.set(remove.final_path, version)
        if len(self._removed) > REMOVED_KEPT:
            last = len(self._removed) - REMOVED_KEPT // 2 - 1
            ((_, forgotten),) = itertools.islice(self._removed.oldest(), last, last + 1)
            remembered = {}
            for add_id, at in self._removed.items():
                if at > forgotten:
                    remembered[add_id] = at
            self._removed = SharedMap(remembered).builder()
            self._removed_since = forgotten + 1

    def _apply_definitions(self, record: Record) -> None:
        """Keep the definitions that were used last, and all definitions that queries and open segments refer to."""
        definitions = self._definitions | record.definitions
        used = (record.schema, record.encoding, record.settings, *(add.encoding for add in record.adds))
        for key in dict.fromkeys(used):
            if key is not None and key in definitions:
                definitions[key] = definitions.pop(key)
        self._definitions = definitions
        if record.definitions and len(definitions) > 2 * DEFINITIONS_KEPT:
            needed = self._needed_definitions()
            newest = set(list(definitions)[-DEFINITIONS_KEPT:])
            self._definitions = {key: text for key, text in definitions.items() if key in needed or key in newest}

    def _needed_definitions(self) -> set[str | None]:
        """Return the keys in use; a definition can refer to other definitions."""
        waiting: list[str | None] = [self._schema, self._encoding]
        waiting += [query.settings for _, query in self._queries.items()]
        waiting += {add.encoding for _, add in self._segments.items()}
        needed: set[str | None] = set()
        while waiting:
            key = waiting.pop()
            needed.add(key)
            definition: Any = self._definitions.get(key or "")
            if isinstance(definition, dict):
                for name in definition.values():
                    if isinstance(name, str) and name not in needed:
                        waiting.append(name)
        return needed

    def _apply_author(self, record: Record) -> None:
        author = record.author
        if isinstance(author, StreamAuthor):
            last = self._queries.get(author.query_id)
            start = record.lineage_start if record.lineage_start is not None else last and last.lineage_start
            query_state = QueryState(
                author.batch_id,
                record.version,
                run_id=author.run_id,
                offsets_hash=author.offsets_hash,
                lineage_start=start or 0,
                fingerprint=record.fingerprint,
                settings=record.settings,
            )
            self._queries.set(author.query_id, query_state)
        elif isinstance(author, BatchWriteAuthor) and author.transaction is not None:
            written = TransactionState(author.transaction.version, record.version, record.fingerprint)
            self._transactions.set(author.transaction.app_id, written)


class TablesBuilder:
    """Changes of the tables; the initial tables are not changed."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._changed: dict[str, MapBuilder[str, list[Any]]] = {}

    def apply(self, changes: Mapping[str, Any], now_ms: int) -> None:
        """Apply the changes of a record at its time; the entries that were not set for longest are forgotten first.

        Changes by table, each optional: `set` (values by key), `drop` (keys), `ttlMs` (the maximum age of an entry).
        The time is the clock of the author, so forgetting an entry too early or too late must be harmless.
        """
        for name, change in changes.items():
            if name not in self._changed:
                self._changed[name] = self._tables.get(name, SharedMap[str, list[Any]]()).builder()
            _change(self._changed[name], change, now_ms)

    def finish(self) -> Tables:
        """Return the changed tables; the builder cannot be used afterwards."""
        if not self._changed:
            return self._tables
        changed = {}
        for name, builder in self._changed.items():
            changed[name] = builder.finish()
        return {name: table for name, table in {**self._tables, **changed}.items() if table}


def _change(table: MapBuilder[str, list[Any]], change: Mapping[str, Any], now_ms: int) -> None:
    for key in change.get("drop", ()):
        table.drop(key)
    for key, value in change.get("set", {}).items():
        table.set(key, [now_ms, value])
    oldest_ms = None
    if "ttlMs" in change:
        oldest_ms = now_ms - change["ttlMs"]
    forgotten: list[str] = []
    # One pass: a new iteration would visit all empty places again.
    for key, (set_ms, _) in table.oldest():
        if len(table) - len(forgotten) <= ENTRIES_MAX and (oldest_ms is None or set_ms >= oldest_ms):
            break
        forgotten.append(key)
    for key in forgotten:
        table.drop(key)
