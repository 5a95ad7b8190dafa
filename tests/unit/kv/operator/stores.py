"""Stores of operators on file systems in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import OutcomeUnknown
from ftfile.kv.operator.store import KeyValueStore
from ftfile.storage.registry import register
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.writing.options import forget_logs

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem

__all__ = ("UnsyncedDisk", "keys_of", "open_store")


def open_store(fs: FileSystem, writer: str = "w", **options: Any) -> KeyValueStore:
    """Open the store on a file system, as a process that has just begun."""
    register("operator", lambda _: fs)
    forget_logs()
    return KeyValueStore("operator://store", writer=writer, **{"maintenance": "none", **options})


def keys_of(store: KeyValueStore) -> list[Any]:
    """Return all committed keys, sorted."""
    return [key for batch in store.scan() for key in batch.column(0).to_pylist()]


class UnsyncedDisk(CrashingFileSystem):
    """A disk that cannot make names in the directory `unsynced` durable, and reports the failure, if it is set."""

    unsynced: str | None = None

    def create_exclusive(self, path: str, content: bytes) -> None:
        if path.rpartition("/")[0] != self.unsynced:
            super().create_exclusive(path, content)
            return
        do = self._volume.do
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._volume, "do", lambda step: None if step.kind == "sync_directory" else do(step))
            super().create_exclusive(path, content)
        raise OutcomeUnknown("create_exclusive", path, "it exists, but its name could not be made durable")

    def sync_directory(self, path: str) -> None:
        if path == self.unsynced:
            raise OutcomeUnknown("sync_directory", path, "its names could not be made durable")
        super().sync_directory(path)
