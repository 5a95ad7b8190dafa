"""Old versions, by number and by time."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

START = datetime(2024, 7, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def out(tmp_path: Path) -> str:
    """Three versions, created at intervals of a minute."""
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "json"})
    for version in range(3):
        query.run(version, [[{"id": version}]])
        created(out, version, START + timedelta(minutes=version))
    return out


def created(out: str, version: int, time: datetime) -> None:
    """Set the creation time that the storage returns for a version."""
    os.utime(f"{out}/{layout.record_path(version)}", (time.timestamp(), time.timestamp()))


def ids(out: str, version: int | None = None) -> list[Any]:
    return sorted(ftfile.open(out).to_arrow(version)["id"].to_pylist())


@parametrize(
    ("time", "version"),
    [
        ("2024-07-01T12:00:00Z", 0),
        ("2024-07-01T12:00:59.999Z", 0),
        ("2024-07-01 12:01", 1),
        ("2024-07-01T14:01:30+02:00", 1),
        ("2024-07-01T12:02:00.5", 2),
        ("2030-01-01", 2),
        (START + timedelta(seconds=61), 1),
        (datetime(2024, 7, 1, 12, 1), 1),  # noqa: DTZ001 - without a zone it is UTC
    ],
    quick=3,
)
def test_the_newest_version_that_was_there(out: str, time: str | datetime, version: int) -> None:
    assert ftfile.open(out).version_at(time) == version


def test_before_the_first_version_there_is_none(out: str) -> None:
    with pytest.raises(ConfigError, match=r"2024-07-01T11:59:59.*the oldest that can be read is version 0 of 2024"):
        ftfile.open(out).version_at("2024-07-01T11:59:59Z")


def test_what_is_no_time_says_what_is(out: str) -> None:
    with pytest.raises(ConfigError, match="'yesterday' is not an ISO 8601 time, such as 2024-07-01T12:00:00Z"):
        ftfile.open(out).version_at("yesterday")


def test_versions_whose_records_are_gone_are_not_offered(out: str) -> None:
    log = CommitLog(open_filesystem(out))
    write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    Path(out, layout.record_path(0)).unlink()
    directory = ftfile.open(out)
    with pytest.raises(ConfigError, match=r"the oldest that can be read is version 1 of 2024-07-01T12:01:00.000"):
        directory.version_at("2024-07-01T12:00:30Z")
    assert directory.version_at("2024-07-01T12:01:30Z") == 1


def test_the_history_tells_the_same_times(out: str) -> None:
    directory = ftfile.open(out)
    for version in directory.history():
        time = datetime.fromtimestamp(version.time_ms / 1000, timezone.utc)
        assert directory.version_at(time) == version.version
        assert time == START + timedelta(minutes=version.version)


@pytest.mark.slow
def test_what_vacuum_keeps(out: str) -> None:
    """A vacuum keeps the newest version older than the retention, for reads at that time, and all later versions."""
    log = CommitLog(open_filesystem(out))
    for _ in range(2):
        write_checkpoint(log.fs, SYSTEM.ids, log.refresh())
    write_due_compacted(log, log.refresh())
    since = datetime.now(timezone.utc) - START
    report = ftfile.vacuum(out, dry_run=False, retention=f"{since.total_seconds() - 90} s")
    directory = ftfile.open(out)
    assert (report.oldest_version, directory.oldest_version()) == (1, 1)
    assert [version.version for version in directory.history()] == [1, 2, 3]
    assert directory.version_at("2024-07-01T12:01:30Z") == 1
    assert ids(out, 1) == [0, 1]
    with pytest.raises(ConfigError, match=r"the oldest that can be read is version 1 of 2024-07-01T12:01:00"):
        directory.version_at("2024-07-01T12:00:30Z")
    with pytest.raises(ConfigError, match="there is no version 0: the newest is 3, the oldest 1"):
        ids(out, 0)


class TestReplacedParts:
    @pytest.mark.slow
    def test_are_read_from_where_they_are_hidden(self, out: str) -> None:
        ftfile.compact(out)
        ftfile.drop(out, "all")
        assert [ids(out, version) for version in range(5)] == [[0], [0, 1], [0, 1, 2], [0, 1, 2], []]

    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_are_not_taken_for_another_file_of_their_name_and_length(self, tmp_path: Path, file_format: str) -> None:
        out = str(tmp_path / "replaced")
        query = MicroBatch(out, {"id": "long"}, {"fileFormat": file_format})
        query.run(0, [[{"id": 0}]])
        (old,) = ftfile.open(out).files()
        ftfile.drop(out, "all")
        query.run(1, [[{"id": 1}]])
        (new,) = ftfile.open(out).files()
        assert new.size_bytes == old.size_bytes
        shutil.copy(f"{out}/{new.path}", f"{out}/{old.path}")  # a user restores the wrong file
        assert (ids(out, 0), ids(out, 2)) == ([0], [1])

    def test_that_are_vacuumed_are_an_error_that_says_so(self, out: str) -> None:
        ftfile.drop(out, "all")
        shutil.rmtree(f"{out}/{layout.RETIRED}")
        with pytest.raises(CorruptData, match="If the version is old, vacuum has deleted its files"):
            ids(out, 2)
        assert ids(out) == []
