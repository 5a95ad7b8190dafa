"""The times of versions, by the storage's clock: modification times of records, or times in the records.

A copy of a directory can have the modification times of the copy, so each record also contains the time of its
creation, by the storage's clock as its author knew it. Vacuums only use modification times: copied files are as young
as their copy.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.core.units import parse_time
from ftfile.log.format import layout
from ftfile.storage.calls import THREADS_MAX, parallel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo


# In ms. A record whose file is younger than its time by more is in a copy, since no creation takes so long.
COPIED_MS = 60_000
# In ms. The storage's clock can be set back by this time: a version is found among all versions within it.
STEP_MS = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS = timedelta(milliseconds=1)


def created_ms(log: CommitLog, version: int) -> int | None:
    """Return the modification time of a record, or None if it is not in the log."""
    try:
        return log.fs.stat(layout.record_path(version)).modified_ms
    except NotFound:
        return None


def version_time_ms(log: CommitLog, version: int) -> int | None:
    """Return the time of a version, or None if its record is not in the log."""
    stored_ms = created_ms(log, version)
    if stored_ms is None:
        return None
    try:
        record = log.read_record(version)
    except CorruptData:
        return stored_ms
    if record is None:
        return stored_ms
    return time_of(record.created_ms, stored_ms)


def time_of(record_ms: int, stored_ms: int | None) -> int:
    """Return the time of a version, given the time in its record and of its file, or None if the file is deleted."""
    if stored_ms is None or stored_ms - record_ms > COPIED_MS:
        return record_ms
    return stored_ms


def _times_around(log: CommitLog, versions: range, time_ms: int) -> dict[int, int]:
    """Return, by version, the times of the versions around a time: all within `STEP_MS`, and one on each side.

    Versions are bisected as if times only increased. The storage's clock can have been set back by at most `STEP_MS`,
    so several versions can match; all of them are returned.
    """
    following = bisect_right(versions, time_ms, key=partial(_time_or_zero, log))
    times: dict[int, int] = {}
    for direction in (versions[following:], versions[:following][::-1]):
        for first in range(0, len(direction), THREADS_MAX):
            chunk = direction[first : first + THREADS_MAX]
            chunk_ms = parallel(log.fs, partial(_time_or_zero, log), chunk)
            times.update(zip(chunk, chunk_ms, strict=True))
            if abs(chunk_ms[-1] - time_ms) > STEP_MS:
                break
    return times


def _time_or_zero(log: CommitLog, version: int) -> int:
    """Return the time of a version; 0 if its record is deleted, since it is older than all others."""
    return version_time_ms(log, version) or 0


def version_at(log: CommitLog, time: datetime) -> int:
    """Return the newest version that was created at or before a time; reads the times of few records."""
    head = log.refresh()
    versions = range(head.log_start, head.version + 1)
    time_ms = (time - _EPOCH) // _MS
    around = _times_around(log, versions, time_ms)
    newest = max((version for version, at_ms in around.items() if at_ms <= time_ms), default=None)
    if newest is not None and version_time_ms(log, newest) is not None:
        return newest
    oldest = bisect_left(versions, x=True, key=lambda version: version_time_ms(log, version) is not None)
    kept_versions = versions[oldest:]
    oldest_text = "none"
    if kept_versions:
        oldest_text = f"version {kept_versions[0]} of {time_text(version_time_ms(log, kept_versions[0]))}"
    raise ConfigError(f"no version is as old as {time_text(time_ms)}: the oldest that can be read is {oldest_text}")


def parsed_version_at(log: CommitLog, time: str | datetime) -> int:
    """Return the newest version created at or before a time, given as a value or in ISO 8601, by default in UTC.

    Raises:
        ConfigError: it is not a time, or no version is so old.
    """
    if isinstance(time, str):
        text = time
    else:
        text = time.isoformat()
    try:
        return version_at(log, parse_time(text))
    except ValueError:
        raise ConfigError(f"{text!r} is not an ISO 8601 time, such as 2024-07-01T12:00:00Z") from None


def first_since(log: CommitLog, time: datetime) -> int:
    """Return the oldest kept version created at or after a time, or the next version if there is none."""
    head = log.refresh()
    time_ms = (time - _EPOCH) // _MS
    around = _times_around(log, range(head.log_start, head.version + 1), time_ms)
    return min((version for version, at_ms in around.items() if at_ms >= time_ms), default=head.version + 1)


def newest_at(listed: Iterable[FileInfo], head: LogState, time_ms: int, now_ms: int) -> int | None:
    """Return the newest version that, with all kept ones before it, was created at or before a time; or None.

    A record with a future time was created while the storage's clock was ahead, and before the following records.
    """
    created: dict[int, int] = {}
    for info in listed:
        name = layout.parse_log_name(info.path)
        if name is not None and name.nonce is None:
            created[name.version] = info.modified_ms
    newest = None
    for version in range(head.log_start, head.version + 1):
        at = created.get(version)
        if at is None or time_ms < at <= now_ms:
            break
        if at <= time_ms:
            newest = version
    return newest


def time_text(time_ms: int | None) -> str:
    """Return a time in milliseconds since 1970 UTC in ISO 8601, if it is within the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=time_ms or 0)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{time_ms} ms since 1970"
