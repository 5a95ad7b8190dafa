"""`ftfile.spark.load`: a DataFrame of exactly one version."""

from __future__ import annotations

import functools
import json
import os
import pickle
import tempfile  # noqa: TID251 - for what Spark reads at once, and nothing else
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import cached_property
from ftfile.log.directory import read_marker
from ftfile.log.sealed import keys_of
from ftfile.read.directory import Directory
from ftfile.read.sent_rows import rows_for_spark
from ftfile.read.shares import pack, read_share
from ftfile.rows.spark_types import arrow_schema, quoted_name
from ftfile.spark.chosen_files import choose
from ftfile.spark.native.condition_filters import filters_of
from ftfile.spark.native.conditions import check_at_once, filter_frame
from ftfile.spark.native.groups import Ways, plan_groups
from ftfile.spark.native.listed_files import hadoop_url, reads_exactly, with_all_files, write_sink_log
from ftfile.spark.settings import TaskDirectory, absolute_options, check_shared, struct_type
from ftfile.spark.shipping import Shipped
from ftfile.storage.registry import settings_for_others

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType
    from typing_extensions import Unpack

    from ftfile.core.arguments import DirectoryArguments
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.read.selection import FilePlace
    from ftfile.read.shares import Share
    from ftfile.spark.native.readable_encodings import NativeGroup


_LEGACY = "LEGACY"

_log = get_logger(__name__)


def load(  # noqa: PLR0913 - the last by name
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    where: str | Mapping[str, object] | None = None,
    check_files: bool = True,
    statistics: bool = True,
    **access: Unpack[DirectoryArguments],
) -> DataFrame:
    """Return the rows of exactly one version, read with Spark's built-in sources if they return the same rows.

    Spark then prunes partitions, pushes filters down and skips columns. It fills `input_file_name()`, and also
    `_metadata` if one read covers all files. ftfile's reader reads the other files; a log line contains their number
    and the reasons, as `load_plan` does. Nothing is written. The DataFrame stays at its version. If a compaction, an
    overwrite or a vacuum removes its files, its next query fails: call `load` again.

    If another program replaced a file, each query that reads it fails if the length differs from the log, or if the
    time differs from an earlier query of the DataFrame. This call lists no directory.

    Args:
        spark: a session whose executors can access the path. With Spark Connect, ftfile's reader reads all files.
        path: an absolute local path, a path relative to the working directory, or a URL.
        version: the version to read; by default, the newest version.
        timestamp: read the newest version at this time instead of `version`; see `Directory.version_at`.
        where: a condition as for `DataFrame.where`, or a mapping from columns to a value, a list of values, a range of
            whole numbers, or None for null.
        check_files: before each query, Spark requests the length and time of each file that it will read. Without it,
            only the first query that reads a directory requests them, and later queries read the existing files.
        statistics: read only files whose statistics allow rows that match `where`. The rows are the same without it.
        **access: how this call opens the directory, as in `ftfile.open`.

    Raises:
        RolledBack: the newest version is before `at_least_version`.
        ConfigError: the path is not an ftfile directory, nothing was committed, the version does not exist, or `where`
            is neither text nor a mapping.
        AnalysisException: `where` names a column that does not exist.
    """
    where = check_at_once(spark, where)
    loading = _loading(spark, path, version, timestamp, Access.of(access))
    loading = replace(loading, where=where, check_files=check_files, statistics=statistics)
    return filter_frame(loading.plan().rows, where)


def load_plan(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    **access: Unpack[DirectoryArguments],
) -> LoadPlan:
    """Return how `load` reads a version. The printed plan shows the files that Spark reads, and reasons for all others.

    For the arguments and errors see `load`.
    """
    return _loading(spark, path, version, timestamp, Access.of(access)).plan()


def _loading(
    spark: SparkSession,
    path: str | os.PathLike[str],
    version: int | None,
    timestamp: str | datetime | None,
    access: Access,
) -> _Loading:
    """Return the load of a directory, which is checked to be visible to executors."""
    if version is not None and timestamp is not None:
        raise ConfigError("version and timestamp both select the version to read: give only one of them")
    place = absolute_options({"path": os.fspath(path)})["path"]
    directory = Directory(place, access)
    check_shared(directory.file_system, place)
    directory.require_files()
    if timestamp is not None:
        version = directory.version_at(timestamp)
    snapshot = directory.snapshot(version)
    if snapshot.schema is None:
        raise ConfigError(f"nothing has been committed to {directory.path!r} yet, so its columns are not known")
    return _Loading(spark=spark, directory=directory, snapshot=snapshot, access=access)


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """How a version is read.

    Attributes:
        version: the version that is read.
        rows: all rows of the version.
        spark_files: number of files that Spark's built-in sources read, by format.
        ftfile_files: number of files, and of batches of open files, that ftfile's reader reads, by reason.
    """

    path: str
    version: int
    rows: DataFrame
    spark_files: Mapping[str, int]
    ftfile_files: Mapping[str, int]

    def __str__(self) -> str:
        ways = []
        for kind, count in self.spark_files.items():
            ways.append(f"{count} {kind} files by Spark")
        for reason, count in self.ftfile_files.items():
            ways.append(f"{count} by ftfile ({reason})")
        return f"{self.path!r} version {self.version} is read: {', '.join(ways) or 'no files'}"


@dataclass(frozen=True, kw_only=True)
class _Loading:
    """The load of one snapshot."""

    spark: SparkSession
    directory: Directory
    snapshot: Snapshot
    access: Access
    where: str | Mapping[str, object] | None = None
    check_files: bool = True
    statistics: bool = True

    @property
    def schema_json(self) -> str:
        assert self.snapshot.schema is not None
        schema: str = self.snapshot.definitions[self.snapshot.schema]
        return schema

    @cached_property
    def schema(self) -> StructType:
        return struct_type(self.schema_json)

    def plan(self) -> LoadPlan:
        """Return the plan, including its rows."""
        ways = self._ways()
        frames, spark_files = [], Counter[str]()
        for group in ways.groups:
            try:
                frames.append(self._load_natively(group))
            except _NotNative as error:
                ways.leave(group.files.ids, str(error))
            else:
                spark_files[group.format] += len(group.files)
        if ways.rest:
            some = len(ways.rest) < len(self.snapshot.adds)
            is_sealed = keys_of(self.directory.file_system) is not None
            frames.append(self._by_ftfile(ways.rest) if some and not is_sealed else self._load_whole())
        if frames:
            rows = functools.reduce(lambda one, other: one.union(other), frames)
        else:
            rows = self._no_rows()
        plan = LoadPlan(
            path=self.directory.path,
            version=self.snapshot.version,
            rows=rows,
            spark_files=spark_files,
            ftfile_files=ways.reasons,
        )
        _log.info("%s", plan)
        return plan

    def _ways(self) -> Ways:
        if not hasattr(self.spark, "_jsparkSession"):
            ids = [*self.snapshot.adds]
            return Ways([], ids, Counter({"Spark Connect": len(ids)} if ids else {}))
        legacy = self.spark.conf.get("spark.sql.legacy.timeParserPolicy") == _LEGACY
        snapshot, places = self._select_possible()
        return plan_groups(self.directory, snapshot, places, legacy_times=legacy)

    def _select_possible(self) -> tuple[Snapshot, Collection[FilePlace] | None]:
        """Return the adds and the places of adds that may contain rows for which the condition is true.

        At least one add remains, because Spark's DataFrame would lack columns without a file.
        """
        adds = self.snapshot.adds
        filters = filters_of(self.spark, self.schema, self.where) if adds else []
        if not filters:
            return self.snapshot, None
        fs = self.directory.file_system if self.statistics else None
        chosen = choose(self.snapshot, filters, self.schema_json, fs)
        if chosen.snapshot.adds and (chosen.places is None or chosen.places):
            return chosen.snapshot, chosen.places
        first_id = next(iter(adds))
        return replace(self.snapshot, adds={first_id: adds[first_id]}), None

    def _no_rows(self) -> DataFrame:
        """Return a DataFrame without rows. As with files, Spark provides `_metadata`."""
        if not hasattr(self.spark, "_jsparkSession"):
            return self.spark.createDataFrame([], self.schema)
        with tempfile.TemporaryDirectory(prefix="ftfile-load-") as folder:
            return self.spark.read.schema(self.schema).parquet(f"file://{folder}")

    def _load_natively(self, group: NativeGroup) -> DataFrame:
        """Return the rows of parts, read by Spark; `_NotNative` if Spark cannot read them."""
        self._require_found(group)
        files, url = group.files, self.directory.path
        with tempfile.TemporaryDirectory(prefix="ftfile-load-") as folder:
            try:
                write_sink_log(Path(folder), url, files.samples())
                reader = self.spark.read.format(group.format).schema(struct_type(group.schema_json))
                frame = reader.options(**group.options).load(f"file://{folder}")
            except PySparkException as error:
                raise _NotNative(f"Spark refuses them: {str(error).splitlines()[0]}") from error
            if not reads_exactly(frame, len(files.texts), group.partition_by):
                raise _NotNative("the session has its own reader of sink logs or formats")
            content = Path(folder, "files")
            with content.open("wb") as out:
                out.writelines(files.encode(url))
            try:
                frame = with_all_files(frame, content, files.size_bytes, compare=self.check_files)
            except Exception as error:
                raise _NotNative(f"Spark cannot list them: {_first_line(error)}") from error
        columns = self._columns(group)
        if columns is None:
            return frame
        return frame.select(*columns)

    def _require_found(self, group: NativeGroup) -> None:
        """Raise `_NotNative` if Spark's file systems do not find one of the parts of a group.

        Preferably, a non-ASCII path is requested, which a JVM with another character set does not find.
        """
        sample = min(group.files.samples(), key=lambda file: file.path.isascii())
        jvm: Any = self.spark._jvm  # noqa: SLF001 - what follows has no other way
        session: Any = self.spark._jsparkSession  # noqa: SLF001
        try:
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(hadoop_url(self.directory.path, sample.path)))
            size_bytes = path.getFileSystem(session.sessionState().newHadoopConf()).getFileStatus(path).getLen()
        except Exception as error:
            raise _NotNative(f"Spark's file systems do not find them: {_first_line(error)}") from error
        if size_bytes != sample.size_bytes:
            raise _NotNative("Spark's file systems have other files")

    def _columns(self, group: NativeGroup) -> list[Column] | None:
        """Return the version's columns, computed from the columns of a group; None if they are the same."""
        fields = json.loads(self.schema_json)["fields"]
        file_types = {field["name"]: field["type"] for field in json.loads(group.schema_json)["fields"]}
        if [(field["name"], field["type"]) for field in fields] == list(file_types.items()):
            return None
        columns = []
        for field in self.schema:
            if field.name in file_types:
                column = F.col(quoted_name(field.name))
            else:
                column = F.lit(None)
            columns.append(column.cast(field.dataType).alias(field.name))
        return columns

    def _load_whole(self) -> DataFrame:
        """Return all rows, read with `format("ftfile")`."""
        options = {f"storage.{name}": text for name, text in self.access.settings.items()}
        if self.access.key_provider is not None:
            options["keyProvider"] = self.access.key_provider
        reader = self.spark.read.format("ftfile").option("versionAsOf", self.snapshot.version).options(**options)
        return reader.load(self.directory.path)

    def _by_ftfile(self, add_ids: Iterable[str]) -> DataFrame:
        """Return the rows of some adds, read by ftfile."""
        chosen = set(add_ids)
        adds = [add for add in self.snapshot.adds.values() if add.id in chosen]
        shares = pack(adds, self.snapshot.definitions)
        storage = tuple(settings_for_others(self.directory.path, self.access.settings).items())
        place = TaskDirectory(
            path=self.directory.path,
            key_provider=self.access.key_provider,
            storage=storage,
            marker=read_marker(self.directory.file_system),
        )
        task = _Task(place, self.schema_json, shares[0])

        def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return rows_for_spark(task.read(batches))

        # One partition for each share. The data in common is sent to all tasks, and a share only to its task.
        own_shares = self.spark.sparkContext.parallelize([(pickle.dumps(share),) for share in shares], len(shares))
        return self.spark.createDataFrame(own_shares, "share binary").mapInArrow(rows, self.schema)


class _NotNative(Exception):
    """Spark cannot read some parts: the reason, as a log line shows it."""


class _Task(Shipped):
    """The reader of shares of adds in an executor."""

    def __init__(self, place: TaskDirectory, schema_json: str, like: Share) -> None:
        self._place = place
        self._schema_json = schema_json
        self._like = like  # the executor's ftfile must have the same fields as one of the pickled shares

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the pickled shares in batches."""
        fs, schema = self._place.open(), arrow_schema(self._schema_json)
        for batch in batches:
            for share in map(pickle.loads, batch.column(0).to_pylist()):
                yield from read_share(fs, share, schema)


def _first_line(error: Exception) -> str:
    """Return the first line of an error, or of the Java exception that it wraps."""
    return (str(getattr(error, "java_exception", error)).strip() or type(error).__name__).splitlines()[0]
