"""A directory without some of its files: how it would be read if what misleads readers were not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.sealed.filesystem import SealedFileSystem
from ftfile.core.errors import NotFound
from ftfile.fs.wrapper import WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Collection

    from ftfile.fs.api import FileInfo, FileSystem, InputFile

__all__ = ("without",)


def without(fs: FileSystem, paths: Collection[str]) -> FileSystem:
    """Return the file system for reading as if these files were not there; keys stay."""
    if not paths:
        return fs
    if isinstance(fs, SealedFileSystem):
        return SealedFileSystem(_Hiding(fs.inner, paths), fs.keys)
    return _Hiding(fs, paths)


class _Hiding(WrapperFileSystem):
    """Does not find some files."""

    def __init__(self, inner: FileSystem, paths: Collection[str]) -> None:
        super().__init__(inner)
        self._paths = frozenset(paths)

    def open(self, path: str) -> InputFile:
        self._require(path)
        return super().open(path)

    def read(self, path: str) -> bytes:
        self._require(path)
        return super().read(path)

    def stat(self, path: str) -> FileInfo:
        self._require(path)
        return super().stat(path)

    def list(self, path: str) -> list[FileInfo]:
        return [info for info in super().list(path) if info.path not in self._paths]

    def _require(self, path: str) -> None:
        if path in self._paths:
            raise NotFound("open", path, "it is passed over")
