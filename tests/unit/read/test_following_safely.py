"""Following encrypted directories, records that a power failure may lose, and a log far ahead of the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import AnotherLog, ConfigError, CorruptData
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.places import walk
from ftfile.read.log_planner import FollowSettings
from ftfile.read.log_positions import Beginning, InLog
from ftfile.read.new_rows import FirstSnapshot, FollowPlanner
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.context import ManualClock, SeededIds, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.log_check import InvariantViolation
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.testing.source_run import SourceRun, check_followed
from tests.histories.small_limits import small_limits
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import FIRST, SECOND, forget_all, write_ring

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.testing.fs.volume import Storage

COLUMNS = {"word": "string"}


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write_ring(path, first=FIRST)
    return path


@parametrize("rolled", [{}, {"maxBatchesPerFile": "2"}], ids=str, quick=1)
def test_an_encrypted_directory_is_followed_with_its_keys(tmp_path: Path, ring: Path, rolled: dict[str, str]) -> None:
    out, provider = str(tmp_path / "out"), {"keyProvider": f"file:{ring}"}
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "encryption": "aes-gcm", **provider, **rolled})
    run = SourceRun(out, COLUMNS, provider)
    assert run.run() == 0
    for number in range(4):
        query.run(number, [[{"word": str(number)}]])
        run.run()
        run.restart()
    assert [row["word"] for row in run.rows] == ["0", "1", "2", "3"]
    write_ring(ring, first=SECOND)
    with pytest.raises((ConfigError, CorruptData)):
        SourceRun(out, COLUMNS, provider).run()
    forget_all()


@pytest.mark.parametrize("storage", ["disk", "hdfs"])
def test_no_offset_is_ahead_of_what_survives_the_power(storage: Storage) -> None:
    """A writer died after it created its record and before the name of the record was durable."""
    clock = ManualClock()
    with repeatable(clock, SeededIds()):
        memory = MemoryFileSystem("follow-durable", clock=clock)
        with mounted(memory) as url:
            query = MicroBatch(url, COLUMNS, {"fileFormat": "json"})
            for number in range(3):
                query.run(number, [[{"word": str(number)}]])
        fs = CrashingFileSystem(clock=clock, storage=storage)
        files = walk(memory, "")
        last = layout.record_path(2)
        for path in (*(path for path in sorted(files) if path != last), last):
            fs.make_directories(layout.parent(path))
            with fs.create(f"{path}.tmp") as stream:
                stream.write(memory.read(path))
                stream.hsync()
            fs.rename(f"{path}.tmp", path)
            for directory in {"", *layout.ancestors(layout.parent(path))} if path != last else ():
                fs.sync_directory(directory)
        planner = FollowPlanner(CommitLog(fs), FollowSettings(), arrow_schema(spark_schema(COLUMNS)), "/out")
        before = len(fs.journal)
        planned = planner.plan(Beginning())
        assert isinstance(planned, InLog)
        fs.note("planned")
        lost = 0
        for state in crash_states(fs):
            kept = state.filesystem().exists(layout.record_path(planned.version))
            assert kept or "planned" not in state.notes
            lost += not kept and state.point >= before
        assert planned.version == 2
        assert lost or storage != "disk"
    MemoryFileSystem.drop("follow-durable")


@pytest.mark.slow
def test_definitions_that_the_head_has_forgotten(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with small_limits():
        for number in range(8):
            # The second write contains no definition.
            options = {"fileFormat": "csv", "nullValue": "-", "sep": "aacdefgh"[number], "onNewQuery": "continue"}
            options["onFormatChange"] = "accept"
            MicroBatch(out, COLUMNS, options).run_batch_write(str(number), [[{"word": str(number)}]])
        run = SourceRun(out, COLUMNS, {"startingVersion": "1", "maxFilesPerTrigger": "1"})
        run.run()
        log = CommitLog(open_filesystem(out))
        record = log.read_record(1)
        assert record is not None
        assert record.adds[0].encoding not in log.refresh().definitions.keys() | record.definitions.keys()
    assert [row["word"] for row in run.rows] == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.slow
def test_a_snapshot_of_many_files_is_as_many_batches_as_the_limit_makes_of_it(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(0, [[{"word": str(number)}] for number in range(100)])
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "10"})
    assert run.run() == 10
    assert sorted(int(row["word"]) for row in run.rows) == list(range(100))


def test_the_first_snapshot_has_one_order(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(0, [[{"word": str(number)}] for number in range(20)])
    found = [add.id for add in FirstSnapshot(CommitLog(open_filesystem(out))).adds(0)]
    assert found == sorted(found)


@pytest.mark.slow
def test_a_position_long_ago_is_compared_with_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head contains only the nonces of its newest versions."""
    monkeypatch.setattr("ftfile.log.apply.RECENT_RECORDS", 8)
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
    query.run(0, [[{"word": "0"}]])
    run = SourceRun(out, COLUMNS)
    run.run()
    for number in range(1, 12):
        query.run(number, [[]])
    MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(12, [[{"word": "12"}]])
    other = SourceRun(out, COLUMNS, offsets=[run.offsets[0].replace('"nonce": "', '"nonce": "x')], commits=1)
    with pytest.raises(AnotherLog, match="version 0 is not the version that the query has read"):
        other.run()
    run.run()
    assert [row["word"] for row in run.rows] == ["0", "12"]


@pytest.mark.slow
def test_a_copy_of_a_checkpoint_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "maxBatchesPerFile": "2"})
    run = SourceRun(out, COLUMNS, {"maxFilesPerTrigger": "2"})
    for number in range(6):
        query.run(number, [[{"word": str(2 * number)}], [{"word": str(2 * number + 1)}]])
        run.run(1)
    ftfile.flush(out)
    copy = SourceRun(out, COLUMNS, dict(run.options), offsets=run.offsets[:2], commits=1, batches={0: run.batches[0]})
    for each in (run, copy):
        each.run()
        assert sorted(int(row["word"]) for row in each.rows) == list(range(12))


@pytest.mark.slow
def test_the_checker_sees_what_was_read_twice_or_not_at_all(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "maxBatchesPerFile": "2"})
    run = SourceRun(out, COLUMNS)
    for number in range(5):
        query.run(number, [[{"word": str(number)}]])
        run.run()
    fs = open_filesystem(out)
    assert check_followed(fs, run)
    run.adds[0].append(run.adds[1][0])
    with pytest.raises(InvariantViolation, match=r"S6: .* were read twice"):
        check_followed(fs, run)
    run.adds[0].clear()
    with pytest.raises(InvariantViolation, match=r"S6: .* were not read"):
        check_followed(fs, run)
    run.offsets[0] = run.offsets[0].replace('"nonce": "', '"nonce": "x')
    with pytest.raises(InvariantViolation, match="S2: an offset names version 0"):
        check_followed(fs, run)
