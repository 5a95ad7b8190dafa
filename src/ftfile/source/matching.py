"""The rules that decide which known file each listed file is.

The rules work on values only and do not read storage. They request all probes of contents at once and receive the
answers. An answer is a content, a change since the listing, or a failure. A file that the rules cannot decide stays
undecided until a later listing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ftfile.source.contents import Fingerprints
from ftfile.source.known_rows import NO_IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.core.errors import FtfileError
    from ftfile.source.file_table import Row
    from ftfile.source.known_rows import KnownFile


class IdentityRule(enum.Enum):
    """The rule that decided which file a listed file is; the value completes "it is …"."""

    SAME = "the file known at its path"
    MOVED = "a file known at another path"
    NEW = "new"
    REPLACED = "new, where another file was"
    TRUNCATED = "the file known at its path, with other content"
    COPY = "a copy of a listed file"
    CUT_COPY = "a copy of a listed file before it was truncated"
    CONTINUED = "a copy with more content than its original"
    UNDECIDED = "not decided yet"


class ContentProbe(NamedTuple):
    """Fingerprints of a content that a rule requests."""

    row: Row
    positions: frozenset[int]  # in the content; if empty, the end of the first KiB or of a shorter content
    codec: str = ""  # from the name of the file; empty for the stored bytes


class Content(NamedTuple):
    """Fingerprints of a file that is at least as long as in the listing."""

    # by position up to the length of the content; also at the end of decoded content
    prints: Mapping[int, Fingerprints]
    size_bytes: int  # length of the content; for stored bytes, as listed
    stored_bytes: int  # length of the file when it was opened
    codec: str = ""  # codec of the file

    def begins_as(self, file: KnownFile) -> bool:
        """Return True if the content begins with all bytes that were read of a file, at least one byte."""
        return self.prints.get(file.position) == (file.head, file.tail)


class Failure(NamedTuple):
    """A content that cannot be read or decoded. Without an error, it only changed since the listing."""

    error: FtfileError | None = None


CHANGED = Failure()
Answer: TypeAlias = "Content | Failure"
KnownByIdentity: TypeAlias = "Mapping[bytes, Sequence[KnownFile]]"


class Copy(NamedTuple):
    """The content that a file has in common with another file."""

    content: Content  # including the fingerprints at its end
    original: str = ""  # path of the other file; empty if it is deleted
    is_read: bool = False  # all of the content was read in the original
    is_whole: bool = False  # no more than the content was read in the original
    stored: Fingerprints | None = None  # of all stored bytes of the file; None if the file changed

    @property
    def end(self) -> Fingerprints:
        """Return the fingerprints at the end of the content."""
        return self.content.prints[self.content.size_bytes]


@dataclass(frozen=True, slots=True)
class Match:
    """The decision which file a listed file is, and where reading resumes."""

    row: Row
    rule: IdentityRule
    file: KnownFile | None = None  # reading resumes at its position; None for a file that is read from its start
    previous_keys: tuple[bytes, ...] = ()  # keys of the other paths at which the file was known
    displaces: bool = False  # another file was known at the path; its known state moves to another key
    error: FtfileError | None = None  # reason why the file is undecided; None if it only changed
    advances: bytes = b""  # key of a deleted file that stays known, and whose position follows its compressed copy
    copy: Copy | None = None

    @property
    def is_changing(self) -> bool:
        """Return True if the file is undecided and the next listing can decide it."""
        return self.rule is IdentityRule.UNDECIDED and self.error is None

    @property
    def position(self) -> int:
        """Return the position at which reading starts."""
        if self.file is None:
            return 0
        return self.file.position

    @property
    def before(self) -> Fingerprints | None:
        """Return the fingerprints of the content before the position; None at the start."""
        if self.file is not None and self.file.position:
            return Fingerprints(self.file.head, self.file.tail)
        return None


def match_unchanged(row: Row) -> Match:
    """Return the match of a file that is not a suspect: the known file at its path, or a new file."""
    return Match(row, IdentityRule.NEW if row.known is None else IdentityRule.SAME, row.known)


def known_probes(rows: Iterable[Row], known: KnownByIdentity) -> list[ContentProbe]:
    """Return the probes that `match_known` needs: at each position at which a known file may continue in a file."""
    probes = []
    for row in rows:
        files = [*known.get(row.identity_hash, ())]
        if row.known is not None and row.is_changed:
            files.append(row.known)
        positions = {file.position for file in files if 0 < file.position <= row.size_bytes}
        if positions:
            probes.append(ContentProbe(row, frozenset(positions)))
    return probes


def likely_answers(rows: Iterable[Row], known: KnownByIdentity) -> dict[int, Answer]:
    """Return the likely answers for `match_known` without reading contents: equal identities mean equal contents.

    If the storage has no identities, the path is used. If a listed size is less than a position, the file was
    truncated.
    """
    answers: dict[int, Answer] = {}
    for row in rows:
        if row.known is not None and row.known.identity == row.identity_hash:
            at_path = [row.known]
        else:
            at_path = []
        files = [*at_path, *known.get(row.identity_hash, ())]
        prints = {}
        for file in reversed(files):
            if file.position <= row.size_bytes:
                prints[file.position] = file.fingerprints
        answers[row.place] = Content(prints, row.size_bytes, row.size_bytes)
    return answers


def match_known(
    rows: Sequence[Row], known: KnownByIdentity, answers: Mapping[int, Answer], *, keeps_truncated: bool
) -> dict[int, Match]:
    """Return the match of each listed file, by place.

    0. The probe failed: undecided.
    1. Same path, same identity, same content before the position: the same file.
    2. Same identity, same content: a renamed file. Candidates that are not displaced come first, then the newest.
    3. Same path, same content: the same file; undecided if the file that now has the known identity is undecided.
    4. Otherwise a new file. The file that was known at its path was truncated, or is displaced.

    Each rule is applied to all files before the next rule, and a known file is claimed once. If the listed size of a
    file is less than a position, no probe is needed at this position.

    Args:
        rows: all files that may not be the known files at their paths.
        known: the known files that may have other paths now, by identity.
        answers: to the probes, by place.
        keeps_truncated: the known state of a truncated file is kept, since its content may be found in another file.
    """
    matching = _Matching(rows, known, answers)
    matching.leave_undecided()
    matching.claim_at_their_paths()
    matching.claim_renamed()
    matching.claim_by_path()
    return matching.result(keeps_truncated=keeps_truncated)


class _Matching:
    """Matches that are being decided. Each method applies a rule to the files without a match."""

    def __init__(self, rows: Sequence[Row], known: KnownByIdentity, answers: Mapping[int, Answer]) -> None:
        self._rows = rows
        self._known = known
        self._answers = answers
        self._matches: dict[int, Match] = {}  # by place
        self._claimed: set[bytes] = set()

    def leave_undecided(self) -> None:
        """Leave files undecided whose probe failed."""
        for row in self._rows:
            answer = self._answers.get(row.place)
            if isinstance(answer, Failure):
                self._matches[row.place] = Match(row, IdentityRule.UNDECIDED, error=answer.error)

    def claim_at_their_paths(self) -> None:
        """Match known files by path, identity and content."""
        for row in self._open_rows():
            file = row.known
            if file is not None and file.identity == row.identity_hash and self._is_continued(row, file):
                self._claim(row, file, IdentityRule.SAME)

    def claim_renamed(self) -> None:
        """Match known files by identity and content."""
        for row in self._open_rows():
            files = []
            for file in self._known.get(row.identity_hash, ()):
                if file.key != row.key and self._is_continued(row, file):
                    files.append(file)
            if files:
                self._claim(row, max(files, key=_rank), IdentityRule.MOVED)

    def claim_by_path(self) -> None:
        """Match known files by path and content, unless the file that has the known identity now is undecided."""
        undecided = set()
        for match in self._matches.values():
            if match.rule is IdentityRule.UNDECIDED:
                undecided.add(match.row.identity_hash)
        for row in self._open_rows():
            file = row.known
            if file is None or not file.position or not self._is_continued(row, file):
                continue
            if file.identity != NO_IDENTITY and file.identity in undecided:
                self._matches[row.place] = Match(row, IdentityRule.UNDECIDED)
            else:
                self._claim(row, file, IdentityRule.SAME)

    def result(self, *, keeps_truncated: bool) -> dict[int, Match]:
        """Return the matches. All other files are new, and may replace an unclaimed known file at their path."""
        matches = {}
        for row in self._rows:
            match = self._matches.get(row.place, Match(row, IdentityRule.NEW))
            matches[row.place] = self._match_beside_known(match, keeps_truncated=keeps_truncated)
        return matches

    def _open_rows(self) -> list[Row]:
        return [row for row in self._rows if row.place not in self._matches]

    def _is_continued(self, row: Row, file: KnownFile) -> bool:
        """Return True if a known file is unclaimed, and the listed file begins with all bytes that were read of it."""
        if file.key in self._claimed:
            return False
        if not file.position or (file is row.known and not row.is_changed):
            return True
        answer = self._answers.get(row.place, CHANGED)
        return isinstance(answer, Content) and answer.begins_as(file)

    def _claim(self, row: Row, file: KnownFile, rule: IdentityRule) -> None:
        self._claimed.add(file.key)
        self._matches[row.place] = Match(row, rule, file, (file.key,) if rule is IdentityRule.MOVED else ())

    def _match_beside_known(self, match: Match, *, keeps_truncated: bool) -> Match:
        """Return a match with its effect on the file that was known at its path."""
        row, file = match.row, match.row.known
        is_here = match.rule in {IdentityRule.NEW, IdentityRule.MOVED}
        if file is None or not is_here or not file.position or file.key in self._claimed:
            return match
        if match.rule is IdentityRule.MOVED:
            return replace(match, displaces=True)
        if file.identity == row.identity_hash:
            return replace(match, rule=IdentityRule.TRUNCATED, displaces=keeps_truncated)
        return replace(match, rule=IdentityRule.REPLACED, displaces=True)


def _rank(file: KnownFile) -> tuple[bool, int, int]:
    """Return the rank of a known file among the candidates with the same identity."""
    return not file.is_displaced, file.modified_ms, file.position
