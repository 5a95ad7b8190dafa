"""Tests of the operations that the commit protocol relies on."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import AlreadyExists, MissingParent, NotFound
from ftfile.testing.contracts.support import ContractSupport, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.storage.api import FileSystem


__all__ = ("ExclusiveContract",)


class ExclusiveContract(ContractSupport):
    """Tests of `rename`, `create_exclusive` and `put`; a part of `FileSystemContract`."""

    race_rounds = 50  # of the race to create a file
    rename_rounds = 50  # of the race to rename to one name
    racers = 16  # in each round

    def lanes(self, filesystem: FileSystem) -> int:
        """Return the number of parallel rounds; more than one round on storage that supports concurrent calls."""
        return max(1, filesystem.capabilities.concurrency // 2)

    def race(self, filesystem: FileSystem, rounds: int, enter: Callable[[FileSystem, int, int], object]) -> list[int]:
        """Start all racers of each round at once, and return the racer without `AlreadyExists` for each round.

        The threads of racers run many rounds, and every second racer uses another client, so that a round starts
        without any setup. `enter` is called with client, racer and round; racers are numbered across all lanes.
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
        lost = sorted(set(range(rounds)) - winners.keys())
        assert not lost, f"nobody has won the rounds {lost}"
        return [winners[number] for number in range(rounds)]

    def test_rename_moves_the_very_file(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("a")
        filesystem.make_directories("b")
        write(filesystem, "a/file", b"data")
        before = filesystem.stat("a/file")
        filesystem.rename("a/file", "b/renamed")
        after = filesystem.stat("b/renamed")
        assert (after.identity, after.size_bytes) == (before.identity, before.size_bytes)
        assert self.stored(filesystem, "b/renamed") == b"data"
        assert not filesystem.exists("a/file")

    def test_rename_never_overwrites(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("directory")
        write(filesystem, "source", b"source")
        write(filesystem, "target", b"target")
        implied = filesystem.capabilities.implied_directories
        for target in ("target", "source") if implied else ("target", "directory", "source"):
            with pytest.raises(AlreadyExists):
                filesystem.rename("source", target)
        assert self.stored(filesystem, "source") == b"source"
        assert self.stored(filesystem, "target") == b"target"
        assert implied or filesystem.list("directory") == []

    def test_rename_says_what_is_missing(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"data")
        for source in ("nothing", "no-directory/nothing"):
            for target in ("target", "no-directory/target"):
                with pytest.raises(NotFound) as caught:
                    filesystem.rename(source, target)
                assert not isinstance(caught.value, MissingParent)
                assert caught.value.path.endswith(source)
        if not filesystem.capabilities.implied_directories:
            for target in ("no-directory/target", "no-directory/below/target"):
                with pytest.raises(MissingParent):
                    filesystem.rename("file", target)
        assert self.stored(filesystem, "file") == b"data"

    def test_of_many_renames_to_one_target_one_wins(self, filesystem: FileSystem) -> None:
        racers = self.lanes(filesystem) * self.racers
        # A racer that loses keeps its source for the next round; a racer that wins needs a new source.
        sources = [f"sources/{number}" for number in range(racers + self.rename_rounds)]
        held, spare = sources[:racers], deque(sources[racers:])
        moved: dict[str, str] = {}

        def enter(client: FileSystem, racer: int, number: int) -> None:
            target = f"targets/{number}"
            client.rename(held[racer], target)
            moved[target] = held[racer]
            held[racer] = spare.popleft()

        for directory in ("sources", "targets"):
            filesystem.make_directories(directory)
        with ThreadPoolExecutor(2 * self.racers) as pool:
            list(pool.map(write, repeat(filesystem), sources, map(str.encode, sources)))
            self.race(filesystem, self.rename_rounds, enter)
            contents = dict(zip(moved, pool.map(self.stored, repeat(filesystem), moved), strict=True))
        for target, source in moved.items():
            assert contents[target] == source.encode(), target
        remaining = {*self.listed_paths(filesystem, "sources"), *self.listed_paths(filesystem, "targets")}
        unexpected = remaining ^ {*sources, *moved} - set(moved.values())
        assert not unexpected

    def test_create_exclusive_makes_a_whole_file_and_nothing_else(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("log")
        content = bytes(range(256)) * 1_000
        filesystem.create_exclusive("log/0", content)
        assert self.stored(filesystem, "log/0") == content
        assert self.listed_paths(filesystem, "log") == ["log/0"]

    def test_create_exclusive_never_overwrites(self, filesystem: FileSystem) -> None:
        implied = filesystem.capabilities.implied_directories
        filesystem.make_directories("log/directory")
        filesystem.create_exclusive("log/0", b"first")
        for path in ("log/0",) if implied else ("log/0", "log/directory"):
            with pytest.raises(AlreadyExists) as caught:
                filesystem.create_exclusive(path, b"second")
            assert caught.value.path.endswith(path)
        assert self.stored(filesystem, "log/0") == b"first"
        assert len(filesystem.list("log")) == (1 if implied else 2)
        if not implied:
            with pytest.raises(NotFound):
                filesystem.create_exclusive("no-directory/0", b"")

    def test_of_many_exclusive_creations_one_wins(self, filesystem: FileSystem) -> None:
        def content(racer: int) -> bytes:
            return b"racer %d " % racer * 100

        paths = [f"log/{number}" for number in range(self.race_rounds)]
        filesystem.make_directories("log")

        def create(client: FileSystem, racer: int, number: int) -> None:
            client.create_exclusive(paths[number], content(racer))

        winners = self.race(filesystem, len(paths), create)
        with ThreadPoolExecutor(self.racers) as pool:
            contents = list(pool.map(self.stored, repeat(filesystem), paths))
        for path, stored, winner in zip(paths, contents, winners, strict=True):
            assert stored == content(winner), path
        assert sorted(self.listed_paths(filesystem, "log")) == sorted(paths)

    def test_an_exclusive_file_is_never_seen_partly_written(self, filesystem: FileSystem) -> None:
        content = b"x" * 300_000
        paths = [f"file-{number}" for number in range(10)]
        other = self.second_client(filesystem)
        stop = threading.Event()
        sizes = set()

        def watch() -> None:
            while not stop.is_set():
                for path in paths:
                    if other.exists(path):
                        sizes.add(len(other.read(path)))

        with ThreadPoolExecutor(5) as pool:
            watching = pool.submit(watch)
            try:
                list(pool.map(filesystem.create_exclusive, paths, repeat(content)))
                while not sizes and not watching.done():
                    pass
            finally:
                stop.set()  # otherwise, the pool would wait for `watch` forever
            watching.result()
        assert sizes == {len(content)}

    def test_put_replaces_whatever_is_there(self, filesystem: FileSystem) -> None:
        for content in (b"first", b"a longer second", b"3"):
            filesystem.put("hint", content)
            assert filesystem.stat("hint").size_bytes == len(content)
            assert filesystem.read("hint") == content
            self.eventually(partial(self.is_stored, filesystem, "hint", content))
        if not filesystem.capabilities.implied_directories:
            with pytest.raises(NotFound):
                filesystem.put("no-directory/hint", b"")

    def test_put_by_many_at_once_is_refused_to_none(self, filesystem: FileSystem) -> None:
        def put(number: int) -> None:
            client = self.second_client(filesystem)
            for _ in range(10):
                client.put("hint", b"%d" % number * (number + 1))
                client.stat("hint")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(put, range(4)))
        # Concurrent puts can leave a torn hint, which readers ignore; the next put is complete.
        filesystem.put("hint", b"last")
        self.eventually(partial(self.is_stored, filesystem, "hint", b"last"))


def _raise_first(errors: Iterable[Exception | None]) -> None:
    broken_barrier = None
    for error in errors:
        if isinstance(error, threading.BrokenBarrierError):
            broken_barrier = error
        elif error is not None:
            raise error
    if broken_barrier is not None:
        raise broken_barrier
