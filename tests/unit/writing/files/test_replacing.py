"""Overwrites and complete mode: each commit replaces all that is live at the head it follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, ReplayMismatch, SchemaError, UnknownQuery
from ftfile.log import checkpoints
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = {"id": "long", "word": "string"}
ROWS: list[dict[str, Any]] = [{"id": 1, "word": "a"}, {"id": 2, "word": "b"}]
OTHERS: list[dict[str, Any]] = [{"id": 3, "word": "c"}]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def append(out: str, columns: Mapping[str, str] = COLUMNS, **options: str) -> MicroBatch:
    return MicroBatch(out, columns, {"fileFormat": "json"} | options)


def complete(out: str, columns: Mapping[str, str] = COLUMNS, **options: str) -> MicroBatch:
    return MicroBatch(out, columns, {"fileFormat": "json"} | options, query_id="complete", overwrite=True)


def rows_of(path: str, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(ftfile.open(path).to_arrow(version).to_pylist(), key=lambda row: row["id"])


def visible(path: str) -> list[dict[str, Any]]:
    """Every row that a plain lister sees."""
    report = check_directory(open_filesystem(path))
    lines = [line for content in report.visible.values() for line in content.splitlines()]
    return sorted(map(json.loads, lines), key=lambda row: int(row["id"]))


class TestOverwrite:
    def test_one_record_removes_all_and_adds_the_new(self, out: str) -> None:
        query = append(out)
        query.run(0, [ROWS, OTHERS])
        complete(out).run_batch_write("job", [OTHERS])
        assert rows_of(out) == visible(out) == OTHERS
        before, after = ftfile.open(out).history()
        assert (before.files, before.files_removed, before.overwrite) == (2, 0, False)
        assert (after.files, after.files_removed, after.overwrite) == (1, 2, True)
        assert (before.operation, after.operation) == ("stream", "overwrite")

    def test_the_old_version_is_read_from_where_it_is_hidden(self, out: str) -> None:
        append(out).run(0, [ROWS])
        complete(out).run_batch_write("job", [OTHERS])
        assert rows_of(out, 0) == ROWS
        assert rows_of(out, 1) == OTHERS

    def test_without_rows_it_leaves_an_empty_directory_with_a_schema(self, out: str) -> None:
        append(out).run(0, [ROWS])
        complete(out, {"id": "long", "n": "long"}).run_batch_write("job", [[], []])
        assert rows_of(out) == visible(out) == []
        assert ftfile.open(out).to_arrow().column_names == ["id", "n"]

    def test_into_a_directory_that_is_new(self, out: str) -> None:
        complete(out).run_batch_write("job", [ROWS])
        assert visible(out) == ROWS

    def test_a_batch_of_a_running_stream_follows(self, out: str) -> None:
        query = append(out)
        query.run(0, [ROWS])
        complete(out).run_batch_write("job", [OTHERS])
        query.run(1, [ROWS])
        assert visible(out) == [*ROWS, *OTHERS]

    def test_a_batch_that_comes_in_between_is_replaced_as_well(self, out: str) -> None:
        """An overwrite removes the parts live at the head, not those live when it was planned."""
        query, job = append(out), complete(out)
        query.run(0, [ROWS])
        planned = job.pickled_plan()
        query.run(1, [ROWS])
        message = job.run_task(planned, job.identity(0), 0, OTHERS)
        query.run(2, [ROWS])
        job.options = {**job.options, "onNewQuery": "continue"}
        job.commit(0, [message])
        assert visible(out) == OTHERS


class TestLayout:
    """Properties that an overwrite may change, and that bind later writers."""

    def test_schema_and_partition_columns_may_change(self, out: str) -> None:
        append(out, partitionBy="word").run(0, [ROWS])
        complete(out, {"id": "string", "kind": "long"}, partitionBy="kind").run_batch_write(
            "job", [[{"id": "1", "kind": 7}]]
        )
        assert rows_of(out) == [{"id": "1", "kind": 7}]
        assert [path.name for path in Path(out).glob("*=*") if list(path.iterdir())] == ["kind=7"]
        assert rows_of(out, 0) == ROWS

    @pytest.mark.slow
    def test_appends_follow_the_new_layout_alone(self, out: str) -> None:
        old = append(out, partitionBy="word")
        old.run(0, [ROWS])
        complete(out, {"id": "long", "kind": "long"}, partitionBy="kind").run_batch_write(
            "job", [[{"id": 1, "kind": 7}]]
        )
        with pytest.raises(SchemaError, match=r"word is missing|kind is missing"):
            old.pickled_plan()
        with pytest.raises(ConfigError, match=r"was written with partitionBy=kind.*or overwrite this directory"):
            append(out, {"id": "long", "kind": "long"}).pickled_plan()
        append(out, {"id": "long", "kind": "long"}, partitionBy="kind").run(1, [[{"id": 2, "kind": 8}]])
        assert rows_of(out) == [{"id": 1, "kind": 7}, {"id": 2, "kind": 8}]

    def test_a_batch_that_was_planned_before_is_refused_at_its_commit(self, out: str) -> None:
        query = append(out)
        query.run(0, [ROWS])
        messages = query.run_tasks(1, [ROWS])
        complete(out, partitionBy="word").run_batch_write("job", [OTHERS])
        with pytest.raises(ConfigError, match="was written with partitionBy=word"):
            query.commit(1, messages)
        assert rows_of(out) == OTHERS

    def test_the_layout_may_change_back(self, out: str) -> None:
        append(out).run(0, [ROWS])
        complete(out, partitionBy="word").run_batch_write("1", [OTHERS])
        complete(out).run_batch_write("2", [ROWS])
        append(out).run(1, [OTHERS])
        assert visible(out) == [*ROWS, *OTHERS]

    def test_the_newest_layout_is_in_the_checkpoints(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 0)
        append(out).run(0, [ROWS])
        complete(out, partitionBy="word").run_batch_write("1", [OTHERS])
        forget_caches()
        with pytest.raises(ConfigError, match="was written with partitionBy=word"):
            append(out).pickled_plan()
        assert append(out, partitionBy="word").run(1, [ROWS]).version == 2

    @pytest.mark.slow
    def test_maintenance_does_not_change_it(self, out: str) -> None:
        append(out).run(0, [ROWS[:1], ROWS[1:]])
        ftfile.compact(out)
        ftfile.drop(out, "all")
        with pytest.raises(ConfigError, match="was written without partitionBy"):
            append(out, partitionBy="word").pickled_plan()
        append(out).run(1, [ROWS])
        assert visible(out) == ROWS

    def test_an_overwrite_without_rows_changes_it_too(self, out: str) -> None:
        append(out).run(0, [ROWS])
        complete(out, partitionBy="word").run_batch_write("1", [[]])
        with pytest.raises(ConfigError, match="was written with partitionBy=word"):
            append(out).pickled_plan()
        append(out, partitionBy="word").run(1, [ROWS])
        assert rows_of(out) == ROWS


class TestCompleteMode:
    @pytest.mark.slow
    def test_each_batch_replaces_the_one_before(self, out: str) -> None:
        query = complete(out)
        for batch, rows in enumerate([ROWS[:1], ROWS, [], OTHERS]):
            query.run(batch, [rows, []])
            assert rows_of(out) == visible(out) == rows
        assert [rows_of(out, version) for version in range(4)] == [ROWS[:1], ROWS, [], OTHERS]

    def test_a_replayed_batch_changes_nothing(self, out: str) -> None:
        query = complete(out)
        query.run(0, [ROWS])
        query.run(1, [OTHERS, ROWS])
        query.restart()
        assert query.run(1, [[ROWS[1]], [], [ROWS[0], *OTHERS]]).replayed
        assert visible(out) == [*ROWS, *OTHERS]
        with pytest.raises(ReplayMismatch):
            query.run(1, [ROWS])
        assert ftfile.open(out).version() == 1

    def test_a_replay_after_others_wrote_does_not_bring_it_back(self, out: str) -> None:
        query = complete(out)
        query.run(0, [ROWS])
        complete(out).run_batch_write("job", [OTHERS])
        query.restart()
        assert query.run(0, [ROWS]).replayed
        assert visible(out) == OTHERS

    def test_no_file_stays_open(self, out: str) -> None:
        for option, value in (("rolling", "policy"), ("maxBatchesPerFile", "3")):
            with pytest.raises(ConfigError, match="no file can stay open over batches: leave out rolling=policy"):
                MicroBatch(out, COLUMNS, {option: value}, overwrite=True).pickled_plan()

    @pytest.mark.slow
    def test_what_another_query_has_open_is_replaced_as_well(self, out: str) -> None:
        rolling = append(out, rolling="policy", maxRecordsPerFile="3", onNewQuery="continue")
        for batch in range(3):
            rolling.run(batch, [ROWS])
        query = complete(out, onNewQuery="continue")
        query.run(0, [OTHERS])
        assert rows_of(out) == visible(out) == OTHERS
        rolling.run(3, [ROWS])
        rolling.run(4, [[]])
        assert rows_of(out) == [*ROWS, *OTHERS]
        ftfile.flush(out)
        assert visible(out) == [*ROWS, *OTHERS]
        assert [len(rows_of(out, version)) for version in range(3)] == [2, 4, 6]

    def test_a_reset_checkpoint_is_not_silent(self, out: str) -> None:
        append(out).run(0, [ROWS])
        with pytest.raises(UnknownQuery, match="onNewQuery=continue"):
            complete(out).run(0, [OTHERS])
        assert visible(out) == ROWS
