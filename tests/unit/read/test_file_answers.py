"""Reads with a condition open only the files whose statistics allow matching rows."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec import structs

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log.format.model import Add, Origin
from ftfile.log.read.snapshot import Snapshot
from ftfile.operate.rewriter.pieces import pieces_of
from ftfile.read.file_answers import StatisticsReader
from ftfile.read.shares import pack
from ftfile.rows.bounds.guarantees import FILES_MAX
from ftfile.rows.spark_types import recorded_schema
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch, spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.operate.open_directory import OpenedDirectory

COLUMNS = {"id": "long", "text": "string", "v": "double"}
NOON = datetime.datetime.fromisoformat("2024-07-01T12:00:00")
LONG_TEXTS = ["x" + "é" * 100, "é" * 100]


@pytest.fixture
def storage() -> Iterator[tuple[str, FaultyFileSystem]]:
    fs = FaultyFileSystem(CrashingFileSystem())
    with mounted(fs) as url:
        yield url, fs


def opened(fs: FaultyFileSystem) -> int:
    """Return the number of opened files since the last call."""
    paths = {call.path for call in fs.calls if call.operation == "open" and not call.path.startswith("_ftfile")}
    fs.calls.clear()
    return len(paths)


def write(url: str, files: int, batches: int = 1, **options: str) -> OpenedDirectory:
    """Write files of ten rows; `id` increases from file to file."""
    query = MicroBatch(url, COLUMNS, {"maxRecordsPerFile": "10"} | options)
    rows = [{"id": number, "text": f"row {number:05d}", "v": number / 7} for number in range(10 * files)]
    of_a_batch = len(rows) // batches
    for batch in range(batches):
        query.run(batch, [rows[batch * of_a_batch : (batch + 1) * of_a_batch]])
    return ftfile.open(url)


FEW_OPENED = [
    ("id = 5", 1, 1),
    ("id BETWEEN 5 AND 7", 3, 1),
    ("text = 'row 00007'", 1, 1),
    ("v < 0.1", 1, 1),
    ("id = 5 OR text = 'zzz'", 1, 1),
    ("NOT (id >= 3)", 3, 1),
    ({"id": [5, 15, None]}, 2, 2),
    ("id IS NULL", 0, 0),
    ("id > 5 AND id < 3", 0, 1),
    (pc.field("id") == 5, 1, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["json", "csv", "parquet", "orc", "avro"])
def test_one_of_a_thousand_files_is_opened(storage: tuple[str, FaultyFileSystem], file_format: str) -> None:
    url, fs = storage
    directory = write(url, 1_000, fileFormat=file_format)
    assert len(directory.snapshot().adds) == 1_000
    fs.calls.clear()
    for where, rows, files in FEW_OPENED:
        assert directory.to_arrow(where=where).num_rows == rows, where
        assert opened(fs) == files, where
    counts = {"id < 505": (505, 1), "id < 500": (500, 0), "id >= 0": (10_000, 0), "id IS NULL": (0, 0)}
    for where, (rows, files) in counts.items():
        assert directory.count(where=where) == rows
        assert opened(fs) == files, where


def test_every_call_opens_only_possible_files(storage: tuple[str, FaultyFileSystem]) -> None:
    url, fs = storage
    directory = write(url, 20, batches=2, fileFormat="json")
    fs.calls.clear()
    for where, rows, files in FEW_OPENED:
        for read in (directory.to_arrow, directory.tail, lambda where: directory.to_batches(where=where).read_all()):
            assert read(where=where).num_rows == rows, where
            assert opened(fs) == files, where
    assert directory.count(where="id < 105") == 105
    assert opened(fs) == 1
    assert ftfile.open(url, statistics=False).count(where="id < 105") == 105
    assert opened(fs) == 20


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_delete_reads_only_files_that_lose_some_rows(storage: tuple[str, FaultyFileSystem], dry_run: bool) -> None:
    url, fs = storage
    directory = write(url, 20, fileFormat="parquet")
    before = {file.path for file in directory.files()}
    fs.calls.clear()
    report = ftfile.delete(url, "id < 95", dry_run=dry_run)
    assert (report.rows_removed, report.files_removed, report.files_written) == (95, 10, 1)
    reads = {call.path for call in fs.calls if call.operation == "open" and call.path in before}
    assert reads == {sorted(before)[9]}
    assert directory.count() == (200 if dry_run else 105)


@pytest.mark.parametrize("rival", ["log is compacted", "files are compacted", "files are dropped"])
def test_files_of_matching_rows_are_removed_if_another_commit_is_first(
    monkeypatch: pytest.MonkeyPatch, rival: str
) -> None:
    inner = CrashingFileSystem()
    with mounted(inner) as url:
        directory = write(url, 4, fileFormat="json")

    def commit_first() -> None:
        with mounted(inner) as url:
            if rival == "files are compacted":
                ftfile.compact(url)
            elif rival == "files are dropped":
                ftfile.delete(url, "id < 10")
            else:
                monkeypatch.setattr("ftfile.log.publish.COMPACTED_BYTES", 1)
                query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "onNewQuery": "continue"}, "another")
                query.run(0, [[{"id": 99}]])
                query.run(1, [[{"id": 99}]])

    with mounted(_First(inner, commit_first)) as url:
        ftfile.delete(url, "id < 15", context=current())
    with mounted(inner) as url:
        directory = ftfile.open(url)
        ids = [number for number in directory.to_arrow()["id"].to_pylist() if number != 99]
        assert sorted(ids) == [*range(15, 40)]
        check_directory(open_filesystem(url))


class _First(WrapperFileSystem):
    """Calls a function before the first record is created."""

    def __init__(self, inner: CrashingFileSystem, commit_first: Callable[[], None]) -> None:
        super().__init__(inner)
        self._waiting = [commit_first]

    def create_exclusive(self, path: str, content: bytes) -> None:
        while path.endswith(".record") and self._waiting:
            self._waiting.pop()()
        super().create_exclusive(path, content)


def test_rows_with_nulls_do_not_match_with_the_other_rows_of_their_file(tmp_path: Any) -> None:
    url = str(tmp_path)
    MicroBatch(url, COLUMNS, {}).run(0, [[{"id": 1, "text": None}, {"id": None, "text": None}, {"id": 3}]])
    directory = ftfile.open(url)
    for where, rows in (("id < 9", 2), ("id IS NULL", 1), ("id IS NOT NULL", 2), ("text IS NULL", 3), ("id = 9", 0)):
        assert directory.count(where=where) == rows
    assert ftfile.delete(url, "id < 9").rows_removed == 2
    assert directory.to_arrow()["id"].to_pylist() == [None]


def test_a_missing_column_is_unknown(tmp_path: Any) -> None:
    url = str(tmp_path)
    query = MicroBatch(url, {"id": "long"}, {"fileFormat": "json", "onSchemaChange": "any"})
    query.run(0, [[{"id": 1}]])
    query.columns = {"id": "long", "more": "long"}
    query.run(1, [[{"id": 2, "more": 7}]])
    directory = ftfile.open(url)
    for where, ids in (("more IS NULL", [1]), ("more = 7", [2]), ("more != 7", []), ("id = 1 AND more IS NULL", [1])):
        assert directory.to_arrow(where=where)["id"].to_pylist() == ids
        assert directory.count(where=where) == len(ids)


@pytest.mark.parametrize(
    ("before", "after", "value", "where"),
    [
        ("date", "timestamp_ntz", datetime.date(2024, 7, 1), "x >= TIMESTAMP '2024-01-01 00:00:00'"),
        ("long", "timestamp_ntz", 20_000, "x >= TIMESTAMP '2024-01-01 00:00:00'"),
        ("long", "date", 5, "x > DATE '2024-01-01'"),
        ("timestamp_ntz", "timestamp", NOON, "x < TIMESTAMP '2024-01-01 00:00:00'"),
        ("double", "float", 0.1, "x > 0.1"),
        ("string", "decimal(5,2)", "9", "x > 10"),
        ("long", "double", 2**53 + 1, "x < 9007199254740993"),
    ],
)
def test_a_column_that_files_have_by_another_type_is_unknown_everywhere(
    before: str, after: str, value: Any, where: str
) -> None:
    old, new = ({"x": before}, {"x": value}), ({"x": after}, {"x": None})
    snapshot, recorded = snapshot_of(old, new)
    reader = StatisticsReader(snapshot, where, recorded=recorded, filtered=recorded, time_zone="UTC")
    assert chosen(reader) == {"0": False, "1": False}


@pytest.mark.parametrize(("before", "after"), [("long", "long"), ("byte", "long"), ("date", "date")])
def test_a_column_of_equal_types_or_of_whole_numbers_is_compared(before: str, after: str) -> None:
    value = datetime.date(1970, 1, 6) if before == "date" else 5
    snapshot, recorded = snapshot_of(({"x": before}, {"x": value}), ({"x": after}, {"x": None}), ({"y": "long"}, {}))
    literal = "DATE '1970-01-06'" if before == "date" else "5"
    for where, expected in (
        (f"x > {literal}", {"2": False}),
        (f"x = {literal}", {"0": True, "2": False}),
        ("x IS NULL", {"1": True, "2": False}),
    ):
        reader = StatisticsReader(snapshot, where, recorded=recorded, filtered=recorded, time_zone="UTC")
        assert chosen(reader) == expected, where


def test_an_entry_of_another_length_is_unknown() -> None:
    snapshot, recorded = snapshot_of(({"x": "long"}, {"x": 5}))
    add = snapshot.adds["0"]
    for entry, possible in (([1, 5, 0], False), ([1, 5], True), ([], True), ([1, 5, 0, 0], True)):
        changed = replace(snapshot, adds={"0": structs.replace(add, statistics={"x": entry})})
        reader = StatisticsReader(changed, "x = 7", recorded=recorded, filtered=recorded, time_zone="UTC")
        assert bool(chosen(reader)) == possible


def test_an_expression_is_compared_with_at_most_20_000_files() -> None:
    snapshot, recorded = snapshot_of(({"x": "long"}, {"x": 5}))
    adds = [*snapshot.adds.values()]
    for files, possible in ((FILES_MAX, False), (FILES_MAX + 1, True)):
        many = Snapshot(
            version=0,
            schema=None,
            definitions=snapshot.definitions,
            adds={str(number): adds[0] for number in range(files)},
        )
        reader = StatisticsReader(many, pc.field("x") == 7, recorded=recorded, filtered=recorded, time_zone="UTC")
        assert bool(chosen(reader)) == possible


def chosen(reader: StatisticsReader) -> dict[str, bool]:
    """Return the ids of the possible adds, each with True if all of its rows match."""
    return {add.id: is_certain for add, is_certain in reader.list_possible(CrashingFileSystem())}


def snapshot_of(*files: tuple[dict[str, str], dict[str, Any]]) -> tuple[Snapshot, pa.Schema]:
    """Return a snapshot of files with one row each, by their columns and values, and the columns of the second file."""
    definitions, adds = {}, {}
    for number, (columns, row) in enumerate(files):
        encoding = spark_schema(columns)
        definitions[f"e{number}"] = {"schema": encoding, "partitionBy": [], "timeZone": "UTC", "format": {}}
        schema = recorded_schema(encoding)
        statistics = {
            name: (_bound(value, schema), _bound(value, schema), int(value is None)) for name, value in row.items()
        }
        adds[str(number)] = Add(
            id=str(number),
            kind="part",
            path=f"{number}",
            final_path=f"{number}",
            length=1,
            logical_length=1,
            checksum="",
            rows=1,
            directory_key="",
            encoding=f"e{number}",
            origin=Origin("query", 0, 0),
            statistics=statistics,
        )
    return Snapshot(version=0, schema=None, definitions=definitions, adds=adds), recorded_schema(
        spark_schema(files[min(1, len(files) - 1)][0])
    )


def _bound(value: Any, schema: pa.Schema) -> Any:
    """Return a value as the log contains it."""
    kind = schema.field("x").type
    if pa.types.is_temporal(kind):
        whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.scalar(value, kind).cast(whole).as_py()
    return value


def test_adds_of_tasks_have_no_statistics(tmp_path: Any) -> None:
    snapshot = write(str(tmp_path), 3, fileFormat="json").snapshot()
    adds = [*snapshot.adds.values()]
    assert all(add.statistics for add in adds)
    for share in pack(adds, snapshot.definitions):
        assert not any(piece.add.statistics for piece in share.ranges)
    for piece in pieces_of(adds, [adds]):
        assert not any(add.statistics for add in piece.inputs)
    assert adds[0].without_statistics().without_statistics().id == adds[0].id


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("expression", [True, False])
def test_a_condition_that_arrow_cannot_print(tmp_path: Any, statistics: bool, expression: bool) -> None:
    query = MicroBatch(str(tmp_path), {"s": "string", "n": "long"}, {"fileFormat": "json"})
    query.run(0, [[{"s": LONG_TEXTS[1], "n": 1}, {"s": "a", "n": 2}]])
    query.run(1, [[{"s": "b", "n": 3}]])
    directory = ftfile.open(tmp_path, statistics=statistics)
    where: Any = pc.field("s").isin(LONG_TEXTS) if expression else {"s": LONG_TEXTS}
    with pytest.raises(UnicodeDecodeError):
        str(pc.field("s").isin(LONG_TEXTS))
    assert directory.to_arrow(where=where)["n"].to_pylist() == [1]
    assert directory.count(where=where) == 1
    assert ftfile.delete(tmp_path, where).rows_removed == 1
    assert sorted(directory.to_arrow()["n"].to_pylist()) == [2, 3]


def test_an_error_about_a_condition_that_arrow_cannot_print(tmp_path: Any) -> None:
    MicroBatch(str(tmp_path), {"s": "string", "n": "long"}, {"fileFormat": "json"}).run(0, [[{"s": "a", "n": 2}]])
    directory = ftfile.open(tmp_path)
    unprintable = pc.field("s").isin(LONG_TEXTS)
    with pytest.raises(ConfigError, match="where: an expression with long texts is not a condition on the columns"):
        directory.to_arrow(where=unprintable & pc.field("x"))
    with pytest.raises(ConfigError, match="where: an expression with long texts fails on values of 's', 'n' in"):
        directory.to_arrow(where=~unprintable & (pc.divide(pc.field("n"), 0) == 1))
    with pytest.raises(ConfigError, match="refers to a column by its number"):
        directory.to_arrow(where=~unprintable & (pc.field(1) == 1))
