"""Checkpoints: a committer's whole state in one immutable file, so that a restart reads few records.

Any checkpoint is right for its version; several may be written for one; only the newest is ever used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.checksum import Decoding
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.compacted import adds_from_json, adds_to_json, check_list, pairs_from_json
from ftfile.log.format.model import LIST, NUMBER, OBJECT, OR_NULL, TEXT, Field, Fields, many, one
from ftfile.log.format.record import (
    ADD,
    ASSEMBLY_TASK,
    FILE_BYTES_MAX,
    FINGERPRINT,
    REMOVE,
    check_format,
    compact_json,
    from_checked_text,
    json_value,
    to_checked_text,
    within_limits,
)
from ftfile.log.format.tables import check_entry, definitions_from_json
from ftfile.log.places import delete_file, list_files, write_file
from ftfile.log.state import LogState, QueryState, SharedMap, TransactionState, Unpublished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ftfile.core.context import IdSource
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import Tables
    from ftfile.storage.api import FileSystem


CHECKPOINT_FORMAT = 1


def _by_key(name: str, attribute: str, fields: Fields[Any]) -> Field:
    return Field(
        name,
        attribute,
        OBJECT,
        lambda values: {key: fields.to_json(value) for key, value in values.items()},
        lambda texts: SharedMap({key: fields.from_json(text) for key, text in texts.items()}),
    )


def _versions(name: str, attribute: str) -> Field:
    return Field(name, attribute, OBJECT, SharedMap.to_dict, lambda text: SharedMap(_checked(text)))


def _tables_from_json(text: dict[str, dict[str, list[Any]]]) -> Tables:
    for name, table in text.items():
        _checked({key: set_ms for key, (set_ms, _) in table.items()})
        for key, (_, value) in table.items():
            check_entry(name, key, value)
    return {name: SharedMap(table) for name, table in text.items()}


def _segments_from_json(text: dict[str, Any]) -> SharedMap[str, Add]:
    check_list("id", text["id"], str, len(text["id"]))
    return SharedMap({add.id: add for add in adds_from_json(text["id"], text)})


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values; a ValueError says that one is no number, which would make no sense later."""
    if any(type(value) is not int for value in values.values()):
        raise ValueError("a value that is no int")
    return values


QUERY = Fields(
    QueryState,
    Field("lastBatch", "last_batch", NUMBER),
    Field("version", "version", NUMBER),
    Field("runId", "run_id", TEXT),
    Field("offsetsHash", "offsets_hash", TEXT + OR_NULL),
    one("fingerprint", "fingerprint", FINGERPRINT, OBJECT + OR_NULL),
    Field("lineageStartBatch", "lineage_start", NUMBER),
    Field("assemblySettings", "settings", TEXT),
)
TRANSACTION = Fields(
    TransactionState,
    Field("lastTransaction", "last", NUMBER),
    Field("version", "version", NUMBER),
    one("fingerprint", "fingerprint", FINGERPRINT, OBJECT + OR_NULL),
)
UNPUBLISHED = Fields(
    Unpublished,
    Field("version", "version", NUMBER),
    Field("queryId", "query_id", TEXT + OR_NULL),
    many("adds", "adds", ADD),
    many("removes", "removes", REMOVE),
)
CHECKPOINT = Fields(
    LogState,
    Field("version", "version", NUMBER),
    Field("nonce", "nonce", TEXT),
    _by_key("queries", "queries", QUERY),
    _by_key("transactions", "transactions", TRANSACTION),
    Field("vacuumHorizonMs", "horizon_ms", NUMBER),
    Field("logStartVersion", "log_start", NUMBER),
    Field("schema", "schema", TEXT + OR_NULL),
    Field("encoding", "encoding", TEXT + OR_NULL),
    Field("definitions", "definitions", OBJECT),
    Field(
        "segments",
        "segments",
        OBJECT,
        lambda segments: adds_to_json(segments.values()),
        _segments_from_json,
    ),
    many("assemblyTasks", "assembly_tasks", ASSEMBLY_TASK),
    _versions("removedParts", "removed"),
    Field("removedPartsSinceVersion", "removed_since", NUMBER),
    _versions("reservedPaths", "reserved"),
    Field(
        "tables",
        "tables",
        OBJECT,
        lambda tables: {name: table.to_dict() for name, table in tables.items()},
        _tables_from_json,
    ),
    Field("recentRecords", "recent", LIST, list, pairs_from_json),
    Field(
        "unpublished",
        "unpublished",
        LIST,
        lambda entries: [UNPUBLISHED.to_json(entry) for entry in entries.values()],
        lambda texts: {entry.version: entry for entry in map(UNPUBLISHED.from_json, texts)},
    ),
    always=True,
)
_ADVICE = "Restore it from a copy; while every record from version 0 on is there, it may simply be deleted"
CHECKPOINTS_KEPT = 2
# A checkpoint is due when reading what came after it costs more than this, and than half of reading the checkpoint.
CHECKPOINT_MIN_BYTES = 1 << 20
# What opening a record costs, as bytes read: a restart must not open thousands of small ones.
RECORD_COST_BYTES = 4 << 10

_log = get_logger(__name__)


class LogCheckpoints:
    """The checkpoints of a log that can be read and whose record is there.

    Vacuum keeps the records of the last checkpoints. A checkpoint without its record was therefore written by another
    history of the directory, or the log was restored from an older copy.
    """

    def __init__(self, fs: FileSystem, read_record: Callable[[int], Record | None]) -> None:
        self._fs = fs
        self._read_record = read_record
        self.useless: set[layout.CheckpointName] = set()

    def names(self) -> list[layout.CheckpointName]:
        """Return the checkpoints that may be useful, in the order of versions."""
        return sorted(name for name in list_checkpoints(self._fs) if name not in self.useless)

    def newest(self) -> layout.CheckpointName | None:
        """Return the newest checkpoint by listing their names, or None."""
        return max(self.names(), default=None)

    def read_newest(self) -> tuple[LogState, int] | None:
        """Return the newest checkpoint that can be read, with its length in bytes; None when there is none."""
        while (name := self.newest()) is not None:
            if (state_and_size := self.read(name)) is not None:
                return state_and_size
        return None

    def read(self, name: layout.CheckpointName) -> tuple[LogState, int] | None:
        """Return a checkpoint with its length in bytes; None when it is gone, damaged, or not of this log."""
        path = layout.log_checkpoint_path(name)
        try:
            content = self._fs.read(path, FILE_BYTES_MAX)
        except NotFound:
            self.useless.add(name)  # replaced by a newer one since the listing
            return None
        try:
            state = decode_checkpoint(content, path)
            record = self._read_record(name.version)
            if state.version == name.version and record is not None and record.nonce == state.nonce:
                return state, len(content)
            problem = f"{path} is passed over: the log has no such version, or another one"
        except CorruptData as error:
            problem = f"a log checkpoint is passed over: {error}"
        _log.warning("%s", problem)
        self.useless.add(name)
        return None


def write_checkpoint(
    fs: FileSystem, ids: IdSource, state: LogState, useless: Collection[layout.CheckpointName] = ()
) -> int:
    """Write a checkpoint of the state and return its length in bytes; drop the checkpoints that it makes useless.

    Those of later versions may be another committer's. The `useless` replace nothing.
    """
    name = layout.CheckpointName(state.version, ids.unique()[:16])
    content = encode_checkpoint(state)
    write_file(fs, fs.create_exclusive, layout.log_checkpoint_path(name), content)
    older = {name for name in list_checkpoints(fs) if name.version <= state.version}
    for old in older - set(sorted(older - set(useless))[-CHECKPOINTS_KEPT:]):
        delete_file(fs, layout.log_checkpoint_path(old))
    return len(content)


def encode_checkpoint(state: LogState) -> bytes:
    """Return the bytes of a checkpoint; ConfigError for one that nobody could read."""
    content = compact_json({"ftfileCheckpoint": CHECKPOINT_FORMAT} | CHECKPOINT.to_json(state))
    return to_checked_text([within_limits(content)])


def decode_checkpoint(content: bytes, path: str) -> LogState:
    """Return the state that `encode_checkpoint` wrote."""
    if len(content) > FILE_BYTES_MAX:
        raise CorruptData(path, f"at most {FILE_BYTES_MAX} bytes", "more", _ADVICE)
    lines = from_checked_text(content, path, _ADVICE)
    with Decoding(path, "a checkpoint of the log", _ADVICE):
        text = json_value(lines[0])
        check_format(text, "ftfileCheckpoint", CHECKPOINT_FORMAT, path)
        state = CHECKPOINT.from_json(text)
        definitions_from_json(state.definitions)
        return state


def list_checkpoints(fs: FileSystem) -> list[layout.CheckpointName]:
    """Return the names of all checkpoints, in any order."""
    names = (layout.parse_checkpoint_name(info.path) for info in list_files(fs, layout.CHECKPOINTS))
    return [name for name in names if name is not None]
