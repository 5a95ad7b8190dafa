"""Batch reads: the snapshot of one version, and nothing that is not committed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ftfile.arrays.spark_types import arrow_schema
from ftfile.attempt.directory_marker import check_marker, read_marker
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, NotFound
from ftfile.core.options import ParsedOptions, parse_options
from ftfile.fs.registry import settings_for_others
from ftfile.parts.reader import read_add, recorded_names
from ftfile.source.directory import Directory
from ftfile.source.shares import pack
from ftfile.spark.settings import absolute_options, require_shared
from ftfile.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.commit.format.model import Add
    from ftfile.core.options.parse import Use

__all__ = ("FtFileReader", "committed_schema")


def committed_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of the version to be read, or of the newest one for a stream; Spark does not say for which."""
    try:
        directory, version, _ = _opened(options, "read", "follow")
    except ConfigError as error:
        if not isinstance(error.__cause__, NotFound):
            raise
        hint = "A stream may wait for the first commit with .schema(…), and reads files of others with fileFormat"
        raise ConfigError(f"{error}. {hint}") from error
    return StructType.fromJson(json.loads(directory.spark_schema(version)))


@dataclass
class _Files(InputPartition):
    """The share of one task in a read."""

    adds: tuple[Add, ...]
    encodings: dict[str, Any]
    columns: tuple[str, ...] = ()  # the log's names of the requested ones, in their order

    def __post_init__(self) -> None:
        super().__init__(None)


class FtFileReader(Shipped, DataSourceReader):
    """Reads the columns of `schema` by name, case aside as in Spark; one that the files do not have is null."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        directory, version, parsed = _opened(options, "read")
        self._path = directory.path
        self._key_provider: str | None = parsed["keyProvider"]
        self._storage = settings_for_others(self._path, parsed.prefixed("storage"))
        self._version = directory.version() if version is None else version
        self._is_old = version is not None
        self._schema_json = schema.json()
        self._marker = read_marker(directory.file_system)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the share of each task."""
        snapshot = Directory(self._path, self._key_provider, self._storage, SYSTEM).snapshot(self._version)
        recorded = arrow_schema(snapshot.definitions[snapshot.schema]).names if snapshot.schema is not None else []
        columns = recorded_names(recorded, arrow_schema(self._schema_json).names)
        return [
            _Files(adds, {add.encoding: snapshot.definitions[add.encoding] for add in adds}, columns)
            for adds in pack(snapshot.adds.values())
        ] or [_Files((), {})]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files, in an executor."""
        assert isinstance(partition, _Files)
        fs = open_with_keys(self._path, SYSTEM, self._key_provider, self._storage.items())
        check_marker(fs, self._path, self._marker)
        requested = arrow_schema(self._schema_json)
        recorded = pa.schema([field.with_name(name) for name, field in zip(partition.columns, requested, strict=False)])
        for add in partition.adds:
            for batch in read_add(fs, add, partition.encodings[add.encoding], recorded, is_old=self._is_old):
                yield batch.rename_columns(requested.names)


def _opened(options: Mapping[str, str], *uses: Use) -> tuple[Directory, int | None, ParsedOptions]:
    """Return the directory, the version that the options name, and the options."""
    parsed = parse_options(absolute_options(options), *uses)
    if parsed["path"] is None:
        raise ConfigError(_NO_PATH)
    directory = Directory(parsed["path"], parsed["keyProvider"], parsed.prefixed("storage"), SYSTEM)
    require_shared(directory.file_system, parsed["path"])
    directory.require_files()
    version, time = parsed["versionAsOf"], parsed["timestampAsOf"]
    if version is not None and time is not None:
        raise ConfigError("versionAsOf and timestampAsOf both say which version to read: set one of them")
    return directory, version if time is None else directory.version_at(time), parsed


_NO_PATH = (
    "the reader has no `path`. Spark does not hand a catalog table's location or options to a Python source, so give "
    "the path as a read option: spark.read.format('ftfile').load('/data/out'), "
    "SELECT * FROM t WITH (path='/data/out'), spark.read.option('path', '/data/out').table('t')"
)
