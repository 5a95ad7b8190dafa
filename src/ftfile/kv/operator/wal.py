"""The log of windows of one writer, which restores windows after a crash until a record contains them.

Each opening of the store has separate files, and the log names the opening whose files count. File 0 contains the
windows that the opening took over; each later file contains the windows that one call made durable. A file names the
window after which it begins: later windows of earlier files were never acknowledged. It also names the previous
acknowledged file. If that file is deleted, no unacknowledged file counts in its place.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import CorruptData, NotFound
from ftfile.kv.definition import StoreDefinition
from ftfile.kv.key_columns import check_ranges, decode_ranges, encode_ranges
from ftfile.kv.operator.windows import Window, row_schema
from ftfile.log.format.layout import WalName
from ftfile.rows.messages import read_rows
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.log.wal import WalFiles


class WalFile(NamedTuple):
    """The content of a file."""

    number: int
    before: int  # number of the previous acknowledged file; -1 for none
    after: int  # last earlier window that was durable or recorded; -1 for none
    windows: list[Window]  # by number, with the columns of the store at that time
    definition: StoreDefinition  # of the store at that time


def read_wal(files: WalFiles, epoch: int, recorded: int) -> list[WalFile]:
    """Return the files of an epoch by number, each with its windows that count and are not recorded.

    Raises:
        CorruptData: a file is damaged, or an acknowledged window is missing; the error describes the remedies.
    """
    advice = (
        "Restore it from a copy, or restore the newest records of the store if they are lost. Or open the store with "
        f"restore={recorded}, which discards all later windows, and reset its source to this window"
    )
    names = [name for name in files.names() if name.epoch == epoch]
    counted: list[WalFile] = []
    for file in parallel(files.fs, lambda name: _read_file(files, name, advice), names):
        if file is None:
            continue
        earlier = counted
        counted = []
        has_before = False
        last = recorded
        for before in earlier:
            windows = [window for window in before.windows if window.number <= file.after]
            counted.append(before._replace(windows=windows))
            has_before |= before.number == file.before
            for window in windows:
                last = max(last, window.number)
        if file.after > recorded and not has_before:
            expected = f"the windows after {last} up to {file.after}, which no record contains"
            raise CorruptData(files.directory, expected, "no file", advice)
        counted.append(file._replace(windows=[window for window in file.windows if window.number > recorded]))
    return [file for file in counted if file.windows]


def _read_file(files: WalFiles, name: WalName, advice: str) -> WalFile | None:
    """Return a file; None if its process deleted it after the listing, because its windows are recorded."""
    try:
        header, message = files.read(name)
    except NotFound:
        return None
    except CorruptData as error:
        raise CorruptData(error.path, error.expected, error.found, advice) from error
    try:
        return _decode_file(name.number, header, message)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptData(files.directory, f"windows in file {name.number}", repr(error), advice) from error


def _decode_file(file_number: int, header: dict[str, Any], message: memoryview) -> WalFile:
    """Return the windows of a file; raises an error of Python or Arrow if a store did not write it."""
    definition = StoreDefinition.from_json(header["store"])
    # The schema in the stream is not read: Arrow does not check it, so a forged one ends the process (pyarrow 26).
    _, *row_messages = pa.MessageReader.open_stream(pa.py_buffer(message))
    schema = row_schema(definition)
    numbers = [entry["number"] for entry in header["windows"]]
    if not all(isinstance(number, int) for number in [header["before"], header["after"], *numbers]):
        raise ValueError(f"windows have the numbers {numbers}")
    windows = []
    for entry, row_message in zip(header["windows"], row_messages, strict=True):
        purges = decode_ranges(entry["purges"])
        check_ranges(purges, definition.key_types)
        rows = read_rows(row_message.serialize(), schema)
        rows.validate(full=True)  # all strings come from Python, so they are UTF-8
        windows.append(Window(entry["number"], rows, purges))
    return WalFile(file_number, header["before"], after=header["after"], windows=windows, definition=definition)


class Wal:
    """The unrecorded windows of one process, in files. Not thread-safe.

    Attributes:
        last: the last window that is durable here, or recorded; -1 for none.
    """

    def __init__(self, files: WalFiles, epoch: int, definition: StoreDefinition, recorded: int) -> None:
        self.last = recorded
        self._store = files
        self._epoch = epoch
        self._definition = definition
        self._number = 0  # of the next file
        self._before = -1  # number of the last acknowledged file
        self._files: dict[WalName, int] = {}  # with the last window in each

    def begin(self, windows: Sequence[Window]) -> None:
        """Make the windows that the process took over durable; they do not count before the take-over is recorded."""
        self._store.prepare()
        if windows:
            self._write(windows)
            self._acknowledge(windows)
        self._number = 1  # also without windows: files with greater numbers show that the process took over

    def append(self, windows: Sequence[Window], check: Callable[[], object]) -> None:
        """Make windows durable; they count after `check`, which is called last, has returned.

        If the call raises, they do not count, and may be appended again, even with other rows: the next file supersedes
        them.
        """
        self._write(windows)
        check()
        self._acknowledge(windows)

    def trim(self, recorded: int) -> None:
        """Delete the files of this process that only contain recorded windows, acknowledged or not.

        If files cannot be deleted, the next call tries again.
        """
        self.last = max(self.last, recorded)
        done = [name for name, last in self._files.items() if last <= recorded]
        if done and self._store.delete(done):
            self._files = {name: last for name, last in self._files.items() if last > recorded}

    def trim_older(self) -> None:
        """Delete the files of older processes, whose windows this process has taken over."""
        self._store.delete([name for name in self._store.names() if name.epoch < self._epoch])

    def _acknowledge(self, windows: Sequence[Window]) -> None:
        self.last, self._before = windows[-1].number, self._number - 1

    def _write(self, windows: Sequence[Window]) -> None:
        name = WalName(self._epoch, self._number)
        self._number += 1
        self._files[name] = windows[-1].number
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, row_schema(self._definition)) as writer:
            for window in windows:
                writer.write_batch(window.rows)
        entries = []
        for window in windows:
            entries.append({"number": window.number, "purges": encode_ranges(window.purges)})
        header = {"before": self._before, "after": self.last, "windows": entries, "store": self._definition.to_json()}
        self._store.write(name, header, stream.getbuffer())
