"""The commands `cat`, `head`, `tail` and `count`, which read the rows of a version, and write nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Wording
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
from ftfile.tools.cli.row_formats import Format, RowPrinter, limit_rows
from ftfile.tools.cli.store_commands import rows_of
from ftfile.tools.cli.terminal import put

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


Rows = Annotated[int, typer.Option("--rows", "-n", metavar="N", min=0, help="The number of rows.")]


@dataclass(frozen=True, kw_only=True)
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
    RowPrinter(batches.schema, choice.row_format, json=choice.json).print(limit_rows(batches, rows))


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
