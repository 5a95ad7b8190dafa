"""Parts that are open, and due, while everything around them changes."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import SchemaError
from ftfile.log.commit_log import CommitLog
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ftfile.log.state import LogState

COLUMNS = {"n": "integer", "k": "string"}
KEYS = "abcdef"


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def query_of(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json", "rolling": "policy", "partitionBy": "k", **options})


def rows(numbers: Iterable[int]) -> list[dict[str, Any]]:
    return [{"n": number, "k": KEYS[number % len(KEYS)]} for number in numbers]


def dealt(found: list[dict[str, Any]], tasks: int) -> list[list[dict[str, Any]]]:
    return [found[task::tasks] for task in range(tasks)]


def head_of(out: str) -> LogState:
    return CommitLog(open_filesystem(out)).refresh()


def numbers(out: str) -> list[Any]:
    return sorted(ftfile.open(out).to_arrow()["n"].to_pylist())


def in_files(out: str) -> list[int]:
    """Return how many records each finished file has, in the order in which they were finished."""
    return [file.rows for file in ftfile.open(out).files()]


def finish(query: MicroBatch, first: int, tasks: int = 1) -> None:
    """Run batches without rows until nothing is due."""
    for number in range(first, first + 20):
        query.run(number, [[]] * tasks)
        if not head_of(query.path).jobs:
            return
    raise AssertionError("something stays due")


def check(out: str) -> None:
    check_directory(open_filesystem(out), rows_of=lambda content: content.splitlines())


class TestPartitions:
    """With jobs due for the tasks of the next batch; Spark chooses the number of tasks."""

    @parametrize(("before", "after"), [(1, 8), (8, 1), (3, 2), (2, 3)], quick=1)
    def test_other_counts_after_a_restart(self, out: str, before: int, after: int) -> None:
        query = query_of(out, maxBatchesPerFile="2")
        query.run(0, dealt(rows(range(60)), before))
        query.run(1, dealt(rows(range(60, 120)), before))
        assert len(head_of(out).jobs) == len(KEYS)
        query.restart()
        query.run(2, dealt(rows(range(120, 180)), after))
        finish(query, 3, after)
        assert numbers(out) == list(range(180))
        assert Counter(in_files(out)) == {20: len(KEYS)}
        check(out)

    @pytest.mark.slow
    def test_empty_partitions_and_batches(self, out: str) -> None:
        query = query_of(out, maxBatchesPerFile="2")
        query.run(0, [[], rows(range(12)), [], []])
        query.run(1, [[], [], [], []])
        query.run(2, [[], [], [], rows(range(12, 24))])
        assert len(head_of(out).jobs) == len(KEYS)
        finish(query, 3, 4)
        assert in_files(out) == [4] * len(KEYS)
        assert numbers(out) == list(range(24))

    @pytest.mark.slow
    @pytest.mark.parametrize("round_", range(3))
    def test_any_count_in_every_batch(self, out: str, round_: int) -> None:
        rng = random.Random(round_)
        query = query_of(out, maxBatchesPerFile="2", maxRecordsPerFile="9")
        count = 0
        for number in range(12):
            found = rows(range(count, count := count + rng.choice([0, 10, 40])))
            query.run(number, dealt(found, rng.choice([1, 2, 3, 8, 20])))
            if rng.random() < 0.3:
                query.restart()
            assert numbers(out) == list(range(count))
        for number in range(12, 30):
            query.run(number, [[]] * rng.choice([1, 5]))
        assert not head_of(out).jobs
        assert max(in_files(out)) <= 9
        ftfile.flush(out)
        check(out)
        assert sum(in_files(out)) == count


@pytest.mark.slow
class TestSchema:
    """Only parquet: its files contain their schema."""

    def left_open(self, out: str) -> MicroBatch:
        query = query_of(out, fileFormat="parquet", maxBatchesPerFile="2")
        query.run(0, [rows(range(6))])
        query.run(1, [rows(range(6, 12))])
        query.run(2, [rows(range(12, 18))])
        assert in_files(out) == [2] * 6
        query.restart()
        return query

    def test_a_change_that_is_refused_leaves_all_as_it_is(self, out: str) -> None:
        query = self.left_open(out)
        query.columns = {"n": "long", "k": "string"}
        with pytest.raises(SchemaError, match="n was int32 and is int64"):
            query.run(3, [rows([18])])
        assert (len(head_of(out).segments), numbers(out)) == (6, list(range(18)))
        query.columns = COLUMNS
        query.run(3, [rows(range(18, 24))])
        finish(query, 4)
        assert in_files(out) == [2] * 12

    @pytest.mark.parametrize("columns", [{"n": "long", "k": "string"}, {"n": "integer", "k": "string", "m": "double"}])
    def test_a_wider_one_ends_what_is_open(self, out: str, columns: dict[str, str]) -> None:
        query = self.left_open(out)
        query.columns = columns
        query.options = {**query.options, "onSchemaChange": "widen"}
        query.run(3, [rows(range(18, 24))])
        assert {job.reason for job in head_of(out).jobs} == {"encoding"}
        finish(query, 4)
        assert in_files(out) == [2] * 6 + [1] * 6
        assert numbers(out) == list(range(24))
        ftfile.flush(out)
        oldest = pq.read_schema(Path(out) / ftfile.open(out).files()[0].path)
        assert [(field.name, str(field.type)) for field in oldest] == [("n", "int32")]
        kept = {name: columns[name] for name in columns if name != "k"}
        assert pq.read_schema(self.newest(out)).names == [*kept]
        newest = pq.read_schema(self.newest(out)).field("n").type
        assert str(newest) == {"long": "int64", "integer": "int32"}[kept["n"]]

    def newest(self, out: str) -> Path:
        return Path(out) / ftfile.open(out).files()[-1].path

    def test_any_other_one_ends_what_is_open(self, out: str) -> None:
        query = self.left_open(out)
        query.columns = {"other": "string", "k": "string"}
        query.options = {**query.options, "onSchemaChange": "any"}
        query.run(3, [[{"other": "x", "k": key} for key in KEYS]])
        finish(query, 4)
        ftfile.flush(out)
        assert in_files(out) == [2] * 6 + [1] * 12
        # The file itself: older readers of a whole table add the columns of the path.
        assert pq.ParquetFile(self.newest(out)).schema_arrow.names == ["other"]
        assert ftfile.open(out).to_arrow()["other"].drop_null().to_pylist() == ["x"] * 6


class TestEncoding:
    @parametrize("restarts", [True, False], quick=1)
    def test_another_format(self, out: str, restarts: bool) -> None:
        query = query_of(out, maxBatchesPerFile="2")
        query.run(0, [rows(range(12))])
        query.run(1, [rows(range(12, 24))])
        query.run(2, [rows(range(24, 30))])
        if restarts:
            query.restart()
        query.options = {**query.options, "fileFormat": "parquet", "onFormatChange": "accept"}
        query.run(3, [rows(range(30, 36))])
        query.run(4, [rows(range(36, 42))])
        finish(query, 5)
        assert sorted((file.suffix, file.parent.name[-1]) for file in Path(out).rglob("part-*")) == sorted(
            (suffix, key) for suffix in (".json", ".json", ".parquet") for key in KEYS
        )
        assert numbers(out) == list(range(42))
        assert not head_of(out).segments

    @parametrize("change", [{"compression": "gzip"}, {"compressionLevel": "9"}], quick=1)
    def test_another_codec(self, out: str, change: dict[str, str]) -> None:
        query = query_of(out, fileFormat="parquet", maxBatchesPerFile="2", compression="zstd")
        query.run(0, [rows(range(12))])
        query.restart()
        query.options = {**query.options, **change}
        query.run(1, [rows(range(12, 24))])
        query.run(2, [rows(range(24, 36))])
        finish(query, 3)
        assert numbers(out) == list(range(36))
        codecs = [self.codec(Path(out) / file.path) for file in ftfile.open(out).files()]
        # What is open when only the codec changes is ended as it was begun.
        assert codecs[0] == "ZSTD"
        assert codecs[-1] == change.get("compression", "zstd").upper()
        assert len(codecs) == 2 * len(KEYS)

    def codec(self, file: Path) -> str:
        return str(pq.ParquetFile(file).metadata.row_group(0).column(0).compression)


@pytest.mark.slow
class TestLimits:
    """Changed across a restart, with files open and due."""

    def left_open(self, out: str, **options: str) -> MicroBatch:
        query = query_of(out, maxBatchesPerFile="2", **options)
        query.options = {name: text for name, text in query.options.items() if name != "partitionBy"}
        query.run(0, [rows(range(10))])
        query.run(1, [rows(range(10, 20))])
        query.restart()
        return query

    def test_what_is_due_is_made_as_it_was_planned(self, out: str) -> None:
        query = self.left_open(out)
        query.options = {**query.options, "maxRecordsPerFile": "6", "maxBatchesPerFile": "9"}
        query.run(2, [rows(range(20, 35))])
        finish(query, 3)
        assert in_files(out) == [20, 6, 6]
        assert numbers(out) == list(range(35))

    def test_a_lower_one_ends_what_is_open(self, out: str) -> None:
        query = self.left_open(out)
        query.run(2, [rows(range(20, 35))])
        query.restart()
        query.options = {**query.options, "maxRecordsPerFile": "4"}
        query.run(3, [[]])
        finish(query, 4)
        assert in_files(out) == [20, 4, 4, 4]

    def test_a_higher_one_keeps_it_open(self, out: str) -> None:
        query = self.left_open(out)
        query.run(2, [rows(range(20, 22))])
        query.restart()
        query.options = {**query.options, "maxBatchesPerFile": "4"}
        for number in range(3, 6):
            query.run(number, [rows(range(2 * number + 16, 2 * number + 18))])
        finish(query, 6)
        assert in_files(out) == [20, 8]

    def test_without_any_more_everything_ends(self, out: str) -> None:
        query = self.left_open(out)
        query.run(2, [rows(range(20, 22))])
        query.restart()
        query.options = {"fileFormat": "json"}
        query.run(3, [rows(range(22, 24))])
        finish(query, 4)
        assert sorted(in_files(out)) == [2, 2, 20]
        assert numbers(out) == list(range(24))
        assert not head_of(out).segments


@pytest.mark.slow
@pytest.mark.parametrize("copied", [False, True])
def test_a_directory_is_moved_with_files_open_and_due(out: str, tmp_path: Path, copied: bool) -> None:
    query = query_of(out, maxBatchesPerFile="2")
    for number in range(3):
        query.run(number, dealt(rows(range(12 * number, 12 * number + 12)), 2))
    query.run(3, dealt(rows(range(36, 48)), 2))
    head = head_of(out)
    assert len(head.jobs) == len(KEYS)
    target = tmp_path / "elsewhere" / "moved"
    target.parent.mkdir()
    if copied:
        shutil.copytree(out, target)
    else:
        Path(out).rename(target)
    query.path = str(target)
    query.run(4, dealt(rows(range(48, 60)), 2))  # in the same process, which knows the old path
    query.restart()
    finish(query, 5)
    assert numbers(query.path) == list(range(60))
    assert in_files(query.path) == [4] * 2 * len(KEYS)
    ftfile.flush(query.path)
    check(query.path)
    assert sum(in_files(query.path)) == 60
    if copied:
        # The old one is as it was.
        assert head_of(out) == head
        assert numbers(out) == list(range(48))
