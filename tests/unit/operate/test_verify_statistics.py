"""`verify(full=True)` compares the statistics in the log with the rows of each file."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.log.format import layout
from ftfile.log.format.record import decode_record, encode_record
from ftfile.operate.compact import compact_log
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UTC = datetime.timezone.utc
TIMES = [datetime.datetime.fromisoformat(text) for text in ("1969-12-31T23:59:59", "2024-07-01T12:00:00.500000")]
STRUCT = {"type": "struct", "fields": [{"name": "in", "type": "long", "nullable": True, "metadata": {}}]}
# The type and two values of a column, and an entry that does not fit them.
TYPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "b": ("byte", [-128, 127], [-127, 127, 0]),
    "s": ("short", [-300, 300], [-300, 299, 0]),
    "i": ("integer", [-70_000, None], [-70_000, -70_000, 0]),
    "l": ("long", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 2, 0]),
    "f": ("float", [0.1, -0.0], [0.0, 0.1, 0]),
    "d": ("double", [0.1, math.nan], [0.1, 0.1, 0]),
    "z": ("boolean", [False, True], [True, True, 0]),
    "m": ("decimal(12,2)", [Decimal("-7.50"), Decimal("9.99")], ["-7.49", "9.99", 0]),
    "day": ("date", [datetime.date(1969, 12, 31), datetime.date(2024, 7, 1)], [0, 20_000, 0]),
    "at": ("timestamp", [time.replace(tzinfo=UTC) for time in TIMES], [0, 2**60, 0]),
    "local": ("timestamp_ntz", TIMES, [-1, 0, 0]),
    "t": ("string", ["", "é" * 40], ["", "é" * 32, 0]),
}
MORE_TYPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "bytes": ("binary", [b"", b"\xff" * 40], ["", "AA==", 0]),
    "a": (STRUCT, [{"in": 5}, None], []),
}


def write(out: Path, columns: Mapping[str, tuple[Any, list[Any], list[Any]]], **options: str) -> None:
    query = MicroBatch(str(out), {name: kind for name, (kind, _, _) in columns.items()}, options)
    query.run(0, [[{name: values[number] for name, (_, values, _) in columns.items()} for number in (0, 1)]])
    query.run(1, [[dict.fromkeys(columns) | {"l": 1}]])


def change_entry(out: Path, name: str, entry: list[Any], version: int = 0) -> str:
    """Change the statistics of a file in its record, with a valid checksum; return the path of the file."""
    path = out / layout.record_path(version)
    record = decode_record(path.read_bytes(), str(path), lambda companion: (out / companion).read_bytes())
    (add,) = record.adds
    changed = structs.replace(add, statistics={**add.statistics, name: tuple(entry)})
    path.write_bytes(encode_record(structs.replace(record, adds=(changed,))).content)
    assert add.final_path is not None
    return add.final_path


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "arrow", "json", "csv"])
def test_statistics_of_all_types_fit_the_rows(tmp_path: Path, file_format: str) -> None:
    columns = TYPES if file_format == "csv" else TYPES | MORE_TYPES
    write(tmp_path, columns, fileFormat=file_format)
    directory = ftfile.open(tmp_path)
    assert directory.verify(full=True).ok
    assert {"l", "t", "day"} <= {*(directory.files(statistics=True)[0].statistics or ())}


@pytest.mark.parametrize("name", [name for name in {**TYPES, **MORE_TYPES} if name != "a"])
def test_an_entry_that_rows_contradict_is_reported(tmp_path: Path, name: str) -> None:
    write(tmp_path, TYPES | MORE_TYPES, fileFormat="parquet")
    path = change_entry(tmp_path, name, (TYPES | MORE_TYPES)[name][2])
    directory = ftfile.open(tmp_path)
    assert directory.verify().ok
    (finding,) = directory.verify(full=True).findings
    assert (finding.code, finding.path, finding.severity) == ("wrong-statistics", path, "error")
    assert f"column {name!r}" in finding.actual
    assert "statistics=False" in finding.remedy


def test_fields_of_structs_are_compared(tmp_path: Path) -> None:
    write(tmp_path, TYPES | MORE_TYPES, fileFormat="json")
    change_entry(tmp_path, "a.in", [6, 7, 0])
    (finding,) = ftfile.open(tmp_path).verify(full=True).findings
    assert finding.actual == "1 values of column 'a.in' below the bound 6; 1 nulls of column 'a.in' instead of 0"


@pytest.mark.parametrize("entry", [[None, None, None], [None, 2**63 - 1, 0], [-(2**63), None, None], ["x"], [1, 2]])
def test_unknown_values_fit_all_rows(tmp_path: Path, entry: list[Any]) -> None:
    write(tmp_path, TYPES, fileFormat="json")
    change_entry(tmp_path, "l", entry)
    assert ftfile.open(tmp_path).verify(full=True).ok


def test_entries_in_compacted_logs_are_compared(tmp_path: Path) -> None:
    write(tmp_path, TYPES, fileFormat="json")
    path = change_entry(tmp_path, "l", [5, 7, 0])
    compact_log(str(tmp_path))
    (finding,) = ftfile.open(tmp_path).verify(full=True).findings
    assert (finding.code, finding.path) == ("wrong-statistics", path)


def test_the_remedies_help(tmp_path: Path) -> None:
    write(tmp_path, TYPES, fileFormat="parquet")
    change_entry(tmp_path, "l", [5, 7, 0])
    assert ftfile.open(tmp_path).count(where=f"l = {2**63 - 1}") == 0, "a row is missed"
    assert ftfile.open(tmp_path, statistics=False).count(where=f"l = {2**63 - 1}") == 1
    assert "wrong-statistics" in run("verify", tmp_path, "--full", code=1).stdout
    ftfile.compact(tmp_path)
    assert ftfile.open(tmp_path).verify(full=True).ok
    assert ftfile.open(tmp_path).count(where=f"l = {2**63 - 1}") == 1


@pytest.mark.parametrize(("after", "is_reported"), [("double", False), ("long", True)])
def test_a_column_that_the_file_has_by_another_type_is_not_compared(
    tmp_path: Path, after: str, is_reported: bool
) -> None:
    options = {"fileFormat": "parquet", "onNewQuery": "continue", "onSchemaChange": "any"}
    MicroBatch(str(tmp_path), {"i": "integer"}, options).run(0, [[{"i": 5}]])
    MicroBatch(str(tmp_path), {"i": after}, options, "b").run(0, [[{"i": 7}]])
    assert ftfile.open(tmp_path).verify(full=True).ok
    change_entry(tmp_path, "i", [6, 6, 0])
    codes = [finding.code for finding in ftfile.open(tmp_path).verify(full=True).findings]
    assert codes == (["wrong-statistics"] if is_reported else [])
