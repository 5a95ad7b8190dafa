"""Values of DuckDB and pandas that Arrow data contains as other values, or not at all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ArgumentError, SchemaError
from tests.unit.tools.cli.running import run

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


def refused_by_all(out: str, table: pa.Table, data: Any = None) -> str:
    """Return the error of rows, which `ftfile.write`, a writer and the command must share."""
    with pytest.raises(SchemaError) as error:
        ftfile.write(out, table if data is None else data, file_format="parquet")
    with ftfile.writer(f"{out}-writer", "app", file_format="parquet") as writer, pytest.raises(SchemaError) as again:
        writer.write(table)
    assert str(again.value) == str(error.value)
    with pa.OSFile(f"{out}.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as arrow:
        arrow.write_table(table)
    stderr = run("write", out, f"{out}.arrow", code=2).stderr
    assert f"'{out}.arrow': {error.value}. Nothing was written" in stderr
    return str(error.value)


@pytest.mark.parametrize(
    "digits", ["170141183460469231731687303715884105727", "-100000000000000000000000000000000000000"]
)
@pytest.mark.parametrize("query", ["select 1 n, {}::hugeint v", "select [{}::hugeint] v"])
def test_integers_of_duckdb_with_more_than_38_digits(out: str, query: str, digits: str) -> None:
    relation = duckdb.sql(query.format(f"'{digits}'"))
    error = refused_by_all(out, relation.to_arrow_table(), relation)
    assert error.startswith("column `v`: the values are not valid: ")
    assert "DuckDB exports a HUGEINT as a decimal of 38 digits: cast the column" in error


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("select 1 n, unnest([null, {now}, {far}]) v", "v"),
        ("select unnest([{{'a': [{now}]}}, null, {{'a': [null, {far}]}}]) v", "v.a.element"),
        ("select map {{'k': {far}}} v", "v.value"),
        ("select map {{{far}: 1}} v", "v.key"),
        ("select [{now}, {far}]::{kind}[2] v", "v.element"),
    ],
    ids=["column", "list in a struct", "map", "key", "array"],
)
def test_infinite_times_of_duckdb(out: str, query: str, path: str, sign: str, kind: str) -> None:
    now, far = f"'2024-01-01'::{kind}", f"'{sign}infinity'::{kind}"
    relation = duckdb.sql(query.format(now=now, far=far, kind=kind))
    error = refused_by_all(out, relation.to_arrow_table(), relation)
    assert error.startswith(f"column `{path}`: a ")
    assert f"DuckDB exports '{sign}infinity'" in error
    relation.to_parquet(f"{out}.parquet")
    assert f"column `{path}`: a " in run("write", out, f"{out}.parquet", code=2).stderr


@pytest.mark.parametrize("unit", ["s", "ms", "ns"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_infinite_times_in_other_units(out: str, unit: str, sign: str) -> None:
    relation = duckdb.sql(f"select [{{'x': '{sign}infinity'::timestamp_{unit}}}] v")
    error = refused_by_all(out, relation.to_arrow_table(), relation)
    assert error.startswith(f"column `v.element.x`: a timestamp[{unit}] has the value {sign}{2**63 - 1}")
    assert f"DuckDB exports '{sign}infinity'" in error


def test_infinite_times_in_a_dictionary(out: str) -> None:
    far = pa.array([0, 2**63 - 1, 0], pa.timestamp("us")).dictionary_encode()
    assert "column `v`" in refused_by_all(out, pa.table({"v": far}))


def test_times_near_the_ends_of_their_range(out: str) -> None:
    times = pa.array([-(2**63), 2**63 - 2, -(2**63) + 2, None], pa.timestamp("us"))
    days = pa.array([-(2**31), 2**31 - 2, -(2**31) + 2, None], pa.date32())
    hidden = pa.StructArray.from_arrays(
        [pa.array([2**63 - 1, 0, 0, 0], pa.timestamp("us"))], ["a"], mask=pa.array([True, False, False, False])
    )
    table = pa.table({"t": times, "d": days, "s": hidden})
    ftfile.write(out, table, file_format="parquet")
    read = ftfile.open(out).to_arrow()
    assert read["t"].cast(pa.int64()).equals(table["t"].cast(pa.int64()))
    assert read["d"].cast(pa.int32()).equals(table["d"].cast(pa.int32()))
    assert read["s"].to_pylist() == [None, *[{"a": dt.datetime(1970, 1, 1)}] * 3]  # noqa: DTZ001 - a clock


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


def test_the_end_of_a_day(out: str) -> None:
    relation = duckdb.sql("select {'x': ['24:00:00'::TIME]} v")
    error = refused_by_all(out, relation.to_arrow_table(), relation)
    assert error.startswith("column `v`: the values are not valid: ")
    assert "This is 24:00:00, a time of DuckDB that Spark does not have" in error
    assert "cast the column to VARCHAR" in error


@pytest.mark.parametrize("index", [None, ["x", "y"]])
def test_integers_of_pandas_with_more_than_64_bits(out: str, index: list[str] | None) -> None:
    frame = pd.DataFrame({"a": [1, 2], "v": [2**70, 1]}, index=index)
    with pytest.raises(ArgumentError, match=r"column `v`: an integer has more than 64 bits.* to decimal\.Decimal"):
        ftfile.write(out, frame)
    frame["v"] = frame["v"].map(Decimal)
    ftfile.write(out, frame.reset_index(drop=True), file_format="parquet")
    assert ftfile.open(out).to_arrow()["v"].to_pylist() == [2**70, 1]


class Failing:
    """An object whose export fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise self._error


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), OverflowError("x"), pa.ArrowKeyError("x"), pa.ArrowException("x"), KeyError("x")]
)
def test_errors_of_an_export(out: str, error: Exception) -> None:
    with pytest.raises(ArgumentError, match="data=Failing: "):
        ftfile.write(out, Failing(error))


@pytest.mark.parametrize("error", [MemoryError("x"), pa.ArrowMemoryError("x"), RecursionError("x")])
def test_errors_of_an_export_that_are_not_of_its_values(out: str, error: Exception) -> None:
    with pytest.raises(type(error)):
        ftfile.write(out, Failing(error))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.struct([("x", pa.duration("s"))]), "v.x"),
        (pa.list_(pa.struct([("x", pa.struct([("y", pa.month_day_nano_interval())]))])), "v.element.x.y"),
        (pa.map_(pa.string(), pa.struct([("x", pa.duration("s"))])), "v.value.x"),
    ],
)
def test_the_path_of_a_type_that_cannot_be_stored(out: str, kind: pa.DataType, path: str) -> None:
    assert refused_by_all(out, pa.schema([("v", kind)]).empty_table()).startswith(f"column `{path}`: the type ")
