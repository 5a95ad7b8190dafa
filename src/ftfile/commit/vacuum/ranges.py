"""One range made of all: for ranges too large for a commit to merge, and for lost or damaged ones."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.read.merging import clip, make_range, merge
from ftfile.commit.read.ranges import OwnRanges, drop_contained, list_ranges, read_range, write_range
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.commit.format.model import Record
    from ftfile.commit.format.range import Range
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState

# Records that become a range at a time.
CHUNK_RECORDS = 4096

_log = get_logger(__name__)


def merge_all(log: CommitLog, head: LogState) -> None:
    """Make one range of all records up to the head."""
    own = OwnRanges(log, head, list_ranges(log.fs))
    contents = list(_contents(log, head, own))
    spans = {(name.first, name.last) for name in own.names}
    if not contents or ((0, head.version) in spans and len(contents) == 1 and contents[0].log_start >= head.log_start):
        return
    name = write_range(log.fs, log.ids, merge(contents, head.log_start))
    for each in own.damaged:
        with contextlib.suppress(NotFound):
            log.fs.delete(layout.range_path(each))
    drop_contained(log.fs, list_ranges(log.fs), [name])


def _contents(log: CommitLog, head: LogState, own: OwnRanges) -> Iterator[Range]:
    """Yield ranges that together stand for all records, without gap and overlap."""
    end = -1
    while end < head.version:
        name = next(iter(own.cover(end)), None)
        if name is None:
            last = min((name.first - 1 for name in own.names if name.first > end + 1), default=head.version)
            yield _from_records(log, head, end + 1, min(last, end + CHUNK_RECORDS, head.version))
            end = min(last, end + CHUNK_RECORDS, head.version)
            continue
        try:
            content = read_range(log.fs, name, ended=True)
        except NotFound:
            own.names.discard(name)
            continue  # others merge, too
        except CorruptData as error:
            _log.warning("a range is made anew: %s", error)
            own.names.discard(name)
            own.damaged.add(name)
            continue
        yield clip(content, end + 1) if name.first <= end else content
        end = name.last


def _from_records(log: CommitLog, head: LogState, first: int, last: int) -> Range:
    records: list[Record] = []
    for version in range(first, last + 1):
        record = log.read_record(version) if version >= head.log_start else None
        if record is None:
            raise CorruptData(
                layout.record_path(version), "a record, or a range that stands for it", "neither", "Restore a copy"
            )
        records.append(record)
    return make_range(records, head.log_start)
