"""`format("ftfile")`: what Spark calls. It is loaded just to be looked up, so heavy imports wait until needed."""

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

__all__ = ("FtFileDataSource",)


class FtFileDataSource(Shipped, DataSource):
    """Exactly-once files from streams and batches, and readers of what was committed.

    Register with `spark.dataSource.register(FtFileDataSource)`, or just install the package: Spark 4 finds it.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ftfile"

    def schema(self) -> StructType:
        """Return the schema of the newest record, or of `versionAsOf`; with `fileFormat`, of files of that format."""
        from ftfile.spark.settings import has_file_format  # noqa: PLC0415

        if has_file_format(self.options):
            from ftfile.spark.stream_reader import schema_of_files  # noqa: PLC0415

            return schema_of_files(self.options)
        from ftfile.spark.reader import committed_schema  # noqa: PLC0415

        return committed_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of one version."""
        from ftfile.spark.reader import FtFileReader  # noqa: PLC0415

        return FtFileReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of what is new in a directory."""
        from ftfile.spark.stream_reader import FtFileStreamReader  # noqa: PLC0415

        return FtFileStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write."""
        from ftfile.spark.writers import FtFileBatchWriter  # noqa: PLC0415

        return FtFileBatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch; Spark builds it for the tasks and again for the commit."""
        from ftfile.spark.writers import FtFileStreamWriter  # noqa: PLC0415

        return FtFileStreamWriter(self.options, schema, overwrite=overwrite)
