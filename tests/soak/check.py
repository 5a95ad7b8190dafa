"""The check after a round: DuckDB compares the published files and the words' counts with the expected rows.

No code of ftfile takes part. A file is published if its name begins neither with `_` nor with `.`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import duckdb

from tests.demos.files.check import connect
from tests.soak.rows import ROW_IN_DUCKDB

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ("Published", "RemotePath", "check_rows", "check_words", "fetch", "list_published")

SHOWN = 5


class RemotePath(Protocol):
    """A directory or a file that is not on a local disk, read without code of ftfile."""

    @property
    def name(self) -> str:
        """The last component."""

    def __truediv__(self, more: str, /) -> RemotePath:
        """Return the path of a file of the directory."""

    def visible_files(self) -> Iterator[RemotePath]:
        """Yield the files of the directory whose name begins neither with `_` nor with `.`."""

    def read_bytes(self) -> bytes:
        """Return the content of the file."""


@dataclass(frozen=True, slots=True)
class Published:
    """Names of published files: the files to read, and the files of earlier rounds that are missing."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


def list_published(directory: Path | RemotePath, known: Collection[str] = ()) -> Published:
    """Return the published files that are not known, and the known files that do not exist."""
    if isinstance(directory, Path):
        names = {child.name for child in directory.iterdir() if child.name[0] not in "_." and child.is_file()}
    else:
        names = {child.name for child in directory.visible_files()}
    return Published(tuple(sorted(names.difference(known))), tuple(sorted(set(known).difference(names))))


def fetch(directory: Path | RemotePath, names: Sequence[str], copies: Path) -> list[str]:
    """Return local paths of files. Files that are not on a local disk are copied to an empty directory."""
    if isinstance(directory, Path):
        return [str(directory / name) for name in names]
    shutil.rmtree(copies, ignore_errors=True)
    copies.mkdir(parents=True)
    for name in names:
        (copies / name).write_bytes((directory / name).read_bytes())
    return [str(copies / name) for name in names]


def check_rows(files: Sequence[str], first: int, end: int) -> list[str]:
    """Return the faults of files that must contain each row from `first` to before `end` once, and no other row.

    Args:
        files: paths of Parquet or JSON files, all of one format.
        first: number of the first row.
        end: number of the last row and one.
    """
    expected = f"SELECT {', '.join(ROW_IN_DUCKDB)} FROM (SELECT range AS id FROM range({first}, {end}))"
    columns = "{'id': 'BIGINT', 'word': 'VARCHAR', 'text': 'VARCHAR'}"
    with connect() as connection:
        if not files:
            found = "SELECT 0::BIGINT AS id, '' AS word, '' AS text WHERE false"
        elif files[0].endswith(".parquet"):
            found = f"SELECT id, word, text FROM read_parquet({[*files]})"
        else:
            found = (
                f"SELECT id, word, text FROM read_json({[*files]}, format = 'newline_delimited', columns = {columns})"
            )
        try:
            connection.execute(f"CREATE TEMP TABLE found AS {found}")
        except duckdb.Error as error:
            return [f"DuckDB cannot read the files: {error}"]
        connection.execute(f"CREATE TEMP TABLE expected AS {expected}")
        faults = []
        for what, query in {
            "lost": "SELECT id FROM expected ANTI JOIN found USING (id)",
            "more than once": "SELECT id FROM found GROUP BY id HAVING count(*) > 1",
            "foreign or of another round": "SELECT id FROM found ANTI JOIN expected USING (id)",
            "with other contents": (
                "SELECT found.id FROM found JOIN expected USING (id) WHERE "
                "(found.word, found.text) IS DISTINCT FROM (expected.word, expected.text)"
            ),
        }.items():
            faults += _faults(connection, "rows", what, query)
        return faults


def check_words(file: str, rows: int) -> list[str]:
    """Return the faults of a dumped store that must contain the count of each word of the first rows.

    Args:
        file: pattern of Parquet files with the columns `word` and `n`.
        rows: number of rows.
    """
    word = ROW_IN_DUCKDB[1]
    with connect() as connection:
        try:
            connection.execute(f"CREATE TEMP TABLE found AS SELECT word, n FROM read_parquet('{file}')")
        except duckdb.Error as error:
            return [f"DuckDB cannot read the dumped store: {error}"]
        connection.execute(
            f"CREATE TEMP TABLE expected AS SELECT word, count(*) AS n FROM "
            f"(SELECT {word} FROM (SELECT range AS id FROM range({rows}))) GROUP BY word"
        )
        # A word that is NULL joins nothing, and its count can be NULL, too.
        wrong = (
            "SELECT word FROM expected FULL JOIN found USING (word) "
            "WHERE expected.n IS DISTINCT FROM found.n OR expected.n IS NULL"
        )
        twice = "SELECT word FROM found GROUP BY word HAVING count(*) > 1"
        return [
            *_faults(connection, "words", "with a wrong count", wrong),
            *_faults(connection, "words", "more than once", twice),
        ]


def _faults(connection: duckdb.DuckDBPyConnection, things: str, what: str, query: str) -> list[str]:
    """Return the number of rows of a query and its first rows as a text; empty if it has no row."""
    counted = connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
    assert counted is not None
    if not counted[0]:
        return []
    first = [row[0] for row in connection.execute(f"{query} ORDER BY 1 LIMIT {SHOWN}").fetchall()]
    return [f"{counted[0]} {things} {what}, the first: {', '.join(map(str, first))}"]
