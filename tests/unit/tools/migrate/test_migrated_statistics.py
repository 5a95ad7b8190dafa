"""The statistics of migrated files."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from tests.kit.file_statistics import as_lists
from tests.kit.reference_statistics import entry_of
from tests.unit.writing.files.encrypted import snapshot

if TYPE_CHECKING:
    from pathlib import Path

Entry = list[Any]

NOON = datetime.datetime(2024, 2, 28, 12, 0, 0, 17, tzinfo=datetime.timezone.utc)
TYPES = {
    "b": pa.int8(),
    "i": pa.int32(),
    "n": pa.int64(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "text": pa.string(),
    "x": pa.float64(),
    "d": pa.decimal128(9, 2),
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    path.mkdir()
    return path


def migrated(out: Path, **options: str) -> dict[str, dict[str, Entry]]:
    """Migrate a directory, and return the statistics of its files by name."""
    ftfile.migrate(str(out), dry_run=False, options=options)
    assert ftfile.open(str(out)).verify(full=True).ok
    return {str(add.final_path): as_lists(add.statistics) for add in snapshot(str(out)).adds.values()}


def drawn(dice: random.Random, kind: pa.DataType) -> Any:  # noqa: PLR0911 - one for each kind
    number = dice.randrange(-99, 99)
    if dice.random() < 0.2:
        return None
    if pa.types.is_date(kind):
        return NOON.date() + datetime.timedelta(days=number)
    if pa.types.is_timestamp(kind):
        time = NOON + datetime.timedelta(microseconds=number)
        return time if kind.tz else time.replace(tzinfo=None)
    if pa.types.is_string(kind):
        return dice.choice(["x" * 40, "é", ""]) + str(number)
    if pa.types.is_decimal(kind):
        return Decimal(number).scaleb(-2)
    if pa.types.is_floating(kind):
        return dice.choice([float(number), float("nan"), float("inf"), -0.0])
    return pa.scalar(number).cast(kind).as_py()


def test_random_files_have_the_bounds_of_their_rows(out: Path, seed: int) -> None:
    dice = random.Random(seed)
    expected: dict[str, dict[str, Entry]] = {}
    for number in range(5):
        name, rows = f"{number}.parquet", dice.choice([1, 2, 9])
        columns = {key: [drawn(dice, kind) for _ in range(rows)] for key, kind in TYPES.items()}
        table = pa.table(columns, pa.schema(TYPES))
        pq.write_table(table, out / name, row_group_size=2, write_statistics=dice.choice([True, False]))
        expected[name] = {}
        for key, kind in TYPES.items():
            values = columns[key]
            if key == "at":
                values = [value and value.replace(tzinfo=None) for value in values]
            expected[name][key] = entry_of(values, kind)
    assert migrated(out) == expected
    directory = ftfile.open(str(out))
    assert directory.count(where="n > 200") == 0
    assert directory.count(where="n >= 0") == ftfile.open(str(out), statistics=False).count(where="n >= 0")


@pytest.mark.parametrize("is_int96", [False, True])
def test_times_in_int96_which_can_be_cut_have_none(out: Path, is_int96: bool) -> None:
    kind = pa.struct([("at", pa.timestamp("us", "UTC"))])
    table = pa.table({"n": [1], "s": [{"at": 1_000_000}]}, pa.schema([("n", "int64"), ("s", kind)]))
    pq.write_table(table, out / "a.parquet", use_deprecated_int96_timestamps=is_int96)
    entries: dict[str, Entry] = {"n": [1, 1, 0]}
    if not is_int96:
        entries["s.at"] = [1_000_000, 1_000_000, 0]
    assert migrated(out) == {"a.parquet": entries}


def test_whole_numbers_of_two_types_have_bounds_and_one_that_becomes_a_float_has_none(out: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1], pa.int32()), "f": pa.array([1], pa.int16())}), out / "a.parquet")
    pq.write_table(pa.table({"n": pa.array([2], pa.int64()), "f": pa.array([2.5], pa.float64())}), out / "b.parquet")
    assert migrated(out) == {"a.parquet": {"n": [1, 1, 0]}, "b.parquet": {"n": [2, 2, 0], "f": [2.5, 2.5, 0]}}


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.orc"])
def test_files_of_every_format_have_them(out: Path, name: str) -> None:
    if name == "a.json":
        (out / name).write_text('{"n":3,"word":"b"}\n{"n":1}\n')
    elif name == "a.csv":
        (out / name).write_text("3,b\n1,\n")
    else:
        orc.write_table(pa.table({"n": pa.array([3, 1], pa.int32()), "word": ["b", None]}), out / name)
    ftfile.migrate(str(out), dry_run=False, schema=None if name == "a.orc" else "n int, word string")
    (add,) = snapshot(str(out)).adds.values()
    assert as_lists(add.statistics) == {"n": [1, 3, 0], "word": ["b", "b", 1]}


def test_an_export_to_delta_has_bounds_of_all_columns(out: Path) -> None:
    pq.write_table(pa.table({"n": [1, 5], "word": ["a", "b"]}), out / "a.parquet")
    ftfile.migrate(str(out), dry_run=False)
    ftfile.export(str(out))
    log = (out / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    (stats,) = [json.loads(action["add"]["stats"]) for action in map(json.loads, log) if "add" in action]
    assert stats["maxValues"] == {"n": 5, "word": "b"}


def test_the_option_names_the_columns(out: Path) -> None:
    pq.write_table(pa.table({"n": [1], "m": [2]}), out / "a.parquet")
    assert migrated(out, statisticsColumns="m") == {"a.parquet": {"m": [2, 2, 0]}}
