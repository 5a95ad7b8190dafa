"""Stores of operators on file systems in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.kv.operator.store import KeyValueStore
from ftfile.storage.registry import register
from ftfile.write.options import forget_logs

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem

__all__ = ("keys_of", "open_store")


def open_store(fs: FileSystem, writer: str = "w", **options: Any) -> KeyValueStore:
    """Open the store on a file system, as a process that has just begun."""
    register("operator", lambda _: fs)
    forget_logs()
    return KeyValueStore("operator://store", writer=writer, **{"maintenance": "none", **options})


def keys_of(store: KeyValueStore) -> list[Any]:
    """Return all committed keys, sorted."""
    return [key for batch in store.scan() for key in batch.column(0).to_pylist()]
