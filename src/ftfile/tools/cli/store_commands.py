"""The commands `ftfile kv`, for keyed stores."""

import contextlib
import csv
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from json import loads
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.change import MaintenanceCall, Planned, Report, print_result
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import Columns, DirectoryOptions, Merge, Threads, Version, columns_of
from ftfile.tools.cli.failures import FOUND
from ftfile.tools.cli.output import Json, Output
from ftfile.tools.cli.row_formats import Format, RowPrinter, limit_rows
from ftfile.tools.cli.terminal import print_fields, print_table, progress_bar, put, say
from ftfile.tools.report.views import COUNT, TableColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.reading.reader import Reader
    from ftfile.kv.reading.verify import StoreReport
    from ftfile.kv.reading.view import StoreStats


_VALUES = "values separated by commas and quoted as in CSV, or a JSON array"


@dataclass(frozen=True, kw_only=True)
class StoreReadArguments:
    """The options that select the values of a version and their format."""

    columns: Columns = None
    version: Version = None
    merge: Merge = None
    row_format: Format = None
    json: Json = False

    def printer(self, schema: "pa.Schema") -> RowPrinter:
        """Return a printer of rows with these columns."""
        return RowPrinter(schema, self.row_format, json=self.json)


@command("ftfile kv get /data/words hello world", "ftfile kv get /data/visits de,2024-07-01 --json")
def get(
    place: DirectoryOptions,
    key: Annotated[list[str], typer.Argument(metavar="KEY…", help=f"For a store with several key columns: {_VALUES}.")],
    *,
    choice: StoreReadArguments,
) -> None:
    """Print the rows of keys. The exit code is 1 if a key has no row."""
    import pyarrow as pa

    with _open_reader(place, choice.version, choice.merge) as reader:
        keys = [_key_of(reader, text) for text in key]
        fields = reader.definition.key_fields
        columns = {}
        for number, field in enumerate(fields):
            columns[field.name] = pa.array([values[number] for values in keys], field.type)
        table = reader.lookup(pa.table(columns), columns_of(choice.columns))
    hits = table["_found"].to_pylist()
    rows = table.filter(table["_found"]).drop_columns(["_found"])
    choice.printer(rows.schema).print(rows.to_batches())
    for text, is_found in zip(key, hits, strict=True):
        if not is_found:
            say(f"ftfile: there is no key {text!r}")
    if not all(hits):
        raise typer.Exit(FOUND)


@command("ftfile kv scan /data/words --start h --end i", "ftfile kv scan /data/words -n 10 --columns word,n")
def scan(
    place: DirectoryOptions,
    *,
    start: Annotated[str | None, typer.Option(metavar="KEY", help="Start at this key, or at its first values.")] = None,
    end: Annotated[str | None, typer.Option(metavar="KEY", help="End before this key.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", "-n", metavar="N", min=0, help="Only the first N rows.")] = None,
    choice: StoreReadArguments,
) -> None:
    """Print rows sorted by key, in a range of keys."""
    with _open_reader(place, choice.version, choice.merge) as reader:
        first, last = _bound_of(reader, start), _bound_of(reader, end)
        batches = _scan_rows(reader, columns_of(choice.columns), first, last)
        choice.printer(batches.schema).print(limit_rows(batches, rows))


@command("ftfile kv stats /data/words")
def stats(place: DirectoryOptions, *, version: Version = None, output: Output) -> None:
    """Print the keys and columns of a store, and its numbers of runs, rows, bytes and due compactions."""
    from ftfile.rows.spark_types import spark_schema_json, sql_types

    with _open_reader(place, version) as reader:
        stats, definition = reader.stats(), reader.definition
    types = sql_types(spark_schema_json(definition.schema))
    document = {
        **asdict(stats),
        "keys": _types_of(definition.key_fields, types),
        "values": _types_of(definition.value_fields, types),
        "merge": definition.merge,
        "buckets": definition.buckets,
    }

    def print_text(_: object) -> None:
        _print_stats(reader.path, stats, definition)

    output.show(document, print_text)


def _print_stats(path: str, stats: "StoreStats", definition: "StoreDefinition") -> None:
    print_fields(
        [
            ("store", path),
            ("version", f"{stats.version:,} of {stats.newest_version:,}"),
            ("keys", _columns_text(definition.key_fields)),
            ("values", _columns_text(definition.value_fields)),
            ("merged by", _merge_functions(definition)),
            ("buckets", count_text(definition.buckets)),
            ("runs", f"{stats.runs:,}, at most {stats.runs_max:,} in a bucket"),
            ("rows in runs", f"{stats.rows:,}: a key has one in each run that contains it"),
            ("bytes", bytes_text(stats.size_bytes)),
            (
                "compactions due",
                f"{stats.due_compactions:,}, {stats.held_compactions:,} of them suspended after failures",
            ),
        ]
    )


def _types_of(fields: "Iterable[pa.Field]", types: "Mapping[str, str]") -> dict[str, str]:
    return {field.name: types[field.name] for field in fields}


def _columns_text(fields: "Iterable[pa.Field]") -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)


def _merge_functions(definition: "StoreDefinition") -> str:
    texts = []
    for column, name in definition.merge.items():
        texts.append(f"{column}: {_merged_by(name)}")
    return ", ".join(texts)


@command("ftfile kv verify /data/words && echo whole")
def verify(place: DirectoryOptions, *, version: Version = None, threads: Threads = None, output: Output) -> None:
    """Read every run of a version, and compare it with the log. The exit code is 1 if a run is damaged."""
    run = partial(ftfile.kv.verify, place.path, version=version, **place.access)
    with progress_bar("verify") as progress, place.requiring_log():
        report = run(threads=threads, progress=progress)
    output.show(report, _print_verified)
    if report.damaged:
        raise typer.Exit(FOUND)


def _print_verified(report: "StoreReport") -> None:
    verdict = "whole"
    if report.damaged:
        verdict = count_text(len(report.damaged), "damaged run")
    runs = f"{count_text(report.runs, 'run')} with {count_text(report.rows, 'row')}"
    put(f"Version {report.version}: {runs}, {verdict}")
    for name in report.not_asked:
        put(f"Merged by {name}, which was not loaded")
    if report.damaged:
        columns = [
            TableColumn("file", "path", folds=True),
            TableColumn("offset", "offset", COUNT, keep=4),
            TableColumn("bucket", "bucket", COUNT, keep=5),
            TableColumn("error", "error", folds=True),
        ]
        print_table(columns, report.damaged)


@command("ftfile kv compact /data/words --full")
def compact(
    place: DirectoryOptions,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Merge each bucket into one run, for the fastest reads.")
    ] = False,
    merge: Merge = None,
    threads: Threads = None,
    options: Planned,
    output: Output,
) -> None:
    """Run the due compactions. No row is lost or changed."""
    change = MaintenanceCall(ftfile.kv.compact, place, full=full, merge=merge, threads=threads)
    plan = change.plan()
    announcement = ""
    if plan.runs_replaced:
        announcement = f"merges {_describe_merged(plan)}"
    report = change.complete(plan, announcement, options)
    output.show(report, _print_compact)


def _print_compact(report: Report) -> None:
    if report.runs_replaced:
        print_result(report, "merge", "Merged", _describe_merged(report))
    else:
        put("Nothing to merge")


def _describe_merged(report: Report) -> str:
    runs = count_text(report.runs_replaced, "run")
    if report.dry_run:
        return f"first {runs} into about {report.runs_written:,}"
    written = f"{report.runs_written:,} of {bytes_text(report.bytes_written)}"
    return f"{runs} into {written}; the newest version is {report.version}"


def rows_of(place: DirectoryOptions, version: int | None, columns: list[str] | None) -> "pa.RecordBatchReader":
    """Return the rows of a version of a store, sorted by key."""
    return _scan_rows(ftfile.kv.open(place.path, version=version, **place.access), columns)


def _scan_rows(
    reader: "Reader",
    columns: list[str] | None,
    start: tuple[Any, ...] | None = None,
    end: tuple[Any, ...] | None = None,
) -> "pa.RecordBatchReader":
    import pyarrow as pa

    batches = reader.scan(start, end, columns)  # raises an error for unknown columns
    schema = reader.definition.schema
    if columns is None:
        shown = schema
    else:
        shown = pa.schema([schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(shown, batches)


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run of a store, as `ls` shows it."""

    path: str  # of the file, relative to the store
    offset: int  # of the first byte in the file
    bucket: int
    rows: int
    size_bytes: int
    query_id: str  # or the id of a job
    first_batch: int
    last_batch: int


def runs_of(place: DirectoryOptions, version: int | None) -> list[ListedRun]:
    """Return the runs of a version of a store, by batch and bucket."""
    from ftfile.kv.hashing import bucket_number

    with ftfile.kv.open(place.path, version=version, **place.access) as reader:
        store_runs = list(reader.runs())
    runs = []
    for store_run in store_runs:
        add = store_run.add
        run = ListedRun(
            path=add.path,
            offset=add.offset,
            bucket=bucket_number(add.directory_key),
            rows=add.rows,
            size_bytes=add.length,
            query_id=add.origin.query_id,
            first_batch=add.origin.first_batch,
            last_batch=add.origin.last_batch,
        )
        runs.append(run)
    return sorted(runs, key=attrgetter("last_batch", "path", "bucket"))


def _merged_by(name: str) -> str:
    """Return the name of a merge function. For a class of a user, add that it is not loaded."""
    from ftfile.kv.merge_functions import code_of

    if code_of({"": name}):
        return f"{name}, not loaded"
    return name


@contextlib.contextmanager
def _open_reader(place: DirectoryOptions, version: int | None, merge: str | None = None) -> "Iterator[Reader]":
    """Open a reader of a store for a `with` block; raises `CorruptData` if the log is lost."""
    with place.requiring_log():
        reader = ftfile.kv.open(place.path, version=version, merge=merge, **place.access)
    with reader:
        yield reader


def _bound_of(reader: "Reader", text: str | None) -> tuple[Any, ...] | None:
    """Return the values of a key, or of its first columns, as a bound of a scan; None without a text."""
    if text is None:
        return None
    return _key_of(reader, text, is_prefix=True)


def _key_of(reader: "Reader", text: str, *, is_prefix: bool = False) -> tuple[Any, ...]:
    """Return the values of a key or of its first columns; `ConfigError` for a wrong number or type of values."""
    fields = reader.definition.key_fields
    if len(fields) == 1:
        parts = [text]
    else:
        parts = _parts_of(text)
    if len(parts) > len(fields) or (len(parts) < len(fields) and not is_prefix):
        names = ", ".join(field.name for field in fields)
        raise ConfigError(f"{text!r}: a key of this store has the columns {names}: {_VALUES}")
    return tuple(map(_value_of, parts, fields))


def _parts_of(text: str) -> list[Any]:
    """Return the values in a line of CSV, or in a JSON array."""
    try:
        if text.startswith("["):
            values: list[Any] = loads(text)
            return values
        rows: list[list[str]] = [*csv.reader(StringIO(text, newline=""), strict=True)]
    except (ValueError, csv.Error) as error:
        raise ConfigError(f"{text!r} is not a key: {error}. A key is given as {_VALUES}") from None
    if len(rows) != 1:
        raise ConfigError(f"{text!r} is not a key: it is not one line of CSV. A key is given as {_VALUES}")
    return rows[0]


def _value_of(part: object, field: "pa.Field") -> Any:  # noqa: ANN401 - of any column
    """Return a part of a key as a value of its column; ConfigError for a value of another type."""
    import pyarrow as pa

    from ftfile.rows.spark_types import spark_schema_json, sql_types

    try:
        return pa.scalar(part).cast(field.type).as_py()
    except (pa.ArrowException, OverflowError, TypeError):
        kind = sql_types(spark_schema_json(pa.schema([field])))[field.name]
        raise ConfigError(f"{part!r} is not a {kind} for column {field.name}") from None
