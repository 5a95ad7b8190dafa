"""The log of a Delta table over the files of a directory, with a commit for each version and periodic checkpoints.

The format is Delta's protocol, https://github.com/delta-io/delta/blob/master/PROTOCOL.md. A commit is created
atomically: only one of several exporters writes it, and a crash leaves no partial commit. Its `commitInfo` contains the
version and the log that it represents.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.log.places import delete_file, names_in, write_file
from ftfile.operate.export.delta_statistics import DeltaStatistics, skipping_columns, skipping_property
from ftfile.operate.export.limits import LIMITS
from ftfile.operate.export.tables import COUNTED, Exported, ExportTable
from ftfile.rows.value_text import UTC, value_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.operate.export.tables import TableChange
    from ftfile.storage.api import FileSystem


_log = get_logger(__name__)

LOG = LIMITS["delta"].directory
CHECKPOINT_EVERY = 100
# Older commits are deleted after a checkpoint, because every export and every reader lists all existing commits.
COMMITS_KEPT = 1_000
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
# A writer feature that no program supports: all refuse to write to the table, because ftfile owns its files.
_WRITER_FEATURE = "ftfileExport"
_TEXTS = pa.map_(pa.string(), pa.string())
_ACTIONS = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
            }
        ),
    }
)

Action = dict[str, Any]


class DeltaLog(ExportTable):
    """The commits of a Delta table in a directory."""

    limits = LIMITS["delta"]

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._is_redefined = False  # True if the newest commit redefined the columns

    def statistics_columns(self, columns: str, recorded: Sequence[str]) -> list[str]:  # noqa: D102 - the interface describes it
        return skipping_columns(columns, recorded)

    def newest(self) -> Exported | None:  # noqa: D102 - the interface describes it
        commits = self._commits()
        if not commits:
            return None
        # In a commit of ftfile, the first action contains the version, and the next actions define the table.
        first = [*islice(self._read(commits[-1]), 3)]
        info = None
        if first:
            info = first[0].get("commitInfo", {}).get("ftfile")
        if info is not None:
            self._is_redefined = any("metaData" in action for action in first)
            return Exported(commits[-1], **info)
        raise ConfigError(
            f"the newest commit of {LOG!r}, {_name(commits[-1])!r}, is not an export of ftfile: another program wrote "
            "to this table. Delete the directory to export again"
        )

    def live_paths(self) -> set[str]:  # noqa: D102
        commits = self._commits()
        checkpoint = max(filter(_has_checkpoint, commits), default=None)
        live: set[str] = set()
        if checkpoint is not None:
            # After a crash between a commit and its checkpoint, the commits are read instead.
            with contextlib.suppress(NotFound):
                content = self._fs.read(_checkpoint_path(checkpoint))
                for add in pq.read_table(pa.BufferReader(content))["add"].to_pylist():
                    if add:
                        live.add(add["path"])
                commits = commits[commits.index(checkpoint) + 1 :]
        for number in commits:
            for action in self._read(number):
                if "add" in action:
                    live.add(action["add"]["path"])
                if "remove" in action:
                    live.discard(action["remove"]["path"])
        return {unquote(path) for path in live}

    def refuse(self, whole: TableChange) -> None:  # noqa: D102
        del whole  # a commit can have any columns

    def append(self, change: TableChange, done: Callable[[int], object] | None) -> None:  # noqa: D102
        state = change.exported._asdict()
        del state["commit"]
        parameters: dict[str, Any] = {"timestamp": change.time_ms, "operation": change.operation}
        info = parameters | {"operationParameters": {}, "ftfile": state}
        actions = [{"commitInfo": info}, *_actions(change)]
        lines: list[str] = []
        for first in range(0, len(actions), COUNTED):
            adds = 0
            for action in actions[first : first + COUNTED]:
                lines.append(json.dumps(action, separators=(",", ":")))
                adds += "add" in action
            if done is not None:
                done(adds)
        path = f"{LOG}/{_name(change.exported.commit)}"
        write_file(self._fs, self._fs.create_exclusive, path, "\n".join([*lines, ""]).encode())
        self._is_redefined = change.is_redefined

    def follow_up(self, exported: Exported, whole: Callable[[], TableChange]) -> None:  # noqa: D102
        commit = exported.commit
        # Without a checkpoint, readers read all commits, and some read values of removed partitions as the new type.
        is_due = _has_checkpoint(commit) or (commit and self._is_redefined and exported.partition_by)
        if is_due and not self._fs.exists(_checkpoint_path(commit)):
            self._write_checkpoint(commit, _actions(whole(), is_checkpoint=True))
            self._delete_expired(commit)

    def _write_checkpoint(self, commit: int, actions: list[Action]) -> None:
        rows = [dict.fromkeys(_ACTIONS.names) | action for action in actions]
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, _ACTIONS), content)
        # No hint is written: readers find the checkpoint by its name, and some fail at a hint torn by a crash.
        with contextlib.suppress(AlreadyExists):
            self._fs.create_exclusive(_checkpoint_path(commit), content.getvalue())

    def _delete_expired(self, commit: int) -> None:
        """Delete commits before the newest checkpoint that is `COMMITS_KEPT` commits old; later commits need it."""
        names = names_in(self._fs, LOG)
        checkpoints = _numbers(names, _CHECKPOINT)
        start = 0
        for number in checkpoints:
            if number <= commit - COMMITS_KEPT:
                start = max(start, number)
        try:
            for number in _numbers(names, _COMMIT):
                if number < start:
                    delete_file(self._fs, f"{LOG}/{_name(number)}")
            for number in checkpoints:
                if number < start:
                    delete_file(self._fs, _checkpoint_path(number))
        except StorageError as error:
            _log.warning("old commits of %s could not be deleted yet: %s", LOG, error)

    def _commits(self) -> list[int]:
        return _numbers(names_in(self._fs, LOG), _COMMIT)

    def _read(self, number: int) -> Iterator[Action]:
        path = f"{LOG}/{_name(number)}"
        try:
            # Most calls need only the first line, of as many lines as there are files.
            for line in self._fs.read(path).decode().splitlines():
                if line:
                    yield json.loads(line)
        except ValueError as error:
            raise CorruptData(
                path, "a commit of a Delta table", str(error), "Delete _delta_log to export again"
            ) from error


def _actions(change: TableChange, *, is_checkpoint: bool = False) -> list[Action]:
    maps: Callable[..., object] = dict
    if is_checkpoint:
        maps = list  # Arrow accepts pairs
    actions: list[Action] = []
    if change.is_redefined:
        actions += _table_actions(change, maps)
    for path in change.removes:
        gone = {"path": _path(path), "deletionTimestamp": change.time_ms, "dataChange": change.is_change}
        actions.append({"remove": gone})
    statistics = DeltaStatistics(change.columns, change.exported.statistics)
    for file in change.adds:
        values = zip(file.values, map(_text, file.values.values()), strict=True)
        add = {
            "path": _path(file.path),
            "partitionValues": maps(values),
            "size": file.size_bytes,
            "modificationTime": change.time_ms,
            "dataChange": file.is_change and not is_checkpoint,
            "stats": statistics.text(file),
        }
        actions.append({"add": add})
    return actions


def _table_actions(change: TableChange, maps: Callable[..., object]) -> list[Action]:
    """Return the actions that define a table; Delta uses Spark's JSON of a schema."""
    # A reader that does not support local times must not read them as instants.
    features: list[str] = []
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7}
    if '"timestamp_ntz"' in change.columns:
        features = ["timestampNtz"]
        protocol |= {"minReaderVersion": 3, "readerFeatures": features}
    metadata = {
        "id": change.exported.table,
        "format": {"provider": "parquet", "options": maps()},
        "schemaString": change.columns,
        "partitionColumns": change.exported.partition_by,
        "configuration": maps(skipping_property(change.columns, change.exported.statistics)),
        "createdTime": change.table_time_ms,
    }
    return [{"protocol": protocol | {"writerFeatures": [*features, _WRITER_FEATURE]}}, {"metaData": metadata}]


def _path(path: str) -> str:
    return quote(path, safe="/=")


def _text(value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    (text,) = value_texts(pa.repeat(value, 1), UTC)  # Python does not support dates after the year 9999
    if getattr(value.type, "tz", None):
        return f"{text.replace(' ', 'T')}Z"
    return text


def _numbers(names: Sequence[str], pattern: re.Pattern[str]) -> list[int]:
    numbers: list[int] = []
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None:
            numbers.append(int(match[1]))
    return sorted(numbers)


def _has_checkpoint(commit: int) -> bool:
    return commit > 0 and commit % CHECKPOINT_EVERY == 0


def _name(commit: int) -> str:
    return f"{commit:020}.json"


def _checkpoint_path(commit: int) -> str:
    return f"{LOG}/{commit:020}.checkpoint.parquet"
