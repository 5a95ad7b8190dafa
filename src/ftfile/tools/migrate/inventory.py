"""The inventory of a directory that another program wrote, and the listing from which it is taken."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ftfile.core.errors import ConfigError, CorruptData, NotADirectory
from ftfile.core.units import names_text
from ftfile.log.format import layout
from ftfile.log.format.record import FILE_BYTES_MAX, read_within
from ftfile.log.places import list_own, stat_or_none
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from ftfile.log.directory import LogName
    from ftfile.storage.api import FileInfo, FileSystem


Source: TypeAlias = Literal["files", "spark", "flink", "kafka-connect", "apex", "delta"]

SPARK_LOG: Final = "_spark_metadata"
DELTA_LOG: Final = "_delta_log"

_OWN = frozenset({layout.META, SPARK_LOG, DELTA_LOG})
_LOGS_BELOW = _OWN | {".hoodie"}
_ICEBERG = re.compile(r"(?P<table>.+)/metadata/[^/]+\.metadata\.json[^/]*")
_OFFSETS = re.compile(r"(?P<checkpoint>.+)/offsets/\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file whose rows are not committed."""

    path: str  # relative to the directory
    size_bytes: int
    why: str
    moved: bool = False  # plain readers would read it, so a migration moves it below `_ftfile`


@dataclass(slots=True, kw_only=True)
class Inventory:
    """The files that another program left in a directory."""

    source: Source
    files: list[FileInfo]  # with committed rows
    left_out: list[LeftOut] = field(default_factory=list)
    unfinished: list[LeftOut] = field(default_factory=list)  # committed or not: only the other program's state shows it
    log: LogName | None = None  # directory of the other program's log
    last_entry: int | None = None  # the newest batch or version in the log
    schema: str | None = None  # from the log
    partition_by: tuple[str, ...] | None = None  # from the log


def is_hidden(path: str) -> bool:
    """Return True for a path that Spark's readers ignore."""
    names = path.split("/")
    for name in names:
        if name[0] == "." or (name[0] == "_" and "=" not in name):
            return True
    return False


def uncommitted_files(files: Mapping[str, FileInfo], committed: Container[str | None], why: str) -> list[LeftOut]:
    """Return the visible files that are not committed, each with the reason."""
    uncommitted = []
    for path, info in files.items():
        if path not in committed and not is_hidden(path):
            uncommitted.append(LeftOut(path=path, size_bytes=info.size_bytes, why=why, moved=True))
    return uncommitted


def list_foreign(fs: FileSystem) -> dict[str, FileInfo]:
    """Return all files except files of logs, by path.

    Raises:
        ConfigError: the path is not a directory, or a table or a checkpoint is below it.
        NotAFile: the directory contains a link to a file; such links are not followed.
    """
    try:
        entries = list_own(fs, "")
    except NotADirectory as error:
        raise ConfigError(f"this is not a directory: {error.detail}. Give the directory of the files") from error
    files: dict[str, FileInfo] = {}
    root = stat_or_none(fs, "")
    if root is None:
        passed = set()
    else:
        passed = {root.identity}
    while entries:
        directories: dict[str, str] = {}  # by identity, which ends loops of links
        for info in entries:
            if not info.is_directory:
                if info.is_link:
                    fs.stat(info.path)  # raises an error that names the link
                files[info.path] = info
            elif info.path not in _OWN and (info.identity or info.path) not in passed:
                directories[info.identity or info.path] = info.path
        passed |= directories.keys()
        _refuse_logs_below(directories.values())
        listed: Sequence[list[FileInfo]] = parallel(fs, partial(list_own, fs), list(directories.values()))
        entries = list(itertools.chain.from_iterable(listed))
    _refuse_others_below(files)
    return dict(sorted(files.items()))


def _refuse_logs_below(directories: Iterable[str]) -> None:
    logs = []
    for path in directories:
        above, _, name = path.rpartition("/")
        if above and name in _LOGS_BELOW and not is_hidden(above):
            logs.append(path)
    if logs:
        raise ConfigError(
            f"subdirectories have separate logs, which decide which of their files are committed: {names_text(logs)}. "
            "Migrate each of these directories separately, or move it out of this one. Nothing was changed"
        )


def _refuse_others_below(files: Mapping[str, FileInfo]) -> None:
    for path in files:
        table, checkpoint = _ICEBERG.fullmatch(path), _OFFSETS.fullmatch(path)
        if table is not None and not is_hidden(path):
            raise ConfigError(
                f"{table['table']!r} is an Iceberg table, whose metadata decides which of its files are committed: "
                "move it out of this directory. Nothing was changed"
            )
        if checkpoint is not None and not is_hidden(path) and f"{checkpoint['checkpoint']}/metadata" in files:
            raise ConfigError(
                f"{checkpoint['checkpoint']!r} is the checkpoint of a Spark query, and readers would read its files "
                "as rows: move it out of this directory. Nothing was changed"
            )


def read_entry(fs: FileSystem, path: str) -> bytes:
    """Return a file of another program's log; raises `ConfigError`, without reading it all, if it exceeds 512 MiB."""
    try:
        return read_within(fs, path, FILE_BYTES_MAX)
    except CorruptData as error:
        raise ConfigError(
            f"{path!r} has more than {FILE_BYTES_MAX} bytes, the largest log file that ftfile reads: restore it from "
            "a copy, or rewrite the table with ftfile. Nothing was changed"
        ) from error


def plain_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return all files that plain readers see."""
    inventory = Inventory(source="files", files=[])
    for path, info in files.items():
        if not is_hidden(path):
            inventory.files.append(info)
    return inventory
