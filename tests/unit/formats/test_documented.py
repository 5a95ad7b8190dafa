"""The examples of the pages on formats are the bytes that are written."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import DATE, TIMESTAMP, TIMESTAMP_NTZ, write_and_read

PAGES = Path(__file__).parents[3] / "docs/formats"
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.timezone.utc)
DAY = dt.date(2024, 2, 29)


def examples(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(), flags=re.DOTALL)


def test_json() -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("at", TIMESTAMP),
            ("local", TIMESTAMP_NTZ),
            ("day", DATE),
            ("price", pa.decimal128(10, 2)),
            ("ratio", pa.float64()),
            ("name", pa.string()),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("props", pa.map_(pa.string(), pa.int32())),
            ("raw", pa.binary()),
        ]
    )
    first = {
        "id": 1,
        "at": NOON,
        "local": dt.datetime(2024, 2, 29, 12),  # noqa: DTZ001 - what a clock shows
        "day": DAY,
        "price": Decimal("19.90"),
        "ratio": 0.1,
        "name": 'say "hi"',
        "tags": ["a", None],
        "props": [("k", 1)],
        "raw": b"\x00\xff",
    }
    second = {"id": 2, "ratio": float("nan"), "name": "", "tags": [], "props": [("gone", None)]}
    written = "".join(
        write_and_read("json", {}, pa.RecordBatch.from_pylist([row], schema)).decode() for row in (first, second, {})
    )
    assert examples("json.md", "json") == [written]


@pytest.mark.parametrize(("place", "options"), [(0, {}), (1, {"escape": '"'})])
def test_csv(place: int, options: dict[str, Any]) -> None:
    types = [pa.int64(), TIMESTAMP, DATE, pa.decimal128(10, 2), pa.float64(), pa.string()]
    values: list[list[Any]] = [
        [1, 2, 3],
        [NOON, None, None],
        [DAY, None, None],
        [Decimal("19.90"), None, Decimal("0.50")],
        [0.1, float("nan"), float("inf")],
        ['say "hi", ok', "", "back\\slash"],
    ]
    columns = [pa.array(column, kind) for column, kind in zip(values, types, strict=True)]
    written = write_and_read("csv", options, pa.RecordBatch.from_arrays(columns, names=list("abcdef")))
    assert examples("csv.md", "text")[place] == written.decode()


def test_text() -> None:
    batch = pa.RecordBatch.from_pydict({"v": ["first", "", '{"anything": "you like"}']})
    assert examples("text.md", "text") == [write_and_read("text", {}, batch).decode()]


def test_delimiters() -> None:
    (row,) = re.findall(r"^\| (.*delimiter=\\x00.*?) \|", (PAGES / "binary.md").read_text(), flags=re.MULTILINE)
    shown = re.findall(r"`delimiter=(.+?)`", row)
    assert len(shown) == 3
    for text in shown:
        given = parse_options({"path": "/out", "fileFormat": "binary", "delimiter": text}, SinkOptions)
        delimiter = given.delimiter
        records = pa.RecordBatch.from_pydict({"v": [b"a", b"b"]})
        assert write_and_read("binary", given.for_format("binary"), records) == b"a" + delimiter + b"b" + delimiter


def test_what_others_make_of_it_as_it_stands(tmp_path: Path) -> None:
    """Pandas shifts columns at backslashes; DuckDB takes decimals for doubles first."""
    file = tmp_path / "file"
    columns = {"text": ['say "hi", ok'], "more": ["x"]}
    for options, values in (({}, ['say \\hi\\"', ' ok"', "x"]), ({"escape": '"'}, ['say "hi", ok', "x"])):
        file.write_bytes(write_and_read("csv", options, pa.RecordBatch.from_pydict(columns)))
        assert pd.read_csv(file, header=None).to_numpy().tolist() == [values]
    wide = Decimal("1234567890123456789.123456789012345678")
    file.write_bytes(
        write_and_read("json", {}, pa.RecordBatch.from_pydict({"v": pa.array([wide], pa.decimal128(38, 18))}))
    )
    assert str(wide).encode() in file.read_bytes()
    with duckdb.connect() as connection:
        reader = f"read_json('{file}', format='newline_delimited', columns={{'v': 'DECIMAL(38, 18)'}})"
        assert connection.execute(f"SELECT v FROM {reader}").fetchall() != [(wide,)]


def test_pages_name_every_extension() -> None:
    page = (PAGES / "parquet.md").read_text()
    for compression in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        extension = format_from_options("parquet", {"compression": compression}).extension
        assert f"| `{compression}` | `{extension}` |" in page
