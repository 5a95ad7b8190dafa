"""The settings of a sink for files, which the driver checks once and sends to the tasks as frozen data."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.options import SinkOptions, parse_options
from ftfile.filters.chain import Chain, chain_from_options
from ftfile.formats.api import Format, LineFormat, format_from_options
from ftfile.formats.partition_paths import partition_schema
from ftfile.formats.reading import TimeFormats
from ftfile.log.directory import directory_url
from ftfile.log.format.record import definition_key
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.write.files.directory_settings import DirectorySettings
from ftfile.write.files.naming import PathCheck, check_extension
from ftfile.write.files.publishing import Publishing
from ftfile.write.files.replacement import Replacement, replacement_from_options
from ftfile.write.files.rolling_rules import RollingSettings, load_policy, rolling_settings
from ftfile.write.options import CommonSettings, Encryption, WriteConfig, client_settings, resolve_column

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ftfile.core.options import Settings
    from ftfile.storage.api import Capabilities


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


@dataclass(frozen=True, slots=True)
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
        """Check options and schema. Only a key and the store's environment settings are read; nothing is written.

        The checked options of a query are cached in the process while its keys and environment settings are unchanged.

        Raises:
            ConfigError: an option is unknown, malformed, or contradicts another.
            SchemaError: a column cannot be stored.
        """
        parsed = parse_options(options, SinkOptions)
        parsed.required_path(_NO_PATH)
        return _checked(
            parsed,
            schema_json,
            overwrite=overwrite,
            stream=stream,
            encryption=Encryption.from_options(parsed),
            clients=client_settings(parsed),
        )

    def for_store(self, store: Capabilities) -> SinkConfig:
        """Return the settings for this store.

        A ConfigError is raised if the store does not support a requested setting.
        """
        self.publishing.check_store(store)
        return WriteConfig.for_store(self, store)

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

    def path_check(self, store: Capabilities) -> PathCheck:
        """Return the checker for part paths that the store rejects."""
        return PathCheck(self.publishing.naming, self.extension, store)

    @property
    def hidden_chain(self) -> Chain:
        """Return the filters of segments and dead letters. These files are never encrypted by their format."""
        encryption = self.common.encryption
        if encryption is None or encryption.kind != "parquet":
            return self.chain
        return Chain((*self.chain.filters, encryption.around_others))


def forget_configs() -> None:
    """Drop the cached settings, to simulate a new process."""
    _checked.cache_clear()


@functools.lru_cache(CONFIGS_KEPT)
def _checked(
    parsed: SinkOptions,
    schema_json: str,
    overwrite: bool,  # noqa: FBT001 - a key of the cache
    stream: bool,  # noqa: FBT001 - likewise
    encryption: Encryption | None,
    clients: Settings,
) -> SinkConfig:
    """Return the checked settings. A pure function: keys and client settings, which can change, are arguments."""
    zone = parsed.time_zone
    asked_zone = zone if parsed.is_given("timeZone") else None
    file_format = _format(parsed, encryption, zone)
    schema, chain = arrow_schema(schema_json), _chain(parsed, file_format, encryption)
    extension = file_format.extension + chain.extension
    check_extension(extension, chain)
    publishing = Publishing.from_options(parsed, extension, encryption, zone)
    directories = DirectorySettings.from_options(
        parsed, schema, publishing.naming.stem_bytes_max(extension), asked_zone
    )
    mode, replacement = replacement_from_options(parsed, schema, directories, overwrite=overwrite)
    rolling, nullable_json = _rolling(parsed, schema, directories), as_nullable(schema_json)
    final = None if rolling is None else rolling.finalize_column
    in_paths_or_final, nullable = {*directories.leaving, final}, arrow_schema(nullable_json)
    if (publishing.direct or overwrite) and rolling is not None:
        raise ConfigError(_NOTHING_IS_ROLLED if publishing.direct else _NOTHING_STAYS_OPEN)
    # The schema before columns became nullable: columns without null fit formats without null.
    file_format.check_schema(_without(schema, in_paths_or_final))
    file_schema = _without(nullable, in_paths_or_final)
    encoding = _encoding(file_format, chain, directories, file_schema)
    return SinkConfig(
        path=directory_url(parsed.required_path(_NO_PATH)),
        schema_json=nullable_json,
        overwrite=overwrite,
        common=CommonSettings.from_options(parsed, encryption, clients, stream=stream),
        format=file_format,
        chain=chain,
        directories=directories,
        publishing=publishing,
        max_bytes_per_file=parsed.max_bytes_per_file,
        max_records_per_file=parsed.max_records_per_file,
        on_format_change=parsed.on_format_change,
        rolling=rolling,
        overwrite_mode=mode,
        replacement=replacement,
        extension=extension,
        file_schema=file_schema,
        recorded_schema_json=nullable_json if final is None else spark_schema_json(_without(nullable, {final})),
        encoding=encoding,
        encoding_key=definition_key(encoding),
    )


def _format(parsed: SinkOptions, encryption: Encryption | None, time_zone: str) -> Format:
    file_format = format_from_options(parsed.file_format, {"timeZone": time_zone, **parsed.format_options()})
    TimeFormats.from_options({"timeZone": time_zone})
    if encryption is None:
        return file_format
    return encryption.format_of(file_format)


def _encoding(
    file_format: Format, chain: Chain, directories: DirectorySettings, file_schema: pa.Schema
) -> dict[str, Any]:
    return {
        "format": {"name": file_format.name, **file_format.definition(file_schema)},
        "filters": chain.definition(),
        **directories.definition(),
        # The schema is a part of the encoding, because segments do not contain it and only equal schemas are merged.
        "schema": spark_schema_json(file_schema),
    }


def _without(schema: pa.Schema, names: set[str | None]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name not in names])


def _chain(parsed: SinkOptions, file_format: Format, encryption: Encryption | None) -> Chain:
    """Return the filters. For a format with built-in compression, the compression options are not used."""
    envelope = None
    if encryption is not None:
        envelope = encryption.around_parts
    if encryption is not None and envelope is None and parsed.filters:
        raise ConfigError(
            "encryption=parquet with filters: the filters would be applied to encrypted files, and other readers of "
            "Parquet could not read them. Leave out filters, or set encryption=aes-gcm"
        )
    if not isinstance(file_format, LineFormat):
        return chain_from_options(None, None, parsed.filters, envelope)
    return chain_from_options(parsed.compression, parsed.compression_level, parsed.filters, envelope)


def _rolling(parsed: SinkOptions, schema: pa.Schema, directories: DirectorySettings) -> RollingSettings | None:
    settings, leaving = rolling_settings(parsed, directories.time_zone), directories.leaving
    if settings is None:
        return None
    files, final, event = _without(schema, {*leaving}), settings.finalize_column, settings.event_column
    elsewhere = ""
    if leaving:
        elsewhere = f"; {', '.join(leaving)} is in the paths, not in the files"
    if final is not None:
        final = resolve_column(
            "finalizeColumn",
            final,
            schema=files,
            is_right=pa.types.is_boolean,
            needed="a boolean column",
            advice=elsewhere,
        )
        if len(files) == 1:
            raise SchemaError(
                f"finalizeColumn={final!r} leaves no column for the files: at least one column must remain"
            )
    if event is not None:
        event = resolve_column(
            "eventTimeInterval",
            event,
            schema=files,
            is_right=pa.types.is_timestamp,
            needed="a timestamp",
            advice=elsewhere,
        )
    if settings.policy is not None:
        load_policy(settings.policy)
    return structs.replace(settings, finalize_column=final, event_column=event)
