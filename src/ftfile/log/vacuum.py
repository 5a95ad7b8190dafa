"""Deletion of files that no record needs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.errors import CommitError, ConfigError, CorruptData, FtfileError, NotFound
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.core.remedies import Advice, Argument
from ftfile.core.units import parse_duration_s
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.format.version_blocks import fewest_intervals_of
from ftfile.log.opening import maintaining
from ftfile.log.places import retire
from ftfile.log.protocol import catch_up, commit
from ftfile.log.publish import skip_published
from ftfile.log.read.compacted_records import CompactedFiles, list_compacted, reach
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.read.times import created_ms, time_text
from ftfile.log.records import storage_now_ms
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.garbage import Findings, GarbageFile, WaitingFiles
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


DEFAULT_RETENTION = "7d"
LEAST_RETENTION = "24h"
LOWERING = "lowerHorizon"
# Attempts while another vacuum deletes files that this one reads, and while others lower the horizon.
TRIES = 100
# The number of unneeded compacted logs, and of records without one, above which compacted logs are merged; commits
# leave 64 records.
MANY_COMPACTED = 16
UNCOVERED_RECORDS = 128

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """The result of a vacuum, or of a dry run."""

    version: int | None  # of its record; None in a dry run, or if there was nothing to do
    horizon_ms: int  # since 1970 UTC, by the storage's clock: younger files were kept; at most the newest record's time
    oldest_version: int  # that can be read
    files: tuple[GarbageFile, ...]  # deleted, each with the reason
    failed: int = 0  # files that could not be deleted, which the log names; the next vacuum tries again
    dry_run: bool = False  # nothing was deleted
    # Files that are kept for now, by reason: in a dry run, and if files are older than the retention but no record is.
    waiting: tuple[WaitingFiles, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the length of all files together."""
        return sum(map(attrgetter("size_bytes"), self.files))


def vacuum(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    retention: str | timedelta = DEFAULT_RETENTION,
    force: bool = False,
    **access: Unpack[OperationArguments],
) -> VacuumReport:
    """Delete files that no record and no version within the retention needs, and return them.

    These are files of failed and lost attempts, replaced parts, segments that were assembled into parts, and records
    that a checkpoint and compacted logs replace. Versions within the retention can be read as before, older versions
    cannot.

    Deleted files cannot be restored, so by default this is a dry run: it only returns the files that it would delete,
    and writes one hint, to read the storage's time. Idempotent: a second vacuum only deletes files that the first one
    could not delete.

    It is safe while queries run: a record first announces the horizon up to which unrecorded files can be deleted, and
    a commit with older files is refused. So the retention must be longer than the longest batch, and the longest read
    of a version. It is a duration with its unit, such as "7d" or "36h", or a timedelta, by the storage's clock; `force`
    accepts one below 24 hours, if no process writes or reads. `progress` is called in this thread with a `Progress`
    after each deleted file, so never in a dry run; its error ends the vacuum, and the next one resumes. For `access`
    see `ftfile.open`.

    Raises:
        ConfigError: the path is not an ftfile directory, or the retention is not a duration or too short.
        CorruptData: the log is damaged; nothing was deleted.
        CommitError: the log changed all the time, or earlier records cannot be published; nothing was deleted.
    """
    retention_ms = retention_ms_of("retention", retention, force=force)
    with maintaining("vacuum", path, Access.of(access)) as (log, author):
        return _log_report(
            author,
            _delete_garbage(
                log, author, retention_ms=retention_ms, keep_last=None, progress=access.get("progress"), dry_run=dry_run
            ),
        )


def expire(
    path: str | os.PathLike[str],
    *,
    older_than: str | timedelta = DEFAULT_RETENTION,
    keep_last: int = 1,
    dry_run: bool = True,
    force: bool = False,
    **access: Unpack[OperationArguments],
) -> VacuumReport:
    """End the versions older than a duration, except for the newest ones; return the files that are deleted with them.

    It is a vacuum, see `ftfile.vacuum`, that always keeps the newest `keep_last` versions, however old they are: a
    directory that is written once a month can keep a year of versions. A dry run by default.

    Args:
        path: of a directory, or a store.
        older_than: the age from which a version can end, by the storage's clock, like `retention` of a vacuum.
        keep_last: number of the newest versions that stay readable; versions of a vacuum or an expiry, which change no
            file, do not count.
        dry_run: delete nothing, and return the files that would be deleted.
        force: accept an age below 24 hours, if no other process writes or reads.
        **access: how the directory is opened, see `ftfile.open`; for `progress` see `ftfile.vacuum`.

    Raises:
        ConfigError: the path is not an ftfile directory, or an argument is wrong.
        CorruptData, CommitError: see `ftfile.vacuum`.
    """
    if keep_last < 1:
        raise ConfigError(Advice(Argument("keep_last", keep_last), ": it must be a number of versions, 1 or more"))
    retention_ms = retention_ms_of("older_than", older_than, force=force)
    with maintaining("expire", path, Access.of(access)) as (log, author):
        progress = access.get("progress")
        return _log_report(
            author,
            _delete_garbage(
                log, author, retention_ms=retention_ms, keep_last=keep_last, progress=progress, dry_run=dry_run
            ),
        )


def _log_report(author: MaintenanceAuthor, report: VacuumReport) -> VacuumReport:
    doing = "deleted"
    if report.dry_run:
        doing = "would delete"
    _log.info("%s %s %d files of %d bytes", author.operation, doing, len(report.files), report.size_bytes)
    return report


def _delete_garbage(
    log: CommitLog,
    author: MaintenanceAuthor,
    retention_ms: int,
    keep_last: int | None,
    progress: OnProgress | None,
    *,
    dry_run: bool,
) -> VacuumReport:
    """Delete files like `vacuum`, except for files of the `keep_last` newest versions."""
    if not dry_run:
        lower_horizon(log, author.operation_id)
        catch_up(log, author)
    now_ms = storage_now_ms(log.fs)
    wanted_ms = now_ms - retention_ms
    if keep_last is None:
        keep_from = None
    else:
        keep_from = _find_oldest_kept(log, keep_last)
    # The storage's clock can be ahead now, and commits would be refused until it has passed this time.
    horizon_ms = min(wanted_ms, newest_ms(log))
    head, findings = _find_garbage(log, horizon_ms, now_ms, keep_from=keep_from)
    _warn_of_foreign(findings)
    if dry_run:
        waiting = _list_waiting(
            log, head, findings=findings, horizon_ms=horizon_ms, now_ms=now_ms, retention_ms=retention_ms
        )
        files = _garbage_files(findings)
        return VacuumReport(
            version=None,
            horizon_ms=horizon_ms,
            oldest_version=findings.log_start,
            files=files,
            dry_run=True,
            waiting=waiting,
        )
    if not findings.needs_record and (
        wanted_ms == horizon_ms or not _find_garbage(log, wanted_ms, now_ms, keep_from=keep_from)[1].needs_record
    ):
        _remove_directories(log.fs, findings)
        _merge(log, head, needed=findings.lacks_compacted)
        return VacuumReport(version=None, horizon_ms=horizon_ms, oldest_version=head.log_start, files=())
    needed = findings.lacks_compacted or findings.log_start > head.log_start
    version = _announce(log, author, horizon_ms, findings)
    # The second search sees the commits before the record, and the files that they need.
    head, findings = _find_garbage(log, horizon_ms, now_ms, vacuumed_to=findings.vacuumed_to)
    if is_horizon_taken_back(log, version):
        _log.warning("vacuum deletes nothing and leaves all files to the next vacuum: a horizon was lowered meanwhile")
        return VacuumReport(version=version, horizon_ms=horizon_ms, oldest_version=head.log_start, files=())
    summary = _garbage_files(findings)
    failed = _delete(log, findings, Tracker(author.operation, log.clock, progress, len(summary)))
    # The vacuum's commit may have written the second log checkpoint: the next vacuum can then delete records.
    _merge(log, head, needed=needed or findings.lacks_compacted)
    done = tuple(file for file in summary if file.path not in failed)
    is_capped = wanted_ms > horizon_ms
    if is_capped:
        waiting = _list_waiting(
            log, head, findings=findings, horizon_ms=horizon_ms, now_ms=now_ms, retention_ms=retention_ms
        )
    else:
        waiting = ()
    return VacuumReport(
        version=version,
        horizon_ms=horizon_ms,
        oldest_version=head.log_start,
        files=done,
        failed=len(failed),
        waiting=waiting,
    )


def _announce(log: CommitLog, author: MaintenanceAuthor, horizon_ms: int, findings: Findings) -> int:
    """Create the record of a vacuum and return its version; commits and readers see from it what is deleted."""

    def prepare(head: LogState, _: object) -> Body:
        return Body(
            horizon_ms=max(head.horizon_ms, horizon_ms),
            log_start=findings.log_start,
            vacuumed_to=findings.vacuumed_to,
        )

    return commit(log, author, prepare).version


def _find_garbage(
    log: CommitLog, horizon_ms: int, now_ms: int, *, vacuumed_to: int | None = None, keep_from: int | None = None
) -> tuple[LogState, Findings]:
    """Return the head and its garbage; search again while another vacuum deletes records that were read.

    For `vacuumed_to` and `keep_from` see `find_garbage`.
    """
    from ftfile.log.garbage import find_garbage  # noqa: PLC0415 - writers of stores vacuum, too, but seldom

    for _ in range(TRIES):
        head = log.refresh(durable=True)
        version = head.version
        skip_published(log, head)
        try:
            return head, find_garbage(log, head, horizon_ms, now_ms, vacuumed_to=vacuumed_to, keep_from=keep_from)
        except CorruptData:
            if log.refresh().version == version:
                raise
    raise CommitError("the log changed faster than the vacuum could read it: nothing was deleted. Try again later")


def _warn_of_foreign(findings: Findings) -> None:
    if findings.foreign:
        names = ", ".join(map(repr, findings.foreign[:5]))
        _log.warning(
            "%d files at the names of removed parts are other files, they stay: %s",
            len(findings.foreign),
            names,
        )


def _list_waiting(
    log: CommitLog, head: LogState, findings: Findings, horizon_ms: int, now_ms: int, retention_ms: int
) -> tuple[WaitingFiles, ...]:
    """Return the files that are kept for now; none, with a warning, while another vacuum deletes records."""
    from ftfile.log.garbage import find_waiting  # noqa: PLC0415 - likewise

    try:
        return find_waiting(
            log, head, findings=findings, horizon_ms=horizon_ms, now_ms=now_ms, retention_ms=retention_ms
        )
    except CorruptData:
        if log.refresh().version == head.version:
            raise
    _log.warning("the files that will be deleted later were not counted: the log changed meanwhile")
    return ()


def _garbage_files(findings: Findings) -> tuple[GarbageFile, ...]:
    return (*findings.files, *map(itemgetter(1), findings.returned))


def _delete(log: CommitLog, findings: Findings, tracker: Tracker) -> set[str]:
    """Delete files, and return the ones that could not be deleted."""
    fs, failed = log.fs, []

    def is_reserved(path: str) -> bool:
        return path in log.refresh(confirm=False).reserved

    retire_one = partial(retire, fs, tracker=tracker, is_reserved=is_reserved)
    for remove, file in findings.returned:
        if not _try_call(file.path, retire_one, [remove]):
            failed.append(file.path)
    # Companions last: readers that find a record without its companion check if the record still exists.
    for last in (False, True):
        files = [file for file in findings.files if file.path.endswith((".changes", ".finalPath")) == last]
        # Notes name files that could not be deleted.
        keeps_notes = any(file.kind == "direct" and file.path in failed for file in findings.files)
        paths = [file.path for file in files if not (keeps_notes and layout.is_note(file.path))]
        deleted = parallel(fs, partial(_is_deleted, fs), paths, tracker)
        for path, done in zip(paths, deleted, strict=True):
            if not done:
                failed.append(path)
    _remove_directories(fs, findings)
    return set(failed)


def _is_deleted(fs: FileSystem, path: str) -> bool:
    return _try_call(path, fs.delete, path)


def _remove_directories(fs: FileSystem, findings: Findings) -> None:
    for directory in findings.directories:
        _try_call(directory, fs.remove_directory, directory)


def _try_call(path: str, call: Callable[..., object], *args: object) -> bool:
    """Return True if the file was deleted, by this or another process."""
    try:
        call(*args)
    except NotFound:
        return True
    except FtfileError as error:
        _log.warning("vacuum could not delete %s, the next vacuum tries again: %s", path, error)
        return False
    return True


def _merge(log: CommitLog, head: LogState, *, needed: bool) -> None:
    """Merge the compacted logs if there are many, if some are lost, or if they contain adds that are not kept."""
    try:
        chosen = CompactedFiles(log, head, list_compacted(log.fs)).cover()
        many = len(chosen) > MANY_COMPACTED + len(fewest_intervals_of(reach(chosen) + 1))
        if many or needed or head.version - reach(chosen) > UNCOVERED_RECORDS:
            write_fewest_compacted(log, head)
    except FtfileError as error:
        _log.warning("the compacted logs were not merged: %s", error)


def retention_ms_of(name: str, retention: str | timedelta, *, force: bool) -> int:
    """Return a retention in milliseconds.

    Raises:
        ConfigError: it is not a duration, or too short without `force`; the error names the argument `name`.
    """
    try:
        if isinstance(retention, timedelta):
            retention_s = retention.total_seconds()
        else:
            retention_s = parse_duration_s(retention)
    except ValueError:
        raise ConfigError(
            Advice(
                Argument(name, retention), ": it must be a duration with a unit, such as '7d' or '36h', or a timedelta"
            )
        ) from None
    if retention_s < parse_duration_s(LEAST_RETENTION) and not force:
        raise ConfigError(
            Advice(
                Argument(name, retention),
                f" is below {LEAST_RETENTION}: batches that take longer are refused, and readers of older versions "
                "lose their files. If no other process writes or reads, use ",
                Argument("force", value=True),
            )
        )
    return int(retention_s * 1000)


def _find_oldest_kept(log: CommitLog, keep_last: int) -> int:
    """Return the first of the `keep_last` newest versions. Versions of vacuums and expiries do not count."""
    head = log.refresh()
    first, kept_versions = head.version, 0
    for version in range(head.version, head.log_start - 1, -1):
        record = log.read_record(version)
        if record is not None and (record.adds or record.removes or not isinstance(record.author, MaintenanceAuthor)):
            first, kept_versions = version, kept_versions + 1
        if kept_versions == keep_last:
            break
    return first


def newest_ms(log: CommitLog) -> int:
    """Return the storage's time of the newest record, or of the directory if there is no record yet."""
    version = log.refresh().version
    if version < 0:
        return log.fs.stat(layout.FORMAT_FILE).modified_ms
    return created_ms(log, version) or 0


def lower_horizon(log: CommitLog, operation_id: str) -> bool:
    """Revert a horizon after the storage's current time, set while its clock was ahead; return True if it was reverted.

    Two records are written: after the first, vacuums that began before it delete only files that they have listed
    already. Files written from then on are younger than the new horizon, which is the storage's time between both
    records.
    """
    for _ in range(TRIES):
        horizon_ms = log.refresh(durable=True).horizon_ms
        if horizon_ms <= storage_now_ms(log.fs):
            return False
        author = MaintenanceAuthor(LOWERING, operation_id)
        first = commit(log, author, partial(_repeat, horizon_ms)).version
        now_ms = storage_now_ms(log.fs)

        def lower(head: LogState, _: object, first: int = first, now_ms: int = now_ms) -> Body | None:
            if _horizons_since(log, first, head.version):
                return None
            return Body(horizon_ms=now_ms)

        if commit(log, author, lower).record is not None:
            _log.warning("the horizon %s was in the future, it is now %s", time_text(horizon_ms), time_text(now_ms))
            return True
    raise CommitError("the horizon is in the future, and other processes change it at the same time: try again later")


def is_horizon_taken_back(log: CommitLog, version: int) -> bool:
    """Return True if a process has begun to lower the horizon after a version; a vacuum by an older horizon stops."""
    return LOWERING in _horizons_since(log, version, log.refresh(durable=True).version)


def _repeat(horizon_ms: int, head: LogState, _: object) -> Body:
    return Body(horizon_ms=max(head.horizon_ms, horizon_ms))


def _horizons_since(log: CommitLog, version: int, head: int) -> set[str]:
    """Return the operations that have set a horizon after a version; a deleted record counts as lowering one."""
    horizons = set()
    for later in range(version + 1, head + 1):
        record = log.read_record(later)
        if record is None:
            horizons.add(LOWERING)
        elif record.horizon_ms is not None and isinstance(record.author, MaintenanceAuthor):
            horizons.add(record.author.operation)
    return horizons
