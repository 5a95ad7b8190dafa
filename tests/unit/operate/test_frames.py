"""DataFrames of libraries: columns that only the library can read, and the index of pandas."""

from __future__ import annotations

import json
import pathlib
import uuid
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ArgumentError, SchemaError
from ftfile.testing.context import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pl = pytest.importorskip("polars")

IDS = [uuid.UUID(int=1), None, uuid.UUID(int=2)]
OBJECTS = pl.DataFrame({"n": [1, 2, 3], "u": pl.Series(IDS, dtype=pl.Object)})


class Wrapper:
    """A frame of another library around a frame of Polars."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def lossless(query: str) -> Any:
    connection = duckdb.connect()
    connection.execute("set arrow_lossless_conversion = true")
    return connection.sql(query)


WIDE = ["column `u`", "integers of 128 bits", "pl.Decimal(38, 0)"]
# Each with texts of the error.
OPAQUE: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "Objects of Polars": (lambda: OBJECTS, ["`u`", "memory addresses", "map_elements"]),
    "no Objects yet": (lambda: pl.DataFrame(schema={"u": pl.Object}), ["`u`", "map_elements"]),
    "paths": (lambda: pl.DataFrame({"u": [pathlib.Path("a")]}), ["`u`", "map_elements"]),
    "sets": (lambda: pl.DataFrame({"u": [{1, 2}]}), ["`u`", "map_elements"]),
    "a Table of Polars": (OBJECTS.to_arrow, ["`u`", "memory addresses", "map_elements"]),
    "a reader of Polars": (lambda: OBJECTS.to_arrow().to_reader(), ["`u`", "map_elements"]),
    "batches of Polars": (lambda: OBJECTS.to_arrow().to_batches(), ["`u`", "map_elements"]),
    "a wrapper of Polars": (lambda: Wrapper(OBJECTS), ["`u`", "map_elements"]),
    "addresses in a struct": (
        lambda: pa.table({"s": pa.StructArray.from_arrays([OBJECTS["u"].to_arrow()], ["u"])}),
        ["`s.u`", "map_elements"],
    ),
    "BIT of DuckDB": (lambda: duckdb.sql("select 1 n, '101'::bit u"), ["`u`", "BIT", "VARCHAR"]),
    "nested BIT": (lambda: duckdb.sql("select [{'a': map([1], ['101'::bit])}] u"), ["`u`", "BIT", "VARCHAR"]),
    "BIGNUM of DuckDB": (lambda: duckdb.sql("select '1'::bignum u"), ["`u`", "bignum", "VARCHAR"]),
    "nested BIGNUM": (lambda: duckdb.sql("select {'a': ['1'::bignum]} u"), ["`u.a.", "bignum", "VARCHAR"]),
    "HUGEINT of DuckDB": (lambda: lossless("select 1::hugeint u"), ["`u`", "hugeint", "VARCHAR"]),
    "TIMETZ of DuckDB": (lambda: lossless("select '10:00:00+01'::timetz u"), ["`u`", "TIME WITH TIME ZONE", "VARCHAR"]),
    "a type that pyarrow does not know": (
        lambda: pa.table(
            [pa.array([b"a"])],
            pa.schema([pa.field("u", pa.binary(), metadata={"ARROW:extension:name": "arrow.opaque"})]),
        ),
        ["`u`", "arrow.opaque"],
    ),
    "periods of pandas": (
        lambda: pd.DataFrame({"u": pd.period_range("2024-01", periods=2, freq="M")}),
        ["`u`", "period", "to_timestamp"],
    ),
    "mixed values of pandas": (lambda: pd.DataFrame({"n": [1, 2], "u": [1, "a"]}), ["column u", "texts"]),
    "paths in pandas": (lambda: pd.DataFrame({"u": [pathlib.Path("a")]}), ["column u", "PosixPath", "texts"]),
    "objects in pandas": (lambda: pd.DataFrame({"u": [object()]}), ["column u", "texts"]),
    "complex numbers": (lambda: pd.DataFrame({"u": [1j]}), ["column u", "texts"]),
    "sparse columns": (lambda: pd.DataFrame({"u": pd.arrays.SparseArray([1, 0])}), ["column u", "texts"]),
    "a number of 128 bits": (lambda: pl.DataFrame({"n": [1], "u": pl.Series([1], dtype=pl.Int128)}), WIDE),
    "numbers of 128 bits in a list": (lambda: pl.DataFrame({"u": pl.Series([[1]], dtype=pl.List(pl.Int128))}), WIDE),
    "numbers of 128 bits in an array": (
        lambda: pl.DataFrame({"u": pl.Series([[1]], dtype=pl.Array(pl.Int128, 1))}),
        WIDE,
    ),
    "numbers of 128 bits in a struct": (
        lambda: pl.DataFrame({"u": pl.Series([{"a": [1]}], dtype=pl.Struct({"a": pl.List(pl.Int128)}))}),
        WIDE,
    ),
    "a Series of numbers of 128 bits": (lambda: pl.Series("u", [1], dtype=pl.Int128), WIDE),
    "VARIANT of DuckDB": (lambda: duckdb.sql("select 1 n, 1::variant u"), ["column `u`", "VARIANT", "JSON"]),
    "nested VARIANT": (lambda: duckdb.sql("select map {1: [{'a': 1::variant}]} u"), ["column `u`", "VARIANT", "JSON"]),
    "TYPE of DuckDB": (lambda: duckdb.sql("select get_type(1) u"), ["column `u`", "TYPE", "VARCHAR"]),
    "a LazyFrame": (lambda: pl.DataFrame({"n": [1]}).lazy(), ["LazyFrame", "collect()"]),
    "a Series": (lambda: pl.Series("n", [1]), ["data=Series: it is one column", "to_frame()"]),
    "a Series of Objects": (lambda: pl.Series("u", [1, "a"], dtype=pl.Object), ["column `u`", "map_elements"]),
    "a column of Arrow": (lambda: pa.chunked_array([[1]]), ["data=ChunkedArray: it is one column"]),
}


@pytest.mark.skipif(not hasattr(pl, "UInt128"), reason="an older version of Polars")
def test_unsigned_numbers_of_128_bits(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="column `u`: it has integers of 128 bits"):
        ftfile.write(tmp_path / "out", pl.DataFrame({"u": pl.Series([1], dtype=pl.UInt128)}), file_format="json")


def test_a_series_of_structs_is_a_table(tmp_path: Path) -> None:
    ftfile.write(tmp_path / "out", pl.Series("s", [{"n": 1}]), file_format="json", context=current())
    assert ftfile.open(tmp_path / "out", context=current()).to_arrow().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("name", OPAQUE)
def test_bytes_that_only_the_library_can_read_are_an_error(tmp_path: Path, name: str) -> None:
    data, texts = OPAQUE[name]
    out = str(tmp_path / "out")
    with pytest.raises((SchemaError, ArgumentError)) as error:
        ftfile.write(out, data(), file_format="parquet", context=current())
    with (
        ftfile.writer(out, "app", file_format="parquet", context=current()) as writer,
        pytest.raises((SchemaError, ArgumentError)),
    ):
        writer.write(data())
    for text in texts:
        assert text in str(error.value)
    assert not [*(tmp_path / "out").glob("*.parquet")]


@pytest.mark.parametrize(
    "values",
    [
        [b"12345678", None, bytes(8)],
        [bytes.fromhex("00007f0102030408")],
        [(1 << 40 | 4).to_bytes(8, "little")],
        [(4096 - 8).to_bytes(8, "little")],
        [(1 << 48).to_bytes(8, "little")],
        [(1 << 40).to_bytes(8, "little"), b"\xff" * 8],
        [None],
        [],
    ],
)
def test_other_values_of_8_bytes_are_stored(tmp_path: Path, values: list[bytes | None]) -> None:
    out = str(tmp_path / "out")
    ftfile.write(out, pa.table({"v": pa.array(values, pa.binary(8))}), file_format="parquet", context=current())
    assert ftfile.open(out, context=current()).to_arrow()["v"].to_pylist() == values


def test_types_with_a_known_meaning_are_stored_as_their_values(tmp_path: Path) -> None:
    out, at = str(tmp_path / "out"), uuid.uuid4()
    ftfile.write(out, pd.DataFrame({"u": [at]}), file_format="parquet", context=current())
    ftfile.write(out, lossless(f"select '{at}'::uuid u"), context=current())
    assert ftfile.open(out, context=current()).to_arrow()["u"].to_pylist() == [at.bytes] * 2


FRAME = pd.DataFrame({"n": [1, 2, 3, 4]})
EVEN = FRAME[FRAME["n"] % 2 == 0]
UNNAMED: dict[str, Callable[[], Any]] = {
    "range": lambda: FRAME,
    "filtered": lambda: EVEN,
    "sorted": lambda: FRAME.sort_values("n", ascending=False),
    "joined": lambda: pd.concat([EVEN, FRAME]),
    "unsigned": lambda: EVEN.set_axis(np.array([7, 9], np.uint8)),
    "Table": lambda: pa.Table.from_pandas(EVEN),
    "batch": lambda: pa.RecordBatch.from_pandas(EVEN),
    "reader": lambda: pa.Table.from_pandas(EVEN).to_reader(),
    "batches": lambda: [pa.RecordBatch.from_pandas(frame) for frame in (FRAME, EVEN, FRAME)],
    "filtered first": lambda: [pa.RecordBatch.from_pandas(frame) for frame in (EVEN, FRAME)],
}


def rows_of(data: Any) -> list[int]:
    parts = data if isinstance(data, list) else [data]
    numbers = []
    for part in parts:
        numbers += part["n"].tolist() if isinstance(part, pd.DataFrame) else pa.table(part)["n"].to_pylist()
    return sorted(numbers)


@pytest.mark.parametrize("name", UNNAMED)
def test_row_labels_of_pandas_are_not_stored(tmp_path: Path, name: str) -> None:
    out, make = str(tmp_path / "out"), UNNAMED[name]
    expected = rows_of(make()) if name != "reader" else rows_of(EVEN)
    ftfile.write(out, make(), file_format="parquet", context=current())
    with ftfile.writer(out, "app", context=current()) as writer:
        writer.write(FRAME)
        writer.write(make())
        writer.commit(1)
    read = ftfile.open(out, context=current()).to_arrow()
    assert read.column_names == ["n"]
    assert sorted(read["n"].to_pylist()) == sorted([*expected, *expected, 1, 2, 3, 4])


def test_row_labels_in_a_file_of_pandas_are_not_stored(tmp_path: Path) -> None:
    EVEN.to_parquet(tmp_path / "even.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "even.parquet").names
    ftfile.write(tmp_path / "out", ds.dataset(tmp_path / "even.parquet"), file_format="json", context=current())
    assert ftfile.open(tmp_path / "out", context=current()).to_arrow().to_pylist() == [{"n": 2}, {"n": 4}]


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["a", "b", "c", "d"]),
        pd.date_range("2024-01-01", periods=4),
        pd.MultiIndex.from_product([[1, 2], [3, 4]]),
        pd.MultiIndex.from_product([["a", "b"], [3, 4]], names=["k", None]),
        pd.Index([1.5, 2.5, 3.5, 4.5]),
    ],
    ids=["text", "date", "two levels", "one of two levels", "float"],
)
def test_an_unnamed_index_with_data_is_an_error(tmp_path: Path, index: pd.Index[Any]) -> None:
    with pytest.raises(SchemaError, match=r"without a name.*rename_axis\(names\).*reset_index\(drop=True\)"):
        ftfile.write(tmp_path / "out", FRAME.set_index(index), file_format="json", context=current())


def test_a_named_index_is_a_column(tmp_path: Path) -> None:
    frame = FRAME.set_index(pd.MultiIndex.from_product([["a", "b"], [3, 4]], names=["k", "l"]))
    ftfile.write(tmp_path / "out", frame, file_format="json", context=current())
    read = ftfile.open(tmp_path / "out", context=current()).to_arrow()
    assert read.to_pylist()[0] == {"n": 1, "k": "a", "l": 3}


@pytest.mark.parametrize(
    "metadata",
    [b"{", b"[]", b"7", b'{"index_columns": 7}', b'{"index_columns": ["a"]}', b"[" * 100_000, b"\xff"],
)
def test_other_metadata_is_ignored(tmp_path: Path, metadata: bytes) -> None:
    table = pa.table({"__index_level_0__": [1], "n": [2]}).replace_schema_metadata({"pandas": metadata})
    ftfile.write(tmp_path / "out", table, file_format="json", context=current())
    read = ftfile.open(tmp_path / "out", context=current()).to_arrow()
    assert read.to_pylist() == [{"__index_level_0__": 1, "n": 2}]
    named = json.dumps({"index_columns": ["__index_level_0__"]})
    ftfile.write(
        tmp_path / "other", table.replace_schema_metadata({"pandas": named}), file_format="json", context=current()
    )
    assert ftfile.open(tmp_path / "other", context=current()).to_arrow().to_pylist() == [{"n": 2}]
