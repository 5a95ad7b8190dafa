"""Batch reads: the committed snapshot of one version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ftfile.core.arguments import Access
from ftfile.core.context import cores
from ftfile.core.errors import ConfigError, NotFound
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import ReadOptions
from ftfile.log.directory import read_marker
from ftfile.read.directory import Directory
from ftfile.read.sent_rows import rows_for_spark
from ftfile.read.shared_columns import columns_of_snapshot
from ftfile.read.shares import Share, pack_columns, read_share
from ftfile.rows.spark_types import arrow_schema
from ftfile.spark.chosen_files import Chosen, choose
from ftfile.spark.filters import tree_of
from ftfile.spark.settings import TaskDirectory, absolute_options, check_shared, struct_type
from ftfile.spark.shipping import Shipped
from ftfile.storage.registry import settings_for_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import datasource
    from pyspark.sql.types import StructType

    from ftfile.core.options.typed import Use
    from ftfile.formats.api import RowFilter
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.rows.predicate import Tree


def committed_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of the version to read. Streams use it too: Spark does not pass the kind of a query."""
    try:
        opened = _open_directory(options, "follow")
    except ConfigError as error:
        if not isinstance(error.__cause__, NotFound):
            raise
        hint = "With .schema(…), a stream waits for the first commit; with fileFormat, it reads files of other programs"
        raise ConfigError(f"{error}. {hint}") from error
    return struct_type(opened.directory.spark_schema(opened.version))


def make_reader(options: Mapping[str, str], schema: StructType) -> FtFileReader:
    """Return the reader of a version; with `filterPushdown=true`, a reader that accepts filters from Spark.

    Raises:
        ConfigError: an option is wrong, or the version does not exist.
    """
    opened = _open_directory(options)
    pushes = opened.options.filter_pushdown
    if pushes:
        from ftfile.spark.pushdown import check_pushdown_enabled  # noqa: PLC0415 - imports the kernels of Arrow

        check_pushdown_enabled()
    return (_PushingReader if pushes else FtFileReader)(opened.directory, opened.version, opened.options, schema)


@dataclass
class _Files(InputPartition):
    """The share of one task in a read."""

    share: Share
    row_filter: RowFilter | None = None

    def __post_init__(self) -> None:
        super().__init__(None)


class FtFileReader(Shipped, DataSourceReader):
    """Reads the columns of `schema` by name, ignoring case as in Spark. Columns that the files do not have are null."""

    def __init__(self, directory: Directory, version: int | None, parsed: ReadOptions, schema: StructType) -> None:
        storage = tuple(settings_for_others(directory.path, parsed.options_with_prefix("storage")).items())
        self._place = TaskDirectory(
            path=directory.path,
            key_provider=parsed.key_provider,
            storage=storage,
            marker=read_marker(directory.file_system),
        )
        if version is None:
            self._version = directory.version()
        else:
            self._version = version
        self._is_old = version is not None
        self._at_least_version: int | None = parsed.at_least_version
        self._task_bytes: int = parsed.max_partition_bytes
        self._schema_json = schema.json()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task."""
        place = self._place
        directory = Directory(place.path, Access(place.key_provider, dict(place.storage), self._at_least_version))
        snapshot = directory.snapshot(self._version)
        chosen = self._chosen(directory, snapshot)
        adds = columns_of_snapshot(chosen.snapshot.adds, chosen.places)
        shares = pack_columns(adds, snapshot.definitions, self._task_bytes, cores())
        return [_Files(share, chosen.row_filter) for share in shares] or [_Files(Share())]

    def _chosen(self, directory: Directory, snapshot: Snapshot) -> Chosen:
        """Return what to read of a snapshot."""
        del directory
        return Chosen(snapshot)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files, in an executor."""
        assert isinstance(partition, _Files)
        fs, requested = self._place.open(), arrow_schema(self._schema_json)
        rows = read_share(fs, partition.share, requested, is_old=self._is_old, row_filter=partition.row_filter)
        return rows_for_spark(rows)


class _PushingReader(FtFileReader):
    """Skips parts, row groups and rows that do not match the filters. Spark applies all filters again.

    For a reader with this method, Spark requires `spark.sql.python.filterPushdown.enabled=true`.
    """

    _filters: tuple[Tree, ...] = ()

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Return the filters that Spark must apply: all of them."""
        self._filters = tuple(map(tree_of, filters))
        return filters

    def _chosen(self, directory: Directory, snapshot: Snapshot) -> Chosen:
        return choose(snapshot, self._filters, self._schema_json, directory.file_system)


class _OpenedDirectory(NamedTuple):
    """A directory, the selected version, and the options."""

    directory: Directory
    version: int | None
    options: ReadOptions


def _open_directory(options: Mapping[str, str], *also: Use) -> _OpenedDirectory:
    """Return the directory, the selected version, and the options."""
    parsed = parse_options(absolute_options(options), ReadOptions, *also)
    path = parsed.required_path(_NO_PATH)
    access = Access(parsed.key_provider, parsed.options_with_prefix("storage"), parsed.at_least_version)
    directory = Directory(path, access)
    check_shared(directory.file_system, path)
    directory.require_files()
    version, time = parsed.version_as_of, parsed.timestamp_as_of
    if version is not None and time is not None:
        raise ConfigError("versionAsOf and timestampAsOf both select the version to read: set only one of them")
    return _OpenedDirectory(directory, version if time is None else directory.version_at(time), parsed)


_NO_PATH = (
    "the reader has no `path`. Spark does not hand a catalog table's location or options to a Python source, so give "
    "the path as a read option: spark.read.format('ftfile').load('/data/out'), "
    "SELECT * FROM t WITH (path='/data/out'), spark.read.option('path', '/data/out').table('t')"
)
