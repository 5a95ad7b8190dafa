"""Codecs of lines: against their libraries alone, at small batches, and gzip against Spark's own."""

from __future__ import annotations

import base64
import bz2
import io
import logging
import lzma
import os
import statistics
import time
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import arro3.io
import lz4.block
import lz4.frame
import pyarrow
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from isal import isal_zlib

import ftfile
from benchmarks import bulk
from benchmarks.report import Cell, Table
from benchmarks.rows import make_rows, write_parquet_input
from benchmarks.sinks import NULL, Sink
from benchmarks.spark_session import in_own_process
from ftfile.core.codecs import CODECS
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import FilteredFile, chain_from_options
from ftfile.filters.keys import Keys
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import current
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.settings import Settings
    from ftfile.filters.chain import Chain

    Compress = Callable[[bytes], int]

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS, SMOKE_ROWS = 150_000, 1_000
ROUNDS, SMOKE_ROUNDS = 7, 1
SLOW_ROWS = 20_000
SLOW = {"bzip2", "xz"}
BATCHES, SMOKE_BATCHES, BATCH_ROWS = 200, 3, 1_000
PIECE_BYTES = 8 << 20  # about what the encoders of lines hand over at a time
MEGA = 1_000_000
GZIP = (
    NULL,
    Sink("ftfile json gzip", "ftfile", "json", (("fileFormat", "json"), ("compression", "gzip"))),
    Sink("spark json gzip", "json", "json", (("compression", "gzip"),)),
)
CODEC_COLUMNS = ("codec", "MB/s", "library alone", "x library", "reading MB/s", "ratio", "library's ratio")
CODEC_NOTE = (
    "MB of JSON lines to a second of processor time: medians of alternating rounds, ratios within a round. The library "
    "alone makes one stream of the same bytes, or blocks as large as Hadoop's, and keeps nothing."
)
ENCRYPTION_COLUMNS = ("codec", "MB/s", "without", "x without", "reading MB/s")
ENCRYPTION_NOTE = (
    "As above, of the same lines before their codec. Without encryption; in the first line, the library's AES-256-GCM "
    "alone, 64 KiB at a time, which keeps nothing."
)
SMALL_NOTE = (
    "JSON lines, one task. A ratio is that of what the files hold to their size; with rolling, all batches are in one "
    "file, made when the stream ended."
)
SPARK_COLUMNS = ("sink", "M rows/s", "x spark's gzip", "Python CPU s/M rows", "output MB")
SPARK_NOTE = "As `bulk`, with these sinks alone."


def run(settings: Settings) -> list[Table]:
    """Measure all of it."""
    return [_codecs(settings), _encryption(settings), _small_batches(settings), _against_spark(settings)]


class _Nowhere:
    """A ByteWriter that counts."""

    def __init__(self) -> None:
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.position += len(data)
        return len(data)


def _codecs(settings: Settings) -> Table:
    lines = []
    for codec in CODECS:
        rows = SMOKE_ROWS if settings.smoke else SLOW_ROWS if codec in SLOW else ROWS
        data = _json_lines(rows)
        rivals: dict[str, Compress] = {
            "ours": partial(_by_chain, chain_from_options(codec, None, ())),
            "library": _LIBRARIES[codec],
        }
        samples: dict[str, list[float]] = {name: [] for name in rivals}
        for number in range(SMOKE_ROUNDS if settings.smoke else ROUNDS):
            for name in sorted(rivals, reverse=bool(number % 2)):
                samples[name].append(_cpu_s(rivals[name], data))
        speeds = {name: len(data) / MEGA / statistics.median(found) for name, found in samples.items()}
        ratio = statistics.median(theirs / ours for ours, theirs in zip(*samples.values(), strict=True))
        chain = chain_from_options(codec, None, ())
        written = chain.frame(data)
        reading_s = statistics.median(_cpu_s(_by_reading(codec), written) for _ in range(3))
        sizes = [len(data) / rivals[name](data) for name in rivals]
        lines.append((codec, *speeds.values(), ratio, len(data) / MEGA / reading_s, *sizes))
        LOGGER.info("compression: %s", lines[-1])
    return Table("codecs of lines", CODEC_COLUMNS, tuple(lines), CODEC_NOTE)


def _encryption(settings: Settings) -> Table:
    """Return the cost of encryption, alone and behind a codec."""
    data = _json_lines(SMOKE_ROWS if settings.smoke else ROWS)
    os.environ["FTFILE_KEYS_OF_BENCHMARK"] = f"benchmark {base64.b64encode(bytes(32)).decode()}"
    cipher = AesGcm("benchmark", Keys.from_reference("env:FTFILE_KEYS_OF_BENCHMARK"))
    lines: list[tuple[Cell, ...]] = []
    for codec in (None, "zstd", "gzip"):
        chain = chain_from_options(codec, None, (), cipher)
        rivals: dict[str, Compress] = {
            "ours": partial(_by_chain, chain),
            "without": partial(_by_chain, chain_from_options(codec, None, ())) if codec else _by_aes_gcm,
        }
        samples: dict[str, list[float]] = {name: [] for name in rivals}
        for number in range(SMOKE_ROUNDS if settings.smoke else ROUNDS):
            for name in sorted(rivals, reverse=bool(number % 2)):
                samples[name].append(_cpu_s(rivals[name], data))
        speeds = [len(data) / MEGA / statistics.median(found) for found in samples.values()]
        ratio = statistics.median(theirs / ours for ours, theirs in zip(*samples.values(), strict=True))
        lines.append((codec or "none", *speeds, ratio, len(data) / MEGA / _reading_s(chain, data)))
        LOGGER.info("encryption: %s", lines[-1])
    return Table("encryption=aes-gcm", ENCRYPTION_COLUMNS, tuple(lines), ENCRYPTION_NOTE)


def _by_aes_gcm(data: bytes) -> int:
    cipher, view, step = AESGCM(bytes(32)), memoryview(data), 64 << 10
    places = range(0, len(data), step)
    return sum(len(cipher.encrypt(at.to_bytes(12, "big"), view[at : at + step], None)) for at in places)


def _reading_s(chain: Chain, data: bytes) -> float:
    written = bytearray()

    class Kept(_Nowhere):
        def write(self, data: bytes | bytearray | memoryview) -> int:
            written.extend(data)
            return super().write(data)

    file = FilteredFile(Kept(), chain, "benchmark")
    file.write(data)
    file.finish()

    def read(_: bytes) -> int:
        decoder, step = chain.decoder("benchmark"), 64 << 10
        return sum(len(decoder.feed(written[at : at + step])) for at in range(0, len(written), step))

    return statistics.median(_cpu_s(read, data) for _ in range(3))


def _json_lines(rows: int) -> bytes:
    sink = io.BytesIO()
    arro3.io.write_ndjson(make_rows(rows, seed=0).combine_chunks(), sink)
    return sink.getvalue()


def _cpu_s(work: Compress, data: bytes) -> float:
    began = time.process_time()
    work(data)
    return time.process_time() - began


def _by_chain(chain: Chain, data: bytes) -> int:
    target = _Nowhere()
    file = FilteredFile(target, chain, "benchmark")
    view = memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        file.write(view[start : start + PIECE_BYTES])
    file.finish()
    return target.position


def _by_reading(codec: str) -> Compress:
    decoder = chain_from_options(codec, None, ()).decoder("")
    return lambda data: sum(len(decoder.feed(data[at : at + (64 << 10)])) for at in range(0, len(data), 64 << 10))


def _streamed(start: Callable[[], Any], data: bytes) -> int:
    compressor, view = start(), memoryview(data)
    pieces = (compressor.compress(view[at : at + PIECE_BYTES]) for at in range(0, len(data), PIECE_BYTES))
    return sum(map(len, pieces)) + len(compressor.flush())


def _in_blocks(block_bytes: int, compress: Callable[[memoryview], bytes], data: bytes) -> int:
    view = memoryview(data)
    return sum(8 + len(compress(view[at : at + block_bytes])) for at in range(0, len(data), block_bytes))


def _lz4_frame() -> lz4.frame.LZ4FrameCompressor:
    compressor = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX1MB, content_checksum=True)
    compressor.begin()
    return compressor


_LIBRARIES: dict[str, Compress] = {
    "gzip": partial(_streamed, lambda: isal_zlib.compressobj(1, zlib.DEFLATED, 31)),
    "zstd": partial(_streamed, lambda: zstandard.ZstdCompressor(1, write_checksum=True).compressobj()),
    "lz4": partial(_in_blocks, 261_100, partial(lz4.block.compress, store_size=False)),
    "lz4frame": partial(_streamed, _lz4_frame),
    "snappy": partial(_in_blocks, 218_422, partial(pyarrow.Codec("snappy").compress, asbytes=True)),
    "bzip2": partial(_streamed, bz2.BZ2Compressor),
    "xz": partial(_streamed, lambda: lzma.LZMACompressor(preset=1)),
}


def _small_batches(settings: Settings) -> Table:
    """Return the sizes and times of batches of a thousand rows."""
    batches = SMOKE_BATCHES if settings.smoke else BATCHES
    rows = make_rows(batches * BATCH_ROWS, seed=0).combine_chunks()
    lines: list[tuple[Cell, ...]] = []
    for codec in CODECS:
        line: list[Cell] = [codec]
        for rolling in ("batch", "policy"):
            directory = settings.directory / f"{codec}-{rolling}"
            _stream(directory, rows, {"fileFormat": "json", "compression": codec, "rolling": rolling})
            adds = list(ftfile.open(directory).snapshot().adds.values())
            line += [sum(add.logical_length for add in adds) / sum(add.length for add in adds), len(adds)]
        lines.append(tuple(line))
    columns = ("codec", "ratio, rolling=batch", "files", "ratio, rolling=policy", "files then")
    return Table(f"{batches} batches of {BATCH_ROWS:,} rows", columns, tuple(lines), SMALL_NOTE)


def _stream(directory: Path, rows: pyarrow.Table, options: dict[str, str]) -> None:
    config = SinkConfig.from_options({"path": str(directory), **options}, spark_schema_json(rows.schema))
    for number in range(rows.num_rows // BATCH_ROWS):
        plan = plan_write(FileSink(), config, current())
        identity = TaskIdentity(StreamIdentity("benchmark", "run", number), 0, 0)
        batches = rows.slice(number * BATCH_ROWS, BATCH_ROWS).to_batches()
        commit_batch(plan.sink, plan.config, [write_task(plan, identity, batches, current())], number, current())
    ftfile.flush(directory)


def _against_spark(settings: Settings) -> Table:
    size = bulk.SMOKE if settings.smoke else bulk.FULL
    directory = settings.directory / "bulk"
    write_parquet_input(directory / "few", bulk.FILES_PER_BATCH, bulk.ROWS_PER_FEW)
    write_parquet_input(directory / "many", size.files, size.rows_per_file)
    rounds = in_own_process(bulk.measure, directory, size, GZIP)
    lines = []
    for sink in GZIP:
        found = [samples[sink] for samples in rounds]
        speeds = [sample.million_rows_per_s for sample in found]
        theirs = [samples[GZIP[-1]].million_rows_per_s for samples in rounds]
        cpu_s = statistics.median(sample.cpu_s_per_million_rows for sample in found) if sink.in_python else None
        ratio = statistics.median(own / other for own, other in zip(speeds, theirs, strict=True))
        output_mb = found[0].output_mb if sink.file_format else None
        lines.append((sink.label, statistics.median(speeds), ratio, cpu_s, output_mb))
    rows = size.files * size.rows_per_file
    return Table(f"gzip json: {rows:,} rows, {size.rounds} rounds", SPARK_COLUMNS, tuple(lines), SPARK_NOTE)
