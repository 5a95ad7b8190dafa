"""Detection of listed files that are copies of other files, including compressed copies: `fileIdentity=content`.

The rules do not read storage, as in `matching`. They yield probes and receive the answers.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ftfile.core.codecs import codec_of
from ftfile.source.contents import CONTENT_BYTES_MIN, WINDOW_BYTES
from ftfile.source.known_rows import NO_IDENTITY
from ftfile.source.matching import CHANGED, Content, ContentProbe, Copy, Failure, IdentityRule

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from ftfile.core.errors import FtfileError
    from ftfile.source.contents import Fingerprints
    from ftfile.source.file_table import Row, Table
    from ftfile.source.known_rows import KnownFile
    from ftfile.source.matching import Answer, Match

    Key: TypeAlias = tuple[int, str]  # identifies a content: the place of its row in the listing, and its codec
    Answers: TypeAlias = Mapping[Key, Answer]


_ORIGINALS_MAX = 64  # maximum number of compared deleted files, and of compared listed files


class Original(NamedTuple):
    """A file that other files may be copies of."""

    file: KnownFile | None  # None for a file that is new itself
    row: Row | None  # None for a deleted file
    cut_off: str = ""  # the path of the file if the listing shows it truncated
    first: Fingerprints | None = None  # of the first KiB of a new file, from the first probe

    def ends(self) -> list[int]:
        """Return the positions at which a copy may end: the listed size, and the read position of the known file."""
        ends = []
        if self.row is not None:
            ends.append(self.row.size_bytes)
        if self.file is not None:
            ends.append(self.file.position)
        return ends

    @property
    def modified_ms(self) -> int:
        """Return the modification time, by which originals are sorted."""
        if self.row is not None:
            return self.row.modified_ms
        if self.file is not None:
            return self.file.modified_ms
        return 0


class Originals:
    """The known files that may have copies, with their current rows in a listing."""

    def __init__(self, table: Table, matches: Mapping[int, Match], cut_off: Mapping[bytes, str]) -> None:
        """Take a listing that was compared with the known files, and the matches of `match_known`.

        `cut_off` contains the paths of files that the listing shows truncated, by the keys of the known files.
        """
        self._table = table
        self._matches = matches
        self._cut_off = cut_off
        self._moved: dict[bytes, Row] = {}
        self._undecided: dict[bytes, Row] = {}  # by identity: each may be the known file with this identity
        for match in matches.values():
            if match.previous_keys and match.file:
                self._moved[match.file.key] = match.row
            if match.rule is IdentityRule.UNDECIDED:
                self._undecided[match.row.identity_hash] = match.row
        self._undecided.pop(NO_IDENTITY, None)
        self._by_start: dict[str, tuple[Original, ...]] = {}

    def starting(self, start: str) -> tuple[Original, ...]:
        """Return the known files that begin with this start and have enough read bytes, newest first."""
        if start not in self._by_start:
            originals = []
            for file, place in self._table.known_by_start(start):
                originals.append(self._find_original(file, place))
            originals.sort(key=attrgetter("modified_ms"), reverse=True)
            self._by_start[start] = tuple(originals)
        return self._by_start[start]

    def may_be_copy(self, match: Match) -> bool:
        """Return True if a file may be a copy: it was not read yet, or other known files have the same start."""
        if match.rule is IdentityRule.UNDECIDED or match.row.size_bytes < 0:
            return False
        return match.before is None or len(self.starting(match.before.start)) > 1

    def _find_original(self, file: KnownFile, place: int) -> Original:
        match = self._matches.get(place)
        row = self._moved.get(file.key)
        may_be_same = match is None or match.rule in {IdentityRule.SAME, IdentityRule.UNDECIDED}
        if row is None and place >= 0 and may_be_same:
            row = self._table.row(place)
        if row is None:
            row = self._undecided.get(file.identity)
        cut_off = ""
        if row is None:
            cut_off = self._cut_off.get(file.key, "")
        return Original(file, row, cut_off)


@dataclass
class Contents:
    """The contents that one plan has seen so far.

    Attributes:
        new: files that were not read yet, by the start of their content.
        claimed: keys of deleted files that are continued in a copy.
        mismatched: keys of paths whose content differs from the known content.
    """

    new: dict[str, list[Original]] = field(default_factory=partial(defaultdict, list))
    claimed: set[bytes] = field(default_factory=set)
    mismatched: set[bytes] = field(default_factory=set)


def match_content(
    matches: Sequence[Match], starting: Callable[[str], Sequence[Original]], contents: Contents
) -> Generator[list[ContentProbe], Answers, list[Match]]:
    """Apply the first of these rules that is met to each match; return the matches in the same order.

    5. The content equals a listed file, or the beginning of a listed file: it is a copy of that file.
    6. A comparison failed, or the compared file has changed: the match is undecided.
    7. The content begins with all read bytes of a deleted file, or with a listed file that has no unread bytes:
    reading resumes after these bytes. If several files match, the longest is used. A deleted file is continued in only
    one copy; its other copies wait for the next plan.
    8. A longer file was truncated, and the content has its first KiB, or is still shorter and may become its first KiB:
    it is a copy of that file.
    9. Otherwise, the match is unchanged.

    The stored bytes of a file are compared before the decoded bytes. The generator yields probes three times and
    receives their answers: for the first KiB of each content, for each position at which another file ended, and for
    the listed originals.

    Args:
        matches: of files that may be copies.
        starting: returns the known files whose content begins with the given start.
        contents: of the plan; this call adds to it.
    """
    variants: list[tuple[Match, str]] = []
    for match in matches:
        variants += [(match, codec) for codec in _codecs(match.row)]
    firsts = yield [ContentProbe(match.row, frozenset(), codec) for match, codec in variants]
    originals: dict[Key, list[Original]] = {}
    probes = _PlanProbes()
    for match, codec in variants:
        row = match.row
        content = firsts[row.place, codec]
        if isinstance(content, Failure) or content.size_bytes < CONTENT_BYTES_MIN:
            continue
        first = _first_of(content)
        if not match.position:
            new = contents.new[first.start]
        else:
            new = []
        candidates = _candidates([*starting(first.start), *new], match, content)
        if candidates:
            originals[row.place, codec] = candidates
            probes.add(row, "", row.size_bytes)
            for original in candidates:
                probes.add(row, codec, *original.ends())
        if not codec and not match.position:
            contents.new[first.start].append(Original(None, row, first=first))
    answers = {**firsts, **(yield probes.list())}
    for key in originals:
        answers[key] = _answer_unless_rewritten(firsts[key], answers[key])
    listed = yield _original_probes(originals, answers)
    decide = partial(_match_originals, answers=answers, originals=originals, listed=listed, contents=contents)
    return [decide(match) for match in matches]


def _original_probes(originals: Mapping[Key, Sequence[Original]], answers: Answers) -> list[ContentProbe]:
    """Return the probes of the listed originals with which contents are compared."""
    probes = _PlanProbes()
    for key, candidates in originals.items():
        content = answers[key]
        if not isinstance(content, Content):
            continue
        for original in candidates:
            row, file = original.row, original.file
            if row is None:
                continue
            probes.add(row, "", min(content.size_bytes, row.size_bytes))
            if file is None:
                probes.add(row, "", _first_end(row.size_bytes))
            else:
                probes.add(row, "", file.position)
    return probes.list()


def _codecs(row: Row) -> Iterator[str]:
    """Yield the codecs in which a file may have enough content; empty for its stored bytes."""
    if row.size_bytes >= CONTENT_BYTES_MIN:
        yield ""
    codec = codec_of(row.path)
    if codec:
        yield codec


def _first_end(size_bytes: int) -> int:
    """Return the end of the first KiB of a content, or the end of a shorter content."""
    return min(size_bytes, WINDOW_BYTES)


def _first_of(content: Content) -> Fingerprints:
    """Return the fingerprints of the first KiB, or of a shorter content."""
    return content.prints[_first_end(content.size_bytes)]


def _candidates(originals: Sequence[Original], match: Match, content: Content) -> list[Original]:
    """Return the possible originals of a file: the newest deleted files, then the newest listed files."""
    head = _first_of(content).head
    is_window = content.size_bytes >= WINDOW_BYTES
    deleted: list[Original] = []
    listed: list[Original] = []
    for original in sorted(originals, key=attrgetter("modified_ms"), reverse=True):
        file, row = original.file, original.row
        if row is not None and row.place == match.row.place:
            continue
        if file is not None:
            if row is None:
                is_beyond = file.position > match.position
            else:
                # If two equal files are known, the keys decide which of them is the original.
                is_beyond = (file.position, file.key) > (match.position, match.row.key)
            has_other_head = is_window and file.position >= WINDOW_BYTES and file.head != head
            if not is_beyond or has_other_head:
                continue
        if row is None:
            deleted.append(original)
        else:
            listed.append(original)
    return [*deleted[:_ORIGINALS_MAX], *listed[:_ORIGINALS_MAX]]


def _answer_unless_rewritten(first: Answer, second: Answer) -> Answer:
    """Return the second answer about a content, or `CHANGED` if its first bytes differ from the first answer."""
    if isinstance(first, Failure) or isinstance(second, Failure):
        return second
    if second.prints[second.size_bytes].start == _first_of(first).start:
        return second
    return CHANGED


class _PlanProbes:
    """Collects probes, one for each content."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}
        self._positions: dict[Key, set[int]] = defaultdict(set)

    def add(self, row: Row, codec: str, *positions: int) -> None:
        """Request fingerprints at more positions of a content."""
        self._rows[row.place, codec] = row
        self._positions[row.place, codec].update(positions)

    def list(self) -> list[ContentProbe]:
        """Return the probes."""
        probes = []
        for key, row in self._rows.items():
            _, codec = key
            probes.append(ContentProbe(row, frozenset(self._positions[key]), codec))
        return probes


def _match_originals(
    match: Match,
    answers: Mapping[Key, Answer],
    originals: Mapping[Key, Sequence[Original]],
    listed: Answers,
    contents: Contents,
) -> Match:
    """Apply the rules to the contents of a file, first to its stored bytes; return the resulting match."""
    place = match.row.place
    stored = answers.get((place, ""))
    stored_end = None
    if isinstance(stored, Content):
        stored_end = stored.prints.get(match.row.size_bytes)
    for codec in _codecs(match.row):
        content = answers[place, codec]
        if isinstance(content, Failure):
            return replace(match, rule=IdentityRule.UNDECIDED, error=content.error)
        compared = [_compare(one, content, listed) for one in originals.get((place, codec), ())]
        for original in _select_related(compared, Relation.MISMATCH):
            if original.row is not None:
                contents.mismatched.add(original.row.key)
        for rule in _RULES:
            decision = rule(match, Copy(content, stored=stored_end), compared, contents)
            if decision is not None:
                return decision
    return match


class Relation(enum.Enum):
    """The relation of a content to another file."""

    OTHER = enum.auto()  # neither content begins with the other, or the other file is deleted and longer
    BEGINNING = enum.auto()  # the content is the beginning of a listed file, or equal to it
    UNREAD = enum.auto()  # one begins with the other: a new file, or a shorter listed file with unread bytes
    # The content begins with all read bytes of a deleted file, or with a listed file that has no unread bytes.
    CONTINUATION = enum.auto()
    MISMATCH = enum.auto()  # the content of the other file differs from its known content
    FAILED = enum.auto()  # the other file has changed since the listing, or cannot be read


class Comparison(NamedTuple):
    """The result of comparing a content with a file whose copy it may be."""

    original: Original
    relation: Relation
    error: FtfileError | None = None


def _compare(original: Original, content: Content, listed: Answers) -> Comparison:
    file, row = original.file, original.row
    if row is None:
        relation = Relation.OTHER
        if file is not None and content.begins_as(file):
            relation = Relation.CONTINUATION
        return Comparison(original, relation)
    answer = listed[row.place, ""]
    if isinstance(answer, Failure):
        return Comparison(original, Relation.FAILED, answer.error)
    if answer.stored_bytes != row.size_bytes:
        return Comparison(original, Relation.FAILED)
    if original.first is not None and answer.prints.get(_first_end(row.size_bytes)) != original.first:
        return Comparison(original, Relation.FAILED)  # rewritten since the first probe
    common_bytes = min(content.size_bytes, row.size_bytes)
    if file is not None and not answer.begins_as(file):
        relation = Relation.MISMATCH
    elif content.prints.get(common_bytes) != answer.prints.get(common_bytes):
        relation = Relation.OTHER
    elif file is not None and content.size_bytes <= row.size_bytes:
        relation = Relation.BEGINNING
    else:
        relation = Relation.CONTINUATION
        if file is None or file.position < row.size_bytes:
            relation = Relation.UNREAD
    return Comparison(original, relation)


def _select_related(compared: Sequence[Comparison], *relations: Relation) -> list[Original]:
    return [one.original for one in compared if one.relation in relations]


def _match_copy(match: Match, copy: Copy, compared: Sequence[Comparison], _: Contents) -> Match | None:
    """Apply rule 5."""
    size_bytes = copy.content.size_bytes
    copied: list[tuple[Original, int]] = []
    for original in _select_related(compared, Relation.BEGINNING):
        if original.file is not None:
            copied.append((original, original.file.position))
    if not copied:
        copied = [(original, -1) for original in _select_related(compared, Relation.UNREAD)]
    if not copied:
        return None
    original, position = max(copied, key=itemgetter(1))
    path = ""
    if original.row is not None:
        path = original.row.path
    copy = copy._replace(original=path, is_read=size_bytes <= position, is_whole=size_bytes == position)
    return replace(match, rule=IdentityRule.COPY, copy=copy)


def _leave_undecided(match: Match, _: Copy, compared: Sequence[Comparison], __: Contents) -> Match | None:
    """Apply rule 6."""
    is_undecided, error = False, None
    for comparison in compared:
        if comparison.relation in {Relation.FAILED, Relation.MISMATCH}:
            is_undecided = True
            if error is None:
                error = comparison.error
    if is_undecided:
        return replace(match, rule=IdentityRule.UNDECIDED, error=error)
    return None


def _position_and_listed(candidate: tuple[KnownFile, Row | None]) -> tuple[int, bool]:
    file, row = candidate
    return file.position, row is not None


def _continue_copy(match: Match, copy: Copy, compared: Sequence[Comparison], contents: Contents) -> Match | None:
    """Apply rule 7."""
    candidates: list[tuple[KnownFile, Row | None]] = []
    for original in _select_related(compared, Relation.CONTINUATION):
        if original.file is not None:
            candidates.append((original.file, original.row))
    if not candidates:
        return None
    file, row = max(candidates, key=_position_and_listed)
    if row is None and file.key in contents.claimed:
        return replace(match, rule=IdentityRule.UNDECIDED)
    is_packed = bool(copy.content.codec)
    packed_copy = None
    if is_packed:
        packed_copy = copy
    decision = replace(match, rule=IdentityRule.CONTINUED, file=file, copy=packed_copy)
    if row is not None:
        return decision
    contents.claimed.add(file.key)
    # A deleted file stays known in addition to its compressed copy, because the copy may be decompressed later.
    if is_packed:
        return replace(decision, advances=file.key)
    return replace(decision, previous_keys=(*match.previous_keys, file.key))


def _cut_copy(match: Match, copy: Copy, compared: Sequence[Comparison], _: Contents) -> Match | None:
    """Apply rule 8. All compared files have the same first KiB as the content, as far as the content has it."""
    size_bytes = copy.content.size_bytes
    for one in _select_related(compared, Relation.OTHER):
        if one.cut_off and one.file is not None and one.file.position > size_bytes:
            copy = copy._replace(original=one.cut_off, is_read=size_bytes >= WINDOW_BYTES)
            return replace(match, rule=IdentityRule.CUT_COPY, copy=copy)
    return None


_RULES = (_match_copy, _leave_undecided, _continue_copy, _cut_copy)
