"""The commands `vacuum`, `expire`, `drop`, `delete`, `restore` and `undo`, whose changes a person confirms."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

import typer

import ftfile
from ftfile.core.units import bytes_text, count_text, time_text
from ftfile.tools.cli.change import Confirmed, MaintenanceCall, Report, print_result
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import Code, DirectoryOptions, Threads
from ftfile.tools.cli.failures import CONFLICT, FOUND
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import heading, print_table, put, say
from ftfile.tools.report.views import BYTES, COUNT, TIME, TableColumn, same_text

Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Accept a retention of less than 24 hours. Use this only if no other process reads or writes."
    ),
]

_REASONS = {
    "retention": "within the retention: a running batch may need it",
    "readers": "versions within the retention contain it",
    "version": "not older than the newest record or the kept versions: a later version must end it first",
}


@command("ftfile vacuum /data/out --dry-run", "ftfile vacuum /data/out --retention 36h --yes")
def vacuum(
    place: DirectoryOptions,
    *,
    retention: Annotated[str, typer.Option(metavar="DURATION", help="Versions of this time remain readable.")] = "7d",
    force: Force = False,
    options: Confirmed,
    output: Output,
) -> None:
    """Delete files of failed attempts, files replaced before the retention, and unneeded records; also in a store.

    The rows of the newest version are kept. Versions older than the retention become unreadable, so it asks for
    confirmation.
    """
    _delete_files(MaintenanceCall(ftfile.vacuum, place, retention=retention, force=force), options, output)


@command(
    "ftfile expire /data/out --keep-last 10 --dry-run",
    "ftfile expire /data/out --older-than 30d --keep-last 100 --yes",
)
def expire(
    place: DirectoryOptions,
    *,
    older_than: Annotated[str, typer.Option(metavar="DURATION", help="Versions younger than this are kept.")] = "7d",
    keep_last: Annotated[
        int, typer.Option(metavar="N", help="The newest N versions are kept, regardless of their age.")
    ] = 1,
    force: Force = False,
    options: Confirmed,
    output: Output,
) -> None:
    """End versions by age and number, and delete the files that only they need, also in a keyed store.

    A version is kept if it is younger than --older-than or among the newest --keep-last. The rows of the newest version
    are always kept. It asks for confirmation.
    """
    change = MaintenanceCall(ftfile.expire, place, older_than=older_than, keep_last=keep_last, force=force)
    _delete_files(change, options, output)


def _delete_files(change: MaintenanceCall, options: Confirmed, output: Output) -> None:
    plan = change.plan()
    announcement = ""
    if plan.files:
        announcement = f"deletes {_describe_deleted(plan)}"
    output.show(change.complete(plan, announcement, options, "Delete them?"), _print_vacuum)


def _describe_deleted(report: Report) -> str:
    if not report.files:
        return "nothing"
    files = f"{count_text(len(report.files), 'file')} of {bytes_text(report.size_bytes)}"
    return f"{files}. Versions before {time_text(report.horizon_ms)} UTC cannot be read without them"


@dataclass
class _KindOfFiles:
    kind: str
    why: str
    files: int = 0
    size_bytes: int = 0


def _by_kind(report: Report) -> list[_KindOfFiles]:
    """Return the files of a vacuum by kind and reason."""
    kinds: dict[tuple[str, str], _KindOfFiles] = {}
    for file in report.files:
        kind = kinds.setdefault((file.kind, file.why), _KindOfFiles(file.kind, file.why))
        kind.files += 1
        kind.size_bytes += file.size_bytes
    return sorted(kinds.values(), key=attrgetter("kind", "why"))


def _print_vacuum(report: Report) -> None:
    print_result(report, "delete", "Deleted", _describe_deleted(report))
    if report.files:
        heading("By kind")
        columns = [
            TableColumn("kind", "kind"),
            TableColumn("files", "files", COUNT),
            TableColumn("bytes", "size_bytes", BYTES),
            TableColumn("why", "why", folds=True),
        ]
        print_table(columns, _by_kind(report))
    if report.waiting:
        heading("Files that cannot be deleted yet")
        columns = [
            TableColumn("files", "files", COUNT),
            TableColumn("bytes", "size_bytes", BYTES),
            TableColumn("first from (UTC)", "first_ms", TIME),
            TableColumn("last from (UTC)", "last_ms", TIME),
            TableColumn("why", "reason", same_text(_REASONS.__getitem__), folds=True),
        ]
        print_table(columns, report.waiting)
    if report.failed:
        say(f"{count_text(report.failed, 'file')} could not be deleted; the next vacuum retries", "yellow")


@command(
    'ftfile drop /data/out --where "month < 7" --dry-run',
    "ftfile drop /data/out --where \"directoryTime < DATE '2024-07-01'\" --directory-pattern yyyy-MM-dd",
)
def drop(
    place: DirectoryOptions,
    *,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help='A condition on partition columns, such as "month < 7" or "day < current_date() - interval 30 days"; '
            "or the word all.",
        ),
    ],
    directory_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="The same as the option directoryPattern: a condition can then name directoryTime.",
        ),
    ] = None,
    options: Confirmed,
    output: Output,
) -> None:
    """Remove all rows of the partitions that match, in one version. It asks for confirmation.

    Older versions can be read until a vacuum.
    """
    _remove_rows(MaintenanceCall(ftfile.drop, place, where=where, directory_pattern=directory_pattern), options, output)


@command(
    'ftfile delete /data/out --where "id = 70" --dry-run',
    "ftfile delete /data/out --where \"name = 'x' AND month < 7\" --yes",
)
def delete(
    place: DirectoryOptions,
    *,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="A condition on any columns, such as \"id = 70\" or \"name IN ('a', 'b') AND at < DATE "
            "'2024-07-01'\".",
        ),
    ],
    code: Code = None,
    threads: Threads = None,
    options: Confirmed,
    output: Output,
) -> None:
    """Remove the rows that match, in one version. Files that contain such rows are rewritten. It asks for confirmation.

    Open files are finished first. Older versions can be read until a vacuum.
    """
    _remove_rows(MaintenanceCall(ftfile.delete, place, where=where, code=code, threads=threads), options, output)


def _remove_rows(change: MaintenanceCall, options: Confirmed, output: Output) -> None:
    plan = change.plan()
    announcement = ""
    if plan.files_removed:
        announcement = f"removes {_describe_removed(plan)}"
    output.show(change.complete(plan, announcement, options, "Remove them?"), _print_removed)


def _print_removed(report: Report) -> None:
    if report.files_removed:
        print_result(report, "remove", "Removed", _describe_removed(report))
    else:
        put("Nothing to remove")


def _describe_removed(report: Report) -> str:
    removed = f"{count_text(report.rows_removed, 'row')} in {count_text(report.files_removed, 'file')}"
    if report.dry_run:
        removed += f" of {bytes_text(report.bytes_removed)}"
    if report.files_written:
        files, rows = count_text(report.files_written, "new file"), count_text(report.rows, "row")
        removed += f"; {rows} of these files are kept, in {files}"
    if report.dry_run:
        return removed
    return f"{removed}, in version {report.version}"


@command(
    "ftfile restore /data/out --version 12 --dry-run",
    "ftfile restore /data/out --timestamp 2024-07-01T12:00:00Z --yes",
)
def restore(
    place: DirectoryOptions,
    *,
    version: Annotated[int | None, typer.Option(metavar="N", help="The version to restore.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="A time, instead of a version: the version that was newest at this time."),
    ] = None,
    options: Confirmed,
    output: Output,
) -> None:
    """Make the rows of an older version the rows of the newest one, in one record. It asks for confirmation.

    Another restore undoes it. Queries continue with their next batch.
    """
    change = MaintenanceCall(ftfile.restore, place, version=version, timestamp=timestamp)
    _restore_rows(change, options, output, ("restores", "restore", "Restored"))


@command("ftfile undo /data/out --dry-run", "ftfile undo /data/out --yes")
def undo(place: DirectoryOptions, *, options: Confirmed, output: Output) -> None:
    """Undo the last write: restore the rows before it as the newest version, in one record. It asks for confirmation.

    Another undo reverts this one. Queries continue with their next batch.
    """
    _restore_rows(MaintenanceCall(ftfile.undo, place), options, output, ("undoes", "undo", "Undid"))


def _restore_rows(change: MaintenanceCall, options: Confirmed, output: Output, verbs: tuple[str, str, str]) -> None:
    """Restore a version; if files of it are missing, change nothing and exit with a code.

    Args:
        change: a call of `ftfile.restore` or `ftfile.undo`.
        options: of the command.
        output: of the command.
        verbs: as in "This restores", "Would restore" and "Restored".
    """
    report = change.plan()
    now, later, past = verbs
    if not report.missing:
        announcement = ""
        if _has_restored(report):
            announcement = f"{now} {_describe_restored(report)}"
        report = change.complete(report, announcement, options, "Do it?")

    def print_text(report: Report) -> None:
        if report.missing:
            _print_missing(report)
        elif _has_restored(report):
            print_result(report, later, past, _describe_restored(report))
        else:
            put(f"The newest version has the rows of version {report.restored_version}")

    output.show(report, print_text)
    if report.missing:
        raise typer.Exit(FOUND if options.dry_run else CONFLICT)


def _has_restored(report: Report) -> bool:
    return bool(report.restored or report.removed)


def _describe_restored(report: Report) -> str:
    number = report.undone_version
    if report.undone_version is None:
        number = report.restored_version
    if report.dry_run:
        version = ""
    else:
        version = f" as version {report.version}"
    return (
        f"version {number}{version}: {_rows_of(report.restored)} are restored, {_rows_of(report.removed)} are removed"
    )


def _rows_of(files: Sequence[Any]) -> str:
    """Return a text with the number of rows in files, and the number of files."""
    return f"{count_text(sum(file.rows for file in files), 'row')} in {count_text(len(files), 'file')}"


def _print_missing(report: Report) -> None:
    say(
        f"Version {report.restored_version} cannot be restored: vacuum or another program deleted files of it. "
        "Nothing was changed"
    )
    missing = count_text(len(report.missing), "file")
    heading(f"Missing files, so the version cannot be restored: {missing}", "bold red")
    put("\n".join(report.missing))
