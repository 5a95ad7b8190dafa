"""Compacted logs on storage: immutable files that replace the records of consecutive versions for readers.

Two compacted logs are disjoint, or one is within the other, whichever processes wrote them, since the intervals are
fixed (`log.format.version_blocks`). A compacted log of any writer is valid. A compacted log within another one is not
needed and is deleted. No other compacted log is deleted, so a committer with a stale listing cannot open a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.compacted import decode_compacted, encode_compacted
from ftfile.log.format.layout import CompactedName
from ftfile.log.format.version_blocks import Interval
from ftfile.log.places import delete_file, list_files, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.core.context import IdSource
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.compacted import CompactedLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


_log = get_logger(__name__)


def list_compacted(fs: FileSystem) -> dict[CompactedName, int]:
    """Return the existing compacted logs, with their lengths in bytes."""
    listed = list_files(fs, layout.COMPACTED)
    sizes: dict[CompactedName, int] = {}
    for info in listed:
        name = layout.parse_compacted_name(info.path)
        if name is not None:
            sizes[name] = info.size_bytes
    return sizes


def cover(names: Iterable[CompactedName], last: int | None = None, end: int = -1) -> list[CompactedName]:
    """Return in order the fewest compacted logs for all versions after `end` to `last`, as far as they exist."""
    longest: dict[int, CompactedName] = {}
    for name in sorted(names):
        if name.first not in longest or name.last > longest[name.first].last:
            longest[name.first] = name
    chosen: list[CompactedName] = []
    while (last is None or end < last) and end + 1 in longest:
        chosen.append(longest[end + 1])
        end = chosen[-1].last
    return chosen


def reach(chosen: Sequence[CompactedName]) -> int:
    """Return the last version of a cover; -1 for an empty one."""
    if chosen:
        return chosen[-1].last
    return -1


def read_compacted(
    fs: FileSystem, name: CompactedName, *, ended: bool | None, statistics: bool = False
) -> CompactedLog:
    """Read a compacted log, see `decode_compacted`; NotFound means that a larger one has replaced it: list again."""
    path = layout.compacted_path(name)
    with fs.open(path) as file:
        content = decode_compacted(file, path, ended=ended, statistics=statistics)
    if (content.first, content.last) != (name.first, name.last):
        actual = f"{content.first} to {content.last}"
        raise CorruptData(path, f"versions {name.first} to {name.last}", actual)
    return content


def write_compacted(fs: FileSystem, ids: IdSource, content: CompactedLog) -> CompactedName:
    """Write a compacted log and return its name."""
    name = CompactedName(content.first, content.last, ids.unique()[:16])
    write_file(fs, fs.create_exclusive, layout.compacted_path(name), encode_compacted(content))
    return name


def find_contained(names: Iterable[CompactedName], log_files: Sequence[CompactedName]) -> list[CompactedName]:
    """Return the compacted logs within one that is known to be of this log; one of two for the same versions."""
    return [name for name in names if any(_replaces(one, name) for one in log_files)]


def drop_contained(fs: FileSystem, names: Iterable[CompactedName], log_files: Sequence[CompactedName]) -> None:
    """Delete the compacted logs within one that is known to be of this log."""
    for name in find_contained(names, log_files):
        delete_file(fs, layout.compacted_path(name))


def is_within(name: CompactedName, other: CompactedName) -> bool:
    """Return True if `other` replaces all versions of a compacted log; both can replace the same versions."""
    return Interval(other.first, other.last).holds(Interval(name.first, name.last))


def _replaces(one: CompactedName, other: CompactedName) -> bool:
    # All processes delete the same one of two.
    is_smaller = (one.first, one.last) != (other.first, other.last)
    return is_within(other, one) and (is_smaller or one.unique < other.unique)


class CompactedFiles:
    """The compacted logs of a log.

    Files of other histories are left out: they exist if the log was restored from an older copy.

    `names` loses compacted logs that cannot be used; `damaged` are unreadable.
    """

    def __init__(self, log: CommitLog, head: LogState, names: Iterable[CompactedName]) -> None:
        self.names = set(names)
        self.damaged: set[CompactedName] = set()
        self._log = log
        self._head = head
        # Other processes can have committed since the head was read, and merged its compacted logs into later ones.
        if any(name.last > head.version for name in self.names):
            self._head = log.refresh()

    def cover(self, end: int = -1) -> list[CompactedName]:
        """Return the fewest compacted logs of this log for all versions after `end`, in order."""
        while True:
            chosen = cover(self.names, end=end)
            foreign = self._find_first_foreign(chosen)
            if foreign is None:
                self._log.known_compacted |= set(chosen)
                return chosen
            self.names.discard(foreign)

    def find_foreign(self, contents: Sequence[CompactedLog], chosen: Sequence[CompactedName]) -> CompactedName | None:
        """Drop a compacted log of a cover that is not of this log from `names`, and return it; None without one."""
        following: CompactedLog | None = None
        for content, name in zip(reversed(contents), reversed(chosen), strict=True):
            is_own = _joins(content, following) or self._is_own(content)
            if not is_own or self._begins_later(content):
                _log.warning("a compacted log of another history, versions %d to %d, is ignored", name.first, name.last)
                self.names.discard(name)
                return name
            following = content
        return None

    def _begins_later(self, content: CompactedLog) -> bool:
        """Return True if a compacted log was written when the log began later than now: that was another history."""
        if content.log_start > self._head.log_start:
            self._head = self._log.refresh()
        return content.log_start > self._head.log_start

    def _find_first_foreign(self, chosen: Sequence[CompactedName]) -> CompactedName | None:
        contents = []
        if self._log.known_compacted >= set(chosen):
            return None
        for name in chosen:
            content = self._summary(name)
            if content is None:
                return name
            contents.append(content)
        return self.find_foreign(contents, chosen)

    def _summary(self, name: CompactedName) -> CompactedLog | None:
        try:
            return read_compacted(self._log.fs, name, ended=None)
        except NotFound:
            return None
        except CorruptData as error:
            _log.warning("a compacted log is ignored: %s", error)
            self.damaged.add(name)
            return None

    def _is_own(self, content: CompactedLog) -> bool:
        """Return True if the last record of a compacted log is in the log, by the state, that record, or the next one.

        A cover that a reader needs ends at the log's start or later, so one of these exists.
        """
        if content.last > self._head.version:
            return False
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
        return False


def missing_record(version: int) -> CorruptData:
    """Return the error of a version that has neither a record nor a compacted log."""
    path = layout.record_path(version)
    return CorruptData(path, "a record, or a compacted log that replaces it", "neither", "Restore it from a copy")


def _joins(content: CompactedLog, following: CompactedLog | None) -> bool:
    return following is not None and following.first == content.last + 1 and following.previous_nonce == content.nonce
