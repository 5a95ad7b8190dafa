"""Export of the newest version of a directory as a table of another format over the same files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData
from ftfile.core.logs import get_logger
from ftfile.log.directory import check_is_files
from ftfile.log.format.adds import total_rows
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

    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.operate.export.tables import ExportTable


TRIES = 100


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport:
    """The result of an export."""

    version: int | None = None  # newest version of the directory that readers see; None if nothing has been committed
    versions: int = 0  # number of versions that this call exported
    open_rows: int = 0  # committed rows in open files, which other programs see only after the files are finished
    # committed versions that are not exported, because files of the first of them are not published yet
    waiting: int = 0
    dry_run: bool = False  # True if nothing was written


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
    """Write the metadata of another table format next to the files, so that its readers see the newest version.

    With `to="delta"`, the default, `_delta_log` gets a commit for each version since the last export; the first commit
    contains all existing rows. With `to="iceberg"`, `_iceberg` gets a snapshot for each version in the same way. Files
    must be Parquet, without encryption. The tables are read-only. The export is incremental, idempotent, and safe while
    queries and other exports run. After a crash, no partial commit remains. With `dry_run`, the call writes nothing and
    returns the export that is due. `progress` is called in this thread with a `Progress` after each version. For a
    first export, and after too many missed versions, it is called after about 10,000 steps; each file takes two steps.
    An error that it raises ends the export, and the next export resumes.

    Raises:
        ConfigError: `to` is unknown, the path is not an ftfile directory, a package is missing, or the format does not
            support some rows: the error names them. Or the metadata belongs to another program, another history of the
            directory, or another path.
        CorruptData: the log of the directory or of the export is damaged.
        StorageError: the storage failed.
    """
    if to not in LIMITS:
        raise ConfigError(f"to={to!r}: exports are possible to {', '.join(map(repr, LIMITS))}")
    with maintaining("export", path, Access(None, storage, at_least_version, context)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path))
        for _ in range(TRIES):
            if dry_run:
                head = _read_newest(log)
            else:
                head = catch_up(log, author)[0]
            opened = _open(to, log, head, f"{normalise(os.fspath(path)).rstrip('/')}/")
            try:
                if dry_run:
                    versions = opened.plan()
                else:
                    versions = opened.run(progress)
            except AlreadyExists:
                continue  # another export is running
            last = last_published(head)
            open_rows = total_rows(head.segments.values())
            current = None
            if last >= 0:
                current = last
            report = ExportReport(
                version=current, versions=versions, open_rows=open_rows, waiting=head.version - last, dry_run=dry_run
            )
            if not dry_run:
                _log.info("exported to %s: version %s, %d new; %d rows in open files", to, current, versions, open_rows)
            if report.waiting:
                _log.warning("%d versions wait until the files of version %d are published", report.waiting, last + 1)
            return report
    raise CorruptData(
        to, "a commit that no other process creates first", f"{TRIES} commits of other processes", "Export again later"
    )


def _read_newest(log: CommitLog) -> LogState:
    """Return the newest version, without publishing anything."""
    head = log.refresh()
    skip_published(log, head)
    return head


def _open(to: str, log: CommitLog, head: LogState, url: str) -> Exporter:
    versions = Versions(log, head, LIMITS[to])
    table: ExportTable = DeltaLog(log.fs)
    if to == "iceberg":
        LIMITS[to].refuse_location(url)  # Iceberg's metadata contains absolute paths of files
        table = IcebergTable(log.fs, url)
    return Exporter(versions, table, log.fs.context)
