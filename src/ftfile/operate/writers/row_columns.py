"""The columns of an application's rows, and the settings for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.logs import get_logger
from ftfile.core.options import SinkOptions, parse_options
from ftfile.log.directory import directory_url
from ftfile.operate.export.after_commit import check_exports
from ftfile.rows.spark_types import recorded_schema, spark_schema_json
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.options import CommonSettings, Encryption, client_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.log.state import LogState

_log = get_logger(__name__)


class RowColumns(NamedTuple):
    """The columns of rows, and the settings for them."""

    schema: pa.Schema  # as the rows were given
    config: SinkConfig

    @classmethod
    def of(cls, schema: pa.Schema, texts: Mapping[str, str], common: CommonSettings) -> RowColumns:
        """Return the settings for rows with these columns.

        Raises:
            ConfigError, SchemaError: an option or a column is wrong.
        """
        config = replace(SinkConfig.from_options(texts, spark_schema_json(schema), stream=True), common=common)
        check_exports(config)
        return cls(schema, config)


def common_settings(texts: Mapping[str, str], *, stream: bool) -> CommonSettings:
    """Return the settings that do not depend on columns; a ConfigError if an option is wrong."""
    options = parse_options(texts, SinkOptions)
    return CommonSettings.from_options(
        options, Encryption.from_options(options), client_settings(options), stream=stream
    )


def directory_schema(head: LogState) -> pa.Schema | None:
    """Return the columns of the newest rows of a directory; None before its first rows."""
    if head.schema is None:
        return None
    return recorded_schema(head.definitions[head.schema])


def columns_at(texts: Mapping[str, str], context: Context) -> pa.Schema | None:
    """Return the columns of the directory that options name; None if it has no log.

    Raises:
        ConfigError: an option is wrong, or the log is of another kind.
    """
    common = common_settings(texts, stream=False)
    return directory_schema(common.log_at(directory_url(texts["path"]), context).refresh())


def columns_of_open_files(
    head: LogState, app_id: str, texts: Mapping[str, str], common: CommonSettings
) -> RowColumns | None:
    """Return the columns with which a restarted application can end its open files before it has new rows.

    None if no file is open, or if the newest rows of the directory do not have the columns that its options name.
    """
    schema = directory_schema(head)
    if schema is None or not any(segment.origin.query_id == app_id for segment in head.segments.values()):
        return None
    finalize_column = texts.get("finalizeColumn")
    if finalize_column is not None and finalize_column not in schema.names:
        schema = schema.append(pa.field(finalize_column, pa.bool_()))  # it is not stored
    try:
        return RowColumns.of(schema, texts, common)
    except (ConfigError, SchemaError) as error:
        _log.info("open files of %r end when it writes rows: %s", app_id, error)
        return None
