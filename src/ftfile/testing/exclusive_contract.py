"""The promises on which the commit protocol stands, as tests: exclusive creation and renaming, hints."""

# ruff: noqa: D102 - a test's name is its description, and expected values are literals

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import AlreadyExists, NotFound
from ftfile.testing.contract_support import ContractSupport, write

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

__all__ = ("ExclusiveContract",)


class ExclusiveContract(ContractSupport):
    """Tests of `rename`, `create_exclusive` and `put`; a part of `FileSystemContract`."""

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
        with pytest.raises(NotFound):
            filesystem.rename("nothing", "target")
        if not filesystem.capabilities.implied_directories:
            with pytest.raises(NotFound):
                filesystem.rename("file", "no-directory/target")
        assert self.stored(filesystem, "file") == b"data"

    def test_of_many_renames_to_one_target_one_wins(self, filesystem: FileSystem) -> None:
        def one_round(number: int) -> None:
            filesystem.make_directories(f"{number}")
            paths = [f"{number}/{racer}" for racer in range(self.racers)]
            with ThreadPoolExecutor(self.racers) as pool:
                list(pool.map(write, [filesystem] * self.racers, paths, [path.encode() for path in paths]))
            won = self.race(lambda client, racer: client.rename(paths[racer], f"{number}/target"), filesystem)
            assert won.count(True) == 1
            winner = paths[won.index(True)]
            assert self.stored(filesystem, f"{number}/target") == winner.encode()
            left = {info.path for info in filesystem.list(f"{number}")}
            assert left == {*paths, f"{number}/target"} - {winner}

        self.rounds(self.rename_rounds, one_round, filesystem)

    def test_create_exclusive_makes_a_whole_file_and_nothing_else(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("log")
        content = bytes(range(256)) * 1_000
        filesystem.create_exclusive("log/0", content)
        assert self.stored(filesystem, "log/0") == content
        assert [info.path for info in filesystem.list("log")] == ["log/0"]

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
        def one_round(number: int) -> None:
            path = f"log/{number}"
            won = self.race(lambda client, racer: client.create_exclusive(path, contents[racer]), filesystem)
            assert won.count(True) == 1
            assert self.stored(filesystem, path) == contents[won.index(True)]

        filesystem.make_directories("log")
        contents = [b"racer %d " % racer * 100 for racer in range(self.racers)]
        self.rounds(self.race_rounds, one_round, filesystem)
        assert len(filesystem.list("log")) == self.race_rounds

    def test_an_exclusive_file_is_never_seen_partly_written(self, filesystem: FileSystem) -> None:
        content = b"x" * 300_000
        other = self.second_client(filesystem)
        stop = threading.Event()
        sizes = set()

        def watch() -> None:
            while not stop.is_set():
                for number in range(10):
                    if other.exists(f"file-{number}"):
                        sizes.add(len(other.read(f"file-{number}")))

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            for number in range(10):
                filesystem.create_exclusive(f"file-{number}", content)
            while not sizes and not watching.done():
                pass
            stop.set()
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
