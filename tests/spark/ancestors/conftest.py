"""Ends the operator of a test with the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.ancestors.operators import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def operator(spark: SparkSession, paths: dict[str, Any]) -> Iterator[Callable[..., Operator]]:
    """Make the operator of a test from the arguments of `Operator` after the first two."""
    made: list[Operator] = []

    def make(*args: Any, **options: Any) -> Operator:
        made.append(Operator(spark, paths, *args, **options))
        return made[-1]

    # Failing attempts must have written rows before they fail.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    yield make
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    for each in made:
        each.crash()
