"""The independent count: DuckDB compares the lines in the log files, including rotated files, with Parquet.

This module uses no code of ftfile, Spark, or the process that wrote the logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.demos.files.check import connect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("LogCount", "count_lines")


@dataclass(frozen=True, slots=True)
class LogCount:
    """The lines of one log, in its files and in Parquet."""

    name: str
    files: int
    written: int
    found: int
    missing: int
    duplicated: int
    foreign: int

    @property
    def exact(self) -> bool:
        """True if Parquet contains each written line once, and no other line."""
        return self.written > 0 and not (self.missing or self.duplicated or self.foreign)


def count_lines(logs: Path, names: Sequence[str], output: Path) -> list[LogCount]:
    """Compare each log's lines with the column ``line`` of the rows whose ``log`` has its name."""
    connection = connect()
    connection.execute("CREATE TABLE found AS SELECT log, line FROM read_parquet(?)", [f"{output}/*.parquet"])
    connection.execute("CREATE TABLE written (log VARCHAR, line VARCHAR)")
    files = {}
    for name in names:
        paths = sorted(path for path in logs.iterdir() if path.name == name or path.name.startswith(f"{name}."))
        files[name] = len(paths)
        for path in paths:
            # No delimiter occurs in a line, so each line is one field.
            connection.execute(
                "INSERT INTO written SELECT ?, line FROM read_csv(?, columns = {'line': 'VARCHAR'}, header = false, "
                "auto_detect = false, delim = '\x01', quote = '', escape = '', compression = ?)",
                [name, str(path), "gzip" if path.suffix == ".gz" else "none"],
            )
    rows = connection.execute(
        """
        WITH expected AS (SELECT log, line, count(*) AS times FROM written GROUP BY ALL),
             got AS (SELECT log, line, count(*) AS times FROM found GROUP BY ALL),
             both_sides AS (SELECT log, coalesce(expected.times, 0) AS wanted, coalesce(got.times, 0) AS seen
                            FROM expected FULL JOIN got USING (log, line))
        SELECT log, sum(wanted), sum(seen), sum(greatest(wanted - seen, 0)),
               coalesce(sum(greatest(seen - wanted, 0)) FILTER (wanted > 0), 0),
               coalesce(sum(seen) FILTER (wanted = 0), 0)
        FROM both_sides GROUP BY log
        """
    ).fetchall()
    counts = {log: tuple(int(number) for number in numbers) for log, *numbers in rows}
    strangers = sorted(str(log) for log in counts.keys() - set(names))
    return [LogCount(name, files.get(name, 0), *counts.get(name, (0,) * 5)) for name in [*names, *strangers]]
