"""The log of a directory that is maintained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.log import CommitLog
from ftfile.commit.sealed import keys_of
from ftfile.sink.writer import open_log
from ftfile.source.directory import Directory

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ("log_to_maintain",)


def log_to_maintain(
    path: str | os.PathLike[str], key_provider: str | None, storage: Mapping[str, str] | None
) -> CommitLog:
    """Return the log that this process's writers use, too; of an encrypted directory, one with its keys.

    Raises:
        ConfigError: it is no ftfile directory, or its keys are not known.
    """
    directory = Directory(path, key_provider, storage)
    fs = directory.file_system
    return open_log(directory.path, tuple((storage or {}).items())) if keys_of(fs) is None else CommitLog(fs)
