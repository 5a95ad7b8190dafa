"""The data sources `format("ftfile")` and `format("ftkv")`, as registered with Spark.

Spark also loads this module only to find a source by name, so expensive imports are deferred.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from ftfile.spark.shipping import Shipped, SourceType
from ftfile.spark.workers.tuning import importing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class _LazySource(Shipped, DataSource, metaclass=SourceType):
    """A source whose classes are named as `module:class` below `ftfile.spark`. Each is imported at its first use."""

    FORMAT: ClassVar[str]
    READER: ClassVar[str]  # of one version; with `filterPushdown=true`, it accepts filters from Spark
    STREAM_READER: ClassVar[str]
    WRITER: ClassVar[str]  # of a batch write
    STREAM_WRITER: ClassVar[str]  # of one micro-batch; Spark creates it for the tasks and again for the commit

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return cls.FORMAT

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of one version."""
        source_reader: DataSourceReader = _import_named(self.READER)(self.options, schema)
        return source_reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of new rows."""
        source_reader: DataSourceStreamReader = _import_named(self.STREAM_READER)(self.options, schema)
        return source_reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write."""
        source_writer: DataSourceWriter = _import_named(self.WRITER)(self.options, schema, overwrite=overwrite)
        return source_writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of one micro-batch."""
        source_writer: DataSourceStreamWriter = _import_named(self.STREAM_WRITER)(
            self.options, schema, overwrite=overwrite
        )
        return source_writer


class FtFileDataSource(_LazySource):
    """Exactly-once files from streams and batches, and readers of committed rows.

    Register it with `spark.dataSource.register(FtFileDataSource)`. If the package is installed, Spark 4 also finds it
    automatically.
    """

    FORMAT = "ftfile"
    READER = "reader:make_reader"
    STREAM_READER = "stream_reader:FtFileStreamReader"
    WRITER = "file_writers:FtFileBatchWriter"
    STREAM_WRITER = "file_writers:FtFileStreamWriter"

    def schema(self) -> StructType:
        """Return the schema of the newest record or of `versionAsOf`; with `fileFormat`, of files of other programs."""
        is_of_others = _import_named("settings:has_file_format")(self.options)
        find = _import_named("stream_reader:schema_of_files" if is_of_others else "reader:committed_schema")
        spark_schema: StructType = find(self.options)
        return spark_schema


class FtKvDataSource(_LazySource):
    """Exactly-once upserts into keyed stores from streams and batches, and readers of a version or of the changes.

    Register it with `spark.dataSource.register(FtKvDataSource)`. If the package is installed, Spark 4 also finds it
    automatically.
    """

    FORMAT = "ftkv"
    READER = "store_reader:make_reader"
    STREAM_READER = "store_reader:FtKvStreamReader"  # of the change feed; its columns differ from the store's
    WRITER = "store_writers:FtKvBatchWriter"
    STREAM_WRITER = "store_writers:FtKvStreamWriter"

    def schema(self) -> StructType:
        """Return the key columns, then the value columns of the version to read; or the columns of the change feed."""
        is_of_changes = _import_named("store_reader:reads_changes")(self.options)
        find = _import_named("store_reader:schema_of_changes" if is_of_changes else "store_reader:stored_schema")
        spark_schema: StructType = find(self.options)
        return spark_schema


def _import_named(name: str) -> Any:  # noqa: ANN401 - classes and functions
    """Return a class or function from its name `module:name` below `ftfile.spark`."""
    with importing():
        return pkgutil.resolve_name(f"ftfile.spark.{name}")
