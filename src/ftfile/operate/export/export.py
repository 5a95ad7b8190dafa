"""Export: other programs read a directory's newest version as a table of their own format, in the same files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData
from ftfile.core.logs import get_logger
from ftfile.log.directory import check_is_files
from ftfile.log.opening import maintaining
from ftfile.log.protocol import catch_up
from ftfile.log.publish import skip_published
from ftfile.operate.export.delta import DeltaLog
from ftfile.operate.export.iceberg import IcebergTable
from ftfile.operate.export.limits import LIMITS
from ftfile.operate.export.versions import Exporter, Versions, last_published
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context, OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState


TRIES = 100


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export."""

    version: int | None = None  # of the directory that readers see now; None where nothing has been committed
    versions: int = 0  # how many were exported by this call
    open_rows: int = 0  # committed rows in open files, which other programs cannot see before these are finished
    waiting: int = 0  # committed versions that are not exported, as files of the first are not published yet
    dry_run: bool = False  # nothing was written


def export(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    to: str = "delta",
    *,
    dry_run: bool = False,
    progress: OnProgress | None = None,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> ExportReport:
    """Write the metadata of another table format beside the files, so that its readers see the newest version.

    With `to="delta"`, the default, `_delta_log` gets a commit for each version since the last export, the first one
    for all rows that are there; with `to="iceberg"`, `_iceberg` gets a snapshot for each, likewise. Files must be
    Parquet, without encryption. The tables are for reading. Incremental, idempotent, safe beside running queries
    and other exports, and at any crash: a commit is created whole, once. With `dry_run`, it writes nothing, and
    returns what it would export now.
    `progress` is called in this thread with a `Progress` after each version; of a first export,
    and of one that has missed too much, after some 10,000 steps, of which each file takes two. What it raises ends the
    export, and the next one goes on.

    Raises:
        ConfigError: `to` is unknown, the path is no ftfile directory, a
            package is missing, or rows are in it that the format cannot describe: the error names them. Or the metadata
            is of another program, of another history of the directory, or of another path.
        CorruptData: the log, or that of the export, is damaged.
        StorageError: the store failed.
    """
    if to not in LIMITS:
        raise ConfigError(f"to={to!r}: exports are possible to {', '.join(map(repr, LIMITS))}")
    with maintaining("export", path, Access(None, storage, at_least_version, context)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path))
        for _ in range(TRIES):
            head = _newest(log) if dry_run else catch_up(log, author)[0]
            opened = _open(to, log, head, f"{normalise(os.fspath(path)).rstrip('/')}/")
            try:
                versions = opened.plan() if dry_run else opened.run(progress)
            except AlreadyExists:
                continue  # another export is on its way
            last = last_published(head)
            open_rows = sum(add.rows for add in head.segments.values())
            current = last if last >= 0 else None
            report = ExportReport(current, versions, open_rows, head.version - last, dry_run)
            if not dry_run:
                _log.info("exported to %s: version %s, %d new; %d rows in open files", to, current, versions, open_rows)
            if report.waiting:
                _log.warning("%d versions wait until the files of version %d are published", report.waiting, last + 1)
            return report
    raise CorruptData(to, "a commit that others do not create first", f"{TRIES} commits", "Export again later")


def _newest(log: CommitLog) -> LogState:
    """Return the newest version, without publishing anything."""
    head = log.refresh()
    skip_published(log, head)
    return head


def _open(to: str, log: CommitLog, head: LogState, url: str) -> Exporter:
    versions = Versions(log, head, LIMITS[to])
    if to == "iceberg":
        LIMITS[to].refuse_location(url)  # its metadata names files by whole paths
    opened = DeltaLog(log.fs) if to == "delta" else IcebergTable(log.fs, url)
    return Exporter(versions, opened, log.fs.context)
