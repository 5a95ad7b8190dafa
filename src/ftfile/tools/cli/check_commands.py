"""The commands `verify` and `doctor`, which check directories and machines, and write nothing."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import ftfile
from ftfile.core.remedies import PATH, in_commands
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import DirectoryOptions, KeyProvider, Storage, Threads, note_path, settings_of
from ftfile.tools.cli.failures import FOUND
from ftfile.tools.cli.findings import SEVERITY_STYLES, print_findings
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import (
    heading,
    is_terminal,
    print_fields,
    print_table,
    progress_bar,
    put,
    waiting,
)
from ftfile.tools.report.views import (
    TableColumn,
    with_commands,
)

if TYPE_CHECKING:
    from ftfile.operate.findings import CheckReport
    from ftfile.operate.verify.verify_directory import VerifyReport


@command("ftfile verify /data/out", "ftfile verify /data/out --full --threads 8", "ftfile verify /data/out --json")
def verify(
    place: DirectoryOptions,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Also read every file: compare its checksum, rows and statistics.")
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
            ("open segments", report.segments or None if is_files else None),
            ("rows", count_text(report.rows)),
            ("unrecorded", unrecorded),
            ("in quarantine", report.quarantined_files or None),
        ]
    )
    print_findings(report.findings, path)


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
        TableColumn("state", "severity", style=SEVERITY_STYLES.__getitem__),
        TableColumn("found", "actual", with_commands(path), folds=True),
    ]
    if not is_terminal():
        remedy = TableColumn("remedy", "remedy", with_commands(path), folds=True, keep=0, hides_zero=True)
        print_table([*columns, remedy], report.findings)
        return
    print_table(columns, report.findings)
    for finding in report.findings:
        if finding.remedy:
            heading(f"{finding.code}: what to do", SEVERITY_STYLES[finding.severity])
            put(in_commands(finding.remedy, path))


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
