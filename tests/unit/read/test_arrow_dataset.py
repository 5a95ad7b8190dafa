"""A version as a dataset of pyarrow: every engine reads the same rows as ftfile."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec import structs

import ftfile
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.read.arrow_dataset import dataset_of
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.operate.open_directory import OpenedDirectory

TYPES = {
    "id": "long",
    "word": "string",
    "amount": "decimal(12,2)",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "list": {"type": "array", "elementType": "timestamp", "containsNull": True},
    "day": "date",
    "hour": "timestamp",
    "half": "double",
}
NOON = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)


def row(number: int) -> dict[str, Any]:
    null = number % 4 == 3
    return {
        "id": number,
        "word": None if null else f"w{number}",
        "amount": None if null else Decimal("7.50"),
        "at": NOON,
        "local": NOON.replace(tzinfo=None),
        "list": None if null else [NOON, None],
        "day": None if null else date(2024, 7, 1 + number % 3),
        "hour": None if null else NOON,
        "half": float("nan") if number == 1 else 0.5,
    }


def written(out: str, **options: str) -> OpenedDirectory:
    query = MicroBatch(out, TYPES, {"fileFormat": "parquet", "partitionBy": "day,hour,half", **options})
    for batch in range(2):
        query.run(batch, [[row(number) for number in range(4 * batch, 4 * batch + 4)]])
    return ftfile.open(out)


def by_id(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@parametrize("file_format", ["arrow", "orc", "parquet"], quick=1)
def test_rows_and_schema_are_those_of_the_version(tmp_path: Path, file_format: str) -> None:
    directory = written(str(tmp_path), fileFormat=file_format)
    dataset = directory.dataset()
    every = directory.to_arrow()
    assert dataset.schema == every.schema
    assert by_id(dataset.to_table()) == by_id(every)
    assert by_id(directory.dataset(0).to_table()) == by_id(directory.to_arrow(0))
    chosen = dataset.to_table(columns=["id"], filter=pc.field("day").is_null())
    assert sorted(chosen["id"].to_pylist()) == [3, 7]


@pytest.mark.slow
def test_engines_read_only_the_files_of_a_partition(tmp_path: Path) -> None:
    directory = written(str(tmp_path))
    dataset = directory.dataset()
    fragments = [*dataset.get_fragments(pc.field("day") == date(2024, 7, 3))]
    assert ["day=2024-07-03" in fragment.path for fragment in fragments] == [True, True]
    for file in directory.files():
        if file.partition["day"] != date(2024, 7, 3):
            (tmp_path / file.path).unlink()
    query = "SELECT id, half FROM dataset WHERE day = DATE '2024-07-03' ORDER BY id"
    assert duckdb.execute(query).fetchall() == [(2, 0.5), (5, 0.5)]
    assert sorted(dataset.to_table(filter=pc.field("day") == date(2024, 7, 3)).to_pandas()["id"]) == [2, 5]


@pytest.mark.slow
def test_files_of_any_storage_are_read_by_its_driver() -> None:
    fs = FaultyFileSystem(CrashingFileSystem())
    with mounted(fs) as url:
        directory = written(url)
        dataset = directory.dataset()
        fs.calls.clear()
        assert by_id(dataset.to_table()) == by_id(directory.to_arrow())
        assert duckdb.execute("SELECT count(*), sum(id) FROM dataset").fetchall() == [(8, 28)]
        operations = {call.operation for call in fs.calls if not call.path.startswith("_ftfile")}
        assert {"open", "read_at"} <= operations <= {"open", "read_at", "stat", "close"}


@pytest.mark.slow
def test_files_of_several_schemas_are_one_dataset(tmp_path: Path) -> None:
    out = str(tmp_path)
    MicroBatch(out, {"id": "integer"}, {"fileFormat": "parquet"}).run(0, [[{"id": 1}]])
    wider = {"onNewQuery": "continue", "onSchemaChange": "any"}
    query = MicroBatch(out, {"id": "long", "word": "string"}, {"fileFormat": "parquet", **wider}, "b")
    query.run(0, [[{"id": 2**40, "word": "w"}]])
    directory = ftfile.open(out)
    assert directory.dataset().schema == directory.to_arrow().schema
    assert by_id(directory.dataset().to_table()) == by_id(directory.to_arrow())
    assert by_id(directory.dataset().to_table(filter=pc.field("id") > 1)) == by_id(directory.to_arrow(where="id > 1"))


PART = Decimal("0.299")


@parametrize(
    ("wrap", "value"),
    [
        (lambda kind: kind, PART),
        (lambda kind: {"type": "array", "elementType": kind, "containsNull": True}, [PART]),
        (
            lambda kind: {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True},
            [("k", PART)],
        ),
        (
            lambda kind: {
                "type": "struct",
                "fields": [{"name": "a", "type": kind, "nullable": True, "metadata": {}}],
            },
            {"a": PART},
        ),
    ],
    quick=1,
)
def test_decimals_that_became_floating_point_numbers_are_not_rounded(
    tmp_path: Path, wrap: Callable[[str], Any], value: Any
) -> None:
    """Arrow's cast has a wrong last digit."""
    query = MicroBatch(str(tmp_path), {"v": wrap("decimal(6,3)"), "w": "decimal(6,0)"}, {"onSchemaChange": "any"})
    query.run(0, [[{"v": value, "w": Decimal(1)}]])
    query.columns = {"v": wrap("decimal(7,3)"), "w": "double"}
    query.run(1, [[{"v": value, "w": 2.0}]])
    assert ftfile.open(tmp_path).dataset().to_table()["w"].to_pylist() == [1.0, 2.0]
    query.columns = {"v": wrap("double")}
    query.run(2, [[{"v": None}]])
    directory = ftfile.open(tmp_path)
    with pytest.raises(
        ConfigError, match=r"column 'v' has decimals in 'part-.*with errors in the last digit: use to_batches\(\)"
    ):
        directory.dataset()
    assert directory.dataset(version=1).count_rows() == 2


@pytest.mark.slow
def test_files_of_several_formats_are_one_dataset(tmp_path: Path) -> None:
    definitions: dict[str, Any] = {}
    adds = {}
    for name in ("orc", "parquet"):
        snapshot = written(str(tmp_path / name), fileFormat=name).snapshot()
        definitions.update(snapshot.definitions)
        adds.update(
            {add.id: structs.replace(add, final_path=f"{name}/{add.final_path}") for add in snapshot.adds.values()}
        )
    schema = ftfile.open(tmp_path / "orc").to_arrow().schema
    both = replace(snapshot, definitions=definitions, adds=adds)
    dataset = dataset_of(open_filesystem(str(tmp_path)), f"file://{tmp_path}", both, schema, is_old=False)
    assert sorted(dataset.to_table()["id"].to_pylist()) == sorted([*range(8), *range(8)])
    assert duckdb.execute("SELECT count(*) FROM dataset WHERE day = DATE '2024-07-03'").fetchall() == [(4,)]


@pytest.mark.slow
def test_a_version_without_files_is_an_empty_dataset(tmp_path: Path) -> None:
    directory = written(str(tmp_path))
    ftfile.drop(str(tmp_path), "all")
    assert directory.dataset().to_table() == directory.to_arrow()
    assert directory.dataset(1).count_rows() == 8, "retired files are read at their paths"


def test_retired_files_are_not_taken_for_others_of_their_name_and_length(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path), {"id": "long"}, {"fileFormat": "parquet"})
    query.run(0, [[{"id": 0}]])
    directory = ftfile.open(tmp_path)
    (old,) = directory.files()
    ftfile.drop(tmp_path, "all")
    query.run(1, [[{"id": 1}]])
    (new,) = directory.files()
    assert new.size_bytes == old.size_bytes
    shutil.copy(tmp_path / new.path, tmp_path / old.path)
    assert [directory.dataset(version).to_table()["id"].to_pylist() for version in (0, 2)] == [[0], [1]]


@pytest.mark.slow
def test_a_file_that_was_taken_away_is_an_error(tmp_path: Path) -> None:
    directory = written(str(tmp_path))
    dataset = directory.dataset()
    (file, *_) = directory.files()
    (tmp_path / file.path).unlink()
    with pytest.raises(FileNotFoundError):
        dataset.to_table()
    with pytest.raises(CorruptData, match="neither staged nor published nor retired"):
        directory.dataset()


@parametrize(
    ("options", "text"),
    [
        (
            {"fileFormat": "json"},
            r"some files are json, and pyarrow can only read arrow, orc, parquet .*to_batches\(\)",
        ),
        ({"maxBatchesPerFile": "9"}, r"some rows are in open files.*ftfile.flush\(path\)"),
        ({"encryption": "aes-gcm"}, r"is encrypted or filtered"),
        ({"encryption": "parquet"}, r"is encrypted or filtered"),
    ],
    ids=str,
    quick=2,
)
def test_what_pyarrow_cannot_read_names_the_call_that_can(tmp_path: Path, options: dict[str, str], text: str) -> None:
    if "encryption" in options:
        encryption = pytest.importorskip("pyarrow.parquet.encryption").EncryptionConfiguration
        if options["encryption"] == "parquet" and not hasattr(encryption, "uniform_encryption"):
            pytest.skip("this pyarrow cannot encrypt all of a file")
        write_ring(tmp_path / "keys", first=FIRST)
        options = {**options, "keyProvider": f"file:{tmp_path}/keys"}
    directory = written(str(tmp_path / "out"), **options)
    with pytest.raises(ConfigError, match=text):
        directory.dataset()
    assert directory.count() == 8


@pytest.mark.slow
def test_polars_reads_the_chosen_partition_alone(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    directory = written(str(tmp_path))
    scan = polars.scan_pyarrow_dataset(directory.dataset())
    for file in directory.files():
        if file.partition["day"] != date(2024, 7, 3):
            (tmp_path / file.path).unlink()
    found = scan.filter(polars.col("day") == date(2024, 7, 3)).select("id", "half").sort("id").collect()
    assert found.rows() == [(2, 0.5), (5, 0.5)]


SCANS = """
import sys, duckdb, ftfile
dataset = ftfile.open(sys.argv[1]).dataset()
for _ in range(int(sys.argv[2])):
    assert duckdb.execute("SELECT count(*), sum(id) FROM dataset").fetchall() == [(120, 7140)]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("file_format", "scans"), [("parquet", 1500), ("arrow", 300)])
def test_duckdb_and_files_that_python_opens_do_not_wait_for_each_other(
    tmp_path: Path, file_format: str, scans: int
) -> None:
    """A scan starts in one thread and opens files in others. If both need Python's lock, they deadlock."""
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": file_format})
    for batch in range(12):
        query.run(batch, [[{"id": 10 * batch + number} for number in range(10)]])
    subprocess.run([sys.executable, "-c", SCANS, out, str(scans)], check=True, timeout=120)


# A slow storage system, whose threads often need Python's lock.
SLOW = """
from ftfile.storage import api

class Slow(api._Input):
    def read(self, size=-1):
        for _ in range(100):
            time.sleep(0.001)
        return super().read(size)

api._Input = Slow
"""


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_a_process_ends_amid_a_scan_that_was_given_up(tmp_path: Path, storage: str) -> None:
    """Arrow continues to open files of an abandoned scan: Python code opens local files, and reads all other files."""
    url = str(tmp_path) if storage == "disk" else "memory://host/out"
    code = f"""
import time
import ftfile
from ftfile.testing.micro_batch import MicroBatch

rows = [{{"id": number}} for number in range(100)]
for number in range(30):
    MicroBatch({url!r}, {{"id": "long"}}, {{"fileFormat": "parquet"}}).run(number, [rows])
{SLOW if storage == "memory" else ""}
print(ftfile.open({url!r}).dataset().head(1).num_rows)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=100)
    assert (ended.returncode, ended.stdout) == (0, b"1\n"), ended.stderr
