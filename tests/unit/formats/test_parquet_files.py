from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.columnar import HELD_BYTES
from tests.crash.share import some
from tests.unit.formats.rows import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Target,
    decode,
    encode,
    encode_files,
    for_reading,
    one_column,
    write_and_read,
)

PARQUET = format_from_options("parquet", {})


def opened(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(data))


def events(count: int, seed: int = 0) -> pa.RecordBatch:
    """Rows of about 100 bytes: some columns repeat, some do not."""
    numbers = random.Random(seed)
    return pa.RecordBatch.from_pydict(
        {
            "t": pa.array([1_700_000_000_000_000 + numbers.randrange(10**12) for _ in range(count)], TIMESTAMP),
            "kind": [numbers.choice(["click", "view", "buy"]) for _ in range(count)],
            "price": [numbers.random() for _ in range(count)],
            "text": [f"{numbers.getrandbits(120):030x} text" for _ in range(count)],
        }
    )


@pytest.mark.parametrize(
    ("compression", "extension", "codec"),
    [
        ("none", ".parquet", "UNCOMPRESSED"),
        ("snappy", ".snappy.parquet", "SNAPPY"),
        ("gzip", ".gz.parquet", "GZIP"),
        ("zstd", ".zstd.parquet", "ZSTD"),
        ("lz4", ".lz4raw.parquet", "LZ4"),
        ("brotli", ".br.parquet", "BROTLI"),
    ],
)
def test_codecs(compression: str, extension: str, codec: str) -> None:
    settled = format_from_options("parquet", {"compression": compression})
    assert settled.extension == extension
    metadata = opened(encode(settled, events(100))).metadata
    assert {metadata.row_group(0).column(index).compression for index in range(4)} == {codec}


@pytest.mark.slow
@pytest.mark.packages
def test_zstd_is_the_default_and_levels_change_the_size() -> None:
    assert PARQUET.extension == ".zstd.parquet"
    rows = events(5_000)
    high = format_from_options("parquet", {"compressionLevel": 19})
    assert len(encode(high, rows)) < len(encode(PARQUET, rows))
    assert for_reading(high, rows.schema) == high


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"compression": "lzo"},
            "compression='lzo': for parquet it must be one of none, snappy, gzip, zstd, lz4, brotli",
        ),
        ({"compression": "snappy", "compressionLevel": 1}, "only gzip, zstd, brotli have levels"),
        ({"compressionLevel": 23}, "for zstd it must be .* to 22"),
        ({"compression": "gzip", "compressionLevel": 0}, "for gzip it must be 1 to 9"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("parquet", options)


@pytest.mark.slow
@pytest.mark.packages
def test_small_batches_are_collected_to_large_row_groups() -> None:
    batches = [pa.RecordBatch.from_pydict({"n": range(start, start + 10_000)}) for start in range(0, 620_000, 10_000)]
    data = encode(PARQUET, *batches)
    metadata = opened(data).metadata
    assert [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)] == [
        250_000,
        250_000,
        120_000,
    ]
    assert opened(data).read().column("n").to_pylist() == list(range(620_000))


@pytest.mark.slow
@pytest.mark.packages
def test_wide_rows_make_row_groups_of_fewer_rows() -> None:
    wide = one_column(pa.binary(), *[bytes([number]) * 8_000_000 for number in range(20)])
    metadata = opened(encode(PARQUET, wide)).metadata
    assert metadata.num_row_groups == 3


def test_dictionaries_only_where_values_repeat() -> None:
    kind = pa.struct(
        [
            ("few", pa.list_(pa.field("element", pa.string()))),
            ("many", pa.map_(pa.string(), pa.field("value", pa.int64()))),
        ]
    )
    nested = pa.array([{"few": ["a", "b"], "many": [("k", number)]} for number in range(1000)], kind)
    batch = pa.RecordBatch.from_pydict({**events(1000).to_pydict(), "n": nested, "e": [None] * 1000})
    group = opened(encode(PARQUET, batch.drop_columns(["e"]))).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert {column.path_in_schema: column.has_dictionary_page for column in columns} == {
        "t": False,
        "kind": True,
        "price": False,
        "text": False,
        "n.few.list.element": True,
        "n.many.key_value.key": True,
        "n.many.key_value.value": False,
    }


def test_readers_can_skip_pages() -> None:
    group = opened(encode(PARQUET, events(1000))).metadata.row_group(0)
    assert all(group.column(index).has_column_index for index in range(group.num_columns))
    assert all(group.column(index).has_offset_index for index in range(group.num_columns))


def test_types_are_those_of_parquet_alone() -> None:
    schema = pa.schema([("t", TIMESTAMP), ("n", TIMESTAMP_NTZ), ("b", pa.int8()), ("d", pa.decimal128(38, 18))])
    file = opened(encode(PARQUET, pa.RecordBatch.from_pylist([{}], schema)))
    assert file.metadata.metadata is None  # no Arrow schema in addition to Parquet's schema
    assert file.schema_arrow == schema
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(file.schema.column(0).logical_type)
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in str(file.schema.column(1).logical_type)


@pytest.mark.slow
@pytest.mark.packages
class CountedTarget(Target):
    """A target that keeps the length of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.lengths.append(len(data))
        return super().write(data)


def test_small_writes_of_the_library_are_joined() -> None:
    target, rows = CountedTarget(), events(100)
    encoder = PARQUET.encoder(rows.schema, target)
    encoder.write(rows)
    encoder.flush()
    flushed_bytes = target.position
    encoder.finish()
    assert len(target.lengths) == 2, "one write for the row group, and one for the end"
    file = opened(bytes(target.data))
    group = file.metadata.row_group(0)
    chunk_bytes = sum(group.column(number).total_compressed_size for number in range(group.num_columns))
    assert flushed_bytes == len(b"PAR1") + chunk_bytes
    assert file.read().to_pydict() == rows.to_pydict()


def test_joined_writes_take_little_memory() -> None:
    target, rows = CountedTarget(), pa.RecordBatch.from_pydict({"n": range(700_000)})
    encoder = format_from_options("parquet", {"compression": "none"}).encoder(rows.schema, target)
    encoder.write(rows)
    encoder.finish()
    page_bytes = 1 << 20
    assert len(target.data) > 4 * page_bytes
    assert max(target.lengths) < HELD_BYTES + 1.2 * page_bytes


@pytest.mark.parametrize("limit_bytes", [20_000, 200_000, 700_000])
@pytest.mark.parametrize("batch_rows", [1_000, 50_000])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_files_end_near_the_limit(limit_bytes: int, batch_rows: int, compression: str) -> None:
    rows = events(50_000)
    batches = [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]
    files = encode_files(format_from_options("parquet", {"compression": compression}), batches, limit_bytes)
    assert len(files) > 2
    for file in files[:-1]:
        assert limit_bytes * 0.85 < len(file) < limit_bytes * 1.15
        assert opened(file).metadata.num_row_groups == 1
    assert sum(opened(file).metadata.num_rows for file in files) == 50_000


@pytest.mark.packages
@pytest.mark.slow
def test_the_estimate_holds_once_something_is_written() -> None:
    target = Target()
    encoder = PARQUET.encoder(events(1).schema, target)
    for start in range(26):
        encoder.write(events(10_000, seed=start))
    assert target.position > 0
    estimate = encoder.size_bytes
    encoder.finish()
    assert estimate * 0.97 < target.position < estimate * 1.03


def test_other_types_are_cast() -> None:
    written = one_column(pa.struct([("a", pa.int32()), ("b", pa.float32())]), {"a": 1, "b": 0.5}, None)
    wanted = pa.struct([("b", pa.float64()), ("new", pa.string()), ("a", pa.int64())])
    assert decode(PARQUET, encode(PARQUET, written), pa.schema([("v", wanted)])) == [
        {"v": {"b": 0.5, "new": None, "a": 1}},
        {"v": None},
    ]


def test_names_with_dots() -> None:
    struct = pa.array([{"b": 1}], pa.struct([("b", pa.int64())]))
    batch = pa.RecordBatch.from_arrays([struct, pa.array(["x"])], names=["a", "a.b"])
    write_and_read("parquet", {}, batch)


def test_nulls_where_the_schema_has_none_are_refused() -> None:
    schema = pa.schema([pa.field("v", pa.int32(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], schema=schema)
    with pytest.raises(EncodingError, match="column `v` is not nullable and has 1 nulls"):
        encode(PARQUET, batch)


def test_types_that_spark_does_not_send_are_refused() -> None:
    with pytest.raises(SchemaError, match="column `v`"):
        PARQUET.check_schema(pa.schema([("v", pa.time64("ns"))]))


def test_corrupt_files() -> None:
    rows = events(1_000)
    data = encode(format_from_options("parquet", {"compression": "none"}), rows)
    damaged = bytearray(data)
    damaged[data.index(rows.column("text")[500].as_py().encode())] ^= 1  # in the middle of a page
    for bad in (b"", b"PAR1", b"garbage" * 10, data[:-1], data[:100], data[100:], bytes(damaged)):
        with pytest.raises(CorruptData, match="expected a Parquet file"):
            decode(PARQUET, bad, rows.schema)


def test_corruption_names_the_file() -> None:
    file = io.BytesIO(b"garbage")
    file.name = "out/part-7.parquet"  # as files opened by name have
    with pytest.raises(CorruptData, match=r"'out/part-7.parquet' is corrupt"):
        list(PARQUET.decode(file, pa.schema([("v", pa.int32())])))


@pytest.mark.slow
def test_any_bit_of_a_footer_leads_to_rows_or_an_error_of_ftfile(seed: int) -> None:
    """The process does not end either: the metadata of column chunks of pyarrow 26 may end it."""
    nested = [{"u": number, "v": [number]} for number in range(20)]
    rows = pa.table({"a": [*range(20)], "b": [f"x{number % 3}" for number in range(20)], "s": nested})
    written = io.BytesIO()
    pq.write_table(rows, written, row_group_size=10)
    content = bytearray(written.getvalue())
    end = len(content) - 8
    begin = end - int.from_bytes(content[end : end + 4], "little")
    errors = 0
    for bit in some(range(8 * begin, 8 * end), seed, 1 / 8):
        content[bit >> 3] ^= 1 << (bit & 7)
        try:
            list(PARQUET.decode(io.BytesIO(content), rows.schema))
        except CorruptData:
            errors += 1
        content[bit >> 3] ^= 1 << (bit & 7)
    assert errors > 500
