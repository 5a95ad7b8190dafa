"""Chains of filters, and files written through a chain."""

from __future__ import annotations

import functools
import io
import random
from typing import TYPE_CHECKING

import pytest

from ftfile.core.checksum import checksum
from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.api import BadStream
from ftfile.filters.chain import Chain, FilteredFile, chain_from_options
from ftfile.filters.decoded import decode_piece, decoded_file
from tests.unit.filters import filters_of_users
from tests.unit.filters.filters_of_users import ByteCounter, Cipher
from tests.unit.formats.rows import Target

if TYPE_CHECKING:
    from collections.abc import Iterable


pytestmark = pytest.mark.usefixtures("users_filters")

LINES = [b"%d some words that come again and again %d\n" % (n, n % 7) for n in range(30_000)]
ALL = b"".join(LINES)
CHAINS = [*((name,) for name in CODECS), (), ("cipher",), ("gzip", "cipher"), ("zstd", "counter", "cipher")]


def chain_of(names: Iterable[str]) -> Chain:
    return Chain.from_definition({"name": name} for name in names)


def filtered(chain: Chain, pieces: Iterable[bytes], identity: str = "a@0") -> bytes:
    target = Target()
    file = FilteredFile(target, chain, identity)
    for piece in pieces:
        file.write(piece)
    file.finish()
    return bytes(target.data)


@functools.cache
def file_of(names: tuple[str, ...]) -> bytes:
    """Return all lines encoded by a chain. The result is cached for all tests."""
    return filtered(chain_of(names), LINES)


def opened(written: bytes, chain: Chain, identity: str = "a@0", plain_bytes: int = len(ALL)) -> io.BufferedReader:
    file = io.BytesIO(written)
    file.name = "part"
    return decoded_file(file, chain, identity, plain_bytes, checksum(written))


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("names", CHAINS)
def test_files_come_back(names: tuple[str, ...]) -> None:
    chain, written = chain_of(names), file_of(names)
    for size in (-1, 10_000, len(ALL)):
        with opened(written, chain) as file:
            pieces = []
            while piece := file.read(size):
                pieces.append(piece)
            assert b"".join(pieces) == ALL
    assert decode_piece(written, Chain.for_reading(names), "a@0", "part") == ALL


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("names", CHAINS)
def test_decoded_files_can_be_sought_in(names: tuple[str, ...]) -> None:
    with opened(file_of(names), chain_of(names)) as file:
        draw = random.Random(3)
        for _ in range(6):
            start, size = draw.randrange(len(ALL)), draw.randrange(200_000)
            assert file.seek(start) == start
            assert file.read(size) == ALL[start : start + size]
        assert file.seek(0, io.SEEK_END) == len(ALL)
        assert file.read() == b""


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("names", CHAINS)
def test_every_truncation_of_a_file_is_detected(names: tuple[str, ...]) -> None:
    """This includes truncations at the end of a frame, which filters cannot detect."""
    chain, plain = chain_of(names), b"".join(LINES[:30])
    target = Target()
    file = FilteredFile(target, chain, "a@0")
    for line in LINES[:30]:
        file.write(line)
        file.flush()
    file.finish()
    written = bytes(target.data)
    for end in range(len(written)):
        part = io.BytesIO(written[:end])
        with pytest.raises(CorruptData):
            decoded_file(part, chain, "a@0", len(plain), checksum(written)).read()
    with opened(written, chain, plain_bytes=len(plain)) as whole:
        assert whole.read() == plain


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("names", CHAINS)
def test_every_flipped_bit_of_a_file_is_detected(names: tuple[str, ...]) -> None:
    chain, plain = chain_of(names), b"".join(LINES[:5])
    written = filtered(chain, [plain])
    for at in range(len(written) * 8):
        damaged = bytearray(written)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptData):
            decoded_file(io.BytesIO(damaged), chain, "a@0", len(plain), checksum(written)).read()


def test_an_empty_file_is_not_one_with_rows() -> None:
    for names in CHAINS:
        with pytest.raises(CorruptData):
            decoded_file(io.BytesIO(), chain_of(names), "a@0", 5, checksum(b"")).read()


def test_an_envelope_is_bound_to_its_place() -> None:
    chain = chain_of(["gzip", "cipher"])
    written = filtered(chain, LINES[:10], "a@0")
    with pytest.raises(BadStream):
        chain.decode(written, "a@1")
    with pytest.raises(CorruptData, match="'part' is corrupt: expected a chunk of this place, found another one"):
        decode_piece(written, chain, "b@0", "part")


def test_frames_move_from_file_to_file() -> None:
    """Frames are copied unchanged into the envelope of another place."""
    chain = chain_of(["gzip", "cipher"])
    pieces = [filtered(chain, [line], f"a@{n}") for n, line in enumerate(LINES[:5])]
    target = Target()
    file = FilteredFile(target, chain, "b@0")
    for n, (piece, line) in enumerate(zip(pieces, LINES, strict=False)):
        file.write_frames(chain.unseal(piece, f"a@{n}"), len(line))
    file.write(LINES[5])
    file.finish()
    assert file.position == len(b"".join(LINES[:6]))
    assert chain.decode(bytes(target.data), "b@0") == b"".join(LINES[:6])


class TestSizes:
    @pytest.mark.packages
    @pytest.mark.slow
    @pytest.mark.parametrize("names", CHAINS)
    def test_are_what_is_in_the_file(self, names: tuple[str, ...]) -> None:
        target = Target()
        file = FilteredFile(target, chain_of(names), "a@0")
        for number, line in enumerate(LINES):
            file.write(line)
            if number % 10_000 == 9_999:
                file.flush()
                assert not file.buffered_bytes
                # The content of an unfinished envelope is not written yet.
                assert abs(file.size_bytes - target.position) <= 200 * ("cipher" in names)
        file.finish()
        assert file.position == len(ALL)
        assert file.size_bytes == target.position

    def test_estimates_go_by_what_is_written(self) -> None:
        target = Target()
        file = FilteredFile(target, chain_of(["gzip"]), "a@0")
        file.write(ALL[:100_000])
        assert file.size_bytes == 100_000
        assert file.reaches(90_000) is False
        assert 1_000 < file.size_bytes < 30_000
        assert file.size_bytes == target.position
        before = file.size_bytes
        file.write(ALL[100_000:200_000])
        assert before * 1.9 < file.size_bytes < before * 2.1
        assert before + 100_000 < file.size_bytes_max(0) < before + 105_000

    @pytest.mark.packages
    @pytest.mark.slow
    @pytest.mark.parametrize("names", [names for names in CHAINS if "cipher" not in names])
    def test_what_a_file_is_at_most(self, names: tuple[str, ...]) -> None:
        """This includes random bytes, which no codec compresses."""
        target, noise = Target(), random.Random(4).randbytes(1_200_000)
        file = FilteredFile(target, chain_of(names), "a@0")
        for size in (1, 100, 10_000, 1_200_000):
            most = file.size_bytes_max(size)
            file.write(noise[:size])
            file.flush()
            assert file.size_bytes <= most

    def test_memory_is_that_of_a_frame(self) -> None:
        target = Target()
        file = FilteredFile(target, chain_of(["gzip"]), "a@0")
        file.write(ALL * 4)
        assert file.buffered_bytes < 1 << 20
        assert target.position > 0


def test_frames_of_no_length_are_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that bypass a filter would be recorded as filtered, and no reader could decode them."""
    monkeypatch.setattr(ByteCounter, "frame_bytes", 0)
    filters_of_users.COUNTED.clear()
    assert filtered(chain_of(["counter"]), [b"abc"]) == b"abc"
    assert sum(filters_of_users.COUNTED) == 3


def test_filters_are_used_in_their_order() -> None:
    filters_of_users.COUNTED.clear()
    chain = Chain((*chain_from_options("gzip", None, ["counter", "cipher"]).filters,))
    written = filtered(chain, [ALL[:50_000]])
    assert chain.names == ("gzip", "counter", "cipher")
    assert sum(filters_of_users.COUNTED) < 25_000, "the counter is after the codec"
    assert len(written) > sum(filters_of_users.COUNTED), "and before the cipher"
    assert chain.extension == ".gz.aes"


def test_definitions() -> None:
    chain = chain_from_options("gzip", 9, ["cipher"])
    assert chain.definition() == [{"name": "gzip", "level": 9}, {"name": "cipher", "key": "of the test"}]
    assert Chain.from_definition(chain.definition()) == chain
    assert Chain((ByteCounter(), Cipher())).framing == (ByteCounter(),)
    assert Chain((Cipher(), ByteCounter())).framing == ()


@pytest.mark.parametrize(
    ("compression", "level", "names", "error"),
    [
        ("brotli", None, (), "compression='brotli': for lines it must be none, gzip, zstd, lz4, lz4frame"),
        (None, 3, (), "compressionLevel=3 without compression"),
        ("none", 3, (), "compressionLevel=3 without compression"),
        ("gzip", 10, (), "for gzip it must be 1 to 9"),
        (None, None, ("gzip",), "filters=gzip is a codec: set compression=gzip"),
        (None, None, ("unknown",), "there is no filter 'unknown'"),
    ],
)
def test_refused_options(compression: str | None, level: int | None, names: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        chain_from_options(compression, level, names)
