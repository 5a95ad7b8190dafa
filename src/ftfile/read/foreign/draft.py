"""A plan in the making: the ranges and entries of its files, within its limits, and the files forgotten behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.read.foreign.extend import unread
from ftfile.read.foreign.plan import FileEntry, Late, Plan, Range, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.read.foreign.extend import Extension
    from ftfile.read.foreign.file_table import Table
    from ftfile.read.foreign.matching import Match
    from ftfile.read.foreign.settings import FilesSettings


class Draft:
    """The parts of a plan, within the limits of the settings.

    Attributes:
        table: the listing, beside the known files.
        files_left: number of files of which the plan may yet have ranges; infinite without a limit.
        behind: places of files with something to read that the plan does not read.
        has_more: some of that can be read at once, by the next plan.
    """

    def __init__(self, table: Table, settings: FilesSettings, *, is_limited: bool) -> None:
        self.table = table
        files_max = settings.files_max if is_limited else None
        self.files_left = math.inf if files_max is None else files_max
        self.behind: list[int] = []
        self.has_more = False
        self._bytes_left = math.inf if settings.bytes_max is None or not is_limited else settings.bytes_max
        self._settings = settings
        self._ranges: dict[int, Range] = {}  # by place
        self._entries: dict[int, FileEntry] = {}  # by place

    @property
    def is_full(self) -> bool:
        """Return True if no other range has room."""
        return self.files_left <= 0 or self._bytes_left <= 0

    @property
    def claimed(self) -> frozenset[bytes]:
        """Return the keys of known files that were found again at other paths, or in compressed copies."""
        entries = self._entries.values()
        keys = {key for entry in entries for key in (*entry.previous_keys, entry.advances)}
        return frozenset(bytes.fromhex(key) for key in keys)

    def budgets(self, matches: Sequence[Match]) -> list[int | None]:
        """Return the bytes that each of some files may have, so that each has room beside those before it.

        None is no limit; else it is 1 at least.
        """
        budgets: list[int | None] = []
        bytes_left = self._bytes_left
        for match in matches:
            budgets.append(None if math.isinf(bytes_left) else max(1, int(bytes_left)))
            bytes_left -= max(0, match.row.size_bytes - match.position)
        return budgets

    def add(self, match: Match, extension: Extension) -> bool:
        """Take the parts of a plan that come from a file, and return True; False if its range has no room.

        The first range always has room.
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
        """Take files of which nothing is read now, and that are not known where they begin.

        Others may be at the old paths of those that were found again; and what was cut off may have its old content
        again before it is read.
        """
        for match in matches:
            place = match.row.place
            entry = None if place in self._ranges or place in self._entries else unread(self._settings, match)
            if entry is not None:
                self._entries[place] = entry

    def bytes_behind(self) -> int:
        """Return the bytes that the plan leaves unread."""
        ranges = (self._ranges[place] for place in self.behind if place in self._ranges)
        planned = sum(one.end - one.start for one in ranges)
        return int(self.table.unread_bytes(np.array(self.behind, np.intp)).sum()) - planned

    def plan(self, late: tuple[Late, ...], refused: tuple[Refused, ...], now_ms: int) -> Plan:
        """Return the plan; files with something left to read are not forgotten behind it."""
        ranges, entries = tuple(self._ranges.values()), tuple(self._entries.values())
        plan = Plan(ranges, entries, late, refused, self.table.known.low, self._settings.root, now_ms)
        if plan.is_empty:
            return plan
        low = self._low(now_ms)
        refreshed = tuple(
            FileEntry(row.path, "same", file.position, *file.fingerprints, file.size_bytes, low, row.identity)
            for row in self.table.touched_below(low)
            if row.place not in self._places and (file := row.known) is not None and not file.is_parked
        )
        return replace(plan, files=entries + refreshed, low=low)

    @property
    def _places(self) -> frozenset[int]:
        return frozenset({*self._ranges, *self._entries})

    def _low(self, now_ms: int) -> int:
        """Return the time before which files are forgotten after this plan; none that is left to read is."""
        low = self.table.known.low
        times = self.table.listing.times
        if self._ranges:
            newest = max(planned.modified_ms for planned in self._ranges.values())
            low = max(low, min(newest, now_ms) - int(self._settings.max_age_s * 1000))
        times_after = self.table.times_after(np.array([*self._places], np.intp))
        over = len(times_after) - self._settings.tracked_max
        if over > 0:
            last = int(np.partition(times_after, over - 1)[over - 1])
            # Files of the newest time stay: others may yet appear with it, and would be late.
            low = max(low, min(last + 1, int(times_after.max())))
        return max(self.table.known.low, min(low, int(times[self.behind].min()))) if self.behind else low
