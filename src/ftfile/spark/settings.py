"""From Spark's options on the driver to a checked sink configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ftfile.attempt.options import refuse_in_stream
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.sink.config import SinkConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ftfile.fs.api import FileSystem

__all__ = ("absolute_options", "has_file_format", "require_shared", "sink_config")

_PATHS = ("path", "checkpointlocation", "statelocation", "sourcearchivedir")


def absolute_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with relative paths made absolute: executors may run in another directory."""
    return {
        key: os.path.abspath(text) if key.lower() in _PATHS and text and _is_relative(text) else text
        for key, text in options.items()
    }


def has_file_format(options: Mapping[str, str]) -> bool:
    """Return True if a stream is to read files of others, and not to follow an ftfile directory."""
    return any(key.lower() == "fileformat" for key in options)


def sink_config(options: Mapping[str, str], schema: StructType, *, overwrite: bool, stream: bool) -> SinkConfig:
    """Check everything that can be checked before a task starts.

    Raises:
        ConfigError: an option is wrong, not for streams, or other processes cannot see the path.
        SchemaError: a column cannot be stored.
    """
    config = SinkConfig.from_options(absolute_options(options), schema.json(), overwrite=overwrite)
    if stream:
        refuse_in_stream(config.transaction)
    require_shared(config.log(SYSTEM).fs, config.path)
    return config


def require_shared(fs: FileSystem, path: str) -> None:
    """Raise a ConfigError unless all of Spark's Python processes see the same files."""
    if not fs.capabilities.shared_between_processes:
        raise ConfigError(
            f"path={path!r} lives inside one process: executors, writers and readers could not see each other's files"
        )


def _is_relative(path: str) -> bool:
    return not path.startswith("/") and ":" not in path.split("/", 1)[0]
