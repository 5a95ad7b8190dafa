"""A scan of the log's files for its readable end, valid checkpoints, and lost records."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData, NotFound, StorageError
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import decode_checkpoint, list_checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.record import FILE_BYTES_MAX, SMALL_BYTES_MAX, from_checked_text, read_within
from ftfile.log.places import list_or_empty, walk
from ftfile.log.read.compacted_records import list_compacted
from ftfile.log.read.times import created_ms
from ftfile.log.records import read_published, storage_now_ms
from ftfile.log.sealed import SealedFileSystem
from ftfile.log.state import LogState
from ftfile.operate.file_kind import kind_of
from ftfile.operate.findings import Action, Finding, find
from ftfile.storage.calls import THREADS_MAX, parallel
from ftfile.storage.registry import WrapperFileSystem
from ftfile.writing.files.publishing import named_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ftfile.log.format.model import Record
    from ftfile.storage.api import FileInfo, FileSystem


_Result = TypeVar("_Result")


@dataclass
class LogScan:
    """The content of the log's files."""

    log: CommitLog
    state: LogState = field(default_factory=LogState)  # of the newest readable version, with nothing unpublished
    versions: frozenset[int] = frozenset()  # of the existing records
    checkpoints: dict[layout.CheckpointName, LogState] = field(default_factory=dict)  # readable checkpoints of this log
    broken: int | None = None  # the first unreadable version, if there are later versions
    published: int = -1  # the version up to which a hint of this log marks all files as published
    misleading: set[str] = field(default_factory=set)  # paths of derived files that readers must ignore
    # the last version of each derived file that contains later versions
    beyond: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    # versions whose record belongs to another log, according to derived files of this log
    foreign: set[int] = field(default_factory=set)

    def reader(self) -> CommitLog:
        """Return a log that hides misleading files."""
        fs = self.log.fs
        if not self.misleading:
            return CommitLog(fs)
        if isinstance(fs, SealedFileSystem):
            return CommitLog(SealedFileSystem(_Hiding(fs.inner, self.misleading), fs.keys))
        return CommitLog(_Hiding(fs, self.misleading))

    def readable(self, version: int) -> Record | None:
        """Return a record; None if it is missing or damaged."""
        try:
            return self.log.read_record(version)
        except CorruptData:
            return None

    def is_foreign(self, version: int) -> bool:
        """Return True if a record contradicts its neighbours; called if a derived file contradicts the record.

        The newest record can only be compared with the record before it.
        """
        record, after, behind = map(self.readable, range(version, version + 3))
        if record is None or after is not None:
            return record is not None and is_foreign(record, after, behind)
        before = None
        if version > 0:
            before = self.readable(version - 1)
        return before is not None and _breaks(before, record)

    def contradicts(self, version: int, record: Record | None, nonce: str | None) -> bool:
        """Return True if a derived file belongs to another log than its record; False if the record does."""
        if record is None or record.nonce == nonce:
            return False
        if self.is_foreign(version):
            self.foreign.add(version)
        return version not in self.foreign

    def records(self, first: int, last: int) -> Iterator[tuple[int, Record | None]]:
        """Yield versions with the result of `readable`; many records are read in parallel."""
        for start in range(first, last + 1, THREADS_MAX):
            versions = range(start, min(start + THREADS_MAX, last + 1))
            yield from zip(versions, parallel(self.log.fs, self.readable, versions), strict=True)


def is_foreign(record: Record, after: Record | None, behind: Record | None) -> bool:
    """Return True if the next record follows another record than this one, and is itself followed."""
    return _breaks(record, after) and (after is None or not _breaks(after, behind))


def _breaks(record: Record, after: Record | None) -> bool:
    return after is not None and after.previous_nonce not in {None, record.nonce}


class _Hiding(WrapperFileSystem):
    """A read-only file system that hides some files."""

    def __init__(self, inner: FileSystem, paths: Collection[str]) -> None:
        super().__init__(inner)
        self._paths = frozenset(paths)

    def around(self, operation: str, path: str, call: Callable[[], _Result]) -> _Result:
        if path in self._paths:
            raise NotFound(operation, path, "it is ignored")
        return call()

    def list(self, path: str) -> list[FileInfo]:
        infos = []
        for info in super().list(path):
            if info.path not in self._paths:
                infos.append(info)
        return infos


def scan_log(fs: FileSystem) -> LogScan:
    """Read checkpoints, and the records after the newest valid checkpoint."""
    scan = LogScan(CommitLog(fs))
    links: list[str] = []
    for path, info in walk(fs, layout.META).items():
        if info.is_link:
            links.append(path)
            actual = "a link, or another entry that is not a file"
            scan.findings.append(find("link", path, "a file or a directory", actual))
    if layout.META in map(layout.parent, links):
        scan.broken = 0  # nothing below it can be listed
        return scan
    scan.findings += [*_check_format(scan), *_check_marker(fs)]
    for path in () if fs.capabilities.implied_directories else layout.DIRECTORIES:
        if path != layout.LOG and not fs.exists(path):
            actual = "no directory: it was deleted, or the directory was copied without empty directories"
            action = Action("make-directory", path)
            scan.findings.append(find("missing-directory", path, "a directory", actual, actions=[action]))
    with contextlib.suppress(NotFound):  # on storage systems with implied directories, for an empty log
        scan.versions = frozenset(_recorded_versions(fs))
    suspects = _read_checkpoints(scan)
    _read_to_end(scan)
    if scan.broken is not None and _is_format_foreign(scan):
        actual = "the id of another directory: with it, no file of the log is authentic"
        scan.findings = [find("bad-format", layout.FORMAT_FILE, "the id of the directory", actual).without_repair()]
        return scan
    for path, wrong in suspects.items():
        scan.misleading.add(path)
        scan.findings.append(_bad_checkpoint(scan, path, wrong))
    _look_beyond(scan)
    _check_log_directory(scan)
    scan.findings += [*_check_hint(scan), *_check_horizon(scan), *_check_kind(scan), *name_code(scan.state)]
    return scan


def _recorded_versions(fs: FileSystem) -> Iterator[int]:
    for name in map(layout.parse_log_name, fs.names_after(layout.LOG, "")):
        if name is not None and name.nonce is None:
            yield name.version


def _check_format(scan: LogScan) -> Iterator[Finding]:
    path, expected = layout.FORMAT_FILE, "the layout of the log"
    write = Action("write-format", path)
    try:
        scan.log.check_layout()
    except NotFound:
        yield find("missing-format", path, expected, "no such file", actions=[write])
    except CorruptData as error:
        finding = find("bad-format", path, expected, error.found, actions=[Action("move-aside", path), write])
        # No other file contains the id of an encrypted directory.
        if isinstance(scan.log.fs, SealedFileSystem):
            finding = finding.without_repair()
        yield finding


def _is_format_foreign(scan: LogScan) -> bool:
    """Return True if no log file is authentic with the id in the format file of an encrypted directory."""
    if not isinstance(scan.log.fs, SealedFileSystem) or scan.state.version >= 0 or len(scan.versions) < 2:  # noqa: PLR2004
        return False
    if read_published(scan.log.fs) is not None:
        return False
    return scan.readable(min(scan.versions)) is None and scan.readable(max(scan.versions)) is None


def _check_marker(fs: FileSystem) -> Iterator[Finding]:
    path = layout.MARKER
    try:
        from_checked_text(read_within(fs, path, SMALL_BYTES_MAX), path)
    except NotFound:
        return
    except (CorruptData, ConfigError):
        actions = Action("move-aside", path), Action("write-marker", path)
        yield find("bad-marker", path, "the marker of the directory", "other content", actions=actions)


def look_at_head(log: CommitLog, head: LogState) -> list[Finding]:
    """Return the findings that need only the head: lost newest records, a future horizon, and code of users."""
    scan = LogScan(log, head)
    for name in list_checkpoints(log.fs):
        if name.version > head.version:
            scan.beyond[layout.log_checkpoint_path(name)] = name.version
    _look_beyond(scan)
    _check_log_directory(scan)
    return [*scan.findings, *_check_horizon(scan), *name_code(head)]


def count_quarantined(fs: FileSystem) -> int:
    """Return the number of quarantined files."""
    return sum(info.path.endswith(".quarantined") for info in list_or_empty(fs, layout.QUARANTINE))


def advance(state: LogState, *records: Record) -> LogState:
    """Return the state after further records, with nothing unpublished; CorruptData if a record does not follow."""
    return replace(state_after(state, *records), unpublished={})


def _rebuild_actions(path: str, kind: str) -> tuple[Action, Action]:
    """Return the actions that quarantine and rebuild a derived file."""
    return Action("move-aside", path), Action(f"rebuild-{kind}")


def _bad_checkpoint(scan: LogScan, path: str, actual: str) -> Finding:
    finding = find("bad-checkpoint", path, "a log checkpoint", actual, actions=_rebuild_actions(path, "checkpoint"))
    if scan.state.version < 0:
        return finding.without_repair()
    return finding


def _read_checkpoints(scan: LogScan) -> dict[str, str]:
    """Add the valid checkpoints to the scan; return the faults of the others by path."""
    suspects: dict[str, str] = {}
    for name in sorted(list_checkpoints(scan.log.fs)):
        path = layout.log_checkpoint_path(name)
        try:
            checkpoint = decode_checkpoint(read_within(scan.log.fs, path, FILE_BYTES_MAX), path)
            record = scan.log.read_record(name.version)
        except NotFound:
            continue
        except CorruptData as error:
            if error.path == path:
                suspects[path] = error.found
            continue
        if record is None and name.version > max(scan.versions, default=-1):
            scan.beyond[path] = name.version
        elif checkpoint.version != name.version or scan.contradicts(name.version, record, checkpoint.nonce):
            suspects[path] = f"version {checkpoint.version} of another history"
        elif name.version in scan.foreign:
            scan.misleading.add(path)  # readers use the record
        elif record is not None:
            scan.checkpoints[name] = replace(checkpoint, unpublished={})
    return suspects


def _read_to_end(scan: LogScan) -> None:
    """Read from the newest checkpoint to the end of the log, or to the first unreadable record."""
    newest = max(scan.checkpoints, default=None)
    if newest is not None:
        scan.state = scan.checkpoints[newest]
    else:
        scan.state = LogState()
    if newest is None and scan.versions and 0 not in scan.versions:
        scan.broken = min(scan.versions)
        actual = f"no log checkpoint, and the records before version {scan.broken} are missing"
        scan.findings.append(find("missing-checkpoint", layout.CHECKPOINTS, "a log checkpoint", actual))
        return
    last = max(scan.versions, default=-1)
    while True:
        version = scan.state.version + 1
        try:
            record = scan.log.read_record(version)
            if record is None:
                break
            scan.state = advance(scan.state, record)
        except CorruptData as error:
            scan.broken = version
            scan.findings.append(_finding_of_unreadable(scan, version, error))
            return
    if version < last:
        scan.broken = version
        path, actual = layout.record_path(version), f"no record, although there are records up to version {last}"
        scan.findings.append(
            find("missing-record", path, "a record", actual, actions=[Action("cut-log", version=version)])
        )


def _finding_of_unreadable(scan: LogScan, version: int, error: CorruptData) -> Finding:
    record, action = scan.readable(version), Action("cut-log", version=version)
    if record is not None and record.previous_nonce not in {None, scan.state.nonce}:
        is_wrong = version in scan.foreign or (scan.readable(version + 1) is not None and scan.is_foreign(version))
        foreign_version = version - 1
        if is_wrong:
            foreign_version = version
        path = layout.record_path(foreign_version)
        return find("foreign-record", path, error.expected, error.found, actions=[action])
    return find("damaged-record", error.path, error.expected, error.found, actions=[action])


def _look_beyond(scan: LogScan) -> None:
    """Find derived files that show that the newest records are lost."""
    fs, head = scan.log.fs, scan.state.version
    hint = read_published(fs)
    if hint is not None and hint.version > head:
        scan.beyond[layout.PUBLISHED_HINT] = hint.version
    for name in list_compacted(fs):
        if name.last > head:
            scan.beyond[layout.compacted_path(name)] = name.last
    for path, last in list(scan.beyond.items()):
        if fs.exists(layout.record_path(last)):
            del scan.beyond[path]  # a query has committed the version since
    scan.misleading |= scan.beyond.keys()
    if not scan.beyond or scan.broken is not None:
        return
    path, last = max(scan.beyond.items(), key=itemgetter(1, 0))
    expected, actual = f"version {last}, which {path!r} contains", f"version {head} as the newest version"
    actions = (Action("move-aside", path) for path in sorted(scan.beyond))
    scan.findings.append(find("lost-records", layout.LOG, expected, actual, actions=actions))


def _check_log_directory(scan: LogScan) -> None:
    """Report a log without its directory, which is created before the first commit and part of every copy."""
    fs, path = scan.log.fs, layout.LOG
    if scan.state.version >= 0 or fs.capabilities.implied_directories or fs.exists(path):
        return
    make = Action("make-directory", path)
    for number, finding in enumerate(scan.findings):
        if finding.code == "lost-records":
            scan.findings[number] = replace(finding, actions=(*finding.actions, make))
            return
    scan.findings.append(find("lost-records", path, "the directory of the log", "no such directory", actions=[make]))


def _check_hint(scan: LogScan) -> Iterable[Finding]:
    fs, path = scan.log.fs, layout.PUBLISHED_HINT
    if path in scan.beyond or not fs.exists(path):
        return
    actual, hint = "something else", read_published(fs)
    if hint is not None:
        record = None
        if hint.version in scan.versions:
            record = scan.readable(hint.version)
        if record is None:
            return
        if record.nonce == hint.nonce:
            scan.published = hint.version
            return
        if not scan.contradicts(hint.version, record, hint.nonce):
            return
        actual = f"version {hint.version} of another history"
    scan.misleading.add(path)
    yield find("bad-hint", path, "the newest published version", actual, actions=_rebuild_actions(path, "hint"))


def _check_kind(scan: LogScan) -> Iterator[Finding]:
    """Yield the faults of jobs, and of files, that only directories of this kind have."""
    if scan.broken is not None:
        return  # the kind and the recorded files are unknown
    log = scan.reader()
    head = log.refresh()
    kind = kind_of(head)
    try:
        for job in head.jobs:
            kind.check_job(job)
    except CorruptData as error:
        yield find("bad-record", error.path, error.expected, error.found)
    yield from kind.check_content(log, head)


def name_code(head: LogState) -> Iterator[Finding]:
    """Yield a finding for each class and function of users that the log names at a head; nothing is imported."""
    for option, name in sorted(_code_at(head)):
        yield find("code-not-asked", "", "code of ftfile, or of its caller", f"{option} by {name}, not imported")


def _code_at(head: LogState) -> set[tuple[str, str]]:
    """Return options with the code of users that they name; unreadable settings are skipped."""
    named: set[tuple[str, str]] = set()
    for key in set(map(attrgetter("settings"), head.queries.values())) - {None}:
        with contextlib.suppress(CorruptData), Decoding(layout.LOG, "the settings of a query"):
            named.update(named_code(head.definitions[key]).items())
    with contextlib.suppress(CorruptData), Decoding(layout.LOG, "an encoding"):
        encoding: dict[str, Any] = {}
        if head.encoding is not None:
            encoding = head.definitions[head.encoding]
        named.update(kind_of(head).code_of(encoding))
    return named


def _check_horizon(scan: LogScan) -> Iterable[Finding]:
    """Yield a finding if the horizon is after the storage's time, so that commits fail.

    Reading the storage's time writes a file. It is therefore only read if this machine's clock, or the time of the
    newest record, makes the horizon doubtful. If the storage cannot be written to, there is no finding.
    """
    horizon_ms = scan.state.horizon_ms
    newest_ms = None
    if scan.state.version >= 0:
        newest_ms = created_ms(scan.log, scan.state.version)
    if horizon_ms <= min(scan.log.clock.now_ms(), newest_ms or 0):
        return
    try:
        ahead_ms = horizon_ms - storage_now_ms(scan.log.fs)
    except StorageError:
        return
    if ahead_ms > 0:
        actual = (
            f"a horizon {ahead_ms // 1000} s in the future: a vacuum ran while the storage's clock was ahead, and "
            "commits fail"
        )
        expected = "a vacuum horizon in the past"
        yield find("horizon-ahead", layout.LOG, expected, actual, actions=[Action("lower-horizon")])
