"""Selected columns and rows of a read are equal to all rows filtered by pyarrow."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, SchemaError
from ftfile.formats.api import RowFilter, Wanted
from ftfile.formats.parquet_files import ParquetFormat
from ftfile.formats.parts import read_add
from ftfile.log.format import layout
from ftfile.rows.conditions import predicate
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FORMATS = ["arrow", "avro", "csv", "json", "orc"]
NOON = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
DAYS = [date(2024, 7, 1), date(2024, 7, 2), None]
ROWS = [
    {"id": 10 * day + each, "word": None if each == 1 else f"w{each}", "x": each / 2, "at": NOON, "day": DAYS[day]}
    for day in range(3)
    for each in range(3)
]
TYPES = {"id": "long", "word": "string", "x": "double", "at": "timestamp", "day": "date"}
COLUMNS: list[Sequence[str] | None] = [None, ["word", "id"], ["day"], []]
CONDITIONS: list[Any] = [
    None,
    {"day": "2024-07-02"},
    {"day": None, "word": ["w0", None]},
    "id >= 11 AND day IS NOT NULL",
    "day = '2024-07-01' OR word = 'w2'",
    "at > '2024-07-01 12:00:00'",
    pc.field("x") > 0.5,
    pc.field("day").is_null() & (pc.field("id") != 21),
    pc.scalar(True),
]


def written(out: str, **options: str) -> str:
    """Write three directories of a partition column in two batches."""
    query = MicroBatch(out, TYPES, {"partitionBy": "day"} | options)
    for batch in range(2):
        query.run(batch, [ROWS[batch::2]])
    return out


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.slow
@pytest.mark.parametrize("where", CONDITIONS, ids=str)
def test_rows_are_those_of_a_full_read_that_pyarrow_filters(tmp_path: Path, where: Any) -> None:
    compare(written(str(tmp_path), fileFormat="parquet"), where)


@pytest.mark.slow
@pytest.mark.parametrize("file_format", [*FORMATS, "open"])
def test_rows_of_each_format(tmp_path: Path, file_format: str) -> None:
    options = {"fileFormat": "json", "maxBatchesPerFile": "9"} if file_format == "open" else {"fileFormat": file_format}
    compare(written(str(tmp_path), **options), "id != 11 AND day IS NOT NULL")


def compare(out: str, where: Any) -> None:
    directory = ftfile.open(out)
    every = directory.to_arrow()
    assert every.num_rows == len(ROWS)
    condition = predicate(where, every.schema)
    rows = every if condition is None else every.filter(condition)
    assert directory.count(where=where) == rows.num_rows
    for columns in COLUMNS:
        expected = rows if columns is None else rows.select(columns)
        read = directory.to_arrow(columns=columns, where=where)
        assert (read.schema, read.num_rows) == (expected.schema, rows.num_rows)
        batches = directory.to_batches(columns=columns, where=where)
        assert batches.schema == expected.schema
        again = list(batches)
        assert sum(batch.num_rows for batch in again) == rows.num_rows
        if columns != []:
            table = pa.Table.from_batches(again, expected.schema)
            assert sorted_rows(read) == sorted_rows(table) == sorted_rows(expected)


@pytest.mark.slow
def test_rows_keep_their_order_whichever_thread_is_first(tmp_path: Path) -> None:
    out = str(tmp_path)
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "parquet"})
    for batch in range(4):
        query.run(batch, [[{"id": 20 * batch + 2 * task + each} for each in (0, 1)] for task in range(10)])
    assert ftfile.open(out).to_arrow(where="id != 7")["id"].to_pylist() == [each for each in range(80) if each != 7]
    assert ftfile.open(out).count(2) == 60


@parametrize(
    ("arguments", "text"),
    [
        (
            {"columns": ["Idd"]},
            "columns: there is no column 'Idd': did you mean 'id'\\? The columns are: id, word, x, at, day",
        ),
        ({"columns": ["zzz"]}, "there is no column 'zzz'. The columns are: id"),
        ({"columns": ["id.a"]}, r"there is no column 'id\.a': did you mean 'id'\?"),
        ({"columns": ["id", "id"]}, "columns: 'id' is named twice"),
        ({"where": {"what": 1}}, "'what' is not one of the columns, which are id, word, x, at, day"),
        ({"where": "id ="}, "where"),
        ({"where": pc.field("what") == 1}, "which are id, word, x, at, day"),
        ({"where": pc.field(0) == 1}, "refers to a column by its number: use its name"),
        ({"where": 7}, "where=7 is not a condition: it takes values by column"),
        ({"version": 7}, "there is no version 7: the newest is 0, the oldest 0"),
    ],
    ids=str,
    quick=5,
)
def test_what_names_nothing_is_an_error_at_once(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    MicroBatch(str(tmp_path), TYPES, {"fileFormat": "json"}).run(0, [ROWS])
    directory = ftfile.open(tmp_path)
    for call in (directory.to_arrow, directory.to_batches, *([] if "columns" in arguments else [directory.count])):
        with pytest.raises(ConfigError, match=text):
            call(**arguments)


def test_a_field_comes_with_its_column(tmp_path: Path) -> None:
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    pairs: list[dict[str, Any]] = [{"pair": {"a": 1}}, {"pair": None}]
    MicroBatch(str(tmp_path), {"pair": {"type": "struct", "fields": [field]}}).run(0, [pairs])
    directory = ftfile.open(tmp_path)
    with pytest.raises(
        ConfigError, match=r"columns: 'Pair\.a' is a field of a column: select 'pair', which contains it"
    ):
        directory.to_arrow(columns=["Pair.a"])
    assert directory.to_arrow(columns=["pair"], where=pc.field("pair", "a") == 1).to_pylist() == pairs[:1]


class TestFilesThatAreNotOpened:
    @pytest.fixture
    def calls(self) -> Iterator[FaultyFileSystem]:
        """Write ten parts in five directories, and return the storage, which records the later calls."""
        fs = FaultyFileSystem(CrashingFileSystem())
        with mounted(fs) as url:
            query = MicroBatch(url, {"id": "long", "month": "integer"}, {"fileFormat": "json", "partitionBy": "month"})
            for batch in range(2):
                query.run(batch, [[{"id": 10 * batch + month, "month": month} for month in range(5)]])
            self.url = url
            fs.calls.clear()
            yield fs

    def opened(self, calls: FaultyFileSystem) -> list[str]:
        names = sorted(call.path for call in calls.calls if call.operation == "open")
        return sorted({layout.parent(name) for name in names if not name.startswith("_ftfile")})

    @parametrize(
        ("arguments", "opened"),
        [
            ({"where": {"month": 3}}, ["month=3"]),
            ({"where": "month >= 3"}, ["month=3", "month=4"]),
            ({"where": "month > 3 OR id = 1"}, [f"month={month}" for month in range(5)]),
            ({"where": "month > 3 AND id > 1"}, ["month=4"]),
            ({"where": pc.field("month") + 1 == 2}, ["month=1"]),
            ({"where": {"month": 9}}, []),
            ({"columns": ["month"]}, []),
            ({"columns": []}, []),
            ({"columns": ["month"], "where": "month < 2"}, []),
            ({"columns": ["month"], "where": "month < 2 AND id > 0"}, ["month=0", "month=1"]),
        ],
        ids=str,
        quick=2,
    )
    def test_of_partitions_that_cannot_match(
        self, calls: FaultyFileSystem, arguments: dict[str, Any], opened: list[str]
    ) -> None:
        directory = ftfile.open(self.url)
        every = directory.to_arrow()
        calls.calls.clear()
        found = directory.to_arrow(**arguments)
        assert self.opened(calls) == opened
        condition = predicate(arguments.get("where"), every.schema)
        assert found.num_rows == (every if condition is None else every.filter(condition)).num_rows

    @pytest.mark.parametrize(
        ("where", "rows"), [(None, 10), ({"month": 3}, 2), ("month != 3", 8), ("month IS NULL", 0)], ids=str
    )
    def test_to_count_rows(self, calls: FaultyFileSystem, where: Any, rows: int) -> None:
        assert ftfile.open(self.url).count(where=where) == rows
        assert self.opened(calls) == []


class TestColumnsThatAreNotRead:
    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["orc", "parquet"])
    def test_of_formats_by_columns(self, file_format: str) -> None:
        fs, numbers = MeteredFileSystem(CrashingFileSystem()), random.Random(7)
        names = list("abcdef")
        rows = [{name: numbers.getrandbits(62) for name in names} for _ in range(20_000)]
        with mounted(fs) as url:
            MicroBatch(url, dict.fromkeys(names, "long"), {"fileFormat": file_format}).run(0, [rows])
            directory = ftfile.open(url)
            directory.version()
            sizes = {}
            for columns, where in ((None, None), (["c"], None), (["c"], "c > 0"), (["c"], "d > 0")):
                before = fs.counters.bytes_read
                assert directory.to_arrow(columns=columns, where=where).num_rows == len(rows)
                sizes[str((columns, where))] = fs.counters.bytes_read - before
        every, one, same, two = sizes.values()
        assert max(one, same) < 0.4 * every  # one of six groups, the footer, and the read-ahead
        assert two < 0.6 * every


class TestRowGroups:
    SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("word", pa.string())])

    def file(self, monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
        """Return a file of ten row groups of ten rows each; `x` is 3 or NaN."""
        monkeypatch.setattr("ftfile.formats.columnar.CollectingEncoder.group_rows_max", 10)
        rows = {"id": range(100), "x": [3.0, float("nan")] * 50, "word": [f"w{number // 10}" for number in range(100)]}
        out = _Target()
        encoder = ParquetFormat().encoder(self.SCHEMA, out)
        encoder.write(pa.RecordBatch.from_pydict(rows, self.SCHEMA))
        encoder.finish()
        return io.BytesIO(bytes(out.data))

    @pytest.mark.parametrize(
        ("where", "left_out"),
        [
            ("id >= 75", 70),
            ("id IN (3, 33)", 80),
            ("word = 'w4'", 90),
            ("word IS NULL", 100),
            ("id >= 75 OR word = 'w0'", 60),
            (pc.field("x") != 3.0, 0),
            ("id >= 75 AND x > 5", 0),
            (pc.field("month") == 3, 100),
            ((pc.field("month") == 2) & (pc.field("id") < 10), 90),
        ],
        ids=str,
    )
    def test_that_cannot_match_are_left_out(self, monkeypatch: pytest.MonkeyPatch, where: Any, left_out: int) -> None:
        schema = self.SCHEMA.append(pa.field("month", pa.int32()))
        condition = predicate(where, schema)
        assert condition is not None
        row_filter = RowFilter(condition, schema, pc.field("month") == 2)
        if "x" not in str(where):
            row_filter = RowFilter(condition, schema.remove(1), pc.field("month") == 2)
        file = self.file(monkeypatch)
        found, batches = ParquetFormat().decode_some(file, self.SCHEMA, Wanted(row_filter))
        rows = pa.Table.from_batches(batches, self.SCHEMA)
        assert (found, rows.num_rows) == (left_out, 100 - left_out)

    def test_of_columns_that_the_file_has_in_another_type_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schema = pa.schema([("id", pa.float64())])
        row_filter = RowFilter(pc.field("id") > 75.5, schema)
        found, batches = ParquetFormat().decode_some(self.file(monkeypatch), schema, Wanted(row_filter))
        assert (found, sum(batch.num_rows for batch in batches)) == (0, 100)

    def test_that_are_damaged_are_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        row_filter = RowFilter(pc.field("id") > 75, pa.schema([("id", pa.int64())]))
        with pytest.raises(CorruptData, match="a Parquet file"):
            ParquetFormat().decode_some(io.BytesIO(b"PAR1 nothing PAR1"), self.SCHEMA, Wanted(row_filter))
        content = bytearray(self.file(monkeypatch).getvalue())
        content[4:400] = bytes(396)
        every = RowFilter(pc.field("id") >= 0, pa.schema([("id", pa.int64())]))
        with pytest.raises(CorruptData, match="a Parquet file"):
            list(ParquetFormat().decode_some(io.BytesIO(bytes(content)), self.SCHEMA, Wanted(every))[1])


class _Target:
    def __init__(self) -> None:
        self.data = bytearray()

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.data += data
        return len(data)


def test_a_file_with_other_rows_is_an_error_also_where_row_groups_are_left_out(tmp_path: Path) -> None:
    out = str(tmp_path)
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{"id": 1}, {"id": 2}]])
    query.run(1, [[{"id": 3}]])
    first, second = ftfile.open(out).files()
    content = (tmp_path / second.path).read_bytes()
    (tmp_path / first.path).write_bytes(content.ljust(first.size_bytes, b"\0"))
    with pytest.raises(FtfileError):
        ftfile.open(out, statistics=False).to_arrow(where="id = 9")


def test_files_say_where_they_come_from_as_the_history_does(tmp_path: Path) -> None:
    out = str(tmp_path)
    options = {"fileFormat": "json", "partitionBy": "day,n"}
    query = MicroBatch(out, {"id": "long", "day": "date", "n": "integer"}, options)
    query.run(0, [[{"id": 1, "day": DAYS[0], "n": 7}]])
    query.run_batch_write("some-job", [[{"id": 2, "day": None, "n": 8}]])
    stream, job = ftfile.open(out).files()
    assert (stream.query_id, stream.batch_id, stream.operation_id) == (query.query_id, 0, None)
    assert (stream.partition, stream.directory, stream.state) == (
        {"day": DAYS[0], "n": 7},
        "day=2024-07-01/n=7",
        "published",
    )
    assert (job.query_id, job.batch_id, job.operation_id) == (None, None, "some-job")
    assert job.partition == {"day": None, "n": 8}
    assert [version.operation_id for version in ftfile.open(out).history()] == [None, "some-job"]


@pytest.mark.slow
def test_columns_match_case_aside_as_conditions_do(tmp_path: Path) -> None:
    directory = ftfile.open(written(str(tmp_path / "out")))
    table = directory.to_arrow(columns=["ID", "Day"], where="Id = 1")
    assert table.column_names == ["id", "day"]
    with pytest.raises(ConfigError, match="columns: 'ID' is named twice"):
        directory.to_arrow(columns=["id", "ID"])


@pytest.mark.parametrize("options", [{}, {"fileFormat": "json"}, {"partitionBy": "id"}])
def test_an_expression_that_fails_on_values_names_column_and_version(tmp_path: Path, options: Any) -> None:
    MicroBatch(str(tmp_path), {"id": "long", "n": "long"}, options).run(0, [[{"id": 0, "n": 1}]])
    where = pc.divide(pc.scalar(1), pc.field("id")) > 0
    with pytest.raises(ConfigError, match=r"where: .* fails on values of 'id' in '.*' of version 0: divide by zero"):
        ftfile.open(str(tmp_path)).to_arrow(where=where)


DEEP = """
import sys
import pyarrow.compute as pc
import ftfile
where = pc.field("id") == 0
for number in range(int(sys.argv[2])):
    where = where | (pc.field("id") == number)
try:
    print(ftfile.open(sys.argv[1]).count(where=where))
except ftfile.errors.ConfigError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(("terms", "output"), [(1_900, "1"), (100_000, "where: an expression of more than 4000 ")])
def test_a_deep_expression_is_an_error_and_ends_no_process(tmp_path: Path, terms: int, output: str) -> None:
    MicroBatch(str(tmp_path), {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    ran = subprocess.run(
        [sys.executable, "-c", DEEP, str(tmp_path), str(terms)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout[: len(output)]) == (0, output), ran.stderr


@pytest.mark.slow
@pytest.mark.packages
def test_values_of_many_columns_are_one_condition(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(1_500)]
    MicroBatch(str(tmp_path), dict.fromkeys(names, "long"), {"fileFormat": "parquet"}).run(
        0, [[dict.fromkeys(names, 1)]]
    )
    directory = ftfile.open(str(tmp_path))
    assert directory.count(where=dict.fromkeys(names, 1)) == 1


@parametrize("options", [{}, {"partitionBy": "at"}], quick=1)
def test_times_without_an_offset_are_by_the_clocks_of_the_directory(tmp_path: Path, options: Any) -> None:
    columns, out = {"id": "long", "at": "timestamp"}, str(tmp_path)
    options = {"fileFormat": "parquet"} | options
    MicroBatch(out, columns, options | {"timeZone": "Europe/Berlin"}).run(0, [[{"id": 1, "at": NOON}]])
    directory = ftfile.open(out)
    naive = NOON.replace(hour=14, tzinfo=None)
    for where in (
        "at = '2024-07-01 14:00:00'",
        {"at": "2024-07-01 14:00:00"},
        {"at": naive},
        "at = '2024-07-01T12:00:00Z'",
    ):
        assert (directory.count(where=where), directory.to_arrow(where=where).num_rows) == (1, 1)
    assert directory.count(where="at = '2024-07-01 12:00:00'") == 0
    # As in a drop, a path is compared by the time zone of its files, and a timestamp column as one instant.
    options |= {"timeZone": "UTC", "onFormatChange": "accept"}
    MicroBatch(out, columns, options, "2").run_batch_write("job", [[{"id": 2, "at": NOON.replace(hour=14)}]])
    found = directory.to_arrow(where="at = '2024-07-01 14:00:00'")["id"].to_pylist()
    assert found == ([1, 2] if "partitionBy" in options else [2])
    if "partitionBy" in options:
        assert ftfile.drop(out, "at = '2024-07-01 14:00:00'").rows_removed == 2


@pytest.mark.parametrize("file_format", ["parquet", "json", "orc", "avro", "arrow"])
def test_values_beyond_the_types_asked_for_are_no_damage(tmp_path: Path, file_format: str) -> None:
    MicroBatch(str(tmp_path), {"id": "long"}, {"fileFormat": file_format}).run(0, [[{"id": 1 << 40}]])
    directory = ftfile.open(str(tmp_path))
    snapshot = directory.snapshot()
    (add,) = snapshot.adds.values()
    with pytest.raises(SchemaError, match=r"out of range for the requested types.* id int32, stored as int64"):
        list(
            read_add(
                directory.file_system, add, snapshot.definitions[add.encoding], pa.schema([pa.field("id", pa.int32())])
            )
        )


@pytest.mark.slow
def test_a_read_without_a_condition_looks_at_the_log_once(tmp_path: Path) -> None:
    fs = FaultyFileSystem(open_filesystem(written(str(tmp_path / "out"), fileFormat="arrow")))
    calls = []
    with mounted(fs) as url:
        for where in (None, {"id": 1}):
            directory = ftfile.open(url)
            directory.count()
            fs.calls.clear()
            directory.count(where=where)
            calls.append([call for call in fs.calls if layout.META in call.path])
    assert 0 < len(calls[0]) < len(calls[1]), calls
