"""Readers of each codec: every claim of the table in docs/formats/parquet.md, but for Spark's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import encode

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "parquet.md"
CLAIMS = dict(re.findall(r"^\| `(\w+)` \| `[^|]+` \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE))
ROWS = [(n, f"a word, and {n * n} more") for n in range(500)]


def by_duckdb(path: Path) -> list[tuple[int, str]]:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT n, s FROM read_parquet('{path}')").fetchall()


def by_pandas(path: Path) -> list[tuple[int, str]]:
    return list(pd.read_parquet(path).itertuples(index=False, name=None))


READERS: dict[str, Callable[[Path], list[tuple[int, str]]]] = {"DuckDB": by_duckdb, "pandas": by_pandas}


def test_the_table_is_of_all_codecs() -> None:
    assert set(CLAIMS) == {"none", "zstd", "snappy", "gzip", "lz4", "brotli"}
    assert all(reader in claim for reader in READERS for claim in CLAIMS.values())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("codec", CLAIMS)
def test_readers(tmp_path: Path, codec: str, reader: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in zip(*ROWS, strict=True)], names=["n", "s"])
    file_format = format_from_options("parquet", {"compression": codec})
    file = tmp_path / f"part{file_format.extension}"
    file.write_bytes(encode(file_format, batch))
    assert READERS[reader](file) == ROWS
