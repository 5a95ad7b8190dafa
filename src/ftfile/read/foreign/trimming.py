"""Trimming: a log of payloads forgets its oldest records as it goes on, without a vacuum.

The payloads of all records up to a version add up to a *columns file*, opaque here, which the next record names in the
log's tables. Records go behind two checkpoints and two columns files, so that either of both may be lost: the record
that names the newer file announces the new start of the log, and only then what lies before is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import checksum, matches
from ftfile.core.errors import CorruptData, NotFound
from ftfile.log.checkpoints import CHECKPOINTS_KEPT, RECORD_COST_BYTES
from ftfile.log.format import layout
from ftfile.log.places import delete_file, list_own, stat_or_none, write_file
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


TABLE = "columns"
# Versions kept before one that is done, for a reader that goes back to an older position.
VERSIONS_KEPT = 100
# Columns files that the log names, the newest ones.
COLUMNS_KEPT = 2
# A columns file is due when the records behind the newest take more bytes than this, and than half of it; or when there
# are more of them than this, which a restart reads one by one.
COLUMNS_MIN_BYTES = 32 * RECORD_COST_BYTES
RECORDS_MAX = 1000

_ADVICE = "Restore it from a copy of the state; if there is none, give the query a new checkpointLocation"


class ColumnsFile(NamedTuple):
    """A columns file as the log names it."""

    name: layout.ColumnsName
    size_bytes: int
    checksum: str

    @property
    def path(self) -> str:
        """Return where it lies."""
        return layout.columns_path(self.name)


def columns_files(state: LogState) -> list[ColumnsFile]:
    """Return the columns files that the log names, newest first."""
    named = ((int(version), *value) for version, (_, value) in state.tables.get(TABLE, {}).items())
    files = [ColumnsFile(layout.ColumnsName(version, unique), *rest) for version, unique, *rest in named]
    return sorted(files, reverse=True)


def is_columns_due(log: CommitLog, state: LogState) -> bool:
    """Return True if another columns file is to be written."""
    newest = next(iter(columns_files(state)), None)
    if state.version - (newest.name.version if newest is not None else -1) > RECORDS_MAX:
        return True
    return log.delta_bytes > max(COLUMNS_MIN_BYTES, newest.size_bytes // 2 if newest is not None else 0)


def write_columns(log: CommitLog, version: int, content: bytes) -> ColumnsFile:
    """Write what the payloads up to a version add up to; it counts when the next record names it."""
    file = ColumnsFile(layout.ColumnsName(version, log.ids.unique()[:16]), len(content), checksum(content))
    write_file(log.fs, log.fs.create_exclusive, file.path, content)
    return file


def read_columns(fs: FileSystem, file: ColumnsFile) -> bytes:
    """Return the content of a columns file; CorruptData if it is gone or is not what was written."""
    try:
        content = fs.read(file.path, file.size_bytes)
    except NotFound as error:
        raise CorruptData(file.path, f"{file.size_bytes} bytes", "no such file", _ADVICE) from error
    if len(content) != file.size_bytes or not matches(content, file.checksum):
        expected = f"{file.size_bytes} bytes with {file.checksum}"
        raise CorruptData(file.path, expected, f"{len(content)} bytes with {checksum(content)}", _ADVICE)
    return content


def naming(state: LogState, file: ColumnsFile) -> dict[str, Any]:
    """Return the change of the log's tables that names one more columns file, and the newest of those before."""
    value = [file.name.unique, file.size_bytes, file.checksum]
    dropped = [str(old.name.version) for old in columns_files(state)[COLUMNS_KEPT - 1 :]]
    return {TABLE: {"set": {str(file.name.version): value}, "drop": dropped}}


def log_start_after(log: CommitLog, state: LogState, newest: ColumnsFile, done: int) -> int | None:
    """Return the start of the log that the record naming `newest` may announce; None to leave it.

    `state` is that of the head, `done` the newest version whose payload is done with.
    """
    names = log.checkpoints.names()[-CHECKPOINTS_KEPT:]
    older = next(iter(columns_files(state)), None)
    if len(names) < CHECKPOINTS_KEPT or older is None:
        return None
    # The record of a checkpoint is kept: without it nobody believes the checkpoint.
    start = min(done - VERSIONS_KEPT, names[0].version, older.name.version + 1)
    if start <= state.log_start or any(log.checkpoints.read(name) is None for name in names):
        return None
    sizes = [(info.size_bytes if (info := stat_or_none(log.fs, file.path)) else -1) for file in (older, newest)]
    return start if sizes == [older.size_bytes, newest.size_bytes] else None


def trim(fs: FileSystem, state: LogState) -> int:
    """Delete records before the log's start, and columns files that no record names; return the number of records.

    The record that announced the start must be durable.
    """
    listed = [(info.path, layout.parse_log_name(info.path)) for info in list_own(fs, layout.LOG)]
    old = [(path, name.nonce) for path, name in listed if name is not None and name.version < state.log_start]
    records = [path for path, nonce in old if nonce is None]
    # Companions last: a reader that finds a record without one looks again if the record is still there.
    for paths in (records, [path for path, nonce in old if nonce is not None], _unnamed_columns(fs, state)):
        parallel(fs, lambda path: delete_file(fs, path), paths)
    return len(records)


def _unnamed_columns(fs: FileSystem, state: LogState) -> list[str]:
    """Return the columns files that no record names, or ever will: only the record behind its version may name one."""
    named = {file.name for file in columns_files(state)}
    listed = ((info.path, layout.parse_columns_name(info.path)) for info in list_own(fs, layout.COLUMNS))
    return [path for path, name in listed if name is not None and name not in named and name.version < state.version]
