"""Rows gathered from blocks equal the rows that Arrow takes, for columns of all kinds."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.kv.run.block import encode_block, layout_of, open_block
from ftfile.kv.run.block_batch import BlockBatch

COLUMNS: dict[str, Any] = {
    "key": lambda row: row,
    "wide": lambda row: b"%020d" % row,
    "short": lambda row: b"%05d" % row,
    "text": lambda row: f"number {row} " * (row % 5),
    "empty": lambda row: "" if row % 2 else "a longer value than views have",
    "null": lambda row: None if row % 3 else "x" * row,
    "number": float,
    "null number": lambda row: None if row % 3 else row,
    "flag": lambda row: row % 2 == 0,
    "amount": Decimal,
    "list": lambda row: [row] * (row % 3),
}
TABLE = pa.table({name: [made(row) for row in range(300)] for name, made in COLUMNS.items()})


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("seed", range(3))
def test_gathered_rows(name: str, seed: int) -> None:
    table = TABLE.select(["key", name] if name != "key" else ["key"])
    generator = np.random.default_rng(seed)
    bounds = [0, *sorted(generator.integers(1, 299, 4)), 300]
    (whole,) = table.combine_chunks().to_batches()
    batches = [whole.slice(start, end - start) for start, end in pairwise(bounds) if start < end]
    blocks, rows, ends, expected = [], [], [], []
    layout = layout_of(table.schema)
    for batch in batches:
        own = np.sort(generator.integers(0, batch.num_rows, 7))
        blocks.append(open_block(encode_block(batch, layout), batch.num_rows, layout, "a.spool", 0))
        rows.append(own)
        ends.append(7 * len(blocks))
        expected.append(batch.take(pa.array(own)))
    window = BlockBatch.of(blocks, layout, "a.spool", range(len(blocks)))
    found = window.gather(ends, np.concatenate(rows))
    found.validate(full=True)
    assert found.to_pylist() == [row for batch in expected for row in batch.to_pylist()]
    assert found.schema == table.schema
