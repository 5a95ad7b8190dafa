"""A listing beside the known files: the files with something new, vectorised over both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ftfile.source.files.content import Fingerprints
from ftfile.source.files.known import KnownFile, read_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ftfile.fs.api import FileSystem
    from ftfile.source.files.finding.listing import Listing
    from ftfile.source.files.known import KnownFiles


@dataclass(slots=True)
class Candidate:
    """A file of a listing of which there may be something to read."""

    place: int  # in the listing
    path: str
    key: bytes
    size_bytes: int
    modified_ms: int
    identity: str | None
    identity_hash: bytes
    known: KnownFile | None  # at this path

    @property
    def state(self) -> tuple[int, int, bytes, int]:
        """Return all that must change before another look at the file finds something else."""
        position = -1 if self.known is None else self.known.position
        return self.size_bytes, self.modified_ms, self.identity_hash, position

    def is_in_place(self, fs: FileSystem) -> bool:
        """Return True if its path still names the file; to be asked once that is open, as a rotation may come between.

        Raises:
            NotFound: nothing is there any more.
            StorageError: it cannot be looked at.
        """
        return self.identity is None or fs.stat(self.path).identity == self.identity

    @property
    def is_changed(self) -> bool:
        """Return True if the file is known with other marks."""
        return self.known is not None and self.state[:3] != (
            self.known.size_bytes,
            self.known.modified_ms,
            self.known.identity,
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading a file begins, and how that is known."""

    candidate: Candidate
    position: int = 0
    before: Fingerprints | None = None  # of the content before `position`; None for none
    moved: KnownFile | None = None  # found again here
    is_replaced: bool = False  # another file was known at the path, and was not found again

    @classmethod
    def behind(cls, candidate: Candidate, known: KnownFile | None, *, is_moved: bool = False) -> Start:
        """Return that a file goes on behind what was read of a known one; from its beginning for None."""
        if known is None or not known.position:
            return cls(candidate, moved=known if is_moved else None)
        before = Fingerprints(known.head, known.tail)
        return cls(candidate, known.position, before, known if is_moved else None)


@dataclass
class Survey:
    """One listing beside the known files.

    Attributes:
        places: of the candidates in the listing, by time, then by path.
        rows: of the known files that are not listed.
        old: places of files that are not known and older than any that is remembered.
    """

    listing: Listing
    known: KnownFiles
    places: NDArray[np.intp] = field(init=False)
    missing: NDArray[Any] = field(init=False)
    old: NDArray[np.intp] = field(init=False)

    def __post_init__(self) -> None:
        listing, rows = self.listing, self.known.rows
        self._index = index = self.known.find(listing.keys[:, 0], listing.keys[:, 1])
        is_known = index >= 0
        is_old = ~is_known & (listing.times < self.known.low)
        is_candidate = ~is_known & ~is_old & (listing.sizes != 0)
        is_missing = np.ones(len(rows), bool)
        if is_known.any():
            found = index[is_known]
            is_missing[found] = False
            beside = rows[found]
            is_same = (
                (beside["size"] == listing.sizes[is_known])
                & (beside["modified"] == listing.times[is_known])
                & (beside["identity"] == listing.hashes[is_known])
            )
            position = beside["position"]
            is_candidate[is_known] = ~is_same | ((position >= 0) & (position < beside["size"]))
        self.places = listing.in_order(np.flatnonzero(is_candidate))
        self.missing = rows[is_missing]
        self.old = np.flatnonzero(is_old)

    def candidate(self, place: int) -> Candidate:
        """Return the candidate at a place of the listing."""
        listing, row = self.listing, self._index[place]
        known = None if row < 0 else KnownFile.unpacked(self.known.rows[row].tobytes())
        return Candidate(
            int(place),
            listing.paths[place],
            listing.keys[place].tobytes(),
            int(listing.sizes[place]),
            int(listing.times[place]),
            listing.identities[place],
            listing.hashes[place].tobytes(),
            known,
        )

    def start(self, place: int) -> Start:
        """Return where reading a candidate begins that is none of the suspects."""
        candidate = self.candidate(place)
        return Start.behind(candidate, candidate.known)

    def has_new(self, places: NDArray[np.intp]) -> bool:
        """Return True if a file at some places of the listing has a path that is not known."""
        return bool(np.any(self._index[places] < 0))

    def known_places(self) -> NDArray[np.intp]:
        """Return the places in the listing of files with known paths."""
        return np.flatnonzero(self._index >= 0)

    def rows_at(self, places: NDArray[np.intp]) -> NDArray[Any]:
        """Return the rows of known files at places in the listing."""
        return self.known.rows[self._index[places]]

    def suspects(self) -> list[Candidate]:
        """Return the candidates that may be other files than their paths say: changed ones, and renamed ones."""
        places, rows = self.places, self.known.rows
        if not len(rows):
            return []
        index = self._index[places]
        beside = rows[index]
        is_changed = (index >= 0) & (
            (beside["size"] != self.listing.sizes[places])
            | (beside["modified"] != self.listing.times[places])
            | (beside["identity"] != self.listing.hashes[places])
        )
        gone = np.concatenate([self.missing["identity"], beside["identity"][is_changed]])
        hashes = self.listing.hashes[places]
        is_renamed = np.isin(hashes, gone[gone != 0])
        return [self.candidate(place) for place in places[is_changed | is_renamed].tolist()]

    def unread_bytes(self, places: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return for each of some places of the listing the bytes that were not read yet."""
        sizes = np.maximum(self.listing.sizes[places], 0)
        if not len(self.known.rows):
            return sizes
        index = self._index[places]
        position = np.where(index >= 0, read_positions(self.known.rows[index]), 0)
        unread: NDArray[np.int64] = np.maximum(sizes - position, 0)
        return unread

    def times_after(self, read: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the times of all files that are known when those at some places of the listing are, too."""
        is_known = self._index >= 0
        is_known[read] = True
        times: NDArray[np.int64] = np.concatenate([self.missing["modified"], self.listing.times[is_known]])
        return times

    def touched_below(self, low: int) -> list[Candidate]:
        """Return known files that would be forgotten below `low`, although their files have changed since then."""
        rows, index = self.known.rows, self._index
        is_known = index >= 0
        places = np.flatnonzero(is_known)[rows["modified"][index[is_known]] < low]
        return [self.candidate(place) for place in places if self.listing.times[place] >= low]
