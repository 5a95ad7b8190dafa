"""The files of a writer's windows: their names, and their frames, each with its length and checksums.

A file begins with a frame that tells what came before it, and has a frame for each window behind. The checksum of a
frame's header tells a frame that was not written to its end from one that was damaged later.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import crc32
from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.filters.decoded import stream_errors
from ftfile.log.format import layout
from ftfile.log.places import list_own
from ftfile.log.sealed import SealedFileSystem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.filters.chain import Chain
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


# The table of the log with the newest opening of each writer.
OPERATORS = "operators"

BEGIN, WINDOW = 0, 1

_MAGIC = b"FTW\x01"
# Magic bytes, kind, window, length and checksum of the content; then the checksum of all this.
_FIELDS = struct.Struct("<4sIqQI")
_CHECKSUM = struct.Struct("<I")
FRAME_HEADER_BYTES = _FIELDS.size + _CHECKSUM.size

_ADVICE = "Restore the file from a copy. What is behind the damage cannot be told from what is missing"


class Frame(NamedTuple):
    """A whole frame."""

    kind: int  # `BEGIN` or `WINDOW`
    window: int  # its number; of a beginning, that of the last window before the file, -1 for none
    offset: int  # in the file
    content: bytes  # as it is on storage

    @property
    def end(self) -> int:
        """Return the offset behind it."""
        return self.offset + FRAME_HEADER_BYTES + len(self.content)


def encode_frame(kind: int, window: int, content: bytes) -> bytes:
    """Return the bytes of a frame."""
    fields = _FIELDS.pack(_MAGIC, kind, window, len(content), crc32(content))
    return fields + _CHECKSUM.pack(crc32(fields)) + content


def read_frames(content: bytes, path: str, whole_to: int | None = None) -> list[Frame]:
    """Return the frames of a file, up to the first that is not whole.

    Args:
        content: of the file.
        path: for errors.
        whole_to: the offset up to which frames are known to have been durable; only these are returned. None if that
            is not known: then all behind a frame that is not whole was never durable.

    Raises:
        CorruptData: the file has less than it is known to have had, or a frame behind one that is not whole.
    """
    frames: list[Frame] = []
    offset = 0
    while whole_to is None or offset < whole_to:
        frame = _frame_at(content, offset)
        if frame is None:
            break
        frames.append(frame)
        offset = frame.end
    if whole_to is not None and offset != whole_to:
        raise CorruptData(path, f"whole frames up to {whole_to}", f"up to {offset}", _ADVICE)
    if whole_to is None and (later := _next_header(content, offset)) is not None:
        raise CorruptData(path, f"a whole frame at {offset}", f"damage, and another frame at {later}", _ADVICE)
    return frames


def _header(content: bytes, offset: int) -> tuple[int, int, int, int] | None:
    """Return kind, window, length and checksum of the frame at an offset, or None if none begins there."""
    end = offset + _FIELDS.size
    if len(content) < end + _CHECKSUM.size or not content.startswith(_MAGIC, offset):
        return None
    if _CHECKSUM.unpack_from(content, end)[0] != crc32(memoryview(content)[offset:end]):
        return None
    _, kind, window, length, checksum = _FIELDS.unpack_from(content, offset)
    return kind, window, length, checksum


def _frame_at(content: bytes, offset: int) -> Frame | None:
    header = _header(content, offset)
    if header is None:
        return None
    kind, window, length, checksum = header
    start = offset + FRAME_HEADER_BYTES
    payload = content[start : start + length]
    if len(payload) < length or crc32(payload) != checksum:
        return None
    return Frame(kind, window, offset, payload)


def _next_header(content: bytes, offset: int) -> int | None:
    """Return the offset of the next header behind a frame that is not whole; None if there is none."""
    header = _header(content, offset)
    # What is inside of a frame may look like one.
    place = offset + 1 if header is None else offset + FRAME_HEADER_BYTES + header[2]
    while (place := content.find(_MAGIC, place)) >= 0:
        if _header(content, place) is not None:
            return place
        place += 1
    return None


_log = get_logger(__name__)


class Opening(NamedTuple):
    """The newest opening of a store by a writer, as the log has it."""

    epoch: int  # of the process that opened it: those of lower ones are fenced; 0 if there was none
    wal_epoch: int  # of the process whose files have the windows that no record has

    @property
    def is_owner(self) -> bool:
        """Return True if the process has taken over the windows of the one before."""
        return self.epoch == self.wal_epoch


def opening_of(head: LogState, writer: str) -> Opening:
    """Return the newest opening of a store by a writer."""
    table = head.tables.get(OPERATORS)
    entry = None if table is None else table.get(writer)
    return Opening(0, 0) if entry is None else Opening(*entry[1])


def set_opening(writer: str, opening: Opening) -> dict[str, Any]:
    """Return the change of the log's tables that makes an opening the newest one."""
    return {OPERATORS: {"set": {writer: [*opening]}}}


def recorded_window(head: LogState, writer: str) -> int:
    """Return the last window of a writer that a record has; -1 for none."""
    transaction = head.transactions.get(writer)
    return -1 if transaction is None else transaction.last


def list_wal_writers(fs: FileSystem) -> list[str]:
    """Return the directories of writers' windows."""
    return [info.path for info in list_own(fs, layout.WAL) if info.is_directory]


def list_wal(fs: FileSystem, writer: str) -> list[layout.WalName]:
    """Return the files of a writer's windows, oldest first."""
    wal_names = (layout.parse_wal_name(info.path) for info in list_own(fs, layout.wal_directory(writer)))
    return sorted(name for name in wal_names if name is not None)


class WalFiles:
    """Reads and makes the frames of a writer's files. Where a store is encrypted, each frame has an envelope."""

    def __init__(self, fs: FileSystem, writer: str, filters: Chain) -> None:
        self._fs = fs
        self._writer = writer
        self._filters = filters
        self._directory_id = fs.directory_id if isinstance(fs, SealedFileSystem) else ""

    def newest(self, names: Sequence[layout.WalName]) -> tuple[layout.WalName, list[Frame]] | None:
        """Return the newest file that was begun, and its frames."""
        for name in reversed(names):
            path = layout.wal_path(self._writer, name)
            content = self._fs.read(path)
            frames = read_frames(content, path)
            is_begun = self.is_begun(name, frames)
            if not is_begun or frames[-1].end < len(content):
                _log.warning("%s ends within a window, which was never acknowledged: it does not come back", path)
            if is_begun:
                return name, frames
        return None

    def is_begun(self, name: layout.WalName, frames: Sequence[Frame]) -> bool:
        """Return True if a file has all frames with which it begins."""
        return bool(frames) and len(frames) > self._decode(name, frames[0])[0]["windows"]

    def _encode(
        self, kind: int, window: int, name: layout.WalName, offset: int, text: dict[str, Any], message: memoryview
    ) -> bytes:
        content = json.dumps(text, separators=(",", ":")).encode() + b"\n" + message
        sealer = self._filters.sealer(self._identity(name, offset, kind, window))
        return encode_frame(kind, window, sealer.feed(content) + sealer.finish())

    def _decode(self, name: layout.WalName, frame: Frame) -> tuple[dict[str, Any], memoryview]:
        path = layout.wal_path(self._writer, name)
        with stream_errors(path):
            content = self._filters.unseal(frame.content, self._identity(name, frame.offset, frame.kind, frame.window))
        text, _, message = content.partition(b"\n")
        return json.loads(text), memoryview(message)

    def _identity(self, name: layout.WalName, offset: int, kind: int, window: int) -> str:
        return f"wal {layout.wal_path(self._writer, name)}@{offset} {kind} {window} {self._directory_id}"
