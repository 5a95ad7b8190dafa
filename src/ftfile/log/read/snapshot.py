"""Snapshots: the live adds of a version for readers.

A snapshot is built from the newest compacted logs and the records after them. Kept records replace a missing or
damaged compacted log.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format import layout
from ftfile.log.read.add_table import AddBlock, AddTable, columns_of
from ftfile.log.read.compacted_records import CompactedFiles, cover, list_compacted, missing_record, read_compacted
from ftfile.log.state import Definitions
from ftfile.storage.calls import THREADS_MAX, parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.compacted import CompactedLog, Document
    from ftfile.log.format.layout import CompactedName
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# The table with the newest version that restored removed adds.
RESTORES = "restores"

TRIES, ADDED_TRIES = 100, 5
_ADVICE = Advice(Remedy("repair", dry_run=False), " rebuilds the compacted logs from the records")

_AnyBuilder = TypeVar("_AnyBuilder", bound="_Builder")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The live adds of a version, in the order of their records."""

    version: int = -1  # -1 for a log without records
    schema: str | None = None  # key of the newest schema
    definitions: dict[str, Any] = field(default_factory=dict)  # all definitions that the adds refer to, and others
    # By id, without the ranges of segments that parts were assembled from.
    adds: Mapping[str, Add] = field(default_factory=AddTable)
    compacted_to: int = -1  # the last version in complete compacted logs of this log without earlier records

    def newest_first(self) -> Iterator[Add]:
        """Yield the adds in reverse order; few more are decoded than consumed."""
        if isinstance(self.adds, AddTable):
            return self.adds.newest_first()
        return reversed([*self.adds.values()])


class SnapshotChanges(NamedTuple):
    """The adds that are only in one of two snapshots, in the order of their records."""

    added: list[Add]  # only in the second
    removed: list[Add]  # only in the first


def changes_between(first: Snapshot, second: Snapshot) -> SnapshotChanges:
    """Return the adds in which two snapshots differ; a restored add is equal to the original one."""
    before, after = set(map(layout.original_id, first.adds)), set(map(layout.original_id, second.adds))
    added = []
    for add in second.adds.values():
        if layout.original_id(add.id) not in before:
            added.append(add)
    removed = [add for add in first.adds.values() if layout.original_id(add.id) not in after]
    return SnapshotChanges(added, removed)


def live_columns(snapshot: Snapshot, names: Sequence[str]) -> Iterator[list[list[Any]]]:
    """Yield columns of the live adds, about 50,000 adds at a time, without decoding adds.

    `names` are names of fields in records, such as `lengthBytes`, but not paths, nor fields that few adds have.
    """
    adds = snapshot.adds
    yield from adds.columns(names) if isinstance(adds, AddTable) else [columns_of(adds.values(), names)]


def live_table(snapshot: Snapshot) -> AddTable:
    """Return the live adds as a table, for `AddTable.bounds` and `AddTable.select_possible`."""
    if isinstance(snapshot.adds, AddTable):
        return snapshot.adds
    return AddTable((), dict(snapshot.adds))


def take_snapshot(log: CommitLog, version: int | None = None, *, as_recorded: bool = False) -> Snapshot:
    """Return the snapshot of a version, by default of the head; ConfigError if the log does not have or keep it.

    Adds whose files a later version restored are returned as in that version, unless `as_recorded`.
    """
    for _ in range(TRIES):
        head = log.refresh()
        newest, oldest = head.version, head.log_start
        if version is not None and not oldest <= version <= newest:
            raise ConfigError(f"there is no version {version}: the newest is {newest}, the oldest {oldest}")
        error: CorruptData | None = None
        try:
            snapshot = (snapshot_at if as_recorded else snapshot_as_moved)(log, head, version)
        except CorruptData as found:
            error = found
        # A record that is not kept any more can be missing or dead.
        if log.refresh().log_start == oldest:
            if error is not None:
                raise error
            return snapshot
    raise CorruptData(layout.LOG, "the same oldest record", "a different one at each attempt", "Read again later")


def snapshot_at(
    log: CommitLog,
    head: LogState,
    version: int | None = None,
    since: int | None = None,
    *,
    verified_from: int | None = None,
) -> Snapshot:
    """Return the snapshot of a version of a log whose head is known.

    With `since`, it also contains adds that were live at that version or since then. Compacted logs that begin at
    `verified_from` or later are checked completely, also the bytes that this snapshot does not need. CorruptData if the
    records of an older head are not kept any more.
    """
    if version is None:
        version = head.version
    if since is None:
        since = version
    return _scan(log, head, lambda: _Builder(version, since, verified_from)).snapshot()


def last_removal(log: CommitLog, head: LogState, since: int, until: int) -> int:
    """Return the newest version after `since`, up to `until`, that removed adds; `since` if none did.

    CorruptData if the records of an older head are not kept any more.
    """
    return max(removals(log, head, since, until), default=since)


def removals(log: CommitLog, head: LogState, since: int, until: int) -> Collection[int]:
    """Return the versions after `since`, up to `until`, that removed adds; see `last_removal`."""
    if until > since:
        return _scan(log, head, lambda: _Removals(until, since)).removals()
    return ()


def _scan(log: CommitLog, head: LogState, new_builder: Callable[[], _AnyBuilder]) -> _AnyBuilder:
    """Return a builder with the compacted logs and records; start again if they are merged meanwhile."""
    seen: set[layout.CompactedName] | None = None
    while True:
        names = set(list_compacted(log.fs))
        builder = new_builder()
        try:
            builder.add_compacted(log, CompactedFiles(log, head, names))
            builder.add_records(log, head)
            builder.apply_removes()
        except CorruptData:
            # A listing can miss compacted logs that are merged meanwhile; one missing in two listings does not exist.
            if names == seen:
                raise
            seen = names
        else:
            return builder


def last_restore(head: LogState) -> int:
    """Return the newest version that is a restore; -1 for none."""
    table = head.tables.get(RESTORES)
    if table is None:
        entry = None
    else:
        entry = table.get("last")
    if entry is None:
        return -1
    return int(entry[1])


def moved_since(log: CommitLog, head: LogState, version: int) -> Mapping[str, Add]:
    """Return, by first id, each add that a restore after a version restored, as it was recorded last."""
    if last_restore(head) <= version:
        return {}
    moved: dict[str, Add] = {}
    for add in snapshot_at(log, head, since=max(version, head.log_start)).adds.values():
        restored = layout.restored_version(add.id)
        if restored > version and restored >= layout.restored_version(moved.get(layout.original_id(add.id), add).id):
            moved[layout.original_id(add.id)] = add
    return moved


def snapshot_as_moved(log: CommitLog, head: LogState, version: int | None = None) -> Snapshot:
    """Return `snapshot_at` with adds that were restored since as they were recorded last."""
    snapshot = snapshot_at(log, head, version)
    moved = moved_since(log, head, snapshot.version)
    if not moved:
        return snapshot
    adds = (moved.get(layout.original_id(add.id), add) for add in snapshot.adds.values())
    return replace(snapshot, adds={add.id: add for add in adds})


def read_records(log: CommitLog, limit: int | None = None) -> Iterator[Record]:
    """Yield the kept records, or the newest ones, oldest first.

    If the oldest kept version has changed afterwards, earlier records can have been dead.
    """
    head = log.refresh()
    newest = head.version
    if limit is None:
        version = head.log_start
    else:
        version = max(head.log_start, newest + 1 - limit)
    while version <= newest:
        for record in parallel(log.fs, log.read_record, range(version, min(version + THREADS_MAX, newest + 1))):
            if record is None:
                break
            yield record
            version += 1
        else:
            continue
        oldest = log.refresh().log_start
        if oldest <= version:
            raise missing_record(version)
        version = oldest


def added_by(log: CommitLog, version: int) -> Sequence[Add]:
    """Return the adds of a version; after its record is deleted, the ones in the newest snapshot."""
    for _ in range(ADDED_TRIES):
        if version < log.refresh().log_start:
            try:
                return _added_in_compacted(log.fs, version)
            except NotFound:
                continue  # a larger compacted log has replaced one since the listing
        record = log.read_record(version)
        # A record at a version before the log's start can be dead.
        if version < log.refresh().log_start:
            continue
        if record is None:
            break
        return record.adds
    raise missing_record(version)


def _added_in_compacted(fs: FileSystem, version: int) -> list[Add]:
    removed: set[str] = set()
    blocks: list[AddBlock] = []
    for name in cover(list_compacted(fs)):
        if name.last < version:
            continue
        content = read_compacted(fs, name, ended=False)
        removed.update(content.removes)
        for document in content.kept if name.first <= version else ():
            versions = document.versions()
            chosen = [added == version for added in versions.added]
            if any(chosen):
                blocks.append(AddBlock(document, versions.ids, chosen))
    for block in blocks:
        block.drop_removed(removed)
    adds: dict[str, Add] = {}
    for block in blocks:
        for add in block.adds():
            adds[add.id] = add
    return list(adds.values())


class _Builder:
    """Builds a snapshot, oldest versions first: without adds after `version`, with adds removed after `since`."""

    def __init__(self, version: int, since: int, verified_from: int | None = None) -> None:
        self._version = version
        self._since = since
        self._verified_from = verified_from
        self._end = -1
        self._blocks: list[AddBlock] = []
        self._others: dict[str, Add] = {}
        self._removed: set[str] = set()
        self._schema: str | None = None
        self._definitions: dict[str, Any] = {}
        self._compacted_to = -1

    def add_compacted(self, log: CommitLog, log_files: CompactedFiles) -> None:
        for content in self._read_compacted(log.fs, log_files):
            self._add_compacted(content)
        self._compacted_to = min(self._end, self._version)

    def add_records(self, log: CommitLog, head: LogState) -> None:
        for version in range(self._end + 1, self._version + 1):
            record = None
            if version >= head.log_start:
                record = log.read_record(version)
            if record is None:
                raise missing_record(version)
            self._add_record(record)

    def apply_removes(self) -> None:
        """Apply the removes of records to the adds of compacted logs; CorruptData if such an add is missing."""
        removed_count = sum(block.drop_removed(self._removed) for block in self._blocks)
        if removed_count != len(self._removed):
            actual = f"{len(self._removed) - removed_count} removes of other adds"
            raise CorruptData(layout.COMPACTED, "removes of live adds", actual, _ADVICE)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            version=self._version,
            schema=self._schema,
            definitions=Definitions(self._definitions),
            adds=AddTable(self._blocks, self._others),
            compacted_to=self._compacted_to,
        )

    def _read_compacted(self, fs: FileSystem, log_files: CompactedFiles) -> list[CompactedLog]:
        """Return a cover of complete compacted logs of this log; search another one if a file cannot be read."""

        def read(name: CompactedName) -> CompactedLog | None:
            is_verified = self._verified_from is not None and name.first >= self._verified_from
            try:
                # The adds that a compacted log removed itself are only read if they can be requested.
                ended = is_verified or name.last > self._since
                return self._check_content(read_compacted(fs, name, ended=ended, statistics=is_verified))
            except (NotFound, CorruptData) as error:
                _log.warning("a compacted log is ignored: %s", error)
                return None

        while True:
            chosen = cover(log_files.names, self._version)
            contents: list[CompactedLog] = []
            for name, content in zip(chosen, parallel(fs, read, chosen), strict=True):
                if content is None:
                    log_files.names.discard(name)
                else:
                    contents.append(content)
            if len(contents) == len(chosen) and log_files.find_foreign(contents, chosen) is None:
                return contents

    def _check_content(self, content: CompactedLog) -> CompactedLog:
        if content.log_start > self._since:
            raise CorruptData(
                layout.COMPACTED,
                f"a compacted log that contains version {self._since}",
                "a compacted log without this version",
            )
        return content

    def _add_compacted(self, content: CompactedLog) -> None:
        for document in content.kept:
            versions = document.versions()
            chosen = None
            if content.last > self._version:
                chosen = [added <= self._version for added in versions.added]
            self._add_block(document, versions.ids, chosen)
        for document in (content.ended or ()) if content.last > self._since else ():
            versions = document.versions()
            both = zip(versions.added, versions.removed, strict=True)
            chosen = [added <= self._version and removed > self._since for added, removed in both]
            self._add_block(document, versions.ids, chosen)
        for add_id, removed in content.removes.items():
            if removed <= self._since:
                self._removed.add(add_id)
        for version, key in content.schemas:
            if version <= self._version:
                self._schema = key
        self._definitions.update(content.definitions)
        self._end = content.last

    def _add_block(self, document: Document, ids: Sequence[str], chosen: Sequence[bool] | None) -> None:
        if chosen is None or any(chosen):
            self._blocks.append(AddBlock(document, ids, chosen))

    def _add_record(self, record: Record) -> None:
        for remove in record.removes if record.version <= self._since else ():
            if self._others.pop(remove.id, None) is None:
                self._removed.add(remove.id)
        for add in record.adds:
            self._others[add.id] = add
            if add.ranges:
                self._others[add.id] = structs.replace(add, ranges=())
        self._schema = record.schema or self._schema
        self._definitions.update(record.definitions)
        self._end = record.version


class _Removals(_Builder):
    """Finds the versions that removed adds, without decoding adds."""

    def __init__(self, version: int, since: int) -> None:
        super().__init__(version, since)
        self._versions: set[int] = set()

    def removals(self) -> Collection[int]:
        return self._versions

    def _add_compacted(self, content: CompactedLog) -> None:
        ended = (document.versions().removed for document in content.ended or ())
        versions = itertools.chain(content.removes.values(), *ended)
        self._versions.update(version for version in versions if self._since < version <= self._version)
        self._end = content.last

    def _add_record(self, record: Record) -> None:
        if record.removes and record.version > self._since:
            self._versions.add(record.version)
        self._end = record.version


def not_vacuumed(log: CommitLog, head: LogState) -> Collection[str] | None:
    """Return the ids of the adds whose files vacuums up to this head keep; None for all."""
    if head.vacuumed_to == 0:
        return None
    return snapshot_at(log, head, since=max(head.vacuumed_to, head.log_start)).adds


def oldest_readable(log: CommitLog, head: LogState) -> int:
    """Return the oldest version without vacuumed files."""
    return last_removal(log, head, head.log_start, head.vacuumed_to)
