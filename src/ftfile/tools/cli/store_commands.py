"""`ftfile kv`: keyed stores."""

import contextlib
import csv
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from json import loads
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.output import FOUND, print_fields, print_json, print_table, progress_bar, put, say
from ftfile.tools.cli.place import Columns, Json, Merge, Place, Threads, Version, columns_of
from ftfile.tools.cli.row_formats import Format, RowPrinter, limited
from ftfile.tools.report.views import COUNT, Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ftfile.kv.reading.reader import Reader


_VALUES = "values separated by commas and quoted as in CSV, or a JSON array"


@dataclass(frozen=True)
class Choice:
    """The values of a version that a command prints, and how."""

    columns: Columns = None
    version: Version = None
    merge: Merge = None
    row_format: Format = None
    json: Json = False

    def printer(self, schema: "pa.Schema") -> RowPrinter:
        """Return a printer of rows with these columns."""
        return RowPrinter(schema, self.row_format, json=self.json)


def get(
    place: Place,
    key: Annotated[list[str], typer.Argument(metavar="KEY…", help=f"For a store with several key columns: {_VALUES}.")],
    *,
    choice: Choice,
) -> None:
    """Print the rows of keys. The exit code is 1 if a key has no row."""
    import pyarrow as pa

    with _opened(place, choice.version, choice.merge) as reader:
        keys = [_key_of(reader, text) for text in key]
        fields = reader.definition.key_fields
        arrays = [pa.array([values[place] for values in keys], field.type) for place, field in enumerate(fields)]
        table = reader.lookup(pa.table(arrays, names=[field.name for field in fields]), columns_of(choice.columns))
    hits = table["_found"].to_pylist()
    rows = table.filter(table["_found"]).drop_columns(["_found"])
    choice.printer(rows.schema).print(rows.to_batches())
    for text, is_found in zip(key, hits, strict=True):
        if not is_found:
            say(f"ftfile: there is no key {text!r}")
    if not all(hits):
        raise typer.Exit(FOUND)


def scan(
    place: Place,
    *,
    start: Annotated[str | None, typer.Option(metavar="KEY", help="Start at this key, or at its first values.")] = None,
    end: Annotated[str | None, typer.Option(metavar="KEY", help="End before this key.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", "-n", metavar="N", min=0, help="Only the first N rows.")] = None,
    choice: Choice,
) -> None:
    """Print rows sorted by key, in a range of keys."""
    with _opened(place, choice.version, choice.merge) as reader:
        first, last = (None if text is None else _key_of(reader, text, is_prefix=True) for text in (start, end))
        batches = _scanned(reader, columns_of(choice.columns), first, last)
        choice.printer(batches.schema).print(limited(batches, rows))


def stats(place: Place, *, version: Version = None, json: Json = False) -> None:
    """Print the keys and columns of a store, and its numbers of runs, rows, bytes and due compactions."""
    from ftfile.rows.spark_types import spark_schema_json, sql_types

    with _opened(place, version) as reader:
        stats, definition = reader.stats(), reader.definition
    if json:
        kinds = sql_types(spark_schema_json(definition.schema))
        keys, values = (
            {field.name: kinds[field.name] for field in fields}
            for fields in (definition.key_fields, definition.value_fields)
        )
        columns = {"keys": keys, "values": values, "merge": definition.merge, "buckets": definition.buckets}
        print_json(asdict(stats) | columns)
        return
    print_fields(
        [
            ("store", reader.path),
            ("version", f"{stats.version:,} of {stats.newest_version:,}"),
            ("keys", ", ".join(f"{field.name} {field.type}" for field in definition.key_fields)),
            ("values", ", ".join(f"{field.name} {field.type}" for field in definition.value_fields)),
            ("merged by", ", ".join(f"{name}: {_merged_by(how)}" for name, how in definition.merge.items())),
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


def verify(place: Place, *, version: Version = None, threads: Threads = None, json: Json = False) -> None:
    """Read every run of a version, and compare it with the log. The exit code is 1 if a run is damaged."""
    run = partial(ftfile.kv.verify, place.path, version=version, **place.access)
    with progress_bar("verify") as progress, place.requiring_log():
        report = run(threads=threads, progress=progress)
    if json:
        print_json(report)
    else:
        damaged = count_text(len(report.damaged), "damaged run") if report.damaged else "whole"
        runs = f"{count_text(report.runs, 'run')} with {count_text(report.rows, 'row')}"
        put(f"Version {report.version}: {runs}, {damaged}")
        for name in report.not_asked:
            put(f"Merged by {name}, which was not loaded")
        if report.damaged:
            columns = [
                Column("file", lambda run: run.path, folds=True),
                Column("offset", lambda run: run.offset, COUNT, keep=4),
                Column("bucket", lambda run: run.bucket, COUNT, keep=5),
                Column("error", lambda run: run.error, folds=True),
            ]
            print_table(columns, report.damaged)
    if report.damaged:
        raise typer.Exit(FOUND)


def rows_of(place: Place, version: int | None, columns: list[str] | None) -> "pa.RecordBatchReader":
    """Return the rows of a version of a store, sorted by key."""
    return _scanned(ftfile.kv.open(place.path, version=version, **place.access), columns)


def _scanned(
    reader: "Reader",
    columns: list[str] | None,
    start: tuple[Any, ...] | None = None,
    end: tuple[Any, ...] | None = None,
) -> "pa.RecordBatchReader":
    import pyarrow as pa

    batches = reader.scan(start, end, columns)  # which refuses columns that there are not
    schema = reader.definition.schema
    shown = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(shown, batches)


class ListedRun(NamedTuple):
    """A run of a store, as `ls` lists it."""

    path: str  # of its file, relative to the store
    offset: int  # of its first byte there
    bucket: int
    rows: int
    size_bytes: int
    query_id: str  # or the id of a job
    first_batch: int
    last_batch: int


def runs_of(place: Place, version: int | None) -> list[ListedRun]:
    """Return the runs of a version of a store, by batch and bucket."""
    from ftfile.kv.hashing import bucket_number

    with ftfile.kv.open(place.path, version=version, **place.access) as reader:
        adds = [run.add for run in reader.runs()]
    runs = [
        ListedRun(
            *(add.path, add.offset, bucket_number(add.directory_key), add.rows, add.length),
            *(add.origin.query_id, add.origin.first_batch, add.origin.last_batch),
        )
        for add in adds
    ]
    return sorted(runs, key=lambda run: (run.last_batch, run.path, run.bucket))


def _merged_by(name: str) -> str:
    """Return a merge function in words; code of users is not imported."""
    from ftfile.kv.definition import code_of

    return f"{name}, not loaded" if code_of({"": name}) else name


@contextlib.contextmanager
def _opened(place: Place, version: int | None, merge: str | None = None) -> "Iterator[Reader]":
    """Give a reader of a store; raises `CorruptData` for one whose log is lost."""
    with place.requiring_log():
        reader = ftfile.kv.open(place.path, version=version, merge=merge, **place.access)
    with reader:
        yield reader


def _key_of(reader: "Reader", text: str, *, is_prefix: bool = False) -> tuple[Any, ...]:
    """Return the values of a key, or of its first columns; ConfigError for another number of them, or a wrong type."""
    fields = reader.definition.key_fields
    parts = [text] if len(fields) == 1 else _parts_of(text)
    if len(parts) > len(fields) or (len(parts) < len(fields) and not is_prefix):
        names = ", ".join(field.name for field in fields)
        raise ConfigError(f"{text!r}: a key of this store has the columns {names}: {_VALUES}")
    return tuple(_value_of(part, field) for part, field in zip(parts, fields, strict=False))


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
    import pyarrow as pa

    from ftfile.rows.spark_types import spark_schema_json, sql_types

    try:
        return pa.scalar(part).cast(field.type).as_py()
    except (pa.ArrowException, OverflowError, TypeError):
        kind = sql_types(spark_schema_json(pa.schema([field])))[field.name]
        raise ConfigError(f"{part!r} is not a {kind} for column {field.name}") from None
