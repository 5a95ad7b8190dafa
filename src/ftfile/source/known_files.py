"""The known files of a source, computed from its plans only.

Storage is not read, so every process computes the same known files.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.errors import CorruptData
from ftfile.source.known_rows import KEY_BYTES, ROW, KnownFile, identity_hash, is_parked, key_of, packed_rows

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from ftfile.source.plan import FileEntry, Range, SourcePlan


_KEY = struct.Struct("<QQ")
_HEADER = struct.Struct("<8sqQ?qQI")
_MAGIC = b"ftknown2"
# Maximum of pending changes, absolute and as a share of the rows. More changes are merged into the columns.
_PENDING_MIN, _PENDING_SHARE = 4096, 64


class KnownFiles:
    """All files known after a plan. Immutable."""

    def __init__(self) -> None:
        self.low = 0  # files modified before it, in ms since 1970 UTC, are forgotten
        self.late = 0  # number of all late files
        self.is_begun = False  # True after the first plan
        self.planned_ms = 0  # time of the newest plan by the clock of its driver
        self._rows: NDArray[Any] = np.empty(0, ROW)
        self._pending: dict[bytes, bytes | None] = {}  # rows by key; None for removed rows

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownFiles) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment] # as of every container that is compared by content

    @property
    def rows(self) -> NDArray[Any]:
        """Return all rows, sorted by key, as an array of `ROW`."""
        if self._pending:
            self._rows, self._pending = _merge_rows(self._rows, self._pending, self.low), {}
        return self._rows

    def find(self, highs: NDArray[np.uint64], lows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the places of keys in `rows`; -1 for unknown keys. Keys are given as two halves."""
        return _find(self.rows, highs, lows)

    def get(self, key: bytes) -> KnownFile | None:
        """Return the file with a key, or None."""
        if key in self._pending:
            row = self._pending[key]
        else:
            row = _find_one(self._rows, key)
        if row is None:
            file = None
        else:
            file = KnownFile.unpack(row)
        if file is not None and file.modified_ms >= self.low:
            return file
        return None

    def parked_keys(self) -> set[bytes]:
        """Return the keys of the files that are skipped until they change."""
        rows = self.rows
        return {row[:KEY_BYTES] for row in packed_rows(rows[is_parked(rows)])}

    def apply(self, plan: SourcePlan) -> KnownFiles:
        """Return the known files after a plan."""
        made = KnownFiles()
        made.low = max(self.low, plan.low)
        made.late = self.late + len(plan.late)
        made.is_begun = True
        made.planned_ms = plan.planned_ms
        made._rows, made._pending = self._rows, {**self._pending, **self._changes(plan)}
        if made.low > self.low and not made._pending:
            made._rows = _select_young(made._rows, made.low)
        if len(made._pending) > max(_PENDING_MIN, len(made._rows) // _PENDING_SHARE):
            made._rows, made._pending = made.rows, {}
        return made

    def _changes(self, plan: SourcePlan) -> dict[bytes, bytes | None]:
        """Return the rows that a plan changes, by key; None for removed rows."""
        changes: dict[bytes, bytes | None] = {}
        for entry in plan.files:
            for previous_key in entry.previous_keys:
                changes[bytes.fromhex(previous_key)] = None
        displaced: dict[bytes, KnownFile] = {}  # by the key of the path
        for entry in plan.files:
            file = None
            if entry.displaces:
                file = self.get(key_of(plan.root, entry.path))
            if file is not None and file.key not in changes:
                displaced[file.key] = file.displace()
                changes |= {file.key: None, displaced[file.key].key: displaced[file.key].pack()}
        ranges = {planned.path: planned for planned in plan.ranges}
        for planned in plan.ranges:
            file = _known_file(plan.root, planned, planned.end)
            changes[file.key] = file.pack()
        for entry in plan.files:
            file = _known_file(plan.root, entry, entry.position, parked=bool(entry.parked))
            changes[file.key] = file.pack()
        for entry in plan.files:
            key = bytes.fromhex(entry.advances)
            gone = displaced.get(key) or (self.get(key) if key and key not in changes else None)
            if gone is not None:
                changes[gone.key] = _advance_file(gone, ranges[entry.path]).pack()
        return changes

    def to_bytes(self) -> bytes:
        """Return the columns as bytes. Equal files have equal bytes."""
        content = self.rows.tobytes()
        counts = self.low, self.late, self.is_begun, self.planned_ms, len(self.rows)
        return _HEADER.pack(_MAGIC, *counts, zlib.crc32(content)) + content

    @classmethod
    def from_bytes(cls, data: bytes) -> KnownFiles:
        """Return the files of bytes from `to_bytes`.

        Raises:
            CorruptData: the bytes are damaged or of another layout.
        """
        made = cls()
        content = memoryview(data)[_HEADER.size :]
        try:
            magic, made.low, made.late, made.is_begun, made.planned_ms, count, checksum = _HEADER.unpack_from(data)
        except struct.error:
            magic, count, checksum = b"", 0, 0
        is_right = magic == _MAGIC and len(content) == count * ROW.itemsize and zlib.crc32(content) == checksum
        if not is_right:
            raise CorruptData("known files", "columns with their checksum", f"{len(data)} other bytes")
        made._rows = np.frombuffer(content, ROW)
        return made


def _known_file(root: str, part: Range | FileEntry, position: int, *, parked: bool = False) -> KnownFile:
    return KnownFile(
        key=key_of(root, part.path),
        position=position,
        size_bytes=part.size_bytes,
        modified_ms=part.modified_ms,
        identity=identity_hash(part.identity),
        head=part.head,
        tail=part.tail,
        is_parked=parked,
    )


def _advance_file(file: KnownFile, planned: Range) -> KnownFile:
    """Return the new state of a deleted file after a range of its compressed copy was read."""
    modified_ms = max(file.modified_ms, planned.modified_ms)
    file = file._replace(position=planned.end, size_bytes=planned.end, modified_ms=modified_ms)
    return file._replace(head=planned.head, tail=planned.tail)


def _select_young(rows: NDArray[Any], low: int) -> NDArray[Any]:
    is_young = rows["modified"] >= low
    if is_young.all():
        return rows
    return rows[is_young]


def _find(rows: NDArray[Any], highs: NDArray[np.uint64], lows: NDArray[np.uint64]) -> NDArray[np.intp]:
    if not len(rows):
        return np.full(len(highs), -1, np.intp)
    column = np.ascontiguousarray(rows["high"])
    places = np.searchsorted(column, highs)
    while True:
        at = np.minimum(places, len(rows) - 1)
        is_near = (places < len(rows)) & (column[at] == highs)
        is_found = is_near & (rows["low"][at] == lows)
        if np.array_equal(is_near, is_found):
            return np.where(is_found, at, -1)
        places = np.where(is_near & ~is_found, places + 1, places)  # keys with equal first halves


def _find_one(rows: NDArray[Any], key: bytes) -> bytes | None:
    """Return the row of a key. Only rows near the key are read."""
    high, low = _KEY.unpack(key)
    place = bisect_left(rows["high"], high)
    while place < len(rows) and rows["high"][place] == high:
        if rows["low"][place] == low:
            return bytes(rows[place].tobytes())
        place += 1
    return None


def _merge_rows(rows: NDArray[Any], changes: dict[bytes, bytes | None], low: int) -> NDArray[Any]:
    halves = np.frombuffer(b"".join(changes), np.dtype("<u8")).reshape(-1, 2)
    places = _find(rows, halves[:, 0], halves[:, 1])
    kept = np.delete(rows, places[places >= 0])
    added = np.frombuffer(b"".join(row for row in changes.values() if row is not None), ROW)
    added = added[np.lexsort((added["low"], added["high"]))]
    both = np.insert(kept, np.searchsorted(kept["high"], added["high"]), added)
    if np.any(both["high"][1:] == both["high"][:-1]):
        both = both[np.lexsort((both["low"], both["high"]))]
    return _select_young(both, low)
