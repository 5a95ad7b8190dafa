"""A read that began before a compaction, a delete, a drop or a vacuum returns each row of its version once."""

from __future__ import annotations

import contextlib
from itertools import chain
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds
import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import HistoryGone
from ftfile.log.format import layout
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ftfile.operate.open_directory import OpenedDirectory

pytestmark = pytest.mark.slow

ROWS = 24
EVERY = [*range(ROWS)]


def written(out: str, file_format: str = "parquet") -> OpenedDirectory:
    """Write twelve files in two directories."""
    query = MicroBatch(out, {"id": "long", "half": "integer"}, {"fileFormat": file_format, "partitionBy": "half"})
    for batch in range(6):
        query.run(batch, [[{"id": 4 * batch + number, "half": number % 2} for number in range(4)]])
    return ftfile.open(out)


def rewritten_twice(out: str) -> None:
    """Replace the files that a reader has begun to read, and replace the new files again."""
    ftfile.delete(out, "id = 3")
    ftfile.compact(out)


def vacuumed(out: str) -> None:
    """Run a vacuum, which keeps files that were replaced within the retention."""
    ftfile.compact(out)
    ftfile.vacuum(out, retention="7d", dry_run=False)


MAINTENANCE: dict[str, Callable[[str], object]] = {
    "compact": ftfile.compact,
    "delete": lambda out: ftfile.delete(out, "id IN (1, 4, 7, 10, 13, 22)"),
    "drop": lambda out: ftfile.drop(out, "half = 1"),
    "overwrite": lambda out: MicroBatch(
        out, {"id": "long", "half": "integer"}, {"partitionBy": "half"}, overwrite=True
    ).run_batch_write("job", [[{"id": 99, "half": 0}]]),
    "vacuum": vacuumed,
    "twice": rewritten_twice,
}


class _Between(WrapperFileSystem):
    """Calls a maintenance function before the second file of rows is opened."""

    def __init__(self, inner: CrashingFileSystem) -> None:
        super().__init__(inner)
        self.maintain: Callable[[], object] | None = None
        self.opened = 0

    def around(self, operation: str, path: str, call: Callable[[], Any]) -> Any:
        is_of_rows = operation in {"open", "read"} and layout.META not in path.split("/")
        self.opened += is_of_rows
        if is_of_rows and self.opened > 1 and self.maintain is not None:
            maintain, self.maintain = self.maintain, None
            maintain()
        return call()


def ids(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return sorted(chain.from_iterable(batch["id"].to_pylist() for batch in batches))


def by_pieces(directory: OpenedDirectory) -> list[int]:
    return ids([*directory.to_batches()])


def followed(directory: OpenedDirectory) -> list[int]:
    batches = directory.follow(maxFilesPerTrigger="2")
    return ids([rows for _, batch in batches for rows in batch])


READS: dict[str, Callable[[OpenedDirectory], list[int]]] = {
    "to_arrow": lambda directory: ids(directory.to_arrow().to_batches()),
    "where": lambda directory: ids(directory.to_arrow(where="id >= 0 AND half IS NOT NULL").to_batches()),
    "to_batches": by_pieces,
    "tail": lambda directory: ids(directory.tail(ROWS).to_batches()),
    "count": lambda directory: [*range(directory.count(where="id >= 0 AND half IS NOT NULL"))],
    "dataset": lambda directory: ids(directory.dataset().to_batches()),
    "follow": followed,
}


@pytest.mark.parametrize("maintenance", MAINTENANCE)
@pytest.mark.parametrize("read", READS)
def test_a_read_has_the_rows_of_its_version(read: str, maintenance: str) -> None:
    between = _Between(CrashingFileSystem())
    with mounted(between) as url:
        directory = written(url)
        between.opened, between.maintain = 0, lambda: MAINTENANCE[maintenance](url)
        assert READS[read](directory) == EVERY
        assert between.maintain is None


@pytest.mark.parametrize("file_format", ["parquet", "orc", "arrow"])
@pytest.mark.parametrize("maintenance", MAINTENANCE)
def test_a_dataset_on_a_disk_has_the_rows_of_its_version(tmp_path: Path, maintenance: str, file_format: str) -> None:
    """Every engine reads the rows, both in a resumed read and in a new read."""
    out = str(tmp_path)
    directory = written(out, file_format)
    dataset, rows = directory.dataset(), directory.to_batches()
    first = rows.read_next_batch()
    MAINTENANCE[maintenance](out)
    assert ids([first, *rows]) == EVERY
    assert sorted(dataset.to_table()["id"].to_pylist()) == EVERY
    assert duckdb.execute("SELECT count(*), sum(id) FROM dataset").fetchall() == [(ROWS, sum(EVERY))]
    assert directory.dataset().count_rows() == directory.count()
    polars = pytest.importorskip("polars")
    assert sorted(polars.scan_pyarrow_dataset(dataset).collect()["id"].to_list()) == EVERY


@pytest.mark.parametrize("vacuum", [False, True])
def test_a_read_of_open_files_has_its_rows_beside_a_flush(tmp_path: Path, vacuum: bool) -> None:
    out = str(tmp_path)
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "json", "maxBatchesPerFile": "9"})
    for batch in range(6):
        query.run(batch, [[{"id": 4 * batch + number} for number in range(4)]])
    directory = ftfile.open(out)
    rows, batches = directory.to_batches(), directory.follow(maxFilesPerTrigger="1")
    first, (_, first_batch) = rows.read_next_batch(), next(batches)
    new_rows = [*first_batch]
    ftfile.flush(out)
    ftfile.compact(out)
    if vacuum:
        ftfile.vacuum(out, dry_run=False)
    assert ids([first, *rows]) == EVERY
    assert ids([*new_rows, *(piece for _, batch in batches for piece in batch)]) == EVERY


def test_a_dataset_without_its_files_is_an_error(tmp_path: Path) -> None:
    directory = written(str(tmp_path))
    dataset = directory.dataset()
    ftfile.compact(tmp_path)
    ftfile.vacuum(tmp_path, retention="0s", force=True, dry_run=False)
    with pytest.raises(FileNotFoundError, match=r"is missing: vacuum or .* Call dataset\(\) again"):
        dataset.to_table()
    with pytest.raises(HistoryGone):
        directory.to_arrow(5)


def test_plain_readers_that_listed_files_before_end_with_an_error_and_no_row_twice(tmp_path: Path) -> None:
    out = str(tmp_path)
    written(out)
    ftfile.export(out)
    deltalake, polars = map(pytest.importorskip, ("deltalake", "polars"))
    plain, table = ds.dataset(out, format="parquet"), deltalake.DeltaTable(out)
    lazy = polars.scan_parquet(f"{out}/*/*.parquet", hive_partitioning=False)
    begun = plain.to_batches(batch_size=1)
    first = next(begun)
    ftfile.compact(out)
    for read in (plain.to_table, table.to_pyarrow_table):
        with pytest.raises(FileNotFoundError):
            read()
    with contextlib.suppress(FileNotFoundError):
        assert ids([first, *begun]) == EVERY
    assert sorted(lazy.collect()["id"].to_list()) == EVERY
    assert ds.dataset(out, format="parquet").count_rows() == ROWS
    assert deltalake.DeltaTable(out).to_pyarrow_table().num_rows == ROWS


def keyed(path: str) -> dict[str, int]:
    query = StoreBatch(path, {"word": "string", "n": "long"}, {"keyColumns": "word", "buckets": "4"})
    for batch in range(5):
        query.run(batch, [[{"word": f"w{number}", "n": batch} for number in range(batch, 300)]])
    return {f"w{number}": min(number, 4) for number in range(300)}


@pytest.mark.parametrize("vacuum", [False, True])
def test_a_reader_of_a_store_has_the_rows_of_its_version(tmp_path: Path, vacuum: bool) -> None:
    path = str(tmp_path / "store")
    expected = keyed(path)
    reader = kv.open(path)
    scan: Iterator[pa.RecordBatch] = iter(reader.scan())
    first = next(scan)
    kv.compact(path, full=True)
    if vacuum:
        ftfile.vacuum(path, retention="7d", dry_run=False)
    rows = [row for batch in (first, *scan) for row in batch.to_pylist()]
    assert {row["word"]: row["n"] for row in rows} == expected
    assert len(rows) == len(expected)
    assert reader.multi_get([*expected]) == [*expected.values()]
