"""The checksum of whole files in HDFS, and its conversion by the WebHDFS driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import StorageError, Unavailable
from ftfile.core.retries import RetryPolicy
from ftfile.storage.hdfs.webhdfs_files import HadoopChecksum, digest_of
from ftfile.testing.context import open_filesystem
from tests.unit.storage.fake_hdfs import Names, WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem

BLOCK_BYTES = 1024
PATTERN = bytes(range(251))


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def fs(names: Names) -> Iterator[FileSystem]:
    with WebServer(names) as server:
        yield open_filesystem(server.url, settings={"patience": "0"}, policy=RetryPolicy(attempts=1))


def write(fs: FileSystem, *pieces: bytes) -> None:
    with fs.create("file") as stream:
        for piece in pieces:
            stream.write(piece)


def content_of(size_bytes: int) -> bytes:
    return (PATTERN * (size_bytes // len(PATTERN) + 1))[:size_bytes]


@pytest.mark.parametrize("piece_bytes", [1, 511, 700, 100_000])
@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (1, "dc236201841049096ad31b6213203a90"),
        (511, "567837f31a00672c1a0963bc4f5b7710"),
        (512, "e6e61fbd4c76a34aad61c16d8e9352dd"),
        (513, "ab994f19a9734efcd16576cfd7a9cfec"),
        (1024, "50ff11bcb16278c91f4d4bdfcbaa2bab"),
        (1025, "6b68d6b32910d0b88362eb2823328479"),
        (2048, "a806b1b8e1dada6c7ded416b54ae9885"),
        (2049, "9fcf6fd1d725d543dbcd0139ecdddf42"),
        (5000, "2dda31ce8ffbb69839e22b05b8643617"),
        (5120, "10ff0f363b09bf08fa059627124f9780"),
        (9916, "40306ff0f2829ca27c86452440908734"),
    ],
)
def test_it_is_that_of_hadoop(size_bytes: int, expected: str, piece_bytes: int) -> None:
    """The digests were computed by Hadoop 3.5.0."""
    content, checksum = content_of(size_bytes), HadoopChecksum(BLOCK_BYTES)
    for start in range(0, size_bytes, piece_bytes):
        checksum.update(content[start : start + piece_bytes])
    assert checksum.digest() == checksum.digest() == bytes.fromhex(expected)


def test_only_one_of_the_same_kind_can_be_compared() -> None:
    answer = {"bytes": "00000200" + "00" * 8 + "ab" * 16, "length": 28}
    assert digest_of(answer | {"algorithm": "MD5-of-128MD5-of-512CRC32C"}) == b"\xab" * 16
    for other in ("MD5-of-0MD5-of-512CRC32", "MD5-of-0MD5-of-4096CRC32C", "COMPOSITE-CRC32C"):
        assert digest_of(answer | {"algorithm": other}) is None


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [[b"data"], [b"x" * (1 << 20), b"tail"], [b"x" * (5 << 19)] * 3])
def test_bytes_that_changed_on_the_way_are_no_file(fs: FileSystem, names: Names, pieces: list[bytes]) -> None:
    write(fs, *pieces)
    assert names.files.pop("/out/file") == b"".join(pieces)
    names.flipped = True
    with pytest.raises(StorageError, match="other bytes than were sent"):
        write(fs, *pieces)
    assert names.files == {}


@pytest.mark.slow
def test_nor_a_record(fs: FileSystem, names: Names) -> None:
    names.flipped = True
    with pytest.raises(StorageError, match="other bytes than were sent"):
        fs.create_exclusive("log", b"content")
    assert names.files == {}


def test_an_empty_file_has_nothing_to_compare(fs: FileSystem, names: Names) -> None:
    write(fs)
    fs.create_exclusive("log", b"")
    assert "GETFILECHECKSUM" not in names.asked


@pytest.mark.parametrize("bit", ["encBit", "ecBit"])
def test_of_what_is_stored_as_other_bytes_only_the_length_is_compared(fs: FileSystem, names: Names, bit: str) -> None:
    names.more = {bit: True}
    write(fs, b"data")
    fs.create_exclusive("log", b"content")
    assert "GETFILECHECKSUM" not in names.asked


class UnsupportedOperationException(Exception):
    pass


class StandbyException(Exception):
    pass


@pytest.mark.slow
def test_so_it_is_where_hdfs_tells_none_which_is_said_once(
    fs: FileSystem, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    names.algorithm = "MD5-of-0MD5-of-4096CRC32C"
    write(fs, b"data")
    names.errors["GETFILECHECKSUM"] = [UnsupportedOperationException("what?")]
    fs.create_exclusive("log", b"content")
    assert names.files == {"/out/file": b"data", "/out/log": b"content"}
    assert [record.message for record in caplog.records if "returns no checksums" in record.message] != []
    assert caplog.text.count("returns no checksums") == 1


@pytest.mark.slow
def test_a_file_whose_checksum_nobody_tells_now_does_not_count(fs: FileSystem, names: Names) -> None:
    names.errors["GETFILECHECKSUM"] = [StandbyException("not now")]
    with pytest.raises(Unavailable):
        write(fs, b"data")
    assert names.files == {}
