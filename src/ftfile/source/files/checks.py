"""The checks of the places that a stream of files is given, before its first batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.files import stat_or_none
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError, NotADirectory, NotFound
from ftfile.core.logs import get_logger
from ftfile.fs.paths import join
from ftfile.source.files.globs import has_wildcard

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem
    from ftfile.source.files.settings import FilesSettings

__all__ = ("require_input", "require_state")

_log = get_logger(__name__)


def require_input(fs: FileSystem, settings: FilesSettings) -> None:
    """Check that there is an input, and that it is no ftfile directory.

    Args:
        fs: of the settings' root.
        settings: of the stream.

    Raises:
        ConfigError: ftfile wrote the directory; or a file is where the path has a directory; or nothing is at the part
            of the path that has no pattern, where a directory can be made.
        StorageError: it cannot be looked at.
    """
    shown = f"{settings.root.rstrip('/')}/{settings.pattern}"
    is_literal = not has_wildcard(settings.pattern)
    _require_there(fs, settings, shown, is_literal=is_literal)
    for directory in {"", settings.pattern if is_literal else ""}:
        if stat_or_none(fs, join(directory, layout.FORMAT_FILE)) is not None:
            raise ConfigError(
                f"path={shown!r} is or lies in an ftfile directory, whose files come, grow together and go: leave "
                "fileFormat out and load the directory, to read its new rows as they are committed"
            )


def _require_there(fs: FileSystem, settings: FilesSettings, shown: str, *, is_literal: bool) -> None:
    try:
        # What a pattern stands for may come later.
        if fs.stat(settings.pattern if is_literal else "").is_directory or is_literal:
            return
    except NotFound:
        if not fs.capabilities.implied_directories:
            missing = shown if is_literal else settings.root
            raise ConfigError(
                f"there is nothing at path={missing!r}, or a link to nothing: make the directory before the stream "
                "starts, or correct the path"
            ) from None
        _log.warning("there is nothing at path=%r yet: the stream waits for the first file", shown)
        return
    except NotADirectory:
        pass
    raise ConfigError(f"path={shown!r} leads through a file, or a link to nothing, and nothing is below: correct it")


def require_state(fs: FileSystem, location: str) -> None:
    """Check that a directory may have the logs of plans of sources.

    Args:
        fs: the directory.
        location: its URL.

    Raises:
        ConfigError: it is a directory of rows, or the log of plans of one source.
        StorageError: it cannot be looked at.
    """
    if stat_or_none(fs, layout.FORMAT_FILE) is not None:
        raise ConfigError(
            f"stateLocation={location!r} is a directory that ftfile keeps already, of rows or of the plans of one "
            "stream: give the state a directory of its own"
        )
