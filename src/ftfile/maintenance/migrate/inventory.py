"""The files in a directory of another program: those that count, those that do not, and logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ftfile.commit.files import list_own
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError, NotADirectory
from ftfile.fs.calls.parallel import parallel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.fs.api import FileInfo, FileSystem

Source: TypeAlias = Literal["files", "spark", "flink", "kafka-connect", "apex", "delta"]

SPARK_LOG = "_spark_metadata"
DELTA_LOG = "_delta_log"
LOGS = {SPARK_LOG: "spark", DELTA_LOG: "delta"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file whose rows do not count."""

    path: str  # relative to the directory
    size_bytes: int
    why: str
    moved: bool = False  # plain readers would read it: a migration moves it below `_ftfile`


@dataclass(slots=True)
class Inventory:
    """The files of a directory as another program left them."""

    source: Source
    files: list[FileInfo]  # that count
    left_out: list[LeftOut] = field(default_factory=list)
    unfinished: list[LeftOut] = field(default_factory=list)  # that only the other program knows to count or not
    log: str | None = None  # directory of the other program's log
    last_entry: int | None = None  # the newest batch or version in it
    schema: str | None = None  # as the log has it
    partition_by: tuple[str, ...] | None = None  # likewise


def is_hidden(path: str) -> bool:
    """Return True for a path that Spark's readers pass over."""
    names = path.split("/")
    return any(name[0] == "." or (name[0] == "_" and "=" not in name) for name in names)


def list_foreign(fs: FileSystem) -> dict[str, FileInfo]:
    """Return all files, by path, but those of logs; a directory is listed once.

    Raises:
        ConfigError: there is no such directory.
    """
    try:
        entries = list_own(fs, "")
    except NotADirectory as error:
        raise ConfigError(f"no directory: {error.detail}. Give the directory of the files") from error
    found: dict[str, FileInfo] = {}
    while entries:
        found |= {info.path: info for info in entries if not info.is_directory}
        directories = [info.path for info in entries if info.is_directory and info.path not in _OWN]
        listed: Sequence[list[FileInfo]] = parallel(fs, lambda path: list_own(fs, path), directories)
        entries = [info for infos in listed for info in infos]
    return found


_OWN = frozenset({layout.META, *LOGS})
