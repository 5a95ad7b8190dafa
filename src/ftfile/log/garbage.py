"""The files of a directory that no record needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from ftfile.core.logs import get_logger
from ftfile.log.checkpoints import CHECKPOINTS_KEPT, list_checkpoints
from ftfile.log.format import layout
from ftfile.log.format.model import Remove
from ftfile.log.places import is_recorded, list_or_empty, read_note, stat_or_none
from ftfile.log.read.compacted_records import CompactedFiles, find_contained, list_compacted
from ftfile.log.read.snapshot import removals, snapshot_at
from ftfile.log.read.times import created_ms, newest_at
from ftfile.log.records import RECORD_AGE_MIN_MS
from ftfile.log.wal import list_wal, list_wal_writers, opening_of
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo, FileSystem


_log = get_logger(__name__)

# The temporary file of a killed `create_exclusive`.
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{32}\.tmp")

_WHY = {
    "staged": "no record names it, or all its rows were removed before the horizon",
    "direct": "no record names it",
    "retired": "it was removed before the horizon",
    "returned": "it was removed, but exists again at its name",
    "record": "log checkpoints and compacted logs replace it",
    "checkpoint": "a newer log checkpoint replaces it",
    "range": "a newer compacted log replaces it",
    "windows": "a newer process has taken over its windows",
    "temporary": "a process was killed before it renamed the file to its final name",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageFile:
    """A file that is not needed."""

    path: str  # relative to the directory
    size_bytes: int
    # `staged`, `direct` (written under its final name), `retired`, `returned` (a removed part at its final name: hidden
    # again, not deleted), `record`, `checkpoint`, `range`, `windows` or `temporary`.
    kind: str
    why: str  # why it is not needed


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFiles:
    """Files that the newest version does not need, but that a vacuum keeps for one reason."""

    # `retention`: a running batch can need them; `readers`: versions within the retention contain them; `version`: they
    # are old enough, but the newest version, or a version that an expiry keeps, is older.
    reason: Literal["retention", "readers", "version"]
    files: int
    size_bytes: int
    # When the first and the last can be deleted, since 1970 UTC by the storage's clock; None for a later version.
    first_ms: int | None
    last_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The files that are not needed at a version."""

    log_start: int  # the oldest record to keep
    vacuumed_to: int  # files of adds that were removed at this version or before are deleted
    lacks_compacted: bool = False  # more records could be deleted if compacted logs replaced them
    files: list[GarbageFile] = field(default_factory=list)  # to be deleted
    returned: list[tuple[Remove, GarbageFile]] = field(default_factory=list)  # to be hidden again
    foreign: list[str] = field(default_factory=list)  # other files at the names of removed parts, which are kept
    directories: list[str] = field(default_factory=list)  # empty directories of the stage, innermost first
    modified_ms: dict[str, int] = field(default_factory=dict)  # of the files to be deleted, by path

    def add(self, info: FileInfo, kind: str, why: str = "") -> None:
        """Add a file to delete."""
        self.files.append(GarbageFile(path=info.path, size_bytes=info.size_bytes, kind=kind, why=why or _WHY[kind]))
        self.modified_ms[info.path] = info.modified_ms

    @property
    def needs_record(self) -> bool:
        """Return True if files can only be deleted after a record with the new horizon."""
        return bool(self.files or self.returned)


def find_garbage(
    log: CommitLog,
    head: LogState,
    horizon_ms: int,
    now_ms: int,
    *,
    vacuumed_to: int | None = None,
    keep_from: int | None = None,
) -> Findings:
    """Return the files older than the horizon that are not live at the head and were not live after the horizon.

    All times are by the storage's clock. `vacuumed_to` is the version in the vacuum's record, once it is created. Files
    of versions from `keep_from` on are kept.

    Raises:
        CorruptData: the log is damaged: no file may be deleted.
    """
    listed = list_or_empty(log.fs, layout.LOG)
    if vacuumed_to is None:
        since = newest_at(listed, head, horizon_ms, now_ms) or 0
        if keep_from is not None:
            since = min(since, keep_from)
        since = max(since, head.log_start)
    else:
        since = vacuumed_to
    # A vacuum deletes records that compacted logs replace, so these compacted logs must be complete.
    within = snapshot_at(log, head, since=max(since, head.log_start), verified_from=head.log_start)
    returned: list[tuple[Remove, GarbageFile]] = []
    foreign: list[str] = []
    for remove, info in _find_removed(log, head):
        if is_recorded(log.fs, info, remove):
            returned.append(
                (remove, GarbageFile(path=info.path, size_bytes=info.size_bytes, kind="returned", why=_WHY["returned"]))
            )
        else:
            foreign.append(info.path)
    # The file of a restored part is known, and its name reserved, while the record that removed it is kept.
    if returned:
        possible = head.log_start
    else:
        kept_from = newest_at(listed, head, now_ms - RECORD_AGE_MIN_MS, now_ms) or 0
        possible = _log_start(log, head, min(since, kept_from))
    log_start = head.log_start
    if vacuumed_to is None:
        log_start = max(log_start, min(possible, within.compacted_to + 1))
    findings = Findings(
        log_start=log_start, vacuumed_to=since, lacks_compacted=log_start < possible, returned=returned, foreign=foreign
    )
    _collect_parts(log.fs, head, within=within, horizon_ms=horizon_ms, now_ms=now_ms, findings=findings)
    # A record with a future time was created while the storage's clock was ahead.
    old = [info for info in listed if not horizon_ms < info.modified_ms <= now_ms]
    _collect_log(log, old, findings)
    _collect_state(log, head, horizon_ms, findings)
    return findings


def find_waiting(
    log: CommitLog, head: LogState, findings: Findings, horizon_ms: int, now_ms: int, retention_ms: int
) -> tuple[WaitingFiles, ...]:
    """Return the files that are kept only because of `horizon_ms`, by reason.

    For the times and CorruptData see `find_garbage`.
    """
    later = find_garbage(log, head, now_ms, now_ms)
    files = [file for file in later.files if file.path not in findings.modified_ms]
    if not files:
        return ()
    since = max(newest_at(list_or_empty(log.fs, layout.LOG), head, horizon_ms, now_ms) or 0, head.log_start)
    recent: set[str] = set()
    for add in snapshot_at(log, head, since=since).adds.values():
        recent.add(add.path)
        recent.add(layout.retired_path(add.id))
    versions = sorted(removals(log, head, since, head.version))
    recorded = _WaitingGroup("readers")
    if versions:
        recorded.times_ms.extend((created_ms(log, versions[0]) or 0, created_ms(log, versions[-1]) or 0))
    young, old = _WaitingGroup("retention"), _WaitingGroup("version")
    for file in files:
        modified_ms = later.modified_ms[file.path]
        if file.path in recent:
            recorded.files.append(file)
        elif modified_ms + retention_ms > now_ms:
            young.files.append(file)
            young.times_ms.append(modified_ms)
        else:
            old.files.append(file)
    return tuple(group.count(retention_ms, now_ms) for group in (young, recorded, old) if group.files)


@dataclass(frozen=True, slots=True)
class _WaitingGroup:
    """Files that are kept for one reason, and the times at which their retention starts."""

    reason: Literal["retention", "readers", "version"]
    files: list[GarbageFile] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)

    def count(self, retention_ms: int, now_ms: int) -> WaitingFiles:
        """Return the number of files, and when the first and the last of them can be deleted."""
        size_bytes = sum(map(attrgetter("size_bytes"), self.files))
        ends_ms = []
        for time_ms in self.times_ms:
            if time_ms + retention_ms > now_ms:
                ends_ms.append(time_ms + retention_ms)
        first_ms, last_ms = min(ends_ms, default=None), max(ends_ms, default=None)
        return WaitingFiles(
            reason=self.reason, files=len(self.files), size_bytes=size_bytes, first_ms=first_ms, last_ms=last_ms
        )


def _find_removed(log: CommitLog, head: LogState) -> list[tuple[Remove, FileInfo]]:
    """Return the files at the names of removed parts: these parts, or files of other programs.

    All parts whose removal is in a kept record are checked, so a vacuum checks each part before it deletes the record.
    """
    live, remembered = set(snapshot_at(log, head).adds), snapshot_at(log, head, since=head.log_start).adds
    if len(live) == len(remembered):
        return []
    removed: dict[str, Add] = {}
    live_paths: set[str] = set()
    for add in remembered.values():
        if add.final_path is None:
            continue
        if add.id in live:
            live_paths.add(add.final_path)
        else:
            removed[add.final_path] = add
    for path in live_paths:
        removed.pop(path, None)
    files: list[FileInfo] = []
    for directory in set(map(layout.parent, removed)):
        for info in list_or_empty(log.fs, directory):
            if info.path in removed:
                files.append(info)
    return [(Remove.of(removed[info.path]), info) for info in files]


def _log_start(log: CommitLog, head: LogState, since: int) -> int:
    """Return the oldest record to keep if compacted logs replace all records before it.

    This is the newest record older than the horizon, because readers of that time need it. It is also not newer than
    the last two checkpoints: if the newer checkpoint is lost, the older checkpoint and the records after it replace it.
    """
    names = [name for name in log.checkpoints.names() if name.version <= head.version][-CHECKPOINTS_KEPT:]
    checkpoints = []
    for name in names:
        if log.checkpoints.read(name) is not None:
            checkpoints.append(name)
    if len(checkpoints) < CHECKPOINTS_KEPT:
        return head.log_start
    # The name of a part to retire is reserved while its record is kept.
    return max(head.log_start, min(since, checkpoints[0].version, *head.unpublished))


def _collect_parts(
    fs: FileSystem, head: LogState, within: Snapshot, horizon_ms: int, now_ms: int, findings: Findings
) -> None:
    files, directories = _list_stage(fs)
    staged = _list_older(files, horizon_ms)
    hidden = [info for info in list_or_empty(fs, layout.RETIRED) if info.path.endswith(".retired")]
    # A removed part with a future time was hidden while the storage's clock was ahead. No running process writes it.
    retired = {info.path: info for info in hidden if not horizon_ms < info.modified_ms <= now_ms}
    for add in within.adds.values():
        staged.pop(add.path, None)
        retired.pop(layout.retired_path(add.id), None)
        # A part to be restored is still hidden.
        retired.pop(add.path, None)
    # Dead letters are in no snapshot: until they are published, only this list contains them.
    for add in chain.from_iterable(entry.adds for entry in head.unpublished.values()):
        staged.pop(add.path, None)
    notes = list(filter(layout.is_note, staged))
    for note in _collect_notes(fs, notes, within=within, horizon_ms=horizon_ms, findings=findings):
        del staged[note]
    for kind, infos in (("staged", staged.values()), ("retired", retired.values())):
        for info in infos:
            findings.add(info, kind)
    # The directories of queries stay, because the next batch would create them again.
    kept_directories = set()
    for query_id in head.queries:
        kept_directories.add(f"{layout.STAGED}/{query_id}")
    emptied = _ancestors_of(staged)
    kept_directories |= _ancestors_of(info.path for info in files if info.path not in staged)
    for info in directories:
        # An empty directory without a time can have been created just now.
        is_old = 0 < info.modified_ms <= horizon_ms
        if info.path not in kept_directories and (is_old or info.path in emptied):
            findings.directories.append(info.path)
    findings.directories.sort(reverse=True)


def _ancestors_of(paths: Iterable[str]) -> set[str]:
    directories: set[str] = set()
    for path in paths:
        directories.update(layout.ancestors(path))
    return directories


def _list_stage(fs: FileSystem) -> tuple[list[FileInfo], list[FileInfo]]:
    """Return the files and the directories of the stage."""
    files: list[FileInfo] = []
    directories: list[FileInfo] = []
    waiting = [layout.STAGED]
    while waiting:
        for info in list_or_empty(fs, waiting.pop()):
            if info.is_directory:
                directories.append(info)
                waiting.append(info.path)
            else:
                files.append(info)
    return files, directories


def _list_older(infos: Iterable[FileInfo], horizon_ms: int) -> dict[str, FileInfo]:
    """Return the files that are not younger than the horizon, by path."""
    return {info.path: info for info in infos if info.modified_ms <= horizon_ms}


def _collect_notes(
    fs: FileSystem, notes: Sequence[str], within: Snapshot, horizon_ms: int, findings: Findings
) -> list[str]:
    """Find files that were written under their final names and never committed; return the notes of younger files."""
    live = set(map(attrgetter("path"), within.adds.values()))

    def find_uncommitted(note: str) -> FileInfo | None:
        path = read_note(fs, note)
        if path is None or path in live:
            return None
        info = stat_or_none(fs, path)
        if info is None or info.is_directory:
            return None
        return info

    younger = []
    for note, info in zip(notes, parallel(fs, find_uncommitted, notes), strict=True):
        if info is not None and info.modified_ms > horizon_ms:
            # The note is the only trace of the file.
            younger.append(note)
        elif info is not None:
            findings.add(info, "direct")
    return younger


def _collect_log(log: CommitLog, old: Iterable[FileInfo], findings: Findings) -> None:
    """Find records that are not kept, oldest first, and companions of records that were never created."""
    for info in sorted(old, key=attrgetter("path")):
        name = layout.parse_log_name(info.path)
        if name is None:
            continue
        if name.version < findings.log_start:
            findings.add(info, "record")
        elif name.nonce is not None:
            # If the version does not exist yet, a process may be about to create the record.
            record = log.read_record(name.version)
            if record is not None and record.nonce != name.nonce:
                findings.add(info, "record", "its record was never created: another record has its version")


def _collect_state(log: CommitLog, head: LogState, horizon_ms: int, findings: Findings) -> None:
    """Find replaced checkpoints and compacted logs, and files of killed processes next to them."""
    fs, names = log.fs, list_compacted(log.fs)
    own_checkpoints = [name for name in log.checkpoints.names() if name.version <= head.version][-CHECKPOINTS_KEPT:]
    replaced: dict[str, str] = {}
    for checkpoint in list_checkpoints(fs) if own_checkpoints else ():
        if checkpoint.version < own_checkpoints[-1].version and checkpoint not in own_checkpoints:
            replaced[layout.log_checkpoint_path(checkpoint)] = "checkpoint"
    for name in find_contained(names, CompactedFiles(log, head, names).cover()):
        replaced[layout.compacted_path(name)] = "range"
    writers = list_wal_writers(fs)
    for path in _unneeded_windows(fs, head, writers):
        replaced[path] = "windows"
    for directory in (layout.META, layout.LOG, layout.CHECKPOINTS, layout.COMPACTED, *writers):
        for info in list_or_empty(fs, directory):
            if info.is_directory or info.modified_ms > horizon_ms:
                continue
            if _TEMPORARY_NAME.fullmatch(info.path.rsplit("/", 1)[-1]):
                findings.add(info, "temporary")
            elif info.path in replaced:
                findings.add(info, replaced[info.path])


def _unneeded_windows(fs: FileSystem, head: LogState, directories: Sequence[str]) -> Iterator[str]:
    """Yield the files of windows of older processes, which the newest process of their writer has taken over."""
    for directory in directories:
        writer = directory.rpartition("/")[2]
        opening = opening_of(head, writer)
        for name in list_wal(fs, writer):
            if name.epoch < opening.epoch and name.epoch != opening.wal_epoch:
                yield layout.wal_path(writer, name)
