"""Verify a directory: its log, what is derived of that, its files and, if asked for, their content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.log import CommitLog
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.core.errors import CorruptData
from ftfile.maintenance.verify.content import compare_content
from ftfile.maintenance.verify.files import compare_files, tell_of_others, tell_of_stage
from ftfile.maintenance.verify.findings import Finding, Rebuild, VerifyReport
from ftfile.maintenance.verify.history import read_history
from ftfile.maintenance.verify.listing import Files, list_files
from ftfile.maintenance.verify.log_scan import REPAIR, scan_log

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.history import History
    from ftfile.maintenance.verify.log_scan import LogScan

__all__ = ("verify",)

# A vacuum may run at any look.
TRIES = 5
_ORDER = {"error": 0, "warning": 1, "info": 2}
_WHOLE = (1 << 64) - 1


def verify(fs: FileSystem, *, full: bool = False) -> VerifyReport:
    """Hold what is on storage against what the log says. Nothing is written; safe beside running queries.

    Args:
        fs: of the directory.
        full: also read every file, compare its checksum, and count its rows.

    Raises:
        ConfigError: a key of an encrypted directory is not known.
        StorageError: the store failed.
    """
    for _ in range(TRIES - 1):
        report = _verify(fs, full=full)
        # A vacuum beside this deletes records that were listed.
        if report.ok or report.oldest_version == _oldest_version(fs, report):
            return report
    return _verify(fs, full=full)


def _oldest_version(fs: FileSystem, report: VerifyReport) -> int:
    try:
        return CommitLog(fs).read_on().log_start
    except CorruptData:
        return report.oldest_version


def _verify(fs: FileSystem, *, full: bool) -> VerifyReport:
    scan = scan_log(fs)
    quarantined = sum(info.path.endswith(".quarantined") for info in list_or_empty(fs, layout.QUARANTINE))
    if scan.broken is not None:
        return _report(scan, scan.findings, quarantined, full=full)
    files = list_files(fs)
    history = read_history(scan, files.visible, files.staged)
    findings = [*scan.findings, *history.findings]
    reader = scan.reader()
    try:
        snapshot = snapshot_at(reader, scan.state)
    except CorruptData as error:
        findings.append(_unreadable(scan, error))
        return _report(scan, findings, quarantined, full=full, history=history)
    compare_files(files, snapshot.adds.values(), lambda add: reader.read_on().is_live(add, scan.state.version))
    if history.live_sum is not None and history.live_sum != files.live_sum & _WHOLE:
        findings.append(_other_story(scan))
    _forget_newer(reader, scan, files)
    tell_of_stage(files, history)
    tell_of_others(files, history, scan.published)
    findings += files.findings
    if full:
        known = {finding.path for finding in files.findings}
        findings += compare_content(fs, snapshot, known)
    return _report(scan, findings, quarantined, full=full, history=history, files=files)


def _report(
    scan: LogScan,
    findings: list[Finding],
    quarantined: int,
    *,
    full: bool,
    history: History | None = None,
    files: Files | None = None,
) -> VerifyReport:
    found = files if files is not None else Files(scan.log.fs)
    return VerifyReport(
        version=scan.state.version,
        oldest_version=scan.state.log_start,
        records=history.records if history is not None else 0,
        files=found.parts,
        segments=found.segments,
        rows=found.rows,
        size_bytes=found.size_bytes,
        unrecorded_files=len(found.staged),
        unrecorded_bytes=sum(found.staged.values()),
        quarantined_files=quarantined,
        full=full,
        complete=files is not None,
        findings=tuple(sorted(findings, key=lambda finding: _ORDER[finding.severity])),
    )


def _forget_newer(reader: CommitLog, scan: LogScan, files: Files) -> None:
    """Pass over the files of records that came meanwhile."""
    for version in range(scan.state.version + 1, reader.read_on().version + 1):
        record = reader.read_record(version)
        for add in record.adds if record is not None else ():
            files.visible.pop(add.final_path or "", None)
            files.staged.pop(add.path, None)


def _unreadable(scan: LogScan, error: CorruptData) -> Finding:
    if scan.state.log_start == 0:
        actions = (Rebuild("ranges"),)
        return Finding("bad-range", error.path, error.expected, error.found, "error", REPAIR, "yes", actions)
    remedy = "The records are not kept: restore the ranges from a copy of the directory"
    return Finding("bad-range", error.path, error.expected, error.found, "error", remedy)


def _other_story(scan: LogScan) -> Finding:
    expected, found = "the rows that the records say", "others"
    if scan.state.log_start == 0:
        actions = (Rebuild("ranges"),)
        return Finding("bad-range", layout.RANGES, expected, found, "error", REPAIR, "yes", actions)
    remedy = "The records are not kept: restore the ranges from a copy of the directory"
    return Finding("bad-range", layout.RANGES, expected, found, "error", remedy)
