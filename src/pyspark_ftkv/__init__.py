"""The module in which Spark finds the data source `format("ftkv")`, because its name begins with `pyspark_`.

One module of such a name that fails to import hides every Python data source, so this one imports the least it can.
SPARK-45917 defines this search.
"""

from __future__ import annotations

from ftfile.spark.datasource import FtKvDataSource as DefaultSource

__all__ = ("DefaultSource",)
