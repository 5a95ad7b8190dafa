"""The checks of the input of a stream of files, before its first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import stat_or_none
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.fs.paths import join
from ftfile.source.files.globs import has_wildcard

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem
    from ftfile.source.files.settings import FilesSettings

__all__ = ("require_input",)

_log = get_logger(__name__)


def require_input(fs: FileSystem, settings: FilesSettings) -> None:
    """Check that there is an input, and that it is no ftfile directory.

    Args:
        fs: of the settings' root.
        settings: of the stream.

    Raises:
        ConfigError: ftfile wrote the directory; or there is none, where one can be made, and the path has no pattern.
        StorageError: it cannot be looked at.
    """
    shown = f"{settings.root.rstrip('/')}/{settings.pattern}"
    is_literal = not has_wildcard(settings.pattern)
    if is_literal and stat_or_none(fs, settings.pattern) is None:
        if not fs.capabilities.implied_directories:
            raise ConfigError(
                f"there is nothing at path={shown!r}: make the directory before the stream starts, or correct the path"
            )
        _log.warning("there is nothing at path=%r yet: the stream waits for the first file", shown)
    for directory in {"", settings.pattern if is_literal else ""}:
        if stat_or_none(fs, join(directory, layout.FORMAT_FILE)) is not None:
            raise ConfigError(
                f"path={shown!r} is or lies in an ftfile directory, whose files come, grow together and go: leave "
                "fileFormat out and load the directory, to read its new rows as they are committed"
            )
