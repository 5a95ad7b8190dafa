"""What the contract suites share: a second client, a look past the driver, races, random numbers."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ftfile.core.clock import SYSTEM_CLOCK
from ftfile.core.errors import AlreadyExists, OutOfSpace
from ftfile.testing.clock import SeededIds
from ftfile.testing.faulty import Fault, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.fs.api import FileSystem, OutputStream

__all__ = ("ContractSupport", "make_directory", "write")

EVENTUALLY_S = 60.0


class ContractSupport:
    """What a driver's tests may override, and helpers."""

    # How far the store's clock may be away from ours.
    clock_slack_ms = 5_000

    # Rounds of the races to create one file and to rename to one name, with so many threads.
    race_rounds = 50
    rename_rounds = 50
    racers = 16

    def second_client(self, filesystem: FileSystem) -> FileSystem:
        """Return another client of the same store; by default what a pickle makes of the first."""
        copy: FileSystem = pickle.loads(pickle.dumps(filesystem))  # noqa: S301 - pickled here
        return copy

    def stored(self, filesystem: FileSystem, path: str) -> bytes:
        """Return what the store holds at `path`, if possible without help of the driver under test."""
        return self.second_client(filesystem).read(path)

    def is_stored(self, filesystem: FileSystem, path: str, content: bytes) -> bool:
        """Say whether the store holds this content there."""
        return self.stored(filesystem, path) == content

    def reader(self, filesystem: FileSystem) -> FileSystem:
        """Return a client that sees what was synced into files still open; override it if the driver's own does not."""
        return self.second_client(filesystem)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        """Give a view of the store in which there is no space; by default only writes say so."""
        yield FaultyFileSystem(filesystem, [Fault(OutOfSpace, operations=frozenset({"write"}))])

    def with_blocks(self, filesystem: FileSystem) -> tuple[FileSystem, int]:
        """Return a client that makes files of small blocks, where the store has blocks, and their length in bytes."""
        return filesystem, 100_000

    def device_syncs(self, filesystem: FileSystem) -> int | None:
        """Return how often the store's device was synced so far; None where nobody counts."""
        del filesystem
        return None

    def eventually(self, look: Callable[[], bool]) -> None:
        """Wait until `look` says yes: hints may be seen late, and counters lag."""
        deadline_s = SYSTEM_CLOCK.monotonic_s() + EVENTUALLY_S
        while not look():
            assert SYSTEM_CLOCK.monotonic_s() < deadline_s, "waited in vain"
            SYSTEM_CLOCK.sleep(0.02)

    def race(self, run: Callable[[FileSystem, int], object], filesystem: FileSystem) -> list[bool]:
        """Start all racers at once, half of them on another client, and say who found the place free."""
        other = self.second_client(filesystem)
        start = threading.Barrier(self.racers)

        def runner(racer: int) -> bool:
            start.wait()
            try:
                run(other if racer % 2 else filesystem, racer)
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(self.racers) as pool:
            return list(pool.map(runner, range(self.racers)))

    def rounds(self, count: int, one_round: Callable[[int], None], filesystem: FileSystem) -> None:
        """Run the rounds of a race; several at once on a store whose calls wait more than they work."""
        with ThreadPoolExecutor(max(1, filesystem.capabilities.concurrency // 2)) as pool:
            list(pool.map(one_round, range(count)))

    def refused(self, filesystem: FileSystem, path: str) -> AlreadyExists:
        """Check that no file can be written over what is at `path`, and return the error that says so."""
        with pytest.raises(AlreadyExists) as caught:  # noqa: PT012 - which of the two depends on the store
            stream = filesystem.create(path)
            if filesystem.capabilities.shown == "at_close":
                with stream:
                    stream.write(b"refused")
        return caught.value

    def numbers(self, request: pytest.FixtureRequest) -> Callable[[int], int]:
        """Return a source of random numbers below a limit; a failure shows the seed for `--seed`."""
        seed = request.config.getoption("--seed", None)
        if seed is None:
            seed = int.from_bytes(os.urandom(4), "big")  # noqa: TID251 - another one in each run, and printed
        print(f"seed {seed}")  # noqa: T201 - pytest shows it with a failure
        ids = SeededIds(seed)
        return lambda limit: int(ids.unique(), 16) % limit


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
