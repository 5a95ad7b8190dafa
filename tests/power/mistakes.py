"""Mistakes in the local driver, planted in the process of a workload, that a replay of power cuts must find."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

from ftfile.storage import local
from ftfile.storage.local import LocalFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("MISTAKES", "Mistake")

STREAM: Any = local._LocalStream  # noqa: SLF001 - the class whose sync is replaced


@dataclass(frozen=True)
class Mistake:
    """A mistake, and the workloads in which it is looked for."""

    workloads: tuple[str, ...]
    planted: Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def unsynced_parts() -> Iterator[None]:
    """Do not sync staged parts."""
    with mock.patch.object(STREAM, "_hsync"):
        yield


@contextlib.contextmanager
def unsynced_directories() -> Iterator[None]:
    """Do not sync directories after renames."""
    with mock.patch.object(LocalFileSystem, "sync_directory"):
        yield


@contextlib.contextmanager
def unsynced_records(folder: str) -> Iterator[None]:
    """Do not sync the content and the name of records of logs below a folder of the disk."""
    original = LocalFileSystem.create_exclusive

    def create(fs: LocalFileSystem, path: str, content: bytes) -> Any:
        if not path.endswith(".record") or f"/{folder}" not in fs.root:
            return original(fs, path, content)
        with mock.patch("os.fsync"):
            return original(fs, path, content)

    with mock.patch.object(LocalFileSystem, "create_exclusive", create):
        yield


@contextlib.contextmanager
def early_records() -> Iterator[None]:
    """Sync staged parts only after the record that names them."""
    waiting: list[int] = []
    original = LocalFileSystem.create_exclusive

    def wait(stream: Any) -> None:
        waiting.append(os.dup(stream._file.fileno()))  # noqa: SLF001 - the file of the stream

    def create(fs: LocalFileSystem, path: str, content: bytes) -> Any:
        stored = original(fs, path, content)
        while path.endswith(".record") and waiting:
            descriptor = waiting.pop()
            os.fsync(descriptor)
            os.close(descriptor)
        return stored

    with mock.patch.object(STREAM, "_hsync", wait), mock.patch.object(LocalFileSystem, "create_exclusive", create):
        yield


OF_FILES = ("plain", "partitioned", "rolled", "encrypted")
MISTAKES = {
    "part-not-synced": Mistake(OF_FILES, unsynced_parts),
    "directory-not-synced": Mistake(OF_FILES, unsynced_directories),
    "record-not-synced": Mistake(OF_FILES, lambda: unsynced_records("out")),
    "record-before-parts": Mistake(OF_FILES, early_records),
    "plan-not-synced": Mistake(("source",), lambda: unsynced_records("state")),
}
