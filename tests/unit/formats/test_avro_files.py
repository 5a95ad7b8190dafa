from __future__ import annotations

import datetime as dt
import io
import json
import sys
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, CorruptData, SchemaError, UnencodableRows
from ftfile.formats.api import format_from_options
from ftfile.formats.avro_container import BLOCK_BYTES_MAX, decimal_bytes, encode_rows, read_header
from ftfile.formats.avro_files import expansion
from ftfile.rows.buffers import ragged, varint, varints, zigzag
from ftfile.rows.spark_types import DEPTH_MAX
from tests.unit.formats.rows import (
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    batches,
    decode,
    encode,
    encode_files,
    for_reading,
    nested_types,
    one_column,
    write_and_read,
)
from tests.unit.formats.test_parquet_files import events

AVRO = format_from_options("avro", {})
UTC = dt.timezone.utc
CODECS = {"none": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"}


def by_fastavro(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


class TestVarints:
    @pytest.mark.slow
    @pytest.mark.packages
    @given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 70).map(lambda bits: min(2**bits, 2**64) - 1)))
    def test_many_are_like_each_one(self, numbers: list[int]) -> None:
        encoded = ragged(*varints(np.array(numbers, np.uint64)))
        assert encoded.to_pylist() == [varint(number) for number in numbers]

    @pytest.mark.slow
    @pytest.mark.packages
    @given(st.lists(st.integers(-(2**63), 2**63 - 1)))
    def test_zigzag(self, numbers: list[int]) -> None:
        assert zigzag(np.array(numbers, np.int64)).tolist() == [
            2 * number if number >= 0 else -2 * number - 1 for number in numbers
        ]

    @pytest.mark.parametrize("precision", range(1, 39))
    def test_decimals_fit(self, precision: int) -> None:
        size = decimal_bytes(precision)
        largest = 10**precision - 1
        assert largest.to_bytes(size, "big", signed=True)
        with pytest.raises(OverflowError):
            largest.to_bytes(size - 1, "big", signed=True)


def test_fastavro_reads_every_type() -> None:
    """The same values as ours, by the logical types in the schema."""
    schema = pa.schema(
        [
            *(("bool", pa.bool_()), ("byte", pa.int8()), ("short", pa.int16()), ("int", pa.int32())),
            *(("long", pa.int64()), ("float", pa.float32()), ("double", pa.float64())),
            *(("string", pa.string()), ("bytes", pa.binary()), ("day", DATE), ("at", TIMESTAMP)),
            *(("local", TIMESTAMP_NTZ), ("money", pa.decimal128(38, 18)), ("small", pa.decimal128(3, 0))),
            ("list", pa.list_(pa.field("element", pa.decimal128(10, 2)))),
            ("map", pa.map_(pa.string(), pa.field("value", DATE))),
            ("record", pa.struct([("int", pa.int32()), ("string", pa.struct([("x", pa.list_(pa.string()))]))])),
        ]
    )
    row: dict[str, Any] = {
        "bool": True,
        "byte": -128,
        "short": 32767,
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 0.5,
        "double": -0.1,
        "string": "é😀",
        "bytes": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "at": dt.datetime(1582, 10, 10, 1, 2, 3, 4, tzinfo=UTC),
        "local": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001 - what a clock shows
        "money": Decimal("-99999999999999999999.999999999999999999"),
        "small": Decimal(-1),
        "list": [Decimal("1.50"), None],
        "map": {"k": dt.date(2024, 2, 29), "": None},
        "record": {"int": None, "string": {"x": ["a", None]}},
    }
    nulls: dict[str, Any] = dict.fromkeys(row)
    empty = {**nulls, "list": [], "map": {}, "record": {"int": 1, "string": None}, "string": "", "bytes": b""}
    given_rows = [{**each, "map": each["map"] and list(each["map"].items())} for each in (row, nulls, empty)]
    data = write_and_read("avro", {}, pa.RecordBatch.from_pylist(given_rows, schema))
    assert by_fastavro(data) == [row, nulls, empty]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 2)
@given(batches(nested_types(st.just(pa.string()))))
def test_fastavro_reads_every_shape(batch: pa.RecordBatch) -> None:
    """By the file's own schema, which ftfile's reader replaces by another of the same bytes."""
    times = (pa.types.is_date, pa.types.is_timestamp)
    found = by_fastavro(encode(AVRO, batch))
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not any(is_time(column.type) for is_time in times) and not pa.types.is_nested(column.type):
            assert repr([row[name] for row in found]) == repr(column.to_pylist())
    assert len(found) == batch.num_rows


def test_the_schema_is_what_spark_writes_but_for_null_first() -> None:
    kind = pa.struct([("a", pa.list_(pa.struct([("b", pa.int64())])))])
    options = {"recordName": "com.example.Event"}
    data = encode(format_from_options("avro", options), one_column(kind, None))
    inner = {
        "type": "record",
        "name": "a",
        "namespace": "com.example.Event.v",
        "fields": [{"name": "b", "type": ["null", "long"], "default": None}],
    }
    middle = {
        "type": "record",
        "name": "v",
        "namespace": "com.example.Event",
        "fields": [
            {"name": "a", "type": ["null", {"type": "array", "items": ["null", inner]}], "default": None},
        ],
    }
    reader = fastavro.reader(io.BytesIO(data))
    assert json.loads(reader.metadata["avro.schema"]) == {
        "type": "record",
        "name": "Event",
        "namespace": "com.example",
        "fields": [{"name": "v", "type": ["null", middle], "default": None}],
    }


def test_a_field_may_be_called_like_a_type() -> None:
    kind = pa.struct([("string", pa.struct([("map", pa.int32())]))])
    assert by_fastavro(encode(AVRO, one_column(kind, {"string": {"map": 1}}))) == [{"v": {"string": {"map": 1}}}]


def test_structs_called_like_types_keep_apart() -> None:
    columns = {"int": [{"a": 1}], "int_": [{"b": 2}], "int__": [{"c": 3}]}
    assert by_fastavro(encode(AVRO, pa.RecordBatch.from_pydict(columns))) == [{k: v[0] for k, v in columns.items()}]


@pytest.mark.parametrize("compression", CODECS)
def test_codecs(compression: str) -> None:
    settled = format_from_options("avro", {"compression": compression})
    assert settled.extension == ".avro"
    data = encode(settled, events(5_000))
    assert fastavro.reader(io.BytesIO(data)).codec == CODECS[compression]
    assert for_reading(settled, events(1).schema) == settled
    plain = len(encode(format_from_options("avro", {"compression": "none"}), events(5_000)))
    assert (len(data) < 0.95 * plain) == (compression != "none")


def test_the_default_is_what_every_reader_must_know() -> None:
    assert fastavro.reader(io.BytesIO(encode(AVRO, events(1)))).codec == "deflate"


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(("compression", "level"), [("zstd", 19), ("deflate", 3), ("deflate", 9)])
def test_levels_change_the_size(compression: str, level: int) -> None:
    options = {"compression": compression}
    high = format_from_options("avro", {**options, "compressionLevel": level})
    data = encode(high, events(5_000))
    assert len(data) < len(encode(format_from_options("avro", options), events(5_000)))
    assert decode(high, data, events(1).schema) == events(5_000).to_pylist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": "lz4"}, "compression='lz4': for avro it must be one of none, deflate, snappy, zstd"),
        ({"compression": "snappy", "compressionLevel": 1}, "only deflate, zstd have levels"),
        ({"compression": "deflate", "compressionLevel": 10}, "for deflate it must be 1 to 9"),
        ({"compressionLevel": 0}, "for deflate it must be 1 to 9"),
        ({"recordName": "a..b"}, "option recordName='a..b': names in Avro consist of letters, digits and _"),
        ({"recordName": "a.b-c"}, "option recordName='a.b-c': names in Avro"),
        ({"recordName": ""}, "option recordName=''"),
        ({"recordName": "a.string"}, "option recordName='a.string' is the name of an Avro type"),
        ({"recordName": "string"}, "option recordName='string' is the name of an Avro type"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("avro", options)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("a b", pa.int32(), "column `a b`: names in Avro consist of letters, digits and _; rename it, or use parquet"),
        ("größe", pa.int32(), "column `größe`"),
        ("1st", pa.int32(), "column `1st`"),
        ("v", pa.list_(pa.struct([("x.y", pa.int32())])), "column `v`, field `x.y`: names in Avro"),
        (
            "v",
            pa.map_(pa.int32(), pa.int32()),
            r"column `v`: .*; keys in Avro must be strings: cast the keys to STRING",
        ),
        ("v", pa.time64("ns"), "column `v`"),
    ],
)
def test_schemas_that_are_refused(name: str, kind: pa.DataType, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        AVRO.check_schema(pa.schema([("ok", pa.int32()), (name, kind)]))


@pytest.mark.slow
@pytest.mark.packages
def test_small_batches_are_collected_to_blocks() -> None:
    rows = [events(100, seed) for seed in range(300)]
    found = [block.num_records for block in fastavro.block_reader(io.BytesIO(encode(AVRO, *rows)))]
    assert sum(found) == 30_000
    assert len(found) < 5


def test_a_row_that_is_large_beside_others_is_a_block_of_its_own() -> None:
    """Together with them it could be more than one column of strings holds."""
    rows = pa.RecordBatch.from_pydict({"v": [b"x" * 900_000, *[b""] * 9, b"y" * 2_500_000, *[b""] * 9]})
    data = encode(AVRO, *(rows.slice(start, 10) for start in (0, 10)))
    counts = [block.num_records for block in fastavro.block_reader(io.BytesIO(data))]
    assert counts == [10, 1, 9]
    assert decode(AVRO, data, rows.schema) == rows.to_pylist()


# Bytes of a value whose row has the length of a block: the row also has a branch and a length of four bytes.
LONGEST = BLOCK_BYTES_MAX - 5


@pytest.mark.slow
@pytest.mark.parametrize("compression", CODECS)
def test_the_longest_row(compression: str) -> None:
    avro = format_from_options("avro", {"compression": compression})
    value = (bytes(range(256)) * (LONGEST // 256 + 1))[:LONGEST]
    rows = pa.RecordBatch.from_pydict({"v": [b"first", value, b"last"]})
    assert len(encode_rows(rows)[1].as_py()) == BLOCK_BYTES_MAX
    assert decode(avro, encode(avro, rows), rows.schema) == rows.to_pylist()


@pytest.mark.slow
def test_rows_that_readers_would_refuse() -> None:
    too_long = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "v": [b"", bytes(LONGEST), b""]})
    with pytest.raises(UnencodableRows, match="column `v` is too long: the row has 67,108,866 bytes"):
        encode(AVRO, too_long)
    with pytest.raises(UnencodableRows, match="column `v` is too long"):
        list(AVRO.segments(too_long.schema).encode(too_long, [3]))
    flags = pa.array([[True] * (BLOCK_BYTES_MAX // 2)], pa.list_(pa.bool_()))  # 4 MiB in memory
    with pytest.raises(UnencodableRows, match="column `flags` is too long"):
        encode(AVRO, pa.RecordBatch.from_pydict({"flags": flags}))


@pytest.mark.parametrize("levels", [0, 1, DEPTH_MAX])
def test_a_boolean_takes_the_most_bytes(levels: int) -> None:
    column = pa.array([True] * 8)
    for _ in range(levels):
        column = pa.StructArray.from_arrays([column], ["a"])
    rows = pa.RecordBatch.from_arrays([column], ["v"])
    assert rows.nbytes == 1
    assert sum(len(row.as_py()) for row in encode_rows(rows)) == expansion(rows.schema)


@pytest.mark.slow
def test_long_rows_between_many_short_ones_are_divided_among_blocks() -> None:
    values = [b""] * 60_000
    values[100] = values[101] = values[103] = bytes(40_000_000)
    rows = pa.RecordBatch.from_pydict({"v": values})
    data = encode(AVRO, rows)
    assert decode(AVRO, data, rows.schema) == rows.to_pylist()
    counts = [block.num_records for block in fastavro.block_reader(io.BytesIO(data))]
    assert counts[:2] == [101, 2]
    assert sum(counts) == 60_000


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("limit_bytes", [20_000, 700_000])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_files_end_near_the_limit(limit_bytes: int, compression: str) -> None:
    rows = events(50_000)
    batches_given = [rows.slice(start, 1_000) for start in range(0, rows.num_rows, 1_000)]
    files = encode_files(format_from_options("avro", {"compression": compression}), batches_given, limit_bytes)
    assert len(files) > 2
    for file in files[:-1]:
        assert limit_bytes * 0.85 < len(file) < limit_bytes * 1.15
    assert sum(len(by_fastavro(file)) for file in files) == 50_000


def test_other_types_are_cast() -> None:
    written = one_column(pa.struct([("a", pa.int32()), ("b", pa.float32())]), {"a": 1, "b": 0.5}, None)
    wanted = pa.struct([("b", pa.float64()), ("new", pa.string()), ("a", pa.int64())])
    assert decode(AVRO, encode(AVRO, written), pa.schema([("v", wanted)])) == [
        {"v": {"b": 0.5, "new": None, "a": 1}},
        {"v": None},
    ]


def test_text_that_is_none_is_refused() -> None:
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([broken], names=["v"])
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded"):
        encode(AVRO, batch)
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded"):
        list(AVRO.segments(batch.schema).encode(batch, [1]))


def test_every_file_has_a_marker_of_its_own() -> None:
    """Readers that start in the middle of a file search for the marker: the content must not contain it."""
    one, other = (encode(AVRO, one_column(pa.int32(), 1)) for _ in range(2))
    assert one[-16:] != other[-16:]
    assert one.count(one[-16:]) == 2


def test_reading_needs_fastavro_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(AVRO, one_column(pa.int32(), 1))
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"pip install 'ftfile\[avro\]'"):
        decode(AVRO, data, pa.schema([("v", pa.int32())]))


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("compression", CODECS)
def test_every_truncation_is_noticed(compression: str) -> None:
    data = encode(format_from_options("avro", {"compression": compression}), events(5))
    file = io.BytesIO(data)
    read_header(file)
    for length in {*range(len(data))} - {file.tell()}:  # a file without rows is one, too
        with pytest.raises(CorruptData, match="Avro file"):
            decode(AVRO, data[:length], events(1).schema)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("compression", CODECS)
def test_damage_is_corrupt_data_and_nothing_else(compression: str) -> None:
    data = encode(format_from_options("avro", {"compression": compression}), events(5))
    file = io.BytesIO(data)
    read_header(file)
    missed = set()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        try:
            decode(AVRO, bytes(damaged), events(1).schema)
        except CorruptData:
            continue
        missed.add(place)
    assert not missed & {*range(len(data) - 16, len(data))}  # the marker
    if compression == "snappy":
        assert not missed & {*range(file.tell(), len(data))}  # its blocks have checksums


class Bounded(io.BytesIO):
    """A file that allocates memory for each read, as buffered files do."""

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None
        assert 0 <= size <= BLOCK_BYTES_MAX, f"a read of {size} bytes"
        return super().read(size)


@pytest.mark.parametrize("length", [1 << 30, (1 << 62) - 1, (1 << 63) - 1, (1 << 64) - 1, 1 << 65])
def test_a_length_beyond_the_file_is_corrupt_data(length: int) -> None:
    named = varint(11 << 1) + b"avro.schema"
    for start in (b"", named):
        with pytest.raises(CorruptData, match="too early"):
            read_header(Bounded(b"Obj\x01" + varint(1 << 1) + start + varint(length << 1) + b"{}"))


def test_long_values_are_read_in_pieces() -> None:
    text = json.dumps({"type": "string", "doc": "x" * 100}).encode()
    entries = [(b"avro.schema", text), (b"other", b"y" * (40 << 20))]
    described = b"".join(varint(len(part) << 1) + part for entry in entries for part in entry)
    file = Bounded(b"Obj\x01" + varint(2 << 1) + described + b"\0" + b"m" * 16)
    assert read_header(file) == (json.loads(text), "null", b"m" * 16)
