"""Ranges on storage: immutable files that stand for the records of consecutive versions, for readers.

A range of any writer is right, with or without others, so several may overlap. One that lies within another is
not needed and goes; no committer's deletion can open a gap, since what is within nothing else is never deleted.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.compacted import decode_compacted, encode_compacted
from ftfile.log.format.layout import CompactedName
from ftfile.log.places import delete_file, list_files, write_file
from ftfile.log.read.add_table import clip, compact_records, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ftfile.core.context import IdSource
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.compacted import Range
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# What one commit merges at most, the new range included: some 8 MiB of text. Larger ones are merged by maintenance.
MERGED_BYTES = 1 << 20
MERGED_AT_ONCE = 4
# Up to this factor, ranges are of one size.
ALIKE = 2
# Records that become a range at a time.
CHUNK_RECORDS = 4096

_log = get_logger(__name__)


def list_compacted(fs: FileSystem) -> dict[CompactedName, int]:
    """Return the ranges there are, with their lengths in bytes."""
    listed = list_files(fs, layout.COMPACTED)
    names = ((layout.parse_compacted_name(info.path), info.size_bytes) for info in listed)
    return {name: size_bytes for name, size_bytes in names if name is not None}


def cover(names: Iterable[CompactedName], last: int | None = None, end: int = -1) -> list[CompactedName]:
    """Return in order the fewest ranges for all versions after `end` to `last`, as far as they go; they may overlap."""
    waiting = sorted(names)
    chosen: list[CompactedName] = []
    while last is None or end < last:
        best = max((name for name in waiting if name.first <= end + 1), key=lambda name: name.last, default=None)
        if best is None or best.last <= end:
            break
        chosen.append(best)
        end = best.last
        waiting = [name for name in waiting if name.last > end]
    return chosen


def is_joined(chosen: Sequence[CompactedName]) -> bool:
    """Return True if the ranges of a cover do not overlap."""
    return all(one.last + 1 == other.first for one, other in itertools.pairwise(chosen))


def reach(chosen: Sequence[CompactedName]) -> int:
    """Return the last version that a cover stands for; -1 for an empty one."""
    return chosen[-1].last if chosen else -1


def read_range(fs: FileSystem, name: CompactedName, *, ended: bool | None) -> Range:
    """Read a range, see `decode_compacted`; NotFound says that a larger one has replaced it: list again."""
    path = layout.compacted_path(name)
    with fs.open(path) as file:
        content = decode_compacted(file, path, ended=ended)
    if (content.first, content.last) != (name.first, name.last):
        actual = f"{content.first} to {content.last}"
        raise CorruptData(path, f"versions {name.first} to {name.last}", actual)
    return content


def write_range(fs: FileSystem, ids: IdSource, content: Range) -> CompactedName:
    """Write a range and return its name."""
    name = CompactedName(content.first, content.last, ids.unique()[:16])
    write_file(fs, fs.create_exclusive, layout.compacted_path(name), encode_compacted(content))
    return name


def write_compacted(
    fs: FileSystem, ids: IdSource, new: Range, own_ranges: Sequence[CompactedName], sizes: Mapping[CompactedName, int]
) -> CompactedName:
    """Write a new range, merged with those before it as soon as four are of one size; return its name.

    So each add is written again as often as the ranges grow fourfold, and there are few ranges. What is within the new
    range is dropped.
    """
    older = _mergeable(own_ranges, sizes, new)
    if older:
        try:
            new = merge([*(read_range(fs, name, ended=True) for name in older), new], new.log_start)
        except (NotFound, CorruptData) as error:
            _log.warning("ranges stay apart: %s", error)
    name = write_range(fs, ids, new)
    drop_contained(fs, sizes, [name])
    return name


def contained(names: Iterable[CompactedName], own_ranges: Sequence[CompactedName]) -> list[CompactedName]:
    """Return the ranges that lie within one that is known to be of this log; of two for the same versions, one."""
    return [name for name in names if any(_contains(one, name) for one in own_ranges)]


def drop_contained(fs: FileSystem, names: Iterable[CompactedName], own_ranges: Sequence[CompactedName]) -> None:
    """Delete the ranges that lie within one that is known to be of this log."""
    for name in contained(names, own_ranges):
        delete_file(fs, layout.compacted_path(name))


def _contains(one: CompactedName, other: CompactedName) -> bool:
    is_within = one.first <= other.first and other.last <= one.last
    # Everybody drops the same one of two.
    return is_within and ((one.first, one.last) != (other.first, other.last) or one.unique < other.unique)


def _mergeable(chosen: Sequence[CompactedName], sizes: Mapping[CompactedName, int], new: Range) -> list[CompactedName]:
    """Return the last ranges of a cover that are to be merged with the new one: by threes that it is as large as."""
    size_bytes, first = len(encode_compacted(new)), new.first
    older: list[CompactedName] = []
    candidates = list(chosen)
    while len(candidates) >= MERGED_AT_ONCE - 1:
        candidates, group = candidates[: 1 - MERGED_AT_ONCE], candidates[1 - MERGED_AT_ONCE :]
        joined = is_joined(group) and group[-1].last + 1 == first
        total = size_bytes + sum(sizes[name] for name in group)
        if not joined or any(sizes[name] > ALIKE * size_bytes for name in group) or total > MERGED_BYTES:
            break
        older, size_bytes, first = group + older, total, group[0].first
    return older


class CompactedFiles:
    """The ranges of a log, apart from those of other histories, as when the log alone was restored from an older copy.

    `names` loses those that are of no use; `damaged` are those that cannot be read.
    """

    def __init__(self, log: CommitLog, head: LogState, names: Iterable[CompactedName]) -> None:
        self.names = set(names)
        self.damaged: set[CompactedName] = set()
        self._log = log
        self._head = head
        # Others may have gone on since the head was read, and have merged what it needs into later ranges.
        if any(name.last > head.version for name in self.names):
            self._head = log.refresh()

    def cover(self, end: int = -1) -> list[CompactedName]:
        """Return the fewest ranges of this log that stand for all versions after `end`, in order."""
        while True:
            chosen = cover(self.names, end=end)
            foreign = self._first_foreign(chosen)
            if foreign is None:
                self._log.known_compacted |= set(chosen)
                return chosen
            self.names.discard(foreign)

    def foreign(self, contents: Sequence[Range], chosen: Sequence[CompactedName]) -> CompactedName | None:
        """Return a range of a cover that is not of this log, and drop it from `names`; None if there is none."""
        following: Range | None = None
        for content, name in zip(reversed(contents), reversed(chosen), strict=True):
            if not (_joins(content, following) or self._is_own(content)):
                _log.warning("a range of another history, versions %d to %d, is passed over", name.first, name.last)
                self.names.discard(name)
                return name
            following = content
        return None

    def _first_foreign(self, chosen: Sequence[CompactedName]) -> CompactedName | None:
        contents = []
        if self._log.known_compacted >= set(chosen):
            return None
        for name in chosen:
            content = self._summary(name)
            if content is None:
                return name
            contents.append(content)
        return self.foreign(contents, chosen)

    def _summary(self, name: CompactedName) -> Range | None:
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
            nonce_there = self._is_of_log(content)
            if nonce_there is not None:
                return nonce_there
            after = [name for name in self.names if name.first == content.last + 1]
            summaries = (summary for name in after if (summary := self._summary(name)) is not None)
            following = next((summary_ for summary_ in summaries if _joins(content, summary_)), None)
            if following is None:
                return False
            content = following
        return False

    def _is_of_log(self, content: Range) -> bool | None:
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


def missing_record(version: int) -> CorruptData:
    """Return the error of a version for which there is neither a record nor a range."""
    path = layout.record_path(version)
    return CorruptData(path, "a record, or a range that stands for it", "neither", "Restore it from a copy")


def _joins(content: Range, following: Range | None) -> bool:
    return following is not None and following.first == content.last + 1 and following.previous_nonce == content.nonce


def merge_all(log: CommitLog, head: LogState) -> None:
    """Make one range of all records up to the head."""
    own_ranges = CompactedFiles(log, head, list_compacted(log.fs))
    contents = list(_contents(log, head, own_ranges))
    spans = {(name.first, name.last) for name in own_ranges.names}
    if not contents or ((0, head.version) in spans and len(contents) == 1 and contents[0].log_start >= head.log_start):
        return
    try:
        name = write_range(log.fs, log.ids, merge(contents, head.log_start))
    except ConfigError as error:
        _log.warning("ranges stay apart: %s", error)
        return
    for damaged_range in own_ranges.damaged:
        delete_file(log.fs, layout.compacted_path(damaged_range))
    drop_contained(log.fs, list_compacted(log.fs), [name])


def _contents(log: CommitLog, head: LogState, own_ranges: CompactedFiles) -> Iterator[Range]:
    """Yield ranges that together stand for all records, without gap and overlap."""
    end = -1
    while end < head.version:
        name = next(iter(own_ranges.cover(end)), None)
        if name is None:
            last = min((name.first - 1 for name in own_ranges.names if name.first > end + 1), default=head.version)
            last = min(last, end + CHUNK_RECORDS, head.version)
            yield _from_records(log, head, end + 1, last)
            end = last
            continue
        try:
            content = read_range(log.fs, name, ended=True)
        except NotFound:
            own_ranges.names.discard(name)
            continue  # others merge, too
        except CorruptData as error:
            _log.warning("a range is made anew: %s", error)
            own_ranges.names.discard(name)
            own_ranges.damaged.add(name)
            continue
        yield clip(content, end + 1) if name.first <= end else content
        end = name.last


def _from_records(log: CommitLog, head: LogState, first: int, last: int) -> Range:
    records: list[Record] = []
    for version in range(first, last + 1):
        record = log.read_record(version) if version >= head.log_start else None
        if record is None:
            raise missing_record(version)
        records.append(record)
    return compact_records(records, head.log_start)
