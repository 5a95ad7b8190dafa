"""A directory opened for maintenance."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.format.model import MaintenanceAuthor
from ftfile.commit.log.log import CommitLog
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.logs import log_context
from ftfile.source.directory import Directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context

__all__ = ("maintaining", "open_log")


# These rewrite or remove files of rows; a store has its own.
_OF_FILES = frozenset({"compact", "drop", "flush"})


@contextlib.contextmanager
def maintaining(
    operation: str,
    path: str | os.PathLike[str],
    key_provider: str | None,
    storage: Mapping[str, str] | None,
    context: Context,
) -> Iterator[tuple[CommitLog, MaintenanceAuthor]]:
    """Give the log of a directory, and the author of what one operation records; messages carry its job id.

    Raises:
        ConfigError: see `open_log`; or the directory is a store, and the operation is one for files.
    """
    log, author = open_log(path, key_provider, storage, context), MaintenanceAuthor(operation, context.ids.unique())
    with log_context(job=author.job_id):
        if operation in _OF_FILES:
            refuse_store(log.read_on(), os.fspath(path))
        yield log, author


def open_log(
    path: str | os.PathLike[str],
    key_provider: str | None,
    storage: Mapping[str, str] | None,
    context: Context,
    settings: tuple[tuple[str, str], ...] | None = None,
) -> CommitLog:
    """Return a log of a directory that nobody else uses; with its keys, if it is encrypted.

    `settings` are more of the file system's, such as permissions; by default those of the newest writer that had any.

    Raises:
        ConfigError: it is no ftfile directory, or its keys are not known.
    """
    directory = Directory(path, key_provider, storage, context)
    log = CommitLog(directory.file_system)
    if settings is None:
        texts = (text for text in reversed(log.read_on().definitions.values()) if isinstance(text, dict))
        settings = tuple(next((text["storage"] for text in texts if "storage" in text), {}).items())
    if not settings:
        return log
    return CommitLog(open_with_keys(directory.path, context, key_provider, (*(storage or {}).items(), *settings)))
