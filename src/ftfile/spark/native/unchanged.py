"""The check, as each query begins, that Spark reads the files that were listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_REMEDY = (
    " bytes. Another program has put another file there since ftfile.spark.load: call it again, which finds out what "
    "was recorded"
)
# Its rows are what Hadoop says of files when a task begins; it opens none where their content is not asked for.
_FORMAT = "binaryFile"
_OPTIONS = {"recursiveFileLookup": "true", "ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


def unchanged(spark: SparkSession, log_url: str, *, times: bool) -> Column:
    """Return the condition, once for a whole query, that no file of a sink's log is another one by now.

    It is true, or fails as it is computed, before the first task of the query: for a file of another length, with
    `times` also of another second of change, and for one that is not there.
    """
    files = spark.read.format(_FORMAT).options(**_OPTIONS).load(log_url)
    known, changed = F.col("_metadata.file_size"), F.col("_metadata.file_modification_time")
    differs = F.col("length") != known
    if times:
        differs |= F.unix_seconds("modificationTime") != F.unix_seconds(changed)
    text = F.concat("path", F.lit(": it had "), known, F.lit(" bytes, and has "), "length", F.lit(_REMEDY))
    failing = files.where(differs).select(F.max(F.raise_error(text).cast("boolean")))
    # Sources are given no such condition; Spark's reader of JSON fails by one that is true and names no column.
    return F.coalesce(failing.scalar(), F.lit(True))  # noqa: FBT003 - a literal
