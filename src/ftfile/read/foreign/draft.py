"""A plan in the making: the next range of each file, limits of all, and what is forgotten behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.codecs import codec_of
from ftfile.read.foreign.known import (
    CONTENT_BYTES_MIN,
    END_MARKS,
    Fingerprints,
    codec_in,
    end_of_lines,
    fingerprints,
    first_line_end,
    has_end_mark,
)
from ftfile.read.foreign.looks import open_listed
from ftfile.read.foreign.matching import Rule
from ftfile.read.foreign.plan import Late, Move, Parked, Plan, Range, Refused, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ftfile.read.foreign.file_table import Row, Table
    from ftfile.read.foreign.matching import Copy, Match
    from ftfile.read.foreign.settings import FilesSettings
    from ftfile.storage.api import FileSystem, InputFile


@dataclass(frozen=True, slots=True)
class Found:
    """The parts of a plan that come from one file; without any, it is looked at again when it changes, or later."""

    range: Range | None = None
    seen: Seen | None = None
    parked: str = ""  # the reason
    warning: str = ""
    wait_s: float = math.inf
    is_mismatch: bool = False  # its content is not the one that is known


def next_of(fs: FileSystem, settings: FilesSettings, match: Match, unchanged_s: float, bytes_max: int | None) -> Found:
    """Return the next range of a file that has certainly not changed for `unchanged_s`, or another finding.

    A range of a growing file has `bytes_max` at most, unless its first line is longer; None is no limit.

    Raises:
        NotFound: the file is gone.
        StorageError: it cannot be read now.
    """
    if match.row.size_bytes < 0:
        return parked(settings, match, "its store does not tell how long it is: copy it to one that does")
    if match.copy is not None:
        return _next_of_copy(fs, settings, match, match.copy, unchanged_s)
    if settings.reads_lines(match.row.path):
        return _next_lines(fs, settings, match, unchanged_s, bytes_max)
    return _next_whole(fs, settings, match, unchanged_s)


def parked(settings: FilesSettings, match: Match, reason: str) -> Found:
    """Return that a file is left out until it changes; one that was found at another path stays known there."""
    return Found(seen=unread(settings, match), parked=reason)


def _next_of_copy(fs: FileSystem, settings: FilesSettings, match: Match, copy: Copy, unchanged_s: float) -> Found:
    row, size_bytes = match.row, copy.content.size_bytes
    if match.rule is Rule.COPY:
        if not copy.is_read or unchanged_s < settings.min_age_s:
            return Found(wait_s=0)  # it may be growing still, and may turn out to be another file
        if not (copy.content.codec or copy.is_whole or _is_ended(fs, settings, row)):
            return Found(wait_s=0)  # it stops in a line: it is still being made
    if copy.stored is None:
        return Found(wait_s=0)
    seen = _seen(row, row.size_bytes, copy.stored)
    if match.rule is Rule.CUT_COPY:
        return Found(seen=seen, warning=f"is taken for a copy of {copy.original!r} before that was cut off: not read")
    if match.rule is Rule.COPY or size_bytes == match.position:
        return Found(seen=seen)
    rest = replace(_range(match, match.position, size_bytes, copy.end), compression=copy.content.codec)
    return Found(range=rest, seen=seen)


def _is_ended(fs: FileSystem, settings: FilesSettings, row: Row) -> bool:
    with open_listed(fs, row) as file:
        return file is not None and _ends_a_line(file, row.size_bytes, settings.separator)


def _next_lines(
    fs: FileSystem, settings: FilesSettings, match: Match, unchanged_s: float, bytes_max: int | None
) -> Found:
    row, begin, size = match.row, match.position, match.row.size_bytes
    nothing = Found(seen=unread(settings, match))
    if begin >= size:
        return nothing
    with open_listed(fs, row) as file:
        if file is None:
            return Found(wait_s=0)
        end = end_of_lines(file.read_at, begin, size, settings.separator, bytes_max)
        if settings.identity == "content" and end < CONTENT_BYTES_MIN:
            # A copy could not be told from it: it waits for more lines.
            enough = CONTENT_BYTES_MIN - len(settings.separator)
            end = first_line_end(file.read_at, max(begin, enough), size, settings.separator) or begin
        is_last = bytes_max is None or size - begin <= bytes_max or end == begin
        if is_last and unchanged_s >= settings.close_inactive_s:
            end = size
        marks = fingerprints(file.read_at, end)
        is_line = end in {begin, size} or _ends_a_line(file, end, settings.separator)
        # It may be cut off and written anew between two reads: the content that was read first is looked at again.
        if match.before is not None and fingerprints(file.read_at, begin) != match.before:
            return Found(wait_s=0, is_mismatch=True)
        is_unchanged = is_line and marks is not None and fingerprints(file.read_at, end) == marks
    if marks is None or not is_unchanged:
        return Found(wait_s=0)
    if end == begin:
        return replace(nothing, wait_s=max(settings.close_inactive_s - unchanged_s, 0))
    return Found(range=_range(match, begin, end, marks))


def _ends_a_line(file: InputFile, end: int, separator: bytes) -> bool:
    return file.read_at(end - len(separator), len(separator)) == separator


def _next_whole(fs: FileSystem, settings: FilesSettings, match: Match, unchanged_s: float) -> Found:
    row = match.row
    path, size = row.path, row.size_bytes
    # Of logs that are compressed, it is the next one, whose inode is that of the last.
    is_truncated = match.rule is Rule.TRUNCATED and settings.identity == "native" and not settings.tail
    is_overwritten = match.position > 0 or is_truncated
    if match.position == size:
        return Found(seen=unread(settings, match))  # nothing but its name or its time is another one
    with open_listed(fs, row) as file:
        if file is None or file.size_bytes != size:
            return Found(wait_s=0)
        fault = _unfinished(fs, settings, row.path, file, unchanged_s)
        marks = fingerprints(file.read_at, size)
        codec = codec_in(path, file.read_at)
    if fault is not None:
        return fault
    if marks is None:
        return Found(wait_s=0)
    if is_overwritten and not settings.allow_overwrites:
        seen = _seen(row, size, marks)
        return Found(seen=seen, warning="has changed since it was read; allowOverwrites=true reads such files again")
    return Found(range=replace(_range(match, 0, size, marks), whole=True, compression=codec))


def _unfinished(
    fs: FileSystem, settings: FilesSettings, path: str, file: InputFile, unchanged_s: float
) -> Found | None:
    """Return why a file cannot be read as a whole yet, or None."""
    young = Found(wait_s=settings.min_age_s - unchanged_s) if unchanged_s < settings.min_age_s else None
    if fs.capabilities.visible_at == "at_close":
        young = None
    if settings.file_format in END_MARKS and not codec_of(path):
        length = min(file.size_bytes, 16)
        if has_end_mark(settings.file_format, file.read_at(file.size_bytes - length, length)):
            return None
        return young or Found(parked=f"it does not end as {settings.file_format} files do")
    return young


def seen_at(fs: FileSystem, settings: FilesSettings, match: Match, unchanged_s: float, bytes_max: int | None) -> Found:
    """Return a file as known up to where `next_of` would read it; one that is not complete stays new."""
    # Too little to tell a copy is enough to tell where a file ends.
    found = next_of(fs, replace(settings, identity="native"), match, unchanged_s, bytes_max)
    if found.range is None:
        return found
    marks = Fingerprints(found.range.head, found.range.tail)
    return Found(seen=_seen(match.row, found.range.end, marks))


def unread(settings: FilesSettings, match: Match) -> Seen | None:
    """Return a file as it is known while nothing of it is read; None if it stays known, or unknown, as it is.

    One that was found at another path is known there up to where it was read. One that lies where another file was, or
    was cut off, is known from its start: the same content that comes again later is then new. What is read whole
    replaces the other file when it is read.
    """
    if match.previous_keys:
        return _seen(match.row, match.position, match.before or Fingerprints("", ""))
    is_new = match.rule in {Rule.REPLACED, Rule.TRUNCATED} and settings.reads_lines(match.row.path)
    return _seen(match.row, 0, Fingerprints("", "")) if is_new else None


def _seen(row: Row, position: int, marks: Fingerprints) -> Seen:
    return Seen(row.path, position, *marks, row.size_bytes, row.modified_ms, row.identity)


def _range(match: Match, begin: int, end: int, marks: Fingerprints) -> Range:
    row = match.row
    size_bytes, modified_ms = row.size_bytes, row.modified_ms
    return Range(row.path, begin, end, marks.head, marks.tail, size_bytes, modified_ms, row.identity)


class Draft:
    """The parts of a plan, within the limits of the settings."""

    def __init__(self, settings: FilesSettings, *, is_limited: bool) -> None:
        files_max = settings.files_max if is_limited else None
        self.files_left = math.inf if files_max is None else files_max  # of which the plan may yet have ranges
        self._bytes_max = settings.bytes_max if is_limited else None
        self._settings = settings
        self._size_bytes = 0
        self._places: list[int] = []  # in the listing, of all files of the plan
        self._ranges: list[Range] = []
        self._moves: list[Move] = []
        self._advances: list[Move] = []
        self._seen: list[Seen] = []
        self._parked: list[Parked] = []
        self._replaced: list[str] = []

    @property
    def is_full(self) -> bool:
        """Return True if no other range has room."""
        return self.files_left <= 0 or (self.bytes_left is not None and self.bytes_left <= 0)

    @property
    def bytes_left(self) -> int | None:
        """Return the bytes that the next range may have; None for any number."""
        return None if self._bytes_max is None else self._bytes_max - self._size_bytes

    @property
    def moved(self) -> frozenset[bytes]:
        """Return the keys of files that were found at other paths, or in compressed copies."""
        return frozenset(bytes.fromhex(move.key) for move in (*self._moves, *self._advances))

    def add(self, match: Match, found: Found) -> bool:
        """Take what was found of a file, and return True; False if that would pass a limit."""
        row = match.row
        if found.range is not None:
            size_bytes = found.range.end - found.range.start
            if self._ranges and (self.is_full or size_bytes > (self.bytes_left or math.inf)):
                return False
            self._ranges.append(found.range)
            self._size_bytes += size_bytes
            self.files_left -= 1
            self._advances += [Move(match.advances.hex(), row.path)] if match.advances else []
        if found.seen is not None:
            self._seen.append(found.seen)
        if found.parked:
            marks = row.size_bytes, row.modified_ms, row.identity
            self._parked.append(Parked(row.path, found.parked, *marks))
        self._moves += [Move(key.hex(), row.path) for key in match.previous_keys]
        if match.displaces:
            self._replaced.append(row.path)
        self._places.append(row.place)
        return True

    def add_unread(self, matches: Iterable[Match]) -> None:
        """Take files of which nothing is read now, and that are not known where they begin.

        Others may be at the old paths of those that were found again; and what was cut off may have its old content
        again before it is read.
        """
        places = set(self._places)
        for match in matches:
            seen = None if match.row.place in places else unread(self._settings, match)
            if seen is not None:
                self.add(match, Found(seen=seen))

    def bytes_behind(self, table: Table, left: NDArray[np.intp]) -> int:
        """Return the bytes that the plan leaves unread in files at some places of the listing."""
        read = {each.path: each.end - each.start for each in self._ranges}
        planned = sum(read.get(table.listing.paths[place], 0) for place in left) if read else 0
        return int(table.unread_bytes(left).sum()) - planned

    def plan(
        self,
        table: Table,
        late: tuple[Late, ...],
        refused: tuple[Refused, ...],
        left: NDArray[np.intp],
        now_ms: int,
    ) -> Plan:
        """Return the plan; files with something left to read, at the places `left`, are not forgotten."""
        plan = Plan(
            tuple(self._ranges),
            tuple(self._moves),
            tuple(self._seen),
            tuple(self._parked),
            late,
            tuple(self._replaced),
            table.known.low,
            self._settings.root,
            now_ms,
            refused,
            tuple(self._advances),
        )
        if plan.is_empty:
            return plan
        low = self._low(table, left, now_ms)
        places = set(self._places)
        refreshed = tuple(
            Seen(one.path, known.position, known.head, known.tail, known.size_bytes, low, one.identity)
            for one in table.touched_below(low)
            if one.place not in places and (known := one.known) is not None and not known.is_parked
        )
        return replace(plan, seen=plan.seen + refreshed, low=low)

    def _low(self, table: Table, left: NDArray[np.intp], now_ms: int) -> int:
        """Return the time before which files are forgotten after this plan; none that is left to read is."""
        low = table.known.low
        times = table.listing.times
        if self._ranges:
            newest = max(found.modified_ms for found in self._ranges)
            low = max(low, min(newest, now_ms) - int(self._settings.max_age_s * 1000))
        known = table.times_after(np.array(self._places, np.intp))
        over = len(known) - self._settings.tracked_max
        if over > 0:
            last = int(np.partition(known, over - 1)[over - 1])
            # Files of the newest time stay: others may yet appear with it, and would be late.
            low = max(low, min(last + 1, int(known.max())))
        return max(table.known.low, min(low, int(times[left].min()))) if len(left) else low
