"""Writing of compacted logs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.version_blocks import Interval, blocks, fewest_intervals_of, halves
from ftfile.log.places import delete_file
from ftfile.log.read.add_table import compact_records, merge_compacted
from ftfile.log.read.compacted_records import (
    CompactedFiles,
    drop_contained,
    is_within,
    list_compacted,
    missing_record,
    reach,
    read_compacted,
    write_compacted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.compacted import CompactedLog
    from ftfile.log.format.layout import CompactedName
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState


# The maximum bytes of compacted logs that one commit merges, about 8 MiB of text. Maintenance merges larger ones.
MERGED_BYTES = 1 << 20
# The maximum number of records without a compacted log that one commit reads again.
GAP_RECORDS = 256
# Records that become a compacted log at once.
CHUNK_RECORDS = 4096

_log = get_logger(__name__)


@dataclass(slots=True)
class WorkLimits:
    """The remaining limits of a commit."""

    merged_bytes: float = math.inf  # of the compacted logs that are merged
    records: float = math.inf  # that are read again, in total


def write_due_compacted(log: CommitLog, head: LogState) -> int:
    """Write compacted logs for records without one, and merge small compacted logs, within the limits of one commit.

    It also fills gaps of dead committers, oldest versions first, over several commits.

    Returns:
        The last version with a compacted log.
    """
    writer = _CompactedLogWriter(log, head, WorkLimits(MERGED_BYTES, GAP_RECORDS))
    return writer.write(blocks(0, head.version + 1))


def write_fewest_compacted(log: CommitLog, head: LogState) -> None:
    """Read all compacted logs, and write the fewest for all records up to the head; records replace a damaged file.

    Raises:
        CorruptData: a version has neither a compacted log nor a record.
    """
    writer = _CompactedLogWriter(log, head, WorkLimits())
    writer.read_all()
    writer.write(fewest_intervals_of(head.version + 1))
    writer.drop_replaced()


class _CompactedLogWriter:
    """Writes compacted logs for intervals of versions, and deletes the compacted logs within them."""

    def __init__(self, log: CommitLog, head: LogState, limits: WorkLimits) -> None:
        self._log, self._head, self._limits = log, head, limits
        self._sizes = list_compacted(log.fs)
        log.known_compacted &= self._sizes.keys()
        self._files = CompactedFiles(log, head, self._sizes)
        self._chosen = self._files.cover()

    def write(self, intervals: Iterable[Interval]) -> int:
        """Write compacted logs for intervals, oldest first; return the last version with a compacted log."""
        for interval in intervals:
            self._complete(interval)
        return reach(self._chosen)

    def read_all(self) -> None:
        """Read the compacted logs of the log completely, and skip damaged ones."""
        for name in self._chosen:
            try:
                self._read(name)
            except (NotFound, CorruptData) as error:
                self._pass_over(name, error)

    def drop_replaced(self) -> None:
        """Delete the compacted logs within others, and damaged compacted logs that others replace."""
        drop_contained(self._log.fs, self._sizes, self._chosen)
        for damaged_name in self._files.damaged:
            if any(is_within(damaged_name, name) for name in self._chosen):
                delete_file(self._log.fs, layout.compacted_path(damaged_name))

    def _complete(self, interval: Interval) -> None:
        """Write one compacted log for an interval, if it does not exist; above the limits, for each half of it."""
        covered_to = reach(self._chosen)
        is_there = any(Interval(name.first, name.last).holds(interval) for name in self._chosen)
        if is_there or covered_to < interval.first - 1:
            return
        inside = [name for name in self._chosen if interval.holds(Interval(name.first, name.last))]
        first_record = max(covered_to + 1, interval.first)
        merged_bytes = sum(self._sizes[name] for name in inside)
        read_again = self._count_forgotten(first_record, interval.last)
        if merged_bytes > self._limits.merged_bytes or read_again > self._limits.records:
            self._complete_halves(interval)
            return
        self._limits.records -= read_again
        contents: list[CompactedLog] = []
        for name in inside:
            try:
                contents.append(self._read(name))
            except (NotFound, CorruptData) as error:
                self._pass_over(name, error)
                self._complete(interval)
                return
        starts = range(first_record, interval.last + 1, CHUNK_RECORDS)
        for start in starts:
            contents.append(self._from_records(start, min(start + CHUNK_RECORDS - 1, interval.last)))
        try:
            self._write_compacted(merge_compacted(contents, self._head.log_start) if len(contents) > 1 else contents[0])
        except ConfigError as error:
            _log.warning("the compacted logs of versions %d to %d were not merged: %s", *interval, error)
            self._complete_halves(interval)

    def _read(self, name: CompactedName) -> CompactedLog:
        """Read what a merged compacted log contains of a compacted log.

        If no records can replace damaged statistics, it is read without them.
        """
        # A merged compacted log omits adds that were removed at the log's start or before.
        ended = name.last > self._head.log_start
        try:
            content = read_compacted(self._log.fs, name, ended=ended, statistics=True)
        except CorruptData as error:
            if name.first >= self._head.log_start:
                raise
            content = read_compacted(self._log.fs, name, ended=ended)
            _log.warning("the statistics of a compacted log are dropped, so conditions read more files: %s", error)
            kept = tuple(replace(document, statistics={}) for document in content.kept)
            content = structs.replace(content, kept=kept)
        return structs.replace(content, ended=content.ended or ())

    def _complete_halves(self, interval: Interval) -> None:
        if interval.size > 1 and reach(self._chosen) < interval.last:
            for half in halves(interval):
                self._complete(half)

    def _count_forgotten(self, first: int, last: int) -> int:
        """Return the number of records that this process does not hold, and has to read again."""
        recent = self._log.recent.records
        return sum(1 for version in range(first, last + 1) if version not in recent)

    def _write_compacted(self, content: CompactedLog) -> None:
        name = write_compacted(self._log.fs, self._log.ids, content)
        self._log.known_compacted.add(name)
        drop_contained(self._log.fs, self._sizes, [name])
        self._sizes[name] = 0
        self._files.names.add(name)
        self._chosen = self._files.cover()

    def _pass_over(self, name: CompactedName, error: NotFound | CorruptData) -> None:
        _log.warning("a compacted log is ignored and written again: %s", error)
        self._files.names.discard(name)
        if isinstance(error, CorruptData):
            self._files.damaged.add(name)
        self._chosen = self._files.cover()

    def _from_records(self, first: int, last: int) -> CompactedLog:
        records: list[Record] = []
        for version in range(first, last + 1):
            record = self._log.recent.records.get(version)
            if record is None and version >= self._head.log_start:
                record = self._log.read_record(version)
            if record is None:
                raise missing_record(version)
            records.append(record)
        return compact_records(records, self._head.log_start)
