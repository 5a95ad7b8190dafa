"""The independent reader: DuckDB compares every row of a plain directory with the source, in all columns.

The reader uses no code of a sink: it reads every file with the right ending below the directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from tests.demos.files.data import COLUMNS, Column

if TYPE_CHECKING:
    from pathlib import Path

    from duckdb import DuckDBPyConnection

__all__ = ("Verdict", "canonical_row", "check_directory", "connect")

JSON_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "text": "VARCHAR", "instant": "TIMESTAMPTZ"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rows that a plain reader finds. Each row is counted as often as it occurs."""

    files: int
    size_bytes: int
    rows: int
    missing: int
    duplicated: int
    foreign: int
    unreadable: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """True if the directory contains every row of the source once, no other row, and no unreadable file."""
        return not (self.missing or self.duplicated or self.foreign or self.unreadable)


def connect() -> DuckDBPyConnection:
    """Open an in-memory DuckDB without network access."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "threads": "2"})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def canonical_row() -> str:
    r"""Return the SQL expression of a row's canonical text, by which rows are compared.

    The fields of ``COLUMNS`` in order, joined by U+001F. Null is ``\N``; an integer its digits; a number the shortest
    decimal text of its double; a text itself, backslashes doubled; an instant its microseconds since 1970 in UTC.
    """
    return "concat_ws(chr(31), " + ", ".join(_canonical_field(column) for column in COLUMNS) + ")"


def _canonical_field(column: Column) -> str:
    name = column.name
    texts = {
        "integer": f"CAST({name} AS BIGINT)::VARCHAR",
        "number": f"CAST({name} AS DOUBLE)::VARCHAR",
        "text": rf"replace({name}, '\', '\\')",
        "instant": f"epoch_us({name})::VARCHAR",
    }
    return rf"coalesce({texts[column.kind]}, '\N')"


def check_directory(connection: DuckDBPyConnection, directory: Path, file_format: str) -> Verdict:
    """Compare the rows of a directory with the table ``flights``.

    Args:
        connection: contains the table ``flights``, the source.
        directory: is read with all its sub-directories; ``name=value`` in a path is a column, as in Hive.
        file_format: ``json`` or ``parquet``, which is also the ending of the files.
    """
    connection.execute("CREATE OR REPLACE TEMP TABLE found (line VARCHAR)")
    pattern = str(directory / "**" / f"*.{file_format}")
    files = [row[0] for row in connection.execute("SELECT file FROM glob(?) ORDER BY file", [pattern]).fetchall()]
    unreadable = []
    # Files are read one by one, so that a broken file does not hide the rows of other files.
    for file in files:
        try:
            connection.execute(f"INSERT INTO found SELECT {canonical_row()} FROM {_reader(file_format)}", [file])
        except duckdb.Error:
            unreadable.append(file.removeprefix(f"{directory}/"))
    rows, missing, duplicated, foreign = _compare(connection)
    size_bytes = sum((directory / file).stat().st_size for file in files)
    return Verdict(len(files), size_bytes, rows, missing, duplicated, foreign, tuple(unreadable))


def _reader(file_format: str) -> str:
    if file_format == "parquet":
        return "read_parquet(?, hive_partitioning = true)"
    types = ", ".join(f"'{column.name}': '{JSON_TYPES[column.kind]}'" for column in COLUMNS)
    return f"read_json(?, format = 'newline_delimited', columns = {{{types}}})"


def _compare(connection: DuckDBPyConnection) -> tuple[int, int, int, int]:
    """Count the rows, the missing rows, the surplus copies, and the rows that the source does not have."""
    counts = connection.execute(
        f"""
        WITH expected AS (SELECT {canonical_row()} AS line, count(*) AS times FROM flights GROUP BY line),
             got AS (SELECT line, count(*) AS times FROM found GROUP BY line),
             both_sides AS (SELECT coalesce(expected.times, 0) AS wanted, coalesce(got.times, 0) AS seen
                            FROM expected FULL JOIN got USING (line))
        SELECT coalesce(sum(seen), 0),
               coalesce(sum(greatest(wanted - seen, 0)), 0),
               coalesce(sum(greatest(seen - wanted, 0)) FILTER (wanted > 0), 0),
               coalesce(sum(seen) FILTER (wanted = 0), 0)
        FROM both_sides
        """
    ).fetchone()
    assert counts is not None
    rows, missing, duplicated, foreign = (int(count) for count in counts)
    return rows, missing, duplicated, foreign
