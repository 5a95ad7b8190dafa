"""Copies of known files, also compressed ones, found by their content: `fileIdentity=content`."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ftfile.core.errors import CorruptData, FtfileError, NotFound, StorageError
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import plain_pieces
from ftfile.read.foreign.known import (
    CONTENT_BYTES_MIN,
    ROW,
    START_BYTES,
    WINDOW_BYTES,
    Fingerprints,
    KnownFile,
    codec_in,
    fingerprints,
    marks_of,
    read_positions,
)
from ftfile.read.foreign.looks import open_listed
from ftfile.read.foreign.matching import Rule
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ftfile.read.foreign.file_table import Row, Table
    from ftfile.read.foreign.matching import Match
    from ftfile.storage.api import FileSystem, InputFile


_ORIGINALS_MAX = 64  # listed files that one file is compared with, the newest ones
_READ_BYTES = 64 << 10


@dataclass(frozen=True)
class Content:
    """The plain content of an open file; of a compressed one, each call decodes it from its start."""

    file: InputFile
    codec: str  # by its name; empty for none

    @cached_property
    def first(self) -> bytes:
        """Return the first KiB, or less of a shorter file; raises `CorruptData` if it cannot be decoded."""
        if not self.codec:
            return self.file.read_at(0, WINDOW_BYTES)
        data = b""
        for piece in self._pieces():
            data += piece[: WINDOW_BYTES - len(data)]
            if len(data) == WINDOW_BYTES:
                break
        return data

    def marks(self, positions: Iterable[int]) -> tuple[int, dict[int, Fingerprints]]:
        """Return the length, and the fingerprints at its end and at positions, as far as there is so much content.

        Raises:
            CorruptData: it cannot be decoded.
            NotFound: it was cut off since it was opened.
        """
        if not self.codec:
            size, marks = self.file.size_bytes, {}
            for position in {size, *(position for position in positions if position <= size)}:
                at = fingerprints(self.file.read_at, position)
                if at is None:
                    raise NotFound("read", self.file.path, "it was cut off while it was compared")
                marks[position] = at
            return size, marks
        return marks_of(self._pieces(), positions)

    def _pieces(self) -> Iterator[bytes]:
        stored = (self.file.read_at(at, _READ_BYTES) for at in range(0, self.file.size_bytes, _READ_BYTES))
        return plain_pieces(stored, Chain.for_reading((self.codec,)).decoder(""), self.file.path)


class Copy(NamedTuple):
    """A file that has the content of a known one."""

    match: Match  # where reading goes on
    codec: str  # in which the content is the same
    size: int  # of that content
    marks: Fingerprints  # at its end
    original: str | None = None  # path of the known file, if that goes on itself
    is_read: bool = False  # all of the content was read at the original
    is_cut: bool = False  # the original was cut off, and its content before that is not there to compare
    stored: Fingerprints | None = None  # at the end of the file as it is stored and was listed; None if it is shorter


class _Opened(NamedTuple):
    """A file that may be a copy: its content as it is stored, and as it is decoded; or why it cannot be read."""

    contents: tuple[Content, ...] = ()
    error: FtfileError | None = None


class Copies:
    """The known files of which others may be copies."""

    def __init__(
        self, fs: FileSystem, table: Table, matches: Mapping[int, Match], cut_off: Mapping[bytes, str]
    ) -> None:
        """Take the files of a table, and where those begin that are known by now, by their places.

        `cut_off` has the paths of files that the listing shows cut off, by the keys of the known files.
        """
        self._fs = fs
        self._table = table
        moved = {match.row.place: match.file for match in matches.values() if match.previous_keys and match.file}
        self._claimed = {file.key for file in moved.values()}
        displaced = [match.row for match in matches.values() if match.displaces]
        gone = np.array([row.place for row in displaced], np.intp)
        self._orphans = _Heads(np.concatenate([table.missing, table.rows_at(gone)]))
        self._cut_off = cut_off
        self.mismatched: set[bytes] = set()  # keys of paths where other content was seen than is known
        self._firsts: dict[str, bytes] = {}  # first KiB of files compared with, by path
        self._new: dict[bytes, list[Row]] = defaultdict(list)  # files that this plan finds, by their beginning
        # One that is undecided may be any of them: its copies wait.
        decided = [match for match in matches.values() if match.rule is not Rule.UNDECIDED]
        others = [match.row.place for match in decided if match.previous_keys or not match.position]
        places = np.setdiff1d(table.known_places(), others)
        renamed = np.frombuffer(b"".join(file.packed() for file in moved.values()), ROW)
        rows = np.concatenate([table.rows_at(places), renamed])
        self._live = _Heads(rows, np.concatenate([places, np.array([*moved], np.intp)]))

    def find(self, matches: Sequence[Match]) -> list[Copy | FtfileError | None]:
        """Return each file as a copy of a known one, or None, or why it cannot be read.

        An original that was found again is found once: the files are compared in their order, and only opened at once.
        """
        with ExitStack() as files:
            opened = parallel(self._fs, partial(self._opened, files), matches)
            return [self._find_in(match, one) for match, one in zip(matches, opened, strict=True)]

    def _opened(self, files: ExitStack, match: Match) -> _Opened:
        """Return the content of a file; none if it is no copy, whatever it has."""
        known, path = match.row.known, match.row.path
        has_twin = known is not None and self._orphans.count(known) + self._live.count(known) > 1
        if match.position and (match.previous_keys or not has_twin):
            return _Opened()
        try:
            file = files.enter_context(open_listed(self._fs, match.row))
            if file is None:
                return _Opened(error=NotFound("open", path, "the file that was listed has another name now"))
            codec = codec_in(path, file.read_at)
            contents = (Content(file, ""), *([Content(file, codec)] if codec else []))
            for content in contents:
                with suppress(CorruptData):  # raised again if this content is needed
                    _ = content.first
        except StorageError as error:
            return _Opened(error=error)
        return _Opened(contents)

    def _find_in(self, match: Match, opened: _Opened) -> Copy | FtfileError | None:
        try:
            found = (self._find(match, content) for content in opened.contents)
            copy = next((copy for copy in found if copy is not None), None)
            is_found = copy is not None and copy.match.rule is Rule.CONTINUED and bool(copy.match.previous_keys)
            if is_found:  # another copy of it waits until this one is known
                self._new[opened.contents[0].first[:CONTENT_BYTES_MIN]].append(match.row)
            if copy is None or (copy.original is None and not copy.codec):
                return copy or opened.error
            stored = fingerprints(opened.contents[0].file.read_at, match.row.size_bytes)
            return copy._replace(stored=stored)
        except (StorageError, CorruptData) as error:
            return error

    def _find(self, match: Match, content: Content) -> Copy | None:
        first, codec = content.first, content.codec
        if len(first) < CONTENT_BYTES_MIN:
            return None
        rank = match.position, match.row.key
        orphans = [known for known, _ in self._orphans.beginning(first) if known.position > match.position]
        orphans = [known for known in orphans if known.key not in self._claimed]
        originals = self._live.beginning(first) + self._live.longer(first)
        # Of two equal files that are both known, one is the original.
        live = [(known, place) for known, place in originals if (known.position, known.key) > rank]
        if not (orphans or live):
            return self._with_new(match, content, codec, first)
        listed = self._table.listing
        done = [known for known, place in live if known.position >= listed.sizes[place]]
        size, marks = content.marks(known.position for known in (*orphans, *done))
        equal = [known for known in (*orphans, *done) if marks.get(known.position) == (known.head, known.tail)]
        if equal:
            begun = max(equal, key=lambda known: known.position)
            is_orphan = begun in orphans
            if is_orphan:
                self._claimed.add(begun.key)
            is_read = not is_orphan and begun.position == size
            previous_keys = (*match.previous_keys, *((begun.key,) if is_orphan else ()))
            going = replace(match, rule=Rule.CONTINUED, file=begun, previous_keys=previous_keys)
            return Copy(match if is_read else going, codec, size, marks[size], "" if is_read else None, is_read)
        live = [(known, place) for known, place in live if place != match.row.place]
        newest = sorted(live, key=lambda pair: -pair[0].modified_ms)[:_ORIGINALS_MAX]
        compared = [replace(self._table.row(place), known=known) for known, place in newest]
        if size <= WINDOW_BYTES:
            parallel(self._fs, self._first_of, compared)
        for original in compared:
            if self._begins_with(original, size, marks[size]):
                is_read = original.known is not None and size <= original.known.position
                return Copy(match, codec, size, marks[size], original.path, is_read=is_read)
        cut_off = [known.key for known in orphans if known.position > size and known.key in self._cut_off]
        if cut_off:
            return Copy(match, codec, size, marks[size], self._cut_off[cut_off[0]], is_read=True, is_cut=True)
        return self._with_new(match, content, codec, first)

    def _with_new(self, match: Match, content: Content, codec: str, first: bytes) -> Copy | None:
        """Return that a file waits: it is the beginning of one that is new itself, or the other way round."""
        if match.position:
            return None
        others = self._new[first[:CONTENT_BYTES_MIN]]
        if others:
            size, marks = content.marks([other.size_bytes for other in others])
            for other in others[-_ORIGINALS_MAX:]:
                at = min(size, other.size_bytes)
                if self._begins_with(replace(other, known=None), at, marks[at]):
                    return Copy(match, codec, size, marks[size], other.path)
        if not codec:
            others.append(match.row)
        return None

    def _begins_with(self, original: Row, size: int, marks: Fingerprints) -> bool:
        """Return True if a file begins so; raises as `_open_listed`."""
        if size <= WINDOW_BYTES:
            return fingerprints(partial(_slice, self._first_of(original)), size) == marks
        with self._open_listed(original) as file:
            return fingerprints(file.read_at, size) == marks

    def _first_of(self, original: Row) -> bytes:
        """Return the first KiB of a file, or less of a shorter one; raises as `_open_listed`."""
        if original.path not in self._firsts:
            with self._open_listed(original) as file:
                self._firsts[original.path] = file.read_at(0, WINDOW_BYTES)
        return self._firsts[original.path]

    @contextmanager
    def _open_listed(self, original: Row) -> Iterator[InputFile]:
        """Open a file that others are compared with, which begins with its known file.

        Raises:
            NotFound: it was renamed, cut off or replaced since it was listed, so that its content tells nothing of its
                copies: the next listing does.
        """
        with open_listed(self._fs, original) as file:
            known, is_listed = original.known, file is not None
            if file is not None and known is not None and known.position:
                is_listed = fingerprints(file.read_at, known.position) == (known.head, known.tail)
                if not is_listed:
                    self.mismatched.add(original.key)
            if file is None or not is_listed:
                raise NotFound("open", original.path, "it has changed since it was listed")
            yield file


def _slice(content: bytes, offset: int, length: int) -> bytes:
    return content[offset : offset + length]


class _Heads:
    """Known files by their first bytes, with their places in the listing if they are listed."""

    def __init__(self, rows: NDArray[Any], places: NDArray[np.intp] | None = None) -> None:
        positions = read_positions(rows)
        is_long = positions >= CONTENT_BYTES_MIN
        self._rows = rows[is_long]
        self._places = np.full(len(self._rows), -1) if places is None else places[is_long]
        starts = self._rows["head"].astype("<u4")  # its lower half: that of the first 256 bytes
        self._order = np.argsort(starts, kind="stable")
        self._sorted = starts[self._order]
        self._windows = np.minimum(positions[is_long], WINDOW_BYTES)

    def count(self, known: KnownFile) -> int:
        """Return the number of files with the first 256 bytes of a known one, with itself."""
        return len(self._with(known.head))

    def beginning(self, first: bytes) -> list[tuple[KnownFile, int]]:
        """Return the files that begin with these bytes, as far as they were read."""
        files = [self._at(number) for number in self._starting(first) if self._windows[number] <= len(first)]
        return [(file, place) for file, place in files if file.head == _head(first, file.position)]

    def longer(self, first: bytes) -> list[tuple[KnownFile, int]]:
        """Return the newest files of which more was read than these bytes, a window or less, and that start so."""
        numbers = self._starting(first)
        numbers = numbers[self._windows[numbers] > len(first)]
        newest = np.argsort(self._rows["modified"][numbers])[-_ORIGINALS_MAX:]
        return [self._at(number) for number in numbers[newest]]

    def _starting(self, first: bytes) -> NDArray[np.intp]:
        return self._with(_head(first, CONTENT_BYTES_MIN))

    def _at(self, number: np.intp) -> tuple[KnownFile, int]:
        return KnownFile.unpacked(self._rows[number].tobytes()), int(self._places[number])

    def _with(self, head: str) -> NDArray[np.intp]:
        start = np.frombuffer(bytes.fromhex(head)[:START_BYTES], "<u4")[0]
        low, high = np.searchsorted(self._sorted, start, "left"), np.searchsorted(self._sorted, start, "right")
        return self._order[low:high]


def _head(first: bytes, position: int) -> str:
    """Return the head of a content with these first bytes, at least as many as count."""
    prints = fingerprints(partial(_slice, first), min(position, WINDOW_BYTES))
    assert prints is not None, "there are as many"
    return prints.head
