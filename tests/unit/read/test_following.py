"""Following a directory: each new row is read once, even if the directory is maintained or the query restarts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import AnotherLog, ChangedRows, ConfigError, HistoryGone, SchemaError
from ftfile.log import records
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.record import decode_record
from ftfile.read import log_planner as planner
from ftfile.read.log_positions import START, position_of, record_or_gone
from ftfile.read.new_rows import FollowPlanner, FollowStream
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import Killed, SourceRun, check_followed
from tests.kit.parameters import parametrize, slow_after
from tests.kit.rewriting import rewrite_without

if TYPE_CHECKING:
    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState
    from ftfile.read.log_planner import LogPlan
    from ftfile.read.log_positions import Begun
    from ftfile.testing.source_run import Moment

COLUMNS = {"id": "long"}
PROTOCOLS = ("4.0", "4.2")
JSON = {"fileFormat": "json"}
ROLLED = {"fileFormat": "json", "maxBatchesPerFile": "3"}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(params=slow_after(1, PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


def write(out: str, batches: range, options: dict[str, str] = JSON, **more: Any) -> MicroBatch:
    """Write batch n with the rows 10 n and 10 n + 1, each in a separate task."""
    query = MicroBatch(out, COLUMNS, options, **more)
    for batch in batches:
        query.run(batch, [[{"id": 10 * batch}], [{"id": 10 * batch + 1}]])
    return query


def rows_of(batches: range) -> list[int]:
    return [10 * batch + task for batch in batches for task in (0, 1)]


def ids(run: SourceRun) -> list[int]:
    return sorted(row["id"] for row in run.rows)


@pytest.mark.slow
@pytest.mark.parametrize("options", [JSON, ROLLED, {"rolling": "policy"}], ids=["batch", "rolled", "open"])
def test_what_was_there_and_then_what_comes(out: str, protocol: Any, options: dict[str, str]) -> None:
    write(out, range(4), options)
    run = SourceRun(out, COLUMNS, protocol=protocol)
    assert run.run() == 1
    assert ids(run) == rows_of(range(4))
    for batch in range(4, 9):
        write(out, range(batch, batch + 1), options)
        assert run.run() == 1
        assert sorted(row["id"] for row in run.batches[max(run.batches)]) == rows_of(range(batch, batch + 1))
    run.restart()
    assert run.run() == 0
    assert ids(run) == rows_of(range(9))


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 3])
def test_rewrites_between_bring_nothing_twice(out: str, protocol: Any, first: int) -> None:
    write(out, range(first), ROLLED)
    run = SourceRun(out, COLUMNS, protocol=protocol)
    run.run()
    for batch in range(first, 14):
        write(out, range(batch, batch + 1), ROLLED)
        if batch % 4 == 1:
            ftfile.flush(out)
        if batch % 5 == 2:
            ftfile.compact(out)
        if batch % 3 == 0:
            run.run()
    run.run()
    assert ids(run) == rows_of(range(14))


@pytest.mark.slow
def test_behind_assembly_flush_and_compaction_each_row_is_read_where_it_was_written(out: str) -> None:
    write(out, range(1), ROLLED)
    run = SourceRun(out, COLUMNS)
    run.run()
    write(out, range(1, 10), ROLLED)
    ftfile.flush(out)
    ftfile.compact(out)
    run.options = {"maxFilesPerTrigger": "2"}
    run.restart()
    run.run()
    assert {number: sorted(row["id"] for row in rows) for number, rows in run.batches.items() if rows} == {
        batch: rows_of(range(batch, batch + 1)) for batch in range(10)
    }


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["planned", "offsets written", "partitions asked", "rows read"])
@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": "1"}, {"startingVersion": "0"}], ids=str)
def test_killed_it_has_the_same_batches_as_before(
    out: str, protocol: Any, moment: Moment, options: dict[str, str]
) -> None:
    write(out, range(2), ROLLED)
    run = SourceRun(out, COLUMNS, options, protocol)
    for batch in range(2, 5):
        run.kill_at = moment
        with pytest.raises(Killed):
            run.run()
        ftfile.flush(out)
        run.run()
        write(out, range(batch, batch + 1), ROLLED)
    run.run()
    assert ids(run) == rows_of(range(5))


@parametrize("options", [{"startingVersion": "latest"}, {"startingVersion": "2"}], ids=str, quick=1)
def test_where_it_begins_is_pinned_by_the_end_of_its_first_batch(
    out: str, protocol: Any, options: dict[str, str]
) -> None:
    write(out, range(2))
    run = SourceRun(out, COLUMNS, options, protocol, kill_at="offsets written")
    with pytest.raises(Killed):
        run.run()
    write(out, range(2, 5))
    run.run()
    assert ids(run) == rows_of(range(2, 5))


@parametrize(("version", "first"), [("0", 0), ("2", 2), ("4", 4), ("latest", 4)], quick=1)
def test_starting_version(out: str, protocol: Any, version: str, first: int) -> None:
    write(out, range(4))
    run = SourceRun(out, COLUMNS, {"startingVersion": version}, protocol)
    run.run()
    write(out, range(4, 6))
    run.run()
    assert ids(run) == rows_of(range(first, 6))


def test_a_starting_version_that_is_not_there(out: str) -> None:
    write(out, range(2))
    with pytest.raises(ConfigError, match="startingVersion=3: the newest version is 1"):
        SourceRun(out, COLUMNS, {"startingVersion": "3"}).run()
    with pytest.raises(ConfigError, match="startingVersion=1: nothing has been committed yet"):
        SourceRun(f"{out}-none", COLUMNS, {"startingVersion": "1"}).run()


@parametrize(("minutes", "first"), [(-5, 0), (0, 0), (1, 1), (1.5, 2), (2.5, 3)], quick=1)
def test_starting_timestamp(out: str, protocol: Any, minutes: float, first: int) -> None:
    start = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)
    write(out, range(3))
    for version in range(3):
        seconds = (start + timedelta(minutes=version)).timestamp()
        os.utime(f"{out}/{layout.record_path(version)}", (seconds, seconds))
    time = (start + timedelta(minutes=minutes)).isoformat()
    run = SourceRun(out, COLUMNS, {"startingTimestamp": time}, protocol)
    run.run()
    write(out, range(3, 4))
    run.run()
    assert ids(run) == rows_of(range(first, 4))


def test_a_starting_timestamp_in_the_future(out: str) -> None:
    write(out, range(1))
    with pytest.raises(ConfigError, match="is in the future"):
        SourceRun(out, COLUMNS, {"startingTimestamp": "2999-01-01"}).run()


def test_only_one_beginning(out: str) -> None:
    with pytest.raises(ConfigError, match="both select the first version"):
        SourceRun(out, COLUMNS, {"startingVersion": "0", "startingTimestamp": "2024-07-01"}).run()


@parametrize(
    ("options", "sizes"),
    [
        ({"maxFilesPerTrigger": "1"}, [1] * 6),
        ({"maxFilesPerTrigger": "3"}, [2, 2, 2]),
        ({"maxFilesPerTrigger": "4"}, [4, 2]),
        ({"maxRowsPerTrigger": "2"}, [2, 2, 2]),
        ({"maxBytesPerTrigger": "1"}, [1] * 6),
        ({"maxBytesPerTrigger": "25"}, [2, 2, 2]),
        ({"maxRowsPerTrigger": "5", "maxFilesPerTrigger": "1"}, [1] * 6),
        ({}, [6]),
    ],
    ids=str,
    quick=2,
)
def test_limits_split_only_records_that_alone_pass_them(
    out: str, protocol: Any, options: dict[str, str], sizes: list[int]
) -> None:
    write(out, range(3))
    run = SourceRun(out, COLUMNS, {"startingVersion": "0", **options}, protocol)
    run.run()
    assert [len(rows) for _, rows in sorted(run.batches.items())] == sizes
    assert ids(run) == rows_of(range(3))


@pytest.mark.parametrize("begin", [{}, {"startingVersion": "0"}], ids=str)
@parametrize(("limit", "sizes"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (4, [4, 1]), (5, [5])], quick=1)
def test_a_record_that_passes_a_limit_is_read_piece_by_piece(
    out: str, protocol: Any, begin: dict[str, str], limit: int, sizes: list[int]
) -> None:
    MicroBatch(out, COLUMNS, JSON).run(0, [[{"id": number}] for number in range(5)])
    run = SourceRun(out, COLUMNS, {**begin, "maxFilesPerTrigger": str(limit)}, protocol)
    run.run(10)
    assert [len(rows) for _, rows in sorted(run.batches.items())] == sizes
    assert ids(run) == list(range(5))


@pytest.mark.slow
@pytest.mark.parametrize("files", [1, 4, 5, 10, 11])
def test_the_first_snapshot_is_read_in_slices(out: str, protocol: Any, files: int) -> None:
    write(out, range(5), ROLLED)
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": str(files)}, protocol)
    run.run_batch()
    write(out, range(5, 8), ROLLED)
    ftfile.flush(out)
    ftfile.compact(out)
    while run.run_batch():
        run.restart()
    assert ids(run) == rows_of(range(8))
    live = len(ftfile.open(out).snapshot(4).adds)
    assert all(len(rows) for number, rows in run.batches.items() if number < -(-live // files))


@pytest.mark.slow
def test_available_now_ends_where_the_log_ended_when_it_began(out: str) -> None:
    write(out, range(4))
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "3", "startingVersion": "0"})
    stream = run.started()
    stream.stop_at_head()
    run.run_batch()
    write(out, range(4, 6))
    run.run()
    assert ids(run) == rows_of(range(4))
    assert run.run_available() == 2
    assert ids(run) == rows_of(range(6))


@pytest.mark.slow
def test_available_now_on_older_spark_is_one_batch(out: str) -> None:
    write(out, range(4))
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "3"}, "4.0")
    assert run.run_available() == 1
    assert len(run.rows) == 3


@pytest.mark.slow
def test_once_reads_everything_whatever_the_limits_are(out: str, protocol: Any) -> None:
    write(out, range(3))
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "1"}, protocol)
    run.run_batch()
    write(out, range(3, 5))
    assert run.run(once=True) == 1
    assert ids(run) == rows_of(range(5))


def test_an_idle_stream_plans_nothing(out: str, protocol: Any) -> None:
    write(out, range(2))
    for options in ({}, {"startingVersion": "latest"}, {"startingVersion": "0"}):
        run = SourceRun(out, COLUMNS, options, protocol)
        run.run()
        offsets = list(run.offsets)
        assert [run.run_batch() for _ in range(3)] == [False] * 3
        assert run.offsets == offsets


def test_an_idle_stream_decodes_no_record_twice(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark calls the source every 10 ms, and the newest record may have thousands of files."""
    write(out, range(2))
    run = SourceRun(out, COLUMNS)
    run.run()
    run.run_batch()
    decoded: list[str] = []

    def decode(content: bytes, path: str, read_companion: Any) -> Any:
        decoded.append(path)
        return decode_record(content, path, read_companion)

    monkeypatch.setattr(records, "decode_record", decode)
    for _ in range(3):
        assert not run.run_batch()
    assert decoded == []
    write(out, range(2, 3))
    decoded.clear()
    assert run.run_batch()
    assert set(decoded) == {layout.record_path(2)}


def test_the_backlog_is_reported(out: str) -> None:
    run = SourceRun(out, COLUMNS, {"startingVersion": "0", "maxFilesPerTrigger": "2", "skipChangeCommits": "true"})
    stream = FollowStream(run.config(), current())
    assert stream.report() is None
    stream.latest_offset(START)
    assert stream.report() is None
    write(out, range(3))
    offset = stream.latest_offset(START)
    assert stream.report() == {"version": 2, "versionsBehind": 2, "versionsSkipped": 0}
    MicroBatch(out, COLUMNS, JSON, overwrite=True).run_batch_write("job", [[{"id": 7}]])
    write(out, range(3, 4))
    offset = stream.latest_offset(offset)
    assert stream.report() == {"version": 4, "versionsBehind": 3, "versionsSkipped": 0}
    while (end := stream.latest_offset(offset)) != offset:
        offset = end
    assert stream.report() == {"version": 4, "versionsBehind": 0, "versionsSkipped": 1}


@pytest.mark.slow
def test_a_directory_that_is_not_there_yet_is_waited_for(out: str, protocol: Any) -> None:
    for options in ({}, {"startingVersion": "latest"}, {"startingVersion": "0"}):
        path = f"{out}-{len(options)}{options}"
        run = SourceRun(path, COLUMNS, options, protocol)
        run.run()
        write(path, range(2))
        run.run()
        write(path, range(2, 3))
        run.run()
        assert ids(run) == rows_of(range(3))


def test_a_directory_of_others_is_none_to_follow(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(
        ConfigError, match="is not an ftfile directory: it has no log, but has other files, such as 'data"
    ):
        SourceRun(str(tmp_path), COLUMNS).run()


@pytest.mark.slow
def test_an_overwrite_is_an_error_before_anything_of_it_is_planned(out: str, protocol: Any) -> None:
    write(out, range(2))
    run = SourceRun(out, COLUMNS, protocol=protocol)
    run.run()
    write(out, range(2, 3))
    MicroBatch(out, COLUMNS, JSON, overwrite=True).run_batch_write("job", [[{"id": 7}]])
    assert run.run_batch()
    assert ids(run) == rows_of(range(3))
    for _ in range(2):
        with pytest.raises(ChangedRows, match="version 3, an overwrite, replaces 6 files"):
            run.run_batch()
        run.restart()
    assert len(run.offsets) == 2
    run.options = {"skipChangeCommits": "true"}
    run.run()
    write(out, range(3, 4))
    run.run()
    assert ids(run) == rows_of(range(4))
    # A query with other options must still read the ranges of an earlier plan.
    run.commits -= 1
    run.options = {}
    run.restart()
    run.run()
    assert ids(run) == rows_of(range(4))


def test_a_drop_is_an_error_or_skipped(out: str) -> None:
    options = {**JSON, "partitionBy": "k"}
    query = MicroBatch(out, {"id": "long", "k": "string"}, options)
    query.run(0, [[{"id": 0, "k": "a"}, {"id": 1, "k": "b"}]])
    run = SourceRun(out, {"id": "long", "k": "string"})
    run.run()
    ftfile.drop(out, {"k": "a"})
    query.run(1, [[{"id": 2, "k": "a"}]])
    with pytest.raises(ChangedRows, match="version 1, a drop, removes 1 files"):
        run.run()
    run.options = {"skipChangeCommits": "true"}
    run.restart()
    run.run()
    assert sorted((row["id"], row["k"]) for row in run.rows) == [(0, "a"), (1, "b"), (2, "a")]


def test_a_restore_that_only_brings_rows_back_is_an_error(out: str) -> None:
    MicroBatch(out, COLUMNS).run(0, [[{"id": 0}]])
    ftfile.drop(out, "all")
    run = SourceRun(out, COLUMNS)
    run.run()
    ftfile.restore(out, 0)
    with pytest.raises(ChangedRows, match="version 2, a restore of version 0, removes 0 files, and restores 1"):
        run.run()


def test_rows_that_end_in_as_many_files_are_an_error(out: str) -> None:
    query = MicroBatch(out, COLUMNS)
    query.run(0, [[{"id": 0}, {"id": 1}], [{"id": 2}, {"id": 3}]])
    run = SourceRun(out, COLUMNS)
    run.run()
    rewrite_without(out, pc.field("id").isin([1, 3]))
    with pytest.raises(ChangedRows, match="version 1, a rewrite, removes 2 files"):
        run.run()


def test_an_overwrite_of_nothing_is_read(out: str) -> None:
    run = SourceRun(out, COLUMNS, {"startingVersion": "0"})
    MicroBatch(out, COLUMNS, JSON, overwrite=True).run_batch_write("job", [[{"id": 7}]])
    run.run()
    assert ids(run) == [7]


@pytest.mark.slow
def test_a_column_that_is_new_ends_the_query_with_all_rows_before_it(out: str, protocol: Any) -> None:
    wide = {"id": "long", "name": "string"}
    write(out, range(2))
    run = SourceRun(out, COLUMNS, protocol=protocol)
    run.run()
    write(out, range(2, 3))
    MicroBatch(out, wide, {**JSON, "onSchemaChange": "widen"}).run(3, [[{"id": 30, "name": "x"}]])
    run.run_batch()
    assert ids(run) == rows_of(range(3))
    message = "from version 3 on, the directory has other columns .*: id int64, name string"
    with pytest.raises(SchemaError, match=message):
        run.run_batch()
    run.columns = wide
    run.restart()
    run.run()
    assert run.rows[-1] == {"id": 30, "name": "x"}
    assert ids(run) == [*rows_of(range(3)), 30]


def test_columns_of_ones_own_are_found_by_name(out: str) -> None:
    wide = {"id": "long", "name": "string"}
    MicroBatch(out, wide, JSON).run(0, [[{"id": 0, "name": "a"}]])
    run = SourceRun(out, {"NAME": "string", "more": "long"})
    run.run()
    wider = {"name": "string", "more": "long", "id": "long"}
    MicroBatch(out, wider, {**JSON, "onSchemaChange": "any"}).run(1, [[{"id": 1, "name": "b", "more": 3}]])
    run.run()
    assert run.rows == [{"NAME": "a", "more": None}, {"NAME": "b", "more": 3}]


@pytest.mark.slow
def test_versions_of_older_columns_are_read_by_a_query_that_begins_with_the_newest(out: str) -> None:
    write(out, range(2))
    wide = {"id": "long", "name": "string"}
    MicroBatch(out, wide, {**JSON, "onSchemaChange": "widen"}).run(2, [[{"id": 20, "name": "x"}]])
    run = SourceRun(out, wide, {"startingVersion": "0", "maxFilesPerTrigger": "1"})
    run.run()
    assert [row["name"] for row in sorted(run.rows, key=lambda row: row["id"])] == [None] * 4 + ["x"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{}, {"maxFilesPerTrigger": "1"}], ids=str)
def test_a_directory_that_was_made_anew_is_another_log(out: str, protocol: Any, limit: dict[str, str]) -> None:
    write(out, range(3))
    for batches in (range(1), range(3), range(5)):
        run = SourceRun(out, COLUMNS, limit, protocol)
        run.run(2)
        shutil.rmtree(out)
        write(out, batches)
        for _ in range(2):
            with pytest.raises(AnotherLog, match="The query would skip or repeat rows"):
                run.run_batch()
            run.restart()


@pytest.mark.slow
def test_a_directory_restored_from_an_older_copy_is_another_log(out: str) -> None:
    write(out, range(2))
    shutil.copytree(out, f"{out}-copy")
    write(out, range(2, 4))
    run = SourceRun(out, COLUMNS)
    run.run()
    shutil.rmtree(out)
    shutil.move(f"{out}-copy", out)
    with pytest.raises(AnotherLog, match="the query has read version 3, and the log ends with 1"):
        run.run_batch()
    MicroBatch(out, COLUMNS, JSON).run(2, [[{"id": 99}]])
    MicroBatch(out, COLUMNS, JSON).run(3, [[{"id": 98}]])
    with pytest.raises(AnotherLog, match="version 3 is not the version that the query has read"):
        run.run_batch()


def test_an_offset_of_another_source_is_refused() -> None:
    log = {"kind": "log", "nonce": "n"}
    below = [{**log, "version": -2}, {**log, "version": 1, "next": -1}, {**log, "snapshot": 1, "read": -1}]
    for offset in ({}, {"kind": "log"}, {"kind": "plans", "plan": 3}, None, 7, {**log, "version": "1"}, *below):
        with pytest.raises(ConfigError, match="does not belong to an ftfile directory"):
            position_of(offset)
    assert position_of(json.loads(json.dumps(START))) == position_of(START)


def test_offsets_stay_small(out: str) -> None:
    write(out, range(2))
    run = SourceRun(out, COLUMNS, {"startingVersion": "0", "maxFilesPerTrigger": "1"})
    run.run()
    assert max(map(len, run.offsets)) <= 128


def test_a_batch_with_other_rows_than_before_is_noticed(out: str) -> None:
    """The test kit detects this."""
    write(out, range(1))
    run = SourceRun(out, COLUMNS)
    run.run()
    run.batches[0] = [{"id": 5}]
    run.commits = 0
    run.restart()
    with pytest.raises(InvariantViolation, match="S1: batch 0 has other rows than before"):
        run.run()


@pytest.mark.slow
def test_vacuum_passes_a_reader_that_stands_still(out: str) -> None:
    write(out, range(3), ROLLED)
    run = SourceRun(out, COLUMNS)
    run.run_batch()
    write(out, range(3, 9), ROLLED)
    ftfile.flush(out)
    ftfile.compact(out)
    _age(out, days=30)
    write(out, range(9, 10), ROLLED)
    ftfile.vacuum(out, dry_run=False)
    with pytest.raises(HistoryGone, match="vacuum"):
        run.run_batch()
    assert len(run.offsets) == 1


def test_a_batch_is_repeated_after_a_restore(out: str) -> None:
    """The restored files have other ids."""
    write(out, range(3))
    run = SourceRun(out, COLUMNS, {"skipChangeCommits": "true"}, kill_at="rows read")
    with pytest.raises(Killed):
        run.run()
    ftfile.compact(out)
    ftfile.restore(out, 2)
    run.run()
    assert sorted(ids(run)) == rows_of(range(3))
    assert check_followed(open_filesystem(out), run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits", [{}, {"maxFilesPerTrigger": "1"}, {"startingVersion": "0", "maxFilesPerTrigger": "1"}]
)
def test_vacuum_passes_a_batch_that_is_repeated(out: str, limits: dict[str, str]) -> None:
    """Its process has ended after the plan, which found all files."""
    write(out, range(3), ROLLED)
    run = SourceRun(out, COLUMNS, limits, kill_at="offsets written")
    with pytest.raises(Killed):
        run.run_batch()
    ftfile.flush(out)
    ftfile.compact(out)
    _age(out, days=30)
    write(out, range(3, 4), ROLLED)
    ftfile.vacuum(out, dry_run=False)
    for _ in range(2):
        run.restart()
        with pytest.raises(HistoryGone, match="vacuum"):
            run.run_batch()


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"startingVersion": "0"}], ids=["snapshot", "records"])
def test_a_batch_that_is_repeated_needs_no_file_of_other_batches(out: str, more: dict[str, str]) -> None:
    """Vacuum has deleted the file of the batch before it, or of the batch after it."""
    write(out, range(1))
    limits = {"maxFilesPerTrigger": "1"} | more
    whole = SourceRun(out, COLUMNS, limits)
    whole.run()
    (first,), (second,) = ([row["id"] for row in whole.batches[number]] for number in range(2))
    runs = []
    for done in range(2):
        run = SourceRun(out, COLUMNS, limits)
        assert run.run(done) == done
        run.kill_at = "offsets written"
        with pytest.raises(Killed):
            run.run_batch()
        run.kill_at = None
        run.restart()
        runs.append(run)
    for kept, run in zip((first, second), runs, strict=True):
        copied = f"{out}-{kept}"
        shutil.copytree(out, copied)
        ftfile.delete(copied, f"id != {kept}")
        _age(copied, days=30)
        write(copied, range(1, 2))
        ftfile.vacuum(copied, dry_run=False)
        run.path = copied
        run.started()
        assert [row["id"] for row in run.batches[max(run.batches)]] == [kept]


def test_files_are_looked_for_once_in_a_process(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(out, range(3))
    looked: list[str] = []
    require = FollowPlanner._require_files  # noqa: SLF001 - its calls of the storage depend on the log

    def counted(planner: FollowPlanner, head: LogState, begin: Begun, plan: LogPlan) -> None:
        looked.append(str(begin))
        require(planner, head, begin, plan)

    monkeypatch.setattr(FollowPlanner, "_require_files", counted)
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "1"}, kill_at="rows read")
    with pytest.raises(Killed):
        run.run()
    assert len(looked) == 1
    run.run()
    assert len(looked) == len(run.offsets) + 1  # the first batch again


@parametrize("moment", ["planned", "read"], quick=1)
def test_history_that_goes_while_it_is_read_is_told(out: str, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a version was deleted, its record may be an uncommitted record of a dead writer, even if it was just read."""
    write(out, range(3))
    run = SourceRun(out, COLUMNS)
    run.run_batch()
    write(out, range(3, 9))
    offsets = len(run.offsets)
    if moment == "read":
        run.kill_at = "offsets written"
        with pytest.raises(Killed):
            run.run_batch()
        offsets += 1
        run.kill_at = None
    read, refresh, trimmed = record_or_gone, CommitLog.refresh, list[int]()

    def read_and_trim(log: CommitLog, head: LogState, version: int) -> Record:
        trimmed.append(version + 1)
        return read(log, head, version)

    def read_on_trimmed(log: CommitLog, *, durable: bool = False) -> LogState:
        head = refresh(log, durable=durable)
        return replace(head, log_start=max([head.log_start, *trimmed]))

    monkeypatch.setattr(planner, "record_or_gone", read_and_trim)
    monkeypatch.setattr(CommitLog, "refresh", read_on_trimmed)
    with pytest.raises(HistoryGone, match="vacuum"):
        run.run_batch()
    assert trimmed
    assert len(run.offsets) == offsets


@pytest.mark.slow
def test_maintenance_while_nobody_writes_lets_no_reader_fall_behind(out: str) -> None:
    write(out, range(3), ROLLED)
    run = SourceRun(out, COLUMNS)
    run.run()
    ftfile.flush(out)
    version = ftfile.open(out).version()
    run.run()
    assert json.loads(run.offsets[-1])["version"] == version
    assert run.batches[1] == []


def _age(out: str, days: int) -> None:
    seconds = datetime.now(timezone.utc).timestamp() - days * 86_400
    for path in Path(out).rglob("*"):
        os.utime(path, (seconds, seconds))


def followed(out: str, offset: dict[str, Any] | None, **options: object) -> tuple[dict[str, Any] | None, list[int]]:
    found: list[int] = []
    for reached, batches in ftfile.open(out).follow(offset, **options):
        offset = reached
        for batch in batches:
            found += batch["id"].to_pylist()
    return offset, sorted(found)


@pytest.mark.slow
def test_plain_python_follows_with_the_same_offsets(out: str) -> None:
    write(out, range(3), ROLLED)
    offset, found = followed(out, None, maxRowsPerTrigger=1)
    assert found == rows_of(range(3))
    run = SourceRun(out, COLUMNS, {"maxRowsPerTrigger": "1"})
    run.run()
    assert json.loads(run.offsets[-1]) == offset
    write(out, range(3, 5), ROLLED)
    offset, found = followed(out, offset)
    assert found == rows_of(range(3, 5))
    assert followed(out, offset) == (offset, [])
    assert followed(out, None, startingVersion="4")[1] == rows_of(range(4, 5))
    time = datetime(2999, 1, 1, tzinfo=timezone.utc)
    with pytest.raises(ConfigError, match="is in the future"):
        followed(out, None, startingTimestamp=time)
    with pytest.raises(ConfigError, match="path is an argument of"):
        followed(out, None, path=out)
    with pytest.raises(ConfigError, match="keyProvider is an argument of"):
        followed(out, None, keyProvider="env:X")


def test_plain_python_ends_where_the_log_ended(out: str) -> None:
    write(out, range(1))
    found: list[int] = []
    for number, (_, batches) in enumerate(ftfile.open(out).follow(startingVersion=0)):
        write(out, range(number + 1, number + 2))
        found += [row for batch in batches for row in batch["id"].to_pylist()]
    assert sorted(found) == rows_of(range(1))
