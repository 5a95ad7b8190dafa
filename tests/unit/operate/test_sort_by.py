"""Compaction with an order of rows: the sorted files, the files that a read opens, errors and crashes."""

from __future__ import annotations

import datetime
import decimal
import io
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, OutcomeUnknown, Unavailable
from ftfile.operate.compact import compact_log
from ftfile.operate.rewriter import sorted_files, sorted_parts
from ftfile.operate.rewriter.row_order import Ranges, RowOrder
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem, fault_sweep
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ftfile.storage.api import FileSystem

COLUMNS = {"id": "long", "word": "string"}
NAN, INFINITY = float("nan"), float("inf")
DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime.fromisoformat("2024-01-01T12:00:00")


ROWS_OF: dict[str, Callable[[bytes], Iterable[str]]] = {
    "parquet": lambda content: map(repr, pq.read_table(io.BytesIO(content)).to_pylist()),
    "orc": lambda content: map(repr, orc.read_table(io.BytesIO(content)).to_pylist()),
    "avro": lambda content: map(repr, fastavro.reader(io.BytesIO(content))),
}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def storage() -> Iterator[tuple[str, FaultyFileSystem]]:
    fs = FaultyFileSystem(CrashingFileSystem())
    with mounted(fs) as url:
        yield url, fs


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide all rows into ranges, and spill each batch."""
    monkeypatch.setattr(sorted_parts, "HELD_BYTES", 0)
    monkeypatch.setattr(sorted_parts, "RANGE_STORED_BYTES", 300)
    monkeypatch.setattr(sorted_parts, "SAMPLE_ROWS", 200)


def write(url: str, values: list[Any], kind: Any = "long", files: int = 10, **options: str) -> None:
    """Distribute values among files, with unique words."""
    query = MicroBatch(url, {"id": kind, "word": "string"}, {"fileFormat": "json"} | options)
    rows = [{"id": value, "word": f"w{number}"} for number, value in enumerate(values)]
    query.run(0, [rows[task::files] for task in range(files)])


def ids(url: str) -> list[Any]:
    values: list[Any] = ftfile.open(url).to_arrow()["id"].to_pylist()
    return values


def shuffled(count: int, seed: int = 1) -> list[int]:
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    return numbers


def opened(fs: FaultyFileSystem) -> int:
    paths = {call.path for call in fs.calls if call.operation == "open" and not call.path.startswith("_ftfile")}
    return len(paths)


@pytest.mark.parametrize("file_format", ["json", "csv", "parquet", "orc", "avro"])
def test_few_of_many_files_are_opened_and_the_next_call_records_nothing(
    storage: tuple[str, FaultyFileSystem], file_format: str
) -> None:
    url, fs = storage
    write(url, shuffled(3000), files=100, fileFormat=file_format)
    length = sum(add.length for add in ftfile.open(url).snapshot().adds.values())
    report = ftfile.compact(url, sort_by="id", target_bytes=length // 20, context=current())
    assert (report.files_removed, report.rows, report.records) == (100, 3000, 1)
    directory = ftfile.open(url)
    fs.calls.clear()
    assert directory.to_arrow(where="id = 5").num_rows == 1
    assert 1 <= opened(fs) <= 2
    assert ids(url) == list(range(3000))
    assert ftfile.compact(url, sort_by="id", target_bytes=length // 20, context=current()).version is None
    assert directory.verify(full=True).ok
    check_directory(open_filesystem(url), rows_of=ROWS_OF.get(file_format, bytes.splitlines))


def test_bounds_are_read_from_compacted_logs(out: str) -> None:
    write(out, shuffled(1000))
    compact_log(out)
    assert ftfile.compact(out, sort_by="id", target_bytes=5000).files_removed == 10
    compact_log(out)
    assert ftfile.compact(out, sort_by="id", target_bytes=5000).version is None


def test_new_files_are_sorted_with_the_files_that_they_overlap_only(out: str) -> None:
    write(out, shuffled(1000))
    ftfile.compact(out, sort_by="id", target_bytes=2000)
    files = len(ftfile.open(out).files())
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    query.run_batch_write("job", [[{"id": 500, "word": "new"}]])
    report = ftfile.compact(out, sort_by="id", target_bytes=2000)
    assert report.files_removed == 2 < files
    assert sorted(ids(out)) == sorted([*range(1000), 500])


def test_rows_are_sorted_by_several_columns_and_names_follow(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    rows = [{"id": number % 3, "word": f"w{number:04}"} for number in shuffled(1000)]
    query.run(0, [rows[task::20] for task in range(20)])
    for _ in range(2):
        report = ftfile.compact(out, sort_by=["ID", "word"], target_bytes=3000)
    assert report.version is None
    result = ftfile.open(out).to_arrow().to_pylist()
    assert result == sorted(rows, key=lambda row: (row["id"], row["word"]))
    paths = [add.final_path or "" for add in ftfile.open(out).snapshot().adds.values()]
    assert paths == sorted(paths)


VALUES: list[tuple[Any, list[Any]]] = [
    ("long", [None, *range(-50, 50)]),
    ("double", [None, -1.5, -0.0, 0.0, 0.5, 1e300, INFINITY, NAN]),
    ("double", [None, -INFINITY, -1.5, -0.0, 0.0, 0.5, 1e300]),
    ("float", [None, -1.5, 0.25, 8.5, NAN]),
    ("string", [None, "", "B", "a", *("x" * 40 + letter for letter in "abc"), "é", "\U0001f600"]),
    ("date", [None, *(DAY + datetime.timedelta(days=number) for number in range(40))]),
    ("timestamp_ntz", [None, *(NOON + datetime.timedelta(hours=hour) for hour in range(24))]),
    ("boolean", [None, False, True]),
    ("decimal(9,2)", [None, *(decimal.Decimal(number).scaleb(-2) for number in range(-20, 20))]),
    ("long", [7]),
]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_every_type_has_nulls_first_and_nan_last(out: str, kind: str, values: list[Any]) -> None:
    drawn = random.Random(2).choices(values, k=400)
    write(out, drawn, kind, fileFormat="parquet")
    order = {repr(value): place for place, value in enumerate(values)}
    order[repr(-0.0)] = order.get(repr(0.0), 0)
    ftfile.compact(out, sort_by="id", target_bytes=1500)
    result = [order[repr(value)] for value in ids(out)]
    assert result == sorted(order[repr(value)] for value in drawn)
    assert ftfile.compact(out, sort_by="id", target_bytes=1500).version is None


def test_files_with_infinity_at_both_ends_are_sorted_if_they_are_small(out: str) -> None:
    write(out, [-INFINITY, 1.5, NAN, 0.5, INFINITY, -1.5] * 10, "double", files=5)
    length = max(add.length for add in ftfile.open(out).snapshot().adds.values())
    assert ftfile.compact(out, sort_by="id", target_bytes=2 * length).version is None
    assert ftfile.open(out).to_arrow(where="id = 1.5").num_rows == 10
    assert ftfile.compact(out, sort_by="id", target_bytes=5 * length).files_removed == 5
    assert [repr(value) for value in ids(out)][::10] == ["-inf", "-1.5", "0.5", "1.5", "inf", "nan"]


def test_files_without_statistics_are_sorted_with_all_files(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(out, shuffled(200))
    ftfile.compact(out, sort_by="id", target_bytes=2000)
    monkeypatch.setattr("ftfile.log.format.file_statistics.RANGE_STATISTICS_MAX", 0)
    compact_log(out)
    files = len(ftfile.open(out).files())
    assert ftfile.compact(out, sort_by="id", target_bytes=2000).files_removed == files > 1
    assert ids(out) == list(range(200))


def test_cut_text_is_not_one_value(out: str) -> None:
    """Two files with the same recorded bounds, which are cut, differ in the first column, so the second is not used."""
    query = MicroBatch(out, {"id": "string", "word": "string"}, {"fileFormat": "json"})
    rows = [{"id": "x" * 40 + letter, "word": word} for letter, word in ("az", "ba")]
    query.run(0, [rows[:1] * 50, rows[1:] * 50])
    assert ftfile.compact(out, sort_by="id, word", target_bytes=1000).version is None
    assert ids(out) == [row["id"] for row in rows for _ in range(50)]


def test_each_directory_and_each_encoding_for_itself(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
    for batch in range(3):
        query.run(batch, [[{"id": number, "word": word} for number in (9, batch) for word in "ab"]])
    MicroBatch(out, COLUMNS, {"fileFormat": "json", "compression": "gzip", "partitionBy": "word"}).run_batch_write(
        "job", [[{"id": 1, "word": "a"}]]
    )
    assert ftfile.compact(out, {"word": "a"}, sort_by="id").files_removed == 3
    assert ftfile.compact(out, sort_by="id").files_removed == 3
    assert sorted(ids(out)) == sorted([1, *([9, 9, 9, 0, 1, 2] * 2)])
    check_directory(open_filesystem(out))


def test_a_plan_writes_nothing_and_records_are_on_the_way(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_files, "SORTED_BYTES", 1000)
    write(out, shuffled(200))
    plan = ftfile.compact(out, sort_by="id", target_bytes=400, dry_run=True)
    assert (plan.files_removed, plan.rows, ftfile.open(out).version()) == (10, 200, 0)
    assert ftfile.compact(out, sort_by="id", target_bytes=400, commit_every=1).records > 1
    assert sorted(ids(out)) == list(range(200))


def test_several_calls_sort_more_rows_than_one_piece_has(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_files, "SORTED_BYTES", 3000)
    write(out, shuffled(1000))
    calls = 0
    while ftfile.compact(out, sort_by="id", target_bytes=800).version is not None:
        calls += 1
    assert 1 < calls < 8
    assert sorted(ids(out)) == list(range(1000))
    bounds = [(file.statistics or {})["id"] for file in ftfile.open(out).files(statistics=True)]
    assert sum(column.low <= 500 <= column.high for column in bounds) == 1


@pytest.mark.parametrize(
    ("sort_by", "reason"),
    [
        ("id DESC", "leave out DESC: rows are always in ascending order"),
        ("nothing", "there is no such column. Columns are id, word, list, day"),
        ("day", "leave out this column of the path"),
        ("list", "files have no bounds of the type list"),
        ("word", "the log has no statistics of the files for these columns"),
        ("", "name columns, such as 'day, id'"),
        ("id,", "name columns, such as 'day, id'"),
        ([], "name columns, such as 'day, id'"),
        (["id", "ID"], "each column is named once"),
    ],
)
def test_a_column_without_an_order_of_files_is_an_error(out: str, sort_by: Any, reason: str) -> None:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    columns = {"id": "long", "word": "string", "list": array, "day": "long"}
    query = MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "day", "statisticsColumns": "id"})
    query.run(0, [[{"id": 1, "word": "a", "list": [], "day": 1}]])
    with pytest.raises(ConfigError, match="sort_by") as error:
        ftfile.compact(out, sort_by=sort_by)
    assert reason in str(error.value)


class TestFailures:
    def test_rows_that_do_not_come_back_are_an_error(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def sort(_: RowOrder, rows: pa.RecordBatch) -> pa.RecordBatch:
            return rows.take(pa.array([0] * rows.num_rows))

        write(out, shuffled(50))
        monkeypatch.setattr(RowOrder, "sort", sort)
        with pytest.raises(CorruptData, match="the rows of the merged parts"):
            ftfile.compact(out, sort_by="id")
        assert sorted(ids(out)) == list(range(50))

    @pytest.mark.usefixtures("small_pieces")
    def test_a_part_that_was_changed_is_an_error_and_the_others_are_sorted(self, out: str) -> None:
        write(out, shuffled(200))
        first, *_ = (add.final_path or "" for add in ftfile.open(out).snapshot().adds.values())
        Path(out, first).write_bytes(b"{}\n")
        with pytest.raises(CorruptData):
            ftfile.compact(out, sort_by="id", target_bytes=1000)
        assert ftfile.open(out).version() == 1

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.slow
    @pytest.mark.parametrize("effect", ["before", "after"])
    def test_an_error_at_any_call_loses_no_row(self, effect: Any) -> None:
        def made() -> CrashingFileSystem:
            fs = CrashingFileSystem()
            with mounted(fs) as url:
                write(url, shuffled(30), files=3)
            return fs

        def scenario(fs: FileSystem) -> None:
            with mounted(fs) as url:
                ftfile.compact(url, sort_by="id", target_bytes=200, threads=1, context=current())

        error = Unavailable if effect == "before" else OutcomeUnknown
        runs = 0
        for run in fault_sweep(Fault(error, effect), made, scenario, step=3):
            with mounted(run.file_system) as url:
                check_directory(open_filesystem(url))
                assert sorted(ids(url)) == list(range(30)), run
                ftfile.compact(url, sort_by="id", target_bytes=200, context=current())
                assert ids(url) == list(range(30)), run
            runs += 1
        assert runs > 10


class TestMemory:
    def test_is_bounded_by_the_ranges(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sorted_parts, "HELD_BYTES", 1 << 19)
        monkeypatch.setattr(sorted_parts, "RANGE_BYTES", 1 << 19)
        sizes = []
        sort = RowOrder.sort

        def measured(self: RowOrder, rows: pa.RecordBatch) -> pa.RecordBatch:
            sizes.append(rows.nbytes)
            return sort(self, rows)

        monkeypatch.setattr(RowOrder, "sort", measured)
        query = MicroBatch(out, COLUMNS, {"fileFormat": "parquet"})
        rows = [{"id": number, "word": "x" * 100} for number in shuffled(60_000)]
        query.run(0, [rows[task::10] for task in range(10)])
        ftfile.compact(out, sort_by="id", threads=1)
        assert len(sizes) > 10
        assert max(sizes) < 1 << 20
        assert ids(out) == list(range(60_000))

    @pytest.mark.usefixtures("small_pieces")
    def test_rows_of_one_value_are_not_sorted_at_once(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = []
        sort = RowOrder.sort

        def measured(self: RowOrder, rows: pa.RecordBatch) -> pa.RecordBatch:
            sizes.append(rows.num_rows)
            return sort(self, rows)

        monkeypatch.setattr(RowOrder, "sort", measured)
        write(out, [5] * 900 + list(range(100)))
        ftfile.compact(out, sort_by="id", target_bytes=2000)
        assert ids(out) == sorted([5] * 900 + list(range(100)))
        assert sum(sizes) <= 110


def test_ranges_are_consecutive_and_rows_keep_their_order() -> None:
    generator = random.Random(3)
    order = RowOrder(("v",), 1)
    for _ in range(200):
        values = generator.choices([None, NAN, -1.0, 0.0, 2.0, 3.5], k=generator.randrange(1, 60))
        batch = pa.RecordBatch.from_pydict({"v": pa.array(values, pa.float64()), "n": range(len(values))})
        ranges = Ranges(order, batch, generator.randrange(1, 12))
        divided = dict(ranges.divide(batch))
        rows = pa.Table.from_batches([divided[number] for number in sorted(divided)])
        assert rows["n"].to_pylist() == order.sort(batch)["n"].to_pylist()
        for number, some in divided.items():
            assert not ranges.is_constant(number) or len({repr(value) for value in some["v"].to_pylist()}) == 1
