"""Local times in conditions are the same moments that Spark computes in a session of the zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.rows.test_moments import MOMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("zone", sorted({zone for zone, _, _ in MOMENTS}))
def test_moments_are_those_of_spark(spark: SparkSession, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    cases = [(moment, literal) for each, moment, literal in MOMENTS if each == zone]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        (found,) = spark.sql("select " + ", ".join(f"({moment}) = {literal}" for moment, literal in cases)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [case for case, same in zip(cases, found, strict=True) if not same] == []
