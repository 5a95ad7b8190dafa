"""More directories in a task than files are open, or memory is there for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import CorruptData
from ftfile.formats.parquet_files import ParquetFormat
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import part_writer as parts
from ftfile.writing.files.part_writer import SpilledRows
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from tests.hostile.forging import message_of

ROOT = Path(__file__).parents[4]
COLUMNS = {"id": "long", "word": "string"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few files are many."""
    monkeypatch.setattr(parts, "ROUTE_ROWS", 100)
    monkeypatch.setattr(ParquetFormat, "open_files_max", 3)


def rows(count: int, directories: int) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"w{number % directories}"} for number in range(count)]


def write(out: str, batches: list[list[dict[str, Any]]], **options: str) -> None:
    MicroBatch(out, COLUMNS, {"fileFormat": "parquet", "partitionBy": "word", "maxOpenBytes": "8000", **options}).run(
        0, batches
    )
    check_directory(open_filesystem(out), rows_of=lambda content: [content])
    assert not [*Path(out).rglob("*.spill"), *Path(out).rglob("*.staged")]


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_each_directory_has_one_file_with_its_rows_in_order(out: str) -> None:
    write(out, [rows(2_000, 50)])
    files = ftfile.open(out).files()
    assert [file.rows for file in files] == [40] * 50
    table = ftfile.open(out).to_arrow().to_pylist()
    assert sorted(table, key=lambda row: row["id"]) == rows(2_000, 50)
    for directory in range(50):
        ids = [row["id"] for row in table if row["word"] == f"w{directory}"]
        assert ids == sorted(ids)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_limits_hold_for_rows_that_waited(out: str) -> None:
    write(out, [rows(2_000, 50)], maxRecordsPerFile="15")
    assert sorted(file.rows for file in ftfile.open(out).files()) == [10] * 50 + [15] * 100


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_directories_that_come_late_are_not_forgotten(out: str) -> None:
    few_rows = rows(300, 2)
    write(out, [[*few_rows, *({"id": 1_000 + n, "word": f"late{n}"} for n in range(20))]])
    assert ftfile.open(out).to_arrow().num_rows == 320
    assert len(ftfile.open(out).files()) == 22


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_failing_attempt_leaves_no_spill_file(out: str) -> None:
    options = {"fileFormat": "parquet", "partitionBy": "word", "maxOpenBytes": "8000"}
    query = MicroBatch(out, COLUMNS, options)
    planned, writer = query.pickled_plan(), query.identity(0)
    with pytest.raises(ConnectionError):
        query.run_task(planned, writer, 0, rows(2_000, 50), error=ConnectionError("lost"))
    assert not [*Path(out).rglob("*.spill"), *Path(out).rglob("*.staged")]


# Other threads of a process of tests have files open, too.
WITH_200_FILES = """
import resource, sys
from tests.unit.writing.files.test_part_writer import rows, write
resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
write(sys.argv[1], [rows(1_000, 500)], fileFormat="json", maxOpenBytes="64MiB")
"""


@pytest.mark.slow
def test_no_more_files_are_open_than_the_process_may_have(out: str) -> None:
    subprocess.run([sys.executable, "-c", WITH_200_FILES, out], cwd=ROOT, check=True)
    assert len(ftfile.open(out).files()) == 500


class TestLaterRows:
    SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])

    @pytest.fixture
    def later(self, out: str) -> SpilledRows:
        fs = open_filesystem(out)
        return SpilledRows(Stage(fs, TaskIdentity(OperationIdentity("job"), 0, 0)), self.SCHEMA)

    def batch(self, *numbers: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"n": n, "word": None if n % 2 else f"é{n}"} for n in numbers], self.SCHEMA)

    def found(self, later: SpilledRows) -> list[tuple[str, list[int]]]:
        return [(directory, rows["n"].to_pylist()) for directory, rows in later.take_all()]

    def test_without_a_spill_file(self, later: SpilledRows, out: str) -> None:
        for directory, numbers in (("a", (1, 2)), ("b", (3,)), ("a", (4,))):
            later.add(directory, self.batch(*numbers))
        assert self.found(later) == [("a", [1, 2]), ("a", [4]), ("b", [3])]
        assert self.found(later) == []
        assert not Path(out).exists()

    def test_compressed_rows_in_the_place_of_spilled_ones_are_refused(
        self, later: SpilledRows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        message = pa.py_buffer(message_of(self.batch(*range(4000)), compression="zstd"))
        monkeypatch.setattr(parts, "as_one", lambda _: SimpleNamespace(serialize=lambda: message))
        later.add("a", self.batch(1))
        later.spill()
        with pytest.raises(CorruptData, match="compressed rows, which ftfile writes"):
            self.found(later)

    def test_some_spilled_and_some_held(self, later: SpilledRows, out: str) -> None:
        later.add("a", self.batch(1, 2))
        later.add("b", self.batch(3))
        later.add("a", self.batch(4))
        later.spill()
        assert later.held_bytes == 0
        later.add("c", self.batch(5))
        later.add("b", self.batch(6))
        assert self.found(later) == [("a", [1, 2, 4]), ("b", [3]), ("b", [6]), ("c", [5])]
        assert not [path for path in Path(out).rglob("*") if path.is_file()]

    def test_values_come_back_as_they_were(self, later: SpilledRows) -> None:
        batch = self.batch(*range(100))
        later.add("a", batch[10:20])
        later.spill()
        ((_, rows),) = later.take_all()
        assert rows.equals(batch[10:20])

    @pytest.mark.slow
    def test_slices_do_not_keep_the_memory_of_all_rows(self, later: SpilledRows) -> None:
        batch = self.batch(*range(100_000))
        later.add("a", batch[:10])
        assert later.held_bytes < 2_000
