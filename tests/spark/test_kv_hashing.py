"""Hashes of rows are equal to Spark's `xxhash64`, and buckets to its `pmod`."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from ftfile.kv.hashing import buckets_of, hash_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import Table
    from pyspark.sql import SparkSession

TYPES = {
    "text": "string",
    "bytes": "binary",
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "number": "int",
    "long": "bigint",
    "day": "date",
    "time": "timestamp",
    "plain": "timestamp_ntz",
    "price": "decimal(18,3)",
    "few": "decimal(4,1)",
}
START = datetime.datetime(1900, 1, 1)  # noqa: DTZ001 - a local time


def rows(seed: int) -> list[tuple[object, ...]]:
    """Rows with texts and bytes of each length up to 100, the limits of every type, and nulls."""
    generator = random.Random(seed)
    found = []
    for length in [*range(101), *range(101)]:
        moment = START + datetime.timedelta(microseconds=generator.randrange(2**52))
        row = [
            "".join(generator.choice("aZ09 ßü€") for _ in range(length)),
            generator.randbytes(length),
            generator.random() < 0.5,
            *(
                generator.choice([-(2**bits), -1, 0, 1, 2**bits - 1, generator.randrange(-(2**bits), 2**bits)])
                for bits in (7, 15, 31, 63)
            ),
            moment.date(),
            moment,
            moment,
            Decimal(generator.randrange(-(10**18) + 1, 10**18)).scaleb(-3),
            Decimal(generator.randrange(-9999, 10000)).scaleb(-1),
        ]
        if generator.random() < 0.2:
            row[generator.randrange(len(row))] = None
        found.append(tuple(row))
    return found


def test_hashes_of_every_type_and_of_several_columns(spark: SparkSession, seed: int) -> None:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in TYPES.items())
    frame = spark.createDataFrame(rows(seed), schema).coalesce(1)
    lists = [*([name] for name in TYPES), ["text", "long"], ["tiny", "bytes", "time", "price"], [*TYPES]]
    expressions = [f"xxhash64({', '.join(f'`{name}`' for name in names)}) AS h{n}" for n, names in enumerate(lists)]
    buckets = "pmod(xxhash64(`text`, `long`), 16) AS bucket"
    table: Table = frame.selectExpr("*", *expressions, buckets).toArrow().combine_chunks()
    column: dict[str, pa.Array] = {name: table.column(name).chunk(0) for name in table.schema.names}
    for number, names in enumerate(lists):
        hashes = hash_rows([column[name] for name in names])
        assert hashes.view(np.int64).tolist() == column[f"h{number}"].to_pylist(), names
    found = buckets_of(hash_rows([column["text"], column["long"]]), 16)
    assert found.tolist() == column["bucket"].to_pylist()
