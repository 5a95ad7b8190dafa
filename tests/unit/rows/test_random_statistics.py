"""Statistics of random values are equal to those of a second implementation."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.micro_batch import spark_schema
from tests.kit import file_statistics, reference_statistics
from tests.kit.random_conditions import COLUMNS, NESTED

LAST = "\U0010ffff"


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in NESTED])
def test_random_values_have_the_entry_of_a_second_implementation(seed: int, name: str) -> None:
    dice = random.Random(f"{seed} {name}")
    kind = arrow_schema(spark_schema({"x": COLUMNS[name][0]})).field("x").type
    values: list[Any] = [None, *COLUMNS[name][1]]
    if pa.types.is_string(kind):
        values += ["x" * 32, "x" * 33, "x" * 31 + LAST * 3, LAST * 40, "\ud7ff" * 33, "\ue000"]
    if pa.types.is_binary(kind):
        values += [b"a" * 33, b"a\x00", b"\xff" * 31 + b"a" * 9, b"\xff" * 40, b"\x80"]
    for _ in range(50):
        few = dice.choices(values, k=dice.choice([0, 1, 2, 3, 9]))
        assert repr(file_statistics.entry_of(few, kind)) == repr(reference_statistics.entry_of(few, kind)), few
