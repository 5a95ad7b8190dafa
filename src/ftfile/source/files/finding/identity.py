"""Which file is which: known files go on where their content does, whatever their names are now."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ftfile.source.files.content import fingerprints
from ftfile.source.files.finding.survey import Start
from ftfile.source.files.known import NO_IDENTITY, KnownFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from ftfile.fs.api import FileSystem
    from ftfile.source.files.finding.survey import Candidate, Survey

    # Returns True if a file goes on where a known one ended, None if the file cannot be opened now.
    Equals: TypeAlias = Callable[[Candidate, KnownFile], bool | None]

__all__ = ("is_equal", "starts_of")


def is_equal(fs: FileSystem, path: str, known: KnownFile) -> bool:
    """Return True if the content of a file begins with that of a known file, as far as it was read.

    Raises:
        NotFound: there is no file.
        StorageError: it cannot be read.
    """
    with fs.open(path) as file:
        return not known.position or fingerprints(file.read_at, known.position) == (known.head, known.tail)


def starts_of(survey: Survey, candidates: Sequence[Candidate], equals: Equals) -> list[Start]:
    """Return where reading each candidate begins, in their order; those that cannot be opened now are left out.

    Known files come first, since one that is not at its path any more may be found at a new one.
    """
    return _Resolution(survey, candidates, equals).starts()


class _Resolution:
    def __init__(self, survey: Survey, candidates: Sequence[Candidate], equals: Equals) -> None:
        self._candidates = candidates
        self._equals = equals
        self._begun: dict[int, tuple[int, KnownFile | None]] = {}  # by place: position, and what moved there
        self._failed: set[int] = set()
        self._claimed: set[bytes] = set()
        self._orphans: dict[bytes, list[KnownFile]] = defaultdict(list)  # by identity
        self._identities = {candidate.identity_hash for candidate in candidates} - {NO_IDENTITY}
        if len(survey.missing) and self._identities:
            wanted = np.frombuffer(b"".join(self._identities), "<u8")
            for row in survey.missing[np.isin(survey.missing["identity"], wanted)]:
                self._add_orphan(KnownFile.unpacked(row.tobytes()))

    def starts(self) -> list[Start]:
        elsewhere = {candidate.place for candidate in self._candidates if self._is_elsewhere(candidate)}
        for candidate in self._candidates:
            if candidate.place in elsewhere:
                self._add_orphan(candidate.known)
        for candidate in self._candidates:
            if candidate.place not in elsewhere:
                self._go_on(candidate)
        for candidate in self._open():
            self._find_renamed(candidate)
        for candidate in self._open():
            if candidate.place in elsewhere:
                self._go_on(candidate)  # its file was not found under another name after all
        return [self._start(candidate) for candidate in self._candidates if candidate.place not in self._failed]

    def _open(self) -> Iterator[Candidate]:
        """Yield the candidates of which it is not known yet where they begin."""
        for candidate in self._candidates:
            if candidate.place not in self._begun and candidate.place not in self._failed:
                yield candidate

    def _start(self, candidate: Candidate) -> Start:
        position, moved = self._begun.get(candidate.place, (0, None))
        known = candidate.known
        is_replaced = known is not None and known.position > 0 and known.key not in self._claimed
        return Start(candidate, position, moved, is_replaced)

    def _is_elsewhere(self, candidate: Candidate) -> bool:
        """Return True if the file that was known here has another name now: equal content may be another file's."""
        known = candidate.known
        return known is not None and known.identity != candidate.identity_hash and known.identity in self._identities

    def _go_on(self, candidate: Candidate) -> None:
        """Look if the known file is still at its path."""
        known = candidate.known
        if known is None or not known.position or known.key in self._claimed:
            return
        if not candidate.is_changed or self._is_equal(candidate, known):
            self._claimed.add(known.key)
            self._begun[candidate.place] = known.position, None
        else:
            self._add_orphan(known)

    def _find_renamed(self, candidate: Candidate) -> None:
        for orphan in self._orphans.get(candidate.identity_hash, ()):
            if orphan.key not in self._claimed | {candidate.key} and self._is_equal(candidate, orphan):
                self._claimed.add(orphan.key)
                self._begun[candidate.place] = orphan.position, orphan
                return

    def _is_equal(self, candidate: Candidate, known: KnownFile) -> bool:
        same = self._equals(candidate, known)
        if same is None:
            self._failed.add(candidate.place)
        return bool(same)

    def _add_orphan(self, known: KnownFile | None) -> None:
        if known is not None and known.identity != NO_IDENTITY:
            self._orphans[known.identity].append(known)
