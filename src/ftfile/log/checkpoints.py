"""Checkpoints: the complete state of a committer in one immutable file, so that a restart reads few records.

Every checkpoint is valid for its version. Several can exist for one version; only the newest is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import field

from ftfile.core.checksum import Decoding
from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.compacted import adds_by_id, adds_of
from ftfile.log.format.model import Count, Entries, Job, Value, convert
from ftfile.log.format.record import (
    FILE_BYTES_MAX,
    check_definitions,
    check_entry,
    check_format,
    check_limits,
    compact_json,
    decode_json,
    from_checked_text,
    to_checked_text,
)
from ftfile.log.places import delete_file, list_files, write_file
from ftfile.log.state import LogState, QueryState, SharedMap, TransactionState, Unpublished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from ftfile.core.context import IdSource
    from ftfile.storage.api import FileSystem


CHECKPOINT_FORMAT = 1
# Attributes that are maps in a state, with their keys.
_MAPS = ("queries", "transactions", "removed", "reserved")
_SEGMENT_STATISTICS = "segment_statistics"
CHECKPOINTS_KEPT = 2
# A checkpoint is due when reading the later records costs more than this, and more than half of reading the checkpoint.
CHECKPOINT_MIN_BYTES = 1 << 20
# A checkpoint is also due when half of the segments have ended, a restart reads more than this, and would read half
# with a new checkpoint. To find out, it is encoded, if the last one has at most this multiple of the bytes of later
# records.
SHRUNK_MIN_BYTES, ENCODED_SHARE = 256 << 10, 64
# The cost of opening a record in bytes: a restart must not open thousands of small records.
RECORD_COST_BYTES = 4 << 10
_ADVICE = "Restore it from a copy. If all records from version 0 exist, you can also delete it"
_log = get_logger(__name__)


class Checkpoint(Value, frozen=True, tag_field="ftfileCheckpoint", tag=CHECKPOINT_FORMAT):
    """The fields of a checkpoint: attributes of a state as plain values."""

    version: Count
    nonce: str
    horizon_ms: Count = field(name="vacuumHorizonMs")
    log_start: Count = field(name="logStartVersion")
    vacuumed_to: Count = field(name="vacuumedToVersion")
    schema: str | None
    encoding: str | None
    definitions: dict[str, Any]
    removed_since: Count = field(name="removedPartsSinceVersion")
    queries: dict[str, QueryState]
    transactions: dict[str, TransactionState]
    segments: dict[str, Any]
    jobs: tuple[Job, ...]
    removed: dict[str, int] = field(name="removedParts")
    reserved: dict[str, int] = field(name="reservedPaths")
    tables: dict[str, dict[str, list[Any]]]
    recent: tuple[tuple[int, str], ...] = field(name="recentRecords")
    unpublished: tuple[Unpublished, ...]
    segment_statistics: dict[str, Entries] = field(default_factory=dict)  # by id; few of many segments have any


def _checkpoint_of(state: LogState) -> Checkpoint:
    values = {}
    for name in Checkpoint.__struct_fields__:
        if name != _SEGMENT_STATISTICS:
            values[name] = getattr(state, name)
    values |= {name: values[name].to_dict() for name in _MAPS}
    values["segments"] = adds_by_id(state.segments.values())
    values[_SEGMENT_STATISTICS] = {add.id: add.statistics for add in state.segments.values() if add.statistics}
    values["tables"] = {name: table.to_dict() for name, table in state.tables.items()}
    values["unpublished"] = tuple(state.unpublished.values())
    return Checkpoint(**values)


def _state_of(checkpoint: Checkpoint) -> LogState:
    """Return the state; a ValueError for an invalid table or segment."""
    check_definitions(checkpoint.definitions)
    for name, table in checkpoint.tables.items():
        for key, (set_ms, value) in table.items():
            convert(set_ms, int, f"the time of {key!r:.40}")
            check_entry(name, key, value)
    values = msgspec.structs.asdict(checkpoint)
    values |= {name: SharedMap(values[name]) for name in _MAPS}
    ids = convert(checkpoint.segments["id"], list[str], "id")
    segments = {add.id: add for add in adds_of(ids, checkpoint.segments)}
    for add_id, statistics in values.pop(_SEGMENT_STATISTICS).items():
        segments[add_id] = msgspec.structs.replace(segments[add_id], statistics=statistics)
    values["segments"] = SharedMap(segments)
    values["tables"] = {name: SharedMap(table) for name, table in checkpoint.tables.items()}
    values["unpublished"] = {entry.version: entry for entry in checkpoint.unpublished}
    return LogState(**values)


class LogCheckpoints:
    """The valid checkpoints of a log whose records exist.

    Vacuum keeps the records of the last checkpoints. So a checkpoint without its record was written by another history
    of the directory, or the log was restored from an older copy.
    """

    def __init__(self, fs: FileSystem, nonce_at: Callable[[int], str | None]) -> None:
        self._fs = fs
        self._nonce_at = nonce_at  # returns the nonce of the record of a version, None if it does not exist
        self.useless: set[layout.CheckpointName] = set()

    def names(self) -> list[layout.CheckpointName]:
        """Return the checkpoints that can be useful, ordered by version."""
        names = []
        for name in list_checkpoints(self._fs):
            if name not in self.useless:
                names.append(name)
        return sorted(names)

    def newest(self) -> layout.CheckpointName | None:
        """Return the newest checkpoint by a listing of names, or None."""
        return max(self.names(), default=None)

    def read_newest(self) -> tuple[LogState, int] | None:
        """Return the newest readable checkpoint, with its length in bytes; None if there is no such checkpoint."""
        while (name := self.newest()) is not None:
            if (state_and_size := self.read(name)) is not None:
                return state_and_size
        return None

    def read(self, name: layout.CheckpointName) -> tuple[LogState, int] | None:
        """Return a checkpoint with its length in bytes; None if it is deleted, damaged, or not of this log."""
        path = layout.log_checkpoint_path(name)
        try:
            content = self._fs.read(path, FILE_BYTES_MAX)
        except NotFound:
            self.useless.add(name)  # replaced by a newer one since the listing
            return None
        try:
            state = decode_checkpoint(content, path)
            if state.version == name.version and self._nonce_at(name.version) == state.nonce:
                return state, len(content)
            problem = (
                f"the log checkpoint {path} is ignored: the log does not contain its version, or contains another "
                "record of it"
            )
        except CorruptData as error:
            problem = f"a log checkpoint is ignored: {error}"
        _log.warning("%s", problem)
        self.useless.add(name)
        return None


def write_checkpoint(
    fs: FileSystem,
    ids: IdSource,
    state: LogState,
    useless: Collection[layout.CheckpointName] = (),
    bytes_max: int = FILE_BYTES_MAX,
) -> int | None:
    """Write a checkpoint of the state and return its length in bytes; delete the checkpoints that it replaces.

    Checkpoints of later versions can belong to another committer. The `useless` ones replace no other checkpoint. A
    checkpoint longer than `bytes_max` is not written: None.
    """
    content = encode_checkpoint(state)
    if len(content) > bytes_max:
        return None
    name = layout.CheckpointName(state.version, ids.unique()[:16])
    write_file(fs, fs.create_exclusive, layout.log_checkpoint_path(name), content)
    older = {name for name in list_checkpoints(fs) if name.version <= state.version}
    for old in older - set(sorted(older - set(useless))[-CHECKPOINTS_KEPT:]):
        delete_file(fs, layout.log_checkpoint_path(old))
    return len(content)


def encode_checkpoint(state: LogState) -> bytes:
    """Return the bytes of a checkpoint; ConfigError for a checkpoint that readers would refuse."""
    content = compact_json(_checkpoint_of(state))
    return to_checked_text([check_limits(content)])


def decode_checkpoint(content: bytes, path: str) -> LogState:
    """Return the state of `encode_checkpoint`."""
    if len(content) > FILE_BYTES_MAX:
        raise CorruptData(path, f"at most {FILE_BYTES_MAX} bytes", "more", _ADVICE)
    lines = from_checked_text(content, path, _ADVICE)
    with Decoding(path, "a checkpoint of the log", _ADVICE):
        check_format(lines[0], "ftfileCheckpoint", CHECKPOINT_FORMAT, path)
        return _state_of(decode_json(lines[0], Checkpoint))


def list_checkpoints(fs: FileSystem) -> list[layout.CheckpointName]:
    """Return the names of all checkpoints, in any order."""
    names = (layout.parse_checkpoint_name(info.path) for info in list_files(fs, layout.CHECKPOINTS))
    return [name for name in names if name is not None]
