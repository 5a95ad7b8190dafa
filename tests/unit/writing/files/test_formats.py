"""Every format through the whole sink: batches, files that stay open, replays, bad records, compaction, dropping."""

from __future__ import annotations

import datetime as dt
import io
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, EncodingError, SchemaError
from ftfile.formats.api import FORMATS, format_from_options
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.contents

WORDS = {"word": "string"}
BYTES = {"raw": "binary"}
EVENTS = {
    "id": "long",
    "word": "string",
    "at": "timestamp",
    "day": "date",
    "price": "decimal(10,2)",
    "ratio": "double",
    "flag": "boolean",
    "raw": "binary",
    "tags": {"type": "array", "elementType": "string", "containsNull": True},
    "props": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
}
CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "parquet": (EVENTS, {}),
    "json": (EVENTS, {}),
    "text": (WORDS, {}),
    "binary": (WORDS, {"delimiter": "\\x1e\\n"}),
    "binary, lengths": (BYTES, {"lengthPrefix": "varint"}),
    "binary, gzip": (BYTES, {"lengthPrefix": "int32", "compression": "gzip"}),
    "avro": (EVENTS, {}),
    "avro, snappy": (EVENTS, {"compression": "snappy"}),
    "orc": (EVENTS, {}),
    "arrow": (EVENTS, {}),
    "arrow, lz4": (EVENTS, {"compression": "lz4"}),
}
ROLLINGS: dict[str, dict[str, str]] = {
    "batch": {},
    "rows": {"maxRecordsPerFile": "3"},
    "bytes": {"maxBytesPerFile": "300"},
    "batches": {"maxBatchesPerFile": "2"},
    "rows over batches": {"rolling": "policy", "maxRecordsPerFile": "7"},
    "bytes over batches": {"rolling": "policy", "maxBytesPerFile": "400"},
}
cases = parametrize("case", CASES, quick=2, packages=True)
new_cases = parametrize(
    "case", [case for case in CASES if case not in {"json", "parquet", "text"}], quick=2, packages=True
)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def format_of(case: str) -> str:
    return case.partition(",")[0]


def stream(out: str, case: str, **more: str) -> MicroBatch:
    columns, options = CASES[case]
    return MicroBatch(out, columns, {"fileFormat": format_of(case), **options, **more})


def rows_of(columns: dict[str, Any], seed: int, count: int) -> list[dict[str, Any]]:
    numbers = random.Random(seed)
    values: dict[str, Any] = {
        "id": lambda: numbers.getrandbits(60),
        "word": lambda: "".join(numbers.choices("abcé ", k=numbers.randrange(9))),
        "at": lambda: (
            dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc) + dt.timedelta(microseconds=numbers.getrandbits(40))
        ),
        "day": lambda: dt.date(1582, 10, 1) + dt.timedelta(days=numbers.randrange(200_000)),
        "price": lambda: Decimal(numbers.randrange(-(10**9), 10**9)).scaleb(-2),
        "ratio": numbers.random,
        "flag": lambda: numbers.random() < 0.5,
        "raw": lambda: numbers.randbytes(numbers.randrange(200)),
        "tags": lambda: numbers.choices(["x", None, "yy"], k=numbers.randrange(3)),
        "props": lambda: [(f"k{place}", numbers.choice([None, place])) for place in range(numbers.randrange(3))],
    }
    optional = len(columns) > 1
    return [
        {name: None if optional and numbers.random() < 0.1 else values[name]() for name in columns}
        for _ in range(count)
    ]


def read(out: str) -> list[str]:
    return sorted(map(repr, ftfile.open(out).to_arrow().to_pylist()))


def expected(columns: dict[str, Any], *batches: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    rows = [row for batch in batches for task in batch for row in task]
    return sorted(map(repr, pa.RecordBatch.from_pylist(rows, arrow_schema(spark_schema(columns))).to_pylist()))


def check(out: str, case: str) -> None:
    """Check the directory by rows: the rows of a part, or of a segment."""
    columns, options = CASES[case]
    schema, name = arrow_schema(spark_schema(columns)), format_of(case)
    query = stream(out, case).config()
    assert query.format.name == name
    assert options is not None

    def rows_in(content: bytes) -> list[str]:
        try:
            found = list(query.format.decode(io.BytesIO(content), schema))
        except CorruptData:
            found = list(query.format.segments(schema).decode(content, "segment", schema))
        return [repr(row) for batch in found for row in batch.to_pylist()]

    check_directory(open_filesystem(out), rows_of=rows_in)


def parts(out: str) -> list[Path]:
    return sorted(path for path in Path(out).rglob("*") if path.is_file() and "_ftfile" not in path.parts)


@pytest.mark.slow
@pytest.mark.packages
@cases
@pytest.mark.parametrize("rolling", ROLLINGS)
def test_rows_come_back_however_files_end(out: str, case: str, rolling: str) -> None:
    query = stream(out, case, **ROLLINGS[rolling])
    batches = [[rows_of(CASES[case][0], 10 * batch + task, 5 - task) for task in range(2)] for batch in range(3)]
    for number, batch in enumerate(batches):
        query.run(number, batch)
        assert read(out) == expected(CASES[case][0], *batches[: number + 1])
    query.restart()
    query.run(2, [[row for task in batches[2] for row in task]])  # once more, in one task
    assert read(out) == expected(CASES[case][0], *batches)
    ftfile.flush(out)
    assert read(out) == expected(CASES[case][0], *batches)
    extension = query.config().format.extension + query.config().chain.extension
    assert {path.name.partition(".")[2] for path in parts(out)} == {extension.removeprefix(".")}
    if rolling == "rows":
        assert max(file.rows or 0 for file in ftfile.open(out).files()) == 3
    if rolling == "batches":
        check(out, case)


@new_cases
def test_small_files_are_compacted(out: str, case: str) -> None:
    query = stream(out, case)
    batches = [[rows_of(CASES[case][0], batch, 4)] for batch in range(3)]
    for number, batch in enumerate(batches):
        query.run(number, batch)
    report = ftfile.compact(out)
    assert (report.files_removed, report.files_written, report.rows) == (3, 1, 12)
    assert read(out) == expected(CASES[case][0], *batches)
    check(out, case)


@parametrize("file_format", ["binary", "avro", "orc", "arrow"], quick=2)
def test_partitions_are_written_read_and_dropped(out: str, file_format: str) -> None:
    query = MicroBatch(out, {"word": "string", "month": "string"}, {"fileFormat": file_format, "partitionBy": "month"})
    rows = [{"word": f"w{number}", "month": str(6 + number % 2)} for number in range(6)]
    query.run(0, [rows])
    assert read(out) == expected(dict(query.columns), [rows])
    ftfile.drop(out, where={"month": "6"})
    assert read(out) == expected(dict(query.columns), [[row for row in rows if row["month"] == "7"]])


class TestBadRecords:
    """Values that a format cannot hold."""

    FAR = dt.datetime(9999, 12, 31, tzinfo=dt.timezone.utc)

    CASES: tuple[tuple[dict[str, str], dict[str, Any], dict[str, Any], dict[str, Any], str], ...] = (
        ({"fileFormat": "binary"}, WORDS, {"word": "a"}, {"word": "two\nlines"}, "column `word`: a record contains"),
        ({"fileFormat": "binary"}, WORDS, {"word": "a"}, {"word": None}, "column `word`: a null has no bytes"),
        ({"fileFormat": "orc"}, {"at": "timestamp"}, {"at": None}, {"at": FAR}, "column `at`: a timestamp is out of"),
        (
            {"fileFormat": "binary", "encoder": "tests.unit.formats.user_encoders:Marked"},
            {"word": "string", "id": "long"},
            {"word": "good", "id": 1},
            {"word": "bad", "id": 2},
            "Marked' returned null",
        ),
    )

    @pytest.mark.parametrize("rolling", ["batch", "policy"])
    @parametrize("case", CASES, ids=["delimiter", "null", "orc", "encoder"], quick=1)
    def test_they_are_refused_or_kept(self, out: str, rolling: str, case: Any) -> None:
        options, columns, good, bad, reason = case
        query = MicroBatch(out, columns, {**options, "rolling": rolling})
        with pytest.raises(EncodingError, match=reason):
            query.run(0, [[good, bad, good]])
        query.options = {**query.options, "badRecords": "deadLetter"}
        query.run(0, [[good, bad, good], [bad]])
        ftfile.flush(out)
        assert sum(file.rows or 0 for file in ftfile.open(out).files()) == 2
        letters = [*ftfile.open(out).dead_letters()]
        assert [reason in letter.reason for letter in letters] == [True, True]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "columns", "error", "said"),
        [
            ({"fileFormat": "binary"}, EVENTS, SchemaError, "binary has exactly one column"),
            ({"fileFormat": "avro"}, {"a b": "long"}, SchemaError, "column `a b`: names in Avro"),
            (
                {"fileFormat": "orc", "compression": "lz4"},
                WORDS,
                ConfigError,
                "for orc it must be one of none, snappy, zlib, zstd",
            ),
            ({"fileFormat": "json", "encoder": "a:B"}, WORDS, ConfigError, "'encoder' is for fileFormat=binary"),
            ({"fileFormat": "binary", "encoder.x": "1"}, WORDS, ConfigError, "encoder.x is an option for your class"),
            (
                {"fileFormat": "binary", "compression": "zlib"},
                WORDS,
                ConfigError,
                "compression='zlib': for lines it must be",
            ),
            ({"fileFormat": "avro", "avroSchema": "{}"}, WORDS, ConfigError, "'avroSchema': use recordName"),
        ],
    )
    def test_before_anything_is_written(
        self, out: str, options: dict[str, str], columns: dict[str, Any], error: type[Exception], said: str
    ) -> None:
        with pytest.raises(error, match=said):
            MicroBatch(out, columns, options).pickled_plan()
        assert not Path(out).exists()


def by_fastavro(path: Path) -> pd.DataFrame:
    with path.open("rb") as file:
        return pd.DataFrame(list(fastavro.reader(file)))


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    "avro": by_fastavro,
    "orc": pd.read_orc,
    "arrow": pd.read_feather,
    "arrow, lz4": pd.read_feather,
    "avro, snappy": by_fastavro,
}


@parametrize("case", READERS, quick=1)
def test_usual_tools_read_the_files(out: str, case: str) -> None:
    """Whatever made them: a batch, or segments."""
    columns = {name: EVENTS[name] for name in ("id", "word", "price", "ratio", "flag", "raw")}
    query = MicroBatch(out, columns, {**stream(out, case).options, "maxBatchesPerFile": "2"})
    batches = [[rows_of(columns, batch, 20)] for batch in range(2)]
    for number, batch in enumerate(batches):
        query.run(number, batch)
    ftfile.flush(out)
    (path,) = parts(out)
    rows = pd.DataFrame([row for batch in batches for row in batch[0]])
    found = READERS[case](path)[list(columns)]
    pd.testing.assert_frame_equal(
        found.sort_values("id", ignore_index=True), rows.sort_values("id", ignore_index=True), check_dtype=False
    )


def test_arrow_files_are_a_table_to_duckdb(out: str) -> None:
    MicroBatch(out, WORDS, {"fileFormat": "arrow"}).run(0, [[{"word": "a"}], [{"word": "b"}]])
    files = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in parts(out)])
    assert duckdb.from_arrow(files).filter("word = 'b'").fetchall() == [("b",)]


def test_orc_files_are_a_table_to_arrow(out: str) -> None:
    MicroBatch(out, WORDS, {"fileFormat": "orc"}).run(0, [[{"word": "a"}, {"word": None}]])
    assert orc.read_table(parts(out)[0]).to_pylist() == [{"word": "a"}, {"word": None}]


@pytest.mark.slow
def test_another_codec_is_another_encoding(out: str) -> None:
    """Segments of one are not put into a file of the other."""
    for number, compression in enumerate(["zstd", "snappy"]):
        query = stream(out, "avro", compression=compression, rolling="policy")
        query.run(number, [rows_of(EVENTS, number, 3)])
    ftfile.flush(out)
    codecs = set()
    for path in parts(out):
        with path.open("rb") as file:
            codecs.add(fastavro.reader(file).codec)
    assert codecs == {"zstandard", "snappy"}
    assert format_from_options("avro", {}).extension == ".avro"


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_cut_of_a_part_is_noticed(tmp_path: Path, file_format: str) -> None:
    """Also where the format itself would read the remaining content."""
    out = tmp_path / "out"
    more = {"nullValue": "-"} if file_format == "csv" else {}
    options = {"fileFormat": file_format, "compression": "none", **more}
    MicroBatch(str(out), WORDS, options).run(0, [[{"word": word} for word in ("some", "words")]])
    (file,) = (path for path in out.iterdir() if path.is_file())
    content, directory = file.read_bytes(), ftfile.open(str(out))
    for end in range(len(content)):
        file.write_bytes(content[:end])
        with pytest.raises(CorruptData, match=file.name):
            directory.to_arrow()
    file.write_bytes(content)
    assert directory.to_arrow()["word"].to_pylist() == ["some", "words"]
