"""The contract of a file system as tests, which the tests of each driver inherit.

A subclass has a fixture `filesystem` that returns a new, empty file system. Its method `stored` can read the storage
without the driver.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import NotADirectory, NotFound, StorageError, StreamClosed, Unsupported
from ftfile.storage.api import copy_range
from ftfile.testing.contracts.exclusive import ExclusiveContract
from ftfile.testing.contracts.output_stream import OutputStreamContract
from ftfile.testing.contracts.support import ContractSupport, make_directory, numbered_lines, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.storage.api import FileSystem


__all__ = ("MALFORMED_PATHS", "ODD_NAMES", "CopyContract", "FileSystemContract")


ODD_NAMES = (
    "with blank",
    " leading and trailing ",
    "per%20cent%",
    "hash#question?",
    "colon:equals=plus+and&",
    "back\\slash",
    "quote'\"`$(x)",
    "[glob]{a,b}*",
    "..three",
    "...",
    ".hidden.tmp",
    "~tilde",
    "grüße-日本語-🙂",
    "new\nline",
    "n" * 255,
    "ü" * 127 + "x",
)

MALFORMED_PATHS = ("/absolute", "trailing/", "a//b", "..", "a/../b", "a/..", ".", "./a", "a/./b", "nul\0byte")


def _copies(filesystem: FileSystem) -> bool:
    return "copy" in filesystem.capabilities.stream_capabilities


def _copied_bytes(filesystem: FileSystem) -> int:
    """Return the length of a range that the storage copies, because it exceeds `copy_bytes_min`."""
    return filesystem.capabilities.copy_bytes_min + 10


def _source(filesystem: FileSystem) -> bytes:
    """Write a file `source` as the source of copied ranges, and return its content."""
    size_bytes = 2 * _copied_bytes(filesystem)
    content = b"".join(numbered_lines(size_bytes // 8 + 1))
    write(filesystem, "source", content)
    return content


class CopyContract(ContractSupport):
    """Tests of a stream's copies of ranges of other files."""

    def test_copies_without_the_capability_are_refused(self, filesystem: FileSystem) -> None:
        if _copies(filesystem):
            pytest.skip("it copies: the other tests say what")
        write(filesystem, "source", b"source")
        with filesystem.create("file") as stream:
            assert not stream.has_capability("copy")
            with pytest.raises(Unsupported, match="file"):
                copy_range(stream, "source", 0, 1)
            stream.write(b"written")
        assert self.stored(filesystem, "file") == b"written"

    def test_copied_ranges_stand_where_they_were_appended(self, filesystem: FileSystem) -> None:
        self._skip_where_nothing_is_copied(filesystem)
        content, length = _source(filesystem), _copied_bytes(filesystem)
        ranges = [(1, len(content) - 1), (3, length), (0, 7), (5, length - 1), (length, length), (1, 1)]
        expected = bytearray()
        for at_start in (b"", b"head"):
            name = f"file-{len(at_start)}"
            with filesystem.create(name) as stream:
                assert stream.has_capability("copy")
                expected[:] = at_start
                stream.write(at_start)
                for offset, size_bytes in ranges:
                    copy_range(stream, "source", offset, size_bytes)
                    expected += content[offset : offset + size_bytes]
                    assert stream.position == len(expected)
                if at_start:
                    stream.write(b"tail")
                    expected += b"tail"
            assert self.is_stored(filesystem, name, bytes(expected))
            assert self.seen_lengths(filesystem, name) == {len(expected)}

    def test_what_was_copied_stays_without_its_source(self, filesystem: FileSystem) -> None:
        self._skip_where_nothing_is_copied(filesystem)
        content = _source(filesystem)
        with filesystem.create("file") as stream:
            copy_range(stream, "source", 0, len(content))
        filesystem.delete("source")
        assert self.is_stored(filesystem, "file", content)

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_what_is_not_there_is_not_copied(self, filesystem: FileSystem, *, is_gone: bool) -> None:
        self._skip_where_nothing_is_copied(filesystem)
        size_bytes = len(_source(filesystem))
        if is_gone:
            filesystem.delete("source")
        with pytest.raises(StorageError), filesystem.create("file") as stream:
            copy_range(stream, "source", 1, size_bytes)
        assert self.seen_lengths(filesystem, "file") == set()

    def test_copies_end_with_the_stream(self, filesystem: FileSystem) -> None:
        self._skip_where_nothing_is_copied(filesystem)
        content = _source(filesystem)
        closed, aborted = filesystem.create("closed"), filesystem.create("aborted")
        for stream in (closed, aborted):
            copy_range(stream, "source", 0, len(content))
        closed.close()
        aborted.abort()
        for stream in (closed, aborted):
            with pytest.raises(StreamClosed, match=stream.path):
                copy_range(stream, "source", 0, len(content))
        assert self.is_stored(filesystem, "closed", content)
        assert self.seen_lengths(filesystem, "aborted") == set()

    def _skip_where_nothing_is_copied(self, filesystem: FileSystem) -> None:
        if not _copies(filesystem):
            pytest.skip("nothing is copied here, as its capabilities say")


class FileSystemContract(OutputStreamContract, CopyContract, ExclusiveContract):
    """All tests of a driver. No test depends on the driver's name, so a decorator passes the tests of its driver."""

    odd_names: Sequence[str] = ODD_NAMES  # without names that the storage loses silently

    def test_read_at_returns_any_range(self, filesystem: FileSystem, request: pytest.FixtureRequest) -> None:
        below = self.numbers(request).below
        content = bytes(below(256) for _ in range(10_000))
        write(filesystem, "file", content)
        with filesystem.open("file") as file:
            assert file.size_bytes == len(content)
            for _ in range(200):
                offset, length = below(len(content) + 50), below(3_000)
                assert file.read_at(offset, length) == content[offset : offset + length]
            assert file.read_at(0, 1 << 40) == content

    def test_read_at_from_several_threads(self, filesystem: FileSystem) -> None:
        content = b"".join(numbered_lines(5_000))
        write(filesystem, "file", content)
        with filesystem.open("file") as file, ThreadPoolExecutor(8) as pool:
            pieces = pool.map(lambda number: file.read_at(number * 80, 80), range(500))
            assert b"".join(pieces) == content

    def test_read_after_close_fails(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"data")
        file = filesystem.open("file")
        file.close()
        file.close()
        with pytest.raises(StreamClosed, match="file"):
            file.read_at(0, 1)

    def test_an_open_file_has_the_length_of_its_opening(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"data")
            if not stream.has_capability("hflush"):
                pytest.skip("nobody sees a file grow")
            stream.hflush()
            with self.second_client(filesystem).open("file") as file:
                stream.write(b" and more")
                stream.hflush()
                assert file.read_at(2, 10) == b"data"[2 : file.size_bytes]
                assert file.read_at(file.size_bytes, 10) == b""

    def test_zero_bytes(self, filesystem: FileSystem) -> None:
        write(filesystem, "by-stream", b"")
        filesystem.create_exclusive("exclusive", b"")
        filesystem.put("put", b"")
        for path in ("by-stream", "exclusive", "put"):
            assert filesystem.stat(path).size_bytes == 0
            assert filesystem.read(path) == b""
            self.eventually(partial(self.is_stored, filesystem, path, b""))

    def test_the_times_of_an_exclusive_file(self, filesystem: FileSystem) -> None:
        stored = filesystem.create_exclusive("exclusive", b"data")
        if stored is not None:
            assert stored.size_bytes == 4
            assert stored.modified_ms <= filesystem.stat("exclusive").modified_ms <= stored.answered_ms

    def test_a_stream_and_a_file_are_called_as_they_were_asked_for(self, filesystem: FileSystem) -> None:
        make_directory(filesystem, "directory")
        with filesystem.create("directory/called") as stream:
            assert stream.path == "directory/called"
        with filesystem.open("directory/called") as file:
            assert file.path == "directory/called"

    @pytest.mark.parametrize("operation", ["open", "read", "stat", "delete"])
    def test_what_is_missing_is_not_found(self, filesystem: FileSystem, operation: str) -> None:
        filesystem.make_directories("directory")
        for path in ("nothing", "directory/nothing", "no-directory/nothing"):
            with pytest.raises(NotFound) as caught:
                getattr(filesystem, operation)(path)
            assert caught.value.operation in {operation, "open"}
            assert caught.value.path.endswith(path)

    @pytest.mark.parametrize("operation", ["open", "read", "delete"])
    def test_a_directory_is_no_file(self, filesystem: FileSystem, operation: str) -> None:
        make_directory(filesystem, "directory")
        with pytest.raises(NotFound):
            getattr(filesystem, operation)("directory")
        assert filesystem.stat("directory").is_directory

    def test_exists(self, filesystem: FileSystem) -> None:
        make_directory(filesystem, "a/b")
        write(filesystem, "a/file", b"")
        for path in ("", "a", "a/b", "a/file"):
            assert filesystem.exists(path)
        for path in ("b", "a/c", "a/b/c"):
            assert not filesystem.exists(path)

    def test_identity_tells_files_apart(self, filesystem: FileSystem) -> None:
        write(filesystem, "one", b"same")
        write(filesystem, "other", b"same")
        one, other = filesystem.stat("one"), filesystem.stat("other")
        assert self.second_client(filesystem).stat("one") == one
        if one.identity is not None:
            assert one.identity != other.identity

    def test_make_directories_is_idempotent_and_makes_parents(self, filesystem: FileSystem) -> None:
        for path in ("a/b/c", "a/b/c", "a", ""):
            filesystem.make_directories(path)
        make_directory(filesystem, "a/b/c")
        info = filesystem.stat("a/b/c")
        assert (info.path, info.is_directory, info.size_bytes) == ("a/b/c", True, 0)

    def test_make_directories_by_many_at_once(self, filesystem: FileSystem) -> None:
        def enter(client: FileSystem, racer: int, number: int) -> None:
            client.make_directories(f"{number}/a/b/c")
            client.create_exclusive(f"{number}/a/b/c/file", b"%d" % racer)

        winners = self.race(filesystem, 3, enter)
        for number, winner in enumerate(winners):
            assert filesystem.stat(f"{number}/a/b").is_directory
            assert filesystem.read(f"{number}/a/b/c/file") == b"%d" % winner

    def test_a_file_in_the_way_of_a_directory(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"data")
        if filesystem.capabilities.implied_directories:
            pytest.skip("a file is in the way of none")
        for path in ("file", "file/a", "file/a/b"):
            with pytest.raises(NotADirectory):
                filesystem.make_directories(path)
        with pytest.raises((NotADirectory, NotFound)):
            filesystem.create("file/a")
        with pytest.raises((NotADirectory, NotFound)):
            filesystem.list("file")

    def test_sync_directory(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("a/b")
        for path in ("", "a", "a/b"):
            filesystem.sync_directory(path)
        if filesystem.capabilities.directory_sync:
            with pytest.raises(NotFound):
                filesystem.sync_directory("nothing")

    def test_remove_directory_takes_only_empty_ones(self, filesystem: FileSystem) -> None:
        filesystem.make_directories("a/b")
        write(filesystem, "a/file", b"data")
        assert filesystem.remove_directory("a/b")
        assert filesystem.remove_directory("a/b")
        assert not filesystem.exists("a/b")
        assert not filesystem.remove_directory("a")
        assert self.stored(filesystem, "a/file") == b"data"
        if not filesystem.capabilities.implied_directories:
            with pytest.raises(NotADirectory):
                filesystem.remove_directory("a/file")
        filesystem.delete("a/file")
        assert filesystem.remove_directory("a")

    def test_listing_follows_every_change(self, filesystem: FileSystem) -> None:
        def names(path: str) -> set[str]:
            return set(self.listed_paths(self.second_client(filesystem), path))

        make_directory(filesystem, "a/b")
        if filesystem.capabilities.implied_directories:
            inside = {"a/b/file"}
        else:
            inside = set()
        assert (names(""), names("a"), names("a/b")) == ({"a"}, {"a/b"}, inside)
        write(filesystem, "a/one", b"data")
        filesystem.create_exclusive("a/two", b"data")
        filesystem.put("a/three", b"data")
        assert names("a") == {"a/b", "a/one", "a/two", "a/three"}
        filesystem.rename("a/one", "a/b/one")
        filesystem.delete("a/two")
        assert (names("a"), names("a/b")) == ({"a/b", "a/three"}, {"a/b/one", *inside})
        assert {info.path: info.is_directory for info in filesystem.list("a")} == {"a/b": True, "a/three": False}

    def test_listing_what_is_missing(self, filesystem: FileSystem) -> None:
        with pytest.raises(NotFound):
            filesystem.list("nothing")

    def test_odd_names(self, filesystem: FileSystem) -> None:
        def check(name: str) -> None:
            try:
                self.check_name(filesystem, name)
            except Exception as error:
                raise AssertionError(f"the name {name!a} is not kept") from error

        with ThreadPoolExecutor(filesystem.capabilities.concurrency) as pool:
            list(pool.map(check, self.odd_names))

    def check_name(self, filesystem: FileSystem, name: str) -> None:
        """Check that files and directories of this name are listed and read under it, or rejected."""
        if filesystem.capabilities.fault_of(name) is not None:
            for refused in (filesystem.create, filesystem.stat, partial(filesystem.put, content=b"")):
                with pytest.raises(Unsupported, match="replace it"):
                    refused(name)
            return
        directory, plain = f"dir {name}"[:60], f"plain {ascii(name)[1:61].encode().hex()}"
        path = f"{directory}/{name}"
        filesystem.make_directories(directory)
        write(filesystem, path, b"written")
        filesystem.create_exclusive(name, b"created")
        assert self.listed_paths(filesystem, directory) == [path]
        assert name in self.listed_paths(filesystem, "")
        assert filesystem.stat(path).path == path
        assert (self.stored(filesystem, path), self.stored(filesystem, name)) == (b"written", b"created")
        filesystem.put(name, b"put")
        filesystem.rename(path, plain)
        filesystem.rename(plain, path)
        assert (filesystem.read(path), filesystem.read(name)) == (b"written", b"put")
        for most, first_bytes in ((0, b"w"), (3, b"writ"), (6, b"written"), (7, b"written"), (8, b"written")):
            assert filesystem.read(path, most) == first_bytes
        filesystem.delete(path)
        if not filesystem.capabilities.implied_directories:
            assert filesystem.list(directory) == []

    @pytest.mark.parametrize("path", MALFORMED_PATHS)
    def test_malformed_paths_are_refused(self, filesystem: FileSystem, path: str) -> None:
        write(filesystem, "file", b"data")
        calls: list[Callable[[], object]] = [
            partial(filesystem.create, path),
            partial(filesystem.open, path),
            partial(filesystem.read, path),
            partial(filesystem.stat, path),
            partial(filesystem.list, path),
            partial(filesystem.make_directories, path),
            partial(filesystem.sync_directory, path),
            partial(filesystem.remove_directory, path),
            partial(filesystem.rename, path, "other"),
            partial(filesystem.rename, "file", path),
            partial(filesystem.create_exclusive, path, b""),
            partial(filesystem.put, path, b""),
            partial(filesystem.delete, path),
        ]
        for call in calls:
            with pytest.raises(Unsupported):
                call()
        assert self.listed_paths(filesystem, "") == ["file"]

    def test_a_name_that_is_too_long_is_refused(self, filesystem: FileSystem) -> None:
        for name in ("n" * 256, "ü" * 128):
            with pytest.raises(Unsupported):
                filesystem.create(name)

    def test_delete_takes_one_file(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"data")
        write(filesystem, "file-2", b"data")
        filesystem.delete("file")
        assert self.listed_paths(filesystem, "") == ["file-2"]

    def test_a_pickled_copy_is_a_client_of_the_same_storage(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"data")
        copy = self.second_client(filesystem)
        assert copy.capabilities == filesystem.capabilities
        assert copy.read("file") == b"data"
        write(copy, "back", b"again")
        assert filesystem.read("back") == b"again"

    def test_capabilities_are_consistent(self, filesystem: FileSystem) -> None:
        capabilities = filesystem.capabilities
        assert capabilities.driver
        assert capabilities.concurrency >= 1
        assert capabilities.durability in {"hsync", "close", "none"}
