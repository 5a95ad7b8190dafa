"""The base of the contract suites."""

from __future__ import annotations

import contextlib
import os
import pickle
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, OutcomeUnknown, OutOfSpace
from ftfile.testing.context import SeededIds
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem, OutputStream


__all__ = ("EVENTUALLY_S", "ContractSupport", "SeededNumbers", "make_directory", "numbered_lines", "write")


EVENTUALLY_S = 300.0
# Seconds after which a counter of syncs is up to date, although it can be cached for a moment.
SETTLED_S = 0.12


class ContractSupport:
    """Methods that a driver's tests can override, and helper methods."""

    # The greatest difference between the storage's clock and the clock of this machine.
    clock_slack_ms = 5_000

    # The least number of device syncs for a file of two and a half blocks; see `with_blocks`.
    syncs_of_blocks = 1

    # Whether `device_syncs` can count a sync with a delay.
    counts_late = False

    def second_client(self, filesystem: FileSystem) -> FileSystem:
        """Return another client of the same storage; by default, the unpickled copy of the first client."""
        copy: FileSystem = pickle.loads(pickle.dumps(filesystem))  # noqa: S301 - pickled here
        return copy

    def stored(self, filesystem: FileSystem, path: str) -> bytes:
        """Return the storage's content of `path`, if possible without the driver under test."""
        return self.second_client(filesystem).read(path)

    def seen_lengths(self, filesystem: FileSystem, path: str) -> set[int]:
        """Return the lengths that listing, `stat` and `open` of another client report; empty if the file is missing."""
        client = self.second_client(filesystem)
        listed = {info.path: info.size_bytes for info in client.list(path.rpartition("/")[0])}
        if not client.exists(path):
            assert path not in listed
            return set()
        with client.open(path) as file:
            return {listed[path], client.stat(path).size_bytes, file.size_bytes}

    def listed_paths(self, filesystem: FileSystem, directory: str) -> list[str]:
        """Return the paths in a listing of a directory."""
        return [info.path for info in filesystem.list(directory)]

    def more_than_one_part(self, filesystem: FileSystem) -> int:
        """Return a number of bytes of which a stream sends a part before it is closed, if the driver sends early."""
        return (5 << 20) + filesystem.capabilities.stream_bytes

    def is_stored(self, filesystem: FileSystem, path: str, content: bytes) -> bool:
        """Return True if the storage has this content at `path`."""
        return self.stored(filesystem, path) == content

    def reader(self, filesystem: FileSystem) -> FileSystem:
        """Return a client that reads synced bytes of open files; override it if the driver's own client cannot."""
        return self.second_client(filesystem)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        """Yield a view of the storage that is out of space; by default, only writes fail."""
        yield FaultyFileSystem(filesystem, [Fault(OutOfSpace, times=1 << 30, operations=frozenset({"write"}))])

    @contextlib.contextmanager
    def unclosable(self, filesystem: FileSystem, path: str) -> Iterator[FileSystem]:
        """Yield a view of the storage in which the file at `path` can be created and written, but not closed.

        If files are visible at close, another client creates the file first; otherwise, `close` fails in a decorator by
        default.
        """
        if filesystem.capabilities.visible_at == "at_close":
            write(self.second_client(filesystem), path, b"somebody else's")
            yield filesystem
        else:
            yield FaultyFileSystem(filesystem, [Fault(OutcomeUnknown, operations=frozenset({"close"}))])

    def with_blocks(self, filesystem: FileSystem) -> tuple[FileSystem, int]:
        """Return a client that writes files in small blocks, if the storage has blocks, and the bytes of a block."""
        return filesystem, 100_000

    def device_syncs(self, filesystem: FileSystem) -> int | None:
        """Return the number of content syncs on the storage's device so far; None if they cannot be counted."""
        del filesystem
        return None

    def all_device_syncs(self, filesystem: FileSystem) -> int:
        """Return the number of syncs after the counter is up to date; 0 if syncs cannot be counted."""
        if self.counts_late:
            self.device_syncs(filesystem)
            SYSTEM.clock.sleep(SETTLED_S)
        return self.device_syncs(filesystem) or 0

    def eventually(self, look: Callable[[], bool]) -> None:
        """Wait until `look` returns True, because hints can be visible late, and counters can lag."""
        deadline_s = SYSTEM.clock.monotonic_s() + EVENTUALLY_S
        while not look():
            assert SYSTEM.clock.monotonic_s() < deadline_s, "waited in vain"
            SYSTEM.clock.sleep(0.02)

    def refused(self, filesystem: FileSystem, path: str) -> AlreadyExists:
        """Check that no writer can overwrite the file at `path`, and return the error."""
        with pytest.raises(AlreadyExists) as caught:  # noqa: PT012 - which of the two depends on the storage
            stream = filesystem.create(path)
            if filesystem.capabilities.visible_at == "at_close":
                with stream:
                    stream.write(b"refused")
        return caught.value

    def numbers(self, request: pytest.FixtureRequest) -> SeededNumbers:
        """Return a source of random numbers; a failed test shows the seed for `--seed`."""
        seed = request.config.getoption("--seed", None)
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "big")  # noqa: TID251 - another one in each run, and printed
        print(f"seed {seed}")  # noqa: T201 - pytest shows it with a failure
        return SeededNumbers(SeededIds(seed))


class SeededNumbers(NamedTuple):
    """A source of random numbers."""

    ids: SeededIds

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit - 1`."""
        return int(self.ids.unique(), 16) % limit


def write(filesystem: FileSystem, path: str, content: bytes) -> OutputStream:
    """Write a file and return its closed stream."""
    with filesystem.create(path) as stream:
        stream.write(content)
    return stream


def numbered_lines(count: int) -> list[bytes]:
    """Return different lines of eight bytes in ascending order."""
    return [b"%07d\n" % number for number in range(count)]


def make_directory(filesystem: FileSystem, path: str) -> None:
    """Create a directory; if the storage has implied directories, with a file in it."""
    filesystem.make_directories(path)
    if filesystem.capabilities.implied_directories:
        write(filesystem, f"{path}/file", b"")
