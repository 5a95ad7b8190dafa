"""The log of windows of one writer: a window that is synced here comes back after a crash, until a record has it.

A file begins with what it follows: the file before it, how much of that counts, and the last window that counts. What
is in other files, or behind a place from which a restore went on, is not part of the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.errors import CorruptData, StorageError
from ftfile.core.logs import get_logger
from ftfile.kv.key_columns import decode_ranges, encode_ranges
from ftfile.kv.operator.windows import Window, row_schema
from ftfile.log.format import layout
from ftfile.log.places import delete_file
from ftfile.log.wal import BEGIN, WINDOW, Frame, WalFiles, list_wal, read_frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.filters.chain import Chain
    from ftfile.kv.definition import StoreDefinition
    from ftfile.storage.api import FileSystem, OutputStream


_ADVICE = (
    "Restore it from a copy, or the records of the store, if it is those that are lost; or open the store with "
    "restore={recorded}, which forgets the windows behind, and let what feeds it go back"
)
MAX_FILE_BYTES = 64 << 20
_log = get_logger(__name__)


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

    def _windows(self, name: layout.WalName, begin: Frame, frames: Sequence[Frame]) -> list[Window]:
        """Return the windows of frames."""
        schema = pa.ipc.read_schema(pa.py_buffer(self._decode(name, begin)[1])) if frames else None
        windows = []
        for frame in frames:
            text, content = self._decode(name, frame)
            rows = pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            windows.append(Window(frame.window, self._aligned(rows), decode_ranges(text["purges"])))
        return windows

    def _aligned(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that the store has now."""
        if rows.schema == self._schema:
            return rows
        table = self._definition.aligned(pa.Table.from_batches([rows])).combine_chunks()
        return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=self._schema)

    def read_chain(self, recorded: int, up_to: int | None) -> Found:
        """Return the windows behind the last recorded one, up to one that is to come back, or all.

        CorruptData tells of a window that was synced and is damaged, or gone.
        """
        names = list_wal(self._fs, self._writer)
        chain = Found()
        head = newest = self.newest(names)
        cut: int | None = None
        while head is not None:
            name, (begin, *frames) = head
            counted = [frame for frame in frames if cut is None or frame.window <= cut]
            chosen = [frame for frame in counted if up_to is None or frame.window <= up_to]
            chain.has_more |= len(chosen) < len(counted)
            windows = self._windows(name, begin, [frame for frame in chosen if frame.window > recorded])
            chain.windows[:0] = windows
            if head is newest:
                chain.of_newest = windows
            else:
                last = chosen[-1].window if chosen else begin.window if up_to is None else min(begin.window, up_to)
                chain.files.insert(0, WalFile(name, last, (frames[-1] if frames else begin).end))
            if up_to is not None and up_to <= recorded:
                chain.has_more |= begin.window > recorded
                break
            cut = begin.window if cut is None else min(cut, begin.window)
            head = self._head_before(name, begin, names, recorded) if begin.window > recorded else None
        return chain

    def _head_before(
        self, name: layout.WalName, begin: Frame, names: Sequence[layout.WalName], recorded: int
    ) -> tuple[layout.WalName, list[Frame]]:
        """Return the file before another one, and its frames."""
        link = self._decode(name, begin)[0]["previous"]  # with the length up to which its frames count
        previous = layout.WalName(*link[:2]) if link else None
        if previous is None or previous not in names:
            path = layout.wal_directory(self._writer) if previous is None else layout.wal_path(self._writer, previous)
            expected = f"the windows behind {recorded} up to {begin.window}, which no record has"
            raise CorruptData(path, expected, "no file", _ADVICE.format(recorded=recorded))
        path = layout.wal_path(self._writer, previous)
        return previous, read_frames(self._fs.read(path), path, link[2])


class Wal:
    """The windows of a writer that are not recorded yet, on storage. For one thread.

    Where readers see what is synced into an open file, windows are appended to one; else each window is a file.
    """

    def __init__(
        self, fs: FileSystem, writer: str, epoch: int, codec: FileCodec, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        self._fs = fs
        self._writer = writer
        self._epoch = epoch  # recorded, so that older processes acknowledge no further window
        self._codec = codec
        self._max_file_bytes = max_file_bytes  # of a file that takes further windows
        can = fs.capabilities
        self._appends = can.durability == "hsync" and can.reads_open_files
        self._files: list[WalFile] = []  # of the chain, oldest first
        self._number = 0  # of the next file
        self._recorded = -1
        self._stream: OutputStream | None = None  # of the newest file, where that takes further windows
        self._held: list[Window] = []  # in it, and not recorded: written again if it fails
        self._failed: list[OutputStream] = []
        self._has_directory = False

    def recover(self, recorded: int, up_to: int | None = None) -> list[Window]:
        """Return the windows behind the last recorded one, by number; those behind `up_to` come back nevermore.

        Raises:
            CorruptData: a window that was synced is damaged, or gone.
        """
        self._recorded = recorded
        names = list_wal(self._fs, self._writer)
        self._number = max((name.number + 1 for name in names if name.epoch >= self._epoch), default=0)
        chain = self._codec.read_chain(recorded, up_to)
        self._files = chain.files
        if chain.windows or chain.has_more:
            # From now on they count as durable.
            self._begin(chain.of_newest)
            self._held = [*chain.of_newest] if self._appends else []
        return chain.windows

    @property
    def last(self) -> int:
        """Return the last window that is durable here, or recorded; -1 for none."""
        in_files, held = (file.last for file in self._files[-1:]), (window.number for window in self._held[-1:])
        return max([self._recorded, *in_files, *held])

    def append(self, windows: Sequence[Window]) -> None:
        """Make windows durable, all of them; if this fails, they are not, and may be given again."""
        if self._stream is not None and self._stream.position >= self._max_file_bytes:
            self._end()
        if self._stream is None:
            self._begin([*self._held, *windows])
        else:
            try:
                for window in windows:
                    self._stream.write(self._codec.window(self._files[-1].name, self._stream.position, window))
                self._stream.hsync()
            except BaseException:
                self._give_up()
                raise
            self._files[-1] = WalFile(self._files[-1].name, windows[-1].number, self._stream.position)
        if self._appends:
            self._held += windows

    def take_back(self, count: int) -> None:
        """Forget the windows of the last `append`, which was not acknowledged: they may be given again."""
        if self._appends:
            del self._held[-count:]
            self._give_up()
        else:
            self._files.pop()

    def _give_up(self) -> None:
        """Write no more to a file: the windows in it are written to a new one, with the next window."""
        assert self._stream is not None
        self._failed.append(self._stream)
        self._stream = None
        self._files.pop()

    def trim(self, recorded: int) -> None:
        """Delete the files that have no window behind the last recorded one; what fails is tried again next time."""
        self._recorded = max(recorded, self._recorded)
        self._held = [window for window in self._held if window.number > recorded]
        chain = [file.name for file in self._files]
        done = 0
        while done < len(self._files) - (self._stream is not None) and self._files[done].last <= recorded:
            done += 1
        if self._failed:
            return  # they have windows that nothing else has
        try:
            names = list_wal(self._fs, self._writer)
            # Those of the chain go oldest first, and after all others: none may become the newest again.
            stray_names = [name for name in names if name not in chain and name.epoch <= self._epoch]
            for name in [*stray_names, *chain[:done]]:
                delete_file(self._fs, layout.wal_path(self._writer, name))
        except StorageError as error:
            _log.warning("windows that are recorded stay until the next commit: %s", error)
            return
        self._files = self._files[done:]

    def close(self, recorded: int) -> None:
        """Close the files, and delete those that have no window behind the last recorded one."""
        self._end()
        self.trim(recorded)

    def _begin(self, windows: Sequence[Window]) -> None:
        """Begin a file with windows, and make it durable."""
        if not self._has_directory:
            self._fs.make_directories(layout.wal_directory(self._writer))
            for parent in (layout.META, layout.WAL):
                self._fs.sync_directory(parent)
            self._has_directory = True
        name = layout.WalName(self._epoch, self._number)
        self._number += 1
        previous = self._files[-1] if self._files else None
        before = max(self._recorded, previous.last if previous is not None else -1)
        content = self._codec.begin(name, before, previous, windows)
        path = layout.wal_path(self._writer, name)
        if self._appends:
            self._stream = self._created(path, content)
        else:
            self._fs.create_exclusive(path, content)
        self._files.append(WalFile(name, windows[-1].number if windows else before, len(content)))
        for stream in self._failed:
            stream.abort()
        self._failed = []

    def _created(self, path: str, content: bytes) -> OutputStream:
        stream = self._fs.create(path)
        try:
            stream.write(content)
            stream.hsync()
            self._fs.sync_directory(layout.parent(path))
        except BaseException:
            stream.abort()
            raise
        return stream

    def _end(self) -> None:
        """Close the newest file: its windows are durable, whatever comes of that."""
        if self._stream is None:
            return
        stream, self._stream, self._held = self._stream, None, []
        try:
            stream.close()
        except StorageError as error:
            _log.warning("%s was synced and cannot be closed: %s", stream.path, error)
