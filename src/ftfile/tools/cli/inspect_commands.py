"""The commands that inspect directories and their logs, such as `status` and `history`, and change nothing."""

import os
import re
from functools import partial
from json import dumps as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ftfile
from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Wording, in_commands
from ftfile.core.units import ago, bytes_text, count_text, time_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import (
    DirectoryOptions,
    Path,
    Timestamp,
    Version,
    settings_of,
    version_of,
)
from ftfile.tools.cli.failures import DAMAGED
from ftfile.tools.cli.findings import print_findings
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.store_commands import ListedRun, runs_of
from ftfile.tools.cli.terminal import (
    heading,
    is_terminal,
    print_fields,
    print_table,
    print_view,
    put,
    say,
    waiting,
    write_bytes,
)
from ftfile.tools.report.views import (
    BYTES,
    COUNT,
    SECONDS,
    TEXT,
    TIME,
    TableColumn,
    age_at,
    same_text,
    view_of_open,
    view_of_queries,
    view_of_requests,
    view_of_sources,
    view_of_unpublished,
    yes_or_no,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.read.history import Version as RecordedVersion
    from ftfile.operate.details import (
        AddedFile,
        Batches,
        FileDetails,
        OffsetRange,
        VersionDetails,
        VersionDifference,
        VersionSchema,
    )
    from ftfile.operate.status import DirectoryStatus
    from ftfile.read.shares import FinishedFile
    from ftfile.source.status import SourceStatus
    from ftfile.tools.report.report import Report


Newest = Annotated[
    int | None,
    typer.Option("--limit", "-n", metavar="N", help="Only the newest N; the default on a terminal is 1,000."),
]
_STATE_STYLES = {"published": "green", "pending": "yellow", "retired": "dim", "open": "cyan"}


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
            ("not needed", _describe_unneeded(status)),
            ("in quarantine", status.quarantined or None),
        ]
    )


def _part(count: int, state: str) -> str:
    if count:
        return f", {count:,} of them {state}"
    return ""


def _describe_unneeded(status: "DirectoryStatus") -> str | None:
    if status.unneeded_files is None:
        return None
    staged = f"{count_text(status.unneeded_files, 'staged file')} of {bytes_text(status.unneeded_bytes or 0)}"
    return f"{staged}: of running tasks, of lost attempts, or no longer needed"


@command(
    "ftfile ls /data/out",
    "ftfile ls /data/out --version 12",
    "ftfile ls hdfs://cluster/out --json | jq -r 'select(.batch_id == 7) | .path'",
    "ftfile ls /data/out --stats",
)
def ls(
    place: DirectoryOptions,
    *,
    version: Version = None,
    timestamp: Timestamp = None,
    limit: Newest = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Also list bounds of columns and numbers of nulls; bounds are not values.")
    ] = False,
    output: Output,
) -> None:
    """List the finished files with their path, content and author; for a store, its runs.

    The state is published, pending (committed, not yet published), retired (of an older version) or missing.
    """
    directory = place.open_any()
    chosen = version_of(directory, version, timestamp)
    if directory.is_store():
        if stats:
            raise ConfigError("--stats: the runs of a store have no statistics")
        _list_runs(place, chosen, limit, output)
        return
    files = directory.files(chosen, output.limit_to_read(limit), statistics=stats)
    columns = [
        TableColumn("file", "path", folds=True),
        TableColumn("state", "state", style=_state_style),
        TableColumn("rows", "rows", COUNT),
        TableColumn("bytes", "size_bytes", BYTES, keep=5),
        TableColumn("batch", "batch_id", TEXT, keep=3),
        TableColumn("query or operation", _author_id, keep=1),
        TableColumn("directory", "directory", keep=2, hides_zero=True),
    ]
    if stats:
        columns.append(TableColumn("bounds", _bounds_text, folds=True))
    output.show_list(files, columns, limit, "files")


def _bounds_text(file: "FinishedFile") -> str:
    """Return the bounds of the columns of a file, and numbers of nulls; `?` is unknown."""
    texts: list[str] = []
    for name, column in (file.statistics or {}).items():
        text = f"{name}: {_bound_text(column.low)} … {_bound_text(column.high)}"
        if column.nulls != 0:
            text += f" and {_bound_text(column.nulls)} nulls"
        texts.append(text)
    return "; ".join(texts)


def _bound_text(bound: object) -> str:
    if bound is None:
        return "?"
    if isinstance(bound, str | bytes):
        return repr(bound)
    return str(bound)


def _list_runs(place: DirectoryOptions, version: int | None, limit: int | None, output: Output) -> None:
    """Print the runs of a store, oldest first."""
    runs = runs_of(place, version)
    if limit is not None:
        runs = runs[max(0, len(runs) - limit) :]
    columns = [
        TableColumn("file", "path", folds=True),
        TableColumn("offset", "offset", COUNT, keep=4),
        TableColumn("bucket", "bucket", COUNT),
        TableColumn("rows", "rows", COUNT),
        TableColumn("bytes", "size_bytes", BYTES, keep=5),
        TableColumn("batches", _batch_range, TEXT, keep=3),
        TableColumn("query or operation", "query_id", keep=1),
    ]
    output.show_list(runs, columns, limit, "runs")


@command("ftfile history /data/out --limit 20", "ftfile history /data/out --json | jq '{version, rows}'")
def history(place: DirectoryOptions, *, limit: Newest = None, output: Output) -> None:
    """List the versions, oldest first, with their time, author and changes.

    It also lists the versions of a keyed store.
    """
    versions = place.open_any().history(output.limit_to_read(limit))
    columns = [
        TableColumn("version", "version", COUNT),
        TableColumn("time (UTC)", "time_ms", TIME),
        TableColumn("operation", "operation"),
        TableColumn("batch", "batch_id", TEXT, keep=6),
        TableColumn("rows", "rows", COUNT, keep=8),
        TableColumn("bytes", "size_bytes", BYTES, keep=5),
        TableColumn("files", "files", COUNT, keep=7),
        TableColumn("files removed", "files_removed", COUNT, keep=4, hides_zero=True),
        TableColumn("rows removed", "rows_removed", COUNT, keep=5, hides_zero=True),
        TableColumn("finished by", _reasons, keep=3),
        TableColumn("seconds", _seconds_of, SECONDS, keep=4, hides_zero=True),
        TableColumn("bad", "bad_records", COUNT, keep=3, hides_zero=True),
        TableColumn("query or operation", _author_id, keep=2),
        TableColumn("replaces", _describe_replaced, keep=1),
        TableColumn("writer", "writer", keep=0, hides_zero=True),
        TableColumn("metadata", "user_metadata", keep=3, folds=True),
        TableColumn("txn", _transaction, keep=1),
        TableColumn("offsets", "offsets", same_text(_offsets_text), keep=0, folds=True),
    ]
    output.show_list(versions, columns, limit, "versions")


@command("ftfile show /data/out 12", "ftfile show /data/out month=7/0000000003-0-0ef664b64a3b.json")
def show(
    place: DirectoryOptions,
    what: Annotated[
        str, typer.Argument(metavar="FILE|VERSION", help="A file as listed by `ls`, or the number of a version.")
    ],
    *,
    version: Version = None,
    output: Output,
) -> None:
    """Show the details of one file or version: batches, their source offsets, filters, files added and removed.

    For a store, it shows versions, with the runs that each adds.
    """
    directory = place.open_any()
    if re.fullmatch(r"\d+", what):
        details = directory.version_details(int(what))
        output.show(details, partial(_print_version, is_store=directory.is_store()))
    elif directory.is_store():
        raise ConfigError(
            Advice(
                f"{what!r}: for a store, give the number of a version; ",
                Wording("ftfile.kv.open(…).runs()", "`ftfile ls PATH`"),
                " lists the runs",
            )
        )
    else:
        output.show(directory.file_details(what, version), _print_file)


def _print_version(details: "VersionDetails", *, is_store: bool) -> None:
    commit = details.commit
    seconds = _seconds_of(commit)
    print_fields(
        [
            ("version", f"{commit.version:,}"),
            ("time", f"{time_text(commit.time_ms)} UTC"),
            ("operation", commit.operation),
            ("query", commit.query_id),
            ("run", details.run_id),
            ("batch", commit.batch_id),
            ("operation", commit.operation_id),
            ("writer", commit.writer or None),
            ("replaces", _describe_replaced(commit)),
            ("metadata", commit.user_metadata),
            ("transaction", _transaction(commit)),
            ("finished by", _reasons(commit)),
            ("seconds", f"{seconds:.3f}" if seconds else None),
            ("rows", count_text(commit.rows)),
            ("rows removed", commit.rows_removed or None),
            ("files removed", commit.files_removed or None),
            ("bad records", commit.bad_records or None),
            ("durability", commit.durability),
            ("offsets before", _offsets(details.offsets_before)),
            ("offsets after", _offsets(commit.offsets)),
            ("runs ended" if is_store else "segments ended", details.segments_removed or None),
        ]
    )
    _print_ranges(details.offset_ranges)
    _print_changed_files(details, is_store=is_store)


def _print_changed_files(details: "VersionDetails", *, is_store: bool) -> None:
    by_kind: dict[str, list[AddedFile]] = {"part": [], "segment": []}
    for file in details.added:
        by_kind[file.kind].append(file)
    for title, kind in (
        ("Files added", "part"),
        ("Runs added" if is_store else "Pieces of open files added", "segment"),
    ):
        if added := by_kind[kind]:
            heading(f"{title}: {len(added):,}")
            print_table(
                [
                    TableColumn("file", "path", folds=True),
                    TableColumn("rows", "rows", COUNT),
                    TableColumn("bytes", "size_bytes", BYTES, keep=5),
                    TableColumn("batches", _batch_range, keep=4),
                ],
                added,
            )
    if details.removed:
        heading(f"Files removed: {len(details.removed):,}")
        columns = [
            TableColumn("file", "path", folds=True),
            TableColumn("bytes", "size_bytes", BYTES),
        ]
        print_table(columns, details.removed)


def _print_file(file: "FileDetails") -> None:
    batches = file.batches
    time = ""
    if file.time_ms:
        time = f" of {time_text(file.time_ms)} UTC"
    by = ""
    if file.operation:
        by = f", by {file.operation}"
    plain = ""
    if file.filters:
        plain = f", {bytes_text(file.plain_bytes)} before filters"
    print_fields(
        [
            ("file", file.path),
            ("state", file.state),
            ("rows", count_text(file.rows)),
            ("bytes", f"{bytes_text(file.size_bytes)} on storage{plain}"),
            ("format", " + ".join([file.format, *file.filters])),
            ("checksum", file.checksum),
            ("version", f"{file.version:,}{time}{by}"),
            ("query", batches.query_id if batches else None),
            ("batches", _batch_range(batches) if batches else None),
            ("offsets before", _offsets(batches.offsets_before) if batches else None),
            ("offsets after", _offsets(batches.offsets) if batches else None),
            ("operation", file.operation_id),
            ("made of", count_text(file.segments, "segment") if file.segments else None),
        ]
    )
    _print_ranges(batches.offset_ranges if batches else None)


def _print_ranges(ranges: "Sequence[OffsetRange] | None") -> None:
    """Print the offsets that were read from each source."""
    if not ranges:
        return
    heading("Read from the sources")
    columns = [
        TableColumn("source", "source", COUNT),
        TableColumn("partition", "partition", keep=8),
        TableColumn("from", _start_text, folds=True),
        TableColumn("to", "end", same_text(_offset_text), folds=True),
    ]
    print_table(columns, ranges)


@command("ftfile diff /data/out 3 12", "ftfile diff /data/out 2024-07-01T12:00:00Z --json | jq .rows_added")
def diff(
    place: DirectoryOptions,
    old: Annotated[
        str, typer.Argument(metavar="A", help="A version, or a time: the version that was newest at this time.")
    ],
    new: Annotated[
        str | None, typer.Argument(metavar="B", help="A version or a time as well; by default the newest version.")
    ] = None,
    *,
    output: Output,
) -> None:
    """Show the changes between two versions: files, rows and columns. No file is read."""
    if new is None:
        newest = None
    else:
        newest = _version_or_time(new)
    output.show(place.open().diff(_version_or_time(old), newest), _print_diff)


def _print_diff(changes: "VersionDifference") -> None:
    rows = f"{changes.rows_added:,} added, {changes.rows_removed:,} removed"
    files = f"{_files(changes.added)} added, {_files(changes.removed)} removed"
    print_fields([("versions", f"{changes.old_version} to {changes.new_version}"), ("rows", rows), ("files", files)])
    if changes.columns:
        heading(f"Columns changed: {len(changes.columns):,}")
        columns = [
            TableColumn("column", "name", folds=True),
            TableColumn("was", "old_type", folds=True),
            TableColumn("is", "new_type", folds=True),
        ]
        print_table(columns, changes.columns)
    for title, changed in (("Files added", changes.added), ("Files removed", changes.removed)):
        if changed:
            heading(f"{title}: {len(changed):,}")
            columns = [
                TableColumn("file", "path", folds=True),
                TableColumn("rows", "rows", COUNT),
                TableColumn("bytes", "size_bytes", BYTES, keep=5),
                TableColumn("kind", _kind_of_file, keep=4),
            ]
            print_table(columns, changed)


def _version_or_time(text: str) -> int | str:
    if text.isdecimal():
        return int(text)
    return text


def _kind_of_file(file: "AddedFile") -> str | None:
    if file.kind == "segment":
        return "piece of an open file"
    return None


def _files(files: "Sequence[AddedFile]") -> str:
    return f"{count_text(len(files), 'file')} of {bytes_text(sum(file.size_bytes for file in files))}"


@command("ftfile schema /data/out", "ftfile schema /data/out --json | jq -r .ddl")
def schema(place: DirectoryOptions, *, version: Version = None, timestamp: Timestamp = None, output: Output) -> None:
    """Show the columns of a version with their types in Spark SQL, and as text for Spark's .schema(…)."""
    directory = place.open()
    output.show(directory.schema(version_of(directory, version, timestamp)), _print_schema)


def _print_schema(version_schema: "VersionSchema") -> None:
    columns = [
        TableColumn("column", "name", folds=True),
        TableColumn("type", "type", folds=True),
        TableColumn("nullable", "nullable", same_text(yes_or_no)),
    ]
    print_table(columns, version_schema.columns)
    heading("As text")
    put(version_schema.ddl)


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


def _state_style(state: str) -> str:
    return _STATE_STYLES.get(state, "red")


def _author_id(item: "FinishedFile | RecordedVersion") -> str | None:
    return item.query_id or item.operation_id


def _batch_range(item: "ListedRun | AddedFile | Batches") -> str:
    if item.first_batch == item.last_batch:
        return str(item.first_batch)
    return f"{item.first_batch} to {item.last_batch}"


def _offsets(offsets: list[Any] | None) -> str | None:
    """Return Spark's offsets as JSON, one for each source."""
    if offsets is None:
        return None
    return _offsets_text(offsets)


def _offsets_text(offsets: list[Any]) -> str:
    return " ".join(map(_offset_text, offsets))


def _start_text(offsets: "OffsetRange") -> str:
    if offsets.start is None:
        return "its start"
    return _offset_text(offsets.start)


def _offset_text(offset: Any) -> str:  # noqa: ANN401 - any JSON
    return json_text(offset, separators=(",", ":"))


def _describe_replaced(version: "RecordedVersion") -> str | None:
    """Return the rows that a version replaces."""
    if version.overwrite:
        return "everything"
    return version.replaces


def _reasons(version: "RecordedVersion") -> str | None:
    """Return the rules that ended files, with the number of files."""
    texts = []
    for reason, files in sorted(version.metrics.files_by_reason.items()):
        texts.append(f"{reason} {files:,}")
    return ", ".join(texts) or None


def _seconds_of(version: "RecordedVersion") -> float:
    """Return the time of the slowest task plus the time of the commit; unknown stages count as 0."""
    metrics = version.metrics
    commit = (metrics.prepare_seconds, metrics.create_seconds or 0.0, metrics.publish_seconds or 0.0)
    return metrics.write_seconds + sum(commit)


def _transaction(version: "RecordedVersion") -> str | None:
    if version.txn_app_id is None:
        return None
    return f"{version.txn_app_id} {version.txn_version}"
