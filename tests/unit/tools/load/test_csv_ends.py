"""CSV files that end within a quoted value, with Python's csv module as the oracle."""

from __future__ import annotations

import csv
import gzip
import io
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.tools.load import csv_files
from ftfile.tools.load.file_rows import LoadedRows, TextColumns
from ftfile.tools.load.input_files import input_files

if TYPE_CHECKING:
    from pathlib import Path

QUOTED = st.text('"\n\r,x\u00e9 \\', max_size=5)
PLAIN = st.text("x\u00e9 \\", min_size=1, max_size=5)
MODES: dict[Any, st.SearchStrategy[str]] = {  # by constants of the csv module
    csv.QUOTE_MINIMAL: QUOTED,
    csv.QUOTE_ALL: QUOTED,
    csv.QUOTE_NONNUMERIC: QUOTED,
    csv.QUOTE_NONE: PLAIN,
}


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Return the text of a CSV file whose columns have the names of their numbers."""
    columns = draw(st.integers(1, 3))
    mode = draw(st.sampled_from([*MODES]))
    rows = draw(st.lists(st.lists(MODES[mode], min_size=columns, max_size=columns), max_size=5))
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=mode, lineterminator=draw(st.sampled_from(["\n", "\r\n"])))
    writer.writerow([str(number) for number in range(columns)])
    writer.writerows(rows)
    return text.getvalue().removesuffix(draw(st.sampled_from(["", "\n", "\r\n"])))


def expected_rows(text: str) -> list[list[str]] | None:
    """Return the rows of a text; None if it ends within quotes, or if a row has too few values."""
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (csv.Error, ValueError):
        return None
    if any(len(row) != len(header) for row in rows):
        return None
    return rows


def loaded_rows(path: Path, text: str | bytes, types: dict[str, pa.DataType]) -> list[list[str]] | None:
    """Return the rows of a file with this text; None if the file is refused."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        batches = [
            *LoadedRows(
                input_files([str(path)], "csv"), TextColumns(types, TimeFormats.from_options({})), context=SYSTEM
            )
        ]
    except ConfigError:
        return None
    rows = pa.Table.from_batches(batches).to_pylist()
    return [[value or "" for value in row.values()] for row in rows]


@pytest.mark.parametrize("block_bytes", [60, csv_files.BLOCK_BYTES])
@given(text=tables(), data=st.data())
def test_a_text_is_refused_if_a_quote_is_open(
    block_bytes: int, tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "ends.csv"
    types = {str(number): pa.string() for number in range(3)}
    header = text.splitlines()[0]
    with mock.patch.object(csv_files, "BLOCK_BYTES", block_bytes):
        assert loaded_rows(path, text, types) == expected_rows(text)
        cut = text[: data.draw(st.integers(len(header), len(text)))]
        assert loaded_rows(path, cut, types) == expected_rows(cut)


@pytest.mark.parametrize(
    "rows",
    [
        '1,"x\n2,y\n3,z\n',
        '1,"',
        '1,"x\r\n2,y\r\n',
        '1,"x""',
        '1,"""\n',
        '1,"2\n2,3\n',
        '"1,2\n2,3\n',
        '1,"' + "x" * 600_000,
        '1,"' + "x" * 2_000_000 + "\n",
    ],
)
def test_open_quotes(rows: str, tmp_path: Path) -> None:
    for name_type in (pa.string(), pa.int64(), pa.binary(), pa.float64(), pa.bool_(), pa.date32()):
        text = "id,name\n" + rows
        assert loaded_rows(tmp_path / "a.csv", text, {"name": name_type}) is None
        assert loaded_rows(tmp_path / "a.csv.gz", gzip.compress(text.encode()), {"name": name_type}) is None


@pytest.mark.parametrize("text", ['n\n"\n"\n', 'n\n"a"\n"\r\n"\r\n', 'n\n5" pipe', 'n\nx"\n', 'n\n""', 'n\n"a\n"\n\n'])
def test_legal_ends(text: str, tmp_path: Path) -> None:
    assert loaded_rows(tmp_path / "a.csv", text, {"n": pa.string()}) == expected_rows(text)
