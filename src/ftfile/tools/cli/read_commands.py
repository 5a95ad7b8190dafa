"""`cat`, `head` and `tail`: rows, decoded and decrypted. They write nothing."""

from typing import TYPE_CHECKING, Annotated

import typer

from ftfile.core.context import SystemClock
from ftfile.tools.cli.place import (
    Columns,
    Json,
    Place,
    Timestamp,
    Version,
    Where,
    columns_of,
    version_of,
)
from ftfile.tools.cli.row_formats import Format, RowPrinter, limited

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


Rows = Annotated[int, typer.Option("--rows", "-n", metavar="N", min=0, help="This number of rows.")]


def cat(
    place: Place,
    *,
    columns: Columns = None,
    where: Where = None,
    version: Version = None,
    timestamp: Timestamp = None,
    row_format: Format = None,
    json: Json = False,
) -> None:
    """Print the rows of a version, in the order of their commits."""
    directory = place.open()
    batches = directory.to_batches(version_of(directory, version, timestamp), columns=columns_of(columns), where=where)
    RowPrinter(batches.schema, row_format, json=json).print(batches)


def head(
    place: Place,
    *,
    rows: Rows = 10,
    columns: Columns = None,
    where: Where = None,
    version: Version = None,
    timestamp: Timestamp = None,
    row_format: Format = None,
    json: Json = False,
) -> None:
    """Print the first rows of a version; no more files are read than these need."""
    directory = place.open()
    batches = directory.to_batches(version_of(directory, version, timestamp), columns=columns_of(columns), where=where)
    RowPrinter(batches.schema, row_format, json=json).print(limited(batches, rows))


def tail(
    place: Place,
    *,
    rows: Rows = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with the rows that come, until Ctrl-C.")
    ] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Between two looks of --follow.")] = 1.0,
    columns: Columns = None,
    where: Where = None,
    version: Version = None,
    timestamp: Timestamp = None,
    row_format: Format = None,
    json: Json = False,
) -> None:
    """Print the last rows, in the order of their commits; with --follow, also those that come, each once."""
    directory = place.open()
    clock = SystemClock()
    if where is not None:
        from ftfile.rows.moments import with_clock_values

        where = with_clock_values(where, clock.now_ms(), directory.time_zone())
    chosen = version_of(directory, version, timestamp)
    newest = directory.version() if chosen is None else chosen
    table = directory.tail(rows, newest, columns=columns_of(columns), where=where)
    printer = RowPrinter(table.schema, row_format, json=json)
    printer.print(table.to_batches())
    if not follow:
        return
    offset = None
    while True:
        for read, batches in directory.follow(offset, startingVersion=newest + 1):
            offset = read
            printer.print(_chosen(batches, table.schema, where, directory.time_zone()))
        clock.sleep(interval)


def _chosen(
    batches: "Iterator[pa.RecordBatch]", shown: "pa.Schema", where: str | None, time_zone: str
) -> "Iterator[pa.RecordBatch]":
    """Yield the wanted rows and columns of batches that have all."""
    import pyarrow as pa

    from ftfile.rows.conditions import predicate

    for batch in batches:
        table = pa.Table.from_batches([batch])
        if where is not None:
            table = table.filter(predicate(where, batch.schema, time_zone=time_zone))
        yield from table.select(shown.names).to_batches()
