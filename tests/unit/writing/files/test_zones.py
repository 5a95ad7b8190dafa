"""Instants in names of directories: their time zones, and how readers interpret them."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.log.commit_log import CommitLog
from ftfile.log.read.snapshot import take_snapshot
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = {"id": "long", "at": "timestamp"}
NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"
AT = dt.datetime(2026, 7, 2, 3, 30, tzinfo=dt.timezone.utc)
LOCAL = "2026-07-01 23:30:00"  # in New York
ROWS = [{"id": 1, "at": AT}]


def query(out: object, time_zone: str = NEW_YORK, /, **options: str) -> MicroBatch:
    by = {} if "directoryPattern" in options else {"partitionBy": "at"}
    more = {"fileFormat": "parquet", "onNewQuery": "continue", **by, **options}
    return MicroBatch(str(out), COLUMNS, more, time_zone=time_zone)


def names(out: Path) -> list[str]:
    return sorted(path.name.replace("%3A", ":") for path in out.iterdir() if path.name[0] != "_")


def rows(out: Path) -> list[tuple[int, Any]]:
    return sorted((row["id"], row["at"]) for row in ftfile.open(str(out)).to_arrow().to_pylist())


class TestZoneOfTheSession:
    def test_names_are_by_its_clocks(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [ROWS])
        assert names(tmp_path) == [f"at={LOCAL}"]
        assert rows(tmp_path) == [(1, AT)]
        directory = ftfile.open(str(tmp_path))
        assert directory.count(where=f"at = '{LOCAL}'") == directory.count(where="at = '2026-07-02T03:30:00Z'") == 1
        assert ftfile.drop(str(tmp_path), f"at = '{LOCAL}'").rows_removed == 1

    def test_a_task_without_rows_does_not_say_it(self, tmp_path: Path) -> None:
        writer = query(tmp_path)
        planned, identity = writer.pickled_plan(), writer.identity(0)
        messages = [writer.run_task(planned, identity, number, some) for number, some in enumerate([[], ROWS])]
        writer.commit(0, messages)
        assert names(tmp_path) == [f"at={LOCAL}"]
        assert rows(tmp_path) == [(1, AT)]

    def test_the_option_goes_before_it(self, tmp_path: Path) -> None:
        query(tmp_path, timeZone="UTC").run(0, [ROWS])
        assert names(tmp_path) == ["at=2026-07-02 03:30:00"]
        assert rows(tmp_path) == [(1, AT)]

    @pytest.mark.slow
    def test_the_directory_keeps_that_of_its_first_rows(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [ROWS])
        later = query(tmp_path, BERLIN)
        later.restart()
        later.run(1, [[{"id": 2, "at": AT}]])
        later.run(2, [[]])
        query(tmp_path, BERLIN).run_batch_write("job", [[{"id": 3, "at": AT}]])
        assert names(tmp_path) == [f"at={LOCAL}"]
        assert rows(tmp_path) == [(1, AT), (2, AT), (3, AT)]

    @pytest.mark.parametrize("zone", [{}, {"timeZone": NEW_YORK}], ids=["taken", "given"])
    @pytest.mark.parametrize(
        "options", [{}, {"partitionOverwriteMode": "dynamic"}, {"replaceWhere": f"at = '{LOCAL}'"}]
    )
    def test_overwrites_keep_it(self, tmp_path: Path, options: dict[str, str], zone: dict[str, str]) -> None:
        query(tmp_path).run(0, [ROWS])
        overwrite = query(tmp_path, BERLIN, **options, **zone)
        overwrite.overwrite = True
        overwrite.run_batch_write("job", [[{"id": 2, "at": AT}]])
        assert rows(tmp_path) == [(2, AT)]
        assert zones(tmp_path) == {NEW_YORK}

    @pytest.mark.slow
    def test_another_option_is_refused(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [ROWS])
        with pytest.raises(ConfigError, match=f"timeZone=UTC, .* are in {NEW_YORK}: .*Set timeZone={NEW_YORK}"):
            query(tmp_path, timeZone="UTC").run(1, [ROWS])
        query(tmp_path, timeZone=NEW_YORK).run(1, [ROWS])
        query(tmp_path, timeZone="UTC", onFormatChange="accept").run(2, [ROWS])
        assert names(tmp_path) == [f"at={LOCAL}", "at=2026-07-02 03:30:00"]
        assert rows(tmp_path) == [(1, AT)] * 3

    def test_another_option_matters_for_instants_alone(self, tmp_path: Path) -> None:
        query(tmp_path, partitionBy="id").run(0, [ROWS])
        query(tmp_path, partitionBy="id", timeZone=BERLIN).run(1, [ROWS])
        assert rows(tmp_path) == [(1, AT)] * 2

    def test_of_two_first_writers_one_is_refused(self, tmp_path: Path) -> None:
        first, second = query(tmp_path), query(tmp_path, BERLIN)
        second.query_id = "2"
        messages = second.run_tasks(0, [ROWS])
        first.run(0, [ROWS])
        with pytest.raises(ConfigError, match=f"timeZone={BERLIN}, .* are in {NEW_YORK}"):
            second.commit(0, messages)
        second.restart()
        second.run(0, [[{"id": 2, "at": AT}]])
        assert names(tmp_path) == [f"at={LOCAL}"]
        assert rows(tmp_path) == [(1, AT), (2, AT)]

    def test_a_batch_without_rows_does_not_decide_it(self, tmp_path: Path) -> None:
        run_nothing(query(tmp_path), 0)
        assert ftfile.open(str(tmp_path)).count(where="at = '2026-07-02 03:30:00'") == 0
        assert ftfile.drop(str(tmp_path), "at < now()").rows_removed == 0
        query(tmp_path).run(1, [ROWS])
        assert names(tmp_path) == [f"at={LOCAL}"]

    def test_a_batch_without_rows_does_not_forget_it(self, tmp_path: Path) -> None:
        idle = query(tmp_path)
        idle.query_id = "2"
        planned, identity = idle.pickled_plan(), idle.identity(0)
        query(tmp_path).run(0, [ROWS])
        message = write_task(pickle.loads(planned), TaskIdentity(identity, 0, 0), [], current())
        idle.commit(0, [message])
        query(tmp_path, BERLIN).run(1, [ROWS])
        assert names(tmp_path) == [f"at={LOCAL}"]

    @pytest.mark.slow
    def test_files_stay_open_over_batches(self, tmp_path: Path) -> None:
        writer = query(tmp_path, maxBatchesPerFile="2")
        for batch_id, some in enumerate([ROWS, [{"id": 2, "at": AT}], [], []]):
            writer.run(batch_id, [some])
        (file,) = tmp_path.rglob("part-*.parquet")
        assert file.parent.name.replace("%3A", ":") == f"at={LOCAL}"
        assert rows(tmp_path) == [(1, AT), (2, AT)]

    def test_one_that_arrow_does_not_know_is_refused_before_a_row_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"spark\.sql\.session\.timeZone='Mars' is the time zone of timestamps in paths"
        ):
            query(tmp_path, "Mars").run(0, [[]])
        query(tmp_path, "Mars", timeZone=BERLIN).run(0, [[]])

    def test_directories_by_time_follow_it(self, tmp_path: Path) -> None:
        query(tmp_path, directoryPattern="at:yyyy-MM-dd--HH").run(0, [ROWS])
        assert names(tmp_path) == ["2026-07-01--23"]
        where = f"directoryTime >= TIMESTAMP '{LOCAL[:13]}:00:00'"
        assert ftfile.drop(str(tmp_path), where, directory_pattern="yyyy-MM-dd--HH").rows_removed == 1

    def test_exports_have_instants(self, tmp_path: Path) -> None:
        query(tmp_path).run(0, [ROWS])
        ftfile.export(str(tmp_path), "delta")
        (commit,) = (tmp_path / "_delta_log").glob("*.json")
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        values = [action["add"]["partitionValues"] for action in actions if "add" in action]
        assert values == [{"at": "2026-07-02T03:30:00Z"}]


def run_nothing(writer: MicroBatch, batch_id: int) -> None:
    """Run a batch of a task that gets no batch at all, as Spark runs it on no rows."""
    planned = pickle.loads(writer.pickled_plan())
    message = write_task(planned, TaskIdentity(writer.identity(batch_id), 0, 0), [], current())
    writer.commit(batch_id, [message])


def zones(out: Path) -> set[str]:
    log = CommitLog(open_filesystem(str(out)))
    snapshot = take_snapshot(log)
    return {snapshot.definitions[add.encoding]["timeZone"] for add in snapshot.adds.values()}


@pytest.mark.slow
def test_other_readers_take_them_for_clocks(tmp_path: Path) -> None:
    """As documented; the same for Spark is in `tests/spark/test_partition_paths.py`."""
    query(tmp_path).run(0, [ROWS])
    clock = dt.datetime.fromisoformat(LOCAL)
    assert ds.dataset(tmp_path, partitioning="hive").to_table()["at"].to_pylist() == [LOCAL]
    typed = {kind: ds.partitioning(pa.schema([("at", kind)]), flavor="hive") for kind in (CLOCKS, INSTANTS)}
    assert ds.dataset(tmp_path, partitioning=typed[CLOCKS]).to_table()["at"].to_pylist() == [clock]
    # Whichever zone is asked for.
    misread = ds.dataset(tmp_path, partitioning=typed[INSTANTS]).to_table()["at"].to_pylist()
    assert misread == [clock.replace(tzinfo=dt.timezone.utc)]
    files = f"'{tmp_path}/*/*.parquet', hive_partitioning = true"
    session = duckdb.connect()
    session.execute(f"SET TimeZone = '{NEW_YORK}'")
    assert session.sql(f'SELECT "at" FROM read_parquet({files})').fetchall() == [(LOCAL,)]
    zoned = f"{files}, hive_types = {{'at': TIMESTAMPTZ}}"
    assert session.sql(f'SELECT epoch("at") FROM read_parquet({zoned})').fetchall() == [(AT.timestamp(),)]


@pytest.mark.slow
def test_polars_takes_them_for_local_times(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")  # the oldest dependencies are without it
    query(tmp_path).run(0, [ROWS])
    lazy = pl.scan_parquet(tmp_path / "*/*.parquet", hive_partitioning=True)
    assert lazy.collect()["at"].to_list() == [dt.datetime.fromisoformat(LOCAL)]
    assert lazy.with_columns(pl.col("at").dt.replace_time_zone(NEW_YORK)).collect()["at"].to_list() == [AT]


CLOCKS, INSTANTS = pa.timestamp("us"), pa.timestamp("us", NEW_YORK)
