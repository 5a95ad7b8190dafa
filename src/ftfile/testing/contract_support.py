"""What the contract suites share: a second client, a look past the driver, races, random numbers."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ftfile.core.errors import AlreadyExists
from ftfile.testing.clock import SeededIds

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from ftfile.fs.api import FileSystem, OutputStream

__all__ = ("ContractSupport", "write")


class ContractSupport:
    """What a driver's tests may override, and helpers."""

    # How far the store's clock may be away from ours.
    clock_slack_ms = 5_000

    # Rounds of each race, with so many threads.
    race_rounds = 50
    racers = 16

    def second_client(self, filesystem: FileSystem) -> FileSystem:
        """Return another client of the same store; by default what a pickle makes of the first."""
        copy: FileSystem = pickle.loads(pickle.dumps(filesystem))  # noqa: S301 - pickled here
        return copy

    def stored(self, filesystem: FileSystem, path: str) -> bytes:
        """Return what the store holds at `path`, if possible without help of the driver under test."""
        return self.second_client(filesystem).read(path)

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
