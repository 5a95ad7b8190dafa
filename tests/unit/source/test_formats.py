"""Each format, plain and compressed: in cuts, as whole files, and damaged."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from ftfile.core.codecs import CODECS
from ftfile.core.errors import CorruptData, SchemaError, SourceError
from ftfile.core.tasks import TASK_BYTES
from ftfile.formats import parquet_files as parquet_format
from ftfile.source.decoding import avro_records, columnar, lines
from ftfile.source.plan import SourcePlan
from ftfile.source.settings import FileDecoding
from ftfile.storage.api import RangeFile
from tests.kit.parameters import parametrize
from tests.unit.source.planned import LINE, packed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.source.planned import Files

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string()), ("share", pa.float64())])
ROWS = [(number, None if number % 7 == 0 else f"wörd {number}", number / 4) for number in range(3000)]
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "word", "type": ["string", "null"]},
        {"name": "share", "type": "double"},
    ],
}
COLUMNAR = ("parquet", "orc", "arrow", "avro")
LINES = ("text", "json", "csv")


def table(rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=SCHEMA.names)


def encoded(file_format: str, rows: list[tuple[Any, ...]]) -> bytes:
    sink = io.BytesIO()
    if file_format == "text":
        return "".join(f"{word}\n" for _, word, _ in rows).encode()
    if file_format == "json":
        return "".join(f"{json.dumps(dict(zip(SCHEMA.names, row, strict=True)))}\n" for row in rows).encode()
    if file_format == "csv":
        return "".join(f'{number},"{word or ""}",{share}\n' for number, word, share in rows).encode()
    if file_format == "parquet":
        pq.write_table(table(rows), sink, row_group_size=1000)
    elif file_format == "orc":
        orc.write_table(table(rows), sink, stripe_size=1 << 14)
    elif file_format == "arrow":
        with pa.ipc.new_file(sink, table(rows).schema) as writer:
            writer.write_table(table(rows), max_chunksize=1000)
    else:
        records = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
        fastavro.writer(sink, AVRO, records, sync_interval=4096)
    return sink.getvalue()


def expected(file_format: str) -> list[tuple[Any, ...]]:
    return [(str(word),) for _, word, _ in ROWS] if file_format == "text" else ROWS


def schema_of(file_format: str) -> pa.Schema:
    return LINE if file_format == "text" else SCHEMA


@parametrize("codec", [None, *CODECS], quick=1)
@pytest.mark.parametrize("file_format", [*LINES, *COLUMNAR])
def test_a_whole_file(files: Files, file_format: str, codec: str | None) -> None:
    content = encoded(file_format, ROWS)
    name = "data" if codec is None else f"data{CODECS[codec].ending}"
    # A member may end within a row, and within a character.
    files.write(name, content if codec is None else packed(codec, content[:10_003], content[10_003:]))
    decoding = FileDecoding(file_format)
    assert files.rows(files.whole(name), schema_of(file_format), decoding) == expected(file_format)


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [1 << 30, 10_000, 997, 53])
@pytest.mark.parametrize("file_format", LINES)
def test_cuts_have_the_rows_of_the_whole_afi_15(files: Files, file_format: str, max_bytes: int) -> None:
    count = min(10 * max_bytes, len(ROWS))
    files.write("data", encoded(file_format, ROWS[:count]))
    decoding = FileDecoding(file_format, max_partition_bytes=max_bytes)
    assert files.rows(files.range("data"), schema_of(file_format), decoding) == expected(file_format)[:count]


@parametrize("file_format", [*LINES, *COLUMNAR], quick=1)
def test_a_replay_has_equal_batches_afi_13(files: Files, file_format: str) -> None:
    file = files.write("data", encoded(file_format, ROWS))
    planned = [files.whole("data")] if file_format in COLUMNAR else [files.range("data")]
    decoding = FileDecoding(file_format, max_partition_bytes=5000)
    before = files.batches(planned, schema_of(file_format), decoding)
    if file_format in LINES:
        with file.open("ab") as grown:
            grown.write(encoded(file_format, ROWS))
    file.rename(files.root / "moved")
    assert files.batches(planned, schema_of(file_format), decoding) == before


@pytest.mark.parametrize("file_format", ["parquet", "orc", "arrow"])
def test_a_small_file_is_one_call_of_the_storage(
    files: Files, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(file_format, ROWS)
    files.write("data", content)
    for bound, is_small in ((len(content), True), (len(content) - 1, False)):
        monkeypatch.setattr(lines, "_READ_BYTES", bound)
        calls: list[int] = []

        def read(offset: int, length: int, calls: list[int] = calls) -> bytes:
            calls.append(offset)
            return content[offset : offset + length]

        file = lines.RangeContent(RangeFile("data", len(content), read), files.whole("data"))
        (cut,) = (cut for share in SourcePlan((file.planned,)).shares(TASK_BYTES) for cut in share.cuts)
        batches = columnar.column_rows(file, cut, SCHEMA, FileDecoding(file_format))
        assert sum(batch.num_rows for batch in batches) == len(ROWS)
        assert (len(calls) == 1) == is_small


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_columns_are_found_by_name_case_aside(files: Files, file_format: str) -> None:
    files.write("a=x/b=7/data", encoded(file_format, ROWS[:5]))
    schema = pa.schema(
        [("SHARE", pa.float64()), ("missing", pa.int8()), ("B", pa.int32()), ("id", pa.int64()), ("a", pa.string())]
    )
    rows = files.rows(files.whole("a=x/b=7/data"), schema, FileDecoding(file_format))
    assert rows == [(number / 4, None, 7, number, "x") for number in range(5)]


def test_directories_of_other_programs_are_cast_as_spark_casts_them(files: Files) -> None:
    schema = pa.schema([("day", pa.date32()), ("flag", pa.bool_()), ("n", pa.int8()), ("value", pa.string())])
    name = "day=2024-1-2/flag=TRUE/n=__HIVE_DEFAULT_PARTITION__/data"
    files.write(name, b"x\n")
    rows = files.rows(files.range(name), schema, FileDecoding("text"))
    assert rows == [(datetime.date(2024, 1, 2), True, None, "x")]
    files.write("day=soon/data", b"x\n")
    with pytest.raises(SourceError, match=r"'day=soon' has 'soon' for column 'day' of type date32.*as STRING"):
        files.rows(files.range("day=soon/data"), schema, FileDecoding("text"))
    files.write("p=/data", b"x\n")
    with pytest.raises(SourceError, match=r"'p=' has '' .*: it is empty. Exclude the directory"):
        files.rows(files.range("p=/data"), pa.schema([("p", pa.string())]), FileDecoding("text"))


def test_escapes_in_a_directory_are_bytes_of_a_binary_column(files: Files) -> None:
    files.write("p=%C3%A9/data", b"x\n")
    for kind, value in ((pa.binary(), b"%C3%A9"), (pa.string(), "\u00c3\u00a9")):
        schema = pa.schema([("p", kind), ("value", pa.string())])
        assert files.rows(files.range("p=%C3%A9/data"), schema, FileDecoding("text")) == [(value, "x")]


@pytest.mark.parametrize("path", ["p=1/p=2/data", "p=1/sub/P=1/data"])
def test_two_directories_of_one_column_are_refused(files: Files, path: str) -> None:
    """Spark refuses these directories, too."""
    files.write(path, b"x\n")
    assert files.lines(files.range(path)) == ["x"]
    for name in ("p", "P"):
        schema = pa.schema([(name, pa.int32()), ("value", pa.string())])
        with pytest.raises(SourceError, match=r"two directories of .* name the column"):
            files.rows(files.range(path), schema, FileDecoding("text"))


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_rows_without_one_of_the_columns_are_counted(files: Files, file_format: str) -> None:
    files.write("a=x/data", encoded(file_format, ROWS))
    for schema in (pa.schema([("missing", pa.int8())]), pa.schema([("a", pa.string())])):
        assert len(files.rows(files.whole("a=x/data"), schema, FileDecoding(file_format))) == len(ROWS)


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_another_type_is_named(files: Files, file_format: str) -> None:
    files.write("data", encoded(file_format, ROWS[1:5]))
    for schema in (pa.schema([("word", pa.int64())]), pa.schema([("id", pa.struct([("x", pa.int64())]))])):
        with pytest.raises(SchemaError, match=schema.names[0]):
            files.rows(files.whole("data"), schema, FileDecoding(file_format))


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_narrower_and_nested_types(files: Files, file_format: str) -> None:
    files.write("data", encoded(file_format, ROWS[:3]))
    share = pa.float64() if file_format == "avro" else pa.float32()
    schema = pa.schema([("id", pa.int32()), ("share", share)])
    assert files.rows(files.whole("data"), schema, FileDecoding(file_format)) == [(0, 0.0), (1, 0.25), (2, 0.5)]


@pytest.mark.parametrize("file_format", COLUMNAR)
def test_a_file_that_is_none_of_the_format(files: Files, file_format: str) -> None:
    for content in (b"", b"x", bytes(5000)):
        files.write("data", content)
        if content:
            with pytest.raises(CorruptData, match="data"):
                files.rows(files.whole("data"), SCHEMA, FileDecoding(file_format))
        assert files.rows(files.whole("data"), SCHEMA, FileDecoding(file_format, ignore_corrupt_files=True)) == []


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_rows_before_the_damage_are_kept_and_no_others(
    files: Files, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_records, "_BATCH_ROWS", 4_000)
    monkeypatch.setattr(parquet_format, "_READ_BATCH_ROWS", 4_000)
    rows = [(number, f"word {number}", 0.5) for number in range(15_000)]
    content = bytearray(encoded(file_format, rows))
    content[len(content) // 2 : len(content) // 2 + 4000] = bytes(4000)
    files.write("data", bytes(content))
    planned, decoding = files.whole("data"), FileDecoding(file_format)
    with pytest.raises(CorruptData, match="data"):
        files.rows(planned, SCHEMA, decoding)
    keeping = FileDecoding(file_format, ignore_corrupt_files=True)
    kept = files.rows(planned, SCHEMA, keeping)
    assert 0 < len(kept) < len(rows)
    assert kept == rows[: len(kept)] == files.rows(planned, SCHEMA, keeping)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("file_format", LINES)
def test_scenario_23_an_archive_cut_off_is_an_error_or_the_rows_before(
    files: Files, file_format: str, codec: str
) -> None:
    content = encoded(file_format, ROWS)
    pieces = [content[start : start + 9000] for start in range(0, len(content), 9000)]
    whole = packed(codec, *pieces)
    name = f"data{CODECS[codec].ending}"
    for cut in (len(whole) - 1, len(whole) - 300, len(whole) // 2):
        files.write(name, whole[:cut])
        planned = files.whole(name)
        with pytest.raises(CorruptData, match="data"):
            files.rows(planned, schema_of(file_format), FileDecoding(file_format))
        keeping = FileDecoding(file_format, ignore_corrupt_files=True)
        kept = files.rows(planned, schema_of(file_format), keeping)
        assert kept == expected(file_format)[: len(kept)] == files.rows(planned, schema_of(file_format), keeping)
    assert 0 < len(kept) < len(ROWS)


class TestParquet:
    def test_times_of_other_writers(self, files: Files) -> None:
        times = pa.table(
            {"ns": pa.array([1_000, None], pa.timestamp("ns")), "ms": pa.array([1, 2], pa.timestamp("ms"))}
        )
        pq.write_table(times, files.root / "data")
        schema = pa.schema([("ns", pa.timestamp("us")), ("ms", pa.timestamp("us", tz="UTC"))])
        [batch] = files.batches([files.whole("data")], schema, FileDecoding("parquet"))
        assert batch.column("ns").cast(pa.int64()).to_pylist() == [1, None]
        assert batch.column("ms").cast(pa.int64()).to_pylist() == [1000, 2000]

    def test_far_days_in_96_bits(self, files: Files) -> None:
        far = pa.table({"t": pa.array([253_402_300_799_000_000], pa.timestamp("us"))})
        pq.write_table(far, files.root / "data", use_deprecated_int96_timestamps=True)
        schema = pa.schema([("t", pa.timestamp("us"))])
        [batch] = files.batches([files.whole("data")], schema, FileDecoding("parquet"))
        assert batch.equals(far.to_batches()[0])

    def test_scenario_22_half_a_file_is_damage(self, files: Files) -> None:
        files.write("data", encoded("parquet", ROWS)[:9000])
        with pytest.raises(CorruptData, match="Parquet"):
            files.rows(files.whole("data"), SCHEMA, FileDecoding("parquet"))


class TestAvro:
    def test_types_of_other_writers(self, files: Files) -> None:
        described = {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {
                    "name": "price",
                    "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
                },
                {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
                {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
                {"name": "points", "type": {"type": "array", "items": {"type": "record", "name": "p", "fields": [
                    {"name": "x", "type": "float"}]}}},
            ],
        }  # fmt: skip
        key, at = uuid.UUID(int=7), datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
        day = datetime.date(2024, 7, 1)
        record = {"kind": "B", "at": at, "day": day, "price": Decimal("1.25"), "tags": {"a": None, "b": "c"}}
        sink = io.BytesIO()
        fastavro.writer(sink, described, [record | {"key": key, "points": [{"x": 0.5}]}])
        files.write("data", sink.getvalue())
        schema = pa.schema(
            [
                ("kind", pa.string()),
                ("at", pa.timestamp("us", tz="UTC")),
                ("day", pa.date32()),
                ("price", pa.decimal128(10, 2)),
                ("tags", pa.map_(pa.string(), pa.string())),
                ("key", pa.string()),
                ("points", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.int32())]))),
            ]
        )
        [row] = files.rows(files.whole("data"), schema, FileDecoding("avro"))
        assert row == ("B", at, day, Decimal("1.25"), [("a", None), ("b", "c")], str(key), [{"x": 0.5, "y": None}])


class TestBinary:
    SCHEMA = pa.schema(
        [
            ("path", pa.string()),
            ("modificationTime", pa.timestamp("us", tz="UTC")),
            ("LENGTH", pa.int64()),
            ("content", pa.binary()),
        ]
    )

    def test_a_file_is_a_row(self, files: Files) -> None:
        files.write("a/x", b"\0\xff")
        files.write("empty", b"")
        ranges = [files.whole("a/x"), files.whole("empty")]
        rows = files.rows(ranges, self.SCHEMA, FileDecoding("binary"))
        assert [(path, size, content) for path, _, size, content in rows] == [("a/x", 2, b"\0\xff"), ("empty", 0, b"")]
        assert [int(row[1].timestamp() * 1000) for row in rows] == [planned.modified_ms for planned in ranges]

    def test_records_by_a_delimiter_and_by_their_lengths(self, files: Files) -> None:
        schema = pa.schema([("value", pa.binary())])
        files.write("a", b"x||\xff\n|||y")
        files.write("b", b"\0\0\0\1x\0\0\0\0")
        files.write("c", b"\0\0\0\1x\0\0\0\2y")
        assert files.rows(files.whole("a"), schema, FileDecoding("binary", delimiter=b"|\n")) == [(b"x||\xff\n|||y",)]
        assert files.rows(files.whole("a"), schema, FileDecoding("binary", delimiter=b"|")) == [
            *[(b"x",), (b"",), (b"\xff\n",), (b"",), (b"",), (b"y",)]
        ]
        prefixed = FileDecoding("binary", length_prefix="int32")
        assert files.rows(files.whole("b"), schema, prefixed) == [(b"x",), (b"",)]
        with pytest.raises(CorruptData, match="whole records"):
            files.rows(files.whole("c"), schema, prefixed)
