"""Lists of files for Hive's `SymlinkTextInputFormat`, one for each partition, and statements for a metastore.

A list is written once, under the version with which it came, and never changed: a metastore names the lists of one
version. `vN.json` says which lists stand for version N; creating it is the export.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.log.format import layout
from ftfile.log.places import delete_file, list_or_empty, write_file
from ftfile.rows.spark_types import quoted_name, sql_type
from ftfile.tools.export.versions import last_published

if TYPE_CHECKING:
    from ftfile.core.progress import OnProgress
    from ftfile.tools.export.versions import Versions


MANIFESTS = "_symlink_format_manifest"
# A metastore may name lists of older versions until the statements are run.
VERSIONS_KEPT = 10
_STATE = re.compile(r"v(\d+)\.json")
_DIGEST_BYTES = 16
# No line of a script, and no terminal, is to take them for anything.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STORED = (
    "ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe' "
    "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat' "
    "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat'"
)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _State:
    """The lists of a version, by the directories of their partitions: the version of each, and its digest."""

    version: int
    nonce: str
    url: str  # of the directory, with which paths in lists begin
    schema: str
    partition_by: list[str]
    lists: dict[str, tuple[int, str]]
    gone: list[str]  # partitions that were once, of a table with these columns
    remade: int = -1  # the version with which the columns changed last; -1 for none

    def path(self, partition: str) -> str:
        """Return the directory of a partition's list."""
        return "/".join((MANIFESTS, f"v{self.lists[partition][0]}", *filter(None, [partition])))


class HiveManifests:
    """The lists of the newest version of a directory."""

    def __init__(self, versions: Versions, url: str, table: str | None) -> None:
        """Take the name that statements give the table; without one there are none."""
        self._versions, self._url, self._table = versions, url, table
        self._fs = versions.log.fs

    def plan(self) -> int:
        """Return how many versions `run` would export; ConfigError if it would refuse."""
        last, before = self._due()
        if last < 0 or (before is not None and before.version >= last):
            return 0
        self._versions.files(self._versions.snapshot(last))
        return 1

    def run(self, progress: OnProgress | None = None) -> tuple[int, tuple[str, ...]]:
        """Return how many versions were exported, and the statements; AlreadyExists if somebody else exports."""
        last, before = self._due()
        if last < 0:
            return 0, ()
        exported = before is None or before.version < last
        state = self._write(last, before, progress) if exported or before is None else before
        return int(exported), () if self._table is None else tuple(self._statements(self._table, state))

    def _due(self) -> tuple[int, _State | None]:
        numbers = self._numbers()
        last, before = last_published(self._versions.head), self._read(max(numbers)) if numbers else None
        if before is not None:
            self._versions.require_own(before.version, before.nonce, MANIFESTS)
            if before.url != self._url:
                raise ConfigError(
                    f"the lists in {MANIFESTS!r} name files below {before.url!r}, and this is {self._url!r}. Export by "
                    f"that path; if the directory moved, delete {MANIFESTS!r} to export anew"
                )
        return last, before

    def _write(self, version: int, before: _State | None, progress: OnProgress | None) -> _State:
        versions = self._versions
        snapshot = versions.snapshot(version)
        partition_by = versions.partition_columns(snapshot)
        paths: dict[str, list[str]] = defaultdict(list)
        if not partition_by:
            paths[""] = []
        for file in versions.files(snapshot):
            paths["/".join(file.path.split("/")[: len(partition_by)])].append(f"{self._url}{file.path}\n")
        has_old_columns = before is not None and (before.schema, before.partition_by) != (snapshot.schema, partition_by)
        old_lists = before.lists if before is not None and before.partition_by == partition_by else {}
        lists: dict[str, tuple[int, str]] = {}
        directories = {""}
        tracker = Tracker("export", self._fs.context.clock, progress, len(paths), unit="lists")
        for partition, lines in paths.items():
            content = "".join(sorted(lines)).encode()
            digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
            if partition in old_lists and old_lists[partition][1] == digest:
                lists[partition] = old_lists[partition]
            else:
                lists[partition] = version, digest
                directories |= self._write_list(version, partition, content)
            tracker.add()
        # A state must not outlive its lists.
        for directory in sorted(directories):
            self._fs.sync_directory(directory)
        gone: set[str] = set()
        remade = version if has_old_columns else -1
        if before is not None and not has_old_columns:
            gone, remade = {*old_lists, *before.gone} - lists.keys(), before.remade
        assert snapshot.schema is not None
        nonce = versions.nonce(version)
        state = _State(version, nonce, self._url, snapshot.schema, partition_by, lists, sorted(gone), remade)
        write_file(
            self._fs, self._fs.create_exclusive, f"{MANIFESTS}/v{version}.json", json.dumps(asdict(state)).encode()
        )
        numbers = sorted(self._numbers())
        if numbers[-1] > version:
            raise AlreadyExists("export", MANIFESTS, "another export is further")
        try:
            self._delete(numbers[: len(numbers) - VERSIONS_KEPT + 1] if len(numbers) > VERSIONS_KEPT else [])
        except StorageError as error:
            _log.warning("version %d is exported, and old lists stay: %s", version, error)
        return state

    def _write_list(self, version: int, partition: str, content: bytes) -> set[str]:
        """Write the list of a partition, and return the directories that it is in."""
        target = "/".join((MANIFESTS, f"v{version}", *filter(None, [partition]), "manifest"))
        # Another export writes the same.
        with contextlib.suppress(AlreadyExists):
            write_file(self._fs, self._fs.create_exclusive, target, content)
        return {*layout.ancestors(layout.parent(target))}

    def _delete(self, numbers: list[int]) -> None:
        """Delete all of these versions but for the last one: what a later version does not name comes back in none."""
        for number, following in itertools.pairwise(numbers):
            state = self._read(number)
            still = set(self._read(following).lists.items())
            for partition in state.lists:
                if (partition, state.lists[partition]) not in still:
                    delete_file(self._fs, f"{state.path(partition)}/manifest")
            delete_file(self._fs, f"{MANIFESTS}/v{number}.json")

    def _numbers(self) -> list[int]:
        names = (info.path.rpartition("/")[2] for info in list_or_empty(self._fs, MANIFESTS))
        return [int(match[1]) for name in names if (match := _STATE.fullmatch(name))]

    def _read(self, number: int) -> _State:
        path = f"{MANIFESTS}/v{number}.json"
        try:
            read = json.loads(self._fs.read(path))
            return _State(**read | {"lists": {key: tuple(value) for key, value in read["lists"].items()}})
        except (ValueError, TypeError, KeyError) as error:
            advice = f"Delete {MANIFESTS} to export anew"
            raise CorruptData(path, "the lists of a version", repr(error), advice) from error

    def _statements(self, table: str, state: _State) -> list[str]:
        self._versions.know(state.version, {state.schema})
        fields = {field["name"]: field["type"] for field in json.loads(self._versions.columns(state.schema))["fields"]}
        parted = {name: fields.pop(name) for name in state.partition_by}
        columns = f" PARTITIONED BY ({_columns(parted)})" if parted else ""
        base = MANIFESTS if parted else state.path("")
        create = f"CREATE EXTERNAL TABLE IF NOT EXISTS {table} ({_columns(fields)}){columns} {_STORED} LOCATION "
        # The table may have the columns before; it is external, so that no file goes with it.
        statements = [f"DROP TABLE IF EXISTS {table}"] if state.remade in self._numbers() else []
        statements.append(create + _quoted(f"{self._url}{base}"))
        if not parted:
            return [*statements, f"ALTER TABLE {table} SET LOCATION {_quoted(f'{self._url}{base}')}"]
        statements += [
            f"ALTER TABLE {table} DROP IF EXISTS PARTITION ({_values(partition)})" for partition in state.gone
        ]
        for partition in state.lists:
            values, location = _values(partition), _quoted(f"{self._url}{state.path(partition)}")
            statements.append(f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION ({values}) LOCATION {location}")
            # A partition that was there already is at an older list.
            statements.append(f"ALTER TABLE {table} PARTITION ({values}) SET LOCATION {location}")
        return statements


def _columns(fields: dict[str, Any]) -> str:
    return ", ".join(f"{quoted_name(name)} {sql_type(kind)}" for name, kind in fields.items())


def _values(partition: str) -> str:
    pairs = (name.partition("=") for name in partition.split("/"))
    return ", ".join(f"{quoted_name(unquote(column))}={_quoted(unquote(text))}" for column, _, text in pairs)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{_CONTROL.sub(_escaped, escaped)}'"


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
