"""Files that the storage assembles from segments by copying ranges: the copied ranges, and the rows of a reader."""

from __future__ import annotations

import contextlib
import gzip
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ftfile
from ftfile.core.errors import CorruptData, Unsupported
from ftfile.testing.checker import check_directory
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import file_writer as sink_writer
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.contents

__all__ = ("ring",)

NO_COPIES = Fault(Unsupported, times=1 << 30, operations=frozenset({"copy_from"}))


class Storage:
    """A storage system like S3 that records its requests."""

    def __init__(self, *faults: Fault) -> None:
        self.disk = CrashingFileSystem(storage="s3")
        self.fs = FaultyFileSystem(self.disk, faults)

    def copies(self) -> int:
        return sum(call.operation == "copy_from" for call in self.fs.calls)

    def spools_read(self) -> int:
        return sum(call.operation == "read_at" and call.path.endswith(".spool") for call in self.fs.calls)

    def paths(self, directory: str = "") -> list[str]:
        found = sorted(self.disk.list(directory), key=lambda info: info.path)
        return list(itertools.chain(*(self.paths(each.path) if each.is_directory else [each.path] for each in found)))

    def spool(self) -> str:
        (path,) = (path for path in self.paths() if path.endswith(".spool"))
        return path

    @contextlib.contextmanager
    def query(self, **options: str) -> Iterator[MicroBatch]:
        sink_writer.forget_caches()
        with mounted(self.fs) as url:
            yield MicroBatch(url, {"word": "string"}, {"fileFormat": "text", **options})
        sink_writer.forget_caches()

    def run(self, batches: Sequence[Sequence[str]], **options: str) -> list[int]:
        """Write batches, one partition each, and two empty ones; return how many rows are in each file."""
        with self.query(**options) as query:
            for number, words in enumerate([*batches, [], []]):
                query.run(number, [[{"word": word} for word in words]])
            directory = ftfile.open(query.config().path, key_provider=query.options.get("keyProvider"))
            words = directory.to_arrow()["word"].to_pylist()
            assert sorted(words) == sorted(itertools.chain(*batches))
            return [file.rows for file in directory.files()]

    def data(self) -> list[bytes]:
        return [self.disk.read(path) for path in self.paths() if not path.startswith("_ftfile")]


LINES: tuple[dict[str, str], ...] = (
    {},
    {"fileFormat": "json"},
    {"fileFormat": "csv", "header": "true", "nullValue": "-"},
    {"compression": "gzip"},
    {"fileFormat": "csv", "header": "true", "nullValue": "-", "compression": "zstd"},
)


@parametrize("options", LINES, ids=str, quick=2)
def test_whole_segments_are_copied(options: dict[str, str]) -> None:
    storage = Storage()
    batches = [[f"{batch}{letter}" for letter in "abcdefgh"] for batch in range(6)]
    assert storage.run(batches, maxBatchesPerFile="3", **options) == [24, 24]
    assert storage.copies() == 6
    assert storage.spools_read() == 0


@pytest.mark.parametrize(
    ("limits", "files"),
    [
        ({"maxRecordsPerFile": "4"}, ["abcd", "efgh"]),
        ({"maxBytesPerFile": "9"}, ["abcde"]),
        ({"maxBytesPerFile": "9", "strictFileSize": "true"}, ["abcd", "efgh"]),
    ],
    ids=str,
)
def test_a_segment_that_a_file_ends_in_is_read(limits: dict[str, str], files: list[str]) -> None:
    """Of text: a letter is two bytes long."""
    storage = Storage()
    storage.run(["abc", "def", "ghi"], rolling="policy", **limits)
    assert sorted(file.decode().replace("\n", "") for file in storage.data()) == files
    assert storage.copies()
    assert storage.spools_read()


def test_frames_stand_in_order() -> None:
    storage = Storage()
    storage.run(["abc", "def", "ghi"], maxRecordsPerFile="5", rolling="policy", compression="gzip")
    files = [gzip.decompress(file).decode().replace("\n", "") for file in storage.data()]
    assert sorted(files) == ["abcde"]
    with storage.query() as query:
        ftfile.flush(query.config().path)
        files = [gzip.decompress(file).decode().replace("\n", "") for file in storage.data()]
    assert sorted(files) == ["abcde", "fghi"]
    assert storage.copies() == 2


@pytest.mark.slow
@pytest.mark.packages
@given(
    batches=st.lists(st.lists(st.integers(0, 10**9), min_size=1, max_size=6), min_size=1, max_size=6),
    size=st.integers(1, 60),
    by_rows=st.booleans(),
    strict=st.booleans(),
    lines=st.sampled_from(LINES[:3]),
)
def test_files_are_the_same_as_if_all_were_read(
    batches: list[list[int]], size: int, by_rows: bool, strict: bool, lines: dict[str, str]
) -> None:
    words = [[str(number) for number in batch] for batch in batches]
    limit = "maxRecordsPerFile" if by_rows else "maxBytesPerFile"
    options = lines | {"rolling": "policy", limit: str(size)}
    if strict and not by_rows:
        options["strictFileSize"] = "true"
    copying, reading = Storage(), Storage(NO_COPIES)
    assert copying.run(words, **options) == reading.run(words, **options)
    assert sorted(copying.data()) == sorted(reading.data())
    check_directory(copying.disk, rows_of=lambda content: content.splitlines())


@parametrize("options", [{"fileFormat": "parquet"}, {"encryption": "aes-gcm"}], ids=str, quick=1)
def test_what_must_be_made_anew_is_read(options: dict[str, str], ring: Path) -> None:
    if "encryption" in options:
        options = options | {"keyProvider": f"file:{ring}"}
    storage = Storage()
    assert storage.run(["abc", "def"], maxBatchesPerFile="2", **options) == [6]
    assert storage.copies() == 0
    assert storage.spools_read() == 2


def test_storage_that_copies_no_ranges_is_read_from(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage(NO_COPIES)
    assert storage.run(["ab", "cd", "ef", "gh"], maxBatchesPerFile="2") == [4, 4]
    assert storage.copies() == 2  # once in each task
    assert storage.spools_read() == 4
    assert caplog.text.count("by reading their segments") == 2
    assert not any(path.endswith(".staged") for path in storage.paths())


def test_damage_that_is_copied_is_seen_by_readers() -> None:
    storage = Storage()
    with storage.query(maxBatchesPerFile="2") as query:
        query.run(0, [[{"word": "right"}]])
        storage.disk.put(storage.spool(), b"wrong\n")
        query.run(1, [[{"word": "right"}]])
        query.run(2, [[]])
        assert storage.copies() == 2
        with pytest.raises(CorruptData):
            ftfile.open(query.config().path).to_arrow()


def test_a_segment_that_is_gone_is_left_out_of_its_file(caplog: pytest.LogCaptureFixture) -> None:
    storage = Storage()
    with storage.query(maxBatchesPerFile="2") as query:
        query.run(0, [[{"word": "gone"}]])
        storage.disk.delete(storage.spool())
        query.run(1, [[{"word": "there"}]])
        query.run(2, [[]])
        assert "a file was assembled without a segment that cannot be read" in caplog.text
        assert [file.rows for file in ftfile.open(query.config().path).files()] == [1]
