"""`flush`, `compact`, `vacuum`, `expire` and `export`: the upkeep of a directory."""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text, parse_size_bytes, time_text
from ftfile.tools.cli.output import agree, heading, print_fields, print_json, progress_bar, put, say, waiting
from ftfile.tools.cli.place import (
    AtLeastVersion,
    Code,
    DryRun,
    Json,
    Path,
    Place,
    Storage,
    Threads,
    Where,
    Yes,
    settings_of,
)
from ftfile.tools.cli.tables import BYTES, COUNT, TIME, Column, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.vacuum import VacuumReport


CommitEvery = Annotated[
    int | None, typer.Option(metavar="N", help="Record after this number of new files: an interruption loses no more.")
]
Force = Annotated[bool, typer.Option("--force", help="Accept less than 24 hours, where nothing else writes or reads.")]


def flush(
    place: Place,
    *,
    due_only: Annotated[bool, typer.Option("--due-only", help="Finish only files whose rule has fired.")] = False,
    query: Annotated[str | None, typer.Option(metavar="ID", help="Finish only files of this query.")] = None,
    code: Code = None,
    commit_every: CommitEvery = None,
    threads: Threads = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Finish the files that are open over batches, so that every reader sees their rows. No row is lost or changed."""
    run = partial(ftfile.flush, place.path, due_only=due_only, query_id=query, code=code or (), **place.access)
    report = run(dry_run=True)
    if not report.files:
        place.require_log()
        if query is not None:
            query_ids = [status.query_id for status in place.open().status(lag=False).queries]
            if query not in query_ids:
                there = ", ".join(query_ids) or "none"
                raise ConfigError(f"--query {query!r}: no such query wrote here; those that did: {there}")
    if not dry_run:
        if report.files:
            say(f"Finishing about {count_text(report.files, 'file')} of {count_text(report.rows, 'row')}")
        with progress_bar("flush") as progress:
            report = run(commit_every=commit_every, threads=threads, progress=progress)
    if json:
        print_json(report)
    elif not report.files:
        put("Nothing to finish")
    elif dry_run:
        put(f"Would finish about {count_text(report.files, 'file')} of {count_text(report.rows, 'row')}")
    else:
        files = f"Finished {count_text(report.files, 'file')} of {count_text(report.rows, 'row')}"
        put(f"{files}; the newest version is {report.version}")


def compact(
    place: Place,
    *,
    where: Where = None,
    target: Annotated[str, typer.Option(metavar="SIZE", help="The size of new files, about.")] = "128MiB",
    commit_every: CommitEvery = None,
    threads: Threads = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Merge small files of the same directory into larger ones. No row is lost or changed.

    --where chooses partitions. Readers of older versions read the replaced files until a vacuum.
    """
    try:
        target_bytes = parse_size_bytes(target)
    except ValueError:
        raise ConfigError(f"--target {target!r}: it takes a size such as 128MiB") from None
    run = partial(ftfile.compact, place.path, where, target_bytes=target_bytes, **place.access)
    report = run(dry_run=True)
    if not report.files_removed:
        place.require_log()
    merge = f"{count_text(report.files_removed, 'file')} of {bytes_text(report.bytes_removed)}"
    if not dry_run:
        if report.files_removed:
            say(f"Merging {merge} with {count_text(report.rows, 'row')} into about {report.files_written:,}")
        with progress_bar("compact") as progress:
            report = run(commit_every=commit_every, threads=threads, progress=progress)
        merge = f"{count_text(report.files_removed, 'file')} of {bytes_text(report.bytes_removed)}"
    if json:
        print_json(report)
    elif not report.files_removed:
        put("Nothing to merge")
    elif dry_run:
        put(f"Would merge {merge} with {count_text(report.rows, 'row')} into about {report.files_written:,}")
    else:
        outputs = f"{report.files_written:,} of {bytes_text(report.bytes_written)}"
        put(f"Merged {merge} into {outputs}; the newest version is {report.version}")
    if report.files_lost:
        say(f"{count_text(report.files_lost, 'file')} were left out: others replaced them meanwhile", "yellow")


def vacuum(
    place: Place,
    *,
    retention: Annotated[str, typer.Option(metavar="DURATION", help="Versions of this time stay readable.")] = "7d",
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete files of failed attempts, files replaced long ago, and records no longer needed. Also of a keyed store.

    The rows of the newest version stay; versions older than the retention can no longer be read, so it asks before.
    """
    run = partial(ftfile.vacuum, place.path, retention=retention, force=force, **place.access)
    _delete(run, dry_run=dry_run, yes=yes, json=json)


def expire(
    place: Place,
    *,
    older_than: Annotated[str, typer.Option(metavar="DURATION", help="Versions younger than this stay.")] = "7d",
    keep_last: Annotated[int, typer.Option(metavar="N", help="The newest N stay, however old.")] = 1,
    force: Force = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """End versions by age and by number, and delete what only they need. Also of a keyed store.

    A version stays while it is younger than --older-than, or among the newest --keep-last. The rows of the newest
    version always stay. It asks before.
    """
    run = partial(
        ftfile.expire,
        place.path,
        older_than=older_than,
        keep_last=keep_last,
        force=force,
        **place.access,
    )
    _delete(run, dry_run=dry_run, yes=yes, json=json)


def export(
    path: Path,
    *,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="delta or iceberg.")] = "delta",
    dry_run: DryRun = False,
    json: Json = False,
    storage: Storage = None,
    at_least_version: AtLeastVersion = None,
) -> None:
    """Write the metadata of another table format beside the files, so that its readers see the newest version.

    Files must be Parquet without encryption. It changes no file, and begins where the last export ended.
    """
    settings = settings_of(storage)
    with progress_bar("export") as progress:
        report = ftfile.export(
            path,
            to,
            dry_run=dry_run,
            progress=progress,
            storage=settings,
            at_least_version=at_least_version,
        )
    if not report.versions:
        Place(path, storage=storage).require_log()
    if json:
        print_json(report)
        return
    verb = "Would export" if dry_run else "Exported"
    print_fields(
        [
            ("result", f"{verb} {count_text(report.versions, 'version')}"),
            ("readers see", "nothing yet" if report.version is None else f"version {report.version:,}"),
            ("rows in open files", count_text(report.open_rows) if report.open_rows else None),
            ("versions waiting", f"{report.waiting:,}, for files to be published" if report.waiting else None),
        ]
    )


def _delete(run: "Callable[..., VacuumReport]", *, dry_run: bool, yes: bool, json: bool) -> None:
    """Delete once somebody agrees to what is planned; print what was deleted, or would be."""
    with waiting("looking for files that nothing needs"):
        report = run(dry_run=True)
    if not dry_run:
        if report.files:
            say(f"This deletes {_files(report)}")
            agree("Delete them?", yes=yes)
        with progress_bar("looking again") as progress:
            report = run(dry_run=False, progress=progress)
    if json:
        print_json(report)
        return
    put(f"{'Would delete' if dry_run else 'Deleted'} {_files(report)}")
    _print_kinds(report)
    _print_waiting(report)
    if report.failed:
        say(f"{count_text(report.failed, 'file')} could not be deleted; the next vacuum tries again", "yellow")


_WAITING = {
    "retention": "within the retention: a running batch may need it",
    "readers": "versions within the retention have it, for their readers",
    "version": "no older than the newest record, or than the versions to be kept: it waits for a later one",
}


def _print_waiting(report: "VacuumReport") -> None:
    """Print how many files stay for now, why, and until when."""
    if not report.waiting:
        return
    heading("Files that wait")
    columns = [
        Column("files", lambda group: group.files, COUNT),
        Column("bytes", lambda group: group.size_bytes, BYTES),
        Column("first from (UTC)", lambda group: group.first_ms, TIME),
        Column("last from (UTC)", lambda group: group.last_ms, TIME),
        Column("why", lambda group: _WAITING[group.reason], folds=True),
    ]
    print_table(columns, report.waiting)


def _files(report: "VacuumReport") -> str:
    if not report.files:
        return "nothing"
    files = f"{count_text(len(report.files), 'file')} of {bytes_text(report.size_bytes)}"
    return f"{files}. Versions before {time_text(report.horizon_ms)} UTC cannot be read without them"


def _print_kinds(report: "VacuumReport") -> None:
    """Print how many files of each kind there are, and why they go."""
    if not report.files:
        return
    files = Counter((file.kind, file.why) for file in report.files)
    sizes = Counter[tuple[str, str]]()
    for file in report.files:
        sizes[file.kind, file.why] += file.size_bytes
    heading("By kind")
    columns = [
        Column("kind", lambda group: group[0]),
        Column("files", lambda group: files[group], COUNT),
        Column("bytes", lambda group: sizes[group], BYTES),
        Column("why", lambda group: group[1], folds=True),
    ]
    print_table(columns, sorted(files))
