"""`kv.open(path)`: a store opened for reading."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ftfile.commit.log.times import parsed_version_at
from ftfile.commit.opening import NO_STORE, open_log
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.fs.registry import normalise
from ftfile.kv.reading.reader import CACHE, Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ftfile.core.context import Context


def open_store(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    cache_bytes: int | None = None,
    context: Context = SYSTEM,
) -> Reader:
    """Return a reader of a store, at its newest version by default. Nothing is written.

    Args:
        path: a URL or a local path; see `ftfile.open`.
        version: the one to read.
        timestamp: of the newest version that was created at it or before, by the store's clock: a datetime, or text as
            in ISO 8601; without a zone it is UTC.
        key_provider: where the keys of an encrypted store are; see `ftfile.open`.
        storage: settings of the file system, as the options `storage.<name>`.
        cache_bytes: that all readers of this process cache together, from now on; 256 MiB by default.
        context: clock, ids and retries; the machine's by default.

    Raises:
        ConfigError: there is no store, no such version, or its keys are not known.
        CorruptData: the log is damaged.
        StorageError: the store failed.
    """
    if version is not None and timestamp is not None:
        raise ConfigError("version and timestamp both say which version to read: give one of them")
    if cache_bytes is not None and cache_bytes <= 0:
        raise ConfigError(f"cache_bytes={cache_bytes}: it must be positive")
    log = open_log(path, key_provider, storage, context, NO_STORE)
    if cache_bytes is not None:
        CACHE.resize(cache_bytes)
    reader = Reader(log, normalise(os.fspath(path)))
    if timestamp is not None:
        version = parsed_version_at(log, timestamp)
    return reader if version is None else reader.at(version)
