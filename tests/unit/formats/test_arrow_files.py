from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

from ftfile.core.errors import ConfigError, CorruptData, SchemaError, UnencodableRows
from ftfile.formats.api import format_from_options
from tests.unit.formats.rows import decode, encode, encode_files, for_reading
from tests.unit.formats.test_parquet_files import events

if TYPE_CHECKING:
    from pathlib import Path

ARROW = format_from_options("arrow", {})


def opened(data: bytes) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(io.BytesIO(data))


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_codecs(compression: str) -> None:
    settled = format_from_options("arrow", {"compression": compression})
    assert settled.extension == ".arrow"
    assert for_reading(settled, events(1).schema) == settled
    plain = len(encode(format_from_options("arrow", {"compression": "none"}), events(5_000)))
    assert (len(encode(settled, events(5_000))) < 0.95 * plain) == (compression != "none")


@pytest.mark.slow
@pytest.mark.packages
def test_levels_change_the_size() -> None:
    high = format_from_options("arrow", {"compressionLevel": 19})
    assert len(encode(high, events(5_000))) < len(encode(ARROW, events(5_000)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": "snappy"}, "compression='snappy': for arrow it must be one of none, lz4, zstd"),
        (
            {"compression": "lz4", "compressionLevel": 1},
            "compressionLevel=1 with compression=lz4: only zstd have levels",
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        format_from_options("arrow", options)


@pytest.mark.slow
@pytest.mark.packages
def test_small_batches_are_collected() -> None:
    batches = [pa.RecordBatch.from_pydict({"n": range(start, start + 10_000)}) for start in range(0, 150_000, 10_000)]
    file = opened(encode(ARROW, *batches))
    assert [file.get_batch(place).num_rows for place in range(file.num_record_batches)] == [65_536, 65_536, 18_928]
    assert file.read_all().column("n").to_pylist() == list(range(150_000))


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("limit_bytes", [20_000, 700_000])
@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_files_end_near_the_limit(limit_bytes: int, compression: str) -> None:
    rows = events(50_000)
    batches = [rows.slice(start, 1_000) for start in range(0, rows.num_rows, 1_000)]
    files = encode_files(format_from_options("arrow", {"compression": compression}), batches, limit_bytes)
    assert len(files) > 2
    for file in files[:-1]:
        assert limit_bytes * 0.85 < len(file) < limit_bytes * 1.15
    assert sum(len(opened(file).read_all()) for file in files) == 50_000


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_who_reads_them(tmp_path: Path, compression: str) -> None:
    rows, file = pa.Table.from_batches([events(1_000)]), tmp_path / "rows.arrow"
    file.write_bytes(encode(format_from_options("arrow", {"compression": compression}), events(1_000)))
    pd.testing.assert_frame_equal(pd.read_feather(file), rows.to_pandas())
    assert pyarrow.dataset.dataset(tmp_path, format="ipc").to_table() == rows
    with pa.memory_map(str(file)) as mapped:
        whole, found = mapped.read_buffer(), pa.ipc.open_file(mapped).read_all()
        assert found == rows
        (batch,) = found.to_batches()
        is_mapped = whole.address < batch.column("text").buffers()[2].address < whole.address + whole.size
        assert is_mapped == (compression == "none")


def test_text_that_is_none_is_refused() -> None:
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([broken], names=["v"])
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded"):
        encode(ARROW, batch)
    with pytest.raises(UnencodableRows, match="column `v` cannot be encoded"):
        list(ARROW.segments(batch.schema).encode(batch, [1]))


def test_types_that_spark_does_not_send_are_refused() -> None:
    with pytest.raises(SchemaError, match="column `v`"):
        ARROW.check_schema(pa.schema([("v", pa.time64("ns"))]))


def test_corrupt_files() -> None:
    data = encode(format_from_options("arrow", {"compression": "none"}), events(1_000))
    text = bytearray(data)
    text[data.index(events(1_000).column("text")[500].as_py().encode())] = 0xFF  # not UTF-8
    for bad in (b"", b"ARROW1", b"garbage" * 10, data[:-1], data[:100], data[100:], bytes(text)):
        with pytest.raises(CorruptData, match="expected an Arrow file"):
            decode(ARROW, bad, events(1).schema)
