"""The rows of the soak: functions of their numbers, as SQL for Spark and for DuckDB, and the input files.

An input file has one line, `FIRST COUNT`: the rows with these numbers. So a stream of these files is repeatable, and
the expected rows follow from the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ("LINE_SCHEMA", "NUMBERS_IN_SPARK", "ROW_IN_DUCKDB", "ROW_IN_SPARK", "WORDS", "write_input")

WORDS = 5_003
LINE_SCHEMA = "value string"
_FIRST, _COUNT = (f"CAST(split(value, ' ')[{place}] AS BIGINT)" for place in (0, 1))
NUMBERS_IN_SPARK = f"explode(sequence({_FIRST}, {_FIRST} + {_COUNT} - 1)) AS id"
ROW_IN_SPARK = (
    "id",
    f"concat('w', string((id * 7919 + id div 1000) % {WORDS})) AS word",
    "md5(string(id)) AS text",
)
ROW_IN_DUCKDB = (
    "id",
    f"'w' || CAST((id * 7919 + id // 1000) % {WORDS} AS VARCHAR) AS word",
    "md5(CAST(id AS VARCHAR)) AS text",
)


def write_input(directory: Path, number: int, first: int, counts: Sequence[int]) -> None:
    """Write input files, each by a rename. Existing files are kept, so the call can be repeated.

    Args:
        directory: of the files; it is created.
        number: of the first file.
        first: number of its first row.
        counts: number of rows of each file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for count in counts:
        path = directory / f"{number:08d}.txt"
        if not path.exists():
            hidden = path.with_name(f".{path.name}")
            hidden.write_text(f"{first} {count}\n", encoding="ascii")
            hidden.rename(path)
        number, first = number + 1, first + count
