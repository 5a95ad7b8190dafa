"""The output stream's promises as tests; the numbers in their names are rows of the contract.

The rows restate Hadoop's file-system specification, chapter "Output", which says more about each:

1 a created file is there at once, empty. 2 Nothing is overwritten by accident. 4 After close everyone sees
all bytes. 5 Close is idempotent. 6 No write after close. 7 What else works after close. 8 Close releases
locks. 10 Arguments are checked first, buffers may be reused. 12 Flush promises nothing. 13 Writes of several
threads. 14 hflush shows. 15 hsync is no weaker. 16 No guarantee is weakened silently. 17 Each stream answers
for itself, 18 truthfully, also after close. 22 Length after a sync. 23 New readers after a sync. 24 Length
and time after close. 25 Time of modification. 26 Two writers of one path. 43 Abort.
"""

# ruff: noqa: D102, PLR2004 - a test's name is its description, and expected values are literals

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import AlreadyExists, NotFound, StreamClosed, Unsupported
from ftfile.testing.contract_support import ContractSupport, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileSystem, OutputStream

__all__ = ("OutputStreamContract",)

_NAMES = ("hflush", "hsync", "abort")


class OutputStreamContract(ContractSupport):
    """Tests of what `create` returns; a part of `FileSystemContract`."""

    def test_os1_create_shows_an_empty_file_at_once(self, filesystem: FileSystem) -> None:
        with filesystem.create("file"):
            assert self.second_client(filesystem).stat("file").size_bytes == 0

    def test_os2_create_never_overwrites(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"old")
        with pytest.raises(AlreadyExists) as caught:
            filesystem.create("file")
        assert caught.value.path.endswith("file")
        assert self.stored(filesystem, "file") == b"old"

    def test_os4_close_shows_all_bytes_to_everyone(self, filesystem: FileSystem) -> None:
        chunks = [bytes([number]) * 50_000 for number in range(20)]
        with filesystem.create("file") as stream:
            for chunk in chunks:
                assert stream.write(chunk) == len(chunk)
            assert stream.position == 1_000_000
        assert self.stored(filesystem, "file") == b"".join(chunks)

    def test_os5_close_is_idempotent(self, filesystem: FileSystem) -> None:
        stream = filesystem.create("file")
        stream.write(b"once")
        stream.close()
        stream.close()
        assert stream.closed
        assert self.stored(filesystem, "file") == b"once"

    def test_os6_write_after_close_fails_and_names_the_path(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "some-file", b"data")
        with pytest.raises(StreamClosed, match="some-file"):
            stream.write(b"more")
        assert self.stored(filesystem, "some-file") == b"data"

    def test_os7_after_close_flush_does_nothing_and_syncs_fail(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "file", b"data")
        stream.flush()
        for sync in (stream.hflush, stream.hsync):
            with pytest.raises(StreamClosed):
                sync()

    def test_os8_close_releases_the_file(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "file", b"data")
        other = self.second_client(filesystem)
        other.rename("file", "renamed")
        other.delete("renamed")
        write(other, "file", b"new")
        stream.close()
        assert self.stored(filesystem, "file") == b"new"

    def test_os10_arguments_are_checked_before_anything_is_written(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            for wrong in ("text", 7, None, memoryview(b"abcdef")[::2]):
                with pytest.raises(TypeError):
                    stream.write(wrong)  # type: ignore[arg-type]
            assert stream.position == 0
            stream.write(b"still fine")
        assert self.stored(filesystem, "file") == b"still fine"

    def test_os10_buffers_may_be_reused_afterwrite(self, filesystem: FileSystem) -> None:
        buffer = bytearray(b"first ")
        with filesystem.create("file") as stream:
            stream.write(buffer)
            buffer[:] = b"second"
            stream.write(memoryview(buffer))
            buffer[:] = b"xxxxxx"
            stream.write(b"")
        assert self.stored(filesystem, "file") == b"first second"

    def test_os12_flush_is_harmless(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"da")
            stream.flush()
            stream.write(b"ta")
        assert self.stored(filesystem, "file") == b"data"

    def test_os13_writes_of_several_threads_stay_whole(self, filesystem: FileSystem) -> None:
        records = [b"%07d\n" % number for number in range(400)]
        with filesystem.create("file") as stream, ThreadPoolExecutor(8) as pool:
            list(pool.map(stream.write, records))
        assert sorted(self.stored(filesystem, "file").splitlines(keepends=True)) == records

    def test_os13_close_beside_writes_loses_none_that_returned(self, filesystem: FileSystem) -> None:
        stream = filesystem.create("file")
        written = []

        def write_until_closed() -> None:
            with contextlib.suppress(StreamClosed):
                while True:
                    written.append(stream.write(b"x" * 100))

        writers = [threading.Thread(target=write_until_closed) for _ in range(4)]
        for writer in writers:
            writer.start()
        while not written:
            time.sleep(0)  # noqa: TID251 - yields to the writers, measures nothing
        stream.close()
        for writer in writers:
            writer.join()
        assert len(self.stored(filesystem, "file")) == sum(written) == stream.position

    def test_os14_hflush_shows_the_bytes_to_new_readers(self, filesystem: FileSystem) -> None:
        self._check_sync(filesystem, "hflush", lambda stream: stream.hflush())

    def test_os15_os22_os23_hsync_is_no_weaker(self, filesystem: FileSystem) -> None:
        self._check_sync(filesystem, "hsync", lambda stream: stream.hsync())

    def test_os16_a_missing_guarantee_raises_and_the_stream_goes_on(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"da")
            for name, sync in (("hflush", stream.hflush), ("hsync", stream.hsync)):
                if not stream.has_capability(name):
                    with pytest.raises(Unsupported, match=name):
                        sync()
            stream.write(b"ta")
        assert self.stored(filesystem, "file") == b"data"

    def test_os17_os18_capabilities_are_true_and_outlive_close(self, filesystem: FileSystem) -> None:
        offered = filesystem.capabilities.stream_capabilities
        with filesystem.create("file") as stream:
            answers = {name: stream.has_capability(name) for name in _NAMES}
            assert {name for name, answer in answers.items() if answer} <= offered
            assert stream.has_capability("HSYNC") == answers["hsync"]
            assert not stream.has_capability("no-such-thing")
        assert {name: stream.has_capability(name) for name in _NAMES} == answers
        strongest = filesystem.capabilities.durability
        assert answers["hsync"] == (strongest == "hsync"), "durability and hsync contradict each other"

    def test_os24_stat_and_listing_agree_after_close(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"12345")
        info = self.second_client(filesystem).stat("file")
        assert (info.size_bytes, info.is_directory) == (5, False)
        assert [child for child in filesystem.list("") if child.path == "file"] == [info]

    def test_os25_modification_time_lies_within_the_writing(self, filesystem: FileSystem) -> None:
        before_ms = time.time_ns() // 1_000_000  # noqa: TID251 - compared with the store's own clock
        write(filesystem, "file", b"data")
        after_ms = time.time_ns() // 1_000_000  # noqa: TID251
        modified_ms = filesystem.stat("file").modified_ms
        assert before_ms - self.clock_slack_ms <= modified_ms <= after_ms + self.clock_slack_ms

    def test_os26_a_second_writer_is_refused(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"first")
            with pytest.raises(AlreadyExists):
                self.second_client(filesystem).create("file")
        assert self.stored(filesystem, "file") == b"first"

    def test_os43_abort_discards_and_a_later_close_writes_nothing(self, filesystem: FileSystem) -> None:
        stream = filesystem.create("file")
        stream.write(b"data")
        assert stream.abort() == stream.has_capability("abort")
        stream.abort()
        stream.close()
        with pytest.raises(StreamClosed):
            stream.write(b"more")
        if stream.has_capability("abort"):
            assert not filesystem.exists("file")

    def test_os43_abort_after_close_leaves_the_file(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "file", b"data")
        assert not stream.abort()
        assert self.stored(filesystem, "file") == b"data"

    def test_a_failure_inside_with_leaves_no_file(self, filesystem: FileSystem) -> None:
        def fail_half_way() -> None:
            with filesystem.create("file") as stream:
                stream.write(b"half")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail_half_way()
        if "abort" in filesystem.capabilities.stream_capabilities:
            with pytest.raises(NotFound):
                filesystem.stat("file")

    def _check_sync(self, filesystem: FileSystem, name: str, sync: Callable[[OutputStream], None]) -> None:
        with filesystem.create("file") as stream:
            if not stream.has_capability(name):
                pytest.skip(f"{filesystem.capabilities.driver} has no {name}")
            for written in (b"first", b"first second"):
                stream.write(written[stream.position :])
                sync(stream)
                other = self.second_client(filesystem)
                with other.open("file") as file:
                    assert file.read_at(0, 100) == written
                # A store may learn the length late, but never claims bytes that are not there.
                assert other.stat("file").size_bytes <= len(written)
