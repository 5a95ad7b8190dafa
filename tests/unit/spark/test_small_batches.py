"""The Arrow batches that Spark receives."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ftfile.read.shares import small_batches
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.micro_batch import MicroBatch


@pytest.mark.parametrize(
    ("rows", "width", "most"),
    [(0, 8, 0), (1, 8, 1), (8192, 8, 8192), (8193, 8, 8192), (20_000, 8, 8192), (100, 100_000, 2), (2, 1 << 20, 1)],
)
def test_their_size(rows: int, width: int, most: int) -> None:
    column = pa.array(range(rows), pa.int64()) if width == 8 else pa.array([b"x" * width] * rows, pa.binary())
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    found = list(small_batches([batch, batch]))
    assert max((each.num_rows for each in found), default=0) == most
    assert pa.Table.from_batches(found, batch.schema).equals(pa.Table.from_batches([batch, batch]))


def test_rows_without_columns() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(20_000)], ["a"]).select([])
    assert [each.num_rows for each in small_batches([batch])] == [8192, 8192, 3616]


@pytest.mark.parametrize("kind", ["read", "follow"])
def test_readers_give_them(tmp_path: Any, kind: str) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": number} for number in range(9000)]])
    source = FtFileDataSource({"path": out})
    if kind == "read":
        reader: Any = source.reader(source.schema())
        partitions = reader.partitions()
    else:
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        partitions = reader.partitions(start, reader.latestOffset(start))
    found = [batch.num_rows for part in partitions for batch in reader.read(part)]
    assert (sum(found), max(found)) == (9000, 8192)
