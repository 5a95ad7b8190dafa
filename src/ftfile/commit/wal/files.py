"""The files of a writer's windows: their names, and the content of their frames, sealed where the log is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ftfile.commit.files import list_own
from ftfile.commit.format import layout
from ftfile.commit.sealed.filesystem import SealedFileSystem
from ftfile.commit.wal.frames import encode_frame, read_frames
from ftfile.core.logs import get_logger
from ftfile.filters.decoded import stream_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.log.state import LogState
    from ftfile.commit.wal.frames import Frame
    from ftfile.filters.chain import Chain
    from ftfile.fs.api import FileSystem

_log = get_logger(__name__)


def recorded_window(head: LogState, writer: str) -> int:
    """Return the last window of a writer that a record has; -1 for none."""
    found = head.transactions.get(writer)
    return -1 if found is None else found.last


def list_wal_writers(fs: FileSystem) -> list[str]:
    """Return the directories of writers' windows."""
    return [info.path for info in list_own(fs, layout.WAL) if info.is_directory]


def list_wal(fs: FileSystem, writer: str) -> list[layout.WalName]:
    """Return the files of a writer's windows, oldest first."""
    found = (layout.parse_wal_name(info.path) for info in list_own(fs, layout.wal_directory(writer)))
    return sorted(name for name in found if name is not None)


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
