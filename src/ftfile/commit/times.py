"""When versions were created, by the store's clock: the modification times of their records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ftfile.commit import layout
from ftfile.core.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from ftfile.commit.log import CommitLog

__all__ = ("created_ms", "version_at")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def created_ms(log: CommitLog, version: int) -> int | None:
    """Return the store's modification time of a record, or None when it is not in the log (any more)."""
    try:
        return log.fs.stat(layout.record_path(version)).modified_ms
    except NotFound:
        return None


def version_at(log: CommitLog, time: datetime) -> int:
    """Return the newest version that was created at or before a time; looks at few of the records.

    Raises:
        ConfigError: none was, as far as the log goes back.
    """
    versions = range(log.read_on().version + 1)
    time_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    # A record that is gone was older than any that is there.
    version = bisect_right(versions, time_ms, key=lambda version: created_ms(log, version) or 0) - 1
    if version >= 0 and created_ms(log, version) is not None:
        return version
    oldest = bisect_left(versions, x=True, key=lambda version: created_ms(log, version) is not None)
    found = f"version {oldest} of {_text(created_ms(log, oldest))}" if oldest in versions else "none"
    raise ConfigError(f"no version is as old as {_text(time_ms)}: the oldest that can be read is {found}")


def _text(time_ms: int | None) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms or 0)).isoformat(timespec="milliseconds")
