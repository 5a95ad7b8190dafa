"""A disk that records its writes and flushes: `python -m tests.power.recorder MOUNTPOINT LOG IMAGE`.

The program serves a file system over `/dev/fuse` with the files `disk` and `mark`. A loop device on `disk` can have any
file system; its kernel driver sends each block write and each flush to this program, which appends them to the log in
their order. What a process writes to `mark` is appended as a note. So the log also contains at which moment the process
had which answers. The program needs root and no library: it speaks the protocol of the kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

__all__ = ("FLUSH", "NOTE", "WRITE", "Event", "read_events", "recorded_disk")

WRITE, FLUSH, NOTE = b"W", b"F", b"N"
ROOT, DISK, MARK = 1, 2, 3  # numbers of nodes
NAMES = {b"disk": DISK, b"mark": MARK}
WRITE_BYTES_MAX = 1 << 20
HEADER_BYTES = 40
MINOR = 31  # of the protocol
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22
DIRECT_IO = 1
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITES, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSHES, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = (
    20,
    25,
    26,
    27,
    28,
    29,
    36,
    38,
    42,
)
WITHOUT_REPLY = {FORGET, BATCH_FORGET, INTERRUPT}
ENTRY = struct.Struct("<cQI")
WAIT_S = 60.0


class Event(NamedTuple):
    """A block write, a flush or a note."""

    kind: bytes
    offset: int
    data: bytes


class Server:
    """Answers the requests of the kernel for a disk in memory."""

    def __init__(self, device: int, image: bytearray, log: BinaryIO) -> None:
        self.device, self.image, self.log = device, image, log
        self.answers: dict[int, Callable[[int, memoryview], bytes]] = {
            INIT: self.begin,
            LOOKUP: self.look_up,
            GETATTR: lambda node, _: struct.pack("<QII", 3600, 0, 0) + self.attributes(node),
            SETATTR: lambda node, _: struct.pack("<QII", 3600, 0, 0) + self.attributes(node),
            OPEN: lambda *_: struct.pack("<QII", 0, DIRECT_IO, 0),
            OPENDIR: lambda *_: struct.pack("<QII", 0, 0, 0),
            READDIR: lambda *_: b"",
            READ: self.read,
            WRITES: self.write,
            FSYNC: self.sync,
            STATFS: lambda *_: struct.pack("<QQQQQIIII24x", 1, 0, 0, 2, 0, 4096, 255, 4096, 0),
            RELEASE: lambda *_: b"",
            RELEASEDIR: lambda *_: b"",
            FLUSHES: lambda *_: b"",
            DESTROY: lambda *_: b"",
        }

    def serve(self) -> None:
        """Answer requests until the file system is unmounted."""
        while True:
            try:
                request = memoryview(os.read(self.device, WRITE_BYTES_MAX + 4096))
            except OSError as error:
                if error.errno in {errno.EINTR, errno.ENOENT, errno.EAGAIN}:
                    continue
                if error.errno == errno.ENODEV:
                    return
                raise
            _, operation, unique, node = struct.unpack_from("<IIQQ", request)
            if operation in WITHOUT_REPLY:
                continue
            answer, code = b"", 0
            try:
                answer = self.answers[operation](node, request[HEADER_BYTES:])
            except KeyError:
                code = errno.ENOSYS
            except FileNotFoundError:
                code = errno.ENOENT
            with contextlib.suppress(FileNotFoundError):  # the request was interrupted
                os.write(self.device, struct.pack("<IiQ", 16 + len(answer), -code, unique) + answer)

    def begin(self, _: int, body: memoryview) -> bytes:
        """Agree on the protocol, and on large writes."""
        (_, _, ahead, flags) = struct.unpack_from("<IIII", body)
        pages = WRITE_BYTES_MAX // 4096
        agreed = flags & (BIG_WRITES | MAX_PAGES)
        return struct.pack("<IIIIHHIIHH32x", 7, MINOR, ahead, agreed, 16, 12, WRITE_BYTES_MAX, 1, pages, 0)

    def look_up(self, _: int, body: memoryview) -> bytes:
        """Return the node of a name."""
        node = NAMES.get(bytes(body).rstrip(b"\0"))
        if node is None:
            raise FileNotFoundError
        return struct.pack("<QQQQII", node, 0, 3600, 3600, 0, 0) + self.attributes(node)

    def attributes(self, node: int) -> bytes:
        """Return the status of a node."""
        mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o600
        size = len(self.image) if node == DISK else 0
        return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def read(self, node: int, body: memoryview) -> bytes:
        """Return bytes of the disk."""
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self.image[offset : offset + size]) if node == DISK else b""

    def write(self, node: int, body: memoryview) -> bytes:
        """Write to the disk, or append a note to the log."""
        _, offset, size = struct.unpack_from("<QQI", body)
        data = bytes(body[40 : 40 + size])
        if node == DISK:
            self.image[offset : offset + size] = data
            self.record(WRITE, offset, data)
        else:
            self.record(NOTE, 0, data)
        return struct.pack("<II", size, 0)

    def sync(self, node: int, _: memoryview) -> bytes:
        """Record a flush of the disk's cache."""
        if node == DISK:
            self.record(FLUSH, 0, b"")
        return b""

    def record(self, kind: bytes, offset: int, data: bytes) -> None:
        """Append an event to the log."""
        self.log.write(ENTRY.pack(kind, offset, len(data)) + data)


def read_events(log: Path) -> list[Event]:
    """Return the recorded events in their order."""
    raw = log.read_bytes()
    events, position = [], 0
    while position < len(raw):
        kind, offset, size = ENTRY.unpack_from(raw, position)
        position += ENTRY.size
        events.append(Event(kind, offset, raw[position : position + size]))
        position += size
    return events


@contextlib.contextmanager
def recorded_disk(folder: Path, log: Path, image: Path) -> Iterator[None]:
    """Serve a copy of an image as `disk` in a folder; the log is complete after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.power.recorder", str(folder), str(log), str(image)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as server:
        try:
            until = time.monotonic() + WAIT_S
            while not (folder / "disk").exists():
                if server.poll() is not None or time.monotonic() > until:
                    raise OSError(errno.EIO, "the recorder does not start", str(folder))
                time.sleep(0.01)
            yield
        finally:
            subprocess.run(["umount", str(folder)], check=False, capture_output=True)
            try:
                server.wait(WAIT_S)
            finally:
                server.kill()


def main(folder: str, log: str, image: str) -> None:
    """Mount the file system and serve it until it is unmounted, since the users of the disk must end first."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    device = os.open("/dev/fuse", os.O_RDWR)
    library = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if library.mount(b"recorder", os.fsencode(folder), b"fuse.recorder", 6, options):  # without set-uid and devices
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), folder)
    with Path(log).open("wb", buffering=1 << 20) as file:
        Server(device, bytearray(Path(image).read_bytes()), file).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
