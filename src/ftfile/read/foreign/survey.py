"""A listing beside the known files: what may be new, vectorised over both; and which file is which.

Known files go on where their content does, whatever their names are now.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ftfile.core.errors import NotFound
from ftfile.read.foreign.known import NO_IDENTITY, Fingerprints, KnownFile, fingerprints, read_positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from ftfile.read.foreign.known import KnownFiles
    from ftfile.read.foreign.listing import Listing
    from ftfile.storage.api import FileSystem

    _Pair: TypeAlias = "tuple[Candidate, KnownFile]"
    Equals: TypeAlias = Callable[[Sequence[_Pair]], Sequence[bool | None]]


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
    since_s: float  # as in the listing

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

    @property
    def has_stale_time(self) -> bool:
        """Return True if the file has the known time, and another size: its store changes the time later, or never."""
        file = self.known
        return file is not None and file.modified_ms == self.modified_ms and file.size_bytes != self.size_bytes


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading a file begins, and how that is known."""

    candidate: Candidate
    position: int = 0
    before: Fingerprints | None = None  # of the content before `position`; None for none
    moved: KnownFile | None = None  # found again here
    is_replaced: bool = False  # another file was known at the path, and was not found again

    @property
    def is_cut_off(self) -> bool:
        """Return True if the known file is still at its path, with other content; or its store has no identities."""
        file = self.candidate.known
        return self.is_replaced and file is not None and file.identity == self.candidate.identity_hash

    @classmethod
    def behind(cls, candidate: Candidate, known: KnownFile | None, *, is_moved: bool = False) -> Start:
        """Return that a file goes on behind what was read of a known one; from its beginning for None."""
        if known is None or not known.position:
            return cls(candidate, moved=known if is_moved else None)
        before = Fingerprints(known.head, known.tail)
        return cls(candidate, known.position, before, known if is_moved else None)


@dataclass
class Survey:
    """One listing beside the known files."""

    listing: Listing
    known: KnownFiles
    places: NDArray[np.intp] = field(init=False)  # of the candidates in the listing, by time, then by path
    missing: NDArray[Any] = field(init=False)  # rows of the known files that are not listed
    old: NDArray[np.intp] = field(init=False)  # places of files that are not known, and older than any known one

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
            float(listing.since_s[place]),
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


def is_equal(fs: FileSystem, candidate: Candidate, known: KnownFile) -> bool:
    """Return True if the content of a file begins with that of a known file, as far as it was read.

    Raises:
        NotFound: the file is not there any more, or has another name now.
        StorageError: it cannot be read.
    """
    with fs.open(candidate.path) as file:
        if not candidate.is_in_place(fs):
            raise NotFound("open", candidate.path, "the file that was listed has another name now")
        return not known.position or fingerprints(file.read_at, known.position) == (known.head, known.tail)


class Resolution:
    """Finds out which candidate is which file, by the content that `equals` compares."""

    def __init__(self, survey: Survey, candidates: Sequence[Candidate], equals: Equals) -> None:
        self._candidates = candidates
        self._equals = equals
        self._begun: dict[int, Start] = {}  # by place
        self._failed: set[int] = set()
        self._claimed: set[bytes] = set()
        self._orphans: dict[bytes, list[KnownFile]] = defaultdict(list)  # by identity
        self._identities = {candidate.identity_hash for candidate in candidates} - {NO_IDENTITY}
        if len(survey.missing) and self._identities:
            wanted = np.frombuffer(b"".join(self._identities), "<u8")
            for row in survey.missing[np.isin(survey.missing["identity"], wanted)]:
                self._add_orphan(KnownFile.unpacked(row.tobytes()))

    def starts(self) -> list[Start]:
        """Return where reading each candidate begins, in their order; those that cannot be opened now are left out.

        Known files come first, since one that is not at its path any more may be found at a new one.
        """
        elsewhere = {candidate.place for candidate in self._candidates if self._is_elsewhere(candidate)}
        for candidate in self._candidates:
            if candidate.place in elsewhere:
                self._add_orphan(candidate.known)
        self._go_on([candidate for candidate in self._candidates if candidate.place not in elsewhere])
        self._find_renamed()
        # Their files were not found under other names after all.
        self._go_on([candidate for candidate in self._open() if candidate.place in elsewhere])
        return [self._start(candidate) for candidate in self._candidates if candidate.place not in self._failed]

    def _open(self) -> Iterator[Candidate]:
        """Yield the candidates of which it is not known yet where they begin."""
        for candidate in self._candidates:
            if candidate.place not in self._begun and candidate.place not in self._failed:
                yield candidate

    def _start(self, candidate: Candidate) -> Start:
        known = candidate.known
        is_replaced = known is not None and known.position > 0 and known.key not in self._claimed
        return replace(self._begun.get(candidate.place, Start(candidate)), is_replaced=is_replaced)

    def _is_elsewhere(self, candidate: Candidate) -> bool:
        """Return True if the file that was known here has another name now: equal content may be another file's."""
        known = candidate.known
        return known is not None and known.identity != candidate.identity_hash and known.identity in self._identities

    def _go_on(self, candidates: Sequence[Candidate]) -> None:
        """Look which known files are still at their paths."""
        asked = [(candidate, known) for candidate in candidates if (known := candidate.known) is not None]
        asked = [(candidate, known) for candidate, known in asked if known.position and known.key not in self._claimed]
        changed = [pair for pair in asked if pair[0].is_changed]
        gone = {pair[0].place for pair, equal in self._compared(changed) if not equal}
        for candidate, known in asked:
            if candidate.place in gone:
                self._add_orphan(known)
            else:
                self._claimed.add(known.key)
                self._begun[candidate.place] = Start.behind(candidate, known)

    def _find_renamed(self) -> None:
        """Look which files were known at other paths: each is compared with one orphan of its identity at a time."""
        waiting = [(candidate, iter(self._orphans.get(candidate.identity_hash, ()))) for candidate in self._open()]
        while waiting:
            pairs = [(candidate, self._next_orphan(candidate, orphans)) for candidate, orphans in waiting]
            asked = [(candidate, orphan) for candidate, orphan in pairs if orphan is not None]
            for (candidate, orphan), equal in self._compared(asked):
                if equal and orphan.key not in self._claimed:
                    self._claimed.add(orphan.key)
                    self._begun[candidate.place] = Start.behind(candidate, orphan, is_moved=True)
            left = {candidate.place for candidate, _ in asked} - self._begun.keys()
            waiting = [(candidate, orphans) for candidate, orphans in waiting if candidate.place in left]

    def _next_orphan(self, candidate: Candidate, orphans: Iterator[KnownFile]) -> KnownFile | None:
        return next((orphan for orphan in orphans if orphan.key not in self._claimed | {candidate.key}), None)

    def _compared(self, pairs: Sequence[_Pair]) -> Iterator[tuple[_Pair, bool]]:
        """Yield each pair with True if the file goes on where the known one ended."""
        for pair, equal in zip(pairs, self._equals(pairs), strict=True):
            if equal is None:
                self._failed.add(pair[0].place)
            yield pair, bool(equal)

    def _add_orphan(self, known: KnownFile | None) -> None:
        if known is not None and known.identity != NO_IDENTITY:
            self._orphans[known.identity].append(known)
