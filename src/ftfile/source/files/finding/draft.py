"""A plan in the making: its limits, and what is forgotten behind it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.source.files.finding.ranges import Found, moved
from ftfile.source.files.plan import Late, Move, Parked, Plan, Range, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ftfile.source.files.finding.survey import Start, Survey
    from ftfile.source.files.settings import FilesSettings


class Draft:
    """The parts of a plan, within limits: None is no limit.

    Attributes:
        files_left: of which the plan may yet have ranges.
    """

    def __init__(self, files_max: int | None, bytes_max: int | None) -> None:
        self.files_left = math.inf if files_max is None else files_max
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._places: list[int] = []  # in the listing, of all files of the plan
        self._ranges: list[Range] = []
        self._moves: list[Move] = []
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
        """Return the keys of files that were found at other paths."""
        return frozenset(bytes.fromhex(move.key) for move in self._moves)

    def add(self, start: Start, found: Found) -> bool:
        """Take what was found of a file, and return True; False if that would pass a limit."""
        candidate = start.candidate
        if found.range is not None:
            size_bytes = found.range.end - found.range.start
            if self._ranges and (self.is_full or size_bytes > (self.bytes_left or math.inf)):
                return False
            self._ranges.append(found.range)
            self._size_bytes += size_bytes
            self.files_left -= 1
        if found.seen is not None:
            self._seen.append(found.seen)
        if found.parked:
            marks = candidate.size_bytes, candidate.modified_ms, candidate.identity
            self._parked.append(Parked(candidate.path, found.parked, *marks))
        if start.moved is not None:
            self._moves.append(Move(start.moved.key.hex(), candidate.path))
        if start.is_replaced:
            self._replaced.append(candidate.path)
        self._places.append(candidate.place)
        return True

    def add_moves(self, starts: Iterable[Start]) -> None:
        """Take files that were found at other paths, and that the limits left out: others may be at their old ones."""
        places = set(self._places)
        for start in starts:
            if start.moved is not None and start.candidate.place not in places:
                self.add(start, Found(seen=moved(start)))

    def bytes_behind(self, survey: Survey, left: NDArray[np.intp]) -> int:
        """Return the bytes that the plan leaves unread in files at some places of the listing."""
        read = {each.path: each.end - each.start for each in self._ranges}
        planned = sum(read.get(survey.listing.paths[place], 0) for place in left) if read else 0
        return int(survey.unread_bytes(left).sum()) - planned

    def plan(
        self, survey: Survey, late: tuple[Late, ...], left: NDArray[np.intp], settings: FilesSettings, now_ms: int
    ) -> Plan:
        """Return the plan.

        Args:
            survey: of which it is made.
            late: files that are.
            left: places of files that have something left to read, which is not forgotten.
            settings: of the stream.
            now_ms: the time.
        """
        plan = Plan(
            tuple(self._ranges),
            tuple(self._moves),
            tuple(self._seen),
            tuple(self._parked),
            late,
            tuple(self._replaced),
            survey.known.low,
            settings.root,
        )
        if plan.is_empty:
            return plan
        low = self._low(survey, left, settings, now_ms)
        places = set(self._places)
        refreshed = tuple(
            Seen(one.path, known.position, known.head, known.tail, known.size_bytes, low, one.identity)
            for one in survey.touched_below(low)
            if one.place not in places and (known := one.known) is not None and not known.is_parked
        )
        return replace(plan, seen=plan.seen + refreshed, low=low)

    def _low(self, survey: Survey, left: NDArray[np.intp], settings: FilesSettings, now_ms: int) -> int:
        """Return the time before which files are forgotten after this plan; none that is left to read is."""
        low = survey.known.low
        times = survey.listing.times
        if self._ranges:
            newest = max(found.modified_ms for found in self._ranges)
            low = max(low, min(newest, now_ms) - int(settings.max_age_s * 1000))
        known = survey.times_after(np.array(self._places, np.intp))
        over = len(known) - settings.tracked_max
        if over > 0:
            last = int(np.partition(known, over - 1)[over - 1])
            # Files of the newest time stay: others may yet appear with it, and would be late.
            low = max(low, min(last + 1, int(known.max())))
        return max(survey.known.low, min(low, int(times[left].min()))) if len(left) else low
