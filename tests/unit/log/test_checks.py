"""Whatever is recorded can be published: final paths are checked before the record, and cost no calls later."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, NameCollision, NotPublished
from ftfile.log import commit_log as log
from ftfile.log.checks import FinalPaths, Rewrite
from ftfile.log.commit_log import DIRECTORIES_KEPT, KnownPaths
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.policy import DEFAULT_POLICY
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.paths import NAME_BYTES_MAX
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.log.conftest import Driver
from tests.wrappers import MeteredFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.log.format.model import Add
    from ftfile.log.protocol import Committed
    from ftfile.storage.api import Capabilities, FileSystem


@pytest.fixture
def fs(request: pytest.FixtureRequest) -> Iterator[MemoryFileSystem]:
    yield MemoryFileSystem(request.node.name)
    MemoryFileSystem.drop(request.node.name)


def put(fs: FileSystem, path: str) -> None:
    fs.make_directories(path.rpartition("/")[0])
    fs.create_exclusive(path, b"foreign")


class TestABatch:
    @pytest.mark.parametrize("blocked", ["a", "a/b"])
    def test_with_a_file_where_a_directory_is_needed(self, fs: MemoryFileSystem, blocked: str) -> None:
        driver = Driver(fs)
        put(fs, blocked)
        with pytest.raises(NameCollision, match=f"'{blocked}' is taken: a directory is needed"):
            driver.commit(0, driver.stage(0, name="a/b/c/x"))
        assert driver.log.refresh().version == -1
        fs.delete(blocked)
        driver.commit(0, driver.stage(0, name="a/b/c/x"))
        assert fs.exists("a/b/c/x")

    @pytest.mark.parametrize("target", ["nowhere", "file/x", "a"], ids=["to nothing", "through a file", "to itself"])
    @pytest.mark.parametrize("name", ["a", "a/x"])
    def test_with_a_link_that_leads_nowhere(self, tmp_path: Path, name: str, target: str) -> None:
        driver = Driver(LocalFileSystem(str(tmp_path), SYSTEM))
        (tmp_path / "file").touch()
        (tmp_path / "a").symlink_to(target)
        with pytest.raises(NameCollision, match=r"'a' is taken: .*a file of that name exists"):
            driver.commit(0, driver.stage(0, name=name))
        assert driver.log.refresh().version == -1
        (tmp_path / "a").unlink()
        driver.commit(0, driver.stage(0, name=name))

    def test_whose_dead_letters_have_no_directory(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        put(fs, "_ftfile/deadLetters")
        letter = driver.stage(0, name="_ftfile/deadLetters/query-1/x.deadLetters")
        with pytest.raises(NameCollision, match="'_ftfile/deadLetters' is taken"):
            driver.commit(0, driver.stage(0), dead_letters=(letter,))
        assert driver.log.refresh().version == -1

    @pytest.mark.parametrize("names", [("a", "a/x"), ("a/x", "a"), ("a", "a")])
    def test_in_which_names_exclude_each_other(self, fs: MemoryFileSystem, names: tuple[str, str]) -> None:
        driver = Driver(fs)
        with pytest.raises(NameCollision, match="'a' is taken"):
            driver.commit(0, *(driver.stage(0, name=name) for name in names))
        assert driver.log.refresh().version == -1

    @pytest.mark.parametrize("name", ["x" * (NAME_BYTES_MAX + 1), f"{'é' * 128}/x", "a//x", "../x", "a\0"])
    def test_with_a_name_that_no_storage_keeps(self, fs: MemoryFileSystem, name: str) -> None:
        driver = Driver(fs)
        with pytest.raises(ConfigError, match="the name of a new file would be"):
            driver.commit(0, driver.stage(0, name=name))
        assert driver.log.refresh().version == -1
        driver.commit(0, driver.stage(0, name="x" * NAME_BYTES_MAX))

    def test_with_a_path_that_this_storage_does_not_keep(self, fs: MemoryFileSystem) -> None:
        class Short(WrapperFileSystem):
            @property
            def capabilities(self) -> Capabilities:
                return dataclasses.replace(self.inner.capabilities, path_bytes_max=100)

        driver = Driver(Short(fs))
        with pytest.raises(ConfigError, match="can have 101 bytes, and this storage allows 100"):
            driver.commit(0, driver.stage(0, name=f"{'a' * 50}/{'b' * 50}"))
        driver.commit(0, driver.stage(0, name=f"{'a' * 50}/{'b' * 49}"))

    def test_into_a_directory_that_is_to_be_a_part_of_another_query(self, fs: MemoryFileSystem) -> None:
        """Its record exists, and its part is not published yet."""
        driver = Driver(fs)
        driver.create_record(adds=(driver.stage(0, name="a"),))
        other = Driver(fs, query_id="query-2", policy=dataclasses.replace(DEFAULT_POLICY, on_new_query="continue"))
        head = other.log.refresh()
        paths = FinalPaths(other.log, head, [late := other.stage(0, name="a/x")])
        with pytest.raises(NameCollision, match="'a' is taken: a directory is needed"):
            paths.claim([late])


class TestRewrites:
    def rewrite(self, driver: Driver, old: Add, name: str) -> Rewrite:
        return Rewrite((old,), (driver.stage(9, name=name),), driver.log.refresh().version)

    def maintain(self, driver: Driver, *rewrites: Rewrite) -> Committed:
        author = MaintenanceAuthor("compact", driver.log.ids.unique())
        return driver.commit_as(author, rewrites=rewrites)

    def test_without_a_name_fail_no_batch(self, fs: MemoryFileSystem, caplog: pytest.LogCaptureFixture) -> None:
        driver = Driver(fs)
        old = [driver.stage(0, name=name) for name in "ab"]
        driver.commit(0, *old)
        put(fs, "blocked")
        rewrites = (self.rewrite(driver, old[0], "blocked/x"), self.rewrite(driver, old[1], "free/x"))
        driver.commit(1, rewrites=rewrites, tasks=1)
        assert "its rows stay in their files: 'blocked' is taken" in caplog.text
        assert fs.exists("a")
        assert fs.exists("free/x")
        assert not fs.exists("b")

    def test_give_way_to_a_batch_s_own_rows(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        old = driver.stage(0)
        driver.commit(0, old)
        new = driver.stage(1, b"new\n", name="same")
        driver.commit(1, new, rewrites=(self.rewrite(driver, old, "same"),))
        assert [str(each.error)[:20] for each in driver.accepted.refused] == ["'same' is taken: ano"]
        assert fs.read("same") == b"new\n"

    def test_of_maintenance_leave_each_other_alone(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        old = [driver.stage(0, name=name) for name in "ab"]
        driver.commit(0, *old)
        long = self.rewrite(driver, old[0], "x" * (NAME_BYTES_MAX + 1))
        self.maintain(driver, long, self.rewrite(driver, old[1], "fine"))
        assert [each.rewrite for each in driver.accepted.refused] == [long]
        assert fs.exists("a")
        assert fs.exists("fine")

    def test_of_maintenance_that_all_have_no_name_are_not_recorded(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        old = driver.stage(0, name="a")
        driver.commit(0, old)
        done = self.maintain(driver, self.rewrite(driver, old, "x" * (NAME_BYTES_MAX + 1)))
        assert done.record is None
        assert len(driver.accepted.refused) == 1
        assert driver.log.refresh().version == 0
        assert fs.exists("a")

    def test_that_is_refused_leaves_its_names_to_others(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        old = [driver.stage(0, name=name) for name in "ab"]
        driver.commit(0, *old)
        half = Rewrite((old[0],), (driver.stage(9, name="dir/x"), driver.stage(9, name="x" * 256)), 0)
        self.maintain(driver, half, self.rewrite(driver, old[1], "dir"))
        assert [each.rewrite for each in driver.accepted.refused] == [half]
        assert not fs.stat("dir").is_directory


class TestDirectories:
    """Each is looked up once by a process."""

    def stats(self, driver: Driver, fs: MeteredFileSystem, batch: int, buckets: int) -> int:
        adds = [driver.stage(batch, name=f"d{number}/e/part-{{id}}") for number in range(buckets)]
        fs.counters.calls.clear()
        driver.commit(batch, *adds)
        return fs.counters.calls["stat"]

    def test_a_steady_stream_looks_up_none(self, fs: MemoryFileSystem) -> None:
        metered = MeteredFileSystem(fs)
        driver = Driver(metered)
        found = [self.stats(driver, metered, batch, 20) for batch in range(4)]
        # None is there, and the storage's clock is looked at; all are found; nothing is asked any more.
        assert found == [21, 40, 0, 0]

    def test_more_than_are_remembered(self, fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "DIRECTORIES_KEPT", 10)
        driver = Driver(fs)
        for batch in range(4):
            driver.commit(batch, *(driver.stage(batch, name=f"d{number}/part-{batch}") for number in range(25)))
            assert len(driver.log.known_paths.directories) <= 10
        assert len(fs.list("d24")) == 4

    @pytest.mark.slow
    def test_the_bound(self) -> None:
        known = KnownPaths()
        for number in range(DIRECTORIES_KEPT + 1):
            known.remember(f"d{number}")
        assert DIRECTORIES_KEPT // 2 <= len(known.directories) <= DIRECTORIES_KEPT
        assert f"d{DIRECTORIES_KEPT}" in known.directories

    def test_are_looked_up_anew_when_something_could_not_be_published(self, fs: MemoryFileSystem) -> None:
        driver = Driver(fs)
        for batch in range(2):
            driver.commit(batch, driver.stage(batch, name=f"d/part-{batch}"))
        for batch in range(2):
            fs.delete(f"d/part-{batch}")
        fs.remove_directory("d")
        put(fs, "d")
        other = Driver(fs, query_id="query-2", policy=dataclasses.replace(DEFAULT_POLICY, on_new_query="continue"))
        with pytest.raises(NameCollision, match="'d' is taken"):
            other.commit(0, other.stage(0, name="d/x"))
        with pytest.raises(NotPublished):
            driver.commit(2, driver.stage(2, name="d/part-2"))
        other.log = driver.log
        with pytest.raises(NameCollision, match="'d' is taken"):
            other.commit(0, other.stage(0, name="d/x"))
