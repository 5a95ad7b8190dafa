from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from ftfile.core.errors import ConfigError, CorruptData, SchemaError, UnencodableRows
from ftfile.encoding.registry import format_from_options
from tests.unit.encoding.rows import (
    ORC_LAST_US,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decode,
    encode,
    encode_files,
    for_reading,
    one_column,
    write_and_read,
)
from tests.unit.encoding.test_parquet_file import events

ORC = format_from_options("orc", {})


def opened(data: bytes) -> orc.ORCFile:
    return orc.ORCFile(io.BytesIO(data))


@pytest.mark.parametrize(
    ("compression", "extension", "codec"),
    [
        ("none", ".orc", "UNCOMPRESSED"),
        ("snappy", ".snappy.orc", "SNAPPY"),
        ("zlib", ".zlib.orc", "ZLIB"),
        ("zstd", ".zstd.orc", "ZSTD"),
    ],
)
def test_codecs(compression: str, extension: str, codec: str) -> None:
    settled = format_from_options("orc", {"compression": compression})
    assert settled.extension == extension
    assert opened(encode(settled, events(100))).compression == codec
    assert for_reading(settled, events(1).schema) == settled
    plain = len(encode(format_from_options("orc", {"compression": "none"}), events(5_000)))
    assert (len(encode(settled, events(5_000))) < 0.95 * plain) == (compression != "none")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": "lz4"}, "compression='lz4': for orc it takes none, snappy, zlib, zstd"),
        ({"compressionLevel": 3}, "compressionLevel=3 with compression=zstd: no codec of orc has levels"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("orc", options)


def test_small_batches_are_collected_to_large_stripes() -> None:
    numbers = random.Random(0)
    values = [numbers.getrandbits(40) for _ in range(620_000)]
    batches = [pa.RecordBatch.from_pydict({"n": values[start : start + 10_000]}) for start in range(0, 620_000, 10_000)]
    file = opened(encode(ORC, *batches))
    assert [file.read_stripe(number).num_rows for number in range(file.nstripes)] == [250_000, 250_000, 120_000]
    assert file.read().column("n").to_pylist() == values


def test_flushing_ends_a_stripe() -> None:
    data = bytearray()

    class Target:
        @property
        def position(self) -> int:
            return len(data)

        def write(self, piece: bytes | bytearray | memoryview) -> int:
            data.extend(piece)
            return len(piece)

    encoder = ORC.encoder(events(1).schema, Target())
    encoder.write(events(2_000))
    held, before = encoder.buffered_bytes, len(data)
    encoder.flush()
    assert held > 0
    assert encoder.buffered_bytes == 0
    assert len(data) > before + 10_000


@pytest.mark.parametrize("limit_bytes", [20_000, 700_000])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_files_end_near_the_limit(limit_bytes: int, compression: str) -> None:
    rows = events(50_000)
    batches = [rows.slice(start, 1_000) for start in range(0, rows.num_rows, 1_000)]
    files = encode_files(format_from_options("orc", {"compression": compression}), batches, limit_bytes)
    assert len(files) > 2
    for file in files[:-1]:
        assert limit_bytes * 0.85 < len(file) < limit_bytes * 1.15
    assert sum(opened(file).nrows for file in files) == 50_000


class TestNested:
    """What Arrow's writer gets wrong unless columns are laid out anew."""

    def test_slices_of_structs(self) -> None:
        rows = [{"a": 1}, None, {"a": 3}, {"a": 4}]
        batch = one_column(pa.struct([("a", pa.int64())]), *rows)
        for start in range(4):
            write_and_read("orc", {}, batch.slice(start))

    def test_null_structs_within_structs(self) -> None:
        kind = pa.struct([("f", pa.struct([("f", pa.int64())]))])
        write_and_read("orc", {}, one_column(kind, {"f": None}, {"f": {"f": 7}}, {"f": {"f": 8}}, {"f": None}))

    def test_null_structs_within_lists_within_structs(self) -> None:
        kind = pa.struct([("f", pa.list_(pa.field("element", pa.struct([("f", pa.int64())]))))])
        write_and_read("orc", {}, one_column(kind, {"f": [None, {"f": 1}, {"f": 2}]}, {"f": [{"f": 3}]}))


class TestTimestamps:
    """Arrow reads them as nanoseconds in 64 bits."""

    @pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ], ids=str)
    def test_the_first_and_the_last(self, kind: pa.DataType) -> None:
        write_and_read("orc", {}, one_column(kind, -ORC_LAST_US, -1, 0, ORC_LAST_US))

    @pytest.mark.parametrize("value", [-ORC_LAST_US - 1, ORC_LAST_US + 1])
    @pytest.mark.parametrize("kind", [TIMESTAMP, pa.list_(pa.field("element", TIMESTAMP_NTZ))], ids=str)
    def test_others_are_refused(self, kind: pa.DataType, value: int) -> None:
        batch = one_column(kind, value if pa.types.is_timestamp(kind) else [None, value])
        with pytest.raises(UnencodableRows, match="column `v`: a timestamp is out of range: ORC takes those from 1677"):
            encode(ORC, batch)
        with pytest.raises(UnencodableRows, match="column `v`"):
            list(ORC.segments(batch.schema).encode(batch, [1]))

    def test_nulls_have_no_range(self) -> None:
        beyond = pa.array([2**62, 0], TIMESTAMP)
        hidden = pa.Array.from_buffers(TIMESTAMP, 2, [pa.py_buffer(b"\x02"), beyond.buffers()[1]])
        write_and_read("orc", {}, pa.RecordBatch.from_arrays([hidden], names=["v"]))


def test_text_that_is_none_is_refused() -> None:
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded"):
        encode(ORC, pa.RecordBatch.from_arrays([broken], names=["v"]))


@pytest.mark.parametrize("names", [["a", "a.b"], ["a.b", "a"]])
def test_names_with_dots(names: list[str]) -> None:
    columns = {"a": pa.array([{"b": 1, "c": 2}]), "a.b": pa.array(["x"])}
    data = write_and_read("orc", {}, pa.RecordBatch.from_arrays([columns[name] for name in names], names=names))
    assert decode(ORC, data, pa.schema([("a.b", pa.string())])) == [{"a.b": "x"}]


def test_types_that_spark_does_not_send_are_refused() -> None:
    with pytest.raises(SchemaError, match="column `v`"):
        ORC.check_schema(pa.schema([("v", pa.time64("us"))]))


def test_corrupt_files() -> None:
    data = encode(ORC, events(1_000))
    for bad in (b"", b"ORC", b"garbage" * 10, data[:-1], data[:100], data[100:]):
        with pytest.raises(CorruptData, match="expected an ORC file"):
            decode(ORC, bad, events(1).schema)
