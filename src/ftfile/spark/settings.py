"""Spark's options, as all of its processes understand them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ftfile.core.arguments import absolute_path
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from ftfile.fs.api import FileSystem

_log = get_logger(__name__)

_PATHS = ("path", "statelocation", "sourcearchivedir")


def absolute_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with absolute paths: executors may run in another directory, and as another user.

    Spark knows no `~`: a checkpoint below it is in a directory of that name.
    """
    paths = {key: absolute_path(text) for key, text in options.items() if key.lower() in _PATHS}
    checkpoints = {key: text for key, text in options.items() if key.lower() == "checkpointlocation"}
    kept = {key: absolute_path(f"./{text}" if text.startswith("~") else text) for key, text in checkpoints.items()}
    return {**options, **paths, **kept}


def path_of_argument(spark: SparkSession, path: str | os.PathLike[str]) -> str:
    """Return an argument as an absolute path; warn of a relative one that means another directory in options."""
    text, found = os.fspath(path), absolute_path(path)
    if found != text and not text.startswith("~") and hasattr(spark, "_jsparkSession"):
        begun = spark._jvm.java.lang.System.getProperty("user.dir")  # type: ignore[union-attr] # noqa: SLF001
        if begun != os.getcwd():
            _log.warning(
                'the relative path %r is %s here, and begins in %s for format("ftfile") and for Spark, which was '
                "started there: give an absolute one",
                text,
                found,
                begun,
            )
    return found


def has_file_format(options: Mapping[str, str]) -> bool:
    """Return True if a stream is to read files of others, and not to follow an ftfile directory."""
    return any(key.lower() == "fileformat" for key in options)


def require_shared(fs: FileSystem, path: str) -> None:
    """Raise a ConfigError unless all of Spark's Python processes see the same files."""
    if not fs.capabilities.shared_between_processes:
        raise ConfigError(
            f"path={path!r} lives inside one process: executors, writers and readers could not see each other's files"
        )
