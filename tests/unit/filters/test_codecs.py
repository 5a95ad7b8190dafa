"""Every codec without a chain: its output, the streams that it decodes, and the streams that it refuses."""

from __future__ import annotations

import bz2
import contextlib
import itertools
import pickle
import random
import sys
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError
from ftfile.filters.api import BadStream, Filter
from ftfile.filters.chain import Chain, codec, filter_class
from ftfile.filters.codecs import FrameDecoder
from ftfile.filters.hadoop_codecs import BLOCK_BYTES_MAX, BlockDecoder
from tests.kit.parameters import parametrize

CHECKSUMMED = sorted(name for name, row in CODECS.items() if row.has_checksum)
TEXT = b"".join(b"%d,the quick brown fox,%d\n" % (n, n * n % 997) for n in range(60))


def encoded(settled: Filter, *pieces: bytes, size_bytes: int | None = None) -> bytes:
    stream = settled.encoder("", size_bytes)
    return b"".join([*map(stream.feed, pieces), stream.finish()])


def decoded(settled: Filter, *pieces: bytes | memoryview) -> bytes:
    stream = settled.decoder("")
    return b"".join([*map(stream.feed, pieces), stream.finish()])


def cut(data: bytes, places: list[float]) -> list[bytes]:
    bounds = [0, *sorted(int(place * len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=settings().max_examples // 2)
@given(
    data=st.one_of(st.binary(min_size=1), st.builds(lambda n: TEXT * n, st.integers(1, 200))),
    places=st.lists(st.floats(0, 1), max_size=5),
    gives_size=st.booleans(),
)
def test_round_trip(name: str, data: bytes, places: list[float], gives_size: bool) -> None:
    settled = codec(name)
    written = encoded(settled, *cut(data, places), size_bytes=len(data) if gives_size else None)
    assert decoded(settled, *cut(written, places)) == data
    assert decoded(settled, *(written[at : at + 1] for at in range(min(len(written), 1_000))), written[1_000:]) == data


@pytest.mark.parametrize("name", CODECS)
def test_frames_follow_each_other(name: str) -> None:
    settled = codec(name)
    frames = [encoded(settled, TEXT), encoded(settled, b"x"), encoded(settled, TEXT * 9)]
    assert decoded(settled, b"".join(frames)) == TEXT + b"x" + TEXT * 9
    assert settled.joins


@parametrize("name", CODECS, quick=1, packages=True)
def test_frames_that_end_anywhere_in_large_data(name: str) -> None:
    settled, numbers = codec(name), random.Random(name)
    plain = [numbers.randbytes(numbers.randrange(1, 90_000)) for _ in range(12)] + [b"x"] * 300
    frames = [encoded(settled, data) for data in plain]
    assert decoded(settled, b"".join(frames)) == b"".join(plain)
    assert decoded(settled, memoryview(b"".join(frames))) == b"".join(plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", CODECS)
def test_output_comes_in_pieces_whatever_few_bytes_lead_to(name: str) -> None:
    noise, burst = random.Random(name).randbytes(200_000), bytes(48 << 20)
    pieces = [*Chain((codec(name),)).decoder("").all_pieces([encoded(codec(name), noise + burst)])]
    assert max(map(len, pieces)) <= 20 << 20
    assert b"".join(pieces) == noise + burst


@pytest.mark.slow
@pytest.mark.parametrize("more", range(-3, 4))
def test_output_that_fills_its_pieces_is_not_held_back(more: int) -> None:
    plain = bytes((8 << 20) + more)
    for name in CODECS:
        assert decoded(codec(name), encoded(codec(name), plain)) == plain


@pytest.mark.parametrize("step", [1, 7, 65_536])
@parametrize("name", CODECS, quick=1, packages=True)
def test_bytes_may_be_fed_in_any_steps(name: str, step: int) -> None:
    numbers = random.Random(step)
    plain = [numbers.randbytes(5_000), bytes(1 << 20), TEXT, b"", numbers.randbytes(70_000)[: step * 700]]
    written = b"".join(encoded(codec(name), data) for data in plain)
    pieces = [written[start : start + step] for start in range(0, len(written), step)]
    assert decoded(codec(name), *pieces) == b"".join(plain)
    assert b"".join(Chain((codec(name),)).decoder("").all_pieces(pieces)) == b"".join(plain)


@pytest.mark.parametrize("settings", [{}, {"write_content_size": False}, {"level": 19}, {"write_checksum": True}])
@parametrize("size", [0, 1, 200, 300, 70_000, 1_000_000], quick=1, packages=True)
def test_frames_of_zstd_have_heads_of_many_lengths(settings: dict[str, Any], size: int) -> None:
    compressor = zstandard.ZstdCompressor(**settings)
    plain = bytes(size // 2) + random.Random(size).randbytes(size - size // 2)
    skipped = b"\x50\x2a\x4d\x18" + (300_000).to_bytes(4, "little") + bytes(300_000)
    streamed = compressor.compressobj()
    frames = [compressor.compress(plain), skipped, streamed.compress(plain) + streamed.flush()]
    assert decoded(codec("zstd"), b"".join(frames)) == plain * 2


@pytest.mark.slow
def test_what_follows_a_frame_is_not_copied_over_and_over() -> None:
    frames = [bz2.compress(random.Random(number).randbytes(50_000)) for number in range(20)]
    started: list[bz2.BZ2Decompressor] = []

    def start() -> bz2.BZ2Decompressor:
        started.append(bz2.BZ2Decompressor())
        return started[-1]

    decoder = FrameDecoder("bzip2", start, OSError)
    assert len(decoder.feed(b"".join(frames)) + decoder.finish()) == 20 * 50_000
    assert sum(len(frame.unused_data) for frame in started) <= 2 * len(b"".join(frames))


@pytest.mark.parametrize("name", CODECS)
def test_every_truncation_is_detected(name: str) -> None:
    settled = codec(name)
    written = encoded(settled, TEXT)
    for end in range(len(written)):
        with pytest.raises(BadStream):
            decoded(settled, written[:end])


@pytest.mark.parametrize("name", CODECS)
def test_what_follows_the_last_frame_is_detected(name: str) -> None:
    settled = codec(name)
    for more in (b"\0", b"\0" * 20, b"garbage"):
        with pytest.raises(BadStream):
            decoded(settled, encoded(settled, TEXT) + more)


@parametrize("name", CODECS, quick=1, packages=True)
def test_a_flipped_bit_is_an_error_or_the_log_must_see_it(name: str) -> None:
    """`BadStream` is the only error. Codecs with checksums never return text that differs from the written text."""
    settled = codec(name)
    written = encoded(settled, TEXT)
    for at in range(len(written) * 8):
        damaged = bytearray(written)
        damaged[at // 8] ^= 1 << at % 8
        try:
            found = decoded(settled, bytes(damaged))
        except BadStream:
            continue
        assert found == TEXT or name not in CHECKSUMMED, f"bit {at} makes it {found!r}"


@parametrize("name", CODECS, quick=1, packages=True)
@given(data=st.binary(max_size=200), start=st.integers(0, 40))
def test_nothing_but_bad_streams_comes_of_garbage(name: str, data: bytes, start: int) -> None:
    settled = codec(name)
    for garbage in (data, encoded(settled, TEXT)[:start] + data):
        with contextlib.suppress(BadStream):
            decoded(settled, garbage)


@pytest.mark.parametrize("name", CODECS)
def test_codecs_are_values(name: str) -> None:
    one, other = codec(name, level=2 if codec(name).levels else None), codec(name)
    assert pickle.loads(pickle.dumps(one)) == one
    assert filter_class(name).from_definition(one.definition()) == one
    assert (one == other) == (codec(name).levels is None)
    assert len({one, other}) == 1 + (one != other)


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("name", [name for name in CODECS if codec(name).levels])
def test_levels(name: str) -> None:
    low, high = codec(name).levels or (0, 0)
    words = ["".join(random.Random(n).choices("abcdefghij", k=n % 9 + 1)) for n in range(500)]
    data = " ".join(random.Random(1).choices(words, k=30_000)).encode()
    sizes = []
    for level in (low, high):
        written = encoded(codec(name, level), data)
        assert decoded(codec(name), written) == data
        sizes.append(len(written))
    # The level of bzip2 is the length of a block, and this text needs only one block.
    assert sizes[1] < sizes[0] or name == "bzip2"
    for level in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"compressionLevel={level}: for {name} it must be {low} to {high}"):
            codec(name, level)


def test_a_codec_without_levels() -> None:
    with pytest.raises(ConfigError, match="compressionLevel=1 with compression=snappy: this codec has no levels"):
        codec("snappy", 1)


@pytest.mark.parametrize("name", sorted({*CODECS} - {*CHECKSUMMED}))
def test_blocks_fit_the_buffers_of_hadoop(name: str) -> None:
    noise = random.Random(2).randbytes(1_000_000)
    written, lengths = encoded(codec(name), noise[:300_000], noise[300_000:]), []
    assert decoded(codec(name), written) == noise
    while written:
        plain, chunk = int.from_bytes(written[:4], "big"), int.from_bytes(written[4:8], "big")
        lengths += [plain, chunk]
        written = written[8 + chunk :]
    assert max(lengths) <= 256 << 10


def test_blocks_of_several_chunks() -> None:
    """Hadoop's writers split data into several chunks if it exceeds one buffer."""
    decoder = BlockDecoder("test", lambda chunk, _: chunk)
    data = b"\0\0\0\5" + b"\0\0\0\2ab" + b"\0\0\0\3cde" + b"\0\0\0\1\0\0\0\1f"
    assert b"".join(decoder.feed(data[at : at + 1]) for at in range(len(data))) + decoder.finish() == b"abcdef"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\0\0\0\0\0\0\0\1a", "a block of 0"),
        (b"\0\0\0\1\0\0\0\0", "a block of 0"),
        ((BLOCK_BYTES_MAX + 1).to_bytes(4, "big") + b"\0\0\0\1a", f"a block of {BLOCK_BYTES_MAX + 1}"),
        (b"\0\0\0\1\xff\xff\xff\xff", "a block of 4294967295"),
        (b"\0\0\0\1\0\0\0\2ab", "a chunk of 2"),
    ],
)
def test_damaged_lengths_of_blocks(data: bytes, found: str) -> None:
    with pytest.raises(BadStream, match=found):
        BlockDecoder("test", lambda chunk, _: chunk).feed(data)


@pytest.mark.usefixtures("users_filters")
class TestRegistry:
    def test_users_filters(self) -> None:
        assert filter_class("counter").name == "counter"

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("gone", "the filter 'gone' cannot be loaded from 'no.such.module:Filter': No module named"),
            ("nothing", "the filter 'nothing' cannot be loaded"),
            ("foreign", "which is not a class derived from ftfile.filters.api.Filter"),
            ("misnamed", "the filter 'misnamed' has the name 'cipher': its entry point must have the same name"),
            (
                "unknown",
                "there is no filter 'unknown'; there are: aes-gcm, bzip2, cipher, counter, .*group 'ftfile.filters'",
            ),
        ],
    )
    def test_errors(self, name: str, error: str) -> None:
        with pytest.raises(ConfigError, match=error):
            filter_class(name)

    def test_a_missing_package_is_named_with_its_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(ConfigError, match=r"compression=zstd needs a package .*pip install 'ftfile\[zstd\]'"):
            codec("zstd")
