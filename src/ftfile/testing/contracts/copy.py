"""The promises of `CopyingStream.copy_from`, as tests, of stores that copy ranges and of those that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import StorageError, StreamClosed, Unsupported
from ftfile.fs.api import copy_range
from ftfile.testing.contracts.support import ContractSupport, write

if TYPE_CHECKING:
    from ftfile.fs.api import FileSystem

__all__ = ("CopyContract",)


def _copies(filesystem: FileSystem) -> bool:
    return "copy" in filesystem.capabilities.stream_capabilities


def _copied_bytes(filesystem: FileSystem) -> int:
    """Return the length of a range that is copied, not read; some bytes more than the least."""
    return filesystem.capabilities.copy_bytes_min + 10


def _source(filesystem: FileSystem) -> bytes:
    """Write a file `source` that ranges of another content can be copied of, and return what is in it."""
    size_bytes = 2 * _copied_bytes(filesystem)
    content = b"".join(b"%07d\n" % number for number in range(size_bytes // 8 + 1))
    write(filesystem, "source", content)
    return content


class CopyContract(ContractSupport):
    """Tests of what a stream does with ranges of other files."""

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
