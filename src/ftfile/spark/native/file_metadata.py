"""`_metadata` of rows that come from several reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.spark.native.conditions import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

_NAME = "_metadata"
# All of Spark's sources fill these.
_FIELDS = {
    "file_path": "string",
    "file_name": "string",
    "file_size": "bigint",
    "file_block_start": "bigint",
    "file_block_length": "bigint",
    "file_modification_time": "timestamp",
}


def union(by_spark: Sequence[DataFrame], by_ftfile: Sequence[DataFrame], names: Sequence[str]) -> DataFrame:
    """Return the rows of several reads of the same columns; `_metadata` is null where Spark does not fill it."""
    if _NAME in map(str.lower, names):
        return functools.reduce(_union, [*by_spark, *by_ftfile])
    columns = [F.col(quoted(name)) for name in names]
    filled = F.struct(*(F.col(f"{_NAME}.{name}") for name in _FIELDS))
    null = F.lit(None).cast(f"struct<{', '.join(f'{name}: {kind}' for name, kind in _FIELDS.items())}>")
    frames = [frame.select(*columns, filled.alias(_NAME)) for frame in by_spark]
    frames += [frame.select(*columns, null.alias(_NAME)) for frame in by_ftfile]
    rows = functools.reduce(_union, frames).select(*columns)
    # A join by names hides columns in this way: they are found by their names, and are no part of `*`.
    plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - nothing else hides a column
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001
    hidden = plan.child().output().takeRight(1)
    plan.setTagValue(jvm.org.apache.spark.sql.catalyst.plans.logical.Project.hiddenOutputTag(), hidden)
    return rows


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.union(other)
