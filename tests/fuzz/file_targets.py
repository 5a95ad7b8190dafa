"""Targets for ftfile's own formats and filters: frames, envelopes, segments, Avro, ORC, lines and variants."""

from __future__ import annotations

import io
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ftfile.core.codecs import CODECS
from ftfile.core.errors import FtfileError
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.chain import Chain, codec
from ftfile.filters.decoded import plain_pieces
from ftfile.formats.api import format_from_options
from ftfile.formats.avro_container import MARKER_BYTES, block, compress_block, header_of, read_metadata
from ftfile.formats.columnar import RowSegments
from ftfile.formats.orc_files import stripe_rows
from ftfile.rows.messages import read_rows
from ftfile.rows.orc_messages import bytes_field, decode_message, number_field
from ftfile.rows.orc_runs import read_rle_v1, read_rle_v2
from ftfile.rows.variant import variant_json
from ftfile.rows.variant_encoding import json_value, variant_of
from ftfile.source.decoding.orc_far_times import schema_with_far_times
from ftfile.source.decoding.orc_meanings import orc_times
from ftfile.source.decoding.orc_tails import OrcTail
from tests.fuzz.log_targets import KEYS
from tests.fuzz.target import Draws, Target
from tests.unit.kv.runs import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = "file"
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.decimal128(10, 2)),
        ("list", pa.list_(pa.field("element", pa.int32()))),
        ("map", pa.map_(pa.string(), pa.binary())),
    ]
)
_ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "text": "a", "flag": True, "at": 5, "list": [1, None], "map": [("k", b"v")]},
        {"id": None, "text": "", "flag": None, "list": []},
    ],
    _SCHEMA,
)
_LINES = pa.schema([("id", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", "UTC")), ("b", pa.binary())])
_PLAIN_BYTES_MAX = 32 << 20
_TOUCHED_ROWS = 1000
_AVRO_CODECS = ("null", "deflate", "snappy", "zstandard")
_LINE_FORMATS: tuple[dict[str, Any], ...] = (
    {"fileFormat": "json"},
    {"fileFormat": "csv"},
    {"fileFormat": "csv", "header": True, "sep": ";"},
    {"fileFormat": "text"},
    {"fileFormat": "binary", "delimiter": b"\n"},
    {"fileFormat": "binary", "lengthPrefix": "varint"},
    {"fileFormat": "binary", "lengthPrefix": "int32"},
)


def _frames(data: bytes) -> None:
    """Decompress frames of the codec that the first byte chooses."""
    draws = Draws(data)
    chain = Chain((codec(draws.choice(sorted(CODECS))),))
    done_bytes = 0
    for piece in plain_pieces([draws.rest()], chain.decoder(""), PATH):
        done_bytes += len(piece)
        if done_bytes > _PLAIN_BYTES_MAX:
            return


def _envelope(data: bytes) -> None:
    """Open an encrypted file: frames in an envelope with a right tag, or any bytes as the envelope."""
    draws = Draws(data)
    name, is_right = draws.choice(sorted(CODECS)), draws.byte() % 2
    content = draws.rest()
    chain = Chain((codec(name), AesGcm("key", KEYS, 1 << 10)))
    if is_right:
        sealer = chain.sealer("part x")
        content = sealer.feed(content) + sealer.finish()
    done_bytes = 0
    for piece in plain_pieces([content], chain.decoder("part x"), PATH):
        done_bytes += len(piece)
        if done_bytes > _PLAIN_BYTES_MAX:
            return


def _segment(data: bytes) -> None:
    """Decode a message of Arrow in the LZ4 frame of a segment, or any bytes as the segment."""
    draws = Draws(data)
    is_right, content = draws.byte() % 2, draws.rest()
    if is_right:
        content = len(content).to_bytes(8, "little") + pa.Codec("lz4").compress(content, asbytes=True)
    for rows in RowSegments(_SCHEMA).decode(content, PATH, _SCHEMA):
        _touch(rows)


def _message(data: bytes) -> None:
    """Decode a message of Arrow."""
    _touch(read_rows(pa.py_buffer(data), _SCHEMA))


def _touch(rows: pa.RecordBatch) -> None:
    """Read all values; texts can be any bytes."""
    rows.take(pa.array(range(min(rows.num_rows, _TOUCHED_ROWS)), pa.int64())).serialize()


def _avro_header(data: bytes) -> None:
    """Read the header of an Avro file, and decode the rows that follow."""
    file = _file(data)
    header_of(file, read_metadata(file))
    _decode("avro", data)


def _avro_blocks(data: bytes) -> None:
    """Decode a block of an Avro file after the header of the writer: decompressed bytes, or the whole block."""
    draws = Draws(data)
    codec_name, is_right, rows, content = draws.choice(_AVRO_CODECS), draws.byte() % 2, draws.byte(), draws.rest()
    head, marker = _avro_head(codec_name)
    if is_right:
        content = block(rows, compress_block(memoryview(content), codec_name, None), marker)
    _decode("avro", head + content)


def _decode(name: str, data: bytes, **options: Any) -> None:
    for batch in format_from_options(name, options).decode(_file(data), _SCHEMA):
        batch.validate(full=True)


def _file(data: bytes) -> io.BytesIO:
    file = io.BytesIO(data)
    file.name = PATH
    return file


def _orc_tail(data: bytes) -> None:
    """Read the messages at the end of an ORC file, which Arrow has decompressed, and the footers of its stripes."""
    draws = Draws(data)
    codec_number, footer_bytes = draws.choice((0, 1, 2, 5, 3)), draws.byte() << 8 | draws.byte()
    content = draws.rest()
    footer, file = content[:footer_bytes], _file(content[footer_bytes:])
    tail = bytes_field(1, number_field(2, codec_number)) + bytes_field(2, footer)
    opened = OrcTail.of(cast("Any", SimpleNamespace(reader=SimpleNamespace(serialized_file_tail=lambda: tail))))
    stripe_rows(tail)
    orc_times(opened, file, "Europe/Berlin")
    schema_with_far_times(opened, _SCHEMA, set(_SCHEMA.names))


def _orc_stream(data: bytes) -> None:
    """Decompress a stream of an ORC file, and decode its runs of numbers."""
    draws = Draws(data)
    codec_number, read_runs, count = draws.choice((0, 1, 2, 5)), draws.choice((read_rle_v2, read_rle_v1)), draws.byte()
    read_runs(decode_message(draws.rest(), codec_number), count)


def _lines(data: bytes) -> None:
    """Decode a part of lines."""
    draws = Draws(data)
    options = dict(draws.choice(_LINE_FORMATS))
    name, content = str(options.pop("fileFormat")), draws.rest()
    schema = pa.schema([("b", pa.binary())]) if name == "binary" else _LINES
    if name == "text":
        schema = pa.schema([("text", pa.string())])
    lines = format_from_options(name, options)
    for batch in lines.decode(_file(content), schema):
        batch.validate()
    if options.get("header"):
        return
    for batch in lines.segments(schema).decode(content, PATH, schema):
        batch.validate()


def _variant(data: bytes) -> None:
    """Decode a VARIANT: metadata and a value."""
    draws = Draws(data)
    metadata_bytes = draws.byte()
    content = draws.rest()
    variant_json(content[metadata_bytes:], content[:metadata_bytes], "Europe/Berlin")


def _variant_text(data: bytes) -> None:
    """Encode JSON as a VARIANT."""
    value, _ = json_value(data.decode(errors="replace"), 0)
    variant_of(value)


# ------------------------------------------------------------------------------------------------------- seeds


def _frame_seeds() -> Iterator[bytes]:
    for number, name in enumerate(sorted(CODECS)):
        yield bytes([number]) + Chain((codec(name),)).frame(b"some text, some text")


def _envelope_seeds() -> Iterator[bytes]:
    for number, name in enumerate(sorted(CODECS)):
        yield bytes([number, 1]) + Chain((codec(name),)).frame(b"some text, some text" * 99)
    chain = Chain((codec("gzip"), AesGcm("key", KEYS, 1 << 10)))
    sealer = chain.sealer("part x")
    number = sorted(CODECS).index("gzip")
    yield bytes([number, 0]) + sealer.feed(chain.frame(b"some text")) + sealer.finish()


def _segments() -> Iterator[bytes]:
    ((_, segment),) = RowSegments(_SCHEMA).encode(_ROWS, [2])
    yield b"\0" + bytes(segment)
    yield b"\1" + bytes(_ROWS.serialize())


def _encoded(name: str, rows: pa.RecordBatch, **options: Any) -> bytes:
    stream = Stream()
    encoder = format_from_options(name, options).encoder(rows.schema, stream)
    encoder.write(rows)
    encoder.finish()
    return bytes(stream.content)


@cache
def _avro_head(codec_name: str) -> tuple[bytes, bytes]:
    """Return the header of an Avro file of the writer, and its marker."""
    compression = {"null": "none", "zstandard": "zstd"}.get(codec_name, codec_name)
    content = _encoded("avro", _ROWS, compression=compression)
    marker = content[-MARKER_BYTES:]
    end = content.index(marker) + MARKER_BYTES
    return content[:end], marker


def _avro_rows() -> bytes:
    content = _encoded("avro", _ROWS, compression="none")
    head, _ = _avro_head("null")
    return content[len(head) + 2 : -MARKER_BYTES]  # after a count and a length of one byte each


def _avro_files() -> Iterator[bytes]:
    for compression in ("none", "deflate", "snappy", "zstd"):
        yield _encoded("avro", _ROWS, compression=compression)


def _block_seeds() -> Iterator[bytes]:
    for number in range(len(_AVRO_CODECS)):
        yield bytes([number, 1, 2]) + _avro_rows()


def _orc_tails() -> Iterator[bytes]:
    from pyarrow import orc

    tail = orc.ORCFile(io.BytesIO(_encoded("orc", _ROWS))).reader.serialized_file_tail()
    read = OrcTail.of(cast("Any", SimpleNamespace(reader=SimpleNamespace(serialized_file_tail=lambda: tail))))
    yield bytes([0]) + len(read.footer).to_bytes(2, "big") + read.footer + bytes(1 << 10)


def _orc_streams() -> Iterator[bytes]:
    # Kinds of runs, from the specification of ORC.
    runs = {"0a2710": 5, "5e035ca1ab1edeadbeef": 4, "8e132b2107d01e001470286e3c46505a646e78828c96a0aab4be fcd8": 1}
    for run, count in ({**runs, "c609020222424246": 10}).items():
        yield bytes([0, 0, count]) + bytes.fromhex(run)
    yield bytes([0, 1, 3]) + bytes.fromhex("610007")


def _line_seeds() -> Iterator[bytes]:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "text": 'a "b"', "at": 5, "b": b"x"}, {"id": None}], _LINES)
    for number, settings in enumerate(_LINE_FORMATS):
        options = dict(settings)
        name = str(options.pop("fileFormat"))
        written = rows
        if name == "binary":
            written = rows.select(["b"]).slice(0, 1)
        elif name == "text":
            written = rows.select(["text"]).slice(0, 1)
        yield bytes([number]) + _encoded(name, written, **options)


def _variants() -> Iterator[bytes]:
    for text in ('{"a":[1,2.5,null,true,"text"],"b":{"c":1e99}}', "[[],{},123456789012]", '"x"'):
        value, metadata = variant_of(json_value(text, 0)[0])
        yield bytes([len(metadata)]) + metadata + value


TARGETS = {
    "frames": Target(_frames, _frame_seeds),
    "envelopes": Target(_envelope, _envelope_seeds),
    "segments": Target(_segment, _segments),
    "messages": Target(_message, lambda: [bytes(_ROWS.serialize())], (FtfileError, pa.ArrowException, OSError)),
    "avro_headers": Target(_avro_header, _avro_files),
    "avro_blocks": Target(_avro_blocks, _block_seeds),
    "orc_tails": Target(_orc_tail, _orc_tails, (FtfileError, ValueError)),
    "orc_streams": Target(_orc_stream, _orc_streams, (ValueError, IndexError)),
    "lines": Target(_lines, _line_seeds),
    "variants": Target(_variant, _variants, (ValueError,)),
    "variant_texts": Target(_variant_text, lambda: [b'{"a":[1,2.5,null,true,"text"],"b":{"c":1e99}}'], (ValueError,)),
}
