"""Engines that scan a dataset with a filter open only the files whose statistics allow matching rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow.dataset as ds

ID_IS_5 = pc.field("id") == 5


def in_duckdb(dataset: ds.Dataset) -> int:  # noqa: ARG001 - DuckDB finds it by its name
    return len(duckdb.sql("SELECT text FROM dataset WHERE id = 5").fetchall())


def in_polars(dataset: ds.Dataset) -> int:
    polars = pytest.importorskip("polars")
    return int(polars.scan_pyarrow_dataset(dataset).filter(polars.col("id") == 5).collect().height)


SCANS: dict[str, Callable[[Any], int]] = {
    "to_table": lambda dataset: dataset.to_table(filter=ID_IS_5).num_rows,
    "scanner": lambda dataset: dataset.scanner(["text"], ID_IS_5).to_table().num_rows,
    "to_batches": lambda dataset: sum(batch.num_rows for batch in dataset.to_batches(filter=ID_IS_5)),
    "head": lambda dataset: dataset.head(3, filter=ID_IS_5).num_rows,
    "count_rows": lambda dataset: dataset.count_rows(filter=ID_IS_5),
    "filter": lambda dataset: dataset.filter(ID_IS_5).filter(pc.field("text") > "a").count_rows(),
    "get_fragments": lambda dataset: len([*dataset.get_fragments(ID_IS_5)]),
    "DuckDB": in_duckdb,
    "Polars": in_polars,
}


def write_ids(out: Path, files: int, file_format: str = "parquet", rows: int = 3) -> None:
    """Write files with a few ids each; ids increase from file to file."""
    options = {"fileFormat": file_format, "maxRecordsPerFile": str(rows)}
    options |= {"onNewQuery": "continue", "onFormatChange": "accept"}
    ids = range(rows * files)
    MicroBatch(str(out), {"id": "long", "text": "string"}, options, file_format).run(
        0, [[{"id": number, "text": f"row {number}"} for number in ids]]
    )


def rename_impossible_files(out: Path) -> int:
    """Rename the files that do not contain `id = 5`, so that opening one fails; return the number of other files."""
    directory, remaining = ftfile.open(out, statistics=False), 0
    for file in directory.files():
        if directory.to_arrow(file=file.path, where="id = 5").num_rows:
            remaining += 1
        else:
            (out / file.path).rename(out / f"_{file.path}")
    return remaining


@pytest.mark.slow
def test_one_of_a_thousand_files_is_opened(tmp_path: Path) -> None:
    write_ids(tmp_path, 1_000, rows=1)
    dataset = ftfile.open(tmp_path).dataset()
    assert len(dataset.files) == 1_000
    assert rename_impossible_files(tmp_path) == 1
    for name, scan in SCANS.items():
        assert scan(dataset) == 1, name


def test_every_scan_opens_only_possible_files(tmp_path: Path) -> None:
    write_ids(tmp_path, 10)
    dataset = ftfile.open(tmp_path).dataset()
    assert dataset.to_table(filter=pc.field("id") > 100).num_rows == 0
    assert rename_impossible_files(tmp_path) == 1
    for name, scan in SCANS.items():
        assert scan(dataset) == 1, name
    with pytest.raises(FileNotFoundError):
        dataset.to_table()


def test_files_of_several_formats(tmp_path: Path) -> None:
    for file_format in ("parquet", "arrow", "orc"):
        write_ids(tmp_path, 4, file_format)
    dataset = ftfile.open(tmp_path).dataset()
    assert dataset.count_rows() == 36
    assert rename_impossible_files(tmp_path) == 3
    for name, scan in SCANS.items():
        assert scan(dataset) == 3, name


def test_without_statistics_all_files_are_opened(tmp_path: Path) -> None:
    write_ids(tmp_path, 3)
    dataset = ftfile.open(tmp_path, statistics=False).dataset()
    assert len([*dataset.get_fragments(ID_IS_5)]) == 3
    rename_impossible_files(tmp_path)
    with pytest.raises(FileNotFoundError):
        dataset.to_table(filter=ID_IS_5)


def test_an_invalid_filter_raises_the_error_of_arrow(tmp_path: Path) -> None:
    write_ids(tmp_path, 3)
    dataset = ftfile.open(tmp_path).dataset()
    with pytest.raises(pa.ArrowInvalid, match="No match for FieldRef"):
        dataset.to_table(filter=pc.field("missing") == 5)
    with pytest.raises(TypeError):
        dataset.to_table(filter="id = 5")
    assert dataset.to_table(filter=None).num_rows == 9


NULL, NAN = None, math.nan
# The values of a column in each file, and filters on it.
VALUES: dict[str, tuple[str, list[list[Any]], list[pc.Expression]]] = {
    "NaN": (
        "double",
        [[1.0, NAN], [NAN, NAN], [NAN, NULL], [1.0, 2.0], [-0.0, 0.0], [math.inf, 1.0]],
        [
            pc.field("x") > 1.5,
            ~(pc.field("x") > 0),
            ~(pc.field("x") <= 5),
            pc.field("x") == 0.0,
            pc.is_nan(pc.field("x")),
        ],
    ),
    "nulls": (
        "long",
        [[1, NULL], [NULL, NULL], [3, 4], [NULL, 7]],
        [
            pc.field("x").is_null(),
            ~pc.field("x").is_null(),
            pc.field("x") < 3,
            ~(pc.field("x") < 3),
            pc.field("x").isin([4, NULL]),
            pc.equal(pc.field("x"), pa.scalar(None, pa.int64())),
            pc.coalesce(pc.field("x"), 9) == 9,
            pc.field("x").is_null() | (pc.field("x") == 7),
        ],
    ),
    "casts": (
        "integer",
        [[16_777_216, 16_777_217], [-1, 5], [2**31 - 1, 300]],
        [
            pc.field("x").cast("double") == 16_777_217.0,
            pc.field("x").cast("double") == 5.0,
            pc.field("x") == 2**40,
            pc.field("x").cast("double") > -0.5,
            pc.field("x").cast("string") == "5",
            pc.field("x").cast("int8", safe=False) == 44,
            pc.field("x").isin(pa.array([5], pa.int8())),
        ],
    ),
    "texts": (
        "string",
        [["", "a"], ["é" * 40, "é" * 40 + "z"], ["b", NULL]],
        [pc.field("x") == "é" * 40 + "z", pc.field("x") > "b", pc.starts_with(pc.field("x"), "é"), pc.field("x") < "a"],
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_rows_are_equal_with_and_without_statistics(tmp_path: Path, kind: str) -> None:
    column, files, filters = VALUES[kind]
    query = MicroBatch(str(tmp_path), {"x": column}, {"fileFormat": "parquet"})
    for batch, values in enumerate(files):
        query.run(batch, [[{"x": value} for value in values]])
    dataset, whole = (ftfile.open(tmp_path, statistics=usage).dataset() for usage in (True, False))
    for where in filters:
        expected = sorted(map(repr, whole.to_table(filter=where)["x"].to_pylist()))
        assert sorted(map(repr, dataset.to_table(filter=where)["x"].to_pylist())) == expected, where
        assert dataset.count_rows(filter=where) == len(expected), where


def test_a_dataset_scans_the_files_of_its_version(tmp_path: Path) -> None:
    write_ids(tmp_path, 4)
    dataset = ftfile.open(tmp_path).dataset()
    ftfile.compact(tmp_path)
    ftfile.delete(tmp_path, "id = 5")
    for name, scan in SCANS.items():
        assert scan(dataset) == 1, name
    assert ftfile.open(tmp_path).dataset().count_rows(filter=ID_IS_5) == 0
    assert ftfile.open(tmp_path).dataset(0).count_rows(filter=ID_IS_5) == 1
