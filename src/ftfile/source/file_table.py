"""A listing compared with the known files, as columns: the files that may have unread content."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ftfile.core.per_process import cached_property
from ftfile.source.contents import CONTENT_BYTES_MIN
from ftfile.source.known_rows import KEY_BYTES, KnownFile, has_unread, is_parked
from ftfile.storage.api import lasting_identity

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from ftfile.source.known_files import KnownFiles
    from ftfile.source.listing import Listing


@dataclass(frozen=True, slots=True)
class Row:
    """A listed file that may have unread content."""

    place: int  # index in the listing
    path: str
    key: bytes
    size_bytes: int  # -1 if the storage does not report it
    modified_ms: int
    identity: str | None  # the lasting one
    identity_hash: bytes
    known: KnownFile | None  # the known file at this path
    since_s: float  # as in the listing
    is_changed: bool = False  # the file is known, and may have other content

    @property
    def marks(self) -> tuple[int, int, bytes]:
        """Return the values of a listing that change whenever the content changes, if the listing can show it."""
        return self.size_bytes, self.modified_ms, self.identity_hash

    @property
    def state(self) -> tuple[int, int, bytes, int]:
        """Return the state of the file. Another probe can only have a new result if the state changes."""
        return *self.marks, -1 if self.known is None else self.known.position

    @property
    def has_stale_time(self) -> bool:
        """Return True if the size differs from the known size, but not the time: the storage updates times late."""
        file = self.known
        return file is not None and file.modified_ms == self.modified_ms and file.size_bytes != self.size_bytes


class Table:
    """One listing, compared with the known files.

    Attributes:
        listing: the listing.
        known: the known files.
        index: for each place in the listing, the row of the known file at its path; -1 for an unknown path.
        places: places of the candidates in the listing, by time, then by path.
        missing: rows of the known files that are not listed.
        old: places of files that are unknown and older than the oldest time that is tracked.
    """

    index: NDArray[np.intp]

    def __init__(
        self,
        listing: Listing,
        known: KnownFiles,
        mismatched: Collection[bytes] = (),
        untried: Collection[bytes] = (),
        before: Table | None = None,
    ) -> None:
        """Compare a listing with the known files. Equal keys reuse the index of the table `before`.

        The paths with keys in `mismatched` count as changed: their content differs from the known content. Parked files
        with keys in `untried` are candidates even if they did not change.
        """
        self.listing, self.known = listing, known
        rows = known.rows
        if before is not None and before.known is known and before.listing.keys is listing.keys:
            self.index = before.index
        else:
            self.index = known.find(listing.keys[:, 0], listing.keys[:, 1])
        index = self.index
        is_known = index >= 0
        is_old = ~is_known & (listing.times < known.low)
        is_candidate = ~is_known & ~is_old & (listing.sizes != 0)
        self._is_changed = np.zeros(len(listing.keys), bool)
        self._place_of = np.full(len(rows), -1, np.intp)  # of each known file: its place in the listing
        if is_known.any():
            places, numbers = np.flatnonzero(is_known), index[is_known]
            self._place_of[numbers] = places
            beside = rows[numbers]
            is_changed = (
                (beside["size"] != listing.sizes[places])
                | (beside["modified"] != listing.times[places])
                | (beside["identity"] != listing.hashes[places])
            )
            is_changed |= _have_keys(beside, mismatched)
            self._is_changed[places] = is_changed
            is_untried = is_parked(beside) & _have_keys(beside, untried)
            is_candidate[places] = is_changed | has_unread(beside) | is_untried
        self.places = listing.in_order(np.flatnonzero(is_candidate))
        self.missing = rows[self._place_of < 0]
        self.old = np.flatnonzero(is_old)

    def row(self, place: int) -> Row:
        """Return a file by its place in the listing."""
        listing, number = self.listing, self.index[place]
        return Row(
            int(place),
            listing.paths[place],
            key=listing.keys[place].tobytes(),
            size_bytes=int(listing.sizes[place]),
            modified_ms=int(listing.times[place]),
            identity=lasting_identity(listing.identities[place]),
            identity_hash=listing.hashes[place].tobytes(),
            known=None if number < 0 else KnownFile.unpack(self.known.rows[number].tobytes()),
            since_s=float(listing.since_s[place]),
            is_changed=bool(self._is_changed[place]),
        )

    def suspects(self) -> list[Row]:
        """Return the files that may not be the known files at their paths: changed and renamed files."""
        places, rows = self.places, self.known.rows
        if not len(rows):
            return []
        is_changed = self._is_changed[places]
        gone = np.concatenate([self.missing["identity"], rows["identity"][self.index[places[is_changed]]]])
        is_renamed = np.isin(self.listing.hashes[places], gone[gone != 0])
        return [self.row(place) for place in places[is_changed | is_renamed].tolist()]

    def known_by_identity(self, rows: Sequence[Row]) -> dict[bytes, list[KnownFile]]:
        """Return the known files with identities of `rows`, except for unchanged files at their known paths."""
        files: dict[bytes, list[KnownFile]] = defaultdict(list)
        if not rows:
            return files
        hashes = np.frombuffer(b"".join(row.identity_hash for row in rows), "<u8")
        gone = self.known.rows[(self._place_of < 0) | self._is_changed[self._place_of]]
        for record in gone[np.isin(gone["identity"], hashes[hashes != 0])]:
            file = KnownFile.unpack(record.tobytes())
            files[file.identity].append(file)
        return files

    def known_by_start(self, start: str) -> list[tuple[KnownFile, int]]:
        """Return the known files whose content has a start, each with its place in the listing; -1 if it is not listed.

        For starts see `Fingerprints`; files with fewer than 256 read bytes have no start.
        """
        starts, numbers = self._by_start
        digest = np.frombuffer(bytes.fromhex(start), "<u4")[0]
        low = np.searchsorted(starts, digest, "left")
        high = np.searchsorted(starts, digest, "right")
        files = []
        for number in numbers[low:high].tolist():
            file = KnownFile.unpack(self.known.rows[number].tobytes())
            files.append((file, int(self._place_of[number])))
        return files

    @cached_property
    def _by_start(self) -> tuple[NDArray[np.uint32], NDArray[np.intp]]:
        """The sorted starts of the known files with enough content, and the numbers of their rows."""
        numbers = np.flatnonzero(self.known.rows["position"] >= CONTENT_BYTES_MIN)
        starts = self.known.rows["head"][numbers].astype("<u4")  # the lower half of a head
        order = np.argsort(starts, kind="stable")
        return starts[order], numbers[order]

    def has_new(self, places: NDArray[np.intp]) -> bool:
        """Return True if a file at one of these places has an unknown path."""
        return bool(np.any(self.index[places] < 0))

    def unread_bytes(self, places: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the number of unread bytes of the file at each place."""
        sizes = np.maximum(self.listing.sizes[places], 0)
        if not len(self.known.rows):
            return sizes
        index = self.index[places]
        position = np.where(index >= 0, self.known.rows["position"][index], 0)
        unread: NDArray[np.int64] = np.maximum(sizes - position, 0)
        return unread

    def times_after(self, read: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the times of all files that are known after the files at the places `read` were read."""
        is_known = self.index >= 0
        is_known[read] = True
        times: NDArray[np.int64] = np.concatenate([self.missing["modified"], self.listing.times[is_known]])
        return times

    def touched_below(self, low: int) -> list[Row]:
        """Return known files that would be forgotten below `low`, although they were modified at or after `low`."""
        rows, index = self.known.rows, self.index
        is_known = index >= 0
        places = np.flatnonzero(is_known)[rows["modified"][index[is_known]] < low]
        return [self.row(place) for place in places[self.listing.times[places] >= low].tolist()]


def _have_keys(rows: NDArray[Any], keys: Collection[bytes]) -> NDArray[np.bool_]:
    """Return for each row True if the first half of its key equals that of one of the keys."""
    highs = np.frombuffer(b"".join(keys), "<u8")[:: KEY_BYTES // 8]
    if len(highs):
        return np.isin(rows["high"], highs)
    return np.zeros(len(rows), bool)
