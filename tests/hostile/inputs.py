"""Files of other programs that try to hang, fill or crash their reader, each with its expected outcome."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.formats import avro_container
from ftfile.rows.buffers import varint as varint_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("CORRUPT", "INPUTS", "READ", "Input")

CORRUPT, BAD_RECORD, READ = "CorruptData", "SourceError", "rows"
MIB = 1 << 20
TEXT = pa.schema([("a", pa.string())])
MAPS = pa.schema([("a", pa.list_(pa.map_(pa.string(), pa.int32())))])
OTHER = pa.schema([("b", pa.string())])
DEEP = 130_000  # number of levels: more than the stack of a thread can hold


@dataclass(frozen=True)
class Input:
    """A file, its options for reading, and its expected outcome and memory.

    Attributes:
        name: of the file, whose ending names its codec.
        outcome: the error of ftfile, or `READ`.
        memory_bytes: in addition to the process's memory before the read.
        is_limited: True if ftfile limits the memory of the process while it reads the file.
    """

    name: str
    file_format: str
    content: Callable[[], bytes]
    outcome: str
    memory_bytes: int = 256 * MIB
    schema: pa.Schema = TEXT
    options: dict[str, Any] = field(default_factory=dict)
    is_limited: bool = False


def nested(start: bytes, middle: bytes, end: bytes, levels: int = DEEP) -> bytes:
    return start * levels + middle + end * levels


def json_lines(line: Callable[[], bytes], schema: pa.Schema = TEXT, memory_bytes: int = 256 * MIB) -> Input:
    return Input("a.json", "json", lambda: line() + b"\n", BAD_RECORD, memory_bytes, schema)


def text_of_brackets() -> Input:
    return Input("a.json", "json", lambda: b'{"a":"' + b"}{[," * 8_000_000 + b'"}\n', READ)


def json_file(text: Callable[[], bytes]) -> Input:
    return Input("a.json", "json", text, BAD_RECORD, options={"multi_line": True})


def deep_column(start: bytes, middle: bytes, end: bytes) -> bytes:
    return b'{"a":' + nested(start, middle, end) + b"}"


MARKER = bytes(16)


def record(kind: Any, name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "a", "type": kind}]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def levels_of_avro(count: int) -> Any:
    return array(levels_of_avro(count - 1)) if count else "int"


def doubled_records(count: int) -> dict[str, Any]:
    """Return a record type of two fields, each a record of two fields, and so on, whose values take no bytes."""
    inner: Any = "null"
    for number in range(count):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"r{number - 1}" if number else "null"}]
        inner = {"type": "record", "name": f"r{number}", "fields": fields}
    return record(inner)


def avro_file(schema: Any, rows: int, data: bytes, codec: str = "null") -> bytes:
    lengths = varint_of(2 * rows if rows >= 0 else -2 * rows - 1) + varint(len(data))
    return avro_container.header(schema, codec, MARKER) + lengths + data + MARKER


def avro(
    schema: Any,
    data: Callable[[], bytes],
    codec: str = "null",
    *,
    rows: int = 1,
    outcome: str = CORRUPT,
    columns: pa.Schema = OTHER,
) -> Input:
    """Return a file of one block, of which by default no column is read."""
    return Input("a.avro", "avro", lambda: avro_file(schema, rows, data(), codec), outcome, schema=columns)


def varint(number: int) -> bytes:
    return varint_of(number << 1)


def repeated(compressor: Any, mebibytes: int) -> bytes:
    """Return compressed zeros."""
    pieces: list[bytes] = [compressor.compress(bytes(MIB)) for _ in range(mebibytes)]
    return b"".join([*pieces, compressor.flush()])


def zstd(data: bytes) -> bytes:
    frame: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return frame


def deflated(mebibytes: int) -> bytes:
    return repeated(zlib.compressobj(1, zlib.DEFLATED, -15), mebibytes)


def burst(compress: Callable[[bytes], bytes]) -> bytes:
    """Return 400 MiB of lines of zeros in a few kilobytes, after data that cannot be compressed."""
    line = compress(bytes(2 * MIB - 1) + b"\n")
    return compress(random.Random(0).randbytes(200_000) + b"\n") + line * 200


def parquet_file(column: pa.Array, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": column}), sink, compression="zstd", **options)
    file: bytes = sink.getvalue().to_pybytes()
    return file


def arrow_file(column: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, pa.schema([("a", column.type)]), options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(pa.table({"a": column}))
    file: bytes = sink.getvalue().to_pybytes()
    return file


def orc_file(column: pa.Array, batch_rows: int) -> bytes:
    """Return a file of one stripe."""
    sink = pa.BufferOutputStream()
    with orc.ORCWriter(
        sink, compression="zstd", dictionary_key_size_threshold=1, stripe_size=1 << 40, batch_size=batch_rows
    ) as writer:
        writer.write(pa.table({"a": column}))
    file: bytes = sink.getvalue().to_pybytes()
    return file


def one_text_again_and_again(size_bytes: int = MIB) -> pa.Array:
    """Return one text 65,536 times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 16, np.int32)), pa.array(["a" * size_bytes]))


def zeros() -> pa.Array:
    return pa.array(np.zeros(110_000_000, np.int64))


def list_of_nulls() -> pa.Array:
    count = 60_000_000
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count, pa.int8()))


def limited(
    file_format: str,
    content: Callable[[], bytes],
    schema: pa.Schema = TEXT,
    outcome: str = CORRUPT,
    ending: str = "",
    **options: Any,
) -> Input:
    """Return a file for which ftfile limits the memory of the reading process."""
    name = f"a.{file_format}{ending}"
    return Input(name, file_format, content, outcome, 1024 * MIB, schema, options, is_limited=True)


def columns(file_format: str, content: Callable[[], bytes], kind: pa.DataType) -> Input:
    return limited(file_format, content, pa.schema([("a", kind)]))


def avro_of_empty_maps() -> bytes:
    data = varint(16_000_000) + bytes(16_000_000) + b"\0"
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    kind = record(array({"type": "map", "values": "int"}))
    return avro_file(kind, 1, compressor.compress(data) + compressor.flush(), "deflate")


NULLS, BYTES = array("null"), record("string")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
AVRO = {
    "30 million nulls in an array": avro(record(NULLS), lambda: varint(30_000_000) + b"\0"),
    "2 billion empty records in an array": avro(
        record(array({"type": "record", "name": "e", "fields": []})), lambda: varint(1 << 31) + b"\0"
    ),
    "2 billion rows without a byte": avro(record("null"), lambda: b"", rows=1 << 31),
    "fewer than no rows": avro(BYTES, lambda: b"", rows=-1),
    "values that contain themselves": avro(record(["null", "r"]), lambda: b"\2" * 3_000_000 + b"\0"),
    "arrays that contain themselves": avro(record(array("r")), lambda: b"\2" * 1_000_000),
    "a type that is itself": avro(record("r"), lambda: b""),
    "101 types within each other": avro(record(levels_of_avro(100)), lambda: b"\0"),
    "2**40 records in a record": avro(doubled_records(40), lambda: b""),
    "a schema of 100,000 levels": Input(
        "a.avro", "avro", lambda: avro_file(0, 1, b"").replace(b"0", nested(b"[", b"", b"]", 100_000), 1), CORRUPT
    ),
    "a schema of 5 MiB": avro({**BYTES, "doc": "a" * (5 * MIB)}, lambda: b"\0"),
    "a decimal of 4 million bytes": avro(
        record(DECIMAL),
        lambda: varint(4_000_000) + b"\x11" * 4_000_000,
        outcome=BAD_RECORD,
        columns=pa.schema([("a", pa.decimal128(38, 2))]),
    ),
    "a fixed decimal of 4 million bytes": avro(
        record({**DECIMAL, "type": "fixed", "name": "d", "size": 4_000_000}), lambda: b"\x11" * 4_000_000
    ),
    "300 MB of zeros deflated": avro(BYTES, lambda: deflated(300), "deflate"),
    "100 MB of zeros by bzip2": avro(BYTES, lambda: repeated(bz2.BZ2Compressor(1), 100), "bzip2"),
    "100 MB of zeros by xz": avro(BYTES, lambda: repeated(lzma.LZMACompressor(preset=0), 100), "xz"),
    "300 MB of zeros by zstd": avro(
        BYTES, lambda: pa.Codec("zstd").compress(bytes(300 * MIB), asbytes=True), "zstandard"
    ),
    "300 MB of zeros by snappy": avro(BYTES, lambda: varint_of(300 * MIB) + b"\0" * 8, "snappy"),
    "a length of a terabyte": avro(BYTES, lambda: varint(1 << 40)),
    "one large value": avro(BYTES, lambda: varint(16 * MIB) + bytes(16 * MIB), outcome=READ, columns=TEXT),
}
COLUMNS = {
    "Parquet: 64 GiB of one text in a batch": columns(
        "parquet", lambda: parquet_file(one_text_again_and_again(), store_schema=False), pa.string()
    ),
    "Parquet: 60 million nulls in a list": columns(
        "parquet", lambda: parquet_file(list_of_nulls()), pa.list_(pa.int64())
    ),
    "Parquet: a page of 400 MiB of zeros": columns(
        "parquet",
        lambda: parquet_file(pa.array([bytes(400 * MIB)]), use_dictionary=False, write_statistics=False),
        pa.binary(),
    ),
    "Arrow: a batch of 880 MB of zeros": columns("arrow", lambda: arrow_file(zeros()), pa.int64()),
    "Arrow: 64 GiB of one text in a dictionary": columns(
        "arrow", lambda: arrow_file(one_text_again_and_again()), pa.string()
    ),
    "Arrow: 2 billion nulls without a byte": columns("arrow", lambda: arrow_file(pa.nulls((1 << 31) - 1)), pa.string()),
    "ORC: a stripe of 880 MB of zeros": columns("orc", lambda: orc_file(zeros(), MIB), pa.int64()),
    "ORC: a stripe of 1,000 MiB of one text": columns(
        "orc", lambda: orc_file(pa.array(["a" * MIB] * 1_000), 1_000), pa.string()
    ),
}
LIMITED = {
    "Avro: 16 million empty maps in an array": limited("avro", avro_of_empty_maps, MAPS),
    "a record of CSV that is 60 million separators": limited("csv", lambda: b"," * 60_000_000 + b"\n", multi_line=True),
    "lines of CSV of 60 million separators": limited("csv", lambda: (b"," * 60_000_000 + b"\n") * 2),
    "a line of text of 48 MiB": limited("text", lambda: b"a" * (48 * MIB), outcome=READ),
    "a line of text of 500 MiB in some kilobytes": limited("text", lambda: zstd(b"a" * (50 * MIB)) * 10, ending=".zst"),
    "a line of CSV of 500 MiB in some kilobytes": limited("csv", lambda: zstd(b"a" * (50 * MIB)) * 10, ending=".zst"),
    "a line of JSON of 48 MiB": limited("json", lambda: b'{"a":"' + b"a" * (48 * MIB) + b'"}', outcome=READ),
    "a line of JSON of 500 MiB in some kilobytes": limited(
        "json", lambda: zstd(b'{"a":"') + zstd(b"a" * (50 * MIB)) * 10 + zstd(b'"}\n'), ending=".zst"
    ),
}
INPUTS = {
    "a line of JSON of nested arrays": json_lines(lambda: deep_column(b"[", b"", b"]")),
    "a line of JSON of nested objects": json_lines(lambda: nested(b'{"a":', b"1", b"}")),
    "a line of JSON of nested arrays in another column": json_lines(lambda: deep_column(b"[", b"", b"]"), OTHER),
    "a line of JSON with brackets in strings": json_lines(lambda: deep_column(b'["]]]",', b"1", b"]")),
    "a line of JSON that is nested arrays": json_lines(lambda: nested(b"[", b"", b"]")),
    "a line of JSON of 60 million values": json_lines(
        lambda: b'{"a":[' + b"1," * 60_000_000 + b"1]}", memory_bytes=640 * MIB
    ),
    "a line of JSON of 20 million empty arrays": json_lines(lambda: b"[" + b"[]," * 20_000_000 + b"[]]"),
    "a line of JSON of objects that follow each other": json_lines(lambda: b"{}" * 40_000_000, memory_bytes=640 * MIB),
    "a line of JSON of one long text": text_of_brackets(),
    "a file of JSON of 4 million objects": Input(
        "a.json", "json", lambda: b"[" + b"{}," * 4_000_000 + b"{}]", READ, options={"multi_line": True}
    ),
    "a file of CSV of 4 million records": Input(
        "a.csv", "csv", lambda: b"1\n" * 4_000_000, READ, options={"multi_line": True}
    ),
    "a file of JSON that is nested arrays": json_file(lambda: nested(b"[", b"", b"]")),
    "a file of JSON of nested objects": json_file(lambda: nested(b'{"a":', b"1", b"}")),
    **{
        f"640 MB of zeros in {name}": Input(
            name, file_format, lambda: zstd(bytes(64 * MIB)) * 10, CORRUPT, 640 * MIB, options=options
        )
        for name, file_format, options in [
            ("a.json.zst", "json", {"multi_line": True}),
            ("a.csv.zst", "csv", {"multi_line": True}),
            ("a.parquet.zst", "parquet", {}),
            ("a.avro.zst", "avro", {}),
        ]
    },
    **{
        f"a burst of zeros in {name}": Input(name, "text", partial(burst, compress), READ)
        for name, compress in [
            ("a.txt.gz", gzip.compress),
            ("a.txt.bz2", bz2.compress),
            ("a.txt.xz", partial(lzma.compress, preset=0)),
            ("a.txt.zst", zstd),
            ("a.txt.lz4", lz4.frame.compress),
        ]
    },
    **{f"Avro: {name}": file for name, file in AVRO.items()},
    **COLUMNS,
    **LIMITED,
}
