"""The commands `verify`, `status`, `doctor` and `report`, which find faults and their remedies without any write."""

import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import PATH, Advice, in_commands
from ftfile.core.units import ago, bytes_text, count_text, time_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import (
    DirectoryOptions,
    KeyProvider,
    Storage,
    Threads,
    note_path,
    settings_of,
)
from ftfile.tools.cli.failures import DAMAGED, FOUND
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import (
    heading,
    is_terminal,
    print_fields,
    print_table,
    print_view,
    progress_bar,
    put,
    say,
    waiting,
    write_bytes,
)
from ftfile.tools.report.views import (
    TableColumn,
    view_of_open,
    view_of_queries,
    view_of_requests,
    view_of_sources,
    view_of_unpublished,
    with_commands,
)

if TYPE_CHECKING:
    from ftfile.operate.findings import CheckReport, Finding
    from ftfile.operate.status import DirectoryStatus
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.tools.report.report import Report


_STYLES = {"ok": "green", "info": "dim", "warning": "yellow", "error": "bold red"}


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


@command(
    "ftfile status /data/out",
    "ftfile status /data/out --source /data/in  # a directory that its query follows",
    "ftfile status s3://bucket/out --request-prices 0.005 0.0004",
    "ftfile status /data/out --json | jq '.open[] | select(.reason != \"\")'",
)
def status(
    place: DirectoryOptions,
    *,
    staged: Annotated[
        bool, typer.Option("--staged", help="Also count orphans: staged files that no record names. This takes longer.")
    ] = False,
    lag: Annotated[
        bool,
        typer.Option("--lag/--no-lag", help="Read checkpoints, and count the unread data of sources; for at most 5 s."),
    ] = True,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="The checkpoint of a query, if it is not recorded or has another path on this machine. May be "
            "repeated.",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="An ftfile directory that a query follows, if no checkpoint names it. May be repeated."
        ),
    ] = None,
    request_prices: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="PUT GET",
            help="Also show the requests of recent batches on an object store, and their cost by these prices of 1,000 "
            "PUT and GET requests, such as 0.005 0.0004.",
        ),
    ] = None,
    output: Output,
) -> None:
    """Show the status of a directory or a store: a one-line verdict, then the details behind it.

    The details are queries and their lag, and open and unpublished files with the reasons.

    The exit code is 4 if the whole log is lost.
    """
    status = ftfile.status(
        place.path,
        staged=staged,
        lag=lag,
        checkpoints=checkpoint or (),
        sources=source or (),
        request_prices=request_prices,
        **place.access,
    )
    output.show(status, partial(_print_status, path=place.path), path=place.path)
    if status.version < 0 and any(finding.severity == "error" for finding in status.findings):
        raise typer.Exit(DAMAGED)


def _print_status(status: "DirectoryStatus", path: str) -> None:
    _print_summary(status, path)
    print_findings(status.findings, path)
    if status.queries:
        _print_queries(status)
    if status.open:
        print_view(view_of_open(status.open, status.made_ms, path))
    if status.unpublished:
        print_view(view_of_unpublished(status.unpublished, path))
    if status.requests is not None:
        print_view(view_of_requests(status.requests))


def _print_queries(status: "DirectoryStatus") -> None:
    queries, now_ms = status.queries, status.made_ms
    print_view(view_of_queries(queries, now_ms))
    sources = view_of_sources(queries, now_ms, names_query=len(queries) > 1 or not is_terminal())
    if sources.items:
        print_view(sources)
        printed = set()
        for source in sources.items:
            kind, reason = source.lag.kind, source.lag.unknown
            if reason and (kind, reason) not in printed:
                printed.add((kind, reason))
                put(in_commands(Advice(f"{kind}: ", reason)))


def _print_summary(status: "DirectoryStatus", path: str) -> None:
    fields: list[tuple[str, object]] = [
        ("verdict", in_commands(status.verdict, path)),
        ("store" if status.kind == "store" else "directory", status.path),
    ]
    if status.time_ms is None:
        none = "none: nothing has been committed yet"
        if status.findings:
            none = "no readable version"
        print_fields([*fields, ("version", none)])
        return
    age = ago(status.time_ms, status.made_ms)
    oldest = f"{status.oldest_readable:,}"
    if status.oldest_version != status.oldest_readable:
        oldest += f" can be read; the log has records from {status.oldest_version:,} on"
    problems = sum(bool(file.problem) for file in status.unpublished)
    print_fields(
        [
            *fields,
            ("version", f"{status.version:,}, committed {age}: {time_text(status.time_ms)} UTC"),
            ("oldest version", oldest),
            ("vacuumed up to", f"{time_text(status.horizon_ms)} UTC" if status.horizon_ms else "never"),
            ("compactions due", f"{status.due:,}{_part(status.held, 'left out')}" if status.kind == "store" else None),
            ("open files", f"{len(status.open):,}{_part(status.due, 'due')}" if status.kind == "files" else None),
            ("not published", f"{len(status.unpublished):,}{_part(problems, 'stuck')}"),
            ("not needed", _unneeded(status)),
            ("in quarantine", status.quarantined or None),
        ]
    )


def _part(count: int, state: str) -> str:
    if count:
        return f", {count:,} of them {state}"
    return ""


def _unneeded(status: "DirectoryStatus") -> str | None:
    if status.unneeded_files is None:
        return None
    staged = f"{count_text(status.unneeded_files, 'staged file')} of {bytes_text(status.unneeded_bytes or 0)}"
    return f"{staged}: of running tasks, of lost attempts, or no longer needed"


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
    request_prices: Annotated[
        tuple[float, float],
        typer.Option(
            metavar="PUT GET",
            help="Prices of 1,000 PUT and GET requests, for the cost of batches on an object store.",
        ),
    ] = (0.005, 0.0004),
    output: Output,
) -> None:
    """Write one page with plots, tables and warnings of a directory or a store; it opens offline in any browser.

    It also prints the warnings, unless the page is written to stdout.
    """
    if file == "-" and output.json:
        raise ConfigError("--output=- and --json both print on stdout: use only one of them")
    with waiting("report"):
        page = ftfile.report(place.path, verify=verify, request_prices=request_prices, **place.access)
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
