"""Statistics of files that are assembled from segments, compared with the rows that other programs read from them."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.file_statistics import as_lists
from tests.kit.parameters import parametrize
from tests.kit.reference_statistics import entry_of, plain
from tests.unit.writing.files.encrypted import out, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ("out",)

Row = dict[str, Any]

COLUMNS = {"id": "long", "x": "double", "word": "string", "day": "date"}
TYPES = {"id": pa.int64(), "x": pa.float64(), "word": pa.string(), "day": pa.date32()}
COLUMNAR = ["parquet", "orc", "avro", "arrow"]
LINES = ["json", "csv", "json gzip", "csv gzip"]
RULES: list[dict[str, str]] = [
    {"maxBatchesPerFile": "2"},
    {"rolling": "policy", "maxRecordsPerFile": "3"},
    {"rolling": "policy", "maxBytesPerFile": "90"},
    {"rolling": "policy", "maxSegmentsPerPart": "3"},
    {"maxBatchesPerFile": "3", "maxRecordsPerFile": "5"},
]
DAY = datetime.date(2024, 2, 28)
WORDS = ["", "a", "zebra", "é\U0010ffff", "x" * 40, None]


class Lost(Exception):
    """The failure of a task after it has written its rows."""


def drawn_rows(dice: random.Random) -> list[Row]:
    rows = []
    for _ in range(dice.choice([0, 1, 2, 5])):
        day = DAY + datetime.timedelta(days=dice.randrange(-9, 9))
        rows.append(
            {
                "id": dice.choice([None, dice.randrange(-99, 99)]),
                "x": dice.choice([None, 0.0, -0.0, dice.random(), dice.choice([dice.random(), math.nan, math.inf])]),
                "word": dice.choice(WORDS),
                "day": dice.choice([None, day]),
            }
        )
    return rows


def read(path: Path) -> list[Row]:
    """Return the rows of a file, as other programs than ftfile read them."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind in {"json", "csv"}:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        lines = content.decode().splitlines(keepends=True)
        if kind == "json":
            return [json_row(json.loads(line)) for line in lines]
        return [csv_row(dict(zip(COLUMNS, texts, strict=True))) for texts in csv.reader(lines)]
    if kind == "avro":
        with path.open("rb") as file:
            return [dict(row) for row in fastavro.reader(file)]  # type: ignore[arg-type]
    if kind == "parquet":
        return list(pq.ParquetFile(path).read().to_pylist())
    if kind == "orc":
        return list(orc.read_table(path).to_pylist())
    return list(pa.ipc.open_file(path).read_all().to_pylist())


def json_row(values: Mapping[str, Any]) -> Row:
    row = {name: values.get(name) for name in COLUMNS}
    if row["x"] is not None:
        row["x"] = float(row["x"])  # NaN and infinities are texts
    if row["day"] is not None:
        row["day"] = datetime.date.fromisoformat(row["day"])
    return row


def csv_row(texts: Mapping[str, str]) -> Row:
    row: Row = dict.fromkeys(COLUMNS)
    readers = {"id": int, "x": float, "word": str, "day": datetime.date.fromisoformat}
    for name, text in texts.items():
        if text != "-":
            row[name] = readers[name](text)  # type: ignore[operator]
    return row


def entries_of(rows: list[Row]) -> dict[str, list[Any]]:
    """Return the exact entries of rows."""
    return {name: entry_of([row[name] for row in rows], kind) for name, kind in TYPES.items()}


def check_bounds(entries: Mapping[str, Sequence[Any]], rows: list[Row]) -> int:
    """Check that no row contradicts the entries of its file, and return the number of bounds and counts in them."""
    facts = 0
    for name, (low, high, nulls) in entries.items():
        values = [plain(row[name], TYPES[name]) for row in rows if row[name] is not None]
        numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        assert low is None or all(low <= value for value in numbers), name
        # NaN is greater than all numbers.
        assert high is None or (len(numbers) == len(values) and all(value <= high for value in values)), name
        assert nulls in {None, len(rows) - len(values)}, name
        facts += sum(fact is not None for fact in (low, high, nulls))
    return facts


def play(out: str, file_format: str, dice: random.Random) -> list[Row]:
    """Write random batches, some of them several times because a task or the driver was killed; return all rows."""
    name, _, compression = file_format.partition(" ")
    options = {"fileFormat": name, **dice.choice(RULES)}
    if compression:
        options["compression"] = compression
    if name == "csv":
        options["nullValue"] = "-"
    query, rows = MicroBatch(out, COLUMNS, options), list[Row]()
    for batch in range(8):
        partitions = [drawn_rows(dice) for _ in range(dice.randrange(1, 3))]
        event = dice.choice(["", "", "task", "driver", "commit", "flush"])
        if event == "task":
            with pytest.raises(Lost):
                query.run_task(query.pickled_plan(), query.identity(batch), 0, rows=partitions[0], error=Lost())
        elif event == "driver":
            query.run_tasks(batch, partitions)
            query.restart()
        elif event == "commit":
            query.commit(batch, query.run_tasks(batch, partitions))
            query.restart()
        query.run(batch, partitions)
        if event == "flush":
            ftfile.flush(out)
        # Open files are read by their statistics, too.
        counts = [ftfile.open(out, statistics=choice).count(where="id < 0") for choice in (True, False)]
        assert counts[0] == counts[1]
        for partition in partitions:
            rows += partition
    ftfile.flush(out)
    return rows


def text_of(rows: list[Row]) -> list[str]:
    """Return rows in an order that does not depend on files."""
    return sorted(repr([row[name] for name in COLUMNS]) for row in rows)


@parametrize("file_format", COLUMNAR, quick=1)
def test_random_files_of_columnar_formats_have_exact_statistics(out: str, seed: int, file_format: str) -> None:
    dice = random.Random(f"{seed} {file_format}")
    for run in range(3):
        directory = f"{out}-{run}"
        rows = play(directory, file_format, dice)
        in_files: list[Row] = []
        for add in snapshot(directory).adds.values():
            content = read(Path(directory, add.path if add.final_path is None else add.final_path))
            in_files += content
            assert repr(as_lists(add.statistics)) == repr(entries_of(content)), add.path
        assert text_of(in_files) == text_of(rows)
        assert ftfile.open(directory).verify(full=True).ok


@parametrize("file_format", LINES, quick=2)
def test_random_files_of_line_formats_have_bounds_of_their_rows(out: str, seed: int, file_format: str) -> None:
    dice = random.Random(f"{seed} {file_format}")
    facts = files = 0
    for run in range(4):
        directory = f"{out}-{run}"
        rows = play(directory, file_format, dice)
        in_files: list[Row] = []
        for add in snapshot(directory).adds.values():
            content = read(Path(directory, add.path if add.final_path is None else add.final_path))
            in_files += content
            facts += check_bounds(add.statistics, content)
            files += 1
        assert text_of(in_files) == text_of(rows)
        assert ftfile.open(directory).verify(full=True).ok
    assert facts > 4 * files


@pytest.mark.parametrize("file_format", LINES)
def test_a_file_of_whole_segments_has_exact_statistics(out: str, seed: int, file_format: str) -> None:
    dice = random.Random(seed)
    name, _, compression = file_format.partition(" ")
    options = {"fileFormat": name, "nullValue": "-"} if name == "csv" else {"fileFormat": name}
    query = MicroBatch(out, COLUMNS, {**options, "compression": compression or "none", "maxBatchesPerFile": "3"})
    rows: list[Row] = []
    for batch in range(3):
        # A segment of NaN or infinities has no bounds, which the bounds of the file would lack.
        partition = [*drawn_rows(dice), {"id": batch, "word": None, "day": DAY}]
        partition = [row | {"x": dice.choice([None, 0.0, -0.0, dice.random()])} for row in partition]
        query.run(batch, [partition, partition])
        rows += [*partition, *partition]
    query.run(3, [[]])
    (add,) = snapshot(out).adds.values()
    content = read(Path(out, str(add.final_path)))
    assert text_of(content) == text_of(rows)
    assert repr(as_lists(add.statistics)) == repr(entries_of(content))
