"""The output stream's promises as tests, one for each row of the contract, named after it.

The rows restate Hadoop's file-system specification, chapter "Output", which says more about each:

1 a created file is there at once, empty. 2 Nothing is overwritten by accident. 3 Nothing is appended to. 4 After
close everyone sees all bytes. 5 Close is idempotent. 6 No write after close. 7 What else works after close. 8 Close
releases locks. 9 A close may fail. 10 Arguments are checked first, buffers may be reused. 11 A full store fails the
write. 12 Flush promises nothing. 13 Writes of several threads. 14 hflush shows. 15 hsync is no weaker. 16 No
guarantee is weakened silently. 17 Each stream answers for itself, 18 truthfully, also after close. 19 All blocks are
synced. 20 What makes a closed file durable. 21 Bytes are synced, not chunks. 22 Length after a sync. 23 New readers
after a sync. 24 Length and time after close. 25 Time of modification. 26 Two writers of one path. 27 A path that goes
while it is written. 28 Names of capabilities. 40 What is seen before close. 41 What is seen at once after it. 42
Absent, or what was written. 43 Abort.
"""

# ruff: noqa: D102, PLR2004 - a test's name is its description, and expected values are literals

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import (
    AlreadyExists,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    StorageError,
    StreamClosed,
    Unsupported,
)
from ftfile.testing.contract_support import ContractSupport, write
from ftfile.testing.faulty import Fault, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.fs.api import FileSystem, OutputStream

__all__ = ("OutputStreamContract",)

_NAMES = ("hflush", "hsync", "abort")


class OutputStreamContract(ContractSupport):
    """Tests of what `create` returns; a part of `FileSystemContract`."""

    def test_os1_create_shows_an_empty_file_at_once(self, filesystem: FileSystem) -> None:
        with filesystem.create("file"):
            if filesystem.capabilities.shown == "at_create":
                assert self.second_client(filesystem).stat("file").size_bytes == 0
            else:
                assert not self.second_client(filesystem).exists("file")
        assert self.second_client(filesystem).stat("file").size_bytes == 0

    def test_os2_create_never_overwrites(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"old")
        assert self.refused(filesystem, "file").path.endswith("file")
        assert self.stored(filesystem, "file") == b"old"

    def test_os3_nothing_is_appended_to(self, filesystem: FileSystem) -> None:
        stream = write(filesystem, "file", b"old")
        assert not stream.has_capability("append")
        self.refused(filesystem, "file")
        filesystem.put("file", b"new")
        self.eventually(lambda: self.stored(filesystem, "file") == b"new")

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

    def test_os9_a_file_whose_close_failed_does_not_count(self, filesystem: FileSystem) -> None:
        faulty = FaultyFileSystem(filesystem, [Fault(OutcomeUnknown, operations=frozenset({"close"}))])
        stream = faulty.create("file")
        stream.write(b"data")
        with pytest.raises(OutcomeUnknown):
            stream.close()
        with pytest.raises(StreamClosed, match="new name"):
            stream.close()
        assert stream.abort() == stream.has_capability("abort")
        if stream.has_capability("abort"):
            assert not filesystem.exists("file")

    def test_os10_arguments_are_checked_before_anything_is_written(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            for wrong in ("text", 7, None, memoryview(b"abcdef")[::2]):
                with pytest.raises(TypeError):
                    stream.write(wrong)  # type: ignore[arg-type]
            assert stream.position == 0
            stream.write(b"still fine")
        assert self.stored(filesystem, "file") == b"still fine"

    def test_os10_buffers_may_be_reused_after_write(self, filesystem: FileSystem) -> None:
        buffer = bytearray(b"first ")
        with filesystem.create("file") as stream:
            stream.write(buffer)
            buffer[:] = b"second"
            stream.write(memoryview(buffer))
            buffer[:] = b"xxxxxx"
            stream.write(b"")
        assert self.stored(filesystem, "file") == b"first second"

    def test_os11_a_full_store_fails_the_write(self, filesystem: FileSystem) -> None:
        with self.full(filesystem) as store:
            stream = store.create("file")
            with pytest.raises(OutOfSpace):  # noqa: PT012 - a store that buffers fails when it is closed
                stream.write(b"x" * 100_000)
                stream.close()
            with pytest.raises(StreamClosed):
                stream.write(b"more")
            stream.abort()
        write(filesystem, "file-2", b"data")
        assert self.stored(filesystem, "file-2") == b"data"

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

    def test_os15_hsync_is_no_weaker_than_hflush(self, filesystem: FileSystem) -> None:
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

    def test_os17_each_stream_answers_for_itself(self, filesystem: FileSystem) -> None:
        offered = filesystem.capabilities.stream_capabilities
        for path in ("one", "other"):
            with filesystem.create(path) as stream:
                stream.write(b"data")
                answers = {name: stream.has_capability(name) for name in _NAMES}
                assert {name for name, answer in answers.items() if answer} <= offered
                for name in ("hflush", "hsync"):
                    sync = getattr(stream, name)
                    if answers[name]:
                        sync()
                    else:
                        with pytest.raises(Unsupported):
                            sync()

    def test_os18_capabilities_are_true_and_outlive_close(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            answers = {name: stream.has_capability(name) for name in _NAMES}
            assert stream.has_capability("HSYNC") == answers["hsync"]
            assert not stream.has_capability("no-such-thing")
        assert {name: stream.has_capability(name) for name in _NAMES} == answers
        strongest = filesystem.capabilities.durability
        assert answers["hsync"] == (strongest == "hsync"), "durability and hsync contradict each other"

    def test_os19_all_blocks_of_a_file_are_synced(self, filesystem: FileSystem) -> None:
        store, block_bytes = self.with_blocks(filesystem)
        before = self.device_syncs(filesystem)
        content = b"".join(b"%07d\n" % number for number in range(5 * block_bytes // 16))
        with store.create("file") as stream:
            for start in range(0, len(content), 1000):
                stream.write(content[start : start + 1000])
            if stream.has_capability("hsync"):
                stream.hsync()
        assert self.stored(filesystem, "file") == content
        if before is not None:
            self.eventually(lambda: (self.device_syncs(filesystem) or 0) >= before + 3)

    def test_os20_what_makes_a_closed_file_durable(self, filesystem: FileSystem) -> None:
        before = self.device_syncs(filesystem)
        durability = filesystem.capabilities.durability
        with filesystem.create("file") as stream:
            stream.write(b"data")
            assert stream.has_capability("hsync") == (durability == "hsync")
            if durability == "hsync":
                stream.hsync()
        if before is not None and durability != "none":
            self.eventually(lambda: (self.device_syncs(filesystem) or 0) > before)
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
            # A store may learn the length late; 0 does not mean that the file is empty.
            if filesystem.capabilities.shown == "at_create":
                assert self.second_client(filesystem).stat("file").size_bytes <= len(b"data")
        assert self.second_client(filesystem).stat("file").size_bytes == len(b"data")

    def test_os23_each_open_after_a_sync_sees_it(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            if not stream.has_capability("hsync"):
                pytest.skip(f"{filesystem.capabilities.driver} has no hsync")
            for number in range(1, 4):
                stream.write(b"x" * 10)
                stream.hsync()
                with self.reader(filesystem).open("file") as file:
                    assert file.read_at(0, 100) == b"x" * 10 * number

    def test_os24_stat_and_listing_agree_after_close(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"12345")
        info = self.second_client(filesystem).stat("file")
        assert (info.size_bytes, info.is_directory) == (5, False)
        listed = [child for child in filesystem.list("") if child.path == "file"]
        assert [dataclasses.replace(child, identity=child.identity or info.identity) for child in listed] == [info]

    def test_os25_modification_time_lies_within_the_writing(self, filesystem: FileSystem) -> None:
        before_ms = time.time_ns() // 1_000_000  # noqa: TID251 - compared with the store's own clock
        write(filesystem, "file", b"data")
        after_ms = time.time_ns() // 1_000_000  # noqa: TID251
        modified_ms = filesystem.stat("file").modified_ms
        assert before_ms - self.clock_slack_ms <= modified_ms <= after_ms + self.clock_slack_ms

    def test_os26_a_second_writer_is_refused(self, filesystem: FileSystem) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"first")
            if filesystem.capabilities.shown == "at_create":
                self.refused(self.second_client(filesystem), "file")
        self.refused(self.second_client(filesystem), "file")
        assert self.stored(filesystem, "file") == b"first"

    def test_os27_a_path_that_goes_while_it_is_written(self, filesystem: FileSystem) -> None:
        write(filesystem, "other", b"other")
        for change in (lambda path: filesystem.rename(path, f"{path}-moved"), filesystem.delete):
            stream = filesystem.create(f"file-{change.__name__}")
            stream.write(b"data")
            # Allowed or refused, and what becomes of the writer is open: but nothing else may happen, and nothing hang.
            with contextlib.suppress(StorageError):
                change(stream.path)
            with contextlib.suppress(StorageError):
                stream.close()
            stream.abort()
        assert self.stored(filesystem, "other") == b"other"

    def test_os28_capabilities_of_a_driver_alone_are_named_after_it(self, filesystem: FileSystem) -> None:
        for name in filesystem.capabilities.stream_capabilities - set(_NAMES):
            assert name.startswith(f"{filesystem.capabilities.driver}:")

    def test_os40_what_is_seen_before_close(self, filesystem: FileSystem) -> None:
        shown = filesystem.capabilities.shown
        with filesystem.create("file") as stream:
            stream.write(b"data")
            assert self.second_client(filesystem).exists("file") == (shown == "at_create")
            # Whenever the store finds out: of two writers one is refused, at its create or its close.
            with pytest.raises(AlreadyExists):  # noqa: PT012 - which of the two depends on the store
                if shown == "at_create":
                    self.second_client(filesystem).create("file")
                else:
                    write(self.second_client(filesystem), "file", b"second")
                    stream.close()
            if shown == "at_close":
                stream.abort()
        assert self.stored(filesystem, "file") in {b"data", b"second"}

    def test_os41_what_was_closed_or_deleted_is_seen_so_at_once(self, filesystem: FileSystem) -> None:
        other = self.second_client(filesystem)
        for number in range(5):
            path = f"file-{number}"
            assert not other.exists(path)
            write(filesystem, path, b"data")
            assert other.read(path) == b"data"
            filesystem.delete(path)
            assert not other.exists(path)
            assert other.list("") == []

    def test_os42_a_file_is_absent_or_what_was_written_so_far(self, filesystem: FileSystem) -> None:
        content = bytes(range(256)) * 20_000
        with filesystem.create("file") as stream:
            for start in range(0, len(content), 1 << 20):
                stream.write(content[start : start + (1 << 20)])
                other = self.second_client(filesystem)
                if filesystem.capabilities.shown == "at_close":
                    assert not other.exists("file")
                else:
                    assert content.startswith(other.read("file"))
        assert self.stored(filesystem, "file") == content

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
                with self.reader(filesystem).open("file") as file:
                    assert file.read_at(0, 100) == written
