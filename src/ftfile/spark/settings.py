"""From Spark's options on the driver to a checked sink configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.options import refuse_in_stream
from ftfile.core.arguments import absolute_path
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.exporting.limits import LIMITS
from ftfile.sink.config import SinkConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ftfile.fs.api import FileSystem

_PATHS = ("path", "statelocation", "sourcearchivedir")


def absolute_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with absolute paths: executors may run in another directory, and as another user.

    Spark knows no `~`: a checkpoint below it is in a directory of that name.
    """
    paths = {key: absolute_path(text) for key, text in options.items() if key.lower() in _PATHS}
    checkpoints = {key: text for key, text in options.items() if key.lower() == "checkpointlocation"}
    kept = {key: absolute_path(f"./{text}" if text.startswith("~") else text) for key, text in checkpoints.items()}
    return {**options, **paths, **kept}


def has_file_format(options: Mapping[str, str]) -> bool:
    """Return True if a stream is to read files of others, and not to follow an ftfile directory."""
    return any(key.lower() == "fileformat" for key in options)


def sink_config(options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> SinkConfig:
    """Check everything that can be checked before a task starts.

    Raises:
        ConfigError: an option is wrong, not for streams, or other processes cannot see the path; or a format of
            `exportTo` cannot say what is written.
        SchemaError: a column cannot be stored.
    """
    config = SinkConfig.from_options(absolute_options(options), schema.json(), overwrite=overwrite)
    if stream:
        refuse_in_stream(config.transaction)
        if config.replacement is not None:
            raise ConfigError(
                "partitionOverwriteMode=dynamic and replaceWhere are for batch writes, as in foreachBatch: each batch "
                "of complete mode has all rows, and replaces everything"
            )
    for to in config.publishing.export_to:
        _refuse_export(config, to)
    require_shared(config.log(SYSTEM).fs, config.path)
    return config


def _refuse_export(config: SinkConfig, to: str) -> None:
    columns, limits = config.recorded_schema_json, LIMITS[to]
    try:
        limits.refuse_columns(columns)
        limits.refuse_encoding(config.encoding(), columns, has_filters=bool(config.chain.filters))
    except ConfigError as error:
        raise ConfigError(f"exportTo={to}: {error}. Or leave exportTo out") from error


def require_shared(fs: FileSystem, path: str) -> None:
    """Raise a ConfigError unless all of Spark's Python processes see the same files."""
    if not fs.capabilities.shared_between_processes:
        raise ConfigError(
            f"path={path!r} lives inside one process: executors, writers and readers could not see each other's files"
        )
