"""Columns with categories, which libraries export as dictionaries, at any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import ftfile
from ftfile.operate.writers.arrow_rows import arrow_rows
from ftfile.testing.context import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pl = pytest.importorskip("polars")

VALUES = ["b", None, "a", "b", "c", None, "a", "c"]
INDICES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
NESTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "list": lambda array: pa.ListArray.from_arrays(pa.array([0, 2, None, 2, 5, 8], pa.int32()), array),
    "large list": lambda array: pa.LargeListArray.from_arrays(pa.array([0, 2, None, 2, 5, 8], pa.int64()), array),
    "fixed-size list": lambda array: pa.FixedSizeListArray.from_arrays(array, 2, mask=pa.array([False, True] * 2)),
    "list view": lambda array: pa.ListViewArray.from_arrays(
        pa.array([6, 0, 3], pa.int32()), pa.array([2, 3, 0], pa.int32()), array
    ),
    "struct": lambda array: pa.StructArray.from_arrays([array], ["s"], mask=pa.array([False, False, True, False] * 2)),
    "values of a map": lambda array: pa.MapArray.from_arrays(
        pa.array([0, 2, None, 2, 5, 8], pa.int32()), pa.array(list("abcdefgh")), array
    ),
    "keys of a map": lambda array: pa.MapArray.from_arrays(
        pa.array([0, 1, None, 2, 4], pa.int32()), array.filter(array.is_valid()), pa.array(range(6))
    ),
    "list of lists": lambda array: pa.ListArray.from_arrays(pa.array([0, 2, 2, 5], pa.int32()), NESTED["list"](array)),
    "list of structs": lambda array: NESTED["list"](NESTED["struct"](array)),
    "struct of maps": lambda array: pa.StructArray.from_arrays([NESTED["values of a map"](array)], ["m"]),
    "map of structs of lists": lambda array: pa.MapArray.from_arrays(
        pa.array([0, 1, 1, 3, 4, 5], pa.int32()),
        pa.array(list("abcde")),
        pa.StructArray.from_arrays([NESTED["list"](array)], ["l"]),
    ),
}


def dictionary(index: pa.DataType, values: pa.DataType) -> pa.DictionaryArray:
    """Return an array with a null in its indices and a null in its dictionary."""
    texts = pa.array(["a", "b", None, "c"])
    if pa.types.is_integer(values):
        texts = pa.array([97, 98, None, 99])
    places = [None if number == 1 else [*"ab", None, "c"].index(value) for number, value in enumerate(VALUES)]
    return pa.DictionaryArray.from_arrays(pa.array(places, index), texts.cast(values))


def converted(array: pa.Array) -> pa.ChunkedArray:
    rows = arrow_rows(pa.table({"v": array}))
    return pa.Table.from_batches(rows.batches, rows.schema)["v"]


@pytest.mark.parametrize("nest", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize(
    "array",
    [
        *(dictionary(index, pa.string()) for index in INDICES),
        *(
            dictionary(pa.int32(), kind)
            for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view(), pa.int64(), pa.uint32())
        ),
    ],
    ids=lambda array: str(array.type),
)
def test_they_are_stored_as_their_values(nest: Callable[[pa.Array], pa.Array], array: pa.Array) -> None:
    nested = nest(array)
    for part in (nested, nested.slice(1), nested.slice(1, 1), nested.slice(0, 0)):
        stored = converted(part)
        stored.validate(full=True)
        assert "dictionary" not in str(stored.type)
        assert stored.to_pylist() == part.to_pylist()


def test_dictionaries_of_nested_values() -> None:
    for values in (
        pa.array([["a", None], None, ["b"]], pa.large_list(pa.string_view())),
        pa.array([{"a": "x"}, None, {"a": None}], pa.struct({"a": pa.string_view()})),
    ):
        array = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 0], pa.uint8()), values)
        assert converted(array).to_pylist() == array.to_pylist()


def frames() -> dict[str, Any]:
    days = pl.Enum(["mon", "tue"])
    return {
        "Polars, list": pl.DataFrame({"v": pl.Series([["a"], None, ["b", None]], dtype=pl.List(pl.Categorical))}),
        "Polars, array": pl.DataFrame({"v": pl.Series([["tue", None], None], dtype=pl.Array(days, 2))}),
        "Polars, struct": pl.DataFrame(
            {"v": pl.Series([{"a": "mon", "b": [{"c": "x"}]}], dtype=pl.Struct(
                {"a": days, "b": pl.List(pl.Struct({"c": pl.Categorical}))}
            ))}
        ),
        "pandas": pd.DataFrame({"v": pd.Categorical(["x", None, "y", "x"])}),
        "pandas, struct": pd.DataFrame(
            {"v": pd.Series([{"a": "x"}, None], dtype=pd.ArrowDtype(
                pa.struct({"a": pa.dictionary(pa.int8(), pa.string())})
            ))}
        ),
        "DuckDB": pytest.importorskip("duckdb").sql(
            "select [{'e': 'a'::enum('a', 'b')}] v union all select null"
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", ["Polars, list", "Polars, array", "Polars, struct", "pandas", "pandas, struct", "DuckDB"]
)
def test_categories_of_every_library_are_read_back(tmp_path: Path, name: str) -> None:
    frame, out = frames()[name], str(tmp_path / "out")
    expected = pa.table(frame).to_pylist()
    ftfile.write(out, frame, file_format="parquet", context=current())
    with ftfile.writer(out, "app", context=current()) as writer:
        writer.write(frame)
        writer.commit(1)
    read = ftfile.open(out, context=current()).to_arrow().to_pylist()
    assert len(read) == 2 * len(expected)
    for row in expected:
        assert read.count(row) == 2 * expected.count(row)
