"""The contract of an output stream from `create` to `close`, as tests: rows 1 to 13, see `output_stream`."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import NotFound, OutcomeUnknown, OutOfSpace, StorageError, StreamClosed, Unsupported
from ftfile.testing.contracts.support import EVENTUALLY_S, ContractSupport, numbered_lines, write
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem, OutputStream


__all__ = ("WritingContract",)


class WritingContract(ContractSupport):
    """Tests of the bytes written to a stream; a part of `OutputStreamContract`."""

    def test_os1_create_shows_an_empty_file_at_once(self, filesystem: FileSystem) -> None:
        with filesystem.create("file"):
            if filesystem.capabilities.visible_at == "at_create":
                expected = {0}
            else:
                expected = set()
            assert self.seen_lengths(filesystem, "file") == expected
        assert self.seen_lengths(filesystem, "file") == {0}

    def test_os2_create_never_overwrites(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"old")
        assert self.refused(filesystem, "file").path.endswith("file")
        assert self.stored(filesystem, "file") == b"old"

    def test_os2_what_is_put_over_a_file_leaves_nothing_of_it(self, filesystem: FileSystem) -> None:
        write(filesystem, "file", b"old and long")
        for content in (b"new", b""):
            filesystem.put("file", content)
            assert (filesystem.read("file"), filesystem.stat("file").size_bytes) == (content, len(content))
            self.eventually(lambda content=content: self.is_stored(filesystem, "file", content))  # type: ignore[misc]
            assert self.seen_lengths(filesystem, "file") == {len(content)}

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
        assert self.second_client(filesystem).read("file") == b"".join(chunks)
        assert self.seen_lengths(filesystem, "file") == {1_000_000}

    def test_os5_close_is_idempotent(self, filesystem: FileSystem) -> None:
        stream = filesystem.create("file")
        stream.write(b"once")
        stream.close()
        stream.close()
        assert stream.closed
        assert self.stored(filesystem, "file") == b"once"
        filesystem.delete("file")
        stream.close()
        assert self.seen_lengths(filesystem, "file") == set(), "another close has written again"

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
        with self.unclosable(filesystem, "file") as storage:
            stream = storage.create("file")
            stream.write(b"data")
            with pytest.raises(StorageError):
                stream.close()
            _check_unusable(stream)
            assert stream.abort() == stream.has_capability("abort")
        if stream.has_capability("abort"):
            assert self.seen_lengths(filesystem, "file") in (set(), {len(b"somebody else's")})

    def test_os9_a_close_that_fails_leaves_nothing_behind_with(self, filesystem: FileSystem) -> None:
        with self.unclosable(filesystem, "file") as storage, pytest.raises(StorageError):
            write(storage, "file", b"data")
        if "abort" in filesystem.capabilities.stream_capabilities:
            assert self.seen_lengths(filesystem, "file") in (set(), {len(b"somebody else's")})

    def test_os9_abort_tells_what_is_left_where_a_close_may_have_been_done(self, filesystem: FileSystem) -> None:
        faulty = FaultyFileSystem(filesystem, [Fault(OutcomeUnknown, "after", operations=frozenset({"close"}))])
        stream = faulty.create("file")
        stream.write(b"data")
        with pytest.raises(OutcomeUnknown):
            stream.close()
        _check_unusable(stream)
        assert self.seen_lengths(filesystem, "file") == (set() if stream.abort() else {4})

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
            large = bytearray(b"3" * (1 << 21))
            stream.write(large)
            large.clear()  # raises `BufferError` if the stream still references the buffer
        assert self.stored(filesystem, "file") == b"first second" + b"3" * (1 << 21)

    def test_os11_full_storage_fails_the_write(self, filesystem: FileSystem) -> None:
        with self.full(filesystem) as storage:
            stream = storage.create("file")
            with pytest.raises(OutOfSpace) as caught:  # noqa: PT012 - which of the writes depends on buffers
                for _ in range(16 + 2 * filesystem.capabilities.stream_bytes // (1 << 20)):
                    stream.write(b"x" * (1 << 20))
            assert caught.value.path.endswith("file")
            _check_unusable(stream)
            assert stream.abort() == stream.has_capability("abort")
        if stream.has_capability("abort"):
            assert self.seen_lengths(filesystem, "file") == set()
        write(filesystem, "file-2", b"data")
        assert self.stored(filesystem, "file-2") == b"data"

    def test_os12_flush_is_no_sync_and_shows_nothing(
        self, filesystem: FileSystem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with filesystem.create("file") as stream:
            stream.write(b"da")
            before = self.all_device_syncs(filesystem)
            with monkeypatch.context() as patch:
                for name in ("_write", "_hflush", "_hsync", "_close"):
                    patch.setattr(stream, name, lambda *_, name=name: pytest.fail(f"flush calls {name}"))
                for _ in range(100):
                    stream.flush()
            assert self.all_device_syncs(filesystem) == before
            if filesystem.capabilities.visible_at == "at_close":
                assert self.seen_lengths(filesystem, "file") == set()
            stream.write(b"ta")
        assert self.stored(filesystem, "file") == b"data"

    def test_os13_writes_and_syncs_of_several_threads_stay_whole(self, filesystem: FileSystem) -> None:
        records = numbered_lines(400)

        def write_one(record: bytes) -> None:
            stream.write(record)
            if stream.has_capability("hflush") and int(record) % 40 == 0:
                stream.hflush()

        with filesystem.create("file") as stream, ThreadPoolExecutor(8) as pool:
            list(pool.map(write_one, records))
        assert sorted(self.stored(filesystem, "file").splitlines(keepends=True)) == records

    def test_os13_close_beside_writes_loses_none_that_returned(self, filesystem: FileSystem) -> None:
        stream = filesystem.create("file")
        written = []

        def write_until_closed() -> None:
            with contextlib.suppress(StreamClosed):
                while True:
                    written.append(stream.write(b"x" * 100))

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write_until_closed) for _ in range(4)]
            while not written and not all(writer.done() for writer in writers):
                time.sleep(0)  # noqa: TID251 - yields to the writers, measures nothing
            stream.close()
            for writer in writers:
                writer.result()
        assert len(self.stored(filesystem, "file")) == sum(written) == stream.position > 0

    @pytest.mark.parametrize("waiting", ["hsync", "hflush", "write"])
    def test_os13_close_waits_for_what_another_thread_does(
        self, filesystem: FileSystem, waiting: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stream = filesystem.create("file")
        stream.write(b"da")
        if waiting == "write":
            do = partial(stream.write, b"ta")
        else:
            do = getattr(stream, waiting)
        is_offered = waiting == "write" or stream.has_capability(waiting)
        order: list[str] = []
        entered, closing = threading.Event(), threading.Event()
        slowly, close = getattr(stream, f"_{waiting}"), stream._close  # noqa: SLF001 - what a driver implements

        def wait(*data: memoryview) -> None:
            monkeypatch.setattr(stream, f"_{waiting}", slowly)
            entered.set()
            closing.wait(0.03)  # time in which a wrong `close` would run before the operation ends
            slowly(*data)
            order.append(waiting)

        def note_and_close() -> None:
            closing.set()
            order.append("close")
            close()

        monkeypatch.setattr(stream, f"_{waiting}", wait)
        monkeypatch.setattr(stream, "_close", note_and_close)
        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(do)
            assert entered.wait(EVENTUALLY_S) if is_offered else isinstance(working.exception(), Unsupported)
            stream.close()
            if is_offered:
                working.result()
        assert order == [waiting, "close"][not is_offered :]
        assert self.stored(filesystem, "file") == (b"data" if waiting == "write" else b"da")

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


def _check_unusable(stream: OutputStream) -> None:
    """Check that a stream cannot be mistaken for a written file: each call fails, and each later call fails too."""
    assert stream.closed
    for call in (stream.close, stream.hflush, stream.hsync, lambda: stream.write(b"more"), stream.close):
        with pytest.raises(StreamClosed, match="new name"):
            call()
