"""Bases and ranges, which a committer writes now and then so that restarts and readers have little to read, and a hint.

The batch is committed by then: a failure is harmless and only logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.log import bases
from ftfile.commit.log.hints import PublishedHint, write_published
from ftfile.commit.read.merging import make_range
from ftfile.commit.read.ranges import OwnRanges, list_ranges, reach, write_merged
from ftfile.core.errors import FtfileError, StorageError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

# A range is due at every 64th version, and as soon as this committer remembers 256 KiB of records.
RANGE_EVERY = 64
RANGE_BYTES = 256 << 10
# Uncovered records read again per commit, at most.
GAP_RECORDS = 256
# After failures in turn, ranges are tried again after twice as many versions each time, at most after 64 times 64.
PAUSES_MAX = 6

_log = get_logger(__name__)


def post_commit(log: CommitLog, head: LogState) -> None:
    """Write a hint, a range and a base when they are due."""
    if not log.has_hint and not head.unpublished:
        # Of records without parts, as those of stores, nothing else tells later that they are lost.
        log.has_hint = write_published(log.fs, PublishedHint(head.version, head.nonce))
    recent = log.recent
    if (head.version + 1) % RANGE_EVERY == 0 or recent.size_bytes >= RANGE_BYTES:
        if head.version >= recent.paused_to:
            try:
                extend_ranges(log, head)
                recent.failures = 0
            except FtfileError as error:
                recent.paused_to = head.version + (RANGE_EVERY << min(recent.failures, PAUSES_MAX))
                recent.failures += 1
                _log.warning("could not write a range up to version %d, readers read records: %s", head.version, error)
        # What no range stands for is read again.
        recent.clear()
    keep_base(log, head)


def extend_ranges(log: CommitLog, head: LogState) -> int:
    """Write a range of the records that no range covers yet; return the last version that ranges cover now."""
    found = list_ranges(log.fs)
    log.known_ranges &= found.keys()
    own = OwnRanges(log, head, found).cover()
    first = reach(own) + 1
    records: list[Record] = []
    read_again = 0
    for version in range(max(first, head.log_start), head.version + 1):
        record = log.recent.records.get(version)
        if record is None and read_again < GAP_RECORDS:
            record = log.read_record(version)
            read_again += 1
        if record is None:
            break
        records.append(record)
    if not records or records[0].version != first:
        return first - 1
    log.known_ranges.add(write_merged(log.fs, log.ids, make_range(records, head.log_start), own, found))
    return records[-1].version


def keep_base(log: CommitLog, state: LogState) -> None:
    """Write a base when one is due."""
    if log.delta_bytes > max(bases.BASE_MIN_BYTES, log.base_bytes // 2):
        renew_base(log, state)


def renew_base(log: CommitLog, state: LogState) -> None:
    """Write a base."""
    log.delta_bytes = 0
    try:
        log.base_bytes = bases.write_base(log.fs, log.ids, state, log.bases.useless)
    except StorageError as error:
        _log.warning("could not write a base of version %d, a restart will read more records: %s", state.version, error)
