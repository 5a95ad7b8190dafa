"""Which file is which: known files go on where their content does, whatever their names are now."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.errors import NotFound
from ftfile.source.files.content import fingerprints
from ftfile.source.files.finding.survey import Start
from ftfile.source.files.known import NO_IDENTITY, KnownFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from ftfile.fs.api import FileSystem
    from ftfile.source.files.finding.survey import Candidate, Survey

    _Pair: TypeAlias = tuple[Candidate, KnownFile]
    # Returns for each pair, in order, True if the file goes on where the known one ended; None if it cannot be opened.
    Equals: TypeAlias = Callable[[Sequence[_Pair]], Sequence[bool | None]]


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


def starts_of(survey: Survey, candidates: Sequence[Candidate], equals: Equals) -> list[Start]:
    """Return where reading each candidate begins, in their order; those that cannot be opened now are left out.

    Known files come first, since one that is not at its path any more may be found at a new one.
    """
    return _Resolution(survey, candidates, equals).starts()


class _Resolution:
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
