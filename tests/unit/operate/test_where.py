"""The directories that a filter selects."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log.commit_log import CommitLog
from ftfile.log.read.snapshot import take_snapshot
from ftfile.operate.delete import select
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.date(2024, 7, 1)
NOON = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)


def written(path: Path, values: list[Any], kind: str, **options: str) -> str:
    """Write a row for each value. The names of the directories contain the values."""
    out = str(path / "out")
    query = MicroBatch(out, {"id": "long", "key": kind}, {"fileFormat": "json", "partitionBy": "key"} | options)
    query.run(0, [[{"id": number, "key": value} for number, value in enumerate(values)]])
    return out


def found(out: str, where: Any) -> list[str]:
    """Return the values after `key=` in the names of the directories that the filter selects."""
    log = CommitLog(open_filesystem(out))
    return sorted(add.directory_key.partition("=")[2] for add in select(log.refresh(), take_snapshot(log), where))


@parametrize(
    ("kind", "values", "asked", "directories"),
    [
        ("string", ["7", "07", "8"], "7", ["7"]),
        ("string", ["a/b", "a"], "a/b", ["a%2Fb"]),
        ("string", ["a", None, " "], None, ["__HIVE_DEFAULT_PARTITION__"]),
        ("string", ["a", "b", "c"], ["a", "c", "z"], ["a", "c"]),
        ("string", ["a"], [], []),
        ("integer", [7, 8, None], 7, ["7"]),
        ("integer", [7, 8, None], "07", ["7"]),
        ("long", [7, 8], (8, "7"), ["7", "8"]),
        ("boolean", [True, False], "true", ["true"]),
        ("boolean", [True, False], False, ["false"]),
        ("float", [0.1, 0.25], 0.1, ["0.1"]),
        ("double", [0.5, float("nan")], float("nan"), ["NaN"]),
        ("double", [0.5, float("nan")], "0.50", ["0.5"]),
        ("decimal(5,2)", [Decimal("7.50"), Decimal("7.05")], "7.5", ["7.50"]),
        ("decimal(5,2)", [Decimal("7.50"), Decimal("7.05")], Decimal("7.5"), ["7.50"]),
        ("date", [DAY], "2024-07-01", ["2024-07-01"]),
        ("date", [DAY], DAY, ["2024-07-01"]),
        ("timestamp", [NOON], NOON, ["2024-07-01 12%3A00%3A00"]),
        ("timestamp", [NOON], "2024-07-01 12:00:00", ["2024-07-01 12%3A00%3A00"]),
        ("string", ["a"], "x" * 300, []),
    ],
    quick=5,
)
def test_values_are_compared_as_what_they_are(
    tmp_path: Path, kind: str, values: list[Any], asked: object, directories: list[str]
) -> None:
    assert found(written(tmp_path, values, kind), {"key": asked}) == directories


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("integer", "seven"),
        ("integer", 7.5),
        ("integer", 2**40),
        ("integer", [7, "x"]),
        ("string", 7),
        ("string", b"b"),
        ("boolean", "yes"),
        ("date", "2024-7-1"),
        ("date", NOON),
    ],
)
def test_what_is_no_value_of_the_column_is_an_error(tmp_path: Path, kind: str, asked: object) -> None:
    out = written(tmp_path, [None], kind)
    with pytest.raises(ConfigError, match=r"where: key=.* is not a value of the column's type"):
        found(out, {"key": asked})


def test_a_timestamp_is_shown_by_the_clocks_that_the_directory_was_written_by(tmp_path: Path) -> None:
    out = written(tmp_path, [NOON], "timestamp", timeZone="Europe/Berlin")
    by_its_clocks = datetime.datetime(2024, 7, 1, 14)  # noqa: DTZ001 - that it has no zone is the point
    for key in ("2024-07-01 14:00:00", by_its_clocks, NOON):
        assert found(out, {"key": key}) == ["2024-07-01 14%3A00%3A00"]
    assert found(out, {"key": "2024-07-01 12:00:00"}) == []


@pytest.mark.parametrize(
    ("kind", "values", "where", "directories"),
    [
        ("integer", [6, 7, 8, None], "key >= 7", ["7", "8"]),
        ("integer", [6, 7, 8, None], "NOT key BETWEEN 7 AND 9 OR KEY IS NULL", ["6", "__HIVE_DEFAULT_PARTITION__"]),
        ("string", ["7", "10", "a/b"], "key > '2' and key <> 'a/b'", ["7"]),
        ("date", [DAY, datetime.date(2024, 7, 2)], "key < DATE '2024-07-02'", ["2024-07-01"]),
        ("date", [DAY, datetime.date(2024, 7, 2)], pc.field("key") < DAY + datetime.timedelta(1), ["2024-07-01"]),
        ("decimal(5,2)", [Decimal("7.50"), Decimal("10.05")], "key > 7.5", ["10.05"]),
        ("double", [0.5, float("nan")], "key > 1", ["NaN"]),
    ],
)
def test_conditions_are_true_of_typed_values(
    tmp_path: Path, kind: str, values: list[Any], where: Any, directories: list[str]
) -> None:
    assert found(written(tmp_path, values, kind), where) == directories


def test_every_column_named_must_match(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    columns = {"id": "long", "Year": "integer", "month": "integer"}
    query = MicroBatch(out, columns, {"fileFormat": "json", "partitionBy": "year,month"})
    query.run(0, [[{"id": 0, "Year": year, "month": month} for year in (1, 2) for month in (1, 2)]])
    log = CommitLog(open_filesystem(out))
    head, snapshot = log.refresh(), take_snapshot(log)
    assert [add.directory_key for add in select(head, snapshot, {"YEAR": 1, "month": "2"})] == ["Year=1/month=2"]
    assert [add.directory_key for add in select(head, snapshot, {"month": 1})] == ["Year=1/month=1", "Year=2/month=1"]
    assert len(select(head, snapshot, {})) == 4


def test_an_unknown_column_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'id', 'nosuch' is not one of the partition columns, which are key"):
        found(written(tmp_path, ["a"], "string"), {"id": 1, "nosuch": 2})


def test_a_directory_without_partition_columns_says_so(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    with pytest.raises(ConfigError, match="and this directory has none"):
        found(out, {"id": 1})


def test_rows_written_when_the_column_had_another_type_are_found_by_that(tmp_path: Path) -> None:
    out = written(tmp_path, [7, 8], "integer")
    options = {"fileFormat": "json", "partitionBy": "key", "onSchemaChange": "any"}
    query = MicroBatch(out, {"id": "long", "key": "double"}, options)
    query.run(1, [[{"id": 0, "key": 7.0}, {"id": 0, "key": 0.5}]])
    assert found(out, {"key": "7"}) == ["7", "7.0"]
    assert found(out, {"key": 0.5}) == ["0.5"]


@pytest.mark.slow
def test_encodings_that_the_state_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers keep the newest definitions, and readers keep all of them."""
    monkeypatch.setattr("ftfile.log.apply.DEFINITIONS_KEPT", 1)
    out = str(tmp_path / "out")
    for batch in range(6):
        options = {"fileFormat": "json", "partitionBy": "key", "dateFormat": f"yyyy-MM-dd'{batch}'"}
        options["onFormatChange"] = "accept"
        MicroBatch(out, {"id": "long", "key": "string"}, options).run(
            batch, [[{"id": batch, "key": "a"}], [{"id": batch, "key": "a"}]]
        )
    assert len(CommitLog(open_filesystem(out)).refresh().definitions) < 6
    assert found(out, {"key": "a"}) == ["a"] * 12
    assert ftfile.compact(out, {"key": "a"}).files_written == 6
    assert ftfile.drop(out, {"key": "a"}).rows_removed == 12
