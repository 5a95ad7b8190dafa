"""Which ranges are of this log: those whose last record is a record of it.

The records of a log name one another, and so do ranges. A range may be of another history of the directory, as when the
log alone was restored from an older copy: then its last record is not the one that the log has at that version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.read.ranges import cover, read_range
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.commit.format.layout import RangeName
    from ftfile.commit.format.range import Range
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

__all__ = ("OwnRanges",)

_log = get_logger(__name__)


class OwnRanges:
    """The ranges of a log, apart from those of other histories.

    `names` loses those that are of no use; `damaged` are those that cannot be read.
    """

    def __init__(self, log: CommitLog, head: LogState, names: Iterable[RangeName]) -> None:
        self.names = set(names)
        self.damaged: set[RangeName] = set()
        self._log = log
        self._head = head
        # Others may have gone on since the head was read, and have merged what it needs into later ranges.
        if any(name.last > head.version for name in self.names):
            self._head = log.read_on()

    def cover(self, end: int = -1) -> list[RangeName]:
        """Return the fewest ranges of this log that stand for all versions after `end`, in order."""
        while True:
            chosen = cover(self.names, end=end)
            foreign = self._first_foreign(chosen)
            if foreign is None:
                self._log.known_ranges |= set(chosen)
                return chosen
            self.names.discard(foreign)

    def foreign(self, contents: Sequence[Range], chosen: Sequence[RangeName]) -> RangeName | None:
        """Return a range of a cover that is not of this log, and drop it from `names`; None if there is none."""
        following: Range | None = None
        for content, name in zip(reversed(contents), reversed(chosen), strict=True):
            if not (_joins(content, following) or self._is_own(content)):
                _log.warning("a range of another history, versions %d to %d, is passed over", name.first, name.last)
                self.names.discard(name)
                return name
            following = content
        return None

    def _first_foreign(self, chosen: Sequence[RangeName]) -> RangeName | None:
        contents = []
        if self._log.known_ranges >= set(chosen):
            return None
        for name in chosen:
            content = self._summary(name)
            if content is None:
                return name
            contents.append(content)
        return self.foreign(contents, chosen)

    def _summary(self, name: RangeName) -> Range | None:
        try:
            return read_range(self._log.fs, name, ended=None)
        except NotFound:
            return None
        except CorruptData as error:
            _log.warning("a range is passed over: %s", error)
            self.damaged.add(name)
            return None

    def _is_own(self, content: Range) -> bool:
        """Return True if a range's last record is one of the log, as its nonce, or what follows it, tells."""
        passed: set[int] = set()
        while content.last <= self._head.version and content.last not in passed:
            passed.add(content.last)
            told = self._told(content)
            if told is not None:
                return told
            after = [name for name in self.names if name.first == content.last + 1]
            found = (summary for name in after if (summary := self._summary(name)) is not None)
            following = next((each for each in found if _joins(content, each)), None)
            if following is None:
                return False
            content = following
        return False

    def _told(self, content: Range) -> bool | None:
        """Return True if the log has this range, False if it has another; None if that is unknown."""
        included = self._head.includes(content.last, content.nonce)
        if included is not None:
            return included
        if content.last >= self._head.log_start:
            record = self._log.read_record(content.last)
            if record is not None:
                return record.nonce == content.nonce
        if content.last + 1 >= self._head.log_start:
            record = self._log.read_record(content.last + 1)
            if record is not None and record.previous_nonce is not None:
                return record.previous_nonce == content.nonce
        return None


def _joins(content: Range, following: Range | None) -> bool:
    return following is not None and following.first == content.last + 1 and following.previous_nonce == content.nonce
