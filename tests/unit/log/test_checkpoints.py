"""The end of the log, when checkpoints and hints name more records than exist."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import NotADirectory
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.read.snapshot import take_snapshot
from ftfile.storage.registry import WrapperFileSystem

if TYPE_CHECKING:
    from tests.unit.log.conftest import Driver


class TestCheckpoints:
    def test_the_newest_one_counts(self, driver: Driver) -> None:
        for batch in range(2):
            driver.commit_new(batch)
            write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        driver.restart()
        assert driver.log.refresh().queries["query-1"].last_batch == 1
        assert driver.log.delta_bytes == 0

    def test_the_adds_of_its_record_are_not_read(self, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those of a bulk load are most of what an opening would decode, and the checkpoint has the state."""
        monkeypatch.setattr("ftfile.log.format.record.COMPANION_FROM_BYTES", 10)
        driver.commit_new(0)
        write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
        (companion,) = [info.path for info in driver.fs.list(layout.LOG) if not info.path.endswith(".record")]
        driver.fs.delete(companion)
        driver.restart()
        assert driver.log.refresh().queries["query-1"].last_batch == 0


@pytest.mark.parametrize("directory", [layout.CHECKPOINTS, layout.COMPACTED])
def test_a_file_in_the_place_of_a_directory_is_an_error(driver: Driver, directory: str) -> None:
    """Without checkpoints, or without ranges, the log would be read as another one."""
    driver.commit_new(0)
    assert driver.fs.remove_directory(directory)
    driver.fs.create_exclusive(directory, b"")
    driver.restart()
    with pytest.raises(NotADirectory, match=directory):
        take_snapshot(driver.log)


def test_a_directory_that_was_deleted_is_made_anew(driver: Driver) -> None:
    driver.commit_new(0)
    shutil.rmtree(driver.root)
    add = driver.commit_new(0)
    assert driver.visible() == {add.final_path}


class TestHoles:
    def test_a_hint_beyond_the_end_of_the_log_is_told_of(
        self, driver: Driver, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Records are lost, or the directory was copied while a batch was committed: readers need not stop."""
        first, _ = driver.commit_new(0), driver.commit_new(1)
        driver.fs.delete(layout.record_path(1))
        driver.restart()
        assert driver.log.refresh().version == 0
        assert set(take_snapshot(driver.log).adds) == {first.id}
        assert "its newest records are lost" in caplog.text

    def test_records_that_appear_while_one_reads_make_no_hole(self, driver: Driver) -> None:
        driver.commit_new(0)

        class Overtaken(WrapperFileSystem):
            """Two records are created and published while the reader finds that the first is not there."""

            passed = False

            def read(self, path: str, bytes_max: int | None = None) -> bytes:
                try:
                    return super().read(path, bytes_max)
                finally:
                    if path == layout.record_path(1) and not self.passed:
                        self.passed = True
                        for batch in (1, 2):
                            driver.commit_new(batch)

        assert CommitLog(Overtaken(driver.fs)).refresh().version == 2
        assert len(take_snapshot(driver.log).adds) == 3

    def test_records_that_are_removed_behind_a_checkpoint_while_one_reads_make_no_hole(self, driver: Driver) -> None:
        driver.commit_new(0)

        class Trimmed(WrapperFileSystem):
            """Other writers commit and delete old records while the reader reads the second record."""

            passed = False

            def read(self, path: str, bytes_max: int | None = None) -> bytes:
                if path == layout.record_path(1) and not self.passed:
                    self.passed = True
                    for batch in (1, 2):
                        driver.commit_new(batch)
                    write_checkpoint(driver.fs, SYSTEM.ids, driver.log.refresh())
                    driver.commit_new(3)
                    for version in range(2):
                        driver.fs.delete(layout.record_path(version))
                return super().read(path, bytes_max)

        assert CommitLog(Trimmed(driver.fs)).refresh().version == 3
