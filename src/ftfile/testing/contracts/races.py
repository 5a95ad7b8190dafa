"""Races of many threads for one name, round after round, cheap enough for fifty rounds on a real server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ftfile.core.errors import AlreadyExists
from ftfile.testing.contracts.support import ContractSupport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.fs.api import FileSystem

__all__ = ("ContractRaces",)


class ContractRaces(ContractSupport):
    """How races are run.

    Attributes:
        race_rounds: of the race to create a file.
        rename_rounds: of the race to rename to one name.
        racers: in each round.
    """

    race_rounds = 50
    rename_rounds = 50
    racers = 16

    def lanes(self, filesystem: FileSystem) -> int:
        """Return how many rounds run side by side: several on a store whose calls wait more than they work."""
        return max(1, filesystem.capabilities.concurrency // 2)

    def race(self, filesystem: FileSystem, rounds: int, enter: Callable[[FileSystem, int, int], object]) -> list[int]:
        """Let all racers of a round start at once, and return who found its place free, for each round.

        Racers live for many rounds, and every other one is another client, so that nobody has to get ready.

        Args:
            filesystem: that is raced on.
            rounds: how many; each has one winner.
            enter: called with client, racer and round; the racers of all lanes are numbered.
        """
        clients = filesystem, self.second_client(filesystem)
        lanes = self.lanes(filesystem)
        starts = [threading.Barrier(self.racers) for _ in range(lanes)]
        winners: dict[int, int] = {}

        def run(racer: int) -> None:
            lane = racer // self.racers
            for number in range(lane, rounds, lanes):
                starts[lane].wait()
                try:
                    enter(clients[racer % 2], racer, number)
                except AlreadyExists:
                    continue
                assert number not in winners, f"two have won round {number}"
                winners[number] = racer

        def run_or_stop(racer: int) -> Exception | None:
            try:
                run(racer)
            except Exception as error:
                for start in starts:
                    start.abort()
                return error
            return None

        with ThreadPoolExecutor(lanes * self.racers) as pool:
            _raise_first(pool.map(run_or_stop, range(lanes * self.racers)))
        lost = [number for number in range(rounds) if number not in winners]
        assert not lost, f"nobody has won the rounds {lost}"
        return [winners[number] for number in range(rounds)]


def _raise_first(errors: Iterable[Exception | None]) -> None:
    found = [error for error in errors if error is not None]
    causes = [error for error in found if not isinstance(error, threading.BrokenBarrierError)]
    for error in causes or found:
        raise error
