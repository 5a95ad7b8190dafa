"""The view of readers on the log, wherever the files are at that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import CorruptData
from ftfile.log.format import layout
from ftfile.log.places import open_add
from ftfile.log.read.snapshot import take_snapshot

if TYPE_CHECKING:
    from tests.unit.log.conftest import Driver


class TestSnapshot:
    def test_finds_a_part_wherever_it_lies(self, driver: Driver) -> None:
        add = driver.stage(0)
        driver.create_record(author=driver.author(0), adds=(add,), lineage_start=0)
        assert open_add(add, driver.fs.read) == b"row\n"  # staged
        driver.commit(1)
        assert open_add(add, driver.fs.read) == b"row\n"  # final
        driver.commit(2, overwrite=True)
        assert open_add(add, driver.fs.read) == b"row\n"  # retired

    def test_looks_at_the_final_name_again_when_the_part_moves_meanwhile(self, driver: Driver) -> None:
        add = driver.stage(0)
        asked: list[str] = []

        def opener(path: str) -> bytes:
            asked.append(path)
            if path == add.path:
                driver.fs.rename(add.path, add.final_path or "")
            return driver.fs.read(path)

        assert open_add(add, opener) == b"row\n"
        assert asked == [add.final_path, add.path, add.final_path]

    def test_a_removed_part_whose_name_somebody_took(self, driver: Driver) -> None:
        add = driver.commit_new(0)
        driver.commit(1, overwrite=True)
        driver.fs.create_exclusive(add.final_path or "", b"somebody's\n")
        assert open_add(add, driver.fs.read) == b"row\n"
        with open_add(add, driver.fs.open) as file:
            assert file.read_at(0, 10) == b"row\n"
        assert open_add(add, driver.fs.stat).path == layout.retired_path(add.id)

    def test_a_live_part_of_another_length_is_opened_as_it_is(self, driver: Driver) -> None:
        add = driver.commit_new(0)
        driver.fs.put(add.final_path or "", b"cut")
        assert open_add(add, driver.fs.read) == b"cut"

    def test_a_part_that_is_nowhere_is_an_error(self, driver: Driver) -> None:
        add = driver.commit_new(0)
        driver.fs.delete(add.final_path or "")
        with pytest.raises(CorruptData, match="neither staged nor published nor retired"):
            open_add(add, driver.fs.read)

    def test_an_unknown_version_is_an_error(self, driver: Driver) -> None:
        driver.commit_new(0)
        with pytest.raises(Exception, match="there is no version 3: the newest is 0"):
            take_snapshot(driver.log, 3)
