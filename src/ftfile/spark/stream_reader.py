"""Streaming reads: the new rows of an ftfile directory, version by version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import DirectoryMarker, check_marker
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.context import SYSTEM
from ftfile.core.logs import get_logger
from ftfile.core.options import parse_options
from ftfile.fs.registry import open_filesystem, settings_for_others
from ftfile.source.follow.offsets import START
from ftfile.source.follow.settings import Limits
from ftfile.source.follow.stream import FollowConfig, FollowStream
from ftfile.source.shares import Share, read_share
from ftfile.spark.settings import absolute_options, require_shared
from ftfile.spark.shipping import Shipped

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 have none of them

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """In their place."""

    ReadAllAvailable = None  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ("FtFileStreamReader",)

_log = get_logger(__name__)


@dataclass
class _SharePartition(InputPartition):
    """The share of one task. Spark ships the reader once per run: all that is found out later comes with this."""

    share: Share
    marker: DirectoryMarker | None

    def __post_init__(self) -> None:
        super().__init__(None)


class FtFileStreamReader(Shipped, SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Follows a directory. Spark builds it in a process that it asks for offsets, and in one that ships it to tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        config = FollowConfig.from_options(parse_options(absolute_options(options), "follow"), schema.json())
        require_shared(open_filesystem(config.path, SYSTEM, config.storage), config.path)
        self._config = config
        self._storage_of_tasks = settings_for_others(config.path, config.storage)
        self._stream: FollowStream | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return a constant: Spark asks for it again when it repeats the first batch."""
        return dict(START)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: ANN401
        """Return the end of the next batch; Spark 4.0 and 4.1 give no arguments."""
        reads_all = ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable)
        return self._followed().latest_offset(start, limited=not reads_all)

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401 - Spark 4.0 and 4.1 do not have the class
        """Return some limit if there are any, which Spark hands back; what counts are the options."""
        return ReadAllAvailable() if self._config.settings.limits == Limits() else ReadMaxRows(1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read nothing that is committed from now on."""
        self._followed().stop_at_head()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog, which Spark shows as the latest offset in its progress."""
        return self._followed().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the share of each task."""
        stream = self._followed()
        return [_SharePartition(share, stream.marker) for share in stream.shares(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files, in an executor."""
        assert isinstance(partition, _SharePartition), f"another reader's partition: {partition!r}"
        config = self._config
        fs = open_with_keys(config.path, SYSTEM, config.key_provider, self._storage_of_tasks.items())
        check_marker(fs, config.path, partition.marker)
        return read_share(fs, partition.share, arrow_schema(config.schema_json))

    def _followed(self) -> FollowStream:
        if self._stream is None:
            self._stream = FollowStream(self._config, SYSTEM)
            if ReadAllAvailable is None and self._config.settings.limits != Limits():
                _log.warning("on this Spark, trigger(availableNow=True) ends after one batch of the limits' size")
        return self._stream
