"""The commands `verify`, `doctor`, `report` and `source`, which find faults and their remedies without any write."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import ftfile
from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import PATH, in_commands
from ftfile.core.units import ago, bytes_text, count_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import (
    DirectoryOptions,
    KeyProvider,
    Path,
    Storage,
    Threads,
    note_path,
    settings_of,
)
from ftfile.tools.cli.failures import FOUND
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import (
    heading,
    is_terminal,
    print_fields,
    print_table,
    progress_bar,
    put,
    say,
    waiting,
    write_bytes,
)
from ftfile.tools.report.views import BYTES, TableColumn, age_at, with_commands

if TYPE_CHECKING:
    from ftfile.operate.findings import CheckReport, Finding
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.read.foreign.status import SourceStatus
    from ftfile.tools.report.report import Report


_STYLES = {"ok": "green", "info": "dim", "warning": "yellow", "error": "bold red"}


@command("ftfile verify /data/out", "ftfile verify /data/out --full --threads 8", "ftfile verify /data/out --json")
def verify(
    place: DirectoryOptions,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Also read every file: compare its checksum and count its rows.")
    ] = False,
    threads: Threads = None,
    output: Output,
) -> None:
    """Compare a directory or a store with its log, in both directions, and print each difference with its remedy.

    Without --full it compares records, names and lengths. The exit code is 1 if there is an error or a warning.
    """
    with progress_bar("verify") as progress:
        report = ftfile.verify(place.path, full=full, threads=threads, progress=progress, **place.access)
    output.show(report, partial(_print_verified, path=place.path), path=place.path)
    if not report.ok:
        raise typer.Exit(FOUND)


def _print_verified(report: "VerifyReport", path: str) -> None:
    from ftfile.storage.registry import normalise

    is_files = report.kind == "files"
    count = report.segments
    if is_files:
        count = report.files
    content = "content not read: --full"
    if report.full:
        content = "content read"
    unrecorded = None
    if report.unrecorded_files:
        size = bytes_text(report.unrecorded_bytes)
        unrecorded = f"{report.unrecorded_files:,} of {size}: running tasks, or lost attempts"
    print_fields(
        [
            ("directory" if is_files else "store", normalise(path)),
            ("result", _result(report)),
            ("versions", _versions(report.oldest_version, report.version)),
            ("files" if is_files else "runs", f"{count:,} of {bytes_text(report.size_bytes)}, {content}"),
            ("open pieces", report.segments or None if is_files else None),
            ("rows", count_text(report.rows)),
            ("unrecorded", unrecorded),
            ("in quarantine", report.quarantined_files or None),
        ]
    )
    print_findings(report.findings, path)


def print_findings(findings: Iterable["Finding"], path: str) -> None:
    """Print each finding: the expected and the actual state, the remedy, and the command for it."""
    for finding in findings:
        heading(f"{finding.severity} {finding.code}: {finding.path or finding.title}", _STYLES[finding.severity])
        print_fields(
            [
                ("expected", finding.expected),
                ("found", in_commands(finding.actual, path)),
                ("remedy", in_commands(finding.remedy, path)),
                ("command", finding.command(path)),
            ]
        )


@command("ftfile doctor", "ftfile doctor s3://bucket/out --storage endpoint=http://localhost:9000")
def doctor(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="A directory to check as well; it is only read.", callback=note_path),
    ] = None,
    *,
    output: Output,
    key_provider: KeyProvider = None,
    storage: Storage = None,
) -> None:
    """Check Python, Java, Spark, drivers and the workers' interpreter; with a path, credentials, clock, permissions.

    It prints each problem with its remedy. The exit code is 1 if there is an error or a warning.
    """
    with waiting("doctor"):
        report = ftfile.doctor(path, key_provider=key_provider, storage=settings_of(storage))
    output.show(report, partial(_print_checks, path=path or PATH), path=path)
    if not report.ok:
        raise typer.Exit(FOUND)


def _print_checks(report: "CheckReport", path: str) -> None:
    columns = [
        TableColumn("check", "code"),
        TableColumn("state", "severity", style=_STYLES.__getitem__),
        TableColumn("found", "actual", with_commands(path), folds=True),
    ]
    if not is_terminal():
        remedy = TableColumn("remedy", "remedy", with_commands(path), folds=True, keep=0, hides_zero=True)
        print_table([*columns, remedy], report.findings)
        return
    print_table(columns, report.findings)
    for finding in report.findings:
        if finding.remedy:
            heading(f"{finding.code}: what to do", _STYLES[finding.severity])
            put(in_commands(finding.remedy, path))


@command("ftfile report /data/out", "ftfile report s3://bucket/out -o out.html --no-verify")
def report(
    place: DirectoryOptions,
    *,
    file: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file of the page; an existing file is replaced. - is stdout."
        ),
    ] = "report.html",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Also compare the storage with the log; this takes longest.")
    ] = True,
    output: Output,
) -> None:
    """Write one page with plots, tables and warnings of a directory or a store; it opens offline in any browser.

    It also prints the warnings, unless the page is written to stdout.
    """
    if file == "-" and output.json:
        raise ConfigError("--output=- and --json both print on stdout: use only one of them")
    with waiting("report"):
        page = ftfile.report(place.path, verify=verify, **place.access)
        if file != "-":
            page.save(file)
    if file == "-":
        # Names of files can contain bytes that are not UTF-8.
        write_bytes(page.html.encode(errors="backslashreplace"))
        return
    say(f"Wrote {file}: {bytes_text(os.path.getsize(file))}")
    output.show(page, partial(_print_warnings, path=place.path), path=place.path)


def _print_warnings(page: "Report", path: str) -> None:
    if not page.findings:
        put("Nothing needs attention")
    print_findings(page.findings, path)


@command(
    "ftfile source /data/in --checkpoint /data/checkpoint",
    "ftfile source s3://bucket/in -o stateLocation=s3://bucket/state",
)
def source(
    path: Path,
    *,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="PATH", help="The checkpointLocation of the stream.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the stream, such as stateLocation=/data/state. May be repeated.",
        ),
    ] = None,
    output: Output,
) -> None:
    """Show the read and unread data of streams of files, and which files are parked, refused or too late."""
    options: dict[str, object] = dict(settings_of(option, prefix="") or {})
    if checkpoint is not None:
        options["checkpointLocation"] = checkpoint
    output.show(ftfile.source_status(path, **options), _print_sources)


def _print_sources(sources: "Sequence[SourceStatus]") -> None:
    if not sources:
        put(
            "No stream of files has planned a batch for this path with this state: give the path that the stream "
            "loads, and its checkpoint. For a query that follows an ftfile directory, `ftfile status --source` shows "
            "the unread data."
        )
    now_ms = SystemClock().now_ms()
    for status in sources:
        _print_source(status, now_ms)


def _print_source(status: "SourceStatus", now_ms: int) -> None:
    behind = f"{count_text(status.files_behind, 'file')}, {bytes_text(status.bytes_behind)}"
    oldest = ""
    if status.oldest_unread_ms:
        oldest = f", the oldest changed {ago(status.oldest_unread_ms, now_ms)}"
    print_fields(
        [
            ("source", status.id),
            ("newest plan", f"{status.plan:,}" + (f", {ago(status.time_ms, now_ms)}" if status.time_ms else "")),
            ("known files", count_text(status.known)),
            ("to be read", f"{behind}{oldest}"),
            ("parked", count_text(len(status.parked))),
            ("refused", count_text(len(status.refused))),
            ("too late", count_text(status.late)),
        ]
    )
    if status.parked:
        heading("Parked: damaged files; the stream reads them again when they change")
        columns = [
            TableColumn("file", "path", folds=True),
            TableColumn("bytes", "size_bytes", BYTES, keep=4),
            TableColumn("changed", "modified_ms", age_at(now_ms), keep=5),
            TableColumn("why", "reason", folds=True),
        ]
        print_table(columns, status.parked)
    if status.refused:
        heading("Refused: files that cannot be opened; the stream tries them again at growing intervals")
        refused = [
            TableColumn("file", "path", folds=True),
            TableColumn("why", "reason", folds=True),
        ]
        print_table(refused, status.refused)
    if status.late_files:
        heading("Too late: these files are never read")
        late = [
            TableColumn("file", "path", folds=True),
            TableColumn("changed", "modified_ms", age_at(now_ms)),
        ]
        print_table(late, status.late_files)


def _versions(oldest: int, newest: int) -> str:
    if newest >= 0:
        return f"{oldest:,} to {newest:,}"
    return "no readable version"


def _result(report: "VerifyReport") -> str:
    if not report.complete:
        return "the log cannot be read to its end, so files were not compared with it"
    if not report.ok:
        return count_text(len(report.findings), "difference")
    if report.findings:
        return f"whole, with {count_text(len(report.findings), 'remark')}"
    return "whole"
