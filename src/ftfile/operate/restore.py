"""Restore of an older version by one record, and undo of the last write."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ftfile.core.arguments import Access
from ftfile.core.checksum import Decoding
from ftfile.core.errors import CommitError, ConfigError, CorruptData, FtfileError, HistoryGone, NotPublished
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.log.checks import find_files
from ftfile.log.directory import check_is_files
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of, total_rows
from ftfile.log.format.model import MIGRATION, Body, Remove
from ftfile.log.places import list_or_empty, sizes_in, stat_or_none
from ftfile.log.protocol import commit
from ftfile.log.read.history import version_of
from ftfile.log.read.snapshot import (
    RESTORES,
    changes_between,
    not_vacuumed,
    snapshot_as_moved,
    snapshot_at,
    take_snapshot,
)
from ftfile.log.read.times import parsed_version_at
from ftfile.operate.export.after_commit import operating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Job, MaintenanceAuthor
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo


# For a restore that fails while other processes commit.
TRIES = 5

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """Restored or removed rows: a finished file, or a segment of an open file."""

    path: str  # relative to the directory; of a restored file, its name in the older version
    rows: int
    size_bytes: int  # on storage


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """The result of a restore or of an undo, or of a dry run."""

    version: int | None  # of the record; None in a dry run, or if the newest version already has these rows
    restored_version: int | None  # the version with these rows; None for no rows, as before the first write
    restored: tuple[RestoredFile, ...]  # files that are restored
    removed: tuple[RestoredFile, ...]  # files of the newest version that the older version does not contain
    missing: tuple[str, ...] = ()  # paths of files that cannot be restored; only in a dry run
    dry_run: bool = False  # True if nothing was changed
    undone_version: int | None = None  # of an undo: the undone write


def restore(
    path: str | os.PathLike[str],
    version: int | None = None,
    *,
    timestamp: str | datetime | None = None,
    dry_run: bool = False,
    **access: Unpack[OperationArguments],
) -> RestoreReport:
    """Restore the rows of an older version in one record, and return the changes.

    Rows that were added since that version are removed, rows that were removed since are restored, and the columns are
    those of the older version. Until a vacuum, another restore undoes the restore. No file is copied. If the newest
    version already has these rows, nothing is recorded. Queries continue with their next batch: they do not write
    earlier batches again.

    Args:
        path: of the directory.
        version: the version to restore.
        timestamp: alternatively, a time, which selects the newest version at that time; see `Directory.version_at`.
        dry_run: change nothing, and return the changes of a restore, and the files that are missing for it.
        **access: how the directory is opened, as in `ftfile.open`; `progress` is called as by `ftfile.drop`, after each
            moved file.

    Raises:
        ConfigError: the path is not an ftfile directory, the version does not exist, or not exactly one of `version`
            and `timestamp` is given.
        HistoryGone: files of the version are vacuumed or missing; nothing was changed.
        NameCollision: another file has the name of a restored file; nothing was changed.
        CommitError: as for a batch write; `NotPublished` means that the rows are restored, and their files are moved
            later.
    """
    if (version is None) == (timestamp is None):
        raise ConfigError(
            Advice("restore needs either a version, such as ", Argument("version", 7), ", or a ", Argument("timestamp"))
        )
    with operating("restore", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path))
        if timestamp is not None:
            version = parsed_version_at(log, timestamp)
        restored_version = take_snapshot(log, version).version  # raises if the version does not exist
        return _RestorePlan(log, restored_version).carry_out(author, access.get("progress"), dry_run=dry_run)


def undo(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = True,
    **access: Unpack[OperationArguments],
) -> RestoreReport:
    """Undo the last write: `restore` the version before it, in one record, and return the changes.

    The last write is the newest version that added or removed rows: a batch, an overwrite, a drop, a delete, a restore,
    or an undo, which another undo reverts. Merges and other maintenance are not writes. A write that is committed
    during the call is never undone. Queries continue with their next batch: they do not read earlier rows of their
    sources again.

    Args:
        path: of the directory.
        dry_run: change nothing, and return the changes of an undo, and the files that are missing for it.
        **access: how the directory is opened, as in `ftfile.open`; for `progress` see `restore`.

    Raises:
        ConfigError: the path is not an ftfile directory; or there is no such write, it is a migration, or the version
            before it is no longer kept.
        HistoryGone, NameCollision: as for `restore`.
        CommitError: as for `restore`; or another write was committed during the call, and nothing was changed.
    """
    with operating("undo", path, Access.of(access)) as (log, author):
        check_is_files(head := log.refresh(), os.fspath(path))
        undone = _last_write(log, head)
        if undone is None:
            raise ConfigError(
                f"{os.fspath(path)!r} has no write that can be undone in the records that its log still contains"
            )
        if undone > 0:
            take_snapshot(log, undone - 1)  # raises if the version does not exist
        return _RestorePlan(log, undone - 1, undone).carry_out(author, access.get("progress"), dry_run=dry_run)


def _last_write(log: CommitLog, head: LogState) -> int | None:
    """Return the newest version that added or removed rows; None if no kept record did."""
    for version in range(head.version, head.log_start - 1, -1):
        record = log.read_record(version)
        if record is None:
            raise CorruptData(layout.record_path(version), "a record", "none", "Undo again")
        if MIGRATION in record.tables:
            raise ConfigError(Advice(f"version {version} is a migration: ", Remedy("undo_migration"), " undoes it"))
        write = version_of(record, None)
        if write.rows or write.rows_removed:
            return version
    return None


class _RestorePlan:
    """The changes between the newest version and the version to restore."""

    def __init__(self, log: CommitLog, version: int, undone: int | None = None) -> None:
        """Set the version, -1 for no rows, and for an undo the write that must still be the last one at the commit."""
        self._log = log
        self._version = version
        self._undone = undone
        self._restored: Sequence[Add] = ()
        self._removed: Sequence[Add] = ()
        self._missing: Sequence[str] = ()
        self._head_version = -1

    def carry_out(self, author: MaintenanceAuthor, progress: OnProgress | None, *, dry_run: bool) -> RestoreReport:
        """Record the changes, or in a dry run, only determine them."""
        if dry_run:
            head = self._log.refresh()
            self.make(head, snapshot_at(self._log, head), require=False)
            return self.report(None, dry_run=True)
        done = self.commit(author, progress)
        version = None
        if done.record is not None:
            version = done.version
        report = self.report(version)
        back, gone = len(report.restored), len(report.removed)
        _log.info("restored version %d: %d files were restored, %d were removed", self._version, back, gone)
        return report

    def commit(self, author: MaintenanceAuthor, progress: OnProgress | None) -> Committed:
        """Create the record; try again if files are missing or names taken because another process committed first."""
        for _ in range(TRIES - 1):
            try:
                return commit(self._log, author, self.prepare, progress=progress)
            except FtfileError:
                if not self._is_overtaken(author):
                    raise
        return commit(self._log, author, self.prepare, progress=progress)

    def _is_overtaken(self, author: MaintenanceAuthor) -> bool:
        """Return True if another author has created a record since the plan was made."""
        following = self._head_version + 1
        if following == 0 or self._log.refresh().version < following:
            return False
        record = self._log.read_record(following)
        return record is not None and record.author != author

    def prepare(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        """Return the record's body; None if the head already has these rows."""
        if self._undone is not None and (newest := _last_write(self._log, head)) != self._undone:
            raise CommitError(
                f"version {newest} was written after version {self._undone}, which should be undone. Nothing was "
                "changed: check the new version, and undo again"
            )
        then = self.make(head, snapshot())
        encoding = self._encoding(head, then)
        is_same = then.schema in {None, head.schema} and encoding in {None, head.encoding}
        if not self._restored and not self._removed and is_same:
            return None
        following = head.version + 1
        restored = None
        tables: dict[str, Any] = {}
        if self._version >= 0:
            restored = self._version
            tables[RESTORES] = {"set": {"last": following}}
        adds = _add_again(self._restored, following)
        self._require_hidden(adds)
        removes = tuple(map(Remove.of, self._removed))
        used = {then.schema, encoding, *map(attrgetter("encoding"), adds)}
        return Body(
            adds=adds,
            removes=removes,
            restored=restored,
            rows_removed=total_rows(self._removed),
            jobs=self._jobs(head, removes, then, adds),
            schema=then.schema,
            encoding=encoding,
            definitions={key: then.definitions[key] for key in used if key is not None},
            metrics={"rows": total_rows(adds)},
            tables=tables,
        )

    def make(self, head: LogState, live: Snapshot, *, require: bool = True) -> Snapshot:
        """Compare the version with the head, and return it; with `require`, raise HistoryGone for missing files."""
        self._head_version = head.version
        then = replace(live, adds={})
        if self._version >= 0:
            then = snapshot_as_moved(self._log, head, self._version)
        self._restored, self._removed = changes_between(live, then)
        self._missing = self._find_missing(head)
        if self._missing and require:
            raise HistoryGone(
                f"version {self._version} cannot be restored: {len(self._missing)} of its files were vacuumed or are "
                f"missing, the first of them {self._missing[0]!r}",
                Advice("Nothing was changed. With ", Argument("dry_run", value=True), " the report lists them"),
            )
        return then

    def report(self, version: int | None, *, dry_run: bool = False) -> RestoreReport:
        """Return the planned changes."""
        restored, removed = tuple(map(_restored_file, self._restored)), tuple(map(_restored_file, self._removed))
        missing = tuple(self._missing) if dry_run else ()
        restored_version = None
        if self._version >= 0:
            restored_version = self._version
        return RestoreReport(
            version=version,
            restored_version=restored_version,
            restored=restored,
            removed=removed,
            missing=missing,
            dry_run=dry_run,
            undone_version=self._undone,
        )

    def _find_missing(self, head: LogState) -> list[str]:
        """Return the paths of removed adds that a vacuum may have deleted, or that are missing."""
        if not self._restored:
            return []
        safe = not_vacuumed(self._log, head)
        staged = []
        for add in self._restored:
            if layout.is_staged(add.path):
                staged.append(add)
        infos = find_files(self._log.fs, staged)
        hidden = {info.path: info for info in list_or_empty(self._log.fs, layout.RETIRED)}
        missing = []
        for add in self._restored:
            if (safe is not None and add.id not in safe) or not self._is_there(add, infos, hidden):
                missing.append(_restored_file(add).path)
        return missing

    def _is_there(self, add: Add, infos: Mapping[str, FileInfo], hidden: Mapping[str, FileInfo]) -> bool:
        """Return True if the file of a removed add exists, given the staged and hidden files by path."""
        info = infos.get(add.path)
        if add.kind == "segment":
            return info is not None and info.size_bytes >= add.offset + add.length
        # A removed part whose removal is not published yet is still at its final name.
        info = hidden.get(layout.retired_path(add.id)) or info or stat_or_none(self._log.fs, add.final_path or "")
        return info is not None and info.size_bytes == add.length

    def _require_hidden(self, adds: Iterable[Add]) -> None:
        """Raise NotPublished if a part to restore is not hidden yet, because publishing moves the hidden file."""
        hidden = sizes_in(self._log.fs, layout.RETIRED)
        waiting = []
        for add in adds:
            if add.kind == "part" and add.path not in hidden:
                waiting.append(add.path)
        if waiting:
            raise NotPublished(
                f"{len(waiting)} files, which versions after {self._version} removed, are not hidden yet, the first at "
                f"{waiting[0]!r}. The log shows which version could not be published, and why. Nothing was changed"
            )

    def _encoding(self, head: LogState, then: Snapshot) -> str | None:
        """Return the key of the encoding of new rows at the version; None if it is unknown."""
        for version in range(self._version, head.log_start - 1, -1):
            record = self._log.read_record(version)
            if record is not None and record.encoding is not None:
                return record.encoding
        if not then.adds:
            return None
        return list(then.adds.values())[-1].encoding

    def _jobs(self, head: LogState, removes: Iterable[Remove], then: Snapshot, adds: Iterable[Add]) -> tuple[Job, ...]:
        """Return the jobs that were due at the version, and the jobs of the head for other segments."""
        if self._version < 0:
            return head.remaining_jobs(removes)
        path = layout.record_path(self._version)
        record = self._log.read_record(self._version)
        if record is None:
            advice = "If a vacuum deleted it during the restore, restore a version that `history` still lists"
            raise CorruptData(path, f"the record of version {self._version}", "none", advice)
        live: dict[str, Add] = {}
        for add in (*then.adds.values(), *adds):
            if add.kind == "segment":
                live[layout.original_id(add.id)] = add
        jobs: list[Job] = []
        input_ids: set[str] = set()
        with Decoding(path, "jobs of segments that were live"):
            for job in record.jobs:
                inputs = tuple(live[layout.original_id(add.id)].without_statistics() for add in job.inputs)
                input_ids |= ids_of(inputs)
                jobs.append(structs.replace(job, inputs=inputs))
        for job in head.remaining_jobs(removes):
            if input_ids.isdisjoint(ids_of(job.inputs)):
                jobs.append(job)
        return tuple(jobs)


def _add_again(adds: Sequence[Add], version: int) -> tuple[Add, ...]:
    """Return adds for the restored rows: parts under unused names, moved from the paths of their hidden files."""
    parts = []
    for add in adds:
        if add.final_path is not None:
            parts.append((add.id, add.final_path))
    paths: dict[str, str] = {}
    for (add_id, _), path in zip(parts, layout.restored_paths(parts, version), strict=True):
        paths[add_id] = path
    restored: list[Add] = []
    for add in adds:
        path = add.path
        if add.id in paths:
            path = layout.retired_path(add.id)
        new_id = layout.restored_id(add.id, version)
        restored.append(structs.replace(add, id=new_id, path=path, final_path=paths.get(add.id)))
    return tuple(restored)


def _restored_file(add: Add) -> RestoredFile:
    return RestoredFile(add.final_path or add.path, add.rows, add.length)
