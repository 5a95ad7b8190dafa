"""Streaming reads of the new rows of an ftfile directory, or of files of other programs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import DirectoryFollowOptions, FilesOptions
from ftfile.read.log_planner import FollowConfig
from ftfile.read.log_positions import START
from ftfile.read.new_rows import FollowStream
from ftfile.read.sent_rows import rows_for_spark
from ftfile.read.shares import Share, read_share
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from ftfile.source.decode import rows_of_share
from ftfile.source.plan import FileShare
from ftfile.source.settings import FileDecoding, default_schema, require_columns
from ftfile.source.stream import SourceConfig, SourceStream
from ftfile.spark.settings import TaskDirectory, absolute_options, check_shared, has_file_format, struct_type
from ftfile.spark.shipping import Shipped
from ftfile.storage.registry import open_filesystem, settings_for_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ftfile.kv.feed import FeedStream
    from ftfile.kv.feed_rows import FeedShare
    from ftfile.log.directory import DirectoryMarker


try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 do not have these classes: SPARK-55304

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replacement for the class of later Spark versions."""

    ReadAllAvailable = None  # type: ignore[assignment,misc]


_log = get_logger(__name__)

# Spark polls an idle source a hundred times a second. While a source waits, the query's other sources also wait.
_IDLE_WAIT_S = 0.1


@dataclass
class SharePartition(InputPartition):
    """The share of one task. Spark sends the reader once per run, so later data is sent with the share."""

    share: Share | FileShare | FeedShare
    marker: DirectoryMarker | None

    def __post_init__(self) -> None:
        super().__init__(None)


def schema_of_files(options: Mapping[str, str]) -> StructType:
    """Return the columns of files of other programs whose format has fixed columns.

    Raises:
        ConfigError: an option is wrong, or the columns of the files are unknown.
    """
    decoding = FileDecoding.from_options(parse_options(absolute_options(options), FilesOptions).given)
    schema = default_schema(decoding)
    if schema is not None:
        return struct_type(spark_schema_json(schema))
    raise ConfigError(
        f"the columns of fileFormat={decoding.file_format} are not known: give them to the stream, as in "
        "spark.readStream.format('ftfile').schema('id long, word string'). They are never inferred from the files, "
        "which may not exist yet"
    )


class StreamReader(Shipped, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Reads new rows. Spark creates it in the process that plans batches, and in another that sends it to tasks."""

    def __init__(self, config: FollowConfig | SourceConfig, storage_of_tasks: dict[str, str]) -> None:
        self._config = config
        self._storage_of_tasks = storage_of_tasks
        self._stream: FollowStream | SourceStream | FeedStream | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant, because Spark requests the offset again if it repeats the first batch."""
        return dict(START)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401
        """Return the end offset of the next batch. Spark passes no arguments before 4.2 (SPARK-55304)."""
        reads_all = ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable)
        return self._open_stream().latest_offset(start, limited=not reads_all)

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401 - Spark 4.0 and 4.1 do not have the class
        """Return any limit if the options have limits. Spark passes it back, and the options are applied."""
        if self._config.settings.has_limits:
            return ReadMaxRows(1)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only the rows that exist now."""
        self._open_stream().stop_at_head()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog, which Spark reports as the latest offset in its progress."""
        return self._open_stream().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the share of each task."""
        stream = self._open_stream()
        shares: Sequence[Share | FileShare | FeedShare] = stream.shares(start, end)
        marker = None if isinstance(stream, SourceStream) else stream.marker
        return [SharePartition(share, marker) for share in shares]

    def commit(self, end: dict[str, Any]) -> None:
        """Note that batches up to an offset will not be repeated."""
        self._open_stream().commit(end)

    @abstractmethod
    def _open(self) -> FollowStream | SourceStream | FeedStream:
        """Return the stream of the configuration."""

    def _open_stream(self) -> FollowStream | SourceStream | FeedStream:
        if self._stream is None:
            self._stream = self._open()
            if ReadAllAvailable is None and self._config.settings.has_limits:
                _log.warning(
                    "on this version of Spark, trigger(availableNow=True) ends after one batch within the limits"
                )
        return self._stream


class FtFileStreamReader(StreamReader):
    """Reads files of other programs if `fileFormat` is set; otherwise, follows an ftfile directory."""

    _config: FollowConfig | SourceConfig

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        raw = absolute_options(options)
        config: FollowConfig | SourceConfig
        if has_file_format(raw):
            config = SourceConfig.from_options(parse_options(raw, FilesOptions), schema.json())
            columns = arrow_schema(config.schema_json)
            require_columns(columns, config.settings.decoding, may_be_in_paths=len(columns) > 1)
        else:
            config = FollowConfig.from_options(parse_options(raw, DirectoryFollowOptions), schema.json())
        root = config.settings.root if isinstance(config, SourceConfig) else config.path
        check_shared(open_filesystem(root, SYSTEM, config.storage), root)
        super().__init__(config, settings_for_others(root, config.storage))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files, in an executor."""
        assert isinstance(partition, SharePartition), f"another reader's partition: {partition!r}"
        config, share = self._config, partition.share
        requested = arrow_schema(config.schema_json)
        if isinstance(config, SourceConfig):
            assert isinstance(share, FileShare), f"a share of another source: {share!r}"
            fs = open_filesystem(share.root, SYSTEM, self._storage_of_tasks)
            return rows_for_spark(rows_of_share(fs, share, requested, config.settings.decoding))
        assert isinstance(share, Share), f"a share of another source: {share!r}"
        place = TaskDirectory(
            path=config.path,
            key_provider=config.key_provider,
            storage=tuple(self._storage_of_tasks.items()),
            marker=partition.marker,
        )
        return rows_for_spark(read_share(place.open(), share, requested))

    def _open(self) -> FollowStream | SourceStream:
        config = self._config
        if isinstance(config, SourceConfig):
            return SourceStream(config, SYSTEM, _IDLE_WAIT_S)
        return FollowStream(config, SYSTEM)
