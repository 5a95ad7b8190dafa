"""Expiry: old versions end, but for a number of the newest ones; what only they need is deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ftfile.commit.format.model import MaintenanceAuthor
from ftfile.commit.log.times import created_ms
from ftfile.commit.opening import maintaining
from ftfile.commit.vacuum.run import DEFAULT_RETENTION, delete_garbage, retention_ms_of
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import timedelta

    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.vacuum.run import VacuumReport
    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress


def expire(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    older_than: str | timedelta = DEFAULT_RETENTION,
    keep_last: int = 1,
    dry_run: bool = True,
    force: bool = False,
    progress: OnProgress | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> VacuumReport:
    """End the versions that are older than a duration and not among the newest ones; return the files that go with it.

    It is a vacuum, see `ftfile.vacuum`, that never goes beyond the newest `keep_last` versions, however old these are:
    a directory that is written once a month can keep a year in which to look back. A dry run by default.

    Args:
        path: of a directory, or a store.
        older_than: the age from which a version may end, by the store's clock, as `retention` of a vacuum.
        keep_last: number of the newest versions that stay readable as they were; those of a vacuum or an expiry, which
            change no file, do not count.
        dry_run: delete nothing, and return what would be deleted.
        force: accept an age below 24 hours, where nothing else writes or reads.
        progress: see `ftfile.vacuum`.
        key_provider: see `ftfile.open`.
        storage: likewise.
        context: likewise.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument makes no sense.
        CorruptData, CommitError: see `ftfile.vacuum`.
    """
    if keep_last < 1:
        raise ConfigError(f"keep_last={keep_last}: it takes a number of versions of 1 or more")
    retention_ms = retention_ms_of("older_than", older_than, force=force)
    with maintaining("expire", path, key_provider, storage, context) as (log, author):
        latest_ms = partial(_latest_ms, log, keep_last)
        return delete_garbage(log, author, retention_ms, latest_ms, progress=progress, dry_run=dry_run)


def _latest_ms(log: CommitLog, keep_last: int) -> int:
    """Return the last time, by the store's clock, at which the first of the newest versions was the newest one."""
    head = log.read_on()
    first, kept = head.version, 0
    for version in range(head.version, head.log_start - 1, -1):
        record = log.read_record(version)
        if record is not None and (record.adds or record.removes or not isinstance(record.author, MaintenanceAuthor)):
            first, kept = version, kept + 1
        if kept == keep_last:
            break
    created = created_ms(log, first) or 0
    # The next one may be as old by the clock, or older.
    following = created_ms(log, first + 1) if first < head.version else None
    return created if following is None else min(created, following - 1)
