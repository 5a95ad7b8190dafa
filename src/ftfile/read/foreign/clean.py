"""Files that were read to their ends are deleted, or moved to an archive, if nobody has changed them since."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import AlreadyExists, ConfigError, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.log.places import stat_or_none
from ftfile.storage.paths import Url, join, parse
from ftfile.storage.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.core.context import Context
    from ftfile.read.foreign.plan import Range
    from ftfile.storage.api import FileInfo, FileSystem


_log = get_logger(__name__)


def open_cleaner(
    path: str,
    mode: Literal["off", "archive", "delete"],
    archive: str | None,
    context: Context,
    storage: Mapping[str, str] | None = None,
    *,
    below: str = "",
) -> Cleaner | None:
    """Return the cleaner of the files that a stream reads in the directory `path`, `below` it; None if none is cleaned.

    Raises:
        ConfigError: the archive is not given, is of another store, or would be read itself; or it is given for nothing.
    """
    if archive is not None and mode != "archive":
        raise ConfigError("sourceArchiveDir is for cleanSource=archive: set that, or leave sourceArchiveDir out")
    if mode == "off":
        return None
    source = parse(path)
    if mode == "delete":
        return Cleaner(open_filesystem(source.url, context, storage))
    if archive is None:
        raise ConfigError("cleanSource=archive moves files that were read to sourceArchiveDir: name it")
    target = parse(archive)
    if (target.scheme, target.authority) != (source.scheme, source.authority):
        raise ConfigError(
            f"sourceArchiveDir={archive!r} is of another store than {path!r}: files are moved, not copied"
        )
    read = posixpath.join(source.path, below).rstrip("/")
    if posixpath.commonpath([read, target.path]) in {read, target.path}:
        raise ConfigError(f"sourceArchiveDir={archive!r} and path={read!r} are one within the other: keep them apart")
    common = posixpath.commonpath([source.path, target.path])
    fs = open_filesystem(Url(source.scheme, source.authority, common).url, context, storage)
    above = "" if source.path == common else posixpath.relpath(source.path, common)
    return Cleaner(fs, above, posixpath.relpath(target.path, common))


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Moves files away, or deletes them; a second call changes nothing."""

    fs: FileSystem  # has the directory that is read, and the archive
    source: str = ""  # the directory in it; empty for its root
    archive: str | None = None  # where files go, under their paths below the source; None to delete them

    def clean(self, ranges: Iterable[Range]) -> int:
        """Clean the files that these ranges read to their ends, and return how many are gone now by this call.

        One that was changed or moved since, or that the store does not let go, stays: the log tells.
        """
        return sum(self._clean(planned) for planned in ranges if _is_to_its_end(planned))

    def _clean(self, planned: Range) -> bool:
        try:
            info = stat_or_none(self.fs, join(self.source, planned.path))
            if info is None:
                return False
            if not _is_unchanged(info, planned):
                _log.warning("cleanSource leaves %s, which was changed since it was read", planned.path)
                return False
            if self.archive is None:
                self.fs.delete(info.path)
            else:
                self._move(info, join(self.archive, planned.path))
        except NotFound:
            return False
        except StorageError as error:
            _log.warning("cleanSource leaves a file that was read: %s", error)
            return False
        return True

    def _move(self, info: FileInfo, target: str) -> None:
        self.fs.make_directories(target.rpartition("/")[0])
        try:
            self.fs.rename(info.path, target)
        except AlreadyExists:
            there = self.fs.stat(target)
            if there.identity is None or there.identity != info.identity:
                raise
            self.fs.delete(info.path)  # a move that was interrupted left both


def _is_to_its_end(planned: Range) -> bool:
    # How much plain content a packed file has is not known here.
    return planned.whole or (not planned.compression and planned.end == planned.size_bytes)


def _is_unchanged(info: FileInfo, planned: Range) -> bool:
    now = (info.size_bytes, info.modified_ms, info.identity if planned.identity is not None else None)
    return now == (planned.size_bytes, planned.modified_ms, planned.identity)
