"""The commands `cat`, `head`, `tail`, `count`, `schema` and `diff`, which read rows and versions, and write nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Wording
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import (
    Columns,
    DirectoryOptions,
    Timestamp,
    Version,
    Where,
    columns_of,
    version_of,
)
from ftfile.tools.cli.output import Json, Output
from ftfile.tools.cli.row_formats import Format, RowPrinter, limited
from ftfile.tools.cli.store_commands import rows_of
from ftfile.tools.cli.terminal import heading, print_fields, print_table, put
from ftfile.tools.report.views import BYTES, COUNT, TableColumn, same_text, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from ftfile.operate.details import AddedFile, VersionDifference, VersionSchema


Rows = Annotated[int, typer.Option("--rows", "-n", metavar="N", min=0, help="The number of rows.")]


@dataclass(frozen=True)
class ReadArguments:
    """The options that select the rows of a version and their format."""

    columns: Columns = None
    where: Where = None
    version: Version = None
    timestamp: Timestamp = None
    row_format: Format = None
    json: Json = False

    def batches(self, place: DirectoryOptions) -> "pa.RecordBatchReader":
        """Return the rows of a directory or a store, or of the file with this path."""
        directory, file = place.open_rows()
        version = version_of(directory, self.version, self.timestamp)
        if file is None and directory.is_store():
            if self.where is not None:
                raise ConfigError(
                    Advice(
                        "--where is only for directories of files. To select rows of a store, use ",
                        Wording(
                            "ftfile.kv.open", "`ftfile kv get PATH KEY` or `ftfile kv scan PATH --start KEY --end KEY`"
                        ),
                    )
                )
            return rows_of(place, version, columns_of(self.columns))
        return directory.to_batches(version, columns=columns_of(self.columns), where=self.where, file=file)


@command(
    "ftfile cat /data/out",
    'ftfile cat /data/out --columns word,n --where "month >= 7 AND word IS NOT NULL"',
    "ftfile cat /data/out --version 12 --json | jq .word",
    "ftfile cat /data/out --timestamp 2024-07-01T12:00:00Z",
)
def cat(place: DirectoryOptions, choice: ReadArguments) -> None:
    """Print the rows of a version, in the order of their commits; for a store, in the order of their keys.

    PATH can also be one finished file of a directory.
    """
    batches = choice.batches(place)
    RowPrinter(batches.schema, choice.row_format, json=choice.json).print(batches)


@command("ftfile head /data/out", "ftfile head /data/out -n 3 --json")
def head(place: DirectoryOptions, rows: Rows = 10, *, choice: ReadArguments) -> None:
    """Print the first rows of a version, or of a finished file; only the files of these rows are read."""
    batches = choice.batches(place)
    RowPrinter(batches.schema, choice.row_format, json=choice.json).print(limited(batches, rows))


@command("ftfile tail /data/out -n 20", "ftfile tail -f /data/out --where \"level = 'ERROR'\"")
def tail(
    place: DirectoryOptions,
    *,
    rows: Rows = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new rows until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="The time between two reads of the log with --follow.")
    ] = 1.0,
    choice: ReadArguments,
) -> None:
    """Print the last rows, in the order of their commits; with --follow, also each new row, once."""
    directory = place.open()
    clock = SystemClock()
    where = choice.where
    if where is not None:
        from ftfile.rows.moments import with_clock_values

        where = with_clock_values(where, clock.now_ms(), directory.time_zone())
    chosen = version_of(directory, choice.version, choice.timestamp)
    newest = directory.version() if chosen is None else chosen
    table = directory.tail(rows, newest, columns=columns_of(choice.columns), where=where)
    printer = RowPrinter(table.schema, choice.row_format, json=choice.json)
    printer.print(table.to_batches())
    if not follow:
        return
    offset = None
    while True:
        for read, batches in directory.follow(offset, startingVersion=newest + 1):
            offset = read
            printer.print(_chosen(batches, table.schema, where, directory.time_zone()))
        clock.sleep(interval)


@command("ftfile count /data/out", 'ftfile count /data/out --where "month >= 7" --version 12')
def count(
    place: DirectoryOptions,
    *,
    where: Where = None,
    version: Version = None,
    timestamp: Timestamp = None,
    output: Output,
) -> None:
    """Print the number of rows of a version. Without --where, or for partition columns, no file is read."""
    directory = place.open()
    output.show(directory.count(version_of(directory, version, timestamp), where=where), _print_count)


def _print_count(rows: int) -> None:
    put(str(rows))


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


def _chosen(
    batches: "Iterator[pa.RecordBatch]", shown: "pa.Schema", where: str | None, time_zone: str
) -> "Iterator[pa.RecordBatch]":
    """Yield the selected rows and columns of batches with all rows and columns."""
    import pyarrow as pa

    from ftfile.rows.conditions import predicate

    for batch in batches:
        table = pa.Table.from_batches([batch])
        if where is not None:
            table = table.filter(predicate(where, batch.schema, time_zone=time_zone))
        yield from table.select(shown.names).to_batches()
