"""Runs opened where they lie: a range of a file, mapped into memory or read piece by piece, decrypted if need be."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ftfile.commit.format.layout import storage_identity
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.errors import ConfigError
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import DecryptedRanges
from ftfile.fs.calls.parallel import parallel
from ftfile.kv.run.reader import RunReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.commit.format.model import Add
    from ftfile.fs.api import FileSystem, InputFile
    from ftfile.kv.run.cache import Cache

    ReadRange = Callable[[int, int], bytes | memoryview]


class Files(Protocol):
    """The files of a directory, of which ranges are read."""

    fs: FileSystem

    def open(self, path: str) -> ReadRange:
        """Return the function that reads a file; see `OpenFiles`."""


# Files of a process that are mapped at a time, each with a descriptor; many systems allow a process 1,024.
_MAPPED_MAX = 400


class _OpenFile:
    """A file that is closed when nothing reads it any more; opened for each read where too many others are mapped."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs, self._path = fs, path
        self._mapped: memoryview | None = None
        self._file: InputFile | None = fs.open(path)
        mapped = self._file.mapped()
        if mapped is None:
            weakref.finalize(self, self._file.close)
            return
        self._file.close()
        self._file = None
        if len(_mappings) < _MAPPED_MAX:
            self._mapped = mapped
            _mappings.add(mapped.obj)

    def read_at(self, offset: int, length: int) -> bytes | memoryview:
        """Return bytes of the file: fewer only at its end."""
        if self._mapped is not None:
            return self._mapped[offset : offset + length]
        if self._file is not None:
            return self._file.read_at(offset, length)
        with self._fs.open(self._path) as file:
            return file.read_at(offset, length)


# Blocks in the cache hold them, too, when nothing reads the file any more.
_mappings: weakref.WeakSet[Any] = weakref.WeakSet()


class OpenFiles:
    """The files of a directory that are open for reading, each once. Several threads may use it."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self._lock = threading.Lock()
        self._files: weakref.WeakValueDictionary[str, _OpenFile] = weakref.WeakValueDictionary()

    def open(self, path: str) -> ReadRange:
        """Return the function that reads a file, which stays open as long as the function is kept.

        Raises:
            NotFound: there is no such file; the function may raise it, too.
            StorageError: the store failed.
        """
        if (file := self._files.get(path)) is None:
            opened = _OpenFile(self.fs, path)
            with self._lock:
                file = self._files.setdefault(path, opened)
        return file.read_at


def open_run(files: Files, add: Add, cache: Cache) -> RunReader:
    """Return the run of a segment, whose directory is read and verified; blocks and pages are when they are used.

    Raises:
        CorruptData: its bytes are not those that were written.
        ConfigError: it is encrypted, and its key is not known.
        NotFound: its file is not there: the version is no longer kept.
        StorageError: the store failed.
    """
    read = files.open(add.path)

    def read_range(offset: int, length: int) -> bytes | memoryview:
        return read(add.offset + offset, length)

    plain: ReadRange = read_range
    if add.filters:
        if add.filters != (AesGcm.name,):
            raise ConfigError(
                f"{add.path!r} has the filters {', '.join(add.filters)}: runs have none but {AesGcm.name}"
            )
        Chain.for_reading(add.filters, keys := keys_of(files.fs)).decoder("")  # refuses to go on without keys
        assert keys is not None
        identity = storage_identity("segment", add.path, add.offset)
        plain = DecryptedRanges(read_range, add.length, add.path, keys, identity, add.logical_length).read_at
    return RunReader(plain, add.logical_length, add.path, cache, partial(parallel, files.fs))
