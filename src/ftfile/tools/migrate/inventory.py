"""The files in a directory of another program: those that count, those that do not, and logs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from ftfile.core.errors import ConfigError, CorruptData, NotADirectory
from ftfile.core.units import names_text
from ftfile.log.format import layout
from ftfile.log.format.record import FILE_BYTES_MAX, read_within
from ftfile.log.places import list_own, stat_or_none
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.storage.api import FileInfo, FileSystem


Source: TypeAlias = Literal["files", "spark", "flink", "kafka-connect", "apex", "delta"]

SPARK_LOG = "_spark_metadata"
DELTA_LOG = "_delta_log"


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
    """Return all files but those of logs, by path.

    Raises:
        ConfigError: it is no directory, or a table or a checkpoint is below it.
        NotAFile: a link is there, which is not followed.
    """
    try:
        entries = list_own(fs, "")
    except NotADirectory as error:
        raise ConfigError(f"this is no directory: {error.detail}. Give the directory of the files") from error
    files: dict[str, FileInfo] = {}
    root = stat_or_none(fs, "")
    passed = set() if root is None else {root.identity}
    while entries:
        for info in entries:
            if info.is_link and not info.is_directory:
                fs.stat(info.path)  # whose error says that it is not followed
        files |= {info.path: info for info in entries if not info.is_directory}
        below = {info.identity or info.path: info for info in entries if info.is_directory and info.path not in _OWN}
        directories = [info.path for identity, info in below.items() if identity not in passed]  # loops of links end
        passed |= below.keys()
        _refuse_logs_below(directories)
        listed: Sequence[list[FileInfo]] = parallel(fs, lambda path: list_own(fs, path), directories)
        entries = [info for infos in listed for info in infos]
    _refuse_others_below(files)
    return dict(sorted(files.items()))


_OWN = frozenset({layout.META, SPARK_LOG, DELTA_LOG})
_LOGS_BELOW = _OWN | {".hoodie"}
_ICEBERG = re.compile(r"(?P<table>.+)/metadata/[^/]+\.metadata\.json[^/]*")
_OFFSETS = re.compile(r"(?P<checkpoint>.+)/offsets/\d+")


def _refuse_logs_below(directories: Iterable[str]) -> None:
    parts = (path.rpartition("/") for path in directories)
    below = [(above, name) for above, _, name in parts if above and not is_hidden(above)]
    if logs := [f"{above}/{name}" for above, name in below if name in _LOGS_BELOW]:
        raise ConfigError(
            f"directories below have logs of their own, which say which of their files count: {names_text(logs)}. "
            "Migrate each of these directories by itself, or move it out of this one. Nothing was changed"
        )


def _refuse_others_below(files: Mapping[str, FileInfo]) -> None:
    for path in files:
        table, checkpoint = _ICEBERG.fullmatch(path), _OFFSETS.fullmatch(path)
        if table is not None and not is_hidden(path):
            raise ConfigError(
                f"{table['table']!r} is an Iceberg table, whose metadata says which of its files count: move it out "
                "of this directory. Nothing was changed"
            )
        if checkpoint is not None and not is_hidden(path) and f"{checkpoint['checkpoint']}/metadata" in files:
            raise ConfigError(
                f"{checkpoint['checkpoint']!r} is the checkpoint of a query of Spark, and readers take its files for "
                "rows: move it out of this directory. Nothing was changed"
            )


def read_entry(fs: FileSystem, path: str) -> bytes:
    """Return a file of another program's log; ConfigError for one of more than 512 MiB, of which no more is read."""
    try:
        return read_within(fs, path, FILE_BYTES_MAX)
    except CorruptData as error:
        raise ConfigError(
            f"{path!r} has more than {FILE_BYTES_MAX} bytes, as no file of a log that ftfile reads: restore it from a "
            "copy, or write the table anew with ftfile. Nothing was changed"
        ) from error
