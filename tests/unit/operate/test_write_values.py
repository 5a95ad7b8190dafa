"""Values of rows that `ftfile.write` and `ftfile.writer` get from Python programs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ArgumentError, SchemaError
from ftfile.core.options.kinds import DURATION
from ftfile.operate.writers.named_options import option_texts
from ftfile.rows.spark_types import DEPTH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def test_a_program_may_fill_one_array_again_and_again(out: str) -> None:
    """As with any writer, the rows are those at the time of the call."""
    numbers = np.zeros(1000, np.int64)

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            numbers[:] = number
            yield pa.record_batch({"n": numbers})

    ftfile.write(out, batches(), file_format="json")
    with ftfile.writer(out, "orders", file_format="json") as writer:
        for batch in batches():
            writer.write(batch)
        writer.commit(1)
    assert Counter(ftfile.open(out).to_arrow()["n"].to_pylist()) == dict.fromkeys(range(10), 2000)


@pytest.mark.parametrize("file_format", ["parquet", "json", "arrow"])
@pytest.mark.parametrize(
    "values",
    [
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]),
        pa.Array.from_buffers(pa.decimal128(5, 0), 1, [None, pa.py_buffer((10**6).to_bytes(16, "little"))]),
        pa.array([86_400_000_000], pa.time64("us")),
    ],
    ids=["UTF-8", "decimal", "time"],
)
def test_values_that_their_type_does_not_have_are_an_error(out: str, file_format: str, values: pa.Array) -> None:
    with pytest.raises(SchemaError, match="column `v`: the values are not valid: "):
        ftfile.write(out, pa.table({"n": [1], "v": values}), file_format=file_format)
    assert not [*Path(out).glob("*.*")]


@pytest.mark.parametrize("file_format", ["parquet", "json", "avro", "orc", "arrow"])
@pytest.mark.parametrize(
    ("nest", "wrap"),
    [
        (pa.list_, lambda value: [value]),
        (lambda kind: pa.struct({"a": kind}), lambda value: {"a": value}),
        (lambda kind: pa.map_(pa.string(), kind), lambda value: [("k", value)]),
    ],
    ids=["list", "struct", "map"],
)
def test_deep_columns_are_read_back_or_refused(out: str, file_format: str, nest: Any, wrap: Any) -> None:
    kind, value = pa.int64(), 1
    for _ in range(DEPTH_MAX - 1):
        kind, value = nest(kind), wrap(value)
    rows = pa.table({"n": [1, 2], "deep": pa.array([value, None], kind)})
    ftfile.write(out, rows, file_format=file_format)
    expected = [{"n": 1, "deep": value}, {"n": 2, "deep": None}]
    assert ftfile.open(out).to_arrow().to_pylist() == expected
    if file_format == "parquet":
        (file,) = Path(out).glob("*.parquet")
        assert pq.read_table(file).to_pylist() == expected
    for deeper in (1, 500):
        for _ in range(deeper):
            kind = nest(kind)
        with pytest.raises(SchemaError, match=f"`deep` has more than {DEPTH_MAX} levels"):
            ftfile.write(out, pa.table({"n": [1], "deep": pa.nulls(1, kind)}), file_format=file_format)


def test_durations_are_texts_or_timedeltas(out: str) -> None:
    assert option_texts({"rollover_interval": timedelta(days=20, milliseconds=5)}, None, {}) == {
        "rolloverInterval": "1728000005ms"
    }
    assert DURATION.parse("1728000005ms") == pytest.approx(1_728_000.005)
    with ftfile.writer(out, "orders", file_format="json", rollover_interval=timedelta(minutes=1)) as writer:
        writer.write(pa.table({"n": [1]}))
        writer.commit(1)
    assert ftfile.open(out).files() == []


def test_pandas_with_two_columns_of_a_name_is_an_error(out: str) -> None:
    with pytest.raises(ArgumentError, match="Arrow cannot read it as a table: Duplicate column names"):
        ftfile.write(out, pd.DataFrame([[1, 2]], columns=["a", "a"]), file_format="json")
