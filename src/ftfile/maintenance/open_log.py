"""The log of a directory that is maintained."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ftfile.commit.log.log import CommitLog
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.commit.sealed.opening import open_with_keys
from ftfile.sink.writer import open_log
from ftfile.source.directory import Directory

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ftfile.commit.log.state import LogState
    from ftfile.core.context import Context

__all__ = ("log_to_maintain", "own_log", "storage_of")


def log_to_maintain(
    path: str | os.PathLike[str], key_provider: str | None, storage: Mapping[str, str] | None, context: Context
) -> CommitLog:
    """Return the log that this process's writers use, too; of an encrypted directory, one with its keys.

    What is written by it has the permissions, and whatever else of the file system, that the newest writer asked for.

    Raises:
        ConfigError: it is no ftfile directory, or its keys are not known.
    """
    opened = _opened(path, key_provider, storage, context)
    if keys_of(opened.log.fs) is not None:
        return _with_storage(opened, key_provider)
    return open_log(opened.url, context, (*opened.connection, *storage_of(opened.log.read_on())))


def own_log(
    path: str | os.PathLike[str], key_provider: str | None, storage: Mapping[str, str] | None, context: Context
) -> CommitLog:
    """Return a log that nobody else uses; as `log_to_maintain` in all other respects.

    Raises:
        ConfigError: it is no ftfile directory, or its keys are not known.
    """
    return _with_storage(_opened(path, key_provider, storage, context), key_provider)


def storage_of(head: LogState) -> tuple[tuple[str, str], ...]:
    """Return the settings of the file system that the newest writer with such settings had."""
    texts = (text for text in reversed(head.definitions.values()) if isinstance(text, dict))
    storage: dict[str, str] = next((text["storage"] for text in texts if "storage" in text), {})
    return tuple(storage.items())


class _Opened(NamedTuple):
    log: CommitLog
    url: str
    connection: tuple[tuple[str, str], ...]


def _opened(
    path: str | os.PathLike[str], key_provider: str | None, storage: Mapping[str, str] | None, context: Context
) -> _Opened:
    directory = Directory(path, key_provider, storage, context)
    return _Opened(CommitLog(directory.file_system), directory.path, tuple((storage or {}).items()))


def _with_storage(opened: _Opened, key_provider: str | None) -> CommitLog:
    storage = storage_of(opened.log.read_on())
    if not storage:
        return opened.log
    return CommitLog(open_with_keys(opened.url, opened.log.fs.context, key_provider, (*opened.connection, *storage)))
