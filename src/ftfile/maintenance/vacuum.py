"""Vacuum: delete what no record needs, beside running queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Body, MaintenanceAuthor
from ftfile.commit.log.hints import store_now_ms
from ftfile.commit.moving import retire
from ftfile.commit.protocol import catch_up, commit
from ftfile.commit.publish import skip_published
from ftfile.commit.read.ranges import cover, is_joined, list_ranges
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CommitError, ConfigError, CorruptData, FtfileError, NotFound
from ftfile.core.logs import get_logger, log_context
from ftfile.core.units import parse_duration_s
from ftfile.fs.calls.parallel import parallel
from ftfile.maintenance.garbage import GarbageFile, look
from ftfile.maintenance.horizon import is_horizon_taken_back, lower_horizon, newest_ms
from ftfile.maintenance.open_log import own_log
from ftfile.maintenance.ranges import merge_all

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.garbage import Findings

__all__ = ("DEFAULT_RETENTION", "LEAST_RETENTION", "VacuumReport", "vacuum")

DEFAULT_RETENTION = "7d"
LEAST_RETENTION = "24h"
# Looks while another vacuum deletes what this one reads, at most.
TRIES = 100
# More ranges than commits leave are merged, or those that lost much.
MANY_RANGES = 16

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum did, or in a dry run, what it would do.

    Attributes:
        version: of its record; None when there was nothing to do, or in a dry run.
        horizon_ms: what is younger was not looked at; by the store's clock, milliseconds since 1970 UTC. It is never
            later than the newest record, so that after a long pause the rest goes with the next vacuum.
        oldest_version: the oldest version that can be read.
        files: what was deleted, each with the reason.
        failed: how many could not be deleted, as the log says; the next vacuum finds them again.
        dry_run: whether nothing was deleted.
    """

    version: int | None
    horizon_ms: int
    oldest_version: int
    files: tuple[GarbageFile, ...]
    failed: int = 0
    dry_run: bool = False

    @property
    def size_bytes(self) -> int:
        """Return the length of all files together."""
        return sum(file.size_bytes for file in self.files)


def vacuum(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    retention: str = DEFAULT_RETENTION,
    force: bool = False,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> VacuumReport:
    """Delete what no record needs any more, and what no version within the retention needs.

    That is: what failed and lost attempts wrote; parts that were replaced, and segments that were made into parts;
    records that a base and ranges stand for. Versions of the retention can still be read as they were, older ones not.

    Without `dry_run=False` it deletes nothing and only tells what it would delete: there is no way back, so look first.

    Safe beside running queries: a record says first up to when unrecorded files may go, and a commit with such files is
    refused. So the retention must be longer than the longest batch takes, and than anybody reads a version.

    Args:
        path: of the directory.
        dry_run: only tell; it writes nothing but a hint, for the store's clock.
        retention: how long what is not needed is kept, by the store's clock.
        force: accept a retention below 24 hours: when you know that nothing is writing or reading.
        key_provider: of an encrypted directory; see `ftfile.open`.
        storage: settings of its file system: what the options `storage.<name>` are to the sink.
        context: clock, ids and retries; the machine's by default.

    Raises:
        ConfigError: the path is no ftfile directory, or the retention is no duration or too short.
        CorruptData: the log is damaged; nothing was deleted.
        CommitError: there is no telling what may be deleted; nothing was.
    """
    retention_ms = _checked_retention_ms(retention, force=force)
    log, job_id = own_log(path, key_provider, storage, context), context.ids.unique()
    with log_context(job=job_id):
        report = _vacuum(log, job_id, retention_ms, dry_run=dry_run)
        doing = "would delete" if dry_run else "deleted"
        _log.info("vacuum %s %d files of %d bytes", doing, len(report.files), report.size_bytes)
        return report


def _vacuum(log: CommitLog, job_id: str, retention_ms: int, *, dry_run: bool) -> VacuumReport:
    author = MaintenanceAuthor("vacuum", job_id)
    if not dry_run:
        lower_horizon(log, job_id)
        catch_up(log, author)
    now_ms = store_now_ms(log.fs)
    wanted_ms = now_ms - retention_ms
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
    # Whoever commits from here on knows the horizon. What was committed before is found needed at this second look.
    head, findings = _look(log, horizon_ms, now_ms, recorded=True)
    if is_horizon_taken_back(log, version):
        _log.warning("vacuum leaves everything to the next: a horizon was lowered meanwhile")
        return VacuumReport(version, horizon_ms, head.log_start, ())
    told = _told(findings)
    failed = _delete(log.fs, findings)
    _merge(log, head, needed=needed)
    done = tuple(file for file in told if file.path not in failed)
    return VacuumReport(version, horizon_ms, head.log_start, done, len(failed))


def _look(log: CommitLog, horizon_ms: int, now_ms: int, *, recorded: bool = False) -> tuple[LogState, Findings]:
    """Return the head and what is garbage there; look again while another vacuum deletes what was read.

    Args:
        log: of the directory.
        horizon_ms: by the store's clock.
        now_ms: likewise.
        recorded: a record has said which records are kept.
    """
    for _ in range(TRIES):
        head = log.read_on(durable=True)
        version = head.version
        skip_published(log, head)
        try:
            return head, look(log, head, horizon_ms, now_ms, head.log_start if recorded else None)
        except CorruptData:
            if log.read_on().version == version:
                raise
    raise CommitError("the log changed faster than the vacuum could read it: nothing was deleted. Try again later")


def _told(findings: Findings) -> tuple[GarbageFile, ...]:
    """Return what the report says of findings."""
    return (*findings.files, *(file for _, file in findings.returned))


def _delete(fs: FileSystem, findings: Findings) -> set[str]:
    """Delete, and return what could not be."""
    failed = [file.path for remove, file in findings.returned if not _tried(file.path, retire, fs, [remove])]
    # Companions last: who finds a record without one looks whether the record is still there.
    for last in (False, True):
        found = [file for file in findings.files if file.path.endswith((".changes", ".finalPath")) == last]
        # Notes tell of files that could not be deleted.
        kept = any(file.kind == "direct" and file.path in failed for file in findings.files)
        paths = [file.path for file in found if not (kept and layout.is_note(file.path))]
        deleted = parallel(fs, lambda path: _tried(path, fs.delete, path), paths)
        failed += [path for path, done in zip(paths, deleted, strict=True) if not done]
    _remove_directories(fs, findings)
    return set(failed)


def _remove_directories(fs: FileSystem, findings: Findings) -> None:
    for directory in findings.directories:
        _tried(directory, fs.remove_directory, directory)


def _tried(path: str, call: Callable[..., object], *args: object) -> bool:
    """Say whether it was done, by us or by others."""
    try:
        call(*args)
    except NotFound:
        return True
    except FtfileError as error:
        _log.warning("vacuum leaves %s to the next: %s", path, error)
        return False
    return True


def _merge(log: CommitLog, head: LogState, *, needed: bool) -> None:
    """Merge the ranges when there are many, or when that is needed.

    Args:
        log: of the directory.
        head: its state.
        needed: ranges hold what is not kept any more; or some are missing or damaged, and keep records from going.
    """
    chosen = cover(list_ranges(log.fs))
    # Of ranges that overlap, records tell which log they are of.
    many = len(chosen) > MANY_RANGES or not is_joined(chosen)
    try:
        if many or needed:
            merge_all(log, head)
    except FtfileError as error:
        _log.warning("the ranges stay as they are: %s", error)


def _checked_retention_ms(retention: str, *, force: bool) -> int:
    try:
        retention_s = parse_duration_s(retention)
    except ValueError:
        raise ConfigError(
            f"retention={retention!r}: it takes a duration with its unit, such as '7d' or '36h'"
        ) from None
    if retention_s < parse_duration_s(LEAST_RETENTION) and not force:
        raise ConfigError(
            f"retention={retention!r} is below {LEAST_RETENTION}: batches that take longer are refused, and readers of "
            "older versions lose their files. Set force=True when nothing else writes or reads"
        )
    return int(retention_s * 1000)
