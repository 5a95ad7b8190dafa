"""The rows of `pywrite`, which imports no library that it compares."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ("SCHEMA", "rows_between")

FIRST_EVENT_US = 1_700_000_000_000_000
KINDS = pa.array([f"kind-{number}" for number in range(16)])
CITIES = pa.array([f"city {number} of a country" for number in range(1_000)])
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "event_time": pa.timestamp("us", "UTC"),
        "kind": pa.string(),
        "city": pa.string(),
        "price": pa.float64(),
        "reading": pa.float64(),
        "quantity": pa.int32(),
    }
)


def rows_between(start: int, end: int) -> pa.Table:
    """Return the rows with the ids of a range, of about 70 bytes: the same for the same range."""
    random, count = np.random.default_rng(start), end - start
    columns = [
        np.arange(start, end),
        pa.array(FIRST_EVENT_US + np.arange(start, end) * 1_000 + random.integers(0, 1_000, count)),
        KINDS.take(pa.array(random.integers(0, len(KINDS), count))),
        CITIES.take(pa.array(random.integers(0, len(CITIES), count))),
        random.integers(0, 100_000, count) / 100,
        random.normal(20, 5, count),
        random.integers(0, 1_000, count, np.int32),
    ]
    arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
