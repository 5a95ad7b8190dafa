"""The expected content of the directory, followed record by record."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.core.errors import NotFound
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, StreamAuthor
from ftfile.log.records import CLOCK_ERROR_MS
from ftfile.testing.checker import rows_of_add
from ftfile.testing.log_check import InvariantViolation, require
from tests.histories.decoding import decode_once

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from ftfile.log.format.model import Add, Author, Record
    from ftfile.storage.api import FileSystem

    RowsOf = Callable[[bytes], list[Hashable]]


_VALUE = re.compile(rb'"value":"([^"]*)"')


# The frame of LZ4 after the length of an open file's rows, which are one batch of Arrow.
_LENGTH_BYTES, _LZ4 = 8, b"\x04\x22\x4d\x18"


def rows_in(columns: Mapping[str, Any]) -> RowsOf:
    """Return a function that returns the values in the content of a file, or of a piece of an open file."""
    types = {"value": pa.string(), "t": pa.timestamp("us", "UTC")}
    schema = pa.schema([(name, types[name]) for name in columns if name in types])

    def rows_of(content: bytes) -> list[Hashable]:
        if content.startswith(b"{"):
            return list(_VALUE.findall(content))
        if content.startswith(b"PAR1"):
            values = pq.read_table(pa.BufferReader(content), columns=["value"])["value"].to_pylist()
        elif content.startswith(b"Obj\x01"):
            rows: Iterable[Any] = fastavro.reader(io.BytesIO(content))
            values = [row["value"] for row in rows]
        elif content[_LENGTH_BYTES:].startswith(_LZ4):
            size_bytes = int.from_bytes(content[:_LENGTH_BYTES], "little")
            message = pa.Codec("lz4").decompress(content[_LENGTH_BYTES:], size_bytes)
            values = pa.ipc.read_record_batch(message, schema)["value"].to_pylist()
        else:
            return [line.partition(b",")[0] for line in content.splitlines()]
        return [value.encode() for value in values]

    return rows_of


@dataclass(frozen=True, slots=True)
class Claim:
    """The rows that a writer is about to commit. Each row is unique and begins with its directory and a bar."""

    rows: frozenset[bytes]
    overwrite: bool = False
    replaced: frozenset[bytes] = frozenset()  # directories whose rows they replace


@dataclass
class Oracle:
    """Follows the log only by its records and compares it with the claims of writers. Every row is unique."""

    fs: FileSystem  # the storage without injected faults
    rows_in: RowsOf  # the rows of a content
    on_record: Callable[[Author], None]  # called for each followed record
    claims: dict[Hashable, Claim] = field(default_factory=dict)  # by author
    dropping: frozenset[str] | None = None  # directories of the running drop
    deleting: Callable[[bytes], bool] | None = None  # True for the rows that the running delete removes
    expected: set[bytes] = field(default_factory=set)  # rows that must exist
    live: dict[str, Add] = field(default_factory=dict)  # adds of the head
    rows: dict[str, frozenset[bytes]] = field(default_factory=dict)  # by id of an add
    spools: dict[str, list[Add]] = field(default_factory=dict)  # all segments that were ever in a spool
    removed: dict[str, Add] = field(default_factory=dict)  # by final name
    published_by_queries: list[Add] = field(default_factory=list)  # of batches, batch writes and flushes
    damaged: set[str] = field(default_factory=set)  # ids of unreadable adds and of their copies
    guessed: set[str] = field(default_factory=set)  # ids of damaged adds whose rows are a guess
    damaged_paths: set[str] = field(default_factory=set)
    of_file: dict[str, dict[str, Add]] = field(default_factory=dict)  # adds by id, by the id before restores
    changes: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)  # added and removed, by version
    vacuums: set[int] = field(default_factory=set)  # versions
    records: int = 0  # number of followed records
    times_ms: dict[tuple[str, int], int] = field(default_factory=dict)  # by query and batch: when its record was seen
    done: dict[Hashable, int] = field(default_factory=dict)  # versions of the claims that are in the log
    is_troubled: bool = False  # the storage fails, so writers may have a wrong time
    event_us: dict[bytes, int] = field(default_factory=dict)  # by row with a time
    definitions: dict[str, Any] = field(default_factory=dict)  # of all records
    windows: dict[str, tuple[int, int]] = field(default_factory=dict)  # start and end, by id of a segment with a window
    _found: set[bytes] = field(default_factory=set)
    _names: set[str] = field(default_factory=set)  # final names of the live parts

    @property
    def first_rows(self) -> int | None:
        """Return the first version with rows; None if no version has rows."""
        for version, (added, _) in enumerate(self.changes):
            if added:
                return version
        return None

    def follow(self, now_ms: int) -> list[Record]:
        """Read the new records, which were written at this time, and check that each row exists once."""
        new: list[Record] = []
        while (record := self._read(self.records)) is not None:
            self.records += 1
            new.append(record)
            self._take(record, now_ms)
        if new:
            missing, more = self.expected - self._found, self._found - self.expected
            require(not missing, "rows", f"{len(missing)} are missing since version {new[0].version}: {_some(missing)}")
            require(not more, "rows", f"{len(more)} are too many since version {new[0].version}: {_some(more)}")
        return new

    def rows_at(self, version: int | None) -> tuple[set[bytes], set[bytes]]:
        """Return the rows of undamaged and of damaged adds of a version; of the newest version for None."""
        ids = set(self.live)
        for added, removed in reversed(self.changes[version + 1 :] if version is not None else ()):
            ids = (ids - added) | removed
        undamaged: set[bytes] = set()
        undamaged.update(*(self.rows[add_id] for add_id in ids - self.damaged))
        damaged: set[bytes] = set()
        damaged.update(*(self.rows[add_id] for add_id in ids & self.damaged))
        return undamaged, damaged

    def mark_damaged(self, adds: Iterable[Add]) -> None:
        """Mark these adds as damaged, and all adds of the same file before and after restores."""
        for marked in adds:
            for add in (marked, *self.of_file.get(layout.original_id(marked.id), {}).values()):
                self.damaged.add(add.id)
                self.damaged_paths.update((add.path, add.final_path or add.path, layout.retired_path(add.id)))

    def _read(self, version: int) -> Record | None:
        path = layout.record_path(version)
        try:
            content = self.fs.read(path)
        except NotFound:
            return None
        return decode_once(content, path, self.fs.read)

    def _take(self, record: Record, now_ms: int) -> None:
        self.on_record(record.author)
        self._expect(record, now_ms)
        self._check_time(record)
        self.definitions |= record.definitions
        added, removed = (frozenset(change.id for change in changes) for changes in (record.adds, record.removes))
        self.changes.append((added, removed))
        if _is_of(record.author, "vacuum", "expire"):
            self.vacuums.add(record.version)
        gone: list[bytes] = []
        for remove in record.removes:
            add = self.live.pop(remove.id, None)
            require(add is not None, "I7", f"version {record.version} removes {remove.id}, which is not live")
            if add is not None and add.final_path is not None:
                self.removed[add.final_path] = add
                self._names.discard(add.final_path)
            gone += self.rows[remove.id]
        self._found.difference_update(gone)
        names = [add.final_path for add in record.adds if add.final_path is not None]
        again = not self._names.isdisjoint(names) or len(names) > len(set(names))
        require(not again, "I6", f"version {record.version} gives names again of live parts")
        self._names.update(names)
        for add in sorted(record.adds, key=self._is_copy_of_damage):
            rows = self._rows_of(add, gone)
            self.live[add.id], self.rows[add.id] = add, rows
            self.of_file.setdefault(layout.original_id(add.id), {})[add.id] = add
            if add.kind == "segment":
                self.spools.setdefault(add.path, []).append(add)
            require(len(rows) == add.rows, "rows", f"{add.id} has rows twice")
            require(not rows & self._found, "rows", f"{add.id} repeats existing rows: {_some(rows & self._found)}")
            strange = [row for row in rows if f"m={row.partition(b'|')[0].decode()}" != add.directory_key]
            require(not strange, "rows", f"{add.id} of {add.directory_key!r} has {strange}")
            self._found |= rows
            self._check_window(add, rows)
            if add.final_path is not None and not _is_of(record.author, "compact", "delete", "restore", "undo"):
                self.published_by_queries.append(add)
        self._check_settings(record)

    def _check_settings(self, record: Record) -> None:
        """Check that a plain reader can read all live files with one end of lines."""
        if not record.adds:
            return
        ends = {self.definitions[add.encoding]["format"].get("lineSep") for add in self.live.values()}
        require(len(ends) == 1, "settings", f"since version {record.version}, lines of live files end by {ends}")

    def _check_time(self, record: Record) -> None:
        """Check that a record has the time of the storage's clock, even if the clock of its author is wrong."""
        error_ms = record.created_ms - self.fs.stat(layout.record_path(record.version)).modified_ms
        is_right = abs(error_ms) <= 2 * CLOCK_ERROR_MS or self.is_troubled
        require(is_right, "time", f"version {record.version} has a time that is wrong by {error_ms} ms")

    def _check_window(self, add: Add, rows: Iterable[bytes]) -> None:
        """Check that the rows of a segment, or of a part's segments, belong to one window of event time."""
        sources = [add.id] if add.kind == "segment" else [source.add_id for source in add.ranges]
        if "windowUs" in add.rolling_stats:
            start, end = self.windows[add.id] = tuple(add.rolling_stats["windowUs"])
            require(start % (end - start) == 0, "window", f"{add.id} has a window from {start} to {end}")
        windows = {self.windows.get(segment_id) for segment_id in sources}
        require(len(windows) < 2, "window", f"{add.id} has rows of {len(windows)} windows")
        if add.id in self.damaged:
            return  # the rows of a damaged add are a guess
        for start, end in filter(None, windows):
            times_us = [self.event_us[row] for row in rows if row in self.event_us]
            outside = [time_us for time_us in times_us if not start <= time_us < end]
            require(not outside, "window", f"{add.id} has rows of {outside}, and its window is {start} to {end}")

    def _is_copy_of_damage(self, add: Add) -> bool:
        sources = {source.add_id for source in add.ranges} | {add.id.rpartition(".")[0]}
        return not self.damaged.isdisjoint(sources)

    def _rows_of(self, add: Add, gone: Iterable[bytes]) -> frozenset[bytes]:
        """Return the rows of an add. For a copy of a damaged add, guess them: removed rows that no other add has."""
        try:
            rows: list[Any] = rows_of_add(self.fs, add, self.rows_in)
            return frozenset(rows)
        except InvariantViolation:
            if not self._is_copy_of_damage(add):
                raise
        self.mark_damaged([add])
        for before in self.of_file.get(layout.original_id(add.id), ()):
            return self.rows[before]  # a restore moves the file
        self.guessed.add(add.id)
        return frozenset([row for row in gone if row not in self._found][: add.rows])

    def _expect(self, record: Record, now_ms: int) -> None:
        author = record.author
        if _is_of(author, "restore", "undo"):
            undamaged, damaged = (set(), set()) if record.restored is None else self.rows_at(record.restored)
            self.expected = undamaged | damaged
            return
        if isinstance(author, MaintenanceAuthor):
            if author.operation == "drop":
                require(self.dropping is not None, "rows", "a drop is recorded that no step runs")
                dropped = self.dropping or ()
                self.expected = {row for row in self.expected if row.partition(b"|")[0].decode() not in dropped}
            if author.operation == "delete":
                if self.deleting is None:
                    raise InvariantViolation("rows", "a delete is recorded that no step runs")
                deleting = self.deleting
                self.expected = {row for row in self.expected if not deleting(row)}
            return
        key = key_of_author(author)
        require(key in self.claims, "I2", f"{author} is in the log without a claim of a writer")
        require(key not in self.done, "I2", f"{author} is in the log twice")
        self.done[key] = record.version
        if isinstance(author, StreamAuthor):
            self.times_ms[author.query_id, author.batch_id] = now_ms
        claim = self.claims[key]
        if claim.overwrite:
            self.expected.clear()
        if claim.replaced:
            self.expected = {row for row in self.expected if row.partition(b"|")[0] not in claim.replaced}
        self.expected |= claim.rows


def key_of_author(author: StreamAuthor | BatchWriteAuthor) -> Hashable:
    """Return the key of a writer's claim."""
    if isinstance(author, StreamAuthor):
        return author.query_id, author.batch_id
    if author.transaction is not None:
        return author.transaction.app_id, author.transaction.version
    return author.operation_id


def _is_of(author: Author, *operations: str) -> bool:
    return isinstance(author, MaintenanceAuthor) and author.operation in operations


def _some(rows: Iterable[bytes]) -> list[bytes]:
    return sorted(rows)[:5]
