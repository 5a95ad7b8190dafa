"""Filters from the options to the readers: parts, open parts, dead letters, and all that is done with them."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lz4.block
import lz4.frame
import pyarrow as pa
import pytest
import zstandard

import ftfile
from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.chain import Chain
from ftfile.filters.chain import codec as codec_filter
from ftfile.formats.api import LineFormat, format_from_definition
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.layout import storage_identity
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import some
from tests.unit.filters import independent_decoder
from tests.unit.filters.conftest import users_filters
from tests.unit.filters.filters_of_users import Cipher
from tests.unit.writing.files.encrypted import FIRST, ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.filters.api import Stream
    from ftfile.log.format.model import Add

pytestmark = pytest.mark.slow

__all__ = ("ring", "users_filters")

EXTENSIONS = {name: row.ending for name, row in CODECS.items()} | {"none": ""}
LINES = {"text": ".txt", "json": ".json", "csv": ".csv"}
Words = list[str]


def blocks(data: bytes, decompress: Callable[[bytes, int], bytes]) -> bytes:
    """Hadoop's framing, one chunk to a block."""
    plain = b""
    while data:
        size, length = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        plain += decompress(data[8 : 8 + length], size)
        data = data[8 + length :]
    return plain


def lz4_frames(data: bytes) -> bytes:
    with lz4.frame.open(io.BytesIO(data)) as file:
        return bytes(file.read())


# None of ours.
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(),
    ".lz4": lambda data: blocks(data, lambda chunk, size: lz4.block.decompress(chunk, uncompressed_size=size)),
    ".lz4f": lz4_frames,
    ".snappy": lambda data: blocks(data, lambda chunk, size: pa.Codec("snappy").decompress(chunk, size, asbytes=True)),
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class InSmallBatches(MicroBatch):
    """A query whose tasks get their rows some at a time."""

    def _batches(self, rows: Sequence[dict[str, Any]], error: BaseException | None) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), 300):
            yield from super()._batches(rows[start : start + 300], error)


def rows_of(*words: str) -> list[dict[str, Any]]:
    return [{"word": word} for word in words]


def stream(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, {"word": "string"}, {"fileFormat": "text", **options})


def parts(out: str) -> list[Path]:
    return sorted(file for file in Path(out).rglob("*") if file.is_file() and "_ftfile" not in file.parts)


def plain(part: Path) -> bytes:
    decode = DECODERS.get(part.suffix)
    return decode(part.read_bytes()) if decode else part.read_bytes()


def committed(out: str, version: int | None = None) -> Words:
    return sorted(ftfile.open(out).to_arrow(version)["word"].to_pylist())


def adds_of(out: str) -> list[Add]:
    return list(take_snapshot(CommitLog(open_filesystem(out))).adds.values())


def random_words(count: int, seed: int = 0) -> Words:
    draw = random.Random(seed)
    return ["".join(draw.choices("abcdefgh", k=draw.randrange(1, 12))) + f" {n}" for n in range(count)]


def check(out: str) -> None:
    """Check the invariants; the header of a CSV file is not a row."""
    check_directory(open_filesystem(out), rows_of=lambda data: [line for line in data.splitlines() if line != b"word"])


@pytest.mark.parametrize("rolling", [{}, {"maxBatchesPerFile": "2"}, {"maxRecordsPerFile": "5", "rolling": "policy"}])
@pytest.mark.parametrize("codec", EXTENSIONS)
@pytest.mark.parametrize("file_format", LINES)
def test_every_format_codec_and_rolling(out: str, file_format: str, codec: str, rolling: dict[str, str]) -> None:
    more = {"header": "true", "nullValue": "-"} if file_format == "csv" else {}
    query = stream(out, fileFormat=file_format, compression=codec, **rolling, **more)
    words: Words = []
    for batch in range(4):
        new = random_words(7, seed=batch)
        words += new
        query.run(batch, [rows_of(*new[:4]), rows_of(*new[4:])])
        assert committed(out) == sorted(words)
        query.restart()
    ftfile.flush(out)
    assert committed(out) == sorted(words)
    assert committed(out, version=1) == sorted(words[:14])
    assert all(file.name.endswith(LINES[file_format] + EXTENSIONS[codec]) for file in parts(out))
    lines = b"".join(map(plain, parts(out))).splitlines()
    heads = len(parts(out)) if file_format == "csv" else 0
    assert len(lines) == len(words) + heads
    for add in adds_of(out):
        content = Path(out, add.final_path or "").read_bytes()
        assert add.filters == (() if codec == "none" else (codec,))
        assert (add.length, add.logical_length) == (len(content), len(plain(Path(out, add.final_path or ""))))
    check(out)


@pytest.mark.parametrize("codec", EXTENSIONS)
def test_compaction_and_dropping(out: str, codec: str) -> None:
    columns = {"word": "string", "kind": "string"}
    options = {"fileFormat": "json", "compression": codec, "partitionBy": "kind"}
    if codec != "none" and codec_filter(codec).levels is not None:
        options["compressionLevel"] = "2"
    query = MicroBatch(out, columns, options)
    for batch in range(5):
        query.run(batch, [[{"word": f"{batch}-{n}", "kind": "ab"[n % 2]} for n in range(50)]])
    expected = sorted(f"{batch}-{n}" for batch in range(5) for n in range(50))
    report = ftfile.compact(out)
    assert (report.files_removed, report.files_written) == (10, 2)
    assert committed(out) == expected
    assert {add.filters for add in adds_of(out)} == {() if codec == "none" else (codec,)}
    ftfile.drop(out, {"kind": "a"})
    assert committed(out) == [word for word in expected if int(word.partition("-")[2]) % 2]
    assert committed(out, version=4) == expected
    assert [part.suffix for part in parts(out)] == [EXTENSIONS[codec] or ".json"]


@pytest.mark.parametrize("codec", EXTENSIONS)
def test_dead_letters(out: str, codec: str) -> None:
    query = MicroBatch(
        out,
        {"word": "string", "file": "string"},
        {"fileFormat": "json", "compression": codec, "fileNameColumn": "file", "badRecords": "deadLetter"},
    )
    query.run(0, [[{"word": "good", "file": "a"}, {"word": "bad", "file": None}]])
    query.run(1, [[{"word": "worse", "file": ".."}]])
    assert [letter.row["word"] for letter in ftfile.open(out).dead_letters()] == ["bad", "worse"]
    files = list(Path(out, "_ftfile", "deadLetters").rglob("*.deadLetters"))
    assert len(files) == 2
    assert all((file.read_bytes()[:1] == b"{") == (codec == "none") for file in files)
    for file in files:
        file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(CorruptData, match=r"\.deadLetters"):
        list(ftfile.open(out).dead_letters())


def test_the_log_says_how_to_read_and_not_the_options(out: str) -> None:
    words: Words = []
    for batch, codec in enumerate(["gzip", "none", "xz", "gzip", "lz4"]):
        stream(out, compression=codec).run(batch, [rows_of(f"{batch}")])
        words.append(f"{batch}")
        assert committed(out) == words
    assert [add.filters for add in adds_of(out)] == [("gzip",), (), ("xz",), ("gzip",), ("lz4",)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"compression": "gzip"}, {"compression": "zstd"}),
        ({"compression": "gzip"}, {"compression": "gzip", "compressionLevel": "9"}),
        ({"compression": "none"}, {"compression": "gzip"}),
    ],
)
def test_another_codec_or_level_ends_open_parts(out: str, before: dict[str, str], after: dict[str, str]) -> None:
    stream(out, rolling="policy", **before).run(0, [rows_of("a")])
    query = stream(out, rolling="policy", **after)
    query.run(1, [rows_of("b")])
    query.run(2, [rows_of("c")])
    assert committed(out) == ["a", "b", "c"]
    (part,) = parts(out)
    assert plain(part) == b"a\n"
    query.run(3, [[]])
    assert [file.rows for file in ftfile.open(out).files()] == [1], "those of one codec stay open"


class TestSizes:
    """Limits are of bytes on storage."""

    WORDS = random_words(20_000)

    @pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "xz"])
    def test_d4_files_of_a_batch_are_as_large_as_asked_for(self, out: str, codec: str) -> None:
        """D4: the size that rolls a file is that of the compressed file, not of what went into it."""
        options = {"fileFormat": "text", "compression": codec, "maxBytesPerFile": "10000"}
        InSmallBatches(out, {"word": "string"}, options).run(0, [rows_of(*self.WORDS)])
        sizes = [part.stat().st_size for part in parts(out)]
        assert len(sizes) > 3
        assert all(10_000 <= size < 12_000 for size in sizes[:-1]), sizes
        assert sizes[-1] < 12_000
        assert b"".join(map(plain, parts(out))).decode().split("\n")[:-1] == self.WORDS
        check(out)

    @pytest.mark.parametrize("strict", [True, False])
    @pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "xz"])
    def test_d4_files_of_several_batches_are_as_large_as_asked_for(self, out: str, codec: str, strict: bool) -> None:
        query = stream(
            out, compression=codec, maxBytesPerFile="10000", rolling="policy", strictFileSize=str(strict).lower()
        )
        for batch in range(20):
            query.run(batch, [rows_of(*self.WORDS[batch * 1_000 : batch * 1_000 + 1_000])])
            check(out)
        ftfile.flush(out)
        sizes = [part.stat().st_size for part in parts(out)]
        assert len(sizes) > 3
        low, high = (8_500, 10_001) if strict else (10_000, 12_000)
        assert all(low <= size < high for size in sizes[:-1]), sizes
        assert b"".join(map(plain, parts(out))).decode().split("\n")[:-1] == self.WORDS
        check(out)

    @pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "xz", "snappy"])
    def test_strict_parts_of_noise(self, out: str, codec: str) -> None:
        """Whatever becomes longer by compression, and whichever pieces are joined."""
        draw = random.Random(codec)
        letters = [chr(n) for n in range(33, 127)]
        query = stream(out, compression=codec, maxBytesPerFile="3000", rolling="policy", strictFileSize="true")
        words = ["".join(draw.choices(letters, k=draw.randrange(1, 900))) for _ in range(120)]
        for batch in range(12):
            query.run(batch, [rows_of(*words[batch * 10 :][:4]), rows_of(*words[batch * 10 + 4 :][:6])])
            check(out)
        ftfile.flush(out)
        assert max(part.stat().st_size for part in parts(out)) <= 3_000
        assert ftfile.open(out).to_arrow()["word"].to_pylist() == words

    @pytest.mark.usefixtures("users_filters")
    def test_d4_formats_with_sizes_of_their_own(self, out: str) -> None:
        options = {"fileFormat": "parquet", "filters": "counter", "maxBytesPerFile": "20000"}
        InSmallBatches(out, {"word": "string"}, options).run(0, [rows_of(*self.WORDS)])
        sizes = [part.stat().st_size for part in parts(out)]
        assert len(sizes) > 3
        assert all(15_000 < size < 25_000 for size in sizes[:-1]), sizes

    def test_a_record_longer_than_a_part_has_one_of_its_own(self, out: str) -> None:
        noise = ["".join(random.Random(n).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=500)) for n in range(3)]
        query = stream(out, compression="gzip", maxBytesPerFile="100", rolling="policy", strictFileSize="true")
        query.run(0, [rows_of(*noise)])
        query.run(1, [[]])
        ftfile.flush(out)
        assert [plain(part).decode() for part in parts(out)] == [f"{word}\n" for word in noise]

    @pytest.mark.parametrize("file_format", LINES)
    def test_random_batches_and_limits(self, out: str, file_format: str) -> None:
        """Rows in order, each once, for any segments and any split between a part and segments."""
        draw = random.Random(file_format)
        for round_ in range(6):
            path, words = f"{out}-{round_}", random_words(draw.randrange(50, 2_000), seed=round_)
            query = stream(
                path,
                fileFormat=file_format,
                compression=draw.choice([*EXTENSIONS]),
                maxBytesPerFile=str(draw.randrange(200, 8_000)),
                maxRecordsPerFile=str(draw.randrange(20, 400)),
                strictFileSize=draw.choice(["true", "false"]),
                rolling="policy",
                **({"header": "true", "nullValue": "-"} if file_format == "csv" else {}),
            )
            bounds = sorted({0, len(words), *(draw.randrange(len(words)) for _ in range(5))})
            for batch, (start, end) in enumerate(itertools.pairwise(bounds)):
                middle = draw.randrange(start, end)
                query.run(batch, [rows_of(*words[start:middle]), rows_of(*words[middle:end])])
                assert committed(path) == sorted(words[:end])
                check(path)
            ftfile.flush(path)
            check(path)
            assert ftfile.open(path).to_arrow()["word"].to_pylist() == words


class TestFrames:
    """The frames of segments when a part is assembled from them."""

    @pytest.fixture
    def frames_made(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        made: list[int] = []
        frame = Chain.frame

        def counted(chain: Chain, data: bytes | bytearray | memoryview) -> bytes:
            made.append(len(data))
            return frame(chain, data)

        monkeypatch.setattr(Chain, "frame", counted)
        return made

    def test_large_ones_are_joined_as_they_are(self, out: str, frames_made: list[int]) -> None:
        words = random_words(60_000)
        query = stream(out, compression="gzip", rolling="policy")
        for batch in range(3):
            query.run(batch, [rows_of(*words[batch * 20_000 :][:20_000])])
        del frames_made[:]
        segments = sum(add.length for add in adds_of(out))
        ftfile.flush(out)
        (part,) = parts(out)
        assert part.stat().st_size == segments
        assert len(frames_made) <= 1, "but for the sample that was looked at"
        assert plain(part).decode().split("\n")[:-1] == words

    def test_small_ones_are_merged(self, out: str) -> None:
        query = stream(out, compression="gzip", rolling="policy")
        for batch in range(30):
            query.run(batch, [rows_of(*(f"record {batch} {n}" for n in range(20)))])
        segments = sum(add.length for add in adds_of(out))
        ftfile.flush(out)
        (part,) = parts(out)
        assert part.stat().st_size < 0.7 * segments
        assert len(plain(part).splitlines()) == 600
        (add,) = adds_of(out)
        assert add.logical_length == len(plain(part))
        check(out)

    def test_those_that_would_save_little_are_not(self, out: str, frames_made: list[int]) -> None:
        """Small, but of noise."""
        query = stream(out, compression="zstd", rolling="policy")
        for batch in range(5):
            query.run(
                batch, [rows_of("".join(chr(n) for n in random.Random(batch).choices(range(256, 9999), k=2_000)))]
            )
        segments = sum(add.length for add in adds_of(out))
        del frames_made[:]
        ftfile.flush(out)
        (part,) = parts(out)
        assert part.stat().st_size == segments
        assert len(frames_made) == 1


def records_of_checkpoints() -> list[tuple[int, Words]]:
    """The words of a parity that `windows` writes, numbered by checkpoint."""
    return [
        (checkpoint, [f"{window} {n}" for window in (2 * checkpoint, 2 * checkpoint + 1) for n in range(1000)])
        for checkpoint in range(5)
    ]


def opened(stream: Stream, data: bytes) -> bytes:
    return stream.feed(data) + stream.finish()


def decoded(out: str, segment: Add, decipher: Callable[[bytes, str], bytes]) -> tuple[int, Words]:
    """The checkpoint of a segment, and its records: the last filter, which is nearest the file, is undone first."""
    data = Path(out, segment.path).read_bytes()[segment.offset :][: segment.length]
    lines = gzip.decompress(decipher(data, storage_identity("segment", segment.path, segment.offset)))
    return segment.origin.last_batch, lines.decode().splitlines()


def windows(out: str, words: Callable[[int], Words], parities: Callable[[int], list[str]], **options: str) -> None:
    """Ten windows of a thousand records for each of their parities, a checkpoint after every second one."""
    columns = {"word": "string", "parity": "string"}
    query = MicroBatch(
        out, columns, {"fileFormat": "text", "fileNameColumn": "parity", "maxBatchesPerFile": "5", **options}
    )
    for checkpoint in range(5):
        rows = [
            {"word": word, "parity": parity}
            for window in (2 * checkpoint, 2 * checkpoint + 1)
            for parity in parities(window)
            for word in words(window)
        ]
        query.run(checkpoint, [rows])


def its_own(window: int) -> list[str]:
    return [["even", "odd"][window % 2]]


def both(_: int) -> list[str]:
    return ["even", "odd"]


@pytest.mark.parametrize(
    "case", ["AFO-20 gzip", "AFO-21 snappy", *(f"GZipFilterStreamProvider {c}" for c in EXTENSIONS)]
)
def test_afo_20_and_21_each_checkpoint_is_a_member_of_its_own(out: str, case: str) -> None:
    """From the offset of each checkpoint on, compressed data of its own decodes to the records of its windows."""
    codec = case.partition(" ")[2]
    windows(out, lambda window: [str(window)] * 1000, its_own, compression=codec)
    segments = [add for add in adds_of(out) if add.kind == "segment"]
    segments = segments or [
        add for record in read_records(CommitLog(open_filesystem(out))) for add in record.adds if add.kind == "segment"
    ]
    found = set()
    for add in segments:
        data = Path(out, add.path).read_bytes()[add.offset :][: add.length]
        first, *others = DECODERS.get(EXTENSIONS[codec], bytes)(data).decode().split()
        assert others == [first] * 999
        assert int(first) // 2 == add.origin.last_batch
        found.add(int(first))
    assert len(segments) == 10
    assert found == {*range(10)}
    ftfile.flush(out)
    contents = sorted(plain(part).decode().split() for part in parts(out))
    assert contents == [[str(window) for window in range(parity, 10, 2) for _ in range(1000)] for parity in (0, 1)]


def test_afo_22_sixteen_megabytes_through_snappy_alone() -> None:
    """AFO-22: `testSnappyCompressionSimple`."""
    chain, rng = Chain.for_reading(["snappy"]), random.Random(22)
    data = rng.randbytes(1 << 20) * 16
    encoder, decoder = chain.filters[0].encoder(""), chain.decoder("")
    written = b"".join(map(encoder.feed, cut(data, rng))) + encoder.finish()
    assert DECODERS[".snappy"](written) == data
    assert b"".join(map(decoder.feed, cut(written, rng))) + decoder.finish() == data


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield data in pieces of up to 300 KB."""
    start = 0
    while start < len(data):
        end = start + rng.randrange(1, 300_000)
        yield data[start:end]
        start = end


@pytest.mark.usefixtures("users_filters")
@pytest.mark.parametrize("file_format", ["text", "json", "parquet"])
def test_afo_24_a_chain_of_gzip_counter_and_cipher(out: str, file_format: str) -> None:
    """AFO-24: the last filter is nearest the file. Filters of the user's; the cipher binds data to its place."""
    compression = {} if file_format == "parquet" else {"compression": "gzip"}
    windows(
        out,
        lambda window: [f"{window} {n}" for n in range(1000)],
        both,
        fileFormat=file_format,
        filters="counter, cipher",
        **compression,
    )
    expected = sorted(f"{window} {n}" for window in range(10) for n in range(1000) for _ in "eo")
    names = (*compression.values(), "counter", "cipher")
    assert committed(out) == expected
    segments = [add for record in read_records(CommitLog(open_filesystem(out))) for add in record.adds]
    assert {add.filters for add in segments} == {names}
    if file_format == "text":
        found = [
            decoded(out, add, lambda data, identity: opened(Cipher().decoder(identity), data))
            for add in segments
            if add.kind == "segment"
        ]
        assert sorted(found) == sorted(records_of_checkpoints() * 2)
    ftfile.flush(out)
    assert committed(out) == expected
    assert {part.name[part.name.index(".") :] for part in parts(out)} == {
        {"text": ".txt.gz.aes", "json": ".json.gz.aes", "parquet": ".zstd.parquet.aes"}[file_format]
    }
    ftfile.compact(out)
    assert committed(out) == expected
    # Not the bytes of another file, though they were written with the same key.
    one, other = (Path(out, add.final_path or "") for add in adds_of(out))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(CorruptData):
        committed(out)


def test_afo_24_with_encryption(out: str, ring: Path) -> None:
    """AFO-24 with `aes-gcm` as the cipher, and decoders that are none of ours."""
    keys = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
    windows(out, lambda window: [f"{window} {n}" for n in range(1000)], both, compression="gzip", **keys)
    log = CommitLog(ftfile.open(out).file_system)
    segments = [add for record in read_records(log) for add in record.adds if add.kind == "segment"]
    ring_of = {("first", b""): FIRST}
    found = [
        decoded(out, add, lambda data, identity: independent_decoder.decode(data, identity, ring_of))
        for add in segments
    ]
    assert sorted(found) == sorted(records_of_checkpoints() * 2)


@pytest.mark.usefixtures("users_filters")
def test_filter_stream_provider_chains_without_compression(out: str) -> None:
    """FilterChainStreamProvider: rows of segments that are cut come back, also from nothing but an envelope."""
    words = random_words(500)
    query = stream(out, filters="cipher", maxRecordsPerFile="70", rolling="policy")
    for batch in range(5):
        query.run(batch, [rows_of(*words[batch * 100 :][:100])])
        assert committed(out) == sorted(words[: batch * 100 + 100])
        check(out)
    ftfile.flush(out)
    check(out)
    assert ftfile.open(out).to_arrow()["word"].to_pylist() == words
    assert [file.rows for file in ftfile.open(out).files()] == [70] * 7 + [10]


@pytest.mark.parametrize("place", ["part", "segment"])
@pytest.mark.parametrize("codec", EXTENSIONS)
def test_every_flipped_bit_and_every_truncation_of_what_is_committed(
    out: str, codec: str, place: str, seed: int
) -> None:
    """The seed draws an eighth of the bits in the suite; `filters/test_chain.py` tests the bits of whole files."""
    more = {"rolling": "policy"} if place == "segment" else {}
    stream(out, compression=codec, **more).run(0, [rows_of("some", "words", "some", "more")])
    (add,) = adds_of(out)
    file = Path(out, add.final_path or add.path)
    content, directory = file.read_bytes(), ftfile.open(out)
    for at in some(range(len(content) * 8), seed, 1 / 8):
        damaged = bytearray(content)
        damaged[at // 8] ^= 1 << at % 8
        file.write_bytes(damaged)
        with pytest.raises(CorruptData):
            directory.to_arrow()
    for end in range(len(content)):
        file.write_bytes(content[:end])
        with pytest.raises(CorruptData):
            directory.to_arrow()
    file.write_bytes(content)
    assert sorted(directory.to_arrow()["word"].to_pylist()) == ["more", "some", "some", "words"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"compression": "brotli"}, "compression='brotli': for lines it must be none, gzip"),
        ({"compression": "gz"}, "compression='gz' is not understood: it takes one of `none`, `gzip`"),
        ({"compression": "gzip", "compressionLevel": "10"}, "for gzip it must be 1 to 9"),
        ({"compression": "snappy", "compressionLevel": "1"}, "this codec has no levels"),
        ({"compressionLevel": "1"}, "compressionLevel=1 without compression"),
        ({"filters": "unknown"}, "there is no filter 'unknown'"),
        ({"filters": "gzip"}, "filters=gzip is a codec: set compression=gzip"),
        (
            {"fileFormat": "parquet", "compression": "xz"},
            "compression='xz': for parquet it must be one of none, snappy, gzip",
        ),
    ],
)
def test_refused_options(out: str, options: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        stream(out, **options).run(0, [rows_of("a")])
    assert not Path(out).exists()


def test_lines_are_what_is_filtered() -> None:
    """Formats with built-in codecs are not compressed again."""
    assert isinstance(format_from_definition({"name": "text", "lineSep": "\n", "column": "word"}), LineFormat)
