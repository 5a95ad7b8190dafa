"""Statistics of files that are assembled from segments, compared with the rows that other programs read from them."""

from __future__ import annotations

import csv
import datetime
import json
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
from tests.kit.reference_statistics import entry_of
from tests.unit.write.files.encrypted import out, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("out",)

Row = dict[str, Any]

COLUMNS = {"id": "long", "x": "double", "word": "string", "day": "date"}
TYPES = {"id": pa.int64(), "x": pa.float64(), "word": pa.string(), "day": pa.date32()}
COLUMNAR = ["parquet", "orc", "avro", "arrow"]
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
                "x": dice.choice([None, 0.0, -0.0, dice.random()]),
                "word": dice.choice(WORDS),
                "day": dice.choice([None, day]),
            }
        )
    return rows


def read(path: Path) -> list[Row]:
    """Return the rows of a file, as other programs than ftfile read them."""
    kind = path.name.rpartition(".")[2]
    if kind == "json":
        return [json_row(json.loads(line)) for line in path.read_text().splitlines()]
    if kind == "csv":
        with path.open(newline="") as file:
            return [csv_row(dict(zip(COLUMNS, texts, strict=True))) for texts in csv.reader(file)]
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


def play(out: str, file_format: str, dice: random.Random) -> list[Row]:
    """Write random batches, some of them several times because a task or the driver was killed; return all rows."""
    options = {"fileFormat": file_format, **dice.choice(RULES)}
    if file_format == "csv":
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
