from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftfile.core.errors import StreamClosed
from ftfile.storage.api import BUFFER_BYTES, OutputStream, as_file
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = b"".join(b"line %d\n" % number for number in range(50_000))
numbers = itertools.count()


@pytest.fixture
def filesystem() -> Iterator[MeteredFileSystem]:
    memory = MemoryFileSystem(f"streams-{next(numbers)}")
    memory.put("file", CONTENT)
    yield MeteredFileSystem(memory)
    MemoryFileSystem.drop(memory.name)


def test_reads_as_python_files_do(filesystem: MeteredFileSystem) -> None:
    with as_file(filesystem.open("file")) as ours, io.BytesIO(CONTENT) as theirs:
        assert ours.readable()
        assert ours.seekable()
        assert not ours.writable()
        for offset, whence in ((0, 0), (17, 0), (1_000, 1), (-5, 2), (10, 2), (-100, 1)):
            assert ours.seek(offset, whence) == theirs.seek(offset, whence) == ours.tell()
            assert ours.read(300) == theirs.read(300)
            assert ours.readline() == theirs.readline()
            assert ours.read(BUFFER_BYTES + 7) == theirs.read(BUFFER_BYTES + 7)
            assert ours.tell() == theirs.tell()
        assert ours.seek(0) == theirs.seek(0)
        assert list(ours) == list(theirs)
        assert ours.read() == b""


def test_small_reads_are_buffered_and_large_ones_are_not_cut(filesystem: MeteredFileSystem) -> None:
    with as_file(filesystem.open("file")) as file:
        for _ in range(100):
            file.read(10)
        assert filesystem.counters.calls["read_at"] == 1
        file.seek(0)
        file.read(300_000)
    assert filesystem.counters.calls["read_at"] == 2


def test_large_reads_are_not_copied(filesystem: MeteredFileSystem) -> None:
    opened = filesystem.open("file")
    whole = opened.read_at(0, len(CONTENT))
    opened.read_at = lambda *_: whole  # type: ignore[method-assign] # only of this file
    with as_file(opened) as file:
        assert file.read(len(CONTENT)) is whole


def test_impossible_seeks_are_refused(filesystem: MeteredFileSystem) -> None:
    with as_file(filesystem.open("file")) as file:
        for offset, whence in ((-1, 0), (0, 7)):
            with pytest.raises(ValueError, match=r"seek|whence"):
                file.raw.seek(offset, whence)


def test_closing_releases_the_file(filesystem: MeteredFileSystem) -> None:
    opened = filesystem.open("file")
    as_file(opened).close()
    with pytest.raises(StreamClosed):
        opened.read_at(0, 1)


def test_arrow_reads_through_it(filesystem: MeteredFileSystem) -> None:
    table = pa.table({"number": list(range(10_000)), "text": [str(number) for number in range(10_000)]})
    with filesystem.create("table.parquet") as stream:
        pq.write_table(table, stream)
    with as_file(filesystem.open("table.parquet")) as file:
        assert pq.read_table(file, columns=["text"]) == table.select(["text"])


@pytest.mark.parametrize("capability", ["hflush", "hsync"])
def test_a_stream_without_the_sync_of_its_capabilities_is_not_made(capability: str) -> None:
    given = {"_write": lambda *_: None, "_close": lambda _: None, "_abort": lambda _: True}
    forgetful = type("Forgetful", (OutputStream,), given)
    with pytest.raises(TypeError, match=f"Forgetful has the capability {capability}, but no method _{capability}"):
        forgetful("file", frozenset({capability, "abort"}))
    forgetful("file", frozenset({"abort"}))
    for method in (f"_{capability}", "_hsync"):
        whole = type("Whole", (forgetful,), {method: lambda _: None})
        getattr(whole("file", frozenset({capability})), capability)()
