"""Values of DuckDB and pandas that Arrow data contains as other values, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("select (340282366920938463463374607431768211455)::uhugeint a", "UHUGEINT"),
        ("select [1::uhugeint] a", "UHUGEINT"),
        ("select timetz '12:00:00+05' a", "TIME WITH TIME ZONE"),
        ("select {'x': [timetz '12:00:00+05']} a", "TIME WITH TIME ZONE"),
        ("select map {1: '101'::bit} a", "BIT"),
    ],
)
def test_types_of_duckdb_that_become_other_values(out: str, query: str, name: str) -> None:
    with pytest.raises(SchemaError, match=f"column `a`: DuckDB exports values of its type {name}"):
        ftfile.write(out, duckdb.sql(query))


def test_sums_of_duckdb(out: str) -> None:
    ftfile.write(out, duckdb.sql("select sum(i) a from range(3) t(i)"), file_format="json")
    assert [int(value) for value in ftfile.open(out).to_arrow()["a"].to_pylist()] == [3]


@pytest.mark.parametrize(
    "index", [pd.RangeIndex(100, 102, name="id"), pd.Index([7, 8], name="a"), pd.Index(["x", "y"], name="a")]
)
def test_a_named_index_without_a_column(out: str, index: Any) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=index)
    with pytest.raises(SchemaError, match=rf"the name '{index.name}'.*reset_index"):
        ftfile.write(out, frame)
    with pytest.raises(SchemaError, match=f"the name '{index.name}'"):
        ftfile.write(out, pa.Table.from_pandas(frame))


def test_eight_bytes_that_are_small_numbers(out: str) -> None:
    """Polars exports Objects as addresses, which are large numbers."""
    values = [number.to_bytes(8, "little") for number in (8192, 16384)]
    ftfile.write(out, pa.table({"a": pa.array(values, pa.binary(8))}), file_format="parquet")
    assert ftfile.open(out).to_arrow()["a"].to_pylist() == values


@pytest.mark.parametrize("metadata", [b"[", b"7", b'{"index_columns": 1}', b'{"columns": [[], {"field_name": []}]}'])
def test_metadata_that_is_not_by_pandas(out: str, metadata: bytes) -> None:
    ftfile.write(out, pa.table({"a": [1]}).replace_schema_metadata({"pandas": metadata}), file_format="json")
    assert ftfile.open(out).count() == 1
