"""Spark's options, as all of its processes understand them; and directories as its tasks open them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.arguments import absolute_path
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.log.directory import check_marker
from ftfile.log.sealed import open_with_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.log.directory import DirectoryMarker
    from ftfile.storage.api import FileSystem


_PATHS = ("path", "statelocation", "sourcearchivedir")


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, as tasks open it."""

    path: str
    key_provider: str | None
    storage: tuple[tuple[str, str], ...]  # settings of the file system
    marker: DirectoryMarker | None

    def open(self) -> FileSystem:
        """Open it; raise a ConfigError if this host sees another directory there."""
        fs = open_with_keys(self.path, SYSTEM, self.key_provider, self.storage)
        check_marker(fs, self.path, self.marker)
        return fs


def absolute_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with absolute paths: executors may run in another directory, and as another user.

    Spark knows no `~`: a checkpoint below it is in a directory of that name.
    """
    paths = {key: absolute_path(text) for key, text in options.items() if key.lower() in _PATHS}
    checkpoints = {key: text for key, text in options.items() if key.lower() == "checkpointlocation"}
    checkpoint_paths = {
        key: absolute_path(f"./{text}" if text.startswith("~") else text) for key, text in checkpoints.items()
    }
    return {**options, **paths, **checkpoint_paths}


def has_file_format(options: Mapping[str, str]) -> bool:
    """Return True if a stream is to read files of others, and not to follow an ftfile directory."""
    return any(key.lower() == "fileformat" for key in options)


def check_shared(fs: FileSystem, path: str) -> None:
    """Raise a ConfigError unless all of Spark's Python processes see the same files."""
    if not fs.capabilities.shared_between_processes:
        raise ConfigError(
            f"path={path!r} lives inside one process: executors, writers and readers could not see each other's files"
        )
