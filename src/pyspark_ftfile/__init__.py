"""Makes `format("ftfile")` known to Spark: it looks for `DefaultSource` in top-level modules named `pyspark_*`.

One module of that name that fails to import hides every Python data source, so this one imports the least it can.
SPARK-45917 defines this search.
"""

from __future__ import annotations

from ftfile.spark.datasource import FtFileDataSource as DefaultSource

__all__ = ("DefaultSource",)
