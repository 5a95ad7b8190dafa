"""The options that choose buckets, checked against the schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.attempt.options import column_named
from ftfile.core.errors import ConfigError, SchemaError, UserCodeError
from ftfile.encoding.partitions.paths import check_partition_column
from ftfile.sink.buckets.bucketers import Bucketer, FileNames, PartitionColumn, Refuse, UserBucketer
from ftfile.sink.buckets.pattern import BucketPattern
from ftfile.sink.buckets.router import Router

if TYPE_CHECKING:
    from ftfile.core.options import ParsedOptions
    from ftfile.sink.naming.settings import PathCheck


@dataclass(frozen=True, slots=True)
class Bucketing:
    """How rows are dealt to buckets; the directories of each option lie below those of the one before."""

    partition_by: tuple[str, ...]  # columns in their schema's spelling
    pattern: BucketPattern | None  # of directories by date and time
    user_class: str | None  # `module:Class`, which gives directories, or paths of files
    user_options: tuple[tuple[str, str], ...]  # of the class: `bucketer.<name>` by name
    file_name: str | None  # the column with paths of files
    time_zone: str  # of timestamps in directory names
    stem_bytes_max: int  # of the part of a file's name that rows say

    @classmethod
    def from_options(cls, parsed: ParsedOptions, schema: pa.Schema, stem_bytes_max: int) -> Bucketing:
        """Return the options, checked against the schema and each other."""
        partition_by = _partition_columns(parsed["partitionBy"], schema)
        named, pattern = parsed["fileNameColumn"], parsed["bucketPattern"]
        if (file_name := named) is not None:
            file_name = column_named("fileNameColumn", named, schema, pa.types.is_string, "a string")
        if file_name in partition_by:
            raise ConfigError(
                f"partitionBy and fileNameColumn both name {file_name!r}: a column chooses one or the other"
            )
        left = [name for name in schema.names if name not in partition_by and name != file_name]
        if not left:
            names = "partitionBy and fileNameColumn name" if file_name else "partitionBy names"
            raise SchemaError(f"{names} every column: at least one must be left for the files")
        return cls(
            partition_by=partition_by,
            pattern=None if pattern is None else BucketPattern.parse(pattern, schema, parsed["timeZone"]),
            user_class=_user_class(parsed, schema),
            user_options=tuple(sorted(parsed.prefixed("bucketer").items())),
            file_name=file_name,
            time_zone=parsed["timeZone"],
            stem_bytes_max=stem_bytes_max,
        )

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the columns that are not in the files, since the buckets say them."""
        return (*self.partition_by, self.file_name) if self.file_name else self.partition_by

    @property
    def is_single(self) -> bool:
        """Return True if all rows go to one bucket, the directory itself."""
        return not (self.partition_by or self.pattern or self.user_class or self.file_name)

    def definition(self) -> dict[str, Any]:
        """Return the definition by which readers find these columns in a bucket."""
        definition: dict[str, Any] = {"partitionBy": list(self.partition_by), "timeZone": self.time_zone}
        if self.file_name:
            above = len(self.partition_by) + (self.pattern.depth if self.pattern else 0)
            definition["fileName"] = {"column": self.file_name, "directoriesAbove": above}
        return definition

    def end_ms(self, directory: str) -> int | None:
        """Return the end of the time that a directory stands for, milliseconds since 1970 UTC; None without a time."""
        if self.pattern is None:
            return None
        start = len(self.partition_by)
        return self.pattern.end_ms("/".join(directory.split("/")[start : start + self.pattern.depth]))

    def only_directory(self, planned_ms: int) -> str:
        """Return the directory of all rows of a batch that was planned then; empty where they choose their own."""
        if self.pattern is None or self.leaving or self.user_class is not None:
            return ""
        only = self.pattern.at(planned_ms).only
        return "" if only is None else only.directory

    def router(self, refuse: Refuse, planned_ms: int, path_check: PathCheck | None = None) -> Router:
        """Return the router of one task's rows, for a batch that was planned then; see `Router`."""
        bucketers: list[Bucketer] = [PartitionColumn(column, self.time_zone) for column in self.partition_by]
        if self.pattern is not None:
            bucketers.append(self.pattern.at(planned_ms))
        if self.user_class is not None:
            bucketers.append(UserBucketer(self.user_class, dict(self.user_options), self.stem_bytes_max))
        if self.file_name is not None:
            bucketers.append(FileNames(self.file_name, self.stem_bytes_max))
        return Router(bucketers, refuse, path_check)


def _user_class(parsed: ParsedOptions, schema: pa.Schema) -> str | None:
    """Return the class, which was made once and asked for the buckets of no rows."""
    name, options = parsed["bucketer"], parsed.prefixed("bucketer")
    if name is None and options:
        raise ConfigError(f"bucketer.{next(iter(options))} is for a class of your own, and option bucketer names none")
    if name is not None and parsed["fileNameColumn"] is not None:
        raise ConfigError(
            "bucketer and fileNameColumn both say in which file a row goes: let the class return the names, with "
            "names_files = True, and leave out fileNameColumn"
        )
    if name is not None:
        try:
            UserBucketer(name, options).assign(pa.RecordBatch.from_pylist([], schema=schema))
        except UserCodeError as error:
            raise ConfigError(f"asked for the buckets of no rows, {error}") from error
    return None if name is None else str(name)


def _partition_columns(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in schema.names}
    unknown = [name for name in names if name.lower() not in spelling]
    if unknown:
        raise ConfigError(
            f"partitionBy names no column: {', '.join(unknown)}; the columns are {', '.join(schema.names)}"
        )
    columns = tuple(spelling[name.lower()] for name in names)
    for column in columns:
        check_partition_column(schema.field(column))
    return columns
