"""`format("ftkv")`: what Spark calls. It is loaded just to be looked up, so heavy imports wait until needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from ftfile.spark.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ("FtKvDataSource",)


class FtKvDataSource(Shipped, DataSource):
    """Exactly-once upserts into keyed stores from streams and batches, readers of one version, and of changes.

    Register with `spark.dataSource.register(FtKvDataSource)`, or just install the package: Spark 4 finds it.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ftkv"

    def schema(self) -> StructType:
        """Return key columns, then value columns, of the version to be read; or the columns of the change feed."""
        from ftfile.spark.store_changes import reads_changes, schema_of_changes  # noqa: PLC0415
        from ftfile.spark.store_reader import stored_schema  # noqa: PLC0415

        return schema_of_changes(self.options) if reads_changes(self.options) else stored_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of one version; with `filterPushdown=true`, one to which Spark gives filters."""
        from ftfile.spark.store_reader import make_reader  # noqa: PLC0415

        return make_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of the changes of a store; Spark cannot be told others by the columns alone."""
        from ftfile.spark.store_changes import FtKvStreamReader  # noqa: PLC0415

        return FtKvStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write."""
        from ftfile.spark.store_writers import FtKvBatchWriter  # noqa: PLC0415

        return FtKvBatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch; Spark builds it for the tasks and again for the commit."""
        from ftfile.spark.store_writers import FtKvStreamWriter  # noqa: PLC0415

        return FtKvStreamWriter(self.options, schema, overwrite=overwrite)
