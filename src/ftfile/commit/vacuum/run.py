"""Vacuum: files that no record needs are deleted, beside running queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Body
from ftfile.commit.log.hints import store_now_ms
from ftfile.commit.opening import maintaining
from ftfile.commit.places import retire
from ftfile.commit.protocol import catch_up, commit
from ftfile.commit.publish import skip_published
from ftfile.commit.read.ranges import OwnRanges, is_joined, list_ranges, reach
from ftfile.commit.vacuum.garbage import GarbageFile, find_garbage
from ftfile.commit.vacuum.horizon import is_horizon_taken_back, lower_horizon, newest_ms
from ftfile.commit.vacuum.ranges import merge_all
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CommitError, ConfigError, CorruptData, FtfileError, NotFound
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.core.units import parse_duration_s
from ftfile.fs.calls.parallel import parallel

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ftfile.commit.format.model import MaintenanceAuthor
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.vacuum.garbage import Findings
    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.fs.api import FileSystem

DEFAULT_RETENTION = "7d"
LEAST_RETENTION = "24h"
# Looks while another vacuum deletes what this one reads, at most.
TRIES = 100
# More ranges than commits leave are merged, and so are more records than they leave uncovered, which are 64.
MANY_RANGES = 16
UNCOVERED_RECORDS = 128

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum, or of a dry run."""

    version: int | None  # of its record; None in a dry run, or when there was nothing to do
    horizon_ms: int  # since 1970 UTC, by the store's clock: younger files stayed; at most the newest record's time
    oldest_version: int  # that can be read
    files: tuple[GarbageFile, ...]  # deleted, each with the reason
    failed: int = 0  # files that could not be deleted, which the log names; the next vacuum finds them again
    dry_run: bool = False  # nothing was deleted

    @property
    def size_bytes(self) -> int:
        """Return the length of all files together."""
        return sum(file.size_bytes for file in self.files)


def vacuum(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    retention: str | timedelta = DEFAULT_RETENTION,
    force: bool = False,
    progress: OnProgress | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> VacuumReport:
    """Delete files that no record and no version within the retention needs, and return them.

    These are what failed and lost attempts wrote, parts that were replaced, segments that were made into parts, and
    records that a base and ranges stand for. Versions within the retention can be read as they were, older ones cannot.

    Deleted files do not come back, so that by default, as a dry run, it only returns what it would delete, and writes
    one hint, to learn the store's time. A second vacuum finds what the first could not delete, and else nothing.

    Safe beside running queries: a record says first up to when unrecorded files may go, and a commit with such files is
    refused. So the retention must be longer than the longest batch takes, and than anybody reads a version. It is a
    duration with its unit, such as "7d" or "36h", or a timedelta, by the store's clock; `force` accepts one below 24
    hours, where nothing is writing or reading. `progress` is called in this thread with a `Progress` after each file
    that is deleted, not while it looks for them, and so never in a dry run; what it raises ends the vacuum, and the
    next one goes on. For the other arguments see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory, or the retention is no duration or too short.
        CorruptData: the log is damaged; nothing was deleted.
        CommitError: the log changed all the time, or earlier records cannot be published; nothing was deleted.
    """
    retention_ms = retention_ms_of("retention", retention, force=force)
    with maintaining("vacuum", path, key_provider, storage, context) as (log, author):
        return delete_garbage(log, author, retention_ms, progress=progress, dry_run=dry_run)


def delete_garbage(
    log: CommitLog,
    author: MaintenanceAuthor,
    retention_ms: int,
    latest_ms: Callable[[], int] | None = None,
    *,
    progress: OnProgress | None,
    dry_run: bool,
) -> VacuumReport:
    """Delete files that nothing within the retention needs; see `vacuum`.

    `latest_ms` returns a time, by the store's clock, that the horizon does not pass.
    """
    report = _delete_garbage(log, author, retention_ms, latest_ms, progress, dry_run=dry_run)
    doing = "would delete" if dry_run else "deleted"
    _log.info("%s %s %d files of %d bytes", author.operation, doing, len(report.files), report.size_bytes)
    return report


def _delete_garbage(
    log: CommitLog,
    author: MaintenanceAuthor,
    retention_ms: int,
    latest_ms: Callable[[], int] | None,
    progress: OnProgress | None,
    *,
    dry_run: bool,
) -> VacuumReport:
    if not dry_run:
        lower_horizon(log, author.job_id)
        catch_up(log, author)
    now_ms = store_now_ms(log.fs)
    wanted_ms = now_ms - retention_ms
    if latest_ms is not None:
        wanted_ms = min(wanted_ms, latest_ms())
    # The store's clock may be ahead at this moment, and no commit would be accepted until it has caught up.
    horizon_ms = min(wanted_ms, newest_ms(log))
    head, findings = _look(log, horizon_ms, now_ms)
    if findings.foreign:
        names = ", ".join(map(repr, findings.foreign[:5]))
        _log.warning("%d files at names of removed parts are others, and stay: %s", len(findings.foreign), names)
    if dry_run:
        return VacuumReport(None, horizon_ms, findings.log_start, _told(findings), dry_run=True)
    if not findings.needs_record and (wanted_ms == horizon_ms or not _look(log, wanted_ms, now_ms)[1].needs_record):
        _remove_directories(log.fs, findings)
        _merge(log, head, needed=findings.lacks_ranges)
        return VacuumReport(None, horizon_ms, head.log_start, ())
    needed = findings.lacks_ranges or findings.log_start > head.log_start
    log_start = findings.log_start

    def prepare(head: LogState, _: object) -> Body:
        return Body(horizon_ms=max(head.horizon_ms, horizon_ms), log_start=log_start)

    version = commit(log, author, prepare).version
    # Commits from here on know the horizon. This second look finds earlier ones needed.
    head, findings = _look(log, horizon_ms, now_ms, recorded=True)
    if is_horizon_taken_back(log, version):
        _log.warning("vacuum leaves everything to the next: a horizon was lowered meanwhile")
        return VacuumReport(version, horizon_ms, head.log_start, ())
    told = _told(findings)
    failed = _delete(log.fs, findings, Tracker(author.operation, log.clock, progress, len(told)))
    _merge(log, head, needed=needed)
    done = tuple(file for file in told if file.path not in failed)
    return VacuumReport(version, horizon_ms, head.log_start, done, len(failed))


def _look(log: CommitLog, horizon_ms: int, now_ms: int, *, recorded: bool = False) -> tuple[LogState, Findings]:
    """Return the head and the garbage there; look again while another vacuum deletes records that were read.

    `recorded` means that the head's record says which records are kept.
    """
    for _ in range(TRIES):
        head = log.read_on(durable=True)
        version = head.version
        skip_published(log, head)
        try:
            return head, find_garbage(log, head, horizon_ms, now_ms, head.log_start if recorded else None)
        except CorruptData:
            if log.read_on().version == version:
                raise
    raise CommitError("the log changed faster than the vacuum could read it: nothing was deleted. Try again later")


def _told(findings: Findings) -> tuple[GarbageFile, ...]:
    return (*findings.files, *(file for _, file in findings.returned))


def _delete(fs: FileSystem, findings: Findings, tracker: Tracker) -> set[str]:
    """Delete, and return what could not be."""
    failed = [file.path for remove, file in findings.returned if not _tried(file.path, retire, fs, [remove], tracker)]
    # Companions last: readers that find a record without one look whether the record is still there.
    for last in (False, True):
        found = [file for file in findings.files if file.path.endswith((".changes", ".finalPath")) == last]
        # Notes tell of files that could not be deleted.
        kept = any(file.kind == "direct" and file.path in failed for file in findings.files)
        paths = [file.path for file in found if not (kept and layout.is_note(file.path))]
        deleted = parallel(fs, lambda path: _tried(path, fs.delete, path), paths, tracker)
        failed += [path for path, done in zip(paths, deleted, strict=True) if not done]
    _remove_directories(fs, findings)
    return set(failed)


def _remove_directories(fs: FileSystem, findings: Findings) -> None:
    for directory in findings.directories:
        _tried(directory, fs.remove_directory, directory)


def _tried(path: str, call: Callable[..., object], *args: object) -> bool:
    """Return True if it was done, by us or by others."""
    try:
        call(*args)
    except NotFound:
        return True
    except FtfileError as error:
        _log.warning("vacuum leaves %s to the next: %s", path, error)
        return False
    return True


def _merge(log: CommitLog, head: LogState, *, needed: bool) -> None:
    """Merge the ranges when there are many, when some are lost, or when they hold what is not kept any more."""
    try:
        chosen = OwnRanges(log, head, list_ranges(log.fs)).cover()
        # Of ranges that overlap, records tell which log they are of.
        many = len(chosen) > MANY_RANGES or not is_joined(chosen)
        if many or needed or head.version - reach(chosen) > UNCOVERED_RECORDS:
            merge_all(log, head)
    except FtfileError as error:
        _log.warning("the ranges stay as they are: %s", error)


def retention_ms_of(name: str, retention: str | timedelta, *, force: bool) -> int:
    """Return a retention in milliseconds.

    Raises:
        ConfigError: it is no duration, or too short without `force`; the error says it of the argument `name`.
    """
    try:
        retention_s = retention.total_seconds() if isinstance(retention, timedelta) else parse_duration_s(retention)
    except ValueError:
        raise ConfigError(
            f"{name}={retention!r}: it takes a duration with its unit, such as '7d' or '36h', or a timedelta"
        ) from None
    if retention_s < parse_duration_s(LEAST_RETENTION) and not force:
        raise ConfigError(
            f"{name}={retention!r} is below {LEAST_RETENTION}: batches that take longer are refused, and readers of "
            "older versions lose their files. Set force=True when nothing else writes or reads"
        )
    return int(retention_s * 1000)
