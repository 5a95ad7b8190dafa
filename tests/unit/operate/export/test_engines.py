"""The Delta and Iceberg readers of DuckDB and Polars read each exported version."""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.export.formats import duckdb_with, export, forget_follow_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection

pytestmark = pytest.mark.slow

UTC = datetime.timezone.utc
POINT = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]}
NUMBERS = {"type": "array", "elementType": "double", "containsNull": True}
COLUMNS = {
    "id": "long", "word": "string", "day": "date", "at": "timestamp", "much": "decimal(10,2)", "p": POINT, "a": NUMBERS,
    "yes": "boolean", "k": "string",
}  # fmt: skip
KEYS = ["a b", "x/y%=", "ü'", None]


def rows(first: int, count: int = 4) -> list[dict[str, Any]]:
    """Return rows of every partition; each third value is null."""
    return [_row(number) for number in range(first, first + count)]


def _row(number: int) -> dict[str, Any]:
    row = {
        "id": number, "word": f"w{number}", "day": datetime.date(2026, 1, 1 + number),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, number, tzinfo=UTC), "much": Decimal(number) / 4,
        "p": {"x": number}, "a": [number / 2, None], "yes": number % 2 == 0, "k": KEYS[number % len(KEYS)],
    }  # fmt: skip
    names = [*row][1:-1]
    return row | {name: None for place, name in enumerate(names) if (number + place) % 3 == 0}


def _rows(connection: DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = connection.execute(sql).to_arrow_table().to_pylist()
    return found


def duckdb_delta(url: str, version: int) -> list[dict[str, Any]]:
    connection = duckdb_with("delta")
    connection.execute(f"ATTACH '{url}' AS t (TYPE delta, VERSION {version})")
    try:
        return _rows(connection, "FROM t")
    finally:
        connection.execute("DETACH t")


def duckdb_iceberg(url: str, version: int) -> list[dict[str, Any]]:
    sql = f"FROM iceberg_scan('{_metadata(url)}', snapshot_from_id = {version + 1})"
    return _rows(duckdb_with("avro", "iceberg"), sql)


def polars_delta(url: str, version: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pytest.importorskip("polars").scan_delta(url, version=version).collect().to_dicts()
    return found


def polars_iceberg(url: str, version: int) -> list[dict[str, Any]]:
    scan = pytest.importorskip("polars").scan_iceberg(_metadata(url), snapshot_id=version + 1)
    found: list[dict[str, Any]] = scan.collect().to_dicts()
    return found


def deltalake(url: str, version: int) -> list[dict[str, Any]]:
    table = pytest.importorskip("deltalake").DeltaTable(url, version=version)
    found: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    return found


def pyiceberg(url: str, version: int) -> list[dict[str, Any]]:
    opened = pytest.importorskip("pyiceberg.table").StaticTable.from_metadata(f"{url}/_iceberg")
    found: list[dict[str, Any]] = opened.scan(snapshot_id=version + 1).to_arrow().to_pylist()
    return found


def _metadata(url: str) -> str:
    names = Path(url, "_iceberg/metadata").glob("v*.metadata.json")
    return str(max(names, key=lambda path: int(path.name[1:].partition(".")[0])))


READERS: dict[str, list[Callable[[str, int], list[dict[str, Any]]]]] = {
    "delta": [deltalake, duckdb_delta, polars_delta],
    "iceberg": [pyiceberg, duckdb_iceberg, polars_iceberg],
}
EACH = [pytest.param(to, read, id=read.__name__) for to, readers in READERS.items() for read in readers]


@pytest.mark.parametrize(("to", "read"), EACH)
@pytest.mark.parametrize("options", [{}, {"partitionBy": "k"}, {"partitionBy": "yes,k"}], ids=str)
def test_each_version_row_for_row(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    to: str,
    read: Callable[[str, int], list[dict[str, Any]]],
    options: dict[str, str],
) -> None:
    # Polars warns if the package of its default planner is not installed
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    # Polars reads files of Delta tables at URL-encoded paths.
    out = str(tmp_path / ("out" if read is polars_delta else "o t"))
    query = MicroBatch(out, COLUMNS, {**options, "onSchemaChange": "any"})

    def check(version: int) -> None:
        assert export(out, to).version == version
        expected = ftfile.open(out).to_arrow(version).to_pylist()
        assert _sorted(read(out, version)) == _sorted(expected)

    query.run(0, [rows(0)])
    check(0)
    query.run(1, [rows(4), rows(8)])
    check(1)
    assert len(read(out, 0)) == 4
    query.columns = {**COLUMNS, "more": "integer"}
    query.run(2, [[row | {"more": row["id"]} for row in rows(12)]])
    ftfile.compact(out, context=current())
    check(3)
    if options:
        ftfile.drop(out, {"k": "x/y%="}, context=current())
        check(4)
    ftfile.restore(out, 1, context=current())
    check(5 if options else 4)


def _sorted(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(sorted(row.items())) for row in found), key=lambda row: row["id"])


@pytest.mark.parametrize(("to", "read"), EACH)
def test_a_partition_column_of_another_type(
    to: str, read: Callable[[str, int], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwrites change the type, and a restore changes it back. Readers never read an old value as the new type.

    The same holds if an export is killed after a commit and another export follows.
    """
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    url = str(tmp_path / "out")
    MicroBatch(url, {"id": "long", "k": "string"}, {"partitionBy": "k"}).run(0, [[{"id": 0, "k": "x"}]])
    export(url, to)
    for version, day in ((1, 7), (2, datetime.date(2026, 1, 1))):
        columns = {"id": "long", "k": "date" if version == 2 else "integer"}
        written = MicroBatch(url, columns, {"partitionBy": "k"}, overwrite=True)
        written.run_batch_write(f"job {version}", [[{"id": version, "k": day}, {"id": 10, "k": None}]])
        export(url, to)
        forget_follow_up(url)
        export(url, to)
        assert sorted(map(repr, read(url, version))) == sorted(map(repr, ftfile.open(url).to_arrow().to_pylist()))
    ftfile.restore(url, 0, context=current())
    export(url, to)
    assert read(url, 3) == [{"id": 0, "k": "x"}]


@pytest.mark.parametrize(("to", "read"), EACH)
def test_a_partition_column_that_goes_and_comes_back(
    to: str, read: Callable[[str, int], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column returns with another type, or as a column of files. No reader expects the removed partition column."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    url, by_k = str(tmp_path / "out"), {"partitionBy": "k"}
    written: list[tuple[dict[str, Any], dict[str, str], dict[str, Any]]] = [
        ({"k": "string"}, by_k, {"k": "x"}), ({}, {}, {}), ({"k": "integer"}, by_k, {"k": 5}),
        ({"k": "date"}, {}, {"k": datetime.date(2026, 1, 1)}), ({"k": "decimal(5,1)"}, by_k, {"k": Decimal("1.5")}),
        ({"l": "long"}, {}, {"l": 1}), ({"l": "string"}, {}, {"l": "y"}), ({"l": "long"}, {}, {"l": 2}),
        ({"l": "long"}, {"partitionBy": "l"}, {"l": 3}),
    ]  # fmt: skip
    for version, (columns, options, row) in enumerate(written):
        batch = MicroBatch(url, {"id": "long", **columns}, options, overwrite=True)
        batch.run_batch_write(f"job {version}", [[{"id": version, **row}]])
        export(url, to)
        assert read(url, version) == [{"id": version, **row}]


@pytest.mark.parametrize(("to", "read"), EACH)
def test_files_with_columns_that_the_table_never_had(
    to: str, read: Callable[[str, int], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns are dropped before the first export and return by a restore; for Iceberg, fields of structs, too."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    url, kept = str(tmp_path / "out"), {"id": "long", "word": "string"}
    fields: list[Any] = [{"name": name, "type": "integer", "nullable": True, "metadata": {}} for name in "zx"]
    both = {"type": "struct", "fields": fields} if to == "iceberg" else POINT
    written: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        ({"gone": "long", **kept, "p": both}, {"gone": 7, "p": {"z": 8, "x": 9}}, False),
        ({**kept, "p": POINT}, {"p": {"x": 1}}, False),
        ({**kept, "p": POINT}, {"p": {"x": 2}}, True),
    ]
    for version, (columns, row, overwrite) in enumerate(written):
        batch = MicroBatch(url, columns, {"onSchemaChange": "any"}, overwrite=overwrite)
        batch.run_batch_write(f"job {version}", [[{"id": version, "word": "w", **row}]])
    export(url, to)
    ftfile.restore(url, 1, context=current())
    expected = sorted(ftfile.open(url).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["word"] for row in expected] == ["w", "w"]
    for commit in (1, 0):
        export(url, to)
        assert _sorted(read(url, commit if to == "delta" else 3)) == _sorted(expected)
        for metadata in ("_delta_log", "_iceberg"):
            shutil.rmtree(Path(url, metadata), ignore_errors=True)


@pytest.mark.parametrize(("to", "read"), EACH)
def test_partitions_by_decimals_of_all_digits(
    to: str, read: Callable[[str, int], list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    url, numbers = str(tmp_path / "out"), ["1234567890123456789012345678901234.5678", "0.0000", "0.0001"]
    query = MicroBatch(url, {"id": "long", "k": "decimal(38,4)"}, {"partitionBy": "k"})
    query.run(0, [[{"id": at, "k": Decimal(number)} for at, number in enumerate(numbers)]])
    export(url, to)
    assert [str(row["k"]) for row in _sorted(read(url, 0))] == numbers


# Noon in UTC, twice the same local time of New York when clocks are set back, and a null.
TIMES = [
    datetime.datetime(2024, 7, 1, 12, tzinfo=UTC),
    datetime.datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
    datetime.datetime(2024, 11, 3, 6, 30, 0, 7, tzinfo=UTC),
    None,
]


@pytest.mark.parametrize(("to", "read"), EACH)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_partitions_by_instants(
    to: str,
    read: Callable[[str, int], list[dict[str, Any]]],
    zone: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Polars reads the names of a Delta table's directories, so the export warns if they are not in UTC."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    url = str(tmp_path / "out")
    columns = {"id": "long", "at": "timestamp"}
    query = MicroBatch(url, columns, {"partitionBy": "at", "timeZone": zone})
    is_misread = to == "delta" and zone != "UTC"
    for batch, times in enumerate((TIMES[:1], TIMES[1:])):
        query.run(batch, [[{"id": batch * 10 + at, "at": time} for at, time in enumerate(times)]])
        caplog.clear()
        export(url, to)
        assert caplog.text.count("'at': Polars' scan_delta reads the local times") == (is_misread and batch == 0)
    expected = _sorted(ftfile.open(url).to_arrow().to_pylist())
    assert [row["at"] for row in expected] == TIMES
    if read is polars_delta and is_misread:
        local = [row["at"] for row in _sorted(read(url, 0))]
        assert local == [datetime.datetime(2024, 7, 1, 8, tzinfo=UTC)], "Polars reads the values: remove the warning"
    else:
        assert _sorted(read(url, 1)) == expected
