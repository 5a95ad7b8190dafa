"""With `ifExists=fail`, no part gets the name of a file that the log still needs, even if that file is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import CorruptData, NameCollision
from ftfile.log import apply as fold
from ftfile.log import checks
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.operate.compact import compact_log
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog

COLUMNS = {"id": "long"}
LATEST = {"fileFormat": "parquet", "partFileName": "latest.parquet", "ifExists": "fail"}
NUMBERED = {"fileFormat": "json", "partFileName": "part.{number}", "ifExists": "fail"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def row(number: int) -> list[list[dict[str, Any]]]:
    return [[{"id": number}]]


def log_of(query: MicroBatch) -> CommitLog:
    return query.config().log(current())


class TestATakenFile:
    """A consumer moves the file away. Its part is live: another file under its name would be read in its place."""

    def assert_refused(self, query: MicroBatch, batch: int) -> None:
        with pytest.raises(NameCollision, match="it is the name of a part of the directory"):
            query.run(batch, row(batch))

    def test_leaves_its_name_taken(self, out: str, tmp_path: Path) -> None:
        query = MicroBatch(out, COLUMNS, LATEST)
        query.run(0, row(1))
        Path(out, "latest.parquet").rename(tmp_path / "taken")
        self.assert_refused(query, 1)
        with pytest.raises(CorruptData, match="neither staged nor published"):
            ftfile.open(out).to_arrow()
        (tmp_path / "taken").rename(Path(out, "latest.parquet"))
        assert ftfile.open(out).to_arrow()["id"].to_pylist() == [1]

    def test_in_a_new_process(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, LATEST)
        query.run(0, row(1))
        Path(out, "latest.parquet").unlink()
        query.restart()
        self.assert_refused(query, 1)

    @pytest.mark.slow
    def test_behind_checkpoints_and_ranges(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ftfile.log.checkpoints.CHECKPOINT_MIN_BYTES", 0)
        monkeypatch.setattr("ftfile.log.publish.COMPACTED_EVERY", 4)
        query = MicroBatch(out, COLUMNS, LATEST)
        query.run(0, row(1))
        for batch in range(1, 10):
            query.run(batch, [[]])
        Path(out, "latest.parquet").unlink()
        self.assert_refused(query, 10)
        query.restart()
        self.assert_refused(query, 10)

    @pytest.mark.slow
    @pytest.mark.parametrize("followed", [2, checks.FOLLOWED_MAX])
    def test_after_more_records_of_others_than_are_followed(
        self, out: str, monkeypatch: pytest.MonkeyPatch, followed: int
    ) -> None:
        monkeypatch.setattr(checks, "FOLLOWED_MAX", followed)
        query = MicroBatch(out, COLUMNS, NUMBERED)
        other = MicroBatch(out, COLUMNS, LATEST | {"fileFormat": "json", "onNewQuery": "continue"}, query_id="another")
        query.run(0, row(0))
        other.run(0, row(0))
        for batch in range(1, followed + 2):
            other.run(batch, [[]])
        Path(out, "latest.parquet").unlink()
        assert checks.live_names(log_of(query), log_of(query).refresh()) == {"part.0", "latest.parquet"}
        self.assert_refused(other, followed + 2)

    def test_within_so_many_they_are_read_one_by_one(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, NUMBERED)
        query.run(0, row(0))
        other = MicroBatch(out, COLUMNS, LATEST | {"fileFormat": "json", "onNewQuery": "continue"}, query_id="another")
        other.run(0, row(0))
        Path(out, "part.0").unlink()
        Path(out, "latest.parquet").unlink()
        query.run(1, row(1))
        self.assert_refused(other, 1)
        assert Path(out, "part.1").exists()

    def test_where_it_would_be_a_directory(self, out: str) -> None:
        options = {"fileFormat": "text", "partFileName": "{name}", "ifExists": "fail", "fileNameColumn": "name"}
        query = MicroBatch(out, {"value": "string", "name": "string"}, options)
        query.run(0, [[{"value": "v", "name": "a"}]])
        Path(out, "a").unlink()
        with pytest.raises(NameCollision, match=r"'a' is taken: a directory is needed"):
            query.run(1, [[{"value": "v", "name": "a/b"}]])

    def test_unless_it_was_removed_long_ago(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, LATEST)
        query.run(0, row(1))
        ftfile.drop(out, "all", context=current())
        with pytest.raises(NameCollision, match="it was the name of a part that version 1 removed"):
            query.run(1, row(2))
        compact_log(out, context=current())
        log = log_of(query)
        # Records before this version may go. That of the removal is kept.
        commit(log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(horizon_ms=1, log_start=1))
        query.restart()
        with pytest.raises(NameCollision, match="it was the name of a part that version 1 removed"):
            query.run(1, row(2))
        commit(log_of(query), MaintenanceAuthor("vacuum", "v"), lambda *_: Body(horizon_ms=1, log_start=2))
        query.run(1, row(2))
        assert Path(out, "latest.parquet").exists()


class TestNumbersThatAreForgotten:
    """A directory continues the numbers of its parts: if they began at 0, none of its batches could be committed."""

    def test_by_age(self, out: str) -> None:
        clock = ManualClock()
        with repeatable(clock):
            query = MicroBatch(out, COLUMNS, NUMBERED | {"directoryStateTtl": "1h"})
            for batch in range(3):
                query.run(batch, row(batch))
            clock.advance(7200)
            query.restart()
            query.run(3, [*row(3), *row(4)])
            query.run(4, row(5))
        assert sorted(path.name for path in Path(out).glob("part*")) == [f"part.{number}" for number in range(6)]
        check_directory(open_filesystem(out))

    def test_by_their_number(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "ENTRIES_MAX", 3)
        query = MicroBatch(
            out, COLUMNS, NUMBERED | {"partitionBy": "id", "fileFormat": "text", "onSchemaChange": "any"}
        )
        query.columns = {"value": "string", "id": "long"}
        for batch in range(3):
            query.run(batch, [[{"value": "v", "id": number} for number in range(5)]])
        assert len(log_of(query).refresh().tables["partNumbers"]) == 3
        for number in range(5):
            assert sorted(path.name for path in Path(out, f"id={number}").iterdir()) == ["part.0", "part.1", "part.2"]

    def test_of_parts_that_were_removed(self, out: str) -> None:
        clock = ManualClock()
        with repeatable(clock):
            query = MicroBatch(out, COLUMNS, NUMBERED | {"directoryStateTtl": "1h"})
            query.run(0, row(0))
            ftfile.drop(out, "all", context=current())
            clock.advance(7200)
            query.run(1, row(1))
        assert [path.name for path in Path(out).glob("part*")] == ["part.1"]

    @pytest.mark.slow
    def test_of_the_real_bound(self) -> None:
        names = [f"directory-{number}" for number in range(fold.ENTRIES_MAX + 1)]
        builder = fold.TablesBuilder({})
        builder.apply({"partNumbers": {"set": dict.fromkeys(names, 1)}}, 0)
        assert [*builder.finish()["partNumbers"]] == names[1:]


@pytest.mark.slow
def test_names_that_cannot_repeat_are_not_remembered(out: str) -> None:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    for batch in range(5):
        query.run(batch, row(batch))
    fixed = replace(query, options=LATEST | {"fileFormat": "json", "onFormatChange": "accept"})
    fixed.run(5, row(5))
    log = log_of(query)
    assert checks.live_names(log, log.refresh()) == {"latest.parquet"}
