"""The columns of an application's rows, and the settings for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.core.logs import get_logger
from ftfile.log.directory import directory_url
from ftfile.operate.export.after_commit import check_exports
from ftfile.operate.writers.directory_options import common_settings, stored_rows
from ftfile.rows.spark_types import recorded_schema, spark_schema_json
from ftfile.writing.files.file_options import SinkConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.log.state import LogState
    from ftfile.operate.writers.directory_options import GivenOptions
    from ftfile.writing.options import CommonSettings

_log = get_logger(__name__)


class RowColumns(NamedTuple):
    """The columns of rows, and the settings for them."""

    schema: pa.Schema  # as the rows were given
    config: SinkConfig

    @classmethod
    def of(cls, schema: pa.Schema, options: GivenOptions, common: CommonSettings) -> RowColumns:
        """Return the settings for rows with these columns.

        Raises:
            ConfigError, SchemaError: an option or a column is wrong.
        """
        config = SinkConfig.from_options(options.texts, spark_schema_json(schema), stream=True)
        config = replace(config, common=common, recorded=options.recorded)
        check_exports(config)
        return cls(schema, config)


def directory_schema(head: LogState) -> pa.Schema | None:
    """Return the columns of the newest rows of a directory; None before its first rows."""
    if head.schema is None:
        return None
    return recorded_schema(head.definitions[head.schema])


def columns_at(texts: Mapping[str, str], context: Context) -> pa.Schema | None:
    """Return the columns of the directory that options name; None if it has no log.

    If the log contains the write, these are the columns at its version, so that values without a type get the same
    types as in the first call.

    Raises:
        ConfigError: an option is wrong, or the log is of another kind.
    """
    common = common_settings(texts, stream=False)
    log = common.log_at(directory_url(texts["path"]), context)
    return stored_rows(log, log.refresh(), common.transaction).schema


def columns_of_open_files(
    head: LogState, app_id: str, options: GivenOptions, common: CommonSettings
) -> RowColumns | None:
    """Return the columns with which a restarted application can end its open files before it has new rows.

    None if no file is open, or if the newest rows of the directory do not have the columns that its options name.
    """
    schema = directory_schema(head)
    if schema is None or not any(segment.origin.query_id == app_id for segment in head.segments.values()):
        return None
    finalize_column = options.texts.get("finalizeColumn")
    if finalize_column is not None and finalize_column not in schema.names:
        schema = schema.append(pa.field(finalize_column, pa.bool_()))  # it is not stored
    try:
        return RowColumns.of(schema, options, common)
    except (ConfigError, SchemaError) as error:
        _log.info("open files of %r end when it writes rows: %s", app_id, error)
        return None
