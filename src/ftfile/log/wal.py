"""Openings of stores in the log, and the files of a writer's windows that are not recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import Decoding, checksum
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData, StorageError
from ftfile.core.logs import get_logger
from ftfile.filters.decoded import stream_errors
from ftfile.log.format import layout
from ftfile.log.format.record import FILE_BYTES_MAX, compact_json, json_value, read_within
from ftfile.log.places import delete_file, list_files, list_own
from ftfile.log.sealed import SealedFileSystem
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ftfile.filters.chain import Chain
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem

# The table of the log with the newest opening of each writer.
OPERATORS = "operators"

_CHECKSUM_BYTES = len(checksum(b""))
_log = get_logger(__name__)


class Opening(NamedTuple):
    """The newest opening of a store by a writer, as the log has it."""

    epoch: int  # of the process that opened it: those of lower ones are fenced; 0 if there was none
    wal_epoch: int  # of the process whose files have the windows that no record has; files of others mean nothing
    wal_id: str  # that all files of this writer's windows have, and those of no other store; empty if there was none

    @property
    def is_owner(self) -> bool:
        """Return True if the process has taken over the windows of the one before."""
        return self.epoch == self.wal_epoch

    def lost_epoch(self, names: Collection[layout.WalName]) -> int | None:
        """Return the newest epoch whose files show that the log has lost its opening; None if none do.

        `names` are those of all files, listed before the head of the log was read.
        """
        return max((name.epoch for name in names if self._shows_loss(name)), default=None)

    def _shows_loss(self, name: layout.WalName) -> bool:
        # A process has further files than the first one only after its opening is complete in the log.
        return name.epoch > self.epoch or (name.epoch > self.wal_epoch and name.number > 0)


NO_OPENING = Opening(0, 0, "")


def opening_of(head: LogState, writer: str) -> Opening:
    """Return the newest opening of a store by a writer."""
    table = head.tables.get(OPERATORS)
    if table is None:
        entry = None
    else:
        entry = table.get(writer)
    if entry is None:
        return NO_OPENING
    return Opening(*entry[1])


def set_opening(writer: str, opening: Opening) -> dict[str, Any]:
    """Return the change of the log's tables that makes an opening the newest one."""
    return {OPERATORS: {"set": {writer: [*opening]}}}


def recorded_window(head: LogState, writer: str) -> int:
    """Return the last window of a writer that a record has; -1 for none."""
    transaction = head.transactions.get(writer)
    if transaction is None:
        return -1
    return transaction.last


def list_wal_writers(fs: FileSystem) -> list[str]:
    """Return the directories of writers' windows."""
    writers = []
    for info in list_own(fs, layout.WAL):
        if info.is_directory:
            writers.append(info.path)
    return writers


def list_wal(fs: FileSystem, writer: str) -> list[layout.WalName]:
    """Return the files of a writer's windows, oldest first."""
    wal_names = (layout.parse_wal_name(info.path) for info in list_files(fs, layout.wal_directory(writer)))
    return sorted(name for name in wal_names if name is not None)


def _without_checksum(path: str, stored: bytes) -> bytes:
    """Return a stored file without the checksum at its end; CorruptData if that is not its checksum."""
    content, stored_checksum = stored[:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:]
    if checksum(content).encode() != stored_checksum:
        raise CorruptData(path, f"the checksum {checksum(content)} at its end", repr(stored_checksum))
    return content


class WalFiles:
    """The files of a writer's windows: a line of JSON, an Arrow stream, and a checksum; sealed where the log is.

    The id is that of the writer's openings, by which files of another store are told from these.
    """

    def __init__(self, fs: FileSystem, writer: str, filters: Chain, wal_id: str) -> None:
        self.fs = fs
        self.directory = layout.wal_directory(writer)
        self._writer = writer
        self._filters = filters
        self._wal_id = wal_id
        if isinstance(fs, SealedFileSystem):
            self._directory_id = fs.directory_id
        else:
            self._directory_id = ""

    def names(self) -> list[layout.WalName]:
        """Return the names of all files, oldest first."""
        return list_wal(self.fs, self._writer)

    def prepare(self) -> None:
        """Make the directory, and its name durable."""
        self.fs.make_directories(self.directory)
        for parent in (layout.META, layout.WAL):
            self.fs.sync_directory(parent)

    def write(self, name: layout.WalName, header: Mapping[str, Any], message: memoryview) -> None:
        """Create a file, whole and durable when this returns; StorageError says that it may be there, or not."""
        path = self._path(name)
        sealer = self._filters.sealer(self._identity(path))
        line = compact_json({"ftfileWal": 1, "id": self._wal_id, **header})
        content = sealer.feed(line + b"\n" + message) + sealer.finish()
        content += checksum(content).encode()
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(
                f"the windows have {len(content)} bytes, which is too large to read: write smaller windows"
            )
        try:
            self.fs.create_exclusive(path, content)
        except AlreadyExists:  # by an own try whose reply was lost
            if self.fs.read(path, len(content)) != content:
                raise
            self.fs.sync_directory(self.directory)

    def read(self, name: layout.WalName) -> tuple[dict[str, Any], memoryview]:
        """Return the JSON and the message of a file; CorruptData for anything but the bytes that this store wrote."""
        path = self._path(name)
        content = _without_checksum(path, read_within(self.fs, path, FILE_BYTES_MAX))
        with stream_errors(path):
            line, _, message = self._filters.unseal(content, self._identity(path)).partition(b"\n")
        with Decoding(path, "the windows of a writer"):
            header: dict[str, Any] = json_value(line)
            wal_id = header["id"]
        if wal_id != self._wal_id:
            raise CorruptData(
                path, f"windows of this store, with the id {self._wal_id!r}", f"windows with the id {wal_id!r:.80}"
            )
        return header, memoryview(message)

    def delete(self, names: Sequence[layout.WalName]) -> bool:
        """Delete files; False, with a warning, if the storage failed, and some of them stay."""
        try:
            parallel(self.fs, partial(delete_file, self.fs), list(map(self._path, names)))
        except StorageError as error:
            _log.warning("unneeded files of windows stay until the next commit or opening: %s", error)
            return False
        return True

    def _path(self, name: layout.WalName) -> str:
        return layout.wal_path(self._writer, name)

    def _identity(self, path: str) -> str:
        return f"wal {path} {self._directory_id}"
