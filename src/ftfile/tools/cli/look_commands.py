"""The commands `ls`, `history`, `show` and `source`, which print the content of logs and write nothing."""

import re
from functools import partial
from json import dumps as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ftfile
from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Wording
from ftfile.core.units import ago, bytes_text, count_text, time_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import DirectoryOptions, Path, Timestamp, Version, settings_of, version_of
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.store_commands import ListedRun, runs_of
from ftfile.tools.cli.terminal import (
    heading,
    print_fields,
    print_table,
    put,
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
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.read.history import Version as RecordedVersion
    from ftfile.operate.details import AddedFile, Batches, FileDetails, OffsetRange, VersionDetails
    from ftfile.read.foreign.status import SourceStatus
    from ftfile.read.shares import FinishedFile


Newest = Annotated[
    int | None,
    typer.Option("--limit", "-n", metavar="N", help="Only the newest N; the default on a terminal is 1,000."),
]

_STATE_STYLES = {"published": "green", "pending": "yellow", "retired": "dim", "open": "cyan"}


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
        TableColumn("query or job", _author_id, keep=1),
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
        TableColumn("query or job", "query_id", keep=1),
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
        TableColumn("query or job", _author_id, keep=2),
        TableColumn("replaces", _replaced, keep=1),
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
            ("job", commit.job_id),
            ("writer", commit.writer or None),
            ("replaces", _replaced(commit)),
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
            ("runs ended" if is_store else "pieces ended", details.segments_removed or None),
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
            ("job", file.job_id),
            ("made of", count_text(file.pieces, "piece") if file.pieces else None),
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


def _state_style(state: str) -> str:
    return _STATE_STYLES.get(state, "red")


def _author_id(item: "FinishedFile | RecordedVersion") -> str | None:
    return item.query_id or item.job_id


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


def _replaced(version: "RecordedVersion") -> str | None:
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
