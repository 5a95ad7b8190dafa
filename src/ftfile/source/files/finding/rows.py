"""Directories that ftfile writes are no input of foreign files: a compaction would double their rows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.log.log import LAYOUT_VERSION
from ftfile.core.errors import ConfigError, NotADirectory, NotFound, PermissionDenied
from ftfile.fs.calls.parallel import parallel
from ftfile.fs.location import parse
from ftfile.fs.paths import join, parent_of
from ftfile.fs.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem
    from ftfile.source.files.settings import FilesSettings

_BEGINNING = LAYOUT_VERSION.partition(b" layout ")[0]  # in all layouts; logs of plans have another one


def refuse_rows(fs: FileSystem, settings: FilesSettings, directories: Sequence[str], advice: str = "") -> None:
    """Raise a ConfigError if one of the directories below the root, `fs`, is one that ftfile writes."""
    for directory, is_one in zip(directories, parallel(fs, lambda path: _has_rows(fs, path), directories), strict=True):
        if is_one:
            raise _refusal(settings, join(settings.root.rstrip("/"), directory), advice)


def refuse_rows_among(
    fs: FileSystem, settings: FilesSettings, directories: Iterable[str], files: Iterable[str]
) -> None:
    """Raise a ConfigError if files lie below one of the directories, and it is one that ftfile writes."""
    holders = {parent_of(path) for path in files}
    above = {directory for holder in holders for directory in layout.ancestors(holder)}
    refuse_rows(fs, settings, sorted(above.intersection(directories)), "; or leave its files out by ignoreFilePattern")


def refuse_rows_above(settings: FilesSettings, context: Context, storage: Mapping[str, str]) -> None:
    """Raise a ConfigError if the root lies in a directory that ftfile writes; its dead letters are like other files."""
    url = parse(settings.root)
    above = layout.ancestors(url.path[1:])[1:]
    if not above or f"/{layout.DEAD_LETTERS}/" in f"{url.path}/{settings.pattern}/":
        return
    store = open_filesystem(f"{url.scheme}://{url.authority}/", context, storage)
    for directory, is_one in zip(above, parallel(store, lambda path: _may_have_rows(store, path), above), strict=True):
        if is_one:
            raise _refusal(settings, f"{url.scheme}://{url.authority}/{directory}")


def _may_have_rows(fs: FileSystem, directory: str) -> bool:
    with suppress(PermissionDenied):  # a user may have a right to the input alone
        return _has_rows(fs, directory)
    return False


def _has_rows(fs: FileSystem, directory: str) -> bool:
    with suppress(NotFound, NotADirectory):
        return fs.read(join(directory, layout.FORMAT_FILE)).startswith(_BEGINNING)
    return False


def _refusal(settings: FilesSettings, url: str, advice: str = "") -> ConfigError:
    return ConfigError(
        f"path={settings.shown!r} names files of an ftfile directory, {url!r}, which come, grow together and go: "
        f"leave fileFormat out and load that directory, to read its new rows as they are committed{advice}"
    )
