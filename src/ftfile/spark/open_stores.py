"""The stores that this process reads, each opened once: a driver, or one of Spark's Python workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.directory_marker import DirectoryMarker, check_marker, read_marker
from ftfile.commit.sealed.filesystem import open_with_keys
from ftfile.core.context import SYSTEM
from ftfile.fs.registry import open_filesystem, settings_for_others
from ftfile.kv.reading.reader import CACHE, open_store
from ftfile.spark.settings import require_shared

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ftfile.kv.reading.reader import Reader

READERS_KEPT = 8


@dataclass(frozen=True)
class StorePlace:
    """All that a task needs to open a store."""

    path: str
    version: int | None  # None for the newest when a task begins
    key_provider: str | None
    storage: tuple[tuple[str, str], ...]  # settings of the file system
    cache_bytes: int | None
    marker: DirectoryMarker | None


_readers: dict[StorePlace, Reader] = {}


def open_on_driver(  # noqa: PLR0913 - all by name
    path: str,
    *,
    version: int | None,
    timestamp: datetime | None,
    key_provider: str | None,
    storage: Mapping[str, str],
    cache_bytes: int | None,
    follows: bool = False,
) -> tuple[Reader, StorePlace]:
    """Return a reader of a version, and the place at which tasks find the same one; if it `follows`, the newest one.

    Raises:
        ConfigError: there is no store or no such version, or other processes cannot see the path.
    """
    require_shared(open_filesystem(path, SYSTEM, storage), path)
    reader = open_store(path, version=version, timestamp=timestamp, key_provider=key_provider, storage=storage)
    others = tuple(settings_for_others(reader.path, storage).items())
    marker = read_marker(open_with_keys(reader.path, SYSTEM, key_provider, storage.items()))
    place = StorePlace(reader.path, None if follows else reader.version, key_provider, others, cache_bytes, marker)
    _keep(place, reader)
    return reader, place


def reader_here(place: StorePlace) -> Reader:
    """Return this process's reader of a store at a version.

    Raises:
        ConfigError: this host sees another directory there than the driver.
    """
    if place.cache_bytes is not None:
        CACHE.resize(place.cache_bytes)
    reader = _readers.pop(place, None)
    if reader is not None and place.version is None:
        reader.refresh()
    if reader is None:
        check_marker(open_with_keys(place.path, SYSTEM, place.key_provider, place.storage), place.path, place.marker)
        reader = open_store(
            place.path,
            version=place.version,
            key_provider=place.key_provider,
            storage=dict(place.storage),
        )
    _keep(place, reader)
    return reader


def _keep(place: StorePlace, reader: Reader) -> None:
    _readers[place] = reader
    if len(_readers) > READERS_KEPT:
        _readers.pop(next(iter(_readers))).close()
