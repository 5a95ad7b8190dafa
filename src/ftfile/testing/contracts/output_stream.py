"""The contract of an output stream as tests, named after the rows of Hadoop's file system specification, "Output".

Rows 1 to 13, from `create` to `close`, are in `writing`.
"""

from __future__ import annotations

import contextlib
import time
from operator import methodcaller
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import AlreadyExists, StorageError, StreamClosed, Unsupported
from ftfile.testing.contracts.support import numbered_lines, write
from ftfile.testing.contracts.writing import WritingContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem, OutputStream


__all__ = ("OutputStreamContract",)


_NAMES = ("hflush", "hsync", "abort", "copy")


class OutputStreamContract(WritingContract):
    """Tests of the streams that `create` returns; a part of `FileSystemContract`."""

    def test_os14_hflush_shows_the_bytes_to_new_readers(self, filesystem: FileSystem) -> None:
        self._check_sync(filesystem, "hflush", methodcaller("hflush"))

    def test_os15_hsync_is_no_weaker_than_hflush_and_reaches_the_device(self, filesystem: FileSystem) -> None:
        self._check_sync(filesystem, "hsync", methodcaller("hsync"))
        if "hsync" not in filesystem.capabilities.stream_capabilities or self.device_syncs(filesystem) is None:
            return
        with filesystem.create("synced") as stream:
            for number in range(2):
                before = self.all_device_syncs(filesystem)
                stream.write(b"%d" % number)
                stream.hsync()
                assert self.all_device_syncs(filesystem) > before

    def test_os16_a_missing_guarantee_raises_and_the_stream_goes_on(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"da")
            for name, sync in (("hflush", stream.hflush), ("hsync", stream.hsync)):
                if not stream.has_capability(name):
                    with pytest.raises(Unsupported, match=name):
                        sync()
            stream.write(b"ta")
        assert self.stored(filesystem, "file") == b"data"

    def test_os17_each_stream_answers_for_itself(self, filesystem: FileSystem) -> None:
        offered = filesystem.capabilities.stream_capabilities
        for path in ("one", "other"):
            with filesystem.create(path) as stream:
                stream.write(b"data")
                supported = _supported(stream)
                assert supported <= offered
                for name in ("hflush", "hsync"):
                    sync = getattr(stream, name)
                    if name in supported:
                        sync()
                    else:
                        with pytest.raises(Unsupported):
                            sync()

    def test_os18_capabilities_are_true_and_outlive_close(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            supported = _supported(stream)
            syncs = "hsync" in supported
            assert stream.has_capability("HSYNC") == syncs
            assert not stream.has_capability("no-such-thing")
        assert _supported(stream) == supported
        aborted = filesystem.create("aborted")
        aborted.abort()
        assert _supported(aborted) == supported
        strongest = filesystem.capabilities.durability
        assert syncs == (strongest == "hsync"), "durability and hsync contradict each other"

    def test_os19_all_blocks_of_a_file_are_synced(self, filesystem: FileSystem) -> None:
        storage, block_bytes = self.with_blocks(filesystem)
        before = self.all_device_syncs(filesystem)
        content = b"".join(numbered_lines(5 * block_bytes // 16))
        with storage.create("file") as stream:
            for start in range(0, len(content), 1000):
                stream.write(content[start : start + 1000])
            if stream.has_capability("hsync"):
                stream.hsync()
                self._check_synced(filesystem, before, self.syncs_of_blocks)
        assert self.stored(filesystem, "file") == content
        if filesystem.capabilities.durability != "none":
            self._check_synced(filesystem, before, self.syncs_of_blocks)

    def test_os20_what_makes_a_closed_file_durable(self, filesystem: FileSystem) -> None:
        before = self.all_device_syncs(filesystem)
        durability = filesystem.capabilities.durability
        with filesystem.create("file") as stream:
            stream.write(b"data")
            assert stream.has_capability("hsync") == (durability == "hsync")
            if durability == "hsync":
                stream.hsync()
                self._check_synced(filesystem, before, 1)
        if durability != "none":
            self._check_synced(filesystem, before, 1)
        assert self.stored(filesystem, "file") == b"data"

    def test_os21_single_bytes_are_synced_not_chunks(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            for number in range(3):
                stream.write(b"%d" % number)
                for name in ("hflush", "hsync"):
                    if stream.has_capability(name):
                        getattr(stream, name)()
                        assert self.reader(filesystem).read("file") == b"012"[: number + 1]
        assert self.stored(filesystem, "file") == b"012"

    def test_os22_a_length_after_a_sync_claims_nothing_that_is_not_there(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"data")
            if stream.has_capability("hflush"):
                stream.hflush()
            # A storage system can report the length late, so a length of 0 does not mean that the file is empty.
            lengths = self.seen_lengths(filesystem, "file")
            assert bool(lengths) == (filesystem.capabilities.visible_at == "at_create")
            if lengths:
                assert max(lengths) <= len(self.reader(filesystem).read("file")) <= len(b"data")
        assert self.seen_lengths(filesystem, "file") == {len(b"data")}

    def test_os23_each_open_after_a_sync_sees_it(self, filesystem: FileSystem) -> None:
        earlier = []
        with filesystem.create("file") as stream:
            for number in range(1, 4):
                stream.write(b"x" * 10)
                if stream.has_capability("hflush"):
                    stream.hsync() if stream.has_capability("hsync") else stream.hflush()
                    earlier.append(self.reader(filesystem).open("file"))
                    assert earlier[-1].read_at(0, 100) == b"x" * 10 * number
        with self.second_client(filesystem).open("file") as file:
            assert file.read_at(0, 100) == b"x" * 30
        # A file that was opened earlier can return the later bytes or not; it never returns fewer bytes or an error.
        for number, opened in enumerate(earlier, 1):
            with opened:
                assert opened.read_at(0, 10 * number) == b"x" * 10 * number

    def test_os24_stat_and_listing_agree_after_close(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"12345")
        info = self.second_client(filesystem).stat("file")
        assert (info.size_bytes, info.is_directory) == (5, False)
        if stream.stored is not None:
            assert stream.stored.size_bytes == 5
            assert stream.stored.modified_ms <= info.modified_ms <= stream.stored.answered_ms
        listed = next(entry for entry in filesystem.list("") if entry.path == "file")
        assert listed._replace(identity=listed.identity or info.identity) == info

    def test_os25_modification_time_lies_within_the_writing(self, filesystem: FileSystem) -> None:
        before_ms = time.time_ns() // 1_000_000  # noqa: TID251 - compared with the storage's own clock
        write(filesystem, "file", b"data")
        after_ms = time.time_ns() // 1_000_000  # noqa: TID251
        modified_ms = filesystem.stat("file").modified_ms
        assert before_ms - self.clock_slack_ms <= modified_ms <= after_ms + self.clock_slack_ms

    def test_os26_a_second_writer_is_refused(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"first")
            if filesystem.capabilities.visible_at == "at_create":
                self.refused(self.second_client(filesystem), "file")
        self.refused(self.second_client(filesystem), "file")
        assert self.stored(filesystem, "file") == b"first"

    def test_os27_a_path_that_goes_while_it_is_written(self, filesystem: FileSystem) -> None:
        write(filesystem, "other", b"other")
        for change in (lambda path: filesystem.rename(path, f"{path}-moved"), filesystem.delete):
            stream = filesystem.create(f"file-{change.__name__}")
            stream.write(b"data")
            # The change can succeed or fail, and so can the writer. Other files stay unchanged, and no call blocks.
            with contextlib.suppress(StorageError):
                change(stream.path)
            with contextlib.suppress(StorageError):
                stream.close()
            stream.abort()
        assert self.stored(filesystem, "other") == b"other"

    def test_os28_capabilities_of_a_driver_alone_are_named_after_it(self, filesystem: FileSystem) -> None:
        for capability in filesystem.capabilities.stream_capabilities - set(_NAMES):
            assert capability.startswith(f"{filesystem.capabilities.driver}:")
        with filesystem.create("file") as stream:
            for name in _NAMES:
                assert not stream.has_capability(f"{filesystem.capabilities.driver}:{name}")
                assert not stream.has_capability(f"fs:{name}")

    def test_os40_what_is_seen_before_close(self, filesystem: FileSystem) -> None:
        other = self.second_client(filesystem)
        with filesystem.create("file") as stream:
            stream.write(b"data")
            if filesystem.capabilities.visible_at == "at_create":
                assert other.exists("file")
                with pytest.raises(AlreadyExists):
                    other.create("file")
                expected = b"data"
            else:
                assert self.seen_lengths(filesystem, "file") == set()
                # The stream that closes first has the name. The other one is rejected, at the latest by `close`.
                write(other, "file", b"second")
                with pytest.raises(AlreadyExists):
                    stream.close()
                stream.abort()
                expected = b"second"
        assert self.stored(filesystem, "file") == expected

    def test_os41_what_was_closed_or_deleted_is_seen_so_at_once(self, filesystem: FileSystem) -> None:
        other = self.second_client(filesystem)
        for number in range(3):
            path = f"file-{number}"
            assert not other.exists(path)
            write(filesystem, path, b"data")
            assert other.read(path) == b"data"
            filesystem.delete(path)
            assert not other.exists(path)
            assert other.list("") == []

    def test_os41_a_file_that_is_deleted_while_it_is_written_stays_deleted(self, filesystem: FileSystem) -> None:
        """The stream drops its data, or raises a `StorageError`."""
        if filesystem.capabilities.visible_at != "at_create":
            return
        with contextlib.suppress(StorageError), filesystem.create("file") as stream:
            stream.write(b"data")
            self.second_client(filesystem).delete("file")
            for _ in range(2):
                stream.write(b"more")
        assert self.seen_lengths(filesystem, "file") == set()

    def test_os42_a_file_is_absent_or_what_was_written_so_far(self, filesystem: FileSystem) -> None:
        content = bytes(range(256)) * (self.more_than_one_part(filesystem) // 256)
        other = self.second_client(filesystem)
        with filesystem.create("file") as stream:
            for start in range(0, len(content), 1 << 20):
                stream.write(content[start : start + (1 << 20)])
                if filesystem.capabilities.visible_at == "at_close":
                    assert not other.exists("file")
                else:
                    assert content.startswith(other.read("file"))
        assert self.stored(filesystem, "file") == content

    @pytest.mark.parametrize("is_large", [False, True])
    def test_os43_abort_discards_and_a_later_close_writes_nothing(
        self, filesystem: FileSystem, *, is_large: bool
    ) -> None:
        stream = filesystem.create("file")
        for _ in range(self.more_than_one_part(filesystem) >> 20 if is_large else 1):
            stream.write(b"x" * (1 << 20) if is_large else b"data")
        is_gone = stream.abort()
        assert is_gone == stream.has_capability("abort")
        for _ in range(2):
            assert is_gone == (self.seen_lengths(filesystem, "file") == set())
            stream.abort()
            stream.close()
        with pytest.raises(StreamClosed):
            stream.write(b"more")
        assert is_gone == (self.seen_lengths(filesystem, "file") == set())

    def test_os43_abort_after_close_leaves_the_file(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "file", b"data")
        assert not stream.abort()
        assert self.stored(filesystem, "file") == b"data"

    def _check_sync(self, filesystem: FileSystem, name: str, sync: Callable[[OutputStream], None]) -> None:
        with filesystem.create("file") as stream:
            for written in (b"first", b"first second"):
                stream.write(written[stream.position :])
                if not stream.has_capability(name):
                    with pytest.raises(Unsupported, match=name):
                        sync(stream)
                    continue
                sync(stream)
                with self.reader(filesystem).open("file") as file:
                    assert file.read_at(0, 100) == written
        assert self.stored(filesystem, "file") == b"first second"

    def _check_synced(self, filesystem: FileSystem, before: int, syncs: int) -> None:
        """Check that the device was synced at least this number of times since `before`, if syncs can be counted."""
        if self.device_syncs(filesystem) is not None:
            assert self.all_device_syncs(filesystem) - before >= syncs


def _supported(stream: OutputStream) -> set[str]:
    """Return the capabilities that the stream reports."""
    supported = set()
    for name in _NAMES:
        if stream.has_capability(name):
            supported.add(name)
    return supported
