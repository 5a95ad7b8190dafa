"""`files(statistics=True)`: the bounds of the columns of each file, as Python values."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.read.file_bounds import ColumnBounds
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path

UTC = datetime.timezone.utc
NOON = datetime.datetime.fromisoformat("2024-07-01T12:00:00.000001")
ROW: dict[str, tuple[Any, Any, ColumnBounds]] = {
    "whole": ("long", 2**62, ColumnBounds(2**62, 2**62, 0)),
    "missing": ("integer", None, ColumnBounds(None, None, 1)),
    "number": ("double", -2.5, ColumnBounds(-2.5, -2.5, 0)),
    "not_a_number": ("double", math.nan, ColumnBounds(None, None, 0)),
    "flag": ("boolean", True, ColumnBounds(low=True, high=True, nulls=0)),
    "money": ("decimal(12,2)", Decimal("7.50"), ColumnBounds(Decimal("7.50"), Decimal("7.50"), 0)),
    "day": ("date", datetime.date(2024, 7, 1), ColumnBounds(datetime.date(2024, 7, 1), datetime.date(2024, 7, 1), 0)),
    "at": ("timestamp", NOON.replace(tzinfo=UTC), ColumnBounds(NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=UTC), 0)),
    "local": ("timestamp_ntz", NOON, ColumnBounds(NOON, NOON, 0)),
    "cut": ("string", "x" * 40, ColumnBounds("x" * 32, "x" * 31 + "y", 0)),
    "binary": ("binary", b"\0" * 40, ColumnBounds(b"\0" * 32, b"\0" * 31 + b"\1", 0)),
}
COLUMNS = {name: kind for name, (kind, _, _) in ROW.items()}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_bounds_of_each_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool) -> None:
    if is_compacted:
        monkeypatch.setattr("ftfile.log.publish.COMPACTED_BYTES", 1)
    query = MicroBatch(str(tmp_path), COLUMNS, {"fileFormat": "parquet"})
    for batch in range(3):
        query.run(batch, [[{name: value for name, (_, value, _) in ROW.items()}]])
    directory = ftfile.open(tmp_path)
    expected = {name: bounds for name, (_, _, bounds) in ROW.items()}
    assert [file.statistics for file in directory.files(statistics=True)] == [expected] * 3
    assert [file.statistics for file in directory.files(limit=1, statistics=True)] == [expected]
    assert [file.statistics for file in directory.files()] == [None] * 3


def test_fields_of_structs_and_columns_without_statistics(tmp_path: Path) -> None:
    struct = {
        "type": "struct",
        "fields": [{"name": "x.y", "type": "long", "nullable": True, "metadata": {}}],
    }
    query = MicroBatch(str(tmp_path), {"a": struct, "b": "long"}, {"fileFormat": "json", "statisticsColumns": "a"})
    query.run(0, [[{"a": {"x.y": 5}, "b": 1}, {"a": None, "b": 2}]])
    (file,) = ftfile.open(tmp_path).files(statistics=True)
    assert file.statistics == {r"a.x\.y": ColumnBounds(5, 5, 1)}
