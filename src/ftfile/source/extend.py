"""The range of each listed file that the next plan reads within its limits, and the known files after it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from ftfile.core.codecs import filters_of_name, is_encrypted
from ftfile.source.contents import (
    CONTENT_BYTES_MIN,
    NO_PRINTS,
    Fingerprints,
    codec_in,
    end_of_lines,
    fingerprints,
    first_line_end,
)
from ftfile.source.matching import IdentityRule
from ftfile.source.plan import FileEntry, Late, Range, Refused, SourcePlan
from ftfile.source.probes import open_listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.source.file_table import Row, Table
    from ftfile.source.matching import Copy, Match
    from ftfile.source.settings import SourceSettings
    from ftfile.storage.api import FileSystem, InputFile


# For formats with an end mark: the marks, and the number of bytes after the mark.
_END_MARKS: dict[str, tuple[tuple[bytes, ...], int]] = {
    "parquet": ((b"PAR1", b"PARE"), 0),  # PARE marks files with encrypted footers
    "orc": ((b"ORC",), 1),
    "arrow": ((b"ARROW1",), 0),
}


# A known file has 65 bytes in the state of the stream, so the state has at most 65 MB, except for files of the backlog
# and of the newest time.
KNOWN_FILES_MAX = 1_000_000

_IN_THE_CLEAR = (
    "keyProvider is set, and its name does not end in .enc: unencrypted files are not trusted. allowClearFiles=true "
    "reads them, and pathGlobFilter=*.enc skips them"
)


@dataclass(frozen=True, slots=True)
class Extension:
    """The parts of a plan that come from one file. If empty, the file is checked again when it changes, or later."""

    range: Range | None = None
    entry: FileEntry | None = None
    warning: str = ""
    wait_s: float = math.inf  # time until the unchanged file must be checked again; 0 if it differs from the listing
    is_mismatch: bool = False  # the content differs from the known content

    @property
    def is_empty(self) -> bool:
        """Return True if the plan contains nothing of the file."""
        return self.range is None and self.entry is None


CHANGED = Extension(wait_s=0)  # the next listing shows the change


def extend(
    fs: FileSystem, settings: SourceSettings, match: Match, unchanged_s: float, bytes_max: int | None
) -> Extension:
    """Return the parts of a plan that come from a file that has not changed for at least `unchanged_s`.

    A range of a growing file has at most `bytes_max` bytes, unless its first line is longer; None is no limit.

    Raises:
        NotFound: the file is missing.
        StorageError: the file cannot be read now.
    """
    if match.row.size_bytes < 0:
        return park(
            settings, match, "its storage does not report the length of the file: copy it to a storage system that does"
        )
    if settings.decoding.encrypted_only and not is_encrypted(match.row.path):
        return park(settings, match, _IN_THE_CLEAR)
    if match.rule is IdentityRule.CUT_COPY and match.copy is not None and not match.copy.is_read:
        if unchanged_s < settings.close_inactive:
            return CHANGED  # the file may still grow, and can be distinguished from others when it has a KiB
        match = replace(match, rule=IdentityRule.NEW, copy=None)
    if match.copy is not None:
        return _extend_copy(fs, settings, match=match, copy=match.copy, unchanged_s=unchanged_s)
    if settings.reads_lines(match.row.path):
        return _extend_lines(fs, settings, match=match, unchanged_s=unchanged_s, bytes_max=bytes_max)
    return _extend_whole(fs, settings, match, unchanged_s)


def extend_unread(
    fs: FileSystem, settings: SourceSettings, match: Match, unchanged_s: float, bytes_max: int | None
) -> Extension:
    """Return a file as known up to the position where `extend` would end; an incomplete file stays new.

    Raises:
        NotFound, StorageError: see `extend`.
    """
    # A content that is too short to detect copies still has a known end.
    extension = extend(
        fs, replace(settings, file_identity="native"), match=match, unchanged_s=unchanged_s, bytes_max=bytes_max
    )
    planned = extension.range
    if planned is None:
        return extension
    return Extension(entry=_entry(match, planned.end, Fingerprints(planned.head, planned.tail)))


def park(settings: SourceSettings, match: Match, reason: str) -> Extension:
    """Return an extension that skips a file until it changes; the known position of the file is kept."""
    # An overwritten file that is read as a whole only counts as overwritten once it is read.
    is_overwritten = (
        match.rule is IdentityRule.TRUNCATED and not match.displaces and not settings.reads_lines(match.row.path)
    )
    file = match.file
    if is_overwritten:
        file = match.row.known
    entry = _entry(match, *((file.position, file.fingerprints) if file is not None else (0, NO_PRINTS)))
    return Extension(entry=structs.replace(entry, parked=reason))


def plan_unread(settings: SourceSettings, match: Match) -> FileEntry | None:
    """Return the entry of a file that this plan does not read; None if its known state does not change.

    A moved file is known at its new path up to the position where reading ended. A replaced or truncated file is known
    from its start: if the old content returns later, it counts as new. A file that is read as a whole replaces the
    other file only when it is read.
    """
    is_new = match.rule in {IdentityRule.REPLACED, IdentityRule.TRUNCATED} and settings.reads_lines(match.row.path)
    if match.previous_keys or is_new:
        return _entry(match, match.position, match.before or NO_PRINTS)
    return None


def _entry(match: Match, position: int, prints: Fingerprints) -> FileEntry:
    row = match.row
    return FileEntry(
        path=row.path,
        rule=match.rule.name.lower(),
        position=position,
        head=prints.head,
        tail=prints.tail,
        size_bytes=row.size_bytes,
        modified_ms=row.modified_ms,
        identity=row.identity,
        previous_keys=tuple(key.hex() for key in match.previous_keys),
        displaces=match.displaces,
    )


def _range(match: Match, begin: int, end: int, prints: Fingerprints) -> Range:
    row = match.row
    return Range(row.path, begin, end, *prints, row.size_bytes, row.modified_ms, row.identity)


def _extension(match: Match, begin: int, end: int, prints: Fingerprints) -> Extension:
    """Return a range, with an entry if more than the position of the file changes."""
    entry = None
    if match.previous_keys or match.displaces:
        entry = _entry(match, end, prints)
    return Extension(_range(match, begin, end, prints), entry)


def _extend_copy(fs: FileSystem, settings: SourceSettings, match: Match, copy: Copy, unchanged_s: float) -> Extension:
    row, size_bytes = match.row, copy.content.size_bytes
    if match.rule is IdentityRule.COPY:
        if not copy.is_read or unchanged_s < settings.min_file_age:
            return CHANGED  # the file may still grow, and may become another file
        if not (copy.content.codec or copy.is_whole or _ends_with_line(fs, settings, row)):
            return CHANGED  # the file ends within a line, so it is not complete
    if copy.stored is None:
        return CHANGED
    entry = _entry(match, row.size_bytes, copy.stored)
    if match.rule is IdentityRule.CUT_COPY:
        return Extension(
            entry=entry, warning=f"is treated as a copy of {copy.original!r} before it was truncated: not read"
        )
    if match.rule is IdentityRule.COPY or size_bytes == match.position:
        return Extension(entry=entry)
    rest = structs.replace(_range(match, match.position, size_bytes, copy.end), compression=copy.content.codec)
    return Extension(rest, structs.replace(entry, advances=match.advances.hex()))


def _ends_with_line(fs: FileSystem, settings: SourceSettings, row: Row) -> bool:
    with open_listed(fs, row) as file:
        return file is not None and _ends_line(file, row.size_bytes, settings.separator)


def _ends_line(file: InputFile, end: int, separator: bytes) -> bool:
    return file.read_at(end - len(separator), len(separator)) == separator


def _extend_lines(
    fs: FileSystem, settings: SourceSettings, match: Match, unchanged_s: float, bytes_max: int | None
) -> Extension:
    row, begin, size = match.row, match.position, match.row.size_bytes
    nothing = Extension(entry=plan_unread(settings, match))
    if begin >= size:
        return nothing
    with open_listed(fs, row) as file:
        if file is None:
            return CHANGED
        end = end_of_lines(file.read_at, begin, size=size, separator=settings.separator, limit=bytes_max)
        if settings.file_identity == "content" and end < CONTENT_BYTES_MIN:
            # Copies of so short a content cannot be detected, so the file waits for more lines.
            enough = CONTENT_BYTES_MIN - len(settings.separator)
            end = first_line_end(file.read_at, max(begin, enough), size, settings.separator) or begin
        is_last = bytes_max is None or size - begin <= bytes_max or end == begin
        counts_without_end = is_last and end < size and unchanged_s >= settings.close_inactive
        if counts_without_end:
            end = size
        prints = fingerprints(file.read_at, end)
        is_line = counts_without_end or end == begin or _ends_line(file, end, settings.separator)
        # The file can be truncated and rewritten between two reads, so the content at `begin` is checked again.
        if match.before is not None and fingerprints(file.read_at, begin) != match.before:
            return replace(CHANGED, is_mismatch=True)
        is_unchanged = is_line and prints is not None and fingerprints(file.read_at, end) == prints
    if prints is None or not is_unchanged:
        return CHANGED
    if end == begin:
        return replace(nothing, wait_s=max(settings.close_inactive - unchanged_s, 0))
    return _extension(match, begin, end, prints)


def _extend_whole(fs: FileSystem, settings: SourceSettings, match: Match, unchanged_s: float) -> Extension:
    row, size = match.row, match.row.size_bytes
    # A new compressed log can have the inode of the previous log, so it is not an overwrite.
    is_truncated = match.rule is IdentityRule.TRUNCATED and settings.file_identity == "native" and not settings.tail
    is_overwritten = match.position > 0 or is_truncated
    if match.position == size:
        return Extension(entry=plan_unread(settings, match))  # only its path or its time differs
    with open_listed(fs, row) as file:
        if file is None or file.size_bytes != size:
            return CHANGED
        fault = _extend_unfinished(fs, settings, match=match, file=file, unchanged_s=unchanged_s)
        prints = fingerprints(file.read_at, size)
        codec = codec_in(row.path, file.read_at)
    if fault is not None:
        return fault
    if prints is None:
        return CHANGED
    if is_overwritten and not settings.allow_overwrites:
        warning = "has changed since it was read; allowOverwrites=true reads such files again"
        return Extension(entry=_entry(match, size, prints), warning=warning)
    extension = _extension(match, 0, size, prints)
    return replace(extension, range=structs.replace(_range(match, 0, size, prints), whole=True, compression=codec))


def _extend_unfinished(
    fs: FileSystem, settings: SourceSettings, match: Match, file: InputFile, unchanged_s: float
) -> Extension | None:
    """Return the extension of a file that cannot be read as a whole yet, or None."""
    is_young = unchanged_s < settings.min_file_age and fs.capabilities.visible_at != "at_close"
    young = None
    if is_young:
        young = Extension(wait_s=settings.min_file_age - unchanged_s)
    if settings.decoding.file_format in _END_MARKS and not filters_of_name(match.row.path):
        length = min(file.size_bytes, 16)
        if _has_end_mark(settings.decoding.file_format, file.read_at(file.size_bytes - length, length)):
            return None
        return young or park(
            settings, match, f"its end is not the end of a complete {settings.decoding.file_format} file"
        )
    return young


def _has_end_mark(file_format: str, end: bytes) -> bool:
    """Return True if the last bytes of a file have the mark of its format, which is in `_END_MARKS`."""
    marks, behind = _END_MARKS[file_format]
    return end[: len(end) - behind].endswith(marks)


class PlanBuilder:
    """The parts of a plan that is being built, within the limits of the settings.

    Attributes:
        table: the listing, compared with the known files.
        files_left: number of files that the plan may still read; infinite without a limit.
        behind: places of files with unread content that the plan does not read.
        has_more: the next plan can read some of that content at once.
    """

    def __init__(self, table: Table, settings: SourceSettings, *, is_limited: bool) -> None:
        self.table = table
        if is_limited:
            limits = (settings.max_files_per_trigger, settings.max_bytes_per_trigger)
        else:
            limits = (None, None)
        files_max, bytes_max = limits
        self.files_left = math.inf if files_max is None else files_max
        self._bytes_left = math.inf if bytes_max is None else bytes_max
        self.behind: list[int] = []
        self.has_more = False
        self._settings = settings
        self._ranges: dict[int, Range] = {}  # by place
        self._entries: dict[int, FileEntry] = {}  # by place

    @property
    def is_full(self) -> bool:
        """Return True if no other range fits."""
        return self.files_left <= 0 or self._bytes_left <= 0

    @property
    def claimed(self) -> frozenset[bytes]:
        """Return the keys of known files that were found at other paths, or in compressed copies."""
        entries = self._entries.values()
        keys: set[str] = set()
        for entry in entries:
            keys.update(entry.previous_keys)
            keys.add(entry.advances)
        return frozenset(map(bytes.fromhex, keys))

    def budgets(self, matches: Sequence[Match]) -> list[int | None]:
        """Return the limit in bytes of each file, so that all limits together fit into the plan.

        None is no limit; other limits are at least 1.
        """
        budgets: list[int | None] = []
        bytes_left = self._bytes_left
        for match in matches:
            budgets.append(None if math.isinf(bytes_left) else max(1, int(bytes_left)))
            bytes_left -= max(0, match.row.size_bytes - match.position)
        return budgets

    def add(self, match: Match, extension: Extension) -> bool:
        """Take the parts of a plan that come from a file and return True; return False if its range does not fit.

        The first range always fits.
        """
        place, planned = match.row.place, extension.range
        if planned is not None:
            size_bytes = planned.end - planned.start
            if self._ranges and (self.is_full or size_bytes > self._bytes_left):
                self.behind.append(place)
                self.has_more = True
                return False
            self._ranges[place] = planned
            self._bytes_left -= size_bytes
            self.files_left -= 1
            if not planned.whole and match.copy is None and planned.end < match.row.size_bytes:
                self.behind.append(place)
                self.has_more = True
        elif extension.entry is None and math.isfinite(extension.wait_s):
            self.behind.append(place)
        if extension.entry is not None:
            self._entries[place] = extension.entry
        return True

    def add_unread(self, matches: Iterable[Match]) -> None:
        """Take the entries of files that this plan does not read.

        Other files may be at the old paths of moved files, and a truncated file may get its old content again before it
        is read.
        """
        for match in matches:
            place = match.row.place
            if place in self._ranges or place in self._entries:
                entry = None
            else:
                entry = plan_unread(self._settings, match)
            if entry is not None:
                self._entries[place] = entry

    def bytes_behind(self) -> int:
        """Return the bytes that the plan leaves unread."""
        planned_bytes = 0
        for place in self.behind:
            if place in self._ranges:
                planned_bytes += self._ranges[place].end - self._ranges[place].start
        return int(self.table.unread_bytes(np.array(self.behind, np.intp)).sum()) - planned_bytes

    def plan(self, late: tuple[Late, ...], refused: tuple[Refused, ...], now_ms: int) -> SourcePlan:
        """Return the plan. Files with unread content are not forgotten after it."""
        ranges, entries = tuple(self._ranges.values()), tuple(self._entries.values())
        plan = SourcePlan(
            ranges,
            entries,
            late=late,
            refused=refused,
            low=self.table.known.low,
            root=self._settings.root,
            planned_ms=now_ms,
        )
        if plan.is_empty:
            return plan
        low = self._low(now_ms)
        return structs.replace(plan, files=entries + self._refresh_entries(low), low=low)

    def _refresh_entries(self, low: int) -> tuple[FileEntry, ...]:
        """Return new entries of known files that would be forgotten at `low`, although they were touched later."""
        entries = []
        for row in self.table.touched_below(low):
            file = row.known
            if row.place in self._places or file is None or file.is_parked:
                continue
            entries.append(
                FileEntry(
                    path=row.path,
                    rule="same",
                    position=file.position,
                    head=file.fingerprints.head,
                    tail=file.fingerprints.tail,
                    size_bytes=file.size_bytes,
                    modified_ms=low,
                    identity=row.identity,
                )
            )
        return tuple(entries)

    @property
    def _places(self) -> frozenset[int]:
        return frozenset({*self._ranges, *self._entries})

    def _low(self, now_ms: int) -> int:
        """Return the time before which files are forgotten after this plan. Files with unread content are kept."""
        low = self.table.known.low
        times = self.table.listing.times
        if self._ranges:
            newest = max(planned.modified_ms for planned in self._ranges.values())
            low = max(low, min(newest, now_ms) - int(self._settings.max_file_age * 1000))
        times_after = self.table.times_after(np.array([*self._places], np.intp))
        over = len(times_after) - KNOWN_FILES_MAX
        if over > 0:
            last = int(np.partition(times_after, over - 1)[over - 1])
            # Files of the newest time are kept: another file with this time may still appear, and would be late.
            low = max(low, min(last + 1, int(times_after.max())))
        if self.behind:
            return max(self.table.known.low, min(low, int(times[self.behind].min())))
        return low
