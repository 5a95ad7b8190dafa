"""The commands `flush`, `compact` and `repair`, whose changes by default lose no row."""

from typing import Annotated

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text, parse_size_bytes
from ftfile.tools.cli.change import Confirmed, MaintenanceCall, Planned, Report, print_result
from ftfile.tools.cli.check_commands import print_findings
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import Code, DirectoryOptions, Threads, Where
from ftfile.tools.cli.failures import FOUND
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import print_table, put, say
from ftfile.tools.report.views import TableColumn

CommitEvery = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Commit after this number of new files, so that an interruption loses no more than these."
    ),
]

GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A committed file that is permanently lost, or a pattern such as 'month=7/*': readers continue without "
        "it. May be repeated.",
    ),
]
Quarantine = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A foreign file to move to the quarantine, or a pattern such as '*.tmp'. May be repeated.",
    ),
]


@command("ftfile flush /data/out --dry-run", "ftfile flush /data/out --due-only")
def flush(
    place: DirectoryOptions,
    *,
    due_only: Annotated[
        bool, typer.Option("--due-only", help="Finish only files that are due: a rule has ended them.")
    ] = False,
    query_id: Annotated[
        str | None, typer.Option("--query", metavar="ID", help="Finish only files of this query.")
    ] = None,
    code: Code = None,
    commit_every: CommitEvery = None,
    threads: Threads = None,
    options: Planned,
    output: Output,
) -> None:
    """Finish open files, so that every reader sees their rows. No row is lost or changed."""
    change = MaintenanceCall(
        ftfile.flush,
        place,
        due_only=due_only,
        query_id=query_id,
        code=code,
        commit_every=commit_every,
        threads=threads,
    )
    try:
        plan = change.plan()
    except ConfigError:
        _check_query(place, query_id)
        raise
    if not plan.files:
        place.require_log()
        _check_query(place, query_id)
    report = change.complete(plan, f"finishes {_finished(plan)}" if plan.files else "", options)
    output.show(report, _print_flush)


def _check_query(place: DirectoryOptions, query_id: str | None) -> None:
    """Raise `ConfigError` if a query has not written to the directory."""
    if query_id is None:
        return
    query_ids = [status.query_id for status in place.open().status(lag=False).queries]
    if query_id not in query_ids:
        there = ", ".join(query_ids) or "none"
        raise ConfigError(f"--query {query_id!r}: this query has not written here. Queries that have: {there}")


def _print_flush(report: Report) -> None:
    if report.files:
        print_result(report, "finish", "Finished", _finished(report))
    else:
        put("Nothing to finish")


def _finished(report: Report) -> str:
    files = f"{count_text(report.files, 'file')} of {count_text(report.rows, 'row')}"
    if report.dry_run:
        return f"about {files}"
    return f"{files}; the newest version is {report.version}"


def _size_bytes(text: str) -> int:
    try:
        return parse_size_bytes(text)
    except ValueError:
        raise ConfigError(f"--target {text!r}: it must be a size such as 128MiB") from None


@command(
    "ftfile compact /data/out --dry-run",
    'ftfile compact /data/out --where "month = 7" --target 256MiB --commit-every 64',
    "ftfile compact /data/out --sort-by 'day, id'",
)
def compact(
    place: DirectoryOptions,
    *,
    where: Where = None,
    sort_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Sort rows by columns such as 'day, id', so that reads with conditions on the first one open few "
            "files.",
        ),
    ] = None,
    target_bytes: Annotated[
        str,
        typer.Option("--target", metavar="SIZE", callback=_size_bytes, help="The approximate size of new files."),
    ] = "128MiB",
    commit_every: CommitEvery = None,
    threads: Threads = None,
    options: Planned,
    output: Output,
) -> None:
    """Merge small files of the same directory into larger ones. No row is lost or changed.

    --where selects partitions. --sort-by also sorts the rows of files whose values overlap. Older versions keep the
    replaced files until a vacuum.
    """
    change = MaintenanceCall(
        ftfile.compact,
        place,
        where=where,
        sort_by=sort_by,
        target_bytes=target_bytes,
        commit_every=commit_every,
        threads=threads,
    )
    plan = change.plan()
    report = change.complete(plan, f"merges {_merged(plan)}" if plan.files_removed else "", options)
    output.show(report, _print_compact)


def _print_compact(report: Report) -> None:
    if report.files_removed:
        print_result(report, "merge", "Merged", _merged(report))
    else:
        put("Nothing to merge")
    if report.files_lost:
        files = count_text(report.files_lost, "file")
        say(f"{files} were skipped: another process replaced them during the call", "yellow")


def _merged(report: Report) -> str:
    files = f"{count_text(report.files_removed, 'file')} of {bytes_text(report.bytes_removed)}"
    if report.dry_run:
        return f"{files} with {count_text(report.rows, 'row')} into about {report.files_written:,}"
    written = f"{report.files_written:,} of {bytes_text(report.bytes_written)}"
    return f"{files} into {written}; the newest version is {report.version}"


@command(
    "ftfile repair /data/out --dry-run",
    "ftfile repair /data/out",
    "ftfile repair /data/out --give-up month=7/lost.parquet",
)
def repair(
    place: DirectoryOptions,
    *,
    full: Annotated[bool, typer.Option("--full", help="Also read every file.")] = False,
    give_up: GiveUp = None,
    quarantine: Quarantine = None,
    accept_lost_records: Annotated[
        bool,
        typer.Option("--accept-lost-records", help="Continue from the last readable version. Stop all queries first."),
    ] = False,
    options: Confirmed,
    output: Output,
) -> None:
    """Repair the damage that `verify` finds, also in a keyed store. By default no row is lost and no file is deleted.

    Before rows or records are lost, it asks for confirmation. The exit code is 1 if an error or a warning remains.
    """
    change = MaintenanceCall(
        ftfile.repair,
        place,
        requires_log=False,
        full=full,
        give_up=give_up,
        quarantine=quarantine,
        accept_lost_records=accept_lost_records,
    )
    report = plan = change.plan()
    if plan.steps:
        loses_data = bool(give_up) or accept_lost_records
        question = ""
        if loses_data:
            question = "Rows or records are lost permanently. Continue?"
        report = change.complete(plan, f"takes {_list_steps(plan)}", options, question)

    def print_text(report: Report) -> None:
        _print_steps(report)
        print_findings(report.findings, place.path)

    output.show(report, print_text, path=place.path)
    if not report.ok:
        raise typer.Exit(FOUND)


def _list_steps(report: Report) -> str:
    lines = [count_text(len(report.steps), "step")]
    for step in report.steps:
        lines.append(f"  {step.action}")
    return "\n".join(lines)


def _error_style(_: str) -> str:
    return "red"


def _print_steps(report: Report) -> None:
    if not report.steps:
        put("Nothing that can be repaired automatically" if report.findings else "Nothing to repair")
        return
    put("Would do" if report.dry_run else "Done")
    columns = [
        TableColumn("finding", "code"),
        TableColumn("step", "action", folds=True),
        TableColumn("error", "error", folds=True, keep=8, style=_error_style, hides_zero=True),
    ]
    print_table(columns, report.steps)
