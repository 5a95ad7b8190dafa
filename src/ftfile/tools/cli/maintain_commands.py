"""The commands `flush`, `compact`, `export`, `repair` and `migrate`, which by default lose no row."""

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text, parse_size_bytes
from ftfile.tools.cli.change import Confirmed, MaintenanceCall, Planned, Report, print_result
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import (
    AtLeastVersion,
    Code,
    DirectoryOptions,
    Path,
    Storage,
    Threads,
    Where,
    settings_of,
)
from ftfile.tools.cli.failures import FOUND
from ftfile.tools.cli.findings import print_findings
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import print_fields, print_table, progress_bar, put, say
from ftfile.tools.report.views import BYTES, TableColumn, same_text, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.operate.export.export import ExportReport
    from ftfile.tools.migrate.migrate import MigrateReport
    from ftfile.tools.migrate.undo import UndoReport


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
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="PROGRAM",
        help="The program that wrote the files: spark (its file sink), flink, kafka-connect, apex, delta; or files for "
        "any other.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="The format of the files; the default is derived from their names."
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help='The columns, such as "id long, at timestamp", or the JSON of Spark; required for json and csv.',
    ),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TYPE", help="A partition column in the paths, outermost first, such as day=date. May be repeated."
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="An option of the format, such as header=true. May be repeated."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The checkpoint of the stopped query, which then continues with ftfile."),
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
    report = change.complete(plan, f"finishes {_describe_finished(plan)}" if plan.files else "", options)
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
        print_result(report, "finish", "Finished", _describe_finished(report))
    else:
        put("Nothing to finish")


def _describe_finished(report: Report) -> str:
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
    report = change.complete(plan, f"merges {_describe_merged(plan)}" if plan.files_removed else "", options)
    output.show(report, _print_compact)


def _print_compact(report: Report) -> None:
    if report.files_removed:
        print_result(report, "merge", "Merged", _describe_merged(report))
    else:
        put("Nothing to merge")
    if report.files_lost:
        files = count_text(report.files_lost, "file")
        say(f"{files} were skipped: another process replaced them during the call", "yellow")


def _describe_merged(report: Report) -> str:
    files = f"{count_text(report.files_removed, 'file')} of {bytes_text(report.bytes_removed)}"
    if report.dry_run:
        return f"{files} with {count_text(report.rows, 'row')} into about {report.files_written:,}"
    written = f"{report.files_written:,} of {bytes_text(report.bytes_written)}"
    return f"{files} into {written}; the newest version is {report.version}"


@command("ftfile export /data/out --to delta", "ftfile export /data/out --to iceberg")
def export(
    path: Path,
    *,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="The table format: delta or iceberg.")] = "delta",
    options: Planned,
    output: Output,
    storage: Storage = None,
    at_least_version: AtLeastVersion = None,
) -> None:
    """Write the metadata of another table format next to the files, so that its readers see the newest version.

    Files must be Parquet without encryption. It changes no file, and starts where the last export ended.
    """
    settings = settings_of(storage)
    with progress_bar("export") as progress:
        report = ftfile.export(
            path,
            to,
            dry_run=options.dry_run,
            progress=progress,
            storage=settings,
            at_least_version=at_least_version,
        )
    if not report.versions:
        DirectoryOptions(path, storage=storage).require_log()
    output.show(report, partial(_print_export, verb="Would export" if options.dry_run else "Exported"))


def _print_export(report: "ExportReport", verb: str) -> None:
    print_fields(
        [
            ("result", f"{verb} {count_text(report.versions, 'version')}"),
            ("readers see", "nothing yet" if report.version is None else f"version {report.version:,}"),
            ("rows in open files", count_text(report.open_rows) if report.open_rows else None),
            ("versions waiting", f"{report.waiting:,}, until files are published" if report.waiting else None),
        ]
    )


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


@command(
    "ftfile migrate /data/out --dry-run",
    "ftfile migrate /data/out --checkpoint /data/checkpoint --partition-by day=date",
    'ftfile migrate /data/in --from files --schema "id long, at timestamp" -o header=true',
    "ftfile migrate /data/out --undo",
)
def migrate(
    path: Path,
    *,
    from_: From = "auto",
    file_format: Format = None,
    schema: Schema = None,
    partition_by: PartitionBy = None,
    option: FormatOption = None,
    checkpoint: Checkpoint = None,
    leave_unfinished: Annotated[
        bool, typer.Option("--leave-unfinished", help="Omit files that the program has not finished.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo a migration; possible until the first new commit.")
    ] = False,
    options: Confirmed,
    output: Output,
    threads: Threads = None,
    storage: Storage = None,
) -> None:
    """Make the files of another program an ftfile directory, with one record. No file is copied or changed.

    Stop the program first. Each file is read once; then the command asks for confirmation.
    """
    settings: Any = {"storage": settings_of(storage)}
    if undo:
        _undo_migration(path, settings, options, output)
        return
    with contextlib.ExitStack() as bar:
        report = ftfile.migrate(
            path,
            from_=from_,  # type: ignore[arg-type] # the function checks it
            file_format=file_format,
            schema=schema,
            partition_by=settings_of(partition_by),
            options=settings_of(option),
            checkpoint=checkpoint,
            leave_unfinished=leave_unfinished,
            dry_run=options.dry_run,
            confirm=partial(_confirm_migration, end_bar=bar.close, options=options),
            threads=threads,
            progress=bar.enter_context(progress_bar("migrate")),
            **settings,
        )
    output.show(report, _print_migration)


def _confirm_migration(report: "MigrateReport", *, end_bar: "Callable[[], object]", options: Confirmed) -> bool:
    end_bar()  # the bar would be drawn over the question
    say(_migration_summary(report, "This records"))
    in_files, in_paths = _columns_of_migration(report)
    say(f"Columns: {in_files}{in_paths and f'; in the paths: {in_paths}'}")
    if moved := sum(file.moved for file in report.left_out):
        say(f"{count_text(moved, 'file')} without committed rows are moved to a place that readers ignore")
    options.ask("Finish the migration?" if report.already_migrated else "Migrate?")
    return True


def _migration_summary(report: "MigrateReport", begins: str) -> str:
    files = f"{count_text(report.files, 'file')} of {report.file_format} with {count_text(report.rows, 'row')}"
    if report.source == "files":
        written = ""
    else:
        written = f", written by {report.source}"
    summary = f"{files}, {bytes_text(report.size_bytes)}{written}"
    if report.already_migrated:
        return f"Already migrated, as version {report.version}: {summary}. Nothing is recorded again"
    return f"{begins} {summary}"


def _columns_of_migration(report: "MigrateReport") -> tuple[str, str]:
    """Return the columns in files, and the columns in paths, each with its type."""
    from ftfile.rows.spark_types import quoted_name, sql_types

    types = sql_types(report.schema)
    texts = {}
    for name, sql_type in types.items():
        sql_name = quoted_name(name)
        if name.isidentifier():
            sql_name = name
        texts[name] = f"{sql_name}: {sql_type}"
    in_paths = [texts.pop(name) for name in report.partition_by]
    return ", ".join(texts.values()), ", ".join(in_paths)


def _print_migration(report: "MigrateReport") -> None:
    would = _migration_summary(report, "Would record")
    is_unchanged = report.dry_run or report.already_migrated
    put(would if is_unchanged else f"{_migration_summary(report, 'Recorded')}, as version {report.version}")
    if report.query_id is None:
        query = None
    else:
        query = f"{report.query_id}, after batch {report.last_batch}"
    in_files, in_paths = _columns_of_migration(report)
    fields = [("columns", in_files), ("columns in the paths", in_paths), ("log moved", report.moved_log)]
    print_fields([*fields, ("query continues", query)])
    if report.left_out:
        columns = [
            TableColumn("left out", "path", folds=True),
            TableColumn("bytes", "size_bytes", BYTES),
            TableColumn("moved", "moved", same_text(yes_or_no), hides_zero=True),
            TableColumn("why", "why", folds=True),
        ]
        print_table(columns, report.left_out)


def _undo_migration(path: str, settings: Any, options: Confirmed, output: Output) -> None:  # noqa: ANN401
    report = ftfile.undo_migration(path, dry_run=True, **settings)
    if not options.dry_run:
        options.ask("Undo the migration, and delete the log?")
        report = ftfile.undo_migration(path, **settings)

    def print_text(report: "UndoReport") -> None:
        if options.dry_run:
            put("The migration can be undone")
        else:
            put(f"Undone; {count_text(len(report.put_back), 'file')} moved back")

    output.show(report, print_text)
