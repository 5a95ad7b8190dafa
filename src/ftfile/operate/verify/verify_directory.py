"""Verification of a directory: its log, derived files, data files and, on request, their content."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, NotADirectory, NotFound
from ftfile.core.progress import Tracker
from ftfile.formats.parts import read_add
from ftfile.log.commit_log import CommitLog, check_at_least
from ftfile.log.format import layout
from ftfile.log.format.adds import total_bytes
from ftfile.log.format.model import Add
from ftfile.log.places import check_segment, has_content, open_add, stat_or_none
from ftfile.log.read.snapshot import live_table, oldest_readable, snapshot_at
from ftfile.operate.file_kind import FILES, kind_of
from ftfile.operate.findings import Action, CheckReport, Finding, find, lost, sort_worst_first
from ftfile.operate.verify.file_statistics import StatisticsCheck
from ftfile.operate.verify.files import (
    StoredFiles,
    compare_files,
    list_files,
    report_staged_files,
    report_unknown_files,
)
from ftfile.operate.verify.history import WHOLE, read_history
from ftfile.operate.verify.log_scan import count_quarantined, scan_log
from ftfile.rows.spark_types import recorded_schema
from ftfile.storage.calls import parallel
from ftfile.writing.workers import Threads, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.progress import OnProgress
    from ftfile.log.format.model import Record
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.kinds import Kind
    from ftfile.operate.verify.history import History
    from ftfile.operate.verify.log_scan import LogScan
    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import TaskIdentity
    from ftfile.writing.workers import Workers


# A vacuum may run during each attempt.
TRIES = 5
WRONG_STATISTICS = "wrong-statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(CheckReport):
    """The result of `OpenedDirectory.verify()`."""

    kind: Literal["files", "store"] = "files"
    version: int = -1  # the newest readable version; -1 if there is none
    oldest_version: int = 0  # the oldest kept version
    records: int = 0  # number of records that were read
    files: int = 0  # live finished or staged parts
    segments: int = 0  # live pieces of files that are still open, or runs of a store
    rows: int = 0  # in files and segments
    size_bytes: int = 0  # of files and segments
    unrecorded_files: int = 0  # staged files that no record names: of lost attempts, or of running tasks
    unrecorded_bytes: int = 0
    quarantined_files: int = 0  # quarantined by repairs
    full: bool = False  # content was read
    complete: bool = True  # False if the log could not be read to its end, so files were not compared

    def facts(self) -> Iterator[str]:
        """Yield the compared numbers."""
        pieces = f"{self.files} files, {self.segments} open segments"
        if self.kind == "store":
            pieces = f"{self.segments} runs"
        content = "not read"
        if self.full:
            content = "read"
        yield f"version {self.version}, {pieces}, {self.rows} rows, content {content}"


def verify(
    fs: FileSystem,
    *,
    full: bool = False,
    workers: Workers | None = None,
    progress: OnProgress | None = None,
    on_record: Callable[[Record], object] | None = None,
    at_least_version: int | None = None,
) -> VerifyReport:
    """Return the differences between storage and the log; see `OpenedDirectory.verify`.

    The workers read the content; by default, the threads of this process. `on_record` is called with each readable kept
    record, oldest first, and with all of them again if the comparison is repeated.

    Raises:
        RolledBack: the readable log ends before `at_least_version`.
    """
    if workers is None:
        workers = Threads.of("verify", None, fs.context)
    for _ in range(TRIES - 1):
        report = _verify(fs, workers, progress, on_record, full=full)
        # A concurrent vacuum deletes records that were listed.
        if report.ok or report.oldest_version == _oldest_version(fs, report):
            break
    else:
        report = _verify(fs, workers, progress, on_record, full=full)
    check_at_least(report.version, at_least_version)
    return report


def _oldest_version(fs: FileSystem, report: VerifyReport) -> int:
    try:
        return CommitLog(fs).refresh().log_start
    except (CorruptData, NotADirectory):
        return report.oldest_version


def _verify(
    fs: FileSystem,
    workers: Workers,
    progress: OnProgress | None,
    on_record: Callable[[Record], object] | None,
    *,
    full: bool,
) -> VerifyReport:
    scan = scan_log(fs)
    if scan.broken is not None:
        return _report(scan, scan.findings, 0, None, full=full)
    files = list_files(fs)
    files.kind = _kind_at(scan)
    history = read_history(scan, files.visible, files.staged, on_record)
    findings = [*scan.findings, *history.findings]
    reader = scan.reader()
    try:
        snapshot = snapshot_at(reader, scan.state)
    except CorruptData as error:
        findings.append(_finding_of_wrong_compacted(scan, error.path, error.expected, error.found))
        return _report(scan, findings, history.records, None, full=full)

    def still_live(add: Add) -> bool:
        return reader.refresh().is_live(add, scan.state.version)

    compare_files(files, snapshot.adds.values(), still_live)
    returned = _returned_adds(scan.state, snapshot)
    if returned:
        actual = f"{len(returned)} adds that later records removed, such as {returned[0]!r}"
        findings.append(
            _finding_of_wrong_compacted(scan, layout.COMPACTED, "no removed add among the live adds", actual)
        )
    elif history.live_sum is not None and history.live_sum != files.live_sum & WHOLE:
        findings.append(_finding_of_wrong_compacted(scan, layout.COMPACTED, "the rows of the records", "other rows"))
    _forget_newer(reader, scan, files)
    report_staged_files(files, history)
    report_unknown_files(files, history, scan.published)
    findings += files.findings
    if history.live_sum is not None:
        findings += _compare_old_files(reader, scan.state, files, history, full=full)
    if full:
        findings += _compare_letters(fs, history.letters)
        damaged = _damaged_files(files, snapshot, workers=workers, progress=progress)
        damaged_paths = {finding.path for finding in damaged if finding.code != WRONG_STATISTICS}
        findings = _without_publishing(findings, damaged_paths)
        findings += damaged
    return _report(scan, findings, history.records, files, full=full)


def _kind_at(scan: LogScan) -> Kind:
    """Return the kind of the directory; files if the log does not show it."""
    with suppress(CorruptData):
        return kind_of(scan.state)
    return FILES


def _report(
    scan: LogScan, findings: list[Finding], records: int, files: StoredFiles | None, *, full: bool
) -> VerifyReport:
    contents = files
    if contents is None:
        contents = StoredFiles(scan.log.fs)
    return VerifyReport(
        kind=_kind_at(scan).name,
        version=scan.state.version,
        oldest_version=scan.state.log_start,
        records=records,
        files=contents.parts,
        segments=contents.segments,
        rows=contents.rows,
        size_bytes=contents.size_bytes,
        unrecorded_files=len(contents.staged),
        unrecorded_bytes=sum(contents.staged.values()),
        quarantined_files=count_quarantined(scan.log.fs),
        full=full,
        complete=files is not None,
        findings=sort_worst_first(findings),
    )


def _forget_newer(reader: CommitLog, scan: LogScan, files: StoredFiles) -> None:
    """Ignore the files of records that were committed during the verification."""
    for version in range(scan.state.version + 1, reader.refresh().version + 1):
        record = reader.read_record(version)
        for add in record.adds if record is not None else ():
            files.visible.pop(add.final_path or "", None)
            files.staged.pop(add.path, None)


def _damaged_files(
    files: StoredFiles, snapshot: Snapshot, *, workers: Workers, progress: OnProgress | None
) -> list[Finding]:
    """Return the adds with other content than recorded, of the files that are not lost."""
    lost_paths = set()
    for finding in files.findings:
        if finding.code != "not-published":
            lost_paths.add(finding.path)
    return list(_compare_content(files, snapshot, lost_paths=lost_paths, workers=workers, progress=progress))


def _without_publishing(findings: Iterable[Finding], damaged_paths: Container[str]) -> list[Finding]:
    """Return the findings without the publication of damaged files."""
    remaining = []
    for finding in findings:
        if finding.code != "not-published" or finding.path not in damaged_paths:
            remaining.append(finding)
    return remaining


def _returned_adds(state: LogState, snapshot: Snapshot) -> list[str]:
    """Return the ids of live adds that are removed in the state from checkpoints and records."""
    returned = []
    for add_id in state.removed:
        if add_id in snapshot.adds:
            returned.append(add_id)
    for add in snapshot.adds.values():
        if add.kind == "segment" and add.id not in state.segments:
            returned.append(add.id)
    return returned


def _finding_of_wrong_compacted(scan: LogScan, path: str, expected: str, actual: str) -> Finding:
    """Return the finding of compacted logs that make the newest version unreadable or wrong."""
    finding = find("bad-compacted-log", path, expected, actual, actions=[Action("rebuild-compacted-logs")])
    if scan.state.log_start == 0:
        return replace(finding, severity="error")
    return finding.without_repair(
        "The records no longer exist: restore the compacted logs from a copy of the directory"
    )


def _compare_content(
    files: StoredFiles, snapshot: Snapshot, lost_paths: Container[str], workers: Workers, progress: OnProgress | None
) -> Iterator[Finding]:
    """Read every live add except `lost_paths`, and yield the adds whose content is not as recorded."""
    fs = files.fs
    adds: list[Add] = []
    encodings = set()
    for add in chain.from_iterable(live_table(snapshot).with_statistics(fs)):
        if (add.final_path or add.path) not in lost_paths:
            adds.append(add)
            encodings.add(add.encoding)
    definitions = {}
    for key, definition in snapshot.definitions.items():
        if key in encodings:
            definitions[key] = definition
    schema = None
    with Decoding(layout.LOG, "the schema of the newest version"):
        if snapshot.schema is not None:
            schema = snapshot.definitions[snapshot.schema]
    work = Comparing(definitions, schema)
    tracker = Tracker("verify", fs.context.clock, on_progress=progress, total=len(adds), total_bytes=total_bytes(adds))
    faults: dict[int, ContentFault] = {}
    for number, result in workers.do(work, adds, fs, {}):
        tracker.add(1, work.size_of(adds[number]))
        if result is not None:
            faults[number] = result
    for number, fault in sorted(faults.items()):
        yield _content_finding(adds[number], fault, files.kind.consequence(adds[number]))


def _content_finding(add: Add, fault: ContentFault, consequence: str) -> Finding:
    if fault.has_wrong_statistics:
        return find(WRONG_STATISTICS, fault.path, "rows that fit the statistics in the log", fault.actual)
    expected = f"{add.rows} rows in {add.length} bytes with {add.checksum}"
    damaged = ""
    if add.kind == "part":
        damaged = fault.path
    return lost(
        add,
        f"damaged-{add.kind}",
        expected=expected,
        actual=fault.actual,
        damaged=damaged,
        consequence=consequence,
        full=True,
    )


class ContentFault(NamedTuple):
    """The content of an add, if it is not as recorded."""

    path: str  # of the file
    actual: str  # in the file
    has_wrong_statistics: bool = False  # True if the content is as recorded, but its statistics are not


@dataclass(frozen=True, slots=True)
class Comparing(Work[Add, ContentFault | None]):
    """Reads adds, and finds adds whose content is not as recorded."""

    definitions: Mapping[str, Any]  # of the encodings of the adds, by key
    schema: str | None  # of the newest version

    def size_of(self, piece: Add) -> int:
        """Return the length of an add."""
        return piece.length

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[Add]) -> Iterator[ContentFault | None]:
        """Yield the fault of each add; raise a ConfigError if a key of an encrypted directory is missing."""
        for add in pieces:
            yield self._fault(fs, add)

    def _fault(self, fs: FileSystem, add: Add) -> ContentFault | None:
        encoding = self.definitions.get(add.encoding)
        try:
            path = open_add(add, fs.stat).path
            if add.kind == "part" and not has_content(fs, path, add):
                if fs.exists(path):
                    return ContentFault(path, "other bytes")
                return None
            if add.kind == "segment" and isinstance(encoding, dict) and "store" in encoding:
                check_segment(fs, add)
            elif self.schema is not None and isinstance(encoding, dict):
                return _statistics_fault(fs, add, encoding, recorded_schema(self.schema), path=path)
        except ConfigError:
            raise
        except NotFound:
            pass  # the file is being moved
        except CorruptData as error:
            return ContentFault(error.path, error.found)
        except FtfileError as error:
            return ContentFault(add.path, str(error))
        return None


def _statistics_fault(
    fs: FileSystem, add: Add, encoding: dict[str, Any], schema: pa.Schema, *, path: str
) -> ContentFault | None:
    """Read all rows of an add, whose file is at `path`, and compare its statistics with them."""
    with Decoding(layout.LOG, "the schema of an encoding"):
        stored = recorded_schema(encoding["schema"])
    check = StatisticsCheck(add.statistics, stored, schema)
    for batch in read_add(fs, add, encoding, schema):
        check.update(batch)
    actual = check.fault()
    if actual is None:
        return None
    return ContentFault(path, actual, has_wrong_statistics=True)


def _compare_old_files(
    log: CommitLog, head: LogState, files: StoredFiles, history: History, *, full: bool
) -> Iterator[Finding]:
    """Yield a finding for each damaged or missing file of removed rows that a readable version contains.

    Files that vacuums may have deleted, and files that a repair has given up, are skipped. With `full`, content is
    read.
    """
    live = snapshot_at(log, head).adds
    readable = snapshot_at(log, head, since=oldest_readable(log, head)).adds
    restored: dict[str, int] = {}
    for add in readable.values():
        original = layout.original_id(add.id)
        restored[original] = max(restored.get(original, -1), layout.restored_version(add.id))
    removed: list[Add] = []
    for add in readable.values():
        if add.id in live or add.id in history.given_up:
            continue
        # The file of a restored part belongs to the newest add.
        if layout.restored_version(add.id) == restored[layout.original_id(add.id)]:
            removed.append(add)
    seen: set[str] = set()
    faults = parallel(log.fs, partial(_old_fault, files, full=full), removed)
    for add, actual in zip(removed, faults, strict=True):
        path = _place(add)
        if actual is not None and path not in seen:
            seen.add(path)
            yield find("damaged-old-file", path, f"{add.rows} rows of older versions", actual)


def _place(add: Add) -> str:
    if add.kind == "part":
        return layout.retired_path(add.id)
    return add.path


def _old_fault(files: StoredFiles, add: Add, *, full: bool) -> str | None:
    """Return the fault of the file of a removed add; None if there is no fault."""
    try:
        if add.kind == "segment":
            return _old_segment_fault(files.fs, add, full=full)
        if files.retired.get(layout.retired_path(add.id)) == add.length:
            path = layout.retired_path(add.id)
        else:
            info = open_add(add, files.fs.stat, is_old=True)
            if info.size_bytes != add.length:
                return f"{info.size_bytes} bytes"
            path = info.path
        if full and not has_content(files.fs, path, add):
            return "other bytes"
    except CorruptData as error:
        return error.found
    return None


def _old_segment_fault(fs: FileSystem, add: Add, *, full: bool) -> str | None:
    info = stat_or_none(fs, add.path)
    if info is None or info.size_bytes < add.offset + add.length:
        if info is None:
            return "no such file"
        return f"{info.size_bytes} bytes"
    if full:
        try:
            check_segment(fs, add)
        except NotFound:
            return "no such file"
    return None


def _compare_letters(fs: FileSystem, letters: Mapping[str, Add]) -> Iterator[Finding]:
    """Yield a finding for each file of dead letters, by path, that does not have its recorded bytes.

    A missing file is not a fault, because users delete dead letters after reading them.
    """

    def is_damaged(path: str) -> bool:
        return not has_content(fs, path, letters[path]) and stat_or_none(fs, path) is not None

    paths = sorted(letters)
    for path, damaged in zip(paths, parallel(fs, is_damaged, paths), strict=True):
        if damaged:
            letter = letters[path]
            yield find("damaged-letters", path, f"{letter.length} bytes with {letter.checksum}", "other bytes")
