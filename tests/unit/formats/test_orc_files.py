from __future__ import annotations

import io
import os
import random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc

from ftfile.core.errors import ConfigError, CorruptData, SchemaError, UnencodableRows
from ftfile.formats.api import Span, Wanted, format_from_options
from ftfile.formats.orc_files import stripe_rows
from tests.kit.parameters import parametrize
from tests.unit.formats.rows import (
    DATE,
    FIRST_US,
    LAST_US,
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
from tests.unit.formats.test_parquet_files import events

ORC = format_from_options("orc", {})


def opened(data: bytes) -> orc.ORCFile:
    return orc.ORCFile(io.BytesIO(data))


@parametrize(
    ("compression", "extension", "codec"),
    [
        ("none", ".orc", "UNCOMPRESSED"),
        ("snappy", ".snappy.orc", "SNAPPY"),
        ("zlib", ".zlib.orc", "ZLIB"),
        ("zstd", ".zstd.orc", "ZSTD"),
    ],
    quick=2,
    packages=True,
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
        ({"compression": "lz4"}, "compression='lz4': for orc it must be one of none, snappy, zlib, zstd"),
        ({"compressionLevel": 3}, "compressionLevel=3 with compression=zstd: no codec of orc has levels"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("orc", options)


@pytest.mark.slow
def test_small_batches_are_collected_to_large_stripes() -> None:
    numbers = random.Random(0)
    values = [numbers.getrandbits(40) for _ in range(620_000)]
    batches = [pa.RecordBatch.from_pydict({"n": values[start : start + 10_000]}) for start in range(0, 620_000, 10_000)]
    file = opened(encode(ORC, *batches))
    assert [file.read_stripe(number).num_rows for number in range(file.nstripes)] == [250_000, 250_000, 120_000]
    assert file.read().column("n").to_pylist() == values


def wide(rows: int, seed: int = 0) -> pa.RecordBatch:
    """Columns with few bytes each; numbers of one byte."""
    numbers = random.Random(seed)
    column = pa.array(list(numbers.randbytes(rows)), pa.int64())
    return pa.RecordBatch.from_arrays([column] * 500, names=[f"c{place}" for place in range(500)])


@pytest.mark.packages
@pytest.mark.slow
def test_wide_rows_make_stripes_of_fewer_rows() -> None:
    """The writer takes memory for every column and all rows of a stripe."""
    file = opened(encode(format_from_options("orc", {"compression": "none"}), wide(7_000)))
    assert [file.read_stripe(number).num_rows for number in range(file.nstripes)] == [3_948, 3_052]


@pytest.mark.slow
@pytest.mark.packages
def test_what_the_writer_holds_back_counts() -> None:
    """It writes no stripe before it has compressed a block of some column."""
    files = encode_files(ORC, [wide(4_000, seed) for seed in range(3)], 4_000_000)
    assert len(files) == 3
    assert 3_400_000 < len(files[0]) < 4_600_000


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


@pytest.mark.slow
@pytest.mark.packages
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
    """Arrow's writer raises these errors unless columns are laid out again."""

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
    """Arrow reads them as nanoseconds in 64 bits, and writes fractions before 1970 so that Spark fails at them."""

    def test_the_first_and_the_last(self) -> None:
        first = -(ORC_LAST_US // 1_000_000) * 1_000_000
        write_and_read("orc", {}, one_column(TIMESTAMP, first, -1_000_000, 0, 1, ORC_LAST_US))

    @pytest.mark.parametrize("value", [-ORC_LAST_US - 1, ORC_LAST_US + 1, -(2**63), -1, -1_500_000, -(10**16)])
    @pytest.mark.parametrize("kind", [TIMESTAMP, pa.list_(pa.field("element", TIMESTAMP))], ids=str)
    def test_others_are_refused(self, kind: pa.DataType, value: int) -> None:
        batch = one_column(kind, value if pa.types.is_timestamp(kind) else [None, value])
        with pytest.raises(
            UnencodableRows, match="column `v`: a timestamp is out of range: ORC supports timestamps from 1677"
        ):
            encode(ORC, batch)
        with pytest.raises(UnencodableRows, match="column `v`"):
            list(ORC.segments(batch.schema).encode(batch, [1]))

    def test_nulls_have_no_range(self) -> None:
        beyond = pa.array([2**62, 0], TIMESTAMP)
        hidden = pa.Array.from_buffers(TIMESTAMP, 2, [pa.py_buffer(b"\x02"), beyond.buffers()[1]])
        write_and_read("orc", {}, pa.RecordBatch.from_arrays([hidden], names=["v"]))

    def test_what_clocks_show_is_a_number_as_sparks_own(self) -> None:
        data = write_and_read("orc", {}, one_column(TIMESTAMP_NTZ, FIRST_US, -1, LAST_US))
        assert opened(data).read().column("v").to_pylist() == [FIRST_US, -1, LAST_US]


def fields(message: bytes) -> list[tuple[int, Any]]:
    """The fields of a Protobuf message of numbers and bytes."""
    found: list[tuple[int, Any]] = []
    stream = io.BytesIO(message)

    def number() -> int:
        byte = stream.read(1)[0]
        return byte if byte < 128 else byte - 128 + 128 * number()

    while stream.tell() < len(message):
        key = number()
        assert key % 8 in {0, 2}
        found.append((key // 8, number() if key % 8 == 0 else stream.read(number())))
    return found


def tail_of(data: bytes) -> tuple[bytes, bytes]:
    """The statistics of stripes, where ftfile has written them, and the footer of a file."""
    postscript = dict(fields(data[-1 - data[-1] : -1]))
    end = len(data) - 1 - data[-1]
    found = []
    for length in (postscript[1], postscript[5]):
        message, tail = b"", data[end - length : end]
        while postscript[2] and tail:
            head = int.from_bytes(tail[:3], "little")
            if not head & 1:
                break  # as ORC's library has packed it
            message, tail = message + tail[3 : 3 + head // 2], tail[3 + head // 2 :]
        found.append(message or tail)
        end -= length
    return found[1], found[0]


# A footer of many columns has many chunks.
@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(
    ("compression", "columns"),
    [("none", 3), ("snappy", 3), ("zlib", 3), ("zstd", 3), ("zstd", 1_000)],
)
def test_the_footer_says_calendar_and_types(compression: str, columns: int) -> None:
    """Java's readers take dates before 1582 for Julian ones unless it does; numbers of types go down into columns."""
    within = pa.struct([("x", pa.int32()), ("n", TIMESTAMP_NTZ)])
    kinds = [within, pa.map_(pa.string(), pa.list_(pa.field("element", TIMESTAMP_NTZ))), TIMESTAMP, DATE]
    names = [f"c{place}" for place in range(columns)]
    rows = pa.RecordBatch.from_arrays([pa.nulls(2, kinds[place % 4]) for place in range(columns)], names=names)
    data = encode(format_from_options("orc", {"compression": compression}), rows)
    assert decode(ORC, data, pa.schema([("c1", kinds[1]), ("c2", kinds[2])])) == [{"c1": None, "c2": None}] * 2
    _, footer = tail_of(data)
    described = fields(footer)
    assert [value for number, value in described if number == 11] == [2]
    types = [dict(fields(value)) for number, value in described if number == 4]
    marked = [place for place, kind in enumerate(types) if 7 in kind]
    assert marked[:3] == [3, 7, 8]  # root, struct, x, n; map, key, list, element
    for place, name in ((3, b"timestamp_ntz"), (8, b"timestamp_ltz")):
        assert dict(fields(types[place][7])) == {1: b"spark.sql.catalyst.type", 2: name}
    assert len(marked) == columns * 3 // 4 + (columns == 3)


LONG = "é" * 400_000
LAST = "\U0010ffff"


@pytest.mark.parametrize("compression", ["none", "zstd"])
@parametrize(
    ("texts", "bounds"),
    [
        (["a", "b" * 1024], {1: "a", 2: "b" * 1024}),
        (["a", "b" * 1025], {1: "a", 5: "b" * 1023 + "c"}),
        ([LONG, f"x{LONG}"], {4: "x" + "é" * 511, 5: "é" * 511 + "ê"}),  # no half character
        ([f"{'a' * 1023}\ud7ff{LONG}", "a"], {1: "a", 5: "a" * 1022 + "b"}),
        ([f"\ud7ff{LAST * 300}"], {4: f"\ud7ff{LAST * 255}", 5: "\ue000"}),
        ([LAST * 300], {4: LAST * 256, 2: LAST * 300}),  # nothing is greater
        ([None], {}),
    ],
    quick=2,
    packages=True,
)
def test_statistics_have_no_long_texts(compression: str, texts: list[str | None], bounds: dict[int, str]) -> None:
    """As by Spark's own writer: each reader of a file reads them."""
    schema = pa.schema([("l", pa.list_(pa.field("element", pa.string()))), ("n", pa.int32()), ("s", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"l": [text], "n": 1, "s": text} for text in texts], schema)
    data = encode(format_from_options("orc", {"compression": compression}), rows, rows)
    assert decode(ORC, data, schema) == rows.to_pylist() * 2
    stripes, footer = tail_of(data)
    columns = [value for number, value in fields(footer) if number == 7]
    if any(len((text or "").encode()) > 1024 for text in texts):
        columns += [value for number, value in fields(fields(stripes)[0][1]) if number == 1]
    found = [dict(fields(column))[4] for column in columns if 4 in dict(fields(column))]
    assert len(found) in {2, 4}
    for each in found:
        assert {key: value.decode() for key, value in fields(each) if key != 3} == bounds


@pytest.mark.slow
def test_a_text_takes_time_by_its_length() -> None:
    def measured(size_mb: int) -> float:
        text = random.Random(0).randbytes(size_mb << 19).hex()
        rows = pa.RecordBatch.from_pydict({"s": [text]})
        before = os.times().user  # the system takes more for each page when many programs ask for memory
        data = encode(ORC, rows)
        [batch] = ORC.decode(io.BytesIO(data), rows.schema)
        took = os.times().user - before
        assert batch == rows
        assert len(data) < 2 * len(text)  # two are in the index of its stripe, and all are half as long
        return took

    measured(1)
    assert measured(100) < 10 * measured(25)  # 16 would be its square


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


@pytest.mark.parametrize("tail", [b"", b"\xff" * 9, b"\x12\x00"])
def test_a_footer_that_the_library_reads_differently_is_corrupt_data(
    tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, schema = encode(ORC, events(10)), events(1).schema
    monkeypatch.setattr("ftfile.formats.orc_files.stripe_rows", lambda _: stripe_rows(tail))
    with pytest.raises(CorruptData, match="a footer of 1 stripes"):
        ORC.decode_some(io.BytesIO(data), schema, Wanted(span=Span(0, 1)))
