"""The files that were read, or looked at, as columns; how far each may be read, and fingerprints of what was read.

They are of the first KiB and the last KiB before a position, as Fluent Bit and Vector tell files by their beginnings.

Nothing here asks a store: the known files follow from the plans alone, in every process in the same way.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftfile.core.codecs import codec_of
from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    from ftfile.read.foreign.plan import FileEntry, Plan, Range

    Read: TypeAlias = Callable[[int, int], bytes]


_CHUNK_BYTES = 64 << 10

_LZ4_FRAME = bytes.fromhex("04224d18")

WINDOW_BYTES = 1024
CONTENT_BYTES_MIN = 256  # shorter ones are too often equal by chance, such as two logs with one header
START_BYTES = 4  # of the half of a head that is of the first 256 bytes


def codec_in(path: str, read: Read) -> str:
    """Return the codec of a file, by the ending of its path and its first bytes."""
    return codec_as_written(codec_of(path), read)


def codec_as_written(codec: str, read: Read) -> str:
    """Return the codec of a file: `.lz4` is written in Hadoop's blocks, or in the frames of the command `lz4`."""
    return "lz4frame" if codec == "lz4" and read(0, len(_LZ4_FRAME)) == _LZ4_FRAME else codec


def end_of_lines(read: Read, start: int, size: int, separator: bytes, limit: int | None = None) -> int:
    """Return the end of the whole lines from `start` on, in the first `limit` bytes; `start` if there is none.

    A first line that is longer than the limit is taken as a whole. The separator does not end as it begins.
    """
    bound = size if limit is None else min(size, start + limit)
    end = last_line_end(read, start, bound, separator)
    if end is None and bound < size:
        end = first_line_end(read, max(start, bound - len(separator) + 1), size, separator)
    return start if end is None else end


def last_line_end(read: Read, start: int, end: int, separator: bytes) -> int | None:
    """Return the last end of a line in `(start, end]`; None if there is none."""
    high = end
    while high > start:
        low = max(start, high - _CHUNK_BYTES)
        piece = read(low, min(end, high + len(separator) - 1) - low)
        found = piece.rfind(separator)
        if found >= 0:
            return low + found + len(separator)
        high = low
    return None


def first_line_end(read: Read, begin: int, size: int, separator: bytes) -> int | None:
    """Return the first end of a line behind `begin`; None if there is none."""
    low = begin
    while low < size:
        piece = read(low, min(size - low, _CHUNK_BYTES + len(separator) - 1))
        found = piece.find(separator)
        if found >= 0:
            return low + found + len(separator)
        low += _CHUNK_BYTES
    return None


class Fingerprints(NamedTuple):
    """Of the content before a position, 64 bits each, as hexadecimal digits."""

    head: str  # 8 digits of the first 256 bytes, by which contents are looked up, and 8 of the first KiB
    tail: str  # of the last KiB

    @property
    def start(self) -> str:
        """Return the digits of the first 256 bytes."""
        return self.head[: 2 * START_BYTES]


NO_PRINTS = Fingerprints("", "")  # of a file of which nothing was read


def fingerprints(read: Callable[[int, int], bytes], position: int) -> Fingerprints | None:
    """Return the fingerprints of the content before `position`; None if there is less of it.

    `read(offset, length)` returns as many bytes as asked for, or fewer at the end.
    """
    length = min(position, WINDOW_BYTES)
    head = read(0, length)
    tail = head if position <= WINDOW_BYTES else read(position - length, length)
    if len(head) < length or len(tail) < length:
        return None
    return _fingerprints(head, tail)


def marks_of(pieces: Iterable[bytes], positions: Iterable[int]) -> tuple[int, dict[int, Fingerprints]]:
    """Return the length of a content, and the fingerprints at its end and at positions, as far as there is so much."""
    wanted, done = sorted(set(positions), reverse=True), {}
    head, window, size = b"", b"", 0
    for piece in pieces:
        head += piece[: WINDOW_BYTES - len(head)]
        window += piece
        size += len(piece)
        while wanted and wanted[-1] <= size:
            position = wanted.pop()
            done[position] = _marks_at(head, window, size - len(window), position)
        window = window[-WINDOW_BYTES:]
    return size, {**done, size: _marks_at(head, window, size - len(window), size)}


def _marks_at(head: bytes, window: bytes, begin: int, position: int) -> Fingerprints:
    """Return the fingerprints at a position, of the first bytes of a content and of those from `begin` on."""
    length, end = min(position, WINDOW_BYTES), position - begin
    tail = head if position <= WINDOW_BYTES else window[end - length : end]
    return _fingerprints(head[:length], tail[:length])


def _fingerprints(head: bytes, tail: bytes) -> Fingerprints:
    return Fingerprints(_digest(head[:CONTENT_BYTES_MIN], START_BYTES) + _digest(head, START_BYTES), _digest(tail, 8))


def _digest(data: bytes, size: int) -> str:
    return hashlib.blake2b(data, digest_size=size).hexdigest()


ROW = np.dtype(
    [
        ("high", "<u8"),  # of the key, by which rows are sorted
        ("low", "<u8"),
        ("position", "<i8"),  # of a parked file: -1 - position
        ("size", "<i8"),  # -1 if it is unknown; of a displaced file: -3 - size
        ("modified", "<i8"),
        ("identity", "<u8"),
        ("head", "<u8"),
        ("tail", "<u8"),
    ]
)
_DISPLACED = -3  # less the size: no other size is less than -1
KEY_BYTES = 16  # with which each row begins
NO_IDENTITY = bytes(8)
_KEY = struct.Struct("<QQ")
_PACKED = struct.Struct("<16sqqq8s8s8s")
_HEADER = struct.Struct("<8sqQ?qQI")
_MAGIC = b"ftknown1"
# Changes beyond this, and beyond this share of the rows, are merged into the columns.
_PENDING_MIN, _PENDING_SHARE = 4096, 64


def key_of(root: str, path: str) -> bytes:
    """Return the key of a path below the URL of a root: 128 bits, the same ones for each root above it."""
    text = root + path if root.endswith("/") else f"{root}/{path}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


def identity_hash(identity: str | None) -> bytes:
    """Return 64 bits of a store's name of a file; zeros for none."""
    return NO_IDENTITY if identity is None else hashlib.blake2b(identity.encode(), digest_size=8).digest()


def known_sizes(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the size with which each file is known, displaced ones included; -1 for an unknown one."""
    sizes: NDArray[np.int64] = rows["size"]
    return np.maximum(sizes, _DISPLACED - sizes)


def read_positions(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position up to which each file was read, parked ones included."""
    position: NDArray[np.int64] = rows["position"]
    return np.maximum(position, -1 - position)


class KnownFile(NamedTuple):
    """The state of one known file."""

    key: bytes
    position: int  # up to which its content was read
    size_bytes: int
    modified_ms: int
    identity: bytes
    head: str  # fingerprints before `position`, as hexadecimal digits
    tail: str
    is_parked: bool = False
    is_displaced: bool = False  # another file lies at its path; its own key is no path's

    @classmethod
    def unpacked(cls, row: bytes) -> KnownFile:
        """Return the file of a row."""
        key, position, size, modified, identity, head, tail = _PACKED.unpack(row)
        is_parked = position < 0
        position = -1 - position if is_parked else position
        is_displaced = size < -1
        size = _DISPLACED - size if is_displaced else size
        return cls(key, position, size, modified, identity, head.hex(), tail.hex(), is_parked, is_displaced)

    def packed(self) -> bytes:
        """Return the file as a row."""
        position = -1 - self.position if self.is_parked else self.position
        size_bytes = _DISPLACED - self.size_bytes if self.is_displaced else self.size_bytes
        head, tail = _bytes(self.head), _bytes(self.tail)
        return _PACKED.pack(self.key, position, size_bytes, self.modified_ms, self.identity, head, tail)

    @property
    def fingerprints(self) -> Fingerprints:
        """Return those before the position."""
        return Fingerprints(self.head, self.tail)

    def displaced_key(self) -> bytes:
        """Return the key under which the file stays known when another one lies at its path."""
        return hashlib.blake2b(self.packed(), digest_size=KEY_BYTES).digest()

    def displaced(self) -> KnownFile:
        """Return the file as it stays known when another one lies at its path."""
        return self._replace(key=self.displaced_key(), is_displaced=True)


class KnownFiles:
    """All known files after some plans; immutable."""

    def __init__(self) -> None:
        self.low = 0  # files modified before it, in ms since 1970 UTC, are forgotten
        self.late = 0  # number of files that were late, ever
        self.is_begun = False  # False before the first plan
        self.planned_ms = 0  # when the newest plan was made, by the clock of its driver
        self._rows: NDArray[Any] = np.empty(0, ROW)
        self._pending: dict[bytes, bytes | None] = {}  # rows by key, None for removed ones

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownFiles) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment] # as of every container that is compared by content

    @property
    def rows(self) -> NDArray[Any]:
        """Return all rows, sorted by key, as an array of `ROW`."""
        if self._pending:
            self._rows, self._pending = _merged(self._rows, self._pending, self.low), {}
        return self._rows

    def find(self, highs: NDArray[np.uint64], lows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the places in `rows` of keys, given as their two halves; -1 for unknown ones."""
        return _find(self.rows, highs, lows)

    def get(self, key: bytes) -> KnownFile | None:
        """Return the file with a key, or None."""
        row = self._pending[key] if key in self._pending else _find_one(self._rows, key)
        file = None if row is None else KnownFile.unpacked(row)
        return file if file is not None and file.modified_ms >= self.low else None

    def parked_keys(self) -> set[bytes]:
        """Return the keys of the files that are left out until they change."""
        rows = self.rows
        data = rows[rows["position"] < 0].tobytes()
        return {data[at : at + KEY_BYTES] for at in range(0, len(data), ROW.itemsize)}

    def apply(self, plan: Plan) -> KnownFiles:
        """Return the known files after a plan."""
        made = KnownFiles()
        made.low = max(self.low, plan.low)
        made.late = self.late + len(plan.late)
        made.is_begun = True
        made.planned_ms = plan.planned_ms
        made._rows, made._pending = self._rows, {**self._pending, **self._changes(plan)}
        if made.low > self.low and not made._pending:
            made._rows = _young(made._rows, made.low)
        if len(made._pending) > max(_PENDING_MIN, len(made._rows) // _PENDING_SHARE):
            made._rows, made._pending = made.rows, {}
        return made

    def _changes(self, plan: Plan) -> dict[bytes, bytes | None]:
        """Return the rows that a plan changes, by key; None for removed ones."""
        keys = (key for entry in plan.files for key in entry.previous_keys)
        changes: dict[bytes, bytes | None] = {bytes.fromhex(key): None for key in keys}
        displaced: dict[bytes, KnownFile] = {}  # by the key of the path
        for entry in plan.files:
            file = self.get(key_of(plan.root, entry.path)) if entry.displaces else None
            if file is not None and file.key not in changes:
                displaced[file.key] = file.displaced()
                changes |= {file.key: None, displaced[file.key].key: displaced[file.key].packed()}
        ranges = {planned.path: planned for planned in plan.ranges}
        for planned in plan.ranges:
            file = _known_file(plan.root, planned, planned.end)
            changes[file.key] = file.packed()
        for entry in plan.files:
            file = _known_file(plan.root, entry, entry.position, is_parked=bool(entry.parked))
            changes[file.key] = file.packed()
        for entry in plan.files:
            key = bytes.fromhex(entry.advances)
            gone = displaced.get(key) or (self.get(key) if key and key not in changes else None)
            if gone is not None:
                changes[gone.key] = _advanced(gone, ranges[entry.path]).packed()
        return changes

    def to_bytes(self) -> bytes:
        """Return the columns as bytes: the same ones for the same files."""
        content = self.rows.tobytes()
        counts = self.low, self.late, self.is_begun, self.planned_ms, len(self.rows)
        return _HEADER.pack(_MAGIC, *counts, zlib.crc32(content)) + content

    @classmethod
    def from_bytes(cls, data: bytes) -> KnownFiles:
        """Return the files that `to_bytes` stored; raises `CorruptData` for anything else."""
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


def _known_file(root: str, part: Range | FileEntry, position: int, *, is_parked: bool = False) -> KnownFile:
    marks = part.size_bytes, part.modified_ms, identity_hash(part.identity)
    return KnownFile(key_of(root, part.path), position, *marks, part.head, part.tail, is_parked)


def _advanced(file: KnownFile, planned: Range) -> KnownFile:
    """Return a file that is gone, as it is known when a range of its compressed copy was read."""
    modified_ms = max(file.modified_ms, planned.modified_ms)
    file = file._replace(position=planned.end, size_bytes=planned.end, modified_ms=modified_ms)
    return file._replace(head=planned.head, tail=planned.tail)


def _bytes(digits: str) -> bytes:
    return bytes.fromhex(digits).ljust(8, b"\0")


def _young(rows: NDArray[Any], low: int) -> NDArray[Any]:
    is_young = rows["modified"] >= low
    return rows if is_young.all() else rows[is_young]


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
        places = np.where(is_near & ~is_found, places + 1, places)  # keys with one first half


def _find_one(rows: NDArray[Any], key: bytes) -> bytes | None:
    """Return the row of a key, without a look at all rows."""
    high, low = _KEY.unpack(key)
    place = bisect_left(rows["high"], high)
    while place < len(rows) and rows["high"][place] == high:
        if rows["low"][place] == low:
            return bytes(rows[place].tobytes())
        place += 1
    return None


def _merged(rows: NDArray[Any], changes: dict[bytes, bytes | None], low: int) -> NDArray[Any]:
    halves = np.frombuffer(b"".join(changes), np.dtype("<u8")).reshape(-1, 2)
    places = _find(rows, halves[:, 0], halves[:, 1])
    kept = np.delete(rows, places[places >= 0])
    added = np.frombuffer(b"".join(row for row in changes.values() if row is not None), ROW)
    added = added[np.lexsort((added["low"], added["high"]))]
    both = np.insert(kept, np.searchsorted(kept["high"], added["high"]), added)
    if np.any(both["high"][1:] == both["high"][:-1]):
        both = both[np.lexsort((both["low"], both["high"]))]
    return _young(both, low)
