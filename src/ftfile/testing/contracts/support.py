"""Shared by the contract suites: other clients, a look past the driver, failures of the store, random numbers."""

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


__all__ = ("EVENTUALLY_S", "ContractSupport", "SeededNumbers", "make_directory", "write")


EVENTUALLY_S = 300.0
# A counter that may be kept for a moment is asked again after so long: then it is of now.
SETTLED_S = 0.12


class ContractSupport:
    """Methods that a driver's tests may override, and helpers."""

    # How far the store's clock may be away from ours.
    clock_slack_ms = 5_000

    # How often the device is synced at least for a file of two blocks and a half; see `with_blocks`.
    syncs_of_blocks = 1

    # Whether `device_syncs` may tell of a sync a moment after it.
    counts_late = False

    def second_client(self, filesystem: FileSystem) -> FileSystem:
        """Return another client of the same store; by default what a pickle makes of the first."""
        copy: FileSystem = pickle.loads(pickle.dumps(filesystem))  # noqa: S301 - pickled here
        return copy

    def stored(self, filesystem: FileSystem, path: str) -> bytes:
        """Return the store's content of `path`, if possible without help of the driver under test."""
        return self.second_client(filesystem).read(path)

    def seen_lengths(self, filesystem: FileSystem, path: str) -> set[int]:
        """Return the length of a file by each way to look at it, from another client; empty if it is not there."""
        client = self.second_client(filesystem)
        listed = {info.path: info.size_bytes for info in client.list(path.rpartition("/")[0])}
        if not client.exists(path):
            assert path not in listed
            return set()
        with client.open(path) as file:
            return {listed[path], client.stat(path).size_bytes, file.size_bytes}

    def more_than_one_part(self, filesystem: FileSystem) -> int:
        """Return how much is sent before the file is closed, wherever that is so."""
        return (5 << 20) + filesystem.capabilities.stream_bytes

    def is_stored(self, filesystem: FileSystem, path: str, content: bytes) -> bool:
        """Return True if the store holds this content there."""
        return self.stored(filesystem, path) == content

    def reader(self, filesystem: FileSystem) -> FileSystem:
        """Return a client that sees what was synced into files still open; override it if the driver's own does not."""
        return self.second_client(filesystem)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        """Give a view of the store in which there is no space; by default only writes say so."""
        yield FaultyFileSystem(filesystem, [Fault(OutOfSpace, times=1 << 30, operations=frozenset({"write"}))])

    @contextlib.contextmanager
    def unclosable(self, filesystem: FileSystem, path: str) -> Iterator[FileSystem]:
        """Give a view of the store in which the file at `path` is begun and written, and cannot be closed.

        Where files are shown at close, somebody else takes the name; elsewhere a decorator fails by default.
        """
        if filesystem.capabilities.visible_at == "at_close":
            write(self.second_client(filesystem), path, b"somebody else's")
            yield filesystem
        else:
            yield FaultyFileSystem(filesystem, [Fault(OutcomeUnknown, operations=frozenset({"close"}))])

    def with_blocks(self, filesystem: FileSystem) -> tuple[FileSystem, int]:
        """Return a client that makes files of small blocks, where the store has blocks, and their length in bytes."""
        return filesystem, 100_000

    def device_syncs(self, filesystem: FileSystem) -> int | None:
        """Return how often content was synced to the store's device so far; None where nobody counts."""
        del filesystem
        return None

    def all_device_syncs(self, filesystem: FileSystem) -> int:
        """Return the same once the counter has caught up; 0 where nobody counts."""
        if self.counts_late:
            self.device_syncs(filesystem)
            SYSTEM.clock.sleep(SETTLED_S)
        return self.device_syncs(filesystem) or 0

    def eventually(self, look: Callable[[], bool]) -> None:
        """Wait until `look` says yes: hints may be seen late, and counters lag."""
        deadline_s = SYSTEM.clock.monotonic_s() + EVENTUALLY_S
        while not look():
            assert SYSTEM.clock.monotonic_s() < deadline_s, "waited in vain"
            SYSTEM.clock.sleep(0.02)

    def refused(self, filesystem: FileSystem, path: str) -> AlreadyExists:
        """Check that no file can be written over what is at `path`, and return the error that says so."""
        with pytest.raises(AlreadyExists) as caught:  # noqa: PT012 - which of the two depends on the store
            stream = filesystem.create(path)
            if filesystem.capabilities.visible_at == "at_close":
                with stream:
                    stream.write(b"refused")
        return caught.value

    def numbers(self, request: pytest.FixtureRequest) -> SeededNumbers:
        """Return a source of random numbers; a failure shows the seed for `--seed`."""
        seed = request.config.getoption("--seed", None)
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "big")  # noqa: TID251 - another one in each run, and printed
        print(f"seed {seed}")  # noqa: T201 - pytest shows it with a failure
        return SeededNumbers(SeededIds(seed))


class SeededNumbers(NamedTuple):
    """A source of random numbers."""

    ids: SeededIds

    def below(self, limit: int) -> int:
        """Return a number from 0 on, below a limit."""
        return int(self.ids.unique(), 16) % limit


def write(filesystem: FileSystem, path: str, content: bytes) -> OutputStream:
    """Write a file and return its closed stream."""
    with filesystem.create(path) as stream:
        stream.write(content)
    return stream


def make_directory(filesystem: FileSystem, path: str) -> None:
    """Make a directory; where it takes a file to be one, with a file."""
    filesystem.make_directories(path)
    if filesystem.capabilities.implied_directories:
        write(filesystem, f"{path}/file", b"")
