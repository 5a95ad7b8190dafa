"""The options of a sink for files, which the driver checks once, and the settings that it sends to the tasks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.core.per_process import cached_property
from ftfile.filters.chain import Chain, chain_from_options
from ftfile.formats.api import Format, LineFormat, format_from_options
from ftfile.formats.partition_paths import partition_schema
from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.log.directory import directory_url
from ftfile.log.format.record import definition_key
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.rows.statistics.columns import first_columns, named_columns
from ftfile.writing.files.directory_settings import DirectorySettings
from ftfile.writing.files.naming import PathCheck, check_extension
from ftfile.writing.files.publishing import Publishing
from ftfile.writing.files.replacement import Replacement
from ftfile.writing.files.rolling_rules import RollingSettings, load_policy, rolling_settings
from ftfile.writing.options import CommonSettings, Encryption, WriteConfig, client_settings, resolve_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ftfile.core.options.parsing import Settings
    from ftfile.storage.api import Capabilities
    from ftfile.writing.files.recorded_options import RecordedOptions


# For several queries in a process, and for batch writes with different options.
CONFIGS_KEPT = 16

_NO_PATH = (
    "the sink has no `path`. Spark does not pass a catalog table's location or options to a Python sink, so give the "
    "path as a write option: df.writeStream.format('ftfile').option('path', '/data/out'), INSERT INTO t WITH "
    "(path='/data/out') ..., df.writeTo('t').option('path', '/data/out').append(), "
    "df.writeStream.format('ftfile').option('path', '/data/out').toTable('t')"
)
_NOTHING_IS_ROLLED = (
    "publish=direct writes files under their final names at once, so no file can stay open over batches: leave out "
    "publish=direct, or leave out rolling=policy and the options that imply it"
)
_NOTHING_STAYS_OPEN = (
    "each batch of complete mode, like every overwrite, replaces all rows, so no file can stay open over batches: "
    "leave out rolling=policy and the options that imply it. maxBytesPerFile and maxRecordsPerFile split the files of "
    "a batch"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig(WriteConfig):
    """The settings of a write, from its options and schema."""

    format: Format
    chain: Chain  # the filters of parts
    directories: DirectorySettings
    publishing: Publishing
    max_bytes_per_file: int | None
    max_records_per_file: int | None
    on_format_change: Literal["fail", "accept"]
    rolling: RollingSettings | None  # None if all parts end with their batch
    overwrite_mode: Literal["static", "dynamic"] | None  # the option's value; None for the mode of the session
    replacement: Replacement | None  # the partitions that an overwrite replaces; None for all rows
    # The options that were taken from the directory; None if all options are the caller's, as in Spark.
    recorded: RecordedOptions | None = field(default=None, compare=False, kw_only=True)
    # Derived from the other fields.
    extension: str = field(compare=False)  # the end of part names
    file_schema: pa.Schema = field(compare=False)  # of the file content, with all columns nullable
    recorded_schema_json: str = field(compare=False)  # the schema for readers: columns of the files and of the path
    encoding: dict[str, Any] = field(compare=False)  # the description of the files for readers, in the log
    encoding_key: str = field(compare=False)  # the key of `encoding` in the log

    @classmethod
    def from_options(
        cls, options: Mapping[str, str], schema_json: str, *, overwrite: bool = False, stream: bool = False
    ) -> SinkConfig:
        """Check options and schema. Only a key and the storage's environment settings are read; nothing is written.

        The checked options of a query are cached in the process while its keys and environment settings are unchanged.

        Raises:
            ConfigError: an option is unknown, malformed, or contradicts another.
            SchemaError: a column cannot be stored.
        """
        parsed = parse_options(options, SinkOptions)
        parsed.required_path(_NO_PATH)
        checked = SinkSettings(
            options=parsed,
            schema_json=schema_json,
            overwrite=overwrite,
            stream=stream,
            encryption=Encryption.from_options(parsed),
            client_settings=client_settings(parsed),
        )
        return _settings(checked)

    def for_storage(self, storage: Capabilities) -> SinkConfig:
        """Return the settings for this storage.

        A ConfigError is raised if the storage does not support a requested setting.
        """
        self.publishing.check_storage(storage)
        return WriteConfig.for_storage(self, storage)

    def for_session(self, overwrite_mode: str | None) -> SinkConfig:
        """Return the settings of a batch write in a session with this `partitionOverwriteMode`."""
        columns = self.directories.partition_by
        is_dynamic = (overwrite_mode or "").lower() == "dynamic" and self.overwrite_mode is None
        if not (self.overwrite and is_dynamic and columns) or self.replacement is not None:
            return self
        partition_replacement = Replacement(partition_schema(self.schema, columns), self.directories.time_zone, None)
        return replace(self, replacement=partition_replacement)

    def in_zone(self, time_zone: str | None) -> SinkConfig:
        """Return the settings with the time zone of directory names, if it is known and no option sets it."""
        if time_zone is None or not self.directories.takes_zone:
            return self
        directories = self.directories.in_zone(time_zone)
        encoding = {**self.encoding, **directories.definition()}
        if self.replacement is None:
            replacement = None
        else:
            replacement = replace(self.replacement, time_zone=time_zone)
        return replace(
            self,
            directories=directories,
            replacement=replacement,
            encoding=encoding,
            encoding_key=definition_key(encoding),
        )

    def path_check(self, storage: Capabilities) -> PathCheck:
        """Return the checker for part paths that the storage rejects."""
        return PathCheck(self.publishing.naming, self.extension, storage)

    @property
    def hidden_chain(self) -> Chain:
        """Return the filters of segments and dead letters. These files are never encrypted by their format."""
        encryption = self.common.encryption
        if encryption is None or encryption.kind != "parquet":
            return self.chain
        return Chain((*self.chain.filters, encryption.around_others))


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """The options and the schema of a write. Each part of the settings is checked and built at its first use.

    Equal objects have equal settings. A part raises a ConfigError or a SchemaError if it cannot be built.
    """

    options: SinkOptions
    schema_json: str  # of the rows, as Spark's `StructType.json()`
    overwrite: bool
    stream: bool
    encryption: Encryption | None
    client_settings: Settings  # see `client_settings`

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows. Its columns are only nullable if the rows can have nulls."""
        return arrow_schema(self.schema_json)

    @cached_property
    def nullable_json(self) -> str:
        """Return the schema of the rows with all columns nullable."""
        return as_nullable(self.schema_json)

    @cached_property
    def common(self) -> CommonSettings:
        """Return the settings that stores also have."""
        return CommonSettings.from_options(self.options, self.encryption, self.client_settings, stream=self.stream)

    @cached_property
    def format(self) -> Format:
        """Return the format of parts."""
        zone = {"timeZone": self.options.time_zone}
        file_format = format_from_options(self.options.file_format, zone | self.options.format_options())
        TimeFormats.from_options(zone)
        if self.encryption is None:
            return file_format
        return self.encryption.format_of(file_format)

    @cached_property
    def chain(self) -> Chain:
        """Return the filters of parts. For a format with built-in compression, the compression options are not used."""
        options = self.options
        envelope = None
        if self.encryption is not None:
            envelope = self.encryption.around_parts
            if envelope is None and options.filters:
                raise ConfigError(
                    "encryption=parquet with filters: the filters would be applied to encrypted files, and other "
                    "readers of Parquet could not read them. Leave out filters, or set encryption=aes-gcm"
                )
        if not isinstance(self.format, LineFormat):
            return chain_from_options(None, None, options.filters, envelope)
        return chain_from_options(options.compression, options.compression_level, options.filters, envelope)

    @cached_property
    def extension(self) -> str:
        """Return the end of part names."""
        extension = self.format.extension + self.chain.extension
        check_extension(extension, self.chain)
        return extension

    @cached_property
    def publishing(self) -> Publishing:
        """Return the names of parts, and the steps when they become visible."""
        return Publishing.from_options(self.options, self.extension, self.encryption, self.options.time_zone)

    @cached_property
    def directories(self) -> DirectorySettings:
        """Return the assignment of rows to directories."""
        asked_zone = None
        if self.options.is_given("timeZone"):
            asked_zone = self.options.time_zone
        stem_bytes_max = self.publishing.naming.stem_bytes_max(self.extension)
        return DirectorySettings.from_options(self.options, self.schema, stem_bytes_max, asked_zone)

    @cached_property
    def replacement(self) -> Replacement | None:
        """Return the partitions that an overwrite replaces, or None for all rows."""
        return Replacement.from_options(
            self.options.partition_overwrite_mode,
            self.options.replace_where,
            schema=self.schema,
            directories=self.directories,
            overwrite=self.overwrite,
        )

    @cached_property
    def rolling(self) -> RollingSettings | None:
        """Return the rules that end files, with the spelling of the schema; None if all parts end with their batch."""
        settings = rolling_settings(self.options, self.directories.time_zone)
        if settings is None:
            return None
        final = self._rolled_column(
            "finalizeColumn", settings.finalize_column, is_right=pa.types.is_boolean, needed="a boolean column"
        )
        if final is not None and len(self._columns_outside_paths) == 1:
            raise SchemaError(
                f"finalizeColumn={final!r} leaves no column for the files: at least one column must remain"
            )
        event = self._rolled_column(
            "eventTimeInterval", settings.event_column, is_right=pa.types.is_timestamp, needed="a timestamp"
        )
        if settings.policy is not None:
            load_policy(settings.policy)
        if self.publishing.direct:
            raise ConfigError(_NOTHING_IS_ROLLED)
        if self.overwrite:
            raise ConfigError(_NOTHING_STAYS_OPEN)
        return structs.replace(settings, finalize_column=final, event_column=event)

    @cached_property
    def file_schema(self) -> pa.Schema:
        """Return the schema of the file content, with all columns nullable."""
        outside = {*self.directories.path_columns, *self._final_columns}
        # The schema before columns became nullable: columns without null fit formats without null.
        self.format.check_schema(_drop_columns(self.schema, outside))
        return _drop_columns(arrow_schema(self.nullable_json), outside)

    @cached_property
    def recorded_schema_json(self) -> str:
        """Return the schema for readers: the columns of the files and of the path."""
        if not self._final_columns:
            return self.nullable_json
        return spark_schema_json(_drop_columns(arrow_schema(self.nullable_json), self._final_columns))

    @cached_property
    def statistics(self) -> Sequence[str]:
        """Return the keys of the columns with statistics; none for encrypted files, as the log is not encrypted."""
        columns, schema, keeps = self.options.statistics_columns, self.file_schema, self.format.keeps
        if columns == "none" or (columns == "auto" and self.encryption is not None):
            return ()
        if columns == "auto":
            return first_columns(schema, keeps)
        if self.encryption is not None:
            raise ConfigError(
                "statisticsColumns names columns, and the directory is encrypted: statistics contain values of the "
                "rows, and the log, which contains the statistics, is authenticated but not encrypted. Leave out "
                "statisticsColumns"
            )
        return named_columns(columns, schema, keeps)

    @cached_property
    def encoding(self) -> dict[str, Any]:
        """Return the description of the files for readers, in the log."""
        statistics = {"statistics": list(self.statistics)} if self.statistics else {}
        return {
            "format": {"name": self.format.name, **self.format.definition(self.file_schema)},
            "filters": self.chain.definition(),
            **self.directories.definition(),
            **statistics,
            # A part of the encoding, because segments do not contain the schema and only equal schemas are merged.
            "schema": spark_schema_json(self.file_schema),
        }

    @property
    def _columns_outside_paths(self) -> pa.Schema:
        return _drop_columns(self.schema, self.directories.path_columns)

    @property
    def _final_columns(self) -> tuple[str, ...]:
        """Return the column that ends files, which only the written rows have."""
        if self.rolling is None or self.rolling.finalize_column is None:
            return ()
        return (self.rolling.finalize_column,)

    def _rolled_column(
        self, option: str, name: str | None, is_right: Callable[[pa.DataType], bool], needed: str
    ) -> str | None:
        """Return the column that a rule reads, with the schema's spelling."""
        if name is None:
            return None
        advice = ""
        if self.directories.path_columns:
            advice = f"; {', '.join(self.directories.path_columns)} is in the paths, not in the files"
        return resolve_column(
            option, name, schema=self._columns_outside_paths, is_right=is_right, needed=needed, advice=advice
        )


def forget_configs() -> None:
    """Drop the cached settings, to simulate a new process."""
    _settings.cache_clear()


@lru_cache(CONFIGS_KEPT)
def _settings(checked: SinkSettings) -> SinkConfig:
    """Return the settings. A pure function: keys and client settings, which can change, are in `checked`."""
    options = checked.options
    # Of several mistakes, the first of this order is raised.
    return SinkConfig(
        format=checked.format,
        chain=checked.chain,
        directories=checked.directories,
        publishing=checked.publishing,
        max_bytes_per_file=options.max_bytes_per_file,
        max_records_per_file=options.max_records_per_file,
        on_format_change=options.on_format_change,
        replacement=checked.replacement,
        overwrite_mode=options.partition_overwrite_mode,
        rolling=checked.rolling,
        extension=checked.extension,
        file_schema=checked.file_schema,
        recorded_schema_json=checked.recorded_schema_json,
        encoding=checked.encoding,
        encoding_key=definition_key(checked.encoding),
        path=directory_url(options.required_path()),
        schema_json=checked.nullable_json,
        overwrite=checked.overwrite,
        common=checked.common,
    )


def _drop_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    dropped = frozenset(names)
    return pa.schema([field for field in schema if field.name not in dropped])
