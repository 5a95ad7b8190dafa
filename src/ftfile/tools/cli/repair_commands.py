"""`repair`, `drop`, `delete` and `restore`: faults are mended, rows are removed or come back."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import ftfile
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.check_commands import command_for, print_findings
from ftfile.tools.cli.exit_codes import CONFLICT, FOUND
from ftfile.tools.cli.output import agree, heading, print_json, progress_bar, put, say, waiting
from ftfile.tools.cli.place import Code, DryRun, Json, Place, Threads, Yes
from ftfile.tools.cli.tables import Column, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.operate.repair import RepairReport
    from ftfile.operate.restore import RestoredFile, RestoreReport
    from ftfile.operate.rewriting import RewriteReport


GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A committed file that is lost for good, or a pattern such as 'month=7/*': readers go on without it. May "
        "be repeated.",
    ),
]
Quarantine = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="A foreign file to be put aside, or a pattern such as '*.tmp'. May be repeated."),
]
AcceptLostRecords = Annotated[
    bool,
    typer.Option("--accept-lost-records", help="Go on from the last version that can be read; stop queries before."),
]


def repair(
    place: Place,
    *,
    full: Annotated[bool, typer.Option("--full", help="Read every file, too.")] = False,
    give_up: GiveUp = None,
    quarantine: Quarantine = None,
    accept_lost_records: AcceptLostRecords = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Mend what `verify` finds. By itself it does what loses no row, and it deletes nothing. Also of a keyed store.

    It asks before it gives up rows or records. It ends with 1 where an error or a warning is left.
    """
    run = partial(
        ftfile.repair,
        place.path,
        full=full,
        give_up=tuple(give_up or ()),
        quarantine=tuple(quarantine or ()),
        accept_lost_records=accept_lost_records,
        **place.access,
    )
    with progress_bar("verify") as progress:
        report = run(dry_run=True, progress=progress)
    if not dry_run and report.steps:
        say(f"This takes {count_text(len(report.steps), 'step')}")
        for step in report.steps:
            say(f"  {step.action}")
        if give_up or accept_lost_records:
            agree("Rows or records are given up for good. Go on?", yes=yes)
        with progress_bar("repair") as progress:
            report = run(dry_run=False, progress=progress)
    if json:
        print_json(report, partial(command_for, path=place.path))
    else:
        _print_steps(report)
        print_findings(report.findings, place.path)
    if not report.ok:
        raise typer.Exit(FOUND)


def drop(
    place: Place,
    *,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help='Of partition columns, such as "month < 7" or "day < current_date() - interval 30 days"; '
            "or the word all.",
        ),
    ],
    directory_pattern: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN", help="As the option directoryPattern: a condition may then name directoryTime."
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove all rows of the partitions that match, in one version. It asks before.

    Older versions can be read until a vacuum.
    """
    run = partial(ftfile.drop, place.path, directory_pattern=directory_pattern, **place.access)
    _remove_rows(run, "drop", where, place, dry_run=dry_run, yes=yes, json=json)


def delete(
    place: Place,
    *,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="Of any columns, such as \"id = 70\" or \"name IN ('a', 'b') AND at < DATE '2024-07-01'\".",
        ),
    ],
    code: Code = None,
    threads: Threads = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove the rows that match, in one version: files that have some are written anew. It asks before.

    Rows of open files are finished first. Older versions can be read until a vacuum.
    """
    run = partial(ftfile.delete, place.path, code=code or (), threads=threads, **place.access)
    _remove_rows(run, "delete", where, place, dry_run=dry_run, yes=yes, json=json)


def _remove_rows(
    run: "Callable[..., RewriteReport]",
    operation: str,
    where: str,
    place: Place,
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Remove rows once somebody agrees to what is planned; print how many were removed, or would be."""
    with waiting("looking for rows"), place.requiring_log():
        report = run(where=where, dry_run=True)
    what = f"{_removed(report)} of {bytes_text(report.bytes_removed)}{_written_anew(report)}"
    if not dry_run:
        if report.files_removed:
            say(f"This removes {what}{'' if report.where in (None, where) else f', where {report.where}'}")
            agree("Remove them?", yes=yes)
        with progress_bar(operation) as progress:
            report = run(where=report.where or where, progress=progress)
        what = f"{_removed(report)}{_written_anew(report)}"
    if json:
        print_json(report)
    elif not report.files_removed:
        put("Nothing to remove")
    else:
        put(f"Would remove {what}" if dry_run else f"Removed {what}, in version {report.version}")


def _removed(report: "RewriteReport") -> str:
    return f"{count_text(report.rows_removed, 'row')} in {count_text(report.files_removed, 'file')}"


def _written_anew(report: "RewriteReport") -> str:
    if not report.files_written:
        return ""
    return f"; {count_text(report.rows, 'row')} of these files stay, in {count_text(report.files_written, 'new file')}"


def restore(
    place: Place,
    *,
    version: Annotated[int | None, typer.Option(metavar="N", help="The version to go back to.")] = None,
    timestamp: Annotated[str | None, typer.Option(metavar="TIME", help="Or a time: the newest version then.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Make the rows of an older version those of the newest one, in one record. It asks before.

    It is undone by another restore. Queries go on with their next batch.
    """
    run = partial(ftfile.restore, place.path, version, timestamp=timestamp, **place.access)
    _restore(run, place, dry_run=dry_run, yes=yes, json=json)


def undo(place: Place, *, dry_run: DryRun = False, yes: Yes = False, json: Json = False) -> None:
    """Take the last write back: make the rows before it those of the newest version, in one record. It asks before.

    Another undo takes this one back. Queries go on with their next batch.
    """
    _restore(partial(ftfile.undo, place.path, **place.access), place, dry_run=dry_run, yes=yes, json=json)


def _restore(run: "Callable[..., RestoreReport]", place: Place, *, dry_run: bool, yes: bool, json: bool) -> None:
    """Put rows back once somebody agrees to what is planned; print what changed, or would."""
    with waiting("comparing versions"), place.requiring_log():
        report = run(dry_run=True)
    what = f"{_of(report.restored)} come back, {_of(report.removed)} are removed"
    number, verb, done = report.restored_version, "restore", "Restored"
    if report.undone_version is not None:
        number, verb, done = report.undone_version, "undo", "Undid"
    if report.missing and not dry_run:
        say(f"Version {report.restored_version} cannot be restored: files are vacuumed, or gone. Nothing was changed")
    elif not dry_run:
        if report.restored or report.removed:
            say(f"To {verb} version {number}: {what}")
            agree("Do it?", yes=yes)
        with progress_bar(verb) as progress:
            report = run(dry_run=False, progress=progress)
    if json:
        print_json(report)
    elif not (report.restored or report.removed or report.missing):
        put(f"The newest version has the rows of version {report.restored_version}")
    elif dry_run:
        put(f"Would {verb} version {number}: {what}")
    elif not report.missing:
        put(f"{done} version {number} as version {report.version}: {what}")
    _report_missing(report, dry_run=dry_run, json=json)


def _report_missing(report: "RestoreReport", *, dry_run: bool, json: bool) -> None:
    """Print the files that cannot come back, if there are any, and end with a code that says so."""
    if not report.missing:
        return
    if not json:
        heading(f"Missing, so that it cannot be restored: {count_text(len(report.missing), 'file')}", "bold red")
        put("\n".join(report.missing))
    raise typer.Exit(FOUND if dry_run else CONFLICT)


def _of(files: "Sequence[RestoredFile]") -> str:
    """Return the number of rows of files, and of these."""
    return f"{count_text(sum(file.rows for file in files), 'row')} in {count_text(len(files), 'file')}"


def _print_steps(report: "RepairReport") -> None:
    if not report.steps:
        put("Nothing that can be mended by itself" if report.findings else "Nothing to mend")
        return
    put("Would do" if report.dry_run else "Done")
    columns = [
        Column("finding", lambda step: step.code),
        Column("step", lambda step: step.action, folds=True),
        Column("error", lambda step: step.error or None, folds=True, keep=8, style=lambda _: "red"),
    ]
    print_table(columns, report.steps)
