"""The files of a writer's windows: what one holds, and the chain of those that count, from the newest one back.

A file begins with what it follows: the file before it, how much of that counts, and the last window that counts. What
is in other files, or behind a place from which a restore went on, is not part of the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.commit.format import layout
from ftfile.commit.wal.files import WalFiles, list_wal
from ftfile.commit.wal.frames import BEGIN, WINDOW, Frame, read_frames
from ftfile.core.errors import CorruptData
from ftfile.kv.key_ranges import decode_ranges, encode_ranges
from ftfile.kv.operator.windows import Window, row_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.filters.chain import Chain
    from ftfile.fs.api import FileSystem
    from ftfile.kv.definition import StoreDefinition

_ADVICE = (
    "Restore it from a copy, or the records of the store, if it is those that are lost; or open the store with "
    "restore={recorded}, which forgets the windows behind, and let what feeds it go back"
)


class WalFile(NamedTuple):
    """A file of the chain."""

    name: layout.WalName
    last: int  # window in it, or before it
    length: int  # up to the end of its last whole frame


@dataclass
class Found:
    """The part of a chain that is not recorded."""

    # Before the newest one, oldest first: what is in them is durable.
    files: list[WalFile] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)  # those that come back, by number
    # The last ones of them, which are in the newest file: of that, a killed process may have left what was not synced.
    of_newest: list[Window] = field(default_factory=list)
    has_more: bool = False  # there are windows that do not come back


class FileCodec(WalFiles):
    """Turns windows into frames of files and back."""

    def __init__(self, fs: FileSystem, writer: str, filters: Chain, definition: StoreDefinition) -> None:
        super().__init__(fs, writer, filters)
        self._definition = definition
        self._schema = row_schema(definition)

    def begin(self, name: layout.WalName, before: int, previous: WalFile | None, windows: Sequence[Window]) -> bytes:
        """Return the frames with which a file begins; it counts once all of them are there.

        It names the last window that counts `before` it, and the `previous` file, and has its first windows.
        """
        text = {"previous": None if previous is None else [*previous.name, previous.length], "windows": len(windows)}
        content = self._encode(BEGIN, before, name, 0, text, memoryview(self._schema.serialize()))
        for window in windows:
            content += self.window(name, len(content), window)
        return content

    def window(self, name: layout.WalName, offset: int, window: Window) -> bytes:
        """Return the frame of a window, which is to be at an offset."""
        text = {"purges": encode_ranges(window.purges)}
        return self._encode(WINDOW, window.number, name, offset, text, memoryview(window.rows.serialize()))

    def previous(self, name: layout.WalName, frame: Frame) -> WalFile | None:
        """Return the file that the beginning of another one names."""
        text, _ = self._decode(name, frame)
        if text["previous"] is None:
            return None
        epoch, number, length = text["previous"]
        return WalFile(layout.WalName(epoch, number), frame.window, length)

    def windows(self, name: layout.WalName, begin: Frame, frames: Sequence[Frame]) -> list[Window]:
        """Return the windows of frames."""
        schema = pa.ipc.read_schema(pa.py_buffer(self._decode(name, begin)[1])) if frames else None
        found = []
        for frame in frames:
            text, content = self._decode(name, frame)
            rows = pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            found.append(Window(frame.window, self._aligned(rows), decode_ranges(text["purges"])))
        return found

    def _aligned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that the store has now."""
        if rows.schema == self._schema:
            return rows
        table = self._definition.aligned(pa.Table.from_batches([rows])).combine_chunks()
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=self._schema)


def read_chain(fs: FileSystem, writer: str, codec: FileCodec, recorded: int, up_to: int | None) -> Found:
    """Return the windows of a writer behind the last recorded one, up to one that is to come back, or all.

    Raises:
        CorruptData: a window that was synced is damaged, or gone.
    """
    names = list_wal(fs, writer)
    found = Found()
    head = newest = codec.newest(names)
    cut: int | None = None
    while head is not None:
        name, (begin, *frames) = head
        counted = [frame for frame in frames if cut is None or frame.window <= cut]
        wanted = [frame for frame in counted if up_to is None or frame.window <= up_to]
        found.has_more |= len(wanted) < len(counted)
        windows = codec.windows(name, begin, [frame for frame in wanted if frame.window > recorded])
        found.windows[:0] = windows
        if head is newest:
            found.of_newest = windows
        else:
            last = wanted[-1].window if wanted else begin.window if up_to is None else min(begin.window, up_to)
            found.files.insert(0, WalFile(name, last, (frames[-1] if frames else begin).end))
        if up_to is not None and up_to <= recorded:
            found.has_more |= begin.window > recorded
            break
        cut = begin.window if cut is None else min(cut, begin.window)
        head = _head_before(fs, writer, codec, (name, begin), names, recorded)
    return found


def _head_before(
    fs: FileSystem,
    writer: str,
    codec: FileCodec,
    head: tuple[layout.WalName, Frame],
    names: Sequence[layout.WalName],
    recorded: int,
) -> tuple[layout.WalName, list[Frame]] | None:
    """Return the file before another one, and its frames; None if it has no window that is not recorded."""
    name, begin = head
    if begin.window <= recorded:
        return None
    previous = codec.previous(name, begin)
    if previous is None or previous.name not in names:
        path = layout.wal_directory(writer) if previous is None else layout.wal_path(writer, previous.name)
        expected = f"the windows behind {recorded} up to {begin.window}, which no record has"
        raise CorruptData(path, expected, "no file", _ADVICE.format(recorded=recorded))
    path = layout.wal_path(writer, previous.name)
    return previous.name, read_frames(fs.read(path), path, previous.length)
