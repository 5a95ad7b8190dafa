"""The division of the adds of a snapshot by their readers, Spark's built-in sources or ftfile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ftfile.formats.partition_paths import columns_of_directory, rescaled_columns
from ftfile.log.format import layout
from ftfile.log.format.compacted import ID
from ftfile.log.places import Place, find_part
from ftfile.log.read.add_table import AddTable
from ftfile.log.sealed import keys_of
from ftfile.rows.spark_types import recorded_schema
from ftfile.spark.native.readable_encodings import NativeGroup, group_of
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Collection

    from ftfile.log.read.snapshot import Snapshot
    from ftfile.read.directory import Directory
    from ftfile.read.selection import FilePlace


_COLUMNS = ("finalPath", "lengthBytes", "filters", "encoding", "directory")
_GZIP = ("gzip",)
_LINES = frozenset({"json", "text", "csv"})


@dataclass(frozen=True, slots=True)
class Ways:
    """How the adds of a snapshot are read."""

    groups: list[NativeGroup]  # read with Spark's built-in sources
    rest: list[str]  # ids of the adds that ftfile's reader reads
    reasons: Counter[str]  # reasons for `rest`, with the number of adds

    def leave(self, add_ids: Collection[str], reason: str) -> None:
        """Assign adds to ftfile's reader."""
        self.rest.extend(add_ids)
        self.reasons[reason] += len(add_ids)


def plan_groups(
    directory: Directory, snapshot: Snapshot, places: Collection[FilePlace] | None = None, *, legacy_times: bool = False
) -> Ways:
    """Return how the adds of a snapshot are read. No directory is listed, and adds are not decoded.

    Args:
        directory: which contains the snapshot.
        snapshot: of the version to read; it has a schema.
        places: the places of the adds to read; None for all adds.
        legacy_times: the session parses dates and times as Spark 2 did.
    """
    assert snapshot.schema is not None, "a directory without a commit has no rows"
    planner = _Planner(snapshot, is_sealed=keys_of(directory.file_system) is not None, legacy_times=legacy_times)
    absent = list_absent_files(directory, snapshot)
    table = snapshot.adds
    if not isinstance(table, AddTable):
        table = AddTable(single_adds=dict(table))
    for ids, (paths, lengths, filters, encodings, directory_keys) in table.columns_by_id(_COLUMNS):
        rows = zip(ids, paths, lengths, filters, encodings, directory_keys, strict=True)
        for add_id, path, length, codecs, encoding, directory_key in rows:
            if places is None or (directory_key, encoding) in places:
                planner.plan(_Row(add_id, path, length, codecs, encoding), absent.get(add_id))
    return planner.ways()


def list_absent_files(directory: Directory, snapshot: Snapshot) -> dict[str, str]:
    """Return the adds of a snapshot that are not at their final names, by id, with the reason.

    A part of the newest version is published, unless the log contains it as unpublished.
    """
    absent = {}
    if directory.version() != snapshot.version:
        live = directory.snapshot().adds
        for add_id in snapshot.adds:
            if add_id not in live:
                absent[add_id] = "a later version removed files"
    waiting = []
    for add in directory.unpublished():
        if add.final_path is not None and add.id in snapshot.adds and add.id not in absent:
            waiting.append(add)
    fs = directory.file_system
    for add, where in zip(waiting, parallel(fs, partial(find_part, fs), waiting), strict=True):
        if where.place is not Place.PUBLISHED:
            absent[add.id] = "files are not published"
    return absent


class _Row(NamedTuple):
    """The fields of an add that decide how it is read."""

    add_id: str
    path: str | None  # the final path, with a NUL for the unique part of the id
    length: int
    filters: tuple[str, ...]
    encoding: str


class _Planner:
    """The adds of a snapshot, divided by the way in which they are read."""

    def __init__(self, snapshot: Snapshot, *, is_sealed: bool, legacy_times: bool) -> None:
        self._snapshot = snapshot
        self._is_sealed = is_sealed
        self._legacy_times = legacy_times
        self._groups: dict[str, NativeGroup] = {}
        self._by_encoding: dict[str, NativeGroup | str] = {}
        # Files of the same encoding, directory, filters and suffix are read in the same way.
        self._by_kind: dict[tuple[str, str, tuple[str, ...], bool], NativeGroup | str] = {}
        self._rest = Ways([], [], Counter())

    def ways(self) -> Ways:
        """Return the result."""
        self._rest.groups.extend(group for group in self._groups.values() if len(group.files))
        return self._rest

    def plan(self, row: _Row, reason: str | None) -> None:
        """Divide one add; with a reason why its file is not at its final name."""
        add_id, path, length, filters, encoding = row
        group = self._of_encoding(encoding)
        directory = name = ""
        if path is None:
            reason = "files are still open"
        else:
            unique = layout.unique_part(add_id)
            directory, _, name = path.replace(ID, unique).rpartition("/")
            if unique not in name:
                reason = reason or "names of files may be used again"
            group = self._of_kind(encoding, directory, filters, is_gzip=name.endswith(".gz"))
        if isinstance(group, str):
            self._rest.leave((add_id,), group)
        elif reason is not None:
            self._rest.leave((add_id,), reason)
        else:
            group.files.add(add_id, directory, name=name, size_bytes=length)

    def _of_kind(self, encoding: str, directory: str, filters: tuple[str, ...], *, is_gzip: bool) -> NativeGroup | str:
        """Return the group of the files of a directory, or the reason why ftfile must read them."""
        kind = encoding, directory, filters, is_gzip
        group = self._by_kind.get(kind)
        if group is None:
            group = self._of_encoding(encoding)
            if not isinstance(group, str):
                fault = _fault_of(group, directory, filters, is_gzip=is_gzip)
                group = fault or group
            self._by_kind[kind] = group
        return group

    def _of_encoding(self, encoding: str) -> NativeGroup | str:
        if encoding not in self._by_encoding:
            self._by_encoding[encoding] = self._new_group(encoding)
        return self._by_encoding[encoding]

    def _new_group(self, encoding: str) -> NativeGroup | str:
        definitions = self._snapshot.definitions
        if self._is_sealed:
            return "the directory is encrypted"
        recorded = recorded_schema(definitions[self._snapshot.schema or ""])
        group = group_of(definitions[encoding], recorded, legacy_times=self._legacy_times)
        if isinstance(group, str):
            return group
        return self._groups.setdefault(group.key, group)


def _fault_of(group: NativeGroup, directory: str, filters: tuple[str, ...], *, is_gzip: bool) -> str | None:
    """Return why Spark cannot read the files of a directory, although it can read their encoding; None if it can."""
    is_gzip_of_lines = is_gzip and filters == _GZIP and group.format in _LINES
    if filters and not is_gzip_of_lines:
        return f"filters are {'|'.join(filters)}"
    depth = len(group.partition_by)
    if depth and (directory.count("/") + 1 != depth or columns_of_directory(directory) != group.partition_by):
        return "directories are more than partition columns"
    if len(group.decimals) and rescaled_columns(directory, group.decimals):
        return "decimals in directories have another scale"
    return None
