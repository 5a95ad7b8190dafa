"""Which known file each listed file is: rules in their order, over values alone.

The rules ask for looks at contents, all at once, and get the answers: nothing here reads a store. An answer is what is
there, or that it changed meanwhile, or that it cannot be read; a file of which the rules are not certain is undecided,
and the next listing shows more.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ftfile.read.foreign.contents import Fingerprints
from ftfile.read.foreign.known.rows import NO_IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.core.errors import FtfileError
    from ftfile.read.foreign.file_table import Row
    from ftfile.read.foreign.known.rows import KnownFile


class Rule(enum.Enum):
    """How it was decided which file a listed one is; the value completes "it is …"."""

    SAME = "the file known at its path"
    MOVED = "a file known at another path"
    NEW = "new"
    REPLACED = "new, where another file was"
    TRUNCATED = "the file known at its path, with other content"
    COPY = "a copy of a listed file"
    CUT_COPY = "a copy of a listed file before it was truncated"
    CONTINUED = "a copy with more content than its original"
    UNDECIDED = "not decided yet"


class Look(NamedTuple):
    """Fingerprints of a content that are asked for."""

    row: Row
    positions: frozenset[int]  # in the content; none for that of its first KiB, or less of a shorter one
    codec: str = ""  # by the name of the file; empty for the bytes as they are stored


class Content(NamedTuple):
    """Fingerprints of a file that is at least as long as it was listed."""

    prints: Mapping[int, Fingerprints]  # by position, as far as there is so much; and at the end of decoded content
    size_bytes: int  # of the content; of stored bytes, as listed
    stored_bytes: int  # when the file was opened
    codec: str = ""  # as the file is written

    def begins_as(self, file: KnownFile) -> bool:
        """Return True if it begins with all that was read of a file, which is more than nothing."""
        return self.prints.get(file.position) == (file.head, file.tail)


class Failure(NamedTuple):
    """The content cannot be read, or not be decoded; without an error, it only changed since it was listed."""

    error: FtfileError | None = None


CHANGED = Failure()
Answer: TypeAlias = "Content | Failure"
KnownByIdentity: TypeAlias = "Mapping[bytes, Sequence[KnownFile]]"


class Copy(NamedTuple):
    """The content that a file shares with another one."""

    content: Content  # with the fingerprints at its end
    original: str = ""  # path of the other file; empty if it is gone
    is_read: bool = False  # all of the content was read at the original
    is_whole: bool = False  # and no more than that
    stored: Fingerprints | None = None  # of all bytes of the file as it is stored; None if it has changed

    @property
    def end(self) -> Fingerprints:
        """Return the fingerprints at the end of the content."""
        return self.content.prints[self.content.size_bytes]


@dataclass(frozen=True, slots=True)
class Match:
    """Which file a listed one is, and where reading it goes on."""

    row: Row
    rule: Rule
    file: KnownFile | None = None  # behind which it goes on; None for a file that is read from its start
    previous_keys: tuple[bytes, ...] = ()  # by which the file was known at other paths
    displaces: bool = False  # another file was known at the path, and stays known elsewhere
    error: FtfileError | None = None  # why it is undecided, unless it only changed
    advances: bytes = b""  # key of a file that is gone, and stays known, with what is read of its compressed copy
    copy: Copy | None = None

    @property
    def is_changing(self) -> bool:
        """Return True if it is undecided, and nothing prevents that the next listing shows more."""
        return self.rule is Rule.UNDECIDED and self.error is None

    @property
    def position(self) -> int:
        """Return the position from which on it is read."""
        return 0 if self.file is None else self.file.position

    @property
    def before(self) -> Fingerprints | None:
        """Return the fingerprints of the content before the position; None for none."""
        return Fingerprints(self.file.head, self.file.tail) if self.file is not None and self.file.position else None


def match_unchanged(row: Row) -> Match:
    """Return which file a listed one is that is none of the suspects: the one at its path, or a new one."""
    return Match(row, Rule.NEW if row.known is None else Rule.SAME, row.known)


def known_looks(rows: Iterable[Row], known: KnownByIdentity) -> list[Look]:
    """Return the looks that `match_known` needs: at all positions of each file where a known one may go on."""
    looks = []
    for row in rows:
        files = [*known.get(row.identity_hash, ()), *([row.known] if row.known is not None and row.is_changed else [])]
        positions = frozenset(file.position for file in files if 0 < file.position <= row.size_bytes)
        looks += [Look(row, positions)] if positions else []
    return looks


def likely_answers(rows: Iterable[Row], known: KnownByIdentity) -> dict[int, Answer]:
    """Return the answers as they are likely to be, for `match_known` without looks: an identity tells the content.

    Where stores have none, the path does. A listed size below a position still shows that a file was cut off.
    """
    answers: dict[int, Answer] = {}
    for row in rows:
        at_path = [row.known] if row.known is not None and row.known.identity == row.identity_hash else []
        files = [*at_path, *known.get(row.identity_hash, ())]
        prints = {file.position: file.fingerprints for file in reversed(files) if file.position <= row.size_bytes}
        answers[row.place] = Content(prints, row.size_bytes, row.size_bytes)
    return answers


def match_known(
    rows: Sequence[Row], known: KnownByIdentity, answers: Mapping[int, Answer], *, keeps_truncated: bool
) -> dict[int, Match]:
    """Return which known file each of some listed ones is, by place.

    0. Its look failed: undecided.
    1. Same path, same identity, same content before the position: the same file.
    2. Same identity, same content: a file that was renamed; of several one that was not displaced, then the newest.
    3. Same path, same content: the same file; undecided while the file that has the known identity now is.
    4. Else a new file. The file that was known at its path was truncated, or is displaced.

    Each rule counts for all rows before the next one does, and a known file is claimed once. A file whose listed size
    is less than a position needs no look.

    Args:
        rows: all files that may be others than their paths say.
        known: the files that may have other paths now, by identity.
        answers: to the looks, by place.
        keeps_truncated: what was cut off may be found again by its content.
    """
    matching = _Matching(rows, known, answers)
    matching.leave_undecided()
    matching.claim_at_their_paths()
    matching.claim_renamed()
    matching.claim_by_path()
    return matching.result(keeps_truncated=keeps_truncated)


class _Matching:
    """Matches in the making; each method is a rule, for all files that none has decided yet."""

    def __init__(self, rows: Sequence[Row], known: KnownByIdentity, answers: Mapping[int, Answer]) -> None:
        self._rows = rows
        self._known = known
        self._answers = answers
        self._matches: dict[int, Match] = {}  # by place
        self._claimed: set[bytes] = set()

    def leave_undecided(self) -> None:
        """Decide nothing of files of which the look failed."""
        for row in self._rows:
            answer = self._answers.get(row.place)
            if isinstance(answer, Failure):
                self._matches[row.place] = Match(row, Rule.UNDECIDED, error=answer.error)

    def claim_at_their_paths(self) -> None:
        """Find known files by path, identity and content."""
        for row in self._open_rows():
            file = row.known
            if file is not None and file.identity == row.identity_hash and self._goes_on(row, file):
                self._claim(row, file, Rule.SAME)

    def claim_renamed(self) -> None:
        """Find known files by identity and content."""
        for row in self._open_rows():
            candidates = self._known.get(row.identity_hash, ())
            files = [file for file in candidates if file.key != row.key and self._goes_on(row, file)]
            if files:
                self._claim(row, max(files, key=_rank), Rule.MOVED)

    def claim_by_path(self) -> None:
        """Find known files by path and content, unless the file that has a known identity now is undecided."""
        undecided = {match.row.identity_hash for match in self._matches.values() if match.rule is Rule.UNDECIDED}
        for row in self._open_rows():
            file = row.known
            if file is None or not file.position or not self._goes_on(row, file):
                continue
            if file.identity != NO_IDENTITY and file.identity in undecided:
                self._matches[row.place] = Match(row, Rule.UNDECIDED)
            else:
                self._claim(row, file, Rule.SAME)

    def result(self, *, keeps_truncated: bool) -> dict[int, Match]:
        """Return the matches; all other files are new, perhaps in the place of a known one that nobody claimed."""
        matches = {row.place: self._matches.get(row.place, Match(row, Rule.NEW)) for row in self._rows}
        return {place: self._beside_known(match, keeps_truncated=keeps_truncated) for place, match in matches.items()}

    def _open_rows(self) -> list[Row]:
        return [row for row in self._rows if row.place not in self._matches]

    def _goes_on(self, row: Row, file: KnownFile) -> bool:
        """Return True if nobody has claimed a known file, and a listed one begins with all that was read of it."""
        if file.key in self._claimed:
            return False
        if not file.position or (file is row.known and not row.is_changed):
            return True
        answer = self._answers.get(row.place, CHANGED)
        return isinstance(answer, Content) and answer.begins_as(file)

    def _claim(self, row: Row, file: KnownFile, rule: Rule) -> None:
        self._claimed.add(file.key)
        self._matches[row.place] = Match(row, rule, file, (file.key,) if rule is Rule.MOVED else ())

    def _beside_known(self, match: Match, *, keeps_truncated: bool) -> Match:
        """Return a match with its meaning for the file that was known at its path."""
        row, file = match.row, match.row.known
        is_here = match.rule in {Rule.NEW, Rule.MOVED}
        if file is None or not is_here or not file.position or file.key in self._claimed:
            return match
        if match.rule is Rule.MOVED:
            return replace(match, displaces=True)
        if file.identity == row.identity_hash:
            return replace(match, rule=Rule.TRUNCATED, displaces=keeps_truncated)
        return replace(match, rule=Rule.REPLACED, displaces=True)


def _rank(file: KnownFile) -> tuple[bool, int, int]:
    """Return the rank of a file among those with its identity that a listed one may be."""
    return not file.is_displaced, file.modified_ms, file.position
