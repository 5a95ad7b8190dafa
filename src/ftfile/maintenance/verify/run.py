"""Verify a directory: its log, what is derived of that, its files and, if asked for, their content."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.arrays.spark_types import arrow_schema
from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.log import CommitLog
from ftfile.commit.places import has_content, open_add
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, NotFound
from ftfile.kv.files.opening import OpenFiles
from ftfile.kv.planning.runs import is_run
from ftfile.kv.reading.verify import check_bytes
from ftfile.maintenance.verify.files import Files, compare_files, list_files, tell_of_others, tell_of_stage
from ftfile.maintenance.verify.findings import Action, Finding, VerifyReport, find, lost
from ftfile.maintenance.verify.history import WHOLE, read_history
from ftfile.maintenance.verify.log_scan import scan_log
from ftfile.parts.reader import read_add

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    import pyarrow as pa

    from ftfile.commit.format.model import Add
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import FileSystem
    from ftfile.maintenance.verify.log_scan import LogScan

__all__ = ("verify",)

# A vacuum may run at any look.
TRIES = 5


def verify(fs: FileSystem, *, full: bool = False) -> VerifyReport:
    """Return the differences between storage and the log; see `OpenedDirectory.verify`."""
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
    if scan.broken is not None:
        return _report(scan, scan.findings, 0, None, full=full)
    files = list_files(fs)
    history = read_history(scan, files.visible, files.staged)
    findings = [*scan.findings, *history.findings]
    reader = scan.reader()
    try:
        snapshot = snapshot_at(reader, scan.state)
    except CorruptData as error:
        findings.append(_wrong_ranges(scan, error.path, error.expected, error.found))
        return _report(scan, findings, history.records, None, full=full)
    compare_files(files, snapshot.adds.values(), lambda add: reader.read_on().is_live(add, scan.state.version))
    if history.live_sum is not None and history.live_sum != files.live_sum & WHOLE:
        findings.append(_wrong_ranges(scan, layout.RANGES, "the rows that the records say", "others"))
    _forget_newer(reader, scan, files)
    tell_of_stage(files, history)
    tell_of_others(files, history, scan.published)
    findings += files.findings
    if full:
        findings += _compare_content(fs, snapshot, {finding.path for finding in files.findings})
    return _report(scan, findings, history.records, files, full=full)


def _report(scan: LogScan, findings: list[Finding], records: int, files: Files | None, *, full: bool) -> VerifyReport:
    found = files if files is not None else Files(scan.log.fs)
    return VerifyReport(
        version=scan.state.version,
        oldest_version=scan.state.log_start,
        records=records,
        files=found.parts,
        segments=found.segments,
        rows=found.rows,
        size_bytes=found.size_bytes,
        unrecorded_files=len(found.staged),
        unrecorded_bytes=sum(found.staged.values()),
        quarantined_files=sum(
            info.path.endswith(".quarantined") for info in list_or_empty(scan.log.fs, layout.QUARANTINE)
        ),
        full=full,
        complete=files is not None,
        findings=tuple(sorted(findings, key=lambda finding: finding.order)),
    )


def _forget_newer(reader: CommitLog, scan: LogScan, files: Files) -> None:
    """Pass over the files of records that came meanwhile."""
    for version in range(scan.state.version + 1, reader.read_on().version + 1):
        record = reader.read_record(version)
        for add in record.adds if record is not None else ():
            files.visible.pop(add.final_path or "", None)
            files.staged.pop(add.path, None)


def _wrong_ranges(scan: LogScan, path: str, expected: str, found: str) -> Finding:
    """Return the finding of ranges with which the newest version cannot be read, or is read wrongly."""
    finding = find("bad-range", path, expected, found, Action("rebuild-ranges"))
    if scan.state.log_start == 0:
        return replace(finding, severity="error")
    return finding.without_repair("The records are not kept: restore the ranges from a copy of the directory")


def _compare_content(fs: FileSystem, snapshot: Snapshot, known: Container[str]) -> Iterator[Finding]:
    """Read every live add but the `known` lost ones, and yield those that are not what was recorded."""
    schema = None if snapshot.schema is None else arrow_schema(snapshot.definitions[snapshot.schema])
    for add in snapshot.adds.values():
        if (add.final_path or add.path) in known:
            continue
        fault = _fault(fs, add, snapshot.definitions.get(add.encoding), schema)
        if fault is not None:
            path, found = fault
            expected = f"{add.rows} rows in {add.length} bytes with {add.checksum}"
            yield lost(add, f"damaged-{add.kind}", expected, found, path if add.kind == "part" else "")


def _fault(
    fs: FileSystem, add: Add, encoding: dict[str, Any] | None, schema: pa.Schema | None
) -> tuple[str, str] | None:
    """Return where an add lies and how its content differs, or None."""
    try:
        path = open_add(add, fs.stat).path
        if add.kind == "part" and not has_content(fs, path, add):
            return (path, "other bytes") if fs.exists(path) else None
        if is_run(add):
            check_bytes(add, OpenFiles(fs))
        elif schema is not None and isinstance(encoding, dict):
            for _ in read_add(fs, add, encoding, schema):
                pass
    except ConfigError:
        raise
    except CorruptData as error:
        return error.path, error.found
    except NotFound:
        return None  # it moves at this moment
    except FtfileError as error:
        return add.path, str(error)
    return None
